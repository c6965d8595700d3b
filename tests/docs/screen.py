"""Draws the screen of `selfplay watch RUN` as SVG: the picture that README shows.

    selfplay demo && python tests/docs/screen.py demo docs/screen.svg

It is drawn from the run's ledger alone, at the moment when that was last written, so the same run gives the same
picture. Not a test.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from selfplay.alarms import ALARMS
from selfplay.cli import runs
from selfplay.cli.status import view_of
from selfplay.cli.watch import Frontiers
from selfplay.ledger import Ledger
from selfplay.project import find_project
from selfplay.views.watch import Gatherer
from selfplay.views.watch_screen import screen

WIDTH, HEIGHT = 96, 44


def drawn(folder: Path) -> str:
    """The screen of the run in `folder`."""
    console = Console(record=True, width=WIDTH, height=HEIGHT, file=io.StringIO(), force_terminal=True, emoji=False)
    with Ledger.read(folder) as reader, Frontiers(folder, wait=True) as frontiers:
        fixes = {name: alarm.fix for name, alarm in ALARMS.items()}
        watched = Gatherer(reader, draw=frontiers, fixes=fixes).look(view_of(reader, folder))
        console.print(screen(watched, now=watched.run.status.last_seen, width=WIDTH, height=HEIGHT))
    # note: without an id of its own rich draws one at random; its fonts would be fetched over a network.
    svg = console.export_svg(title=f"selfplay watch {folder.name}", unique_id="screen")
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)


if __name__ == "__main__":
    found = drawn(runs.find_run(sys.argv[1], project=find_project(explicit=None)))
    Path(sys.argv[2]).write_text(found, encoding="utf-8")
