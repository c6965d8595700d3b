"""Every page that a person reads, character by character, of a run whose rows are written by hand.

A page that changed on purpose is written anew with `SELFPLAY_SCREENS=write pytest tests/views/test_screens.py -n 0`,
and read before it is committed. Status, watch and the run's own screen have theirs in their own tests.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from selfplay.ledger import Ledger, Reader
from selfplay.ledger.story import story
from selfplay.types import Trajectory
from selfplay.views import inspect as gather
from selfplay.views.compare import Side, compare, compare_screen
from selfplay.views.draw import OWN, chart_of, terminal
from selfplay.views.frontier import CellRow, FrontierView, Rate, frontier_screen, shot
from selfplay.views.inspect_pick import pick, pick_table
from selfplay.views.inspect_text import attempt_page, proposal_page, seed_page, steps_listing, task_page
from selfplay.views.status import RunView, runs_table
from selfplay.views.watch_browser import HELP
from selfplay.views.why import Belief, WhyView, why_page

SCREENS = Path(__file__).parent / "screens"
BAND = (0.35, 0.65)


def _proposals(reader: Reader) -> tuple[Trajectory, ...]:
    return tuple(sorted(reader.trajectories(0, "propose"), key=lambda one: one.index))


def _attempt(reader: Reader) -> RenderableType:
    attempt = min(reader.trajectories(0, "attempt"), key=lambda one: one.index)
    return attempt_page(gather.play_of(reader, attempt), task=reader.task(attempt.subject_id))


def _task(reader: Reader) -> RenderableType:
    (task,) = reader.tasks(0)
    origin = gather.origin_of(reader, task)
    assert origin is not None
    plays = gather.attempts_on(reader, task.id)
    proposal = gather.play_of(reader, origin)
    return task_page(task, seed=reader.seed(task.seed_id), attempts=plays, origin=origin, proposal=proposal)


def _seed(reader: Reader) -> RenderableType:
    return seed_page(reader.seeds()[0], proposals=[gather.proposal_of(reader, one) for one in _proposals(reader)])


def _why(reader: Reader) -> RenderableType:
    (task,) = reader.tasks(0)
    belief = Belief(step=0, mean=0.5, low=0.1, high=0.9, prior=0.4)
    told = reader.ask(lambda ask: story(ask, task.id))
    return why_page(WhyView(story=told, beliefs=(belief,), cell="echo_solver", standing="may be replayed", code="open"))


def _frontier(reader: Reader) -> RenderableType:
    rates = [Rate(mean=mean, decided=8, solved=round(8 * mean)) for mean in (0.0, 0.3, 0.5, 0.55, 1.0)]
    shots = tuple(shot(step, rates[:some], band=BAND) for step, some in ((4, 2), (9, 5)))
    return frontier_screen(
        FrontierView(
            name=reader.folder.name,
            curriculum="frontier",
            window=64,
            half_life=30.0,
            target=0.5,
            aim="of curriculum frontier",
            reward="ssr",
            paid=0.257,
            shots=shots,
            cells=(CellRow(name="echo_solver", tasks=5, mean=0.4, deviation=0.1, strength=9.0),),
        )
    )


def _runs(reader: Reader) -> RenderableType:
    view = RunView(name="small", folder="runs/small", status=reader.status(), steps=3, holder=None)
    held = replace(view, name="held", holder="process 7 on here")
    return runs_table([view, held, replace(held, name="waits", paused=True)], now=view.status.last_seen + 4.0)


def _compare(reader: Reader) -> RenderableType:
    one = Side(
        name="one",
        closed=10,
        evaluated=8,
        attempts={"s:a": (4, 1), "s:b": (4, 2), "s:c": (4, 0)},
        valid={"s": 0.5, "t": 0.25},
        figures={"valid": 0.5, "solved": 0.25, "informative": None},
        config={"learner.lr": 0.1},
    )
    solved = {"s:a": (4, 2), "s:b": (4, 4), "s:c": (4, 0)}
    return compare_screen(compare(one, replace(one, name="two", attempts=solved, config={"learner.lr": 0.2})))


def _plot(reader: Reader) -> RenderableType:
    return terminal([chart_of(metric, {"small": (reader.step_rows(), {})}) for metric in OWN[:3]], width=80)


PAGES: Mapping[str, Callable[[Reader], RenderableType]] = {
    "inspect_steps": lambda reader: steps_listing([gather.step_plays(reader, step) for step in (0, 1)]),
    "inspect_proposal": lambda reader: proposal_page(gather.proposal_of(reader, _proposals(reader)[0])),
    "inspect_refused": lambda reader: proposal_page(gather.proposal_of(reader, _proposals(reader)[1])),
    "inspect_attempt": _attempt,
    "inspect_task": _task,
    "inspect_seed": _seed,
    "inspect_best": lambda reader: pick_table(pick(reader, "best", [0])),
    "inspect_rejected": lambda reader: pick_table(pick(reader, "rejected", [0], reason="not_a_word")),
    "why": _why,
    "frontier": _frontier,
    "status_runs": _runs,
    "compare": _compare,
    "plot": _plot,
    "watch_help": lambda reader: HELP,
}
"""Name of a page, and of the file that holds it -> how it is drawn."""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_as_it_was_read(played_run: Path, name: str) -> None:
    to = io.StringIO()
    with Ledger.read(played_run) as reader:
        Console(file=to, width=80, highlight=False).print(PAGES[name](reader))
    text = "".join(f"{row.rstrip()}\n" for row in to.getvalue().splitlines())
    assert all(len(row) <= 80 for row in text.splitlines())
    file = SCREENS / f"{name}.txt"
    if os.environ.get("SELFPLAY_SCREENS") == "write":
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_every_file_is_a_page() -> None:
    assert {file.stem for file in SCREENS.iterdir()} == set(PAGES)
