"""selfplay: one language-model policy plays both sides of a game and learns from the verdicts.

Read `loop.py` first. Importing this package imports nothing heavy.
"""

from __future__ import annotations

import sys
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # note: the package `verifiers` looks for an environment in what a module of that name says it exports.
    if name in ("__all__", "GameTaskset", "GameHarness") and "verifiers.v1" in sys.modules:
        from selfplay.doors import verifiers

        return getattr(verifiers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
