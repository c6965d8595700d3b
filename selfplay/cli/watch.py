"""`selfplay watch`: a run's live screen, from any terminal; it reads the ledger, and asks for a pause or an end by key.

Not here: what is known and drawn (`views.watch`, `views.watch_screen`), keys (`cli.watch_keys`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from selfplay.cli import runs
from selfplay.cli.session import Session, common
from selfplay.errors import NotFound

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from selfplay.cli.watch_keys import Keys
    from selfplay.ledger import Reader
    from selfplay.views.frontier import FrontierView, Shot
    from selfplay.views.watch import Draw, Watched
    from selfplay.views.watch_browser import Browser

EVERY = 1.0
"""Seconds between two looks at the ledger."""

BACK = 10
"""The frontier is compared with what it was so many steps before."""


@click.command("watch", short_help="A run's live screen, from any terminal.")
@click.argument("run")
@click.option("--once", is_flag=True, help="Print one screen and end.")
@click.option(
    *("--every", "every"),
    type=click.FloatRange(min=0.1),
    default=EVERY,
    show_default=True,
    metavar="SECONDS",
    help="How often the ledger is asked.",
)
@click.option("-q", "--quiet", is_flag=True, help="Alarms and the end only, a line each.")
@common
def command(session: Session, run: str, once: bool, every: float, quiet: bool) -> int:
    """A run's live screen, from any terminal; the run does not notice, unless a key asks it for something.

    Keys: up, down and enter read a play, f shows the frontier, p pauses the run, S stops it, ? all keys, q quits. Where
    the output is no terminal: a line for each step that closes. It ends with the run, and its exit code says how: 0
    done, 75 stopped, 1 failed or killed; 0 where you quit.

    \b
    Examples:
      selfplay watch last
      selfplay watch quickstart --once
      selfplay watch quickstart --json --every 10
    """
    from selfplay.ledger import Ledger

    folder = runs.find_run(run, project=session.project)
    console = session.console()
    lines = quiet or not console.is_terminal or console.is_dumb_terminal
    with Ledger.read(folder) as reader, Frontiers(folder, wait=once or session.json) as frontiers:
        if session.json:
            return _json(session, _looker(reader, frontiers), once=once, every=every)
        if once:
            return _print_once(session, console, _looker(reader, frontiers)())
        if lines:
            return _plain(session, reader, _looker(reader, _no_frontier), every=every, quiet=quiet)
        return _live(session, console, reader, _looker(reader, frontiers), every=every)


class Frontiers:
    """Works out the frontier on a thread of its own, with a connection of its own: of many tasks it takes a second."""

    def __init__(self, folder: Path, *, wait: bool) -> None:
        """`wait`: be asked for the newest one, whatever it takes."""
        self._folder, self._wait = folder, wait
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="frontier")
        self._at = -1
        self._due: Future[FrontierView | None] | None = None
        self._view: FrontierView | None = None
        self._shots: dict[int, Shot] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=True)

    def __call__(self, last: int) -> tuple[FrontierView | None, bool]:
        """The newest frontier that is known once step `last` is closed, and is a newer one on its way?"""
        self._collect(wait=False)
        if self._due is None and last > self._at:
            self._at = last
            self._due = self._pool.submit(self._draw, last)
        self._collect(wait=self._wait)
        return self._view, self._due is not None

    def _collect(self, *, wait: bool) -> None:
        if self._due is not None and (wait or self._due.done()):
            self._view, self._due = self._due.result(), None

    def _draw(self, last: int) -> FrontierView | None:
        """As it is, beside what it was `BACK` steps before; None where no task was played."""
        from dataclasses import replace

        from selfplay.cli import frontier
        from selfplay.ledger import Ledger

        steps = sorted({max(0, last - BACK), last})
        try:
            with Ledger.read(self._folder) as reader:
                view = frontier.view_of(reader, last, at=[step for step in steps if step not in self._shots])
        except NotFound:
            return None
        self._shots |= {shot.step: shot for shot in view.shots}
        return replace(view, shots=tuple(self._shots[step] for step in steps))


def _no_frontier(last: int) -> tuple[FrontierView | None, bool]:
    return None, False


def _looker(reader: Reader, draw: Draw) -> Callable[[], Watched]:
    """A function that looks at the run once more."""
    from selfplay.alarms import ALARMS
    from selfplay.cli.status import view_of
    from selfplay.views.watch import Gatherer

    gatherer = Gatherer(reader, draw=draw, fixes={name: alarm.fix for name, alarm in ALARMS.items()})
    return lambda: gatherer.look(view_of(reader, reader.folder))


def _json(session: Session, look: Callable[[], Watched], *, once: bool, every: float) -> int:
    from selfplay.views.watch import ENDED, watched_data

    while True:
        watched = look()
        session.answer("watch", watched_data(watched), run=watched.run.name)
        if once:
            return 0
        if watched.ended:
            return ENDED[watched.run.state]
        time.sleep(every)


def _print_once(session: Session, console: Console, watched: Watched) -> int:
    from selfplay.views.watch import ending
    from selfplay.views.watch_screen import screen

    console.print(screen(watched, now=time.time(), width=console.width))
    folder = Path(watched.run.folder)
    words = ending(watched.run, named=runs.is_named(folder, project=session.project))
    live = f"live      selfplay watch {runs.typed(folder, project=session.project)}"
    session.say(f"\n  {words if watched.ended else live}")
    return 0


def _plain(session: Session, reader: Reader, look: Callable[[], Watched], *, every: float, quiet: bool) -> int:
    """A line for the newest closed step, then one for each that closes, and for each alarm; the end's at last."""
    from selfplay.views.watch import ENDED, ending
    from selfplay.views.watch_lines import Follower

    follower = Follower(reader, quiet=quiet)
    while True:
        watched = look()
        for line in follower.lines(watched):
            session.data.write(line + "\n")
        session.data.flush()
        if watched.ended:
            session.say(ending(watched.run, named=runs.is_named(reader.folder, project=session.project)))
            return ENDED[watched.run.state]
        time.sleep(every)


def _live(session: Session, console: Console, reader: Reader, look: Callable[[], Watched], *, every: float) -> int:
    from rich.live import Live

    from selfplay.cli.watch_keys import Keys
    from selfplay.views.watch import ENDED
    from selfplay.views.watch_browser import Browser

    watched, browser = look(), Browser()
    if not watched.ended:
        live = Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop")
        with Keys() as keys, live:
            watched, browser = _follow(live, keys, reader, look, watched, every=every)
    if browser.quit and not watched.ended:
        return 0
    _print_once(session, console, watched)
    return 0 if browser.quit else ENDED[watched.run.state]


def _follow(
    live: Live, keys: Keys, reader: Reader, look: Callable[[], Watched], watched: Watched, *, every: float
) -> tuple[Watched, Browser]:
    """Draw and read keys until the run ends, and nobody reads a page, or somebody quits."""
    from selfplay.views.watch_browser import Browser, press, seen

    browser, due = Browser(), time.monotonic() + every
    while True:
        browser = seen(browser, [play.id for play in watched.plays])
        browser = _show(live, keys, reader, watched, browser)
        if browser.quit or (watched.ended and browser.page == "run"):
            return watched, browser
        for key in keys.read(due - time.monotonic()):
            browser = press(browser, key, rows=live.console.height - 1)
            if browser.asked is not None:
                browser = _ask(reader, watched, browser)
                due = 0.0
        if time.monotonic() >= due:
            watched, due = look(), time.monotonic() + every


def _ask(reader: Reader, watched: Watched, browser: Browser) -> Browser:
    """Ask the process that plays the run for what a key stands for; the next look shows what came of it."""
    from dataclasses import replace

    from selfplay.ledger.control import Action, send
    from selfplay.ledger.lock import holder

    held = holder(reader.folder)
    action: Action = "stop" if browser.asked == "stop" else "resume" if watched.run.paused else "pause"
    if held is not None:
        send(reader.folder, held, action=action, arguments={})
    return replace(browser, asked=None)


def _show(live: Live, keys: Keys, reader: Reader, watched: Watched, browser: Browser) -> Browser:
    """Draw the page; the browser, no further down than the page goes."""
    from dataclasses import replace

    from rich.console import Group

    from selfplay.views.watch_browser import footer, window
    from selfplay.views.watch_screen import screen

    console = live.console
    if browser.page == "run":
        chosen = browser.at if keys.live else None
        size = {"width": console.width, "height": console.height}
        live.update(screen(watched, now=time.time(), selected=chosen, **size), refresh=True)
        return browser
    rows = console.height - 1
    shown, scroll = window(_page(reader, watched, browser), browser, console, rows=rows)
    note = f" · the run ended: {watched.run.state}" if watched.ended else ""
    live.update(Group(shown, footer(browser, note)), refresh=True)
    return replace(browser, scroll=scroll)


def _page(reader: Reader, watched: Watched, browser: Browser) -> RenderableType:
    from rich.text import Text

    from selfplay.views.frontier import frontier_screen
    from selfplay.views.watch_browser import HELP

    if browser.page == "frontier":
        return frontier_screen(watched.frontier) if watched.frontier is not None else Text(" no task was played yet")
    if browser.page == "help" or browser.current is None:
        return Text(HELP)
    return page_of(reader, browser.current)


def page_of(reader: Reader, trajectory_id: str) -> RenderableType:
    """What `selfplay inspect RUN ID` shows of a proposal or an attempt."""
    from selfplay.views import inspect as gather
    from selfplay.views import inspect_text as text

    trajectory = reader.trajectory(trajectory_id)
    if trajectory.stage == "propose":
        return text.proposal_page(gather.proposal_of(reader, trajectory))
    task = reader.task(trajectory.subject_id)
    origin = gather.origin_of(reader, task) if task is not None else None
    return text.attempt_page(gather.play_of(reader, trajectory), task=task, origin=origin)
