"""Long screens: through a pager where somebody reads them, straight out elsewhere.

`PAGER` says which; without one `less`, which ends by itself where a page fits on the screen. No pager where the output
is no terminal, where the terminal is dumb, where `PAGER` is empty, and where there is none.

Not here: what is on a page.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LESS = "less -FRX"
"""Ends where the page fits, keeps colours, leaves the page on the screen."""


def show(console: Console, page: RenderableType) -> None:
    """Print `page`, through a pager where the console is a terminal."""
    command = pager() if console.is_terminal and not console.is_dumb_terminal else None
    if command is None:
        console.print(page)
        return
    with console.capture() as taken:
        console.print(page)
    text = taken.get()
    if text.count("\n") < console.height:
        console.file.write(text)
        console.file.flush()
        return
    try:
        subprocess.run(command, input=text.encode(), check=False)
    except OSError:
        console.file.write(text)
        console.file.flush()


def plain(console: Console) -> Console:
    """The same without colours and styles, and no terminal: nothing but text."""
    from rich.console import Console

    return Console(file=console.file, force_terminal=False, width=console.width, highlight=False, emoji=False)


def pager() -> list[str] | None:
    """The command; None where there is none to be had."""
    given = os.environ.get("PAGER", LESS).strip()
    words = shlex.split(given) if given else []
    if words == ["less"]:
        words = LESS.split()
    return words if words and shutil.which(words[0]) else None
