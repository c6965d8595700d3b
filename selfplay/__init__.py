"""selfplay: one language-model policy plays both sides of a game and learns from the verdicts.

Read `loop.py` first. Importing this package imports nothing heavy.
"""

from __future__ import annotations

__version__ = "0.1.0"
