"""A terminal's keys, one at a time and without enter, for as long as a screen is up.

Not here: what a key does (`views.watch_browser`).
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from types import TracebackType
from typing import Self

NAMES = {
    **{b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[C": "right", b"\x1b[D": "left"},
    **{b"\x1bOA": "up", b"\x1bOB": "down", b"\x1bOC": "right", b"\x1bOD": "left"},
    **{b"\x1b[5~": "pageup", b"\x1b[6~": "pagedown", b"\x1b[H": "home", b"\x1b[1~": "home", b"\x1bOH": "home"},
    **{b"\r": "enter", b"\n": "enter", b" ": "space", b"\x1b": "esc", b"\x7f": "esc"},
}
"""What a terminal sends -> the key's name; other printable characters are their own name."""

ESCAPE_SECONDS = 0.05
"""How long the rest of a key's bytes may take to come."""


class Keys:
    """Reads keys of standard input while inside; where that is no terminal there never is one."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._before: list[object] | None = None

    @property
    def live(self) -> bool:
        """Can anybody type?"""
        return self._fd is not None

    def __enter__(self) -> Self:
        if self._fd is not None:
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)
        # note: a handler, even an empty one, ends the wait in `read`, so that a resized screen is drawn at once.
        self._resized = signal.signal(signal.SIGWINCH, lambda number, frame: None)
        self._wake, write = os.pipe()
        os.set_blocking(write, False)
        self._write = write
        self._woken = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        signal.set_wakeup_fd(self._woken)
        signal.signal(signal.SIGWINCH, self._resized)
        os.close(self._wake)
        os.close(self._write)
        if self._fd is not None and self._before is not None:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)  # type: ignore[arg-type]

    def read(self, seconds: float) -> list[str]:
        """The keys that are typed within `seconds`, as soon as there are any; none where only the time went by."""
        fds = [self._wake] + ([self._fd] if self._fd is not None else [])
        ready, _, _ = select.select(fds, [], [], max(0.0, seconds))
        if self._wake in ready:
            os.read(self._wake, 256)
        if self._fd is None or self._fd not in ready:
            return []
        given = os.read(self._fd, 256)
        if not given:
            # note: the terminal is gone; nobody will type any more.
            self._fd = None
            return ["q"]
        while given.endswith((b"\x1b", b"\x1b[", b"\x1bO")) and select.select([self._fd], [], [], ESCAPE_SECONDS)[0]:
            given += os.read(self._fd, 256)
        return decode(given)


def decode(given: bytes) -> list[str]:
    """The keys that those bytes are; bytes that are none are skipped."""
    keys = []
    while given:
        known = next((code for code in sorted(NAMES, key=len, reverse=True) if given.startswith(code)), None)
        if known == b"\x1b" and len(given) > 1 and given[1:2] in b"[O":
            # note: an unknown key's sequence ends at its first letter or tilde.
            end = next((i for i in range(2, len(given)) if chr(given[i]).isalpha() or given[i] == 0x7E), len(given) - 1)
            given = given[end + 1 :]
            continue
        if known is not None:
            keys.append(NAMES[known])
        elif given[:1].isascii() and chr(given[0]).isprintable():
            keys.append(chr(given[0]))
        given = given[len(known) if known is not None else 1 :]
    return keys
