from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType
from rich.text import Text

from selfplay.ledger import Ledger
from selfplay.views.frontier import FrontierView, shot
from selfplay.views.frontier import Rate as TaskRate
from selfplay.views.progress import Progress, line
from selfplay.views.status import RunView
from selfplay.views.watch import Gatherer, Watched, cost, ending, refused, step_event, watched_data
from selfplay.views.watch_browser import HELP, Browser, press, seen, window
from selfplay.views.watch_lines import Follower
from selfplay.views.watch_screen import Block, fit, lines, screen

FIXES = {"drift": "load the last save"}


def frontier_of(rates: Sequence[float]) -> FrontierView:
    shots = [
        shot(step, [TaskRate(mean=rate, decided=2, solved=1) for rate in rates[step:]], band=(0.35, 0.65))
        for step in (1, 0)
    ]
    return FrontierView(
        name="small",
        curriculum="frontier",
        window=8,
        half_life=float("inf"),
        target=0.5,
        aim="where learnability is highest",
        reward="ssr",
        paid=None,
        shots=(replace(shots[0], step=0), replace(shots[1], step=10)),
        cells=(),
    )


@pytest.fixture(scope="session")
def watched(played_run: Path) -> Watched:
    with Ledger.read(played_run) as reader:
        status = reader.status()
        run = RunView(name="small", folder="runs/small", status=status, steps=3, holder="process 7 on here")
        gatherer = Gatherer(reader, draw=lambda last: (frontier_of((0.1, 0.15, 0.45, 0.5, 0.95)), False), fixes=FIXES)
        gatherer.look(run)
        return gatherer.look(run)


def drawn(page: RenderableType, *, width: int = 80) -> list[str]:
    to = io.StringIO()
    Console(file=to, width=width, highlight=False).print(page)
    return [row.rstrip() for row in to.getvalue().splitlines()]


SCREEN = """\
 small · echo · running (process 7 on here) · weights v1
 ██████████░░░░░░░░░░░░░░░░░░░░  1/3 steps · written 4.0 s ago

                           last step   1 steps    all  reward  teach  trend
 echo_proposer  valid      50 % of 2      50 %   50 %   -0.45      –  ▅
 echo_solver    solved     50 % of 2      50 %   50 %   +0.00      –  ▅

 frontier  5 tasks by expected solve rate, step 10 · near 0.50: 40 %, was 50 %
                 █████
                 █████
                 █████
                 █████             █████ █████                   █████
                 █████             █████ █████                   █████
                 █████             █████ █████                   █████
             ·     2     ·     ·     1     1     ·     ·     ·     1
 since 0          +1
           0–10  10–20 20–30 30–40 40–50 50–60 60–70 70–80 80–90 90–100

 refused   not_a_word 1 (of 2 in 1 step)
 open step 1: proposals 2/16 sampled · attempts 0/16 sampled
 time      4.0 s a step: sampling 50 % · learning 25 % · verification 25 %
 a task    12 tokens · 1.0 s verifying · 4.0 s in all (each accepted one)
 warning   something to look at
           do: load the last save
 chosen    step 1 propose 5cc6ce19: played least often
           step 0 propose 5cc6ce19: played least often"""


def test_one_screen(watched: Watched) -> None:
    config = dict(watched.run.status.run.config) | {"play.proposals": 16, "play.attempts": 16}
    status = replace(watched.run.status, run=replace(watched.run.status.run, config=config))
    held = replace(watched, run=replace(watched.run, status=status))
    found = drawn(screen(held, now=status.last_seen + 4.0))
    assert "\n".join(found[: SCREEN.count("\n") + 1]) == SCREEN
    plays = found[SCREEN.count("\n") + 2 :]
    assert len(plays) == 6
    assert any("echo_solver not solved (other_word): it is another word" in row for row in plays)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("height", [3, 10, 16, 24, 50])
def test_every_terminal_is_filled_and_none_is_overrun(watched: Watched, width: int, height: int) -> None:
    rows = lines(watched, now=watched.run.status.last_seen, width=width, height=height, selected=0)
    assert len(rows) <= height
    assert all(row.cell_len <= width for row in rows)
    assert rows[0].plain.startswith(" small")
    assert "q quit" in rows[-1].plain
    if height >= 24:
        assert any("frontier" in row.plain for row in rows)
        assert sum(row.plain.startswith("›") for row in rows) == 1


def test_a_paused_run_says_so(watched: Watched) -> None:
    paused = replace(watched, run=replace(watched.run, paused=True))
    rows = [row.plain for row in lines(paused, now=0.0, width=80, height=None, selected=None)]
    assert " · paused" in rows[0]
    assert watched_data(paused)["paused"] is True


def test_keys_that_ask_the_run_for_something() -> None:
    asked = [press(Browser(), key, rows=20).asked for key in ("p", "S", "s")]
    assert asked == ["pause", "stop", None]
    assert "pause the run" in HELP


def test_the_frontier_that_is_not_there(watched: Watched) -> None:
    for drawing, said in ((True, "is being worked out"), (False, "no task was played in a closed step yet")):
        found = drawn(screen(replace(watched, frontier=None, drawing=drawing), now=0.0))
        assert any(row == f" frontier  {said}" for row in found)


def test_blocks_share_what_is_left_over() -> None:
    def block(name: str, least: int, most: int, rank: int) -> Block:
        return Block(draw=lambda rows: [Text(name)] * rows, least=least, most=most, rank=rank)

    blocks = [block("a", 1, 1, 0), block("b", 2, 9, 1), block("c", 2, 4, 2)]
    assert [row.plain for row in fit(blocks, 9) if row.plain != "a"] == ["b"] * 4 + ["c"] * 4
    assert [row.plain for row in fit(blocks, 4)] == ["a", "b", "b", "b"]
    assert [row.plain for row in fit(blocks, 1)] == ["a"]
    assert len(fit(blocks, None)) == 14


def test_for_programs(watched: Watched) -> None:
    data = watched_data(watched)
    assert (data["state"], data["closed"], data["ended"], data["window"]) == ("running", 1, False, 1)
    assert data["refused"] == {"not_a_word": 1}
    none = dict.fromkeys(("calls", "tool_seconds", "deciding_seconds", "sandbox_seconds"), 0)
    assert data["cost_per_task"] == {"replies": 4, "tokens": 12, "verification_seconds": 1, "seconds": 4, **none}
    proposer, solver = data["roles"]
    assert (proposer["role"], proposer["last_step"]["good"]) == ("echo_proposer", 0.5)
    assert solver["window"]["mean_reward"] == 0.0
    assert data["newest_alarms"][0]["fix"] == "load the last save"
    assert data["frontier"]["steps"][-1]["tasks"] == 5
    assert "markup" not in str(data), "a model's text"
    assert cost(replace(watched, spent={})) is None
    assert refused(replace(watched, spent={})) == {}


def test_how_it_ends(watched: Watched) -> None:
    run = replace(watched.run, holder=None)
    assert ending(run) == "small: stopped, 1 of 3 steps; go on: selfplay run --name small"
    assert ending(replace(run, steps=1)) == "small: done, 1 of 1 step"
    assert replace(watched, run=run).ended


def test_plain_lines(played_run: Path, watched: Watched) -> None:
    with Ledger.read(played_run) as reader:
        follower = Follower(reader)
        launch, step = follower.lines(watched)
        assert launch.startswith("launch run=small game=echo model=toy done=1 steps=3 ")
        assert step.startswith("step=0 closed=1/3 v=1 ")
        assert "proposer_reward=-0.45 solver_reward=+0.00 loss=0.5000 tokens_per_second=6 sec=4.0" in step
        assert follower.lines(watched) == []
        status = replace(watched.run.status, num_alarms={})
        quiet = Follower(reader, quiet=True)
        assert quiet.lines(replace(watched, run=replace(watched.run, status=status))) == []
        assert quiet.lines(watched) == ["warning: something to look at – load the last save"]


def test_a_closed_step_says_how_many_proposals_were_decided(watched: Watched) -> None:
    row = watched.steps[0]
    tally = row.tallies["propose/echo_proposer"]
    row = replace(row, tallies={**row.tallies, "propose/echo_proposer": replace(tally, faults=3)}, counts={"valid": 1})
    event = step_event(row, None)
    assert event.data["decided_proposals"] == 2
    assert " valid=0.50 " in str(line(event, Progress(run="small")))


def typed(browser: Browser, *keys: str, rows: int = 20) -> Browser:
    for key in keys:
        browser = press(browser, key, rows=rows)
    return browser


def test_choosing_a_play() -> None:
    browser = seen(Browser(), ["c", "b", "a"])
    assert browser.current == "c"
    assert typed(browser, "down").current == "b"
    assert typed(browser, "j", "j", "j", "j").current == "a"
    assert typed(browser, "j", "up", "up").chosen is None
    newer = seen(typed(browser, "down"), ["d", "c", "b"])
    assert (newer.current, newer.at) == ("b", 2)
    assert seen(browser, ["d", "c", "b"]).current == "d", "at the top it follows"
    assert seen(typed(browser, "down"), ["x"]).at == 0
    assert typed(Browser(), "down", "enter").page == "run"


def test_pages() -> None:
    browser = seen(Browser(), ["c", "b", "a"])
    opened = typed(browser, "down", "enter")
    assert (opened.page, opened.current) == ("play", "b")
    assert seen(opened, ["z"]).current == "b", "it stays open when newer ones push it out"
    assert typed(opened, "l").current == "a"
    assert typed(opened, "left", "left").current == "c"
    assert typed(opened, "space", "down", "k").scroll == 19
    assert typed(opened, "space", "home").scroll == 0
    assert typed(opened, "q").page == "run"
    assert not typed(opened, "q").quit
    assert typed(opened, "q", "q").quit
    assert typed(browser, "f").page == "frontier"
    assert typed(browser, "f", "f").page == typed(browser, "?", "esc").page == "run"


def test_a_page_is_cut_to_the_terminal() -> None:
    console = Console(file=io.StringIO(), width=80, height=10)
    page = Text("\n".join(str(i) for i in range(30)))
    shown, scroll = window(page, Browser(page="help", scroll=99), console, rows=9)
    console.print(shown, end="")
    assert scroll == 21
    assert console.file.getvalue().split() == [str(i) for i in range(21, 30)]  # type: ignore[attr-defined]
    assert all(len(row) <= 80 for row in HELP.splitlines())
