"""Plays with tools that handed nothing over: why, as far as the record of the play tells.

    no_submit         it stopped talking: its last reply calls no tool
    malformed_calls   reply after reply held no call that could be carried out
    submit_refused    its last call was `submit`, and what it named could not be taken
    limit_turns, limit_seconds, limit_context, limit_output, limit_tokens
                      a limit of its role ended it (`Stop`)

Pure. What is not covered: what was handed over (`agentic`), faults of the machine, which decide nothing.

Example:
    >>> nothing(play).reason  # doctest: +SKIP
    'limit_turns'
"""

from __future__ import annotations

from collections.abc import Mapping

from selfplay.games.code.bugs import Problem
from selfplay.types import Stop, Trajectory

NO_SUBMIT, MALFORMED, REFUSED = "no_submit", "malformed_calls", "submit_refused"
LIMITS: Mapping[Stop, str] = {stop: f"limit_{stop}" for stop in Stop if stop.truncated}
"""A limit that ended a play -> the reason."""
REASONS = (NO_SUBMIT, MALFORMED, REFUSED, *LIMITS.values())
"""All of them."""
_REFUSAL, _BUDGET = "nothing was handed over", "<budget>"
"""How `submit` and the notice of what is left begin (`tools.workbench`, `rollout.calls`)."""
_SAID = 200


def nothing(played: Trajectory) -> Problem:
    """The problem of a play without a product."""
    calls = [call for turn in played.turns for call in turn.calls]
    ended = f"the play ended ({played.stop}) after {len(calls)} call{'s' if len(calls) != 1 else ''}"
    if calls and calls[-1].name == "submit" and calls[-1].result.startswith(_REFUSAL):
        return Problem(reason=REFUSED, why=f"{ended}, the last of which was refused: {_short(calls[-1].result)}")
    if played.stop is Stop.MALFORMED:
        told = next((turn.text for turn in reversed(played.turns) if turn.speaker == "tool"), "")
        more = f", and it had been told: {_short(told.partition(_BUDGET)[0])}" if told else ""
        return Problem(reason=MALFORMED, why=f"{ended}, its last replies held none that could be carried out{more}")
    reason = LIMITS.get(played.stop, NO_SUBMIT)
    return Problem(reason=reason, why=f"{ended}, and nothing was handed over")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SAID else f"{line[: _SAID - 3]}..."
