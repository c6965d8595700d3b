"""`python -m selfplay` is the command `selfplay`."""

from __future__ import annotations

import sys

from selfplay.cli import program

if __name__ == "__main__":
    sys.exit(program())
