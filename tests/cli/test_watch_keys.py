"""Keys of a real terminal, read one at a time; the bytes of each key: `test_watch`."""

from __future__ import annotations

import os
import pty
import signal
import sys
import termios
import threading
import time
from collections.abc import Iterator
from io import FileIO

import pytest

from selfplay.cli.watch_keys import Keys, decode


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileIO]:
    """The end at which somebody types; the other one is standard input."""
    typing, reading = pty.openpty()
    with FileIO(typing, "w") as keyboard, os.fdopen(reading, "r") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield keyboard


def local(terminal: FileIO) -> int:
    return int(termios.tcgetattr(terminal)[3])


def test_keys_come_without_enter_and_the_terminal_is_given_back(terminal: FileIO) -> None:
    before = local(terminal)
    with Keys() as keys:
        assert keys.live
        assert not local(terminal) & termios.ICANON
        terminal.write(b"q\x1b[A")
        assert keys.read(30.0) == ["q", "up"]
        assert keys.read(0.0) == keys.read(-1.0) == []
    assert local(terminal) == before


def test_the_terminal_is_given_back_after_an_error(terminal: FileIO) -> None:
    before = local(terminal), signal.getsignal(signal.SIGWINCH)
    with pytest.raises(KeyError), Keys():
        raise KeyError
    assert (local(terminal), signal.getsignal(signal.SIGWINCH)) == before


def test_a_terminal_that_is_gone_asks_to_quit_and_is_not_given_back(terminal: FileIO) -> None:
    with Keys() as keys:
        terminal.close()
        assert keys.read(30.0) == ["q"]
        assert not keys.live
        assert keys.read(0.0) == []


def test_a_window_of_another_size_ends_the_wait(terminal: FileIO) -> None:
    with Keys() as keys:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGWINCH)).start()
        began = time.monotonic()
        assert keys.read(60.0) == []
        assert time.monotonic() - began < 50.0
        assert keys.read(0.0) == [], "it is told once"


def test_where_nobody_can_type_time_goes_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with Keys() as keys:
        assert not keys.live
        assert keys.read(0.01) == []


@pytest.mark.parametrize(
    ("given", "keys"),
    [
        (b"", []),
        (b"\x00\x01\xff", []),
        (b"a\x1b[99~b", ["a", "b"]),
        (b"\x1b[1;5", []),
        (b"\x1b\x1b[A", ["esc", "up"]),
        ("ü".encode() + b"x", ["x"]),
    ],
)
def test_bytes_that_are_no_key_are_skipped(given: bytes, keys: list[str]) -> None:
    assert decode(given) == keys
