"""The tutorial, typed block by block: each line does what the text says, with a random model and no warm-up.

Not here: what the models learn. Blocks that need a sandbox are left out where it is not ready, with what they need.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import forked, scripted
from tests.backends import needed

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
SETTINGS = {
    "SELFPLAY_POLICY_MODEL": "toy",
    "SELFPLAY_WARMUP_STEPS": "0",
    # note: and small, for a test: fewer plays than a person would have.
    "SELFPLAY_POLICY_THREADS": "1",
    "SELFPLAY_CURRICULUM_SEEDS": "1",
    "SELFPLAY_PLAY_PROPOSALS": "4",
    "SELFPLAY_PLAY_ATTEMPTS": "4",
    "SELFPLAY_PLAY_MIN_VIABLE": "2",
    "SELFPLAY_PLAY_REFILLS": "0",
}
CODE = "import sys; from selfplay.cli import main; sys.exit(main(sys.argv[1:]))"


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """(what it needs, its lines) of each block of shell commands."""
    for found in re.finditer(r"(?:<!-- needs: (\w+) -->\n)?```sh\n(.*?)```", text, re.DOTALL):
        yield found[1] or "", found[2]


def pieces(block: str) -> Iterator[tuple[bool, str]]:
    """The block in pieces: (is it one command of selfplay?, text); what lies in a here-document is no command."""
    inside, lines = False, []
    for line in block.splitlines():
        if line.startswith("selfplay ") and not inside:
            if lines:
                yield False, "\n".join(lines)
            yield True, line
            lines = []
            continue
        inside = line != "END" if inside else line.endswith("<<'END'")
        lines.append(line)
    if lines:
        yield False, "\n".join(lines)


def words_of(line: str) -> list[str]:
    """As a shell splits it."""
    quoted = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True, check=True)
    return quoted.stdout.split("\0")[1:-1]


class Shell:
    """A shell that remembers where it is; `selfplay` is typed into a fork that has imported it."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder, self.environ = folder, environ
        self.said = ""

    def type(self, block: str) -> None:
        """Everything of a block; fails where a line fails, with all that was said."""
        for ours, text in pieces(block):
            self.said += f"$ {text}\n"
            code = self._selfplay(text) if ours else self._bash(text)
            assert code == 0, self.said

    def _bash(self, text: str) -> int:
        script = f"set -eu\n{text}\nprintf '\\0%s' \"$PWD\""
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=self.environ, capture_output=True, text=True, check=False
        )
        said, _, where = done.stdout.rpartition("\0")
        self.said += said + done.stderr
        self.folder = Path(where) if done.returncode == 0 else self.folder
        return done.returncode

    def _selfplay(self, text: str) -> int:
        before = Path.cwd()
        os.chdir(self.folder)
        try:
            done = forked.run(CODE, words_of(text), env=self.environ, timeout=1800.0)
        finally:
            os.chdir(before)
        self.said += done.stdout + done.stderr
        return done.returncode


@pytest.mark.bubblewrap
def test_it_can_be_typed_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SELFPLAY_PROJECT", "SELFPLAY_RUNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    environ = {**os.environ, **SETTINGS, "SELFPLAY_CACHE": str(scripted.cache(tmp_path))}
    shell = Shell(tmp_path, environ)
    found = list(blocks(TUTORIAL.read_text(encoding="utf-8")))
    assert len(found) > 8
    left_out = []
    for need, block in found:
        try:
            if need:
                needed(need)
        except pytest.skip.Exception as missing:
            left_out.append(str(missing))
            continue
        shell.type(block)
    runs = {path.parent.name for path in (tmp_path / "my-games" / "runs").glob("*/ledger.db")}
    assert runs >= {"first", "lamps", "letters", "letters-in-order"}
    assert (tmp_path / "my-games" / "runs" / "first" / "report.html").is_file()
    assert "times so far" in shell.said, "the own curriculum chose"
    if left_out:
        pytest.skip("; ".join(left_out))
