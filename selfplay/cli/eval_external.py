"""`selfplay eval --on` a folder of files of tasks, or what others made: QuixBugs, HumanEval, SWE-bench rows.

Not here: reading and proving them (`evaluation.bringing`), what is printed (`cli.eval`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from selfplay.cli import runs
from selfplay.cli.session import Session

if TYPE_CHECKING:
    from selfplay.evaluation.measure import Ask
    from selfplay.evaluation.targets import Target


def is_brought(text: str) -> bool:
    """Does `text` name such a thing, and no run?"""
    path = Path(text)
    if path.name == runs.LEDGER or (path / runs.LEDGER).is_file() or not path.exists():
        return False
    from selfplay.evaluation.bringing import is_brought

    return is_brought(text)


def answer(
    session: Session,
    path: Path,
    targets: Sequence[Target],
    ask: Ask,
    *,
    ks: Sequence[int],
    tasks: int | None,
    sandbox: str | None,
) -> int:
    """Let the targets attempt them, and print; what is no task is named with the reason."""
    from selfplay.cli.eval import data, lines
    from selfplay.evaluation.bringing import bring
    from selfplay.evaluation.measure import together
    from selfplay.views.observers import PlainObserver

    with PlainObserver(sys.stderr, run=path.name) as observe:
        ready = bring(path, count=tasks, sandbox=sandbox, project=session.project, observe=observe)
        found = together(targets, ready.grounds, ask, project=session.project, observe=observe)
    where = replace(ready.grounds[0], words=str(path))
    if session.json:
        shown = data(found, where, attempts=ask.attempts, ks=ks)
        session.answer("eval", {**shown, "left_out": dict(ready.left_out)})
        return 0
    session.data.write("".join(f"{line}\n" for line in lines(found, where, attempts=ask.attempts, ks=ks)))
    for name, why in ready.left_out.items():
        session.say(f"left out {name}: {why}")
    return 0
