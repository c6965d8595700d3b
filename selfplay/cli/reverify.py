"""`selfplay reverify`: judge a run's attempts again with today's verifier, and list what changed.

Not here: how (`reverify`).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from selfplay.cli import runs
from selfplay.cli.session import Session, common

if TYPE_CHECKING:
    from selfplay.reverify import Reverified

BACKENDS = ("auto", "docker", "bubblewrap", "local")


@click.command("reverify", short_help="Judge a run's attempts again with today's verifier.")
@click.argument("run")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the newest N.")
@click.option("--tasks", is_flag=True, help="The bugs instead: the clean function must pass, the buggy one fail.")
@click.option("--sandbox", type=click.Choice(BACKENDS), help="Where [default: as the run says].")
@common
def command(session: Session, run: str, *, limit: int | None, tasks: bool, sandbox: str | None) -> int:
    """Judge the stored attempts of RUN again, without sampling, and list whose verdict is another one now.

    Recorded verdicts stay, since the weights were learnt from them; one alarm in the ledger says how many differ. The
    run must not be held by another process. The exit code is 1 where something changed.

    \b
    Examples:
      selfplay reverify last
      selfplay reverify quickstart --limit 100 --sandbox docker
      selfplay reverify quickstart --tasks --json
    """
    if session.json:
        session.claim_stdout()
    folder = runs.find_run(run, project=session.project)
    from selfplay.reverify import reverify

    found = reverify(folder, project=session.project, sandbox=sandbox, limit=limit, tasks=tasks, say=session.say)
    if session.json:
        data = {name: value for name, value in asdict(found).items() if name != "changed"}
        session.answer("reverify", {**data, "changed": [asdict(one) for one in found.changed]}, run=folder.name)
    else:
        session.data.write("".join(f"{line}\n" for line in lines(found)))
        session.say(summary(found))
    return 1 if found.changed else 0


def lines(found: Reverified) -> list[str]:
    """A line for each thing that changed."""
    from selfplay.views.words import shorten

    return [
        f"step {one.step:<5} {one.id[:12]}  {one.old} -> {one.new}  {shorten(one.why, 120)}" for one in found.changed
    ]


def summary(found: Reverified) -> str:
    """The counts, in one sentence."""
    same = "still bugs" if found.what == "tasks" else "equal to their records but for times"
    text = f"{found.counted} judged again: {len(found.changed)} changed, {found.identical} {same}"
    return text + (f", {found.undecided} undecided because the machine failed" if found.undecided else "")
