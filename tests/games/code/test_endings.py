"""A play without a product says why: of its stop, of its last call, of what it was told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from selfplay.games.code.endings import LIMITS, REASONS, nothing
from selfplay.types import Stop, ToolCall, Trajectory, Turn
from tests.games.code.conftest import trajectory


def played(stop: Stop, *results: str, name: str = "submit", told: str = "") -> Trajectory:
    """A play with a call a reply, and what was said to it last."""
    calls = [ToolCall(name=name, arguments={}, result=result, exit_code=None, seconds=0.1) for result in results]
    turns = [Turn(speaker="policy", token_ids=(1,), logprobs=(-1.0,), calls=(call,)) for call in calls]
    last = [Turn(speaker="tool", token_ids=(2,), text=told)] if told else []
    return replace(trajectory("", stage="propose", stop=stop), turns=(*turns, *last))


def test_every_stop_but_a_fault_has_a_reason() -> None:
    found = {stop: nothing(played(stop)).reason for stop in Stop if stop is not Stop.FAULT}
    assert found == {Stop.DONE: "no_submit", Stop.MALFORMED: "malformed_calls", **LIMITS}
    assert set(LIMITS) == {stop for stop in Stop if stop.truncated}
    assert {*found.values(), "submit_refused"} == set(REASONS)


@pytest.mark.parametrize("stop", [Stop.DONE, Stop.TURNS, Stop.SECONDS])
def test_a_refused_submit_is_the_reason_whatever_limit_came_after(stop: Stop) -> None:
    problem = nothing(played(stop, "a.py", "nothing was handed over: there is no test_files.txt in out"))
    assert problem.reason == "submit_refused"
    assert problem.why.startswith(f"the play ended ({stop}) after 2 calls, the last of which was refused")
    assert "there is no test_files.txt in out" in problem.why


def test_a_submit_that_was_taken_for_a_stage_is_none() -> None:
    assert nothing(played(Stop.TURNS, "[the bug is kept: a.py. Stage WEAKEN: ...]")).reason == "limit_turns"
    assert nothing(played(Stop.TURNS, "nothing was handed over", name="bash")).reason == "limit_turns"


def test_what_it_was_told_of_its_calls_is_quoted_without_the_budget() -> None:
    told = "Nothing was done: the reply holds two calls.\n\n<budget>\n* Remaining turns: 3\n</budget>"
    problem = nothing(played(Stop.MALFORMED, "a.py", name="bash", told=told))
    assert problem.reason == "malformed_calls"
    assert problem.why.endswith("and it had been told: Nothing was done: the reply holds two calls.")
    assert "1 call," in problem.why


def test_what_is_quoted_is_short() -> None:
    assert len(nothing(played(Stop.TURNS, "nothing was handed over: " + "x" * 9000)).why) < 400
