"""`selfplay frontier`: how hard a run's tasks are for its solver, and how that moved.

Not here: what is believed of a task (`cli.beliefs`, `curriculum`), layout and picture (`views.frontier`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from selfplay.cli import runs
from selfplay.cli.session import Session, common
from selfplay.errors import NotFound, NotReady

if TYPE_CHECKING:
    from collections.abc import Sequence

    from selfplay.curriculum.history import Seen
    from selfplay.ledger import Reader
    from selfplay.views.frontier import CellRow, FrontierView, Rate

COLUMNS = 4
"""Steps that are shown: quarters of the run, the newest last."""


@click.command("frontier", short_help="How hard a run's tasks are for its solver, over time.")
@click.argument("run")
@click.option("--step", type=click.IntRange(min=0), metavar="N", help="As it was after step N [default: the newest].")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Draw it into FILE, too.")
@common
def command(session: Session, run: str, step: int | None, svg: Path | None) -> None:
    """A histogram of a run's tasks by expected solve rate, after each quarter of its steps.

    A task counts at the mean of its posterior: its attempts, older ones worth less as the policy moved, and what was
    expected of tasks like it. Beside it stand the target, what the proposer's reward asks for, and the cells' priors.

    \b
    Examples:
      selfplay frontier last
      selfplay frontier quickstart --step 40 --svg frontier.svg
    """
    from selfplay.ledger import Ledger
    from selfplay.views.frontier import frontier_data, frontier_screen, frontier_svg

    folder = runs.find_run(run, project=session.project)
    with Ledger.read(folder) as reader:
        view = view_of(reader, step)
    if svg is not None:
        _write(svg, frontier_svg(view))
    if session.json:
        session.answer("frontier", {**frontier_data(view), "svg": str(svg) if svg else None}, run=folder.name)
        return
    session.console().print(frontier_screen(view))
    run = runs.typed(folder, project=session.project)
    session.say(f"\n  drawn     {svg}" if svg else f"\n  a task    selfplay why {run} TASK")


def view_of(reader: Reader, step: int | None, *, at: Sequence[int] | None = None) -> FrontierView:
    """The frontier as it was after `step` (None: the newest), with columns after the steps `at`.

    Raises:
        NotFound: the step is not closed, or no task was played in a closed step.
    """
    from selfplay.cli.beliefs import believed, lens_of
    from selfplay.views.frontier import FrontierView, band_of, shot

    name, last = reader.folder.name, reader.last_closed_step()
    if step is not None and step > last:
        raise NotFound(
            f"step {step} of run `{name}` is not closed, its newest closed one is {last}"
            if last >= 0
            else f"no step of run `{name}` is closed yet",
            hint=f"where it stands: selfplay status {name}",
        )
    newest = last if step is None else step
    lens = lens_of(reader.run_row().config)
    seeds = [seed for seed in reader.seeds() if seed.split == "train"]
    # note: without a train seed nothing can have been played.
    looks = [(past, believed(reader, seeds, lens, after=past)) for past in at or columns(newest)] if seeds else []
    if not any(seen.candidates for _, seen in looks):
        raise NotFound(
            f"no task of run `{name}` was played in a closed step yet",
            hint=f"what became of its proposals: selfplay inspect {name}",
        )
    target, aim = 0.5, "where learnability is highest"
    if lens.target is not None:
        target, aim = lens.target, f"of curriculum {lens.name}"
    elif lens.paid is not None:
        target, aim = lens.paid, f"of reward {lens.reward}"
    return FrontierView(
        name=name,
        curriculum=lens.name,
        window=lens.window,
        half_life=lens.half_life,
        target=target,
        aim=aim,
        reward=lens.reward,
        paid=lens.paid,
        shots=tuple(shot(past, _rates(seen), band=band_of(target)) for past, seen in looks),
        cells=_cells(looks[-1][1]),
    )


def columns(last: int) -> tuple[int, ...]:
    """The last steps of the quarters of steps 0 to `last`, fewer where it is short; none below 0."""
    return tuple(sorted({max(0, (last + 1) * i // COLUMNS - 1) for i in range(1, COLUMNS + 1)})) if last >= 0 else ()


def _rates(seen: Seen) -> list[Rate]:
    from selfplay.views.frontier import Rate

    return [
        Rate(
            mean=one.rate.mean,
            decided=sum(play.decided for play in one.plain),
            solved=sum(play.solved for play in one.plain),
            helped=sum(play.decided for play in one.task.plays if play.hinted),
            helped_solved=sum(play.solved for play in one.task.plays if play.hinted),
        )
        for one in seen.candidates
    ]


def _cells(seen: Seen) -> tuple[CellRow, ...]:
    from selfplay.views.frontier import CellRow

    tasks = [one.cell for one in seen.candidates]
    rows = [
        CellRow(
            name=str(cell),
            tasks=tasks.count(cell),
            mean=prior.mean,
            deviation=prior.deviation,
            strength=prior.strength,
        )
        for cell, prior in seen.priors.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.tasks, row.name)))


def _write(to: Path, text: str) -> None:
    try:
        to.write_text(text, encoding="utf-8")
    except OSError as error:
        raise NotReady(f"cannot write {to}: {error.strerror}", hint=f"check the folder: ls -ld {to.parent}") from error
