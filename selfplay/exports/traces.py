"""What was played, as rows for other learners, in TRL's conversational columns.

Not here: the rows (`views.traces`), token ids and advantages for GRPO (`trl`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from selfplay.exports.seam import ONLY_STEP, Asked, Made, Out, Simple, require_rows
from selfplay.ledger import Reader
from selfplay.views import traces


def _write(rows: Callable[[Reader], Iterator[dict[str, Any]]], asked: Asked, out: Out) -> Made:
    if asked.step is not None:
        require_rows(asked)
    count = 0
    for row in rows(asked.reader):
        if asked.step in (None, row["step"]):
            out.line(row)
            count += 1
    return Made(count=count)


SFT = Simple(
    about="every play that succeeded, for supervised tuning",
    noun="row",
    shape="lines",
    takes=ONLY_STEP,
    writer=partial(_write, traces.sft),
)
DPO = Simple(
    about="the best and the worst of each group that taught, as preference pairs",
    noun="row",
    shape="lines",
    takes=ONLY_STEP,
    writer=partial(_write, traces.dpo),
)
