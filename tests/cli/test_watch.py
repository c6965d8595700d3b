from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from selfplay.cli.watch import Frontiers, page_of
from selfplay.cli.watch_keys import decode
from selfplay.ledger import Ledger

Typed = tuple[int, str, str]


def test_one_screen(with_replays: Path, typed: Callable[..., Typed]) -> None:
    code, out, err = typed("watch", "again", "--once")
    assert code == 0, err
    rows = out.splitlines()
    assert rows[0] == " again · echo · done · weights v3"
    assert all(len(row) <= 80 for row in rows)
    assert "\x1b" not in out
    assert any(row.startswith(" frontier ") and "by expected solve rate" in row for row in rows)
    assert "again: done, 3 of 3 steps" in err


def test_lines_end_with_the_run(with_run: Path, typed: Callable[..., Typed]) -> None:
    code, out, err = typed("watch", "toy")
    assert code == 0
    assert [row.split()[0] for row in out.splitlines()] == ["launch", "step=1"]
    assert err == "toy: done, 2 of 2 steps\n"
    code, out, _ = typed("watch", "toy", "--quiet")
    assert (code, out) == (0, "")


def test_the_exit_code_says_how_it_ended(with_run: Path, typed: Callable[..., Typed]) -> None:
    config = with_run / "runs" / "toy" / "config.toml"
    config.write_text(config.read_text().replace("steps = 2 ", "steps = 9 ", 1))
    for how, expected in (("stopped", 75), ("failed", 1)):
        with Ledger.open(with_run / "runs" / "toy") as ledger:
            ledger.end_launch(how)
        code, _, err = typed("watch", "toy", "--quiet")
        assert code == expected
        assert err.startswith(f"toy: {how}, 2 of 9 steps; go on: selfplay run --name toy")
    assert typed("watch", "toy", "--once")[0] == 0


def test_for_programs(with_replays: Path, answered: Callable[..., Any]) -> None:
    for words in (("--once",), ()):
        data = answered("watch", "again", *words)
        assert (data["name"], data["ended"], data["closed"]) == ("again", True, 3)
        assert data["frontier"]["steps"][-1]["step"] == 2
        assert data["plays"]


@pytest.mark.parametrize("words", [["toi"], ["toi", "--once"], ["toi", "--json"]])
def test_a_run_that_is_not_there(with_run: Path, typed: Callable[..., Typed], words: list[str]) -> None:
    code, _, err = typed("watch", *words)
    assert code == 2
    assert err.startswith("error: no run `toi` in ")
    assert "hint: did you mean `toy`? " in err


def test_the_frontier_is_worked_out_aside(with_replays: Path) -> None:
    folder = with_replays / "runs" / "again"
    with Frontiers(folder, wait=True) as waiting:
        view, due = waiting(1)
        assert view is not None
        assert not due
        assert [shot.step for shot in view.shots] == [0, 1]
        view, _ = waiting(2)
        assert view is not None
        assert [shot.step for shot in view.shots] == [0, 2]
    with Frontiers(folder, wait=False) as aside:
        deadline = time.monotonic() + 60
        view, due = aside(2)
        while due and time.monotonic() < deadline:
            time.sleep(0.01)
            view, due = aside(2)
        assert view is not None
        assert [shot.step for shot in view.shots] == [0, 2]
        assert aside(-1)[0] is view


def test_a_page_is_that_of_inspect(with_replays: Path, typed: Callable[..., Typed]) -> None:
    from rich.console import Console

    with Ledger.read(with_replays / "runs" / "again") as reader:
        for stage in ("propose", "attempt"):
            one = next(found for step in range(3) for found in reader.trajectories(step, stage))  # type: ignore[arg-type]
            console = Console(width=80, highlight=False, emoji=False)
            with console.capture() as shown:
                console.print(page_of(reader, one.id))
            assert shown.get() == typed("inspect", "again", one.id)[1]


@pytest.mark.parametrize(
    ("given", "keys"),
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1bOBj", ["up", "down", "j"]),
        (b"\x1b", ["esc"]),
        (b"\r \x7f", ["enter", "space", "esc"]),
        (b"\x1b[5~\x1b[6~\x1b[H", ["pageup", "pagedown", "home"]),
        (b"\x1b[1;5Cq\x1b[200~", ["q"]),
        (b"\xc3\xa4\x00?", ["?"]),
    ],
)
def test_keys(given: bytes, keys: list[str]) -> None:
    assert decode(given) == keys


class Terminal:
    """`selfplay watch` on a terminal of its own; the text that it has written so far."""

    def __init__(self, *words: str) -> None:
        self.main, side = pty.openpty()
        self.resize(30, 80)
        command = [sys.executable, "-m", "selfplay", "watch", *words]
        environ = {**os.environ, "TERM": "xterm-256color"}
        environ.pop("COLUMNS", None)
        self.child = subprocess.Popen(
            command, stdin=side, stdout=side, stderr=side, env=environ, start_new_session=True
        )
        os.close(side)
        self.text = ""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, wanted: str) -> None:
        """Read until `wanted` was written since the last call."""
        deadline = time.monotonic() + 60
        while wanted not in self.text and time.monotonic() < deadline:
            if select.select([self.main], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.main, 65536).decode(errors="replace")
                except OSError:
                    break
        assert wanted in self.text, self.text[-3000:]
        self.text = ""

    def key(self, text: bytes) -> None:
        os.write(self.main, text)

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        os.close(self.main)


@pytest.fixture
def held(with_replays: Path) -> Iterator[Ledger]:
    """The run, held as by a process that plays it."""
    config = with_replays / "runs" / "again" / "config.toml"
    config.write_text(config.read_text().replace("steps = 3 ", "steps = 9 ", 1))
    with Ledger.open(with_replays / "runs" / "again") as ledger:
        yield ledger


def test_a_live_screen(held: Ledger) -> None:
    terminal = Terminal("again", "--every", "0.2")
    try:
        terminal.until("running (process")
        terminal.key(b"\x1b[B\r")
        terminal.until("esc back")
        terminal.key(b"\x1b")
        terminal.until("q quit")
        terminal.key(b"f")
        terminal.until("solve rate")
        terminal.key(b"q?")
        terminal.until("what the screen says")
        terminal.key(b"q")
        terminal.until("q quit")
        terminal.resize(40, 120)
        os.kill(terminal.child.pid, 28)
        terminal.until("q quit")
        held.end_launch("stopped")
        held.close()
        terminal.until("again: stopped, 3 of 9 steps; go on: selfplay run --name again")
        assert terminal.child.wait(timeout=60) == 75
    finally:
        terminal.close()


def test_quitting_leaves_the_run_alone(held: Ledger) -> None:
    terminal = Terminal("again")
    try:
        terminal.until("q quit")
        terminal.key(b"q")
        assert terminal.child.wait(timeout=60) == 0
    finally:
        terminal.close()
    assert held.status().launch is not None


def test_a_line_for_each_step_that_closes(held: Ledger) -> None:
    command = [sys.executable, "-m", "selfplay", "watch", "again", "--every", "0.1"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("launch run=again")
        assert child.stdout.readline().startswith("step=2 closed=3/9")
        update = held.updates("play")[-1]
        held.close_step(step=3, groups=(), update=replace(update, step=3), stage_seconds={"other": 1.0}, counts={})
        assert child.stdout.readline().startswith("step=3 closed=4/9")
        held.append_alarm(level="warning", code="entropy", message="too low", step=3).result()
        assert child.stdout.readline().startswith("warning: too low – fork from an earlier save")
        held.end_launch("failed")
        held.close()
        assert child.wait(timeout=60) == 1
        assert child.stderr is not None
        assert child.stderr.read().startswith("again: failed, 4 of 9 steps")
    finally:
        child.kill()
        child.communicate()


def test_json_lines(held: Ledger) -> None:
    command = [sys.executable, "-m", "selfplay", "watch", "again", "--json", "--every", "0.1"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        for _ in range(2):
            message = json.loads(child.stdout.readline())
            assert message["schema"] == "selfplay.watch/1"
            assert message["data"]["state"] == "running"
    finally:
        child.kill()
        child.communicate()
