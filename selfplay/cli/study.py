"""`selfplay study`: several ways to learn, with the same start and budget, compared on tasks that are opened once.

Not here: arms, budget, measuring, statistics, the page (`study`), making tasks (`evaluation.making`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from selfplay.cli import signals
from selfplay.cli.session import Session, common
from selfplay.errors import UserError

if TYPE_CHECKING:
    from selfplay.study.arms import Job
    from selfplay.study.spec import Study

STOPPED = 75


@click.command("study", short_help="Ways to learn compared, with one budget and tasks that are opened once.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False, metavar="FILE.toml")
@click.option("--plan", is_flag=True, help="Print arms, seeds, hours and endpoint; play nothing.")
@click.option(
    "--only", multiple=True, metavar="ARM", help="Only these arms; measured once all are played, or the test is open."
)
@click.option("--seed", "seeds", multiple=True, type=int, metavar="N", help="Only these seeds, likewise.")
@click.option("--dev", is_flag=True, help="Tune: the study's dev seeds, on held-out tasks of the training package.")
@click.option("--make-tasks", is_flag=True, help="Make the endpoint's tasks, and print their digest.")
@click.option("--open-again", is_flag=True, help="Open the test tasks though another form of the study has.")
@click.option("--again", is_flag=True, help="Play a second time, beside the first, and compare the ledgers.")
@click.option("--page", is_flag=True, help="Only make curricula/results/README.md anew from the committed results.")
@common
def command(
    session: Session,
    file: Path | None,
    *,
    plan: bool,
    only: tuple[str, ...],
    seeds: tuple[int, ...],
    dev: bool,
    make_tasks: bool,
    open_again: bool,
    again: bool,
    page: bool,
) -> int:
    """Play every arm of the study in FILE.toml with every seed, then open its test tasks and measure; resumable.

    Each arm and seed is a run under runs/studies/NAME/; what is there is not played again. Each result is a file under
    curricula/results/NAME/, and curricula/results/README.md is made of those; what has one is not played anew. An arm
    ends once it has generated and trained as many tokens as the budget says. The test is opened when all arms are
    played, and once: a study that was changed since must say --open-again. What is played after that is measured
    at once.

    With --again each arm is played anew under runs/studies/NAME/ARM-SEED-again, from where the first run started (where
    that is not on this machine, from a warm-up done anew), and its ledger is held against the first run's or the
    committed result's. Exit code 1 where one differs.

    \b
    Examples:
      selfplay study curricula/studies/toy.toml
      selfplay study curricula/studies/small.toml --plan
      selfplay study curricula/studies/small.toml --only frontier --seed 0
      selfplay study curricula/studies/small.toml --only frontier --seed 0 --again
      selfplay study --page
    """
    if session.json:
        session.claim_stdout()
    if again and (plan or make_tasks or open_again or page):
        raise UserError("--again plays and compares, and goes with --only, --seed and --dev alone")
    if page and file is None:
        return _page(session, None)
    if file is None:
        raise UserError("which study?", hint="selfplay study curricula/studies/toy.toml")
    from selfplay.study.spec import read

    study = read(file)
    if page:
        return _page(session, study.results.parent)
    if make_tasks:
        return _make(session, study)
    chosen = _chosen(session, study, only=only, seeds=seeds, dev=dev)
    if plan:
        return _plan(session, study, chosen, dev=dev)
    if again:
        return _again(session, chosen, only=only, dev=dev)
    return _whole(session, study, chosen, part=bool(only or seeds), dev=dev, again=open_again)


def _page(session: Session, results: Path | None) -> int:
    """Make the page over `results`; None: over the project's."""
    from selfplay.study import page

    if results is None:
        folder = session.project.folder
        if folder is None:
            raise UserError("there is no project here", hint="selfplay init, or name one: --project DIR")
        results = folder / "curricula" / "results"
    path = page.write(results)
    session.say(f"made {path}")
    if session.json:
        session.answer("study", {"page": str(path)})
    return 0


def _chosen(session: Session, study: Study, *, only: Sequence[str], seeds: Sequence[int], dev: bool) -> list[Job]:
    """The runs that are asked for, with those that they build upon."""
    from selfplay.study.arms import jobs

    every = jobs(study, project=session.project, dev=dev)
    if not every:
        raise UserError(f"study `{study.name}` has no {'dev ' if dev else ''}seed", hint="name some: seeds = [0, 1, 2]")
    wanted = {study.arm(name).name for name in only} or {arm.name for arm in study.arms}
    for arm in reversed(study.arms):
        if arm.name in wanted:
            wanted.update(arm.upon)
    known = {job.seed for job in every}
    if strange := [seed for seed in seeds if seed not in known]:
        raise UserError(f"{strange[0]} is no seed of study `{study.name}`", hint=f"its seeds: {sorted(known)}")
    return [job for job in every if job.arm.name in wanted and (not seeds or job.seed in seeds)]


def _whole(session: Session, study: Study, chosen: Sequence[Job], *, part: bool, dev: bool, again: bool) -> int:
    """Play what is owed, and once all is played measure."""
    from selfplay.study import arms, opening

    if not dev and not part:
        # note: before hours are spent on what could not be measured.
        opening.task_files(study)
    if not _played(session, arms.owed(chosen, project=session.project, dev=dev)):
        return STOPPED
    if part and not dev and not opening.is_open(study) and (left := _left(session, study)):
        names = ", ".join(left[:3]) + (", ..." if len(left) > 3 else "")
        session.say(f"{study.name}: the test is opened when {names} {'is' if len(left) == 1 else 'are'} played too")
        return 0
    return _measured(session, study, chosen, dev=dev, again=again)


def _left(session: Session, study: Study) -> list[str]:
    """The runs of the whole study that are not played to their end."""
    from selfplay.study import arms

    project = session.project
    every = arms.owed(arms.jobs(study, project=project, dev=False), project=project, dev=False)
    return [job.name for job in every if not arms.done(job, project=project)]


def _plan(session: Session, study: Study, chosen: Sequence[Job], *, dev: bool) -> int:
    from selfplay.study.planning import planned

    found = planned(study, chosen, project=session.project, dev=dev)
    if session.json:
        session.answer("study", found.data)
    else:
        session.data.write("".join(f"{line}\n" for line in found.lines))
        session.say("nothing was played; without --plan it is")
    return 0


def _make(session: Session, study: Study) -> int:
    from selfplay.evaluation.making import make, slipped
    from selfplay.events import Interrupt
    from selfplay.stages import Interrupted
    from selfplay.study import opening
    from selfplay.study.arms import root_of
    from selfplay.study.writing import written
    from selfplay.views.observers import PlainObserver

    made = study.making
    if not made.sources or study.endpoint.tasks == "held_out":
        raise UserError(f"{study.path} does not say of what tasks are made", hint="[making] sources = ['pypi:...']")
    interrupt, project = Interrupt(), session.project
    with PlainObserver(sys.stderr, run=study.name) as observe, ExitStack() as stack:
        find = slipped(project=project, observe=observe)
        if made.writer:
            # note: slips are no run, Ctrl-C ends them at once.
            stack.enter_context(signals.listen(interrupt, say=session.say))
            root = root_of(study, project=project)
            find = written(study, root=root, project=project, observe=observe, interrupt=interrupt)
        try:
            found = make(
                made.sources,
                folder=opening.place(study),
                bugs=made.bugs,
                functions=made.functions,
                each=made.each,
                find=find,
                observe=observe,
            )
        except Interrupted:
            session.say("stopped; the same command goes on")
            return STOPPED
    digest = opening.digest_of(opening.files_in(study))
    if session.json:
        session.answer("study", {**found.data, "digest": digest})
    else:
        session.data.write("".join(f"{line}\n" for line in found.lines))
        session.data.write(f'digest = "{digest}"\n')
    return 0


def _played(session: Session, chosen: Sequence[Job]) -> bool:
    """Play what is owed; False where it was asked to stop."""
    from selfplay.events import Interrupt
    from selfplay.study import arms
    from selfplay.views.observers import PlainObserver

    interrupt = Interrupt()
    for number, job in enumerate(chosen, start=1):
        with PlainObserver(sys.stderr, run=job.name, quiet=session.json) as observe:
            session.say(f"[{number}/{len(chosen)}] {job.name}")
            with signals.listen(interrupt, say=session.say):
                if not arms.play(job, project=session.project, observe=observe, interrupt=interrupt):
                    session.say("stopped; the same command goes on")
                    return False
    return True


def _again(session: Session, chosen: Sequence[Job], *, only: Sequence[str], dev: bool) -> int:
    """Play a second time, and say whether it came out the same."""
    from selfplay.study import again, arms

    project = session.project
    asked = [job for job in chosen if not only or job.arm.name in only]
    twice = again.twice(asked, project=project, dev=dev)
    if not _played(session, arms.before(list(map(again.second, twice)), chosen)):
        return STOPPED
    found = [again.compare(job, project=project, dev=dev) for job in twice]
    if session.json:
        rows = [
            {"run": one.name, "same": one.same, "first": one.first, "second": one.second, "tables": one.tables}
            for one in found
        ]
        session.answer("study", {"again": rows})
    else:
        session.data.write("".join(f"{one.words}\n" for one in found))
    return 0 if all(one.same for one in found) else 1


def _measured(session: Session, study: Study, chosen: Sequence[Job], *, dev: bool, again: bool) -> int:
    """Measure what has no result yet, and make the page."""
    from selfplay.study import arms, measuring, opening, page, results
    from selfplay.views.observers import PlainObserver

    test = () if dev else opening.task_files(study)
    if not dev:
        opening.open_test(study, again=again)
    results.describe(study)
    made: list[dict[str, Any]] = []
    for job in chosen:
        if not job.arm.measured or arms.measured(job, project=session.project, dev=dev):
            continue
        with PlainObserver(sys.stderr, run=job.name, quiet=session.json) as observe:
            found = measuring.result(job, test=test, tested=not dev, project=session.project, observe=observe)
        path = results.path_of(study, name=job.name, dev=dev)
        results.put(path, found)
        made.append(found)
        session.say(f"measured {job.name}: {path}")
    path = page.write(study.results.parent)
    if session.json:
        data = {"study": study.name, "measured": len(made), "results": str(study.results), "page": str(path)}
        session.answer("study", data)
    else:
        session.data.write(page.of_study(study.results))
        session.say(f"{study.name}: {len(made)} measured; {path}")
    return 0
