from __future__ import annotations

import io

import pytest
from rich.console import Console

from selfplay.events import Event
from selfplay.views.progress import Progress, line, screen

STEP = {
    "proposals": 9,
    "decided_proposals": 8,
    "valid": 5,
    "tasks": 5,
    "attempts": 40,
    "decided": 40,
    "solved": 16,
    "groups": 7,
    "informative": 4,
    "tokens": 1900,
    "tokens_per_second": 211.0,
    "seconds": 21.1,
    "loss": 0.0123,
    "version": 201,
    "proposer_reward": -0.2,
    "solver_reward": 0.1,
    "skipped": None,
}
WARMUP = {"phase": "warmup", "index": 119, "total": 200, "loss": 0.31, "version": 120, "tokens_per_second": 410.2}
EVENTS = (
    Event(
        kind="launch",
        data={
            "run": "quickstart",
            "game": "code",
            "model": "smollm2-135m",
            "steps": 10,
            "done": 0,
            "sandbox": "docker",
        },
    ),
    Event(kind="stage", stage="seeds", data={"waits_for": "the game's seeds", "total": None}),
    Event(kind="update", step=119, stage="warmup", data=WARMUP),
    Event(kind="stage", step=0, stage="propose", data={"total": 8}),
    Event(kind="tick", step=0, stage="propose", data={"done": 8, "total": 8, "valid": 5, "solved": 0}),
    Event(kind="stage", step=0, stage="attempt", data={"total": 40}),
    Event(
        kind="tick", step=0, stage="attempt", data={"done": 21, "total": 40, "solved": 9, "tokens_per_second": 211.0}
    ),
    Event(kind="step", step=0, data=STEP),
    Event(kind="stage", step=1, stage="propose", data={"total": 8}),
    Event(kind="tick", step=1, stage="propose", data={"done": 3, "total": 8, "valid": 2}),
    Event(kind="alarm", data={"level": "warning", "text": "too short", "fix": "-s warmup.steps=400"}),
)

AT_WARMUP = """\
 quickstart · code · smollm2-135m · docker · 0/10 steps
 21 s gone · time left not yet known · weights v120
 ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  0 %

 seeds                                   done
 warmup      ██████████░░░░░░░░  120/200 loss 0.310 · 410 tokens/s

 Ctrl-C stops after the turns in flight; the same command resumes
"""

AT_ATTEMPTS = """\
 quickstart · code · smollm2-135m · docker · 0/10 steps
 49 s gone · time left not yet known · weights v120 · 211 tokens/s
 ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  0 %

 propose     ██████████████████      8/8 valid 62 %
 attempt     █████████░░░░░░░░░    21/40 solved 43 % · waits for replies and v…

 Ctrl-C stops after the turns in flight; the same command resumes
"""

AT_STEP_ONE = """\
 quickstart · code · smollm2-135m · docker · 1/10 steps
 77 s gone · about 4 min left · weights v201 · 211 tokens/s
 ███████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  10 %

 propose     ██████░░░░░░░░░░░░      3/8 valid 67 % · waits for replies and ve…

             valid        solved       teach        reward proposer / solver
 last step   62 % of 8    40 % of 40   57 % of 7    -0.20 / +0.10

 warning: too short – -s warmup.steps=400
 Ctrl-C stops after the turns in flight; the same command resumes
"""


def progress_after(count: int) -> tuple[Progress, float]:
    """What the first `count` events add up to, one every seven seconds, and the time."""
    progress = Progress(run="quickstart")
    for index, event in enumerate(EVENTS[:count]):
        progress.take(event, now=7.0 * index)
    return progress, 7.0 * count


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize(("count", "expected"), [(3, AT_WARMUP), (7, AT_ATTEMPTS), (11, AT_STEP_ONE)])
def test_the_screen_at_80_columns(count: int, expected: str, color: bool) -> None:
    progress, now = progress_after(count)
    to = io.StringIO()
    console = Console(
        file=to, width=80, force_terminal=color, color_system="standard" if color else None, highlight=False
    )
    with console.capture() as captured:
        console.print(screen(progress, now=now))
    text = captured.get()
    assert ("\x1b[" in text) == color
    from rich.text import Text

    assert Text.from_ansi(text).plain.rstrip() == expected.rstrip()
    assert all(len(row) <= 80 for row in expected.splitlines())


def test_what_is_left_out_is_shown_with_its_share() -> None:
    progress, now = progress_after(9)
    event = Event(kind="step", step=1, data={"attempts": 40, "left_out": 3, "decided": 37})
    progress.take(event, now=now)
    to = io.StringIO()
    Console(file=to, width=80, highlight=False).print(screen(progress, now=now))
    assert " 4 % of 80 attempts left out: suspicious" in to.getvalue()
    assert "left_out=0.07" in str(line(event, progress))


def test_the_estimate_comes_from_the_steps_of_this_launch() -> None:
    progress, _ = progress_after(11)
    assert progress.durations == [28.0]
    assert progress.seconds_left(now=56.0) == 28.0 * 9
    assert progress_after(7)[0].seconds_left(now=100.0) is None


def test_an_empty_and_an_early_screen_are_drawn() -> None:
    progress = Progress(run="new")
    Console(file=io.StringIO()).print(screen(progress, now=0.0))
    progress.take(Event(kind="tick", step=0, stage="propose", data={"done": 0, "total": 0}), now=1.0)
    progress.take(Event(kind="step", step=0, data={"skipped": "no group"}), now=2.0)
    Console(file=io.StringIO()).print(screen(progress, now=3.0))


def test_a_resumed_run_does_not_start_at_zero() -> None:
    progress = Progress(run="r")
    progress.take(Event(kind="launch", data={"steps": 10, "done": 4}), now=0.0)
    assert progress.closed == 4


def test_steps_that_were_set_meanwhile_count() -> None:
    progress = Progress(run="r")
    progress.take(Event(kind="launch", data={"steps": 20, "done": 29}), now=0.0)
    progress.take(Event(kind="stage", step=29, stage="propose", data={"total": 8}), now=0.0)
    progress.take(Event(kind="note", data={"text": "from the next step on: run.steps = 40", "steps": 40}), now=1.0)
    progress.take(Event(kind="step", step=29, data={}), now=2.0)
    progress.take(Event(kind="note", data={"text": "going on"}), now=2.0)
    to = io.StringIO()
    Console(file=to, width=80, highlight=False).print(screen(progress, now=2.0))
    assert "30/40 steps" in to.getvalue()
    assert "  75 %" in to.getvalue()
    assert progress.seconds_left(now=2.0) == 20.0


def test_a_step_without_a_reward_is_in_no_mean() -> None:
    progress = Progress(run="r")
    for step, (proposer, solver) in enumerate(((None, None), (-0.8, None), (-0.4, None))):
        progress.take(Event(kind="stage", step=step, stage="propose", data={"total": 8}), now=float(step))
        data = {"proposals": 9, "decided_proposals": 8, "proposer_reward": proposer, "solver_reward": solver}
        progress.take(Event(kind="step", step=step, data=data), now=float(step))
    to = io.StringIO()
    Console(file=to, width=80, highlight=False).print(screen(progress, now=3.0))
    [row] = [row for row in to.getvalue().splitlines() if row.startswith(" 3 steps")]
    assert row.split()[-3:] == ["-0.60", "/", "–"]
    assert "of 24" in row


def test_lines() -> None:
    progress = Progress(run="quickstart")
    lines = []
    for index, event in enumerate(EVENTS):
        progress.take(event, now=float(index))
        lines.append(line(event, progress))
    assert lines[0] == "launch run=quickstart game=code model=smollm2-135m sandbox=docker done=0 steps=10"
    assert lines[1] == "seeds: waiting for the game's seeds"
    assert lines[2] == "warmup=120/200 loss=0.310 v=120 tokens_per_second=410"
    assert lines[3:7] == [None] * 4
    assert lines[7] == (
        "step=0 closed=1/10 v=201 proposals=9 valid=0.62 tasks=5 attempts=40 solved=0.40 learnable=0.57 "
        "proposer_reward=-0.20 solver_reward=+0.10 loss=0.0123 tokens_per_second=211 sec=21.1"
    )
    assert lines[10] == "warning: too short – -s warmup.steps=400"


def test_a_step_that_taught_nothing_says_so() -> None:
    event = Event(kind="step", step=2, data={"proposals": 8, "valid": 0, "skipped": "no informative group"})
    progress = Progress(run="r")
    progress.take(event, now=0.0)
    text = line(event, progress)
    assert text is not None
    assert text.endswith("update=skipped")
    assert "solved=?" in text


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (Event(kind="note", data={"text": "hello"}), "note: hello"),
        (Event(kind="end", data={"stop": "done", "steps": 3, "seconds": 61.2}), "end stop=done steps=3 sec=61"),
        (Event(kind="save", data={"path": "weights/1"}), None),
        (Event(kind="tick", stage="given", data={"done": 40, "total": 419}), None),
        (Event(kind="tick", stage="given", data={"done": 41, "total": 419}), "given: 41 of 419"),
        (Event(kind="tick", stage="given", data={"done": 3, "total": 3}), "given: 3 of 3"),
        (Event(kind="tick", step=0, stage="propose", data={"done": 41, "total": 410}), None),
    ],
)
def test_other_lines(event: Event, expected: str | None) -> None:
    assert line(event, Progress(run="r")) == expected
