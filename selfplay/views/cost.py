"""What an accepted task cost: calls of the model and of tools, tokens, seconds in sandboxes; one place for all screens.

Not here: the counts themselves (`ledger.watching`), layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from selfplay.ledger import StepRow
from selfplay.ledger.watching import Spent
from selfplay.views.words import duration, number

STAGES = ("propose", "attempt")


def stage_seconds(rows: Sequence[StepRow]) -> Mapping[str, float]:
    """What the run did -> wall-clock seconds of these steps, the longest first."""
    seconds: dict[str, float] = {}
    for row in rows:
        for name, value in row.stage_seconds.items():
            seconds[name] = seconds.get(name, 0.0) + value
    return dict(sorted(seconds.items(), key=lambda pair: (-pair[1], pair[0])))


def cost_of(rows: Sequence[StepRow], spent: Mapping[int, Spent]) -> Mapping[str, float] | None:
    """Per task that these steps accepted; None without one.

    `replies`: calls of the model; `tokens`: sampled; `calls`: of tools inside plays, and `tool_seconds`: theirs, added
    up; `deciding_seconds`: of all decisions, added up; `sandbox_seconds`: of both; `verification_seconds`: wall clock
    in which the run did nothing but verify; `seconds`: wall clock of the steps.
    """
    known = [spent[row.step] for row in rows if row.step in spent]
    tasks = sum(one.tasks for one in known)
    if not tasks:
        return None
    seconds = stage_seconds(rows)
    tools, deciding = sum(one.tools for one in known), sum(one.deciding for one in known)
    tallies = [tally for row in rows for place, tally in row.tallies.items() if place.split("/", 1)[0] in STAGES]
    return {
        "replies": sum(one.replies for one in known) / tasks,
        "calls": sum(one.calls for one in known) / tasks,
        "tokens": sum(tally.tokens for tally in tallies) / tasks,
        "sandbox_seconds": (tools + deciding) / tasks,
        "tool_seconds": tools / tasks,
        "deciding_seconds": deciding / tasks,
        "verification_seconds": seconds.get("verification", 0.0) / tasks,
        "seconds": sum(seconds.values()) / tasks,
    }


def cost_words(price: Mapping[str, float]) -> str:
    """In one line: `9.5 replies, 900 tokens, 3.0 calls of tools, 21 s in sandboxes (4.0 s in tools, 17 s deciding)`."""
    words = [f"{number(price['replies'], digits=1)} replies", f"{price['tokens']:,.0f} tokens"]
    words += [f"{number(price['calls'], digits=1)} calls of tools"] if price["calls"] else []
    within = f"{duration(price['tool_seconds'])} in tools, {duration(price['deciding_seconds'])} deciding"
    return ", ".join([*words, f"{duration(price['sandbox_seconds'])} in sandboxes ({within})"])
