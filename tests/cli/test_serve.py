"""`selfplay serve`: where it listens is told in an envelope, and Ctrl-C ends it. What it answers: `tests/doors`."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests import forked
from tests.schemas import misfits_of_lines

CODE = "import sys; from selfplay.cli import main; sys.exit(main(sys.argv[1:]))"


def test_it_tells_programs_where_it_listens(here: Path) -> None:
    with (here / "told.txt").open("wb") as told:
        process = forked.Forked(
            CODE, ["serve", "toy", "--renderer", "plain", "--port", "0", "--json"], stderr=told, cwd=here
        )
        try:
            line = process.stdout.readline().decode()
        finally:
            process.send_signal(signal.SIGINT)
            code = process.wait(60.0)
            process.stdout.close()
    assert line, (here / "told.txt").read_text()
    assert misfits_of_lines(line) == []
    assert json.loads(line)["data"]["url"].startswith("http://127.0.0.1:")
    assert code == 0
