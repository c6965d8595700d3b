"""`selfplay check`: is a run as it was recorded, and what can be saved of one that is not? Or a repository, a project?

Not here: the checks (`audit`, `ledger.check`), the rescue (`salvage`), repositories (`cli.check_source`), projects
(`cli.check_project`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from selfplay.cli import runs
from selfplay.cli.session import Session, common
from selfplay.errors import UserError

if TYPE_CHECKING:
    from selfplay.ledger.found import Checked


@click.command("check", short_help="Is a run as it was recorded, a project sound, a repository playable?")
@click.argument("what", required=False, metavar="[RUN|REPOSITORY]")
@click.option("--salvage", metavar="NAME", help="Make the run NAME of what is whole, up to the last whole step.")
@click.option(
    "-s", "--set", "sets", multiple=True, metavar="KEY=VALUE", help="A setting, for a repository; repeatable."
)
@click.option("--sandbox", metavar="S", help="Where a repository's tests run: auto, docker, bubblewrap, local.")
@click.option("--read-only", is_flag=True, help="Only read the repository; run nothing of it.")
@common
def command(
    session: Session,
    what: str | None,
    *,
    salvage: str | None,
    sets: tuple[str, ...],
    sandbox: str | None,
    read_only: bool,
) -> int:
    """Check every digest, reference, id, length and sum of a run, and its saves on disk.

    Without RUN: the project's settings, presets, roles and sandboxes, read as a run would read them; nothing is played.

    The run may be going on; nothing is written. The exit code is 1 where something is wrong. --salvage copies what
    is whole of a damaged run into a new one, which can be resumed; the damaged one stays as it is.

    A REPOSITORY (a folder, a git URL, pypi:NAME==VERSION) is read and its tests are run twice in a sandbox, as a run
    would: what is special about it is said, and what is done about it. The exit code is 1 where it cannot be played.

    \b
    Examples:
      selfplay check
      selfplay check last
      selfplay check quickstart --salvage quickstart-2
      selfplay check ./my-package
      selfplay check pypi:toolz==1.2.0 --read-only
    """
    from selfplay.cli import check_project, check_source

    if what is None:
        if salvage or sets or sandbox or read_only:
            raise UserError("these options are for a run or a repository", hint="name it: selfplay check RUN")
        return check_project.check(session)
    if check_source.is_source(what, project=session.project):
        if salvage is not None:
            raise UserError("--salvage is for runs", hint=f"leave it out: selfplay check {what}")
        typed = (*sets, *([f"sandbox.kind={sandbox}"] if sandbox is not None else []))
        return check_source.check(session, what, sets=typed, read_only=read_only)
    if sets or sandbox or read_only:
        raise UserError("-s, --sandbox and --read-only are for repositories", hint=f"selfplay check {what}")
    folder = runs.find_run(what, project=session.project)
    return _check(session, folder) if salvage is None else _salvage(session, folder, salvage)


def _check(session: Session, folder: Path) -> int:
    from selfplay.audit import audit
    from selfplay.views.words import plural

    found = []
    for checked in audit(folder):
        found.append(checked)
        if not session.json:
            session.data.write(line(checked))
            session.data.flush()
    wrong = sum(checked.num_problems for checked in found)
    if session.json:
        session.answer(
            "check", {"ok": not wrong, "checks": [check_data(checked) for checked in found]}, run=folder.name
        )
    elif wrong:
        session.say(f"\n{folder.name}: {plural(wrong, 'problem')} in {folder}")
        session.say(f"  save what is whole    selfplay check {folder.name} --salvage {folder.name}-2")
    else:
        seconds = sum(checked.seconds for checked in found)
        session.say(f"\n{folder.name}: {len(found)} checks in {seconds:.1f} s, nothing wrong")
    return 1 if wrong else 0


def line(checked: Checked) -> str:
    """One line a check, and one for each thing that it found."""
    mark = "WRONG" if checked.num_problems else "ok"
    rows = [f"{mark:<6}{checked.name:<11}{checked.count:>9,} {checked.what:<48}{checked.seconds:>6.2f} s"]
    rows += [f"        {problem}" for problem in checked.problems]
    if checked.num_problems > len(checked.problems):
        rows.append(f"        and {checked.num_problems - len(checked.problems)} more")
    rows += [f"        note: {note}" for note in checked.notes]
    return "\n".join(rows) + "\n"


def check_data(checked: Checked) -> dict[str, Any]:
    """One check as JSON."""
    names = ("name", "what", "count", "num_problems", "seconds")
    lists = {"problems": list(checked.problems), "notes": list(checked.notes)}
    return {**{name: getattr(checked, name) for name in names}, **lists}


def _salvage(session: Session, folder: Path, name: str) -> int:
    from selfplay.salvage import salvage
    from selfplay.views.words import plural

    target = session.project.runs / runs.check_name(name)
    if target.exists():
        free = runs.free_name(target.name, project=session.project)
        raise UserError(f"there is a run `{name}` already", hint=f"choose another: --salvage {free}")
    saved = salvage(folder, target)
    if session.json:
        data = {"folder": str(target), "steps": saved.steps, "rows": dict(saved.rows), "saves": list(saved.saves)}
        session.answer("check", {"salvaged": {**data, "left_out": saved.left_out}}, run=name)
        return 0
    made = (
        plural(saved.steps, "whole step"),
        plural(sum(saved.rows.values()), "row"),
        plural(len(saved.saves), "save"),
    )
    session.say(f"{name}: {', '.join(made)}; it lies in {target}")
    if saved.left_out:
        session.say(f"  left out  {saved.left_out}")
    session.say(f"  check     selfplay check {name}\n  go on     selfplay run --name {name}")
    return 0
