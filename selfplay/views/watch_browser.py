"""Which page a watcher looks at, and what a key does: pure, so that it needs no terminal.

Pages: the run, the newest plays' pages (the same as `selfplay inspect RUN ID`), the frontier, the help.

Not here: reading keys (`cli.watch_keys`), the run's page (`watch_screen`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from rich.console import Console, RenderableType
from rich.segment import Segment, Segments
from rich.text import Text

from selfplay.types import record

Page = Literal["run", "play", "frontier", "help"]

HELP = """\
 keys
   ↑ ↓  k j      choose one of the newest plays; on a page: scroll
   enter         read it: prompt, reply, verdict, reward and advantage
   ← →  h l      the newer, the older play
   space  b      on a page: a screen on, a screen back
   f             the frontier, with numbers
   p             pause the run: no reply is begun; again: go on
   S             stop the run, as selfplay stop does
   ?             this page
   esc           back
   q             back; from the run's page: quit. The run goes on.

 what the screen says
   valid, solved shares of what was decided; trend: the newest steps
   teach         groups whose rewards differ: only they move the weights
   frontier      tasks of the curriculum's window, by the solve rate that is
                 expected of them; green labels are near the target
   refused       why proposals became no task, in the newest steps
   a task        what each accepted task cost: tokens sampled, seconds in which
                 the run did nothing but verify, of tool calls, and in all
   do            what helps against an alarm
"""


@record
class Browser:
    """Where a watcher is."""

    page: Page = "run"
    ids: tuple[str, ...] = ()
    """Of the newest plays, the newest first."""
    chosen: str | None = None
    """Id of the chosen play; None: the newest, whichever that is."""
    scroll: int = 0
    quit: bool = False
    asked: Literal["pause", "stop", None] = None
    """What the run's process is to be asked for; `pause` stands for the other way round too."""

    @property
    def at(self) -> int:
        """Index of the chosen play; 0 where it is no longer among the newest."""
        return self.ids.index(self.chosen) if self.chosen in self.ids else 0

    @property
    def current(self) -> str | None:
        """Id of the play that enter opens."""
        if self.page == "play" and self.chosen is not None:
            return self.chosen
        return self.ids[self.at] if self.ids else None


def seen(browser: Browser, ids: Sequence[str]) -> Browser:
    """The same place once the newest plays are `ids`."""
    return replace(browser, ids=tuple(ids))


def press(browser: Browser, key: str, *, rows: int) -> Browser:
    """Where `key` leads; `rows` is the height of a page."""
    if key == "q" and browser.page == "run":
        return replace(browser, quit=True)
    if key in ("q", "esc"):
        return replace(browser, page="run", scroll=0, chosen=None if browser.at == 0 else browser.chosen)
    if key in ("p", "S"):
        return replace(browser, asked="pause" if key == "p" else "stop")
    if key in ("?", "f"):
        page: Page = "help" if key == "?" else "frontier"
        return replace(browser, page="run" if browser.page == page else page, scroll=0)
    if browser.page == "run":
        return _choose(browser, key)
    if browser.page == "play" and key in ("left", "right", "h", "l"):
        return _beside(browser, -1 if key in ("left", "h") else 1)
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "space": rows - 1, "pagedown": rows - 1}
    steps |= {"b": 1 - rows, "pageup": 1 - rows, "home": -(10**9)}
    return replace(browser, scroll=max(0, browser.scroll + steps.get(key, 0)))


def window(page: RenderableType, browser: Browser, console: Console, *, rows: int) -> tuple[RenderableType, int]:
    """The part of a page that `rows` rows show, and the scroll position, which is never past its end."""
    width = console.width
    whole = console.render_lines(page, console.options.update(width=width, height=None), pad=False)
    scroll = max(0, min(browser.scroll, len(whole) - rows))
    parts: list[Segment] = []
    for row in whole[scroll : scroll + rows]:
        parts += [*row, Segment.line()]
    return Segments(parts), scroll


def footer(browser: Browser, note: str = "") -> Text:
    """The last row of a page."""
    moves = "←→ newer, older · " if browser.page == "play" else ""
    return Text(f" ↑↓ space: scroll · {moves}esc back · q back{note}", style="dim", no_wrap=True, overflow="ellipsis")


def _choose(browser: Browser, key: str) -> Browser:
    if not browser.ids:
        return browser
    if key == "enter":
        return replace(browser, page="play", chosen=browser.ids[browser.at], scroll=0)
    moves = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -10, "pagedown": 10}
    if key == "home":
        return replace(browser, chosen=None)
    if key not in moves:
        return browser
    at = max(0, min(len(browser.ids) - 1, browser.at + moves[key]))
    # note: at the top it follows what comes in.
    return replace(browser, chosen=browser.ids[at] if at else None)


def _beside(browser: Browser, step: int) -> Browser:
    if browser.chosen not in browser.ids:
        return browser
    at = max(0, min(len(browser.ids) - 1, browser.at + step))
    return replace(browser, chosen=browser.ids[at], scroll=0)
