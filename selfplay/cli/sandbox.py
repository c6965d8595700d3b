"""`selfplay sandbox build | ls | reap | check | bench`: images, what is still there, whether backends keep their word.

Not here: how any of it is done (`sandbox`), whether the machine is ready (`doctor`).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from selfplay.cli.session import Session, common

if TYPE_CHECKING:
    from selfplay.sandbox import Left, SandboxProvider
    from selfplay.sandbox.recipe import Recipe

T = TypeVar("T")
BACKENDS = ("docker", "bubblewrap", "local")
CHECK_SECONDS = 180.0
"""Longest that one conformance check may take."""
REPEATS = 5


@click.group("sandbox", short_help="Images, leftovers, checks and latencies of sandboxes.")
@click.help_option("-h", "--help")
def command() -> None:
    """Images, leftovers, checks and latencies of sandboxes.

    \b
    Examples:
      selfplay sandbox build
      selfplay sandbox ls
      selfplay sandbox reap --dry-run
      selfplay sandbox check bubblewrap
      selfplay sandbox bench
    """


@command.command("build", short_help="Make the image that Docker sandboxes start from.")
@click.argument("name", default="python")
@click.option("--base", metavar="IMAGE", help="Start from this image [default: the recipe's, else debootstrap].")
@click.option(
    "--rootfs",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="TAR",
    help="Start from a tar of a root file system that has Python 3.11 or newer.",
)
@common
def build(session: Session, *, name: str, base: str | None, rootfs: Path | None) -> None:
    """Make the image of the recipe NAME (default: python), where it is missing or a base is given.

    \b
    Examples:
      selfplay sandbox build
      selfplay sandbox build --base python:3.12-slim
    """
    from selfplay.errors import UserError
    from selfplay.sandbox.image import build_image

    if base is not None and rootfs is not None:
        raise UserError("--base and --rootfs are two answers to one question", hint="give one of them")
    tag = build_image(_recipe(session, name), base=base, rootfs=rootfs, say=session.say)
    if session.json:
        session.answer("sandbox", {"command": "build", "image": tag})
    else:
        session.console().print(tag, markup=False)


@command.command("ls", short_help="Every sandbox that is still there, and whose it is.")
@common
def ls(session: Session) -> None:
    """Every sandbox that is still there, of all backends that answer, and whose it is.

    \b
    Examples:
      selfplay sandbox ls
      selfplay sandbox ls --json
    """
    left, silent = asyncio.run(_all_left(session))
    if session.json:
        session.answer("sandbox", {"command": "ls", "sandboxes": [_row(one) for one in left], "silent": silent})
        return
    session.say_silent(silent)
    if not left:
        session.say("no sandbox is there")
        return
    _print(session, left)


@command.command("reap", short_help="Remove what dead owners left.")
@click.option("--older-than", type=click.FloatRange(min=0.0), metavar="SECONDS", help="Only what is older.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@common
def reap(session: Session, *, older_than: float | None, dry_run: bool) -> None:
    """Remove what dead owners left, in any state; a living owner's sandbox is never touched.

    \b
    Examples:
      selfplay sandbox reap --dry-run
      selfplay sandbox reap --older-than 3600
    """
    if dry_run:
        left, silent = asyncio.run(_all_left(session))
        dead = [one for one in left if one.dead and (older_than is None or one.age_seconds > older_than)]
        rows = [{"id": one.id, "backend": one.backend} for one in dead]
    else:
        ids, silent = asyncio.run(_ask(session, lambda provider: provider.reap(older_than_seconds=older_than)))
        rows = [{"id": one, "backend": backend} for backend, names in ids.items() for one in names]
    if session.json:
        session.answer(
            "sandbox", {"command": "reap", "removed": [] if dry_run else rows, "found": rows, "silent": silent}
        )
        return
    session.say_silent(silent)
    for row in rows:
        did = "would remove" if dry_run else "removed"
        session.console().print(f"{did} {row['id']} ({row['backend']})", markup=False)
    if not rows:
        session.say("nothing of a dead owner is there")


@command.command("check", short_help="Run the conformance suite against backends.")
@click.argument("backend", required=False, type=click.Choice(BACKENDS))
@common
def check(session: Session, *, backend: str | None) -> int:
    """Run the conformance suite against BACKEND, or against Docker and bubblewrap where they are ready.

    The exit code is 1 where a check fails, 3 where the backend is not ready.

    \b
    Examples:
      selfplay sandbox check
      selfplay sandbox check bubblewrap
    """
    names = _ready(session, backend)
    rows = [row for name in names for row in asyncio.run(_check(session, name))]
    failed = sum(not row["passed"] for row in rows)
    if session.json:
        session.answer("sandbox", {"command": "check", "passed": not failed, "checks": rows})
    else:
        session.say(f"{len(rows) - failed} of {len(rows)} checks passed")
    return 1 if failed else 0


@command.command("bench", short_help="How long each operation of a backend takes.")
@click.argument("backend", required=False, type=click.Choice(BACKENDS))
@click.option("--repeat", default=REPEATS, type=click.IntRange(min=1), help=f"Sandboxes each way [default: {REPEATS}].")
@common
def bench(session: Session, *, backend: str | None, repeat: int) -> None:
    """Medians in milliseconds of create, acquire, exec, put, get and close, beside a bare process start.

    \b
    Examples:
      selfplay sandbox bench
      selfplay sandbox bench docker --repeat 10
    """
    from selfplay.sandbox.latency import floor_ms, latency

    names = _ready(session, backend)
    floor = floor_ms()

    async def measure(name: str) -> dict[str, float]:
        async with _opened(session, name) as provider:
            return dataclasses.asdict(await latency(provider, repeats=repeat))

    found = {name: asyncio.run(measure(name)) for name in names}
    if session.json:
        session.answer("sandbox", {"command": "bench", "floor_ms": floor, "median_ms": found})
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("median ms")
    for word in next(iter(found.values())):
        table.add_column(word, justify="right")
    for name, medians in found.items():
        table.add_row(name, *(f"{value:.1f}" for value in medians.values()))
    session.console().print(table)
    session.console().print(f"floor: {floor:.1f} ms to start a process that does nothing")


def _recipe(session: Session, name: str = "python") -> Recipe:
    from selfplay.sandbox.recipe import load_recipe

    return load_recipe(name, folder=session.project.find("sandbox", name).parent)


@asynccontextmanager
async def _opened(session: Session, name: str) -> AsyncIterator[SandboxProvider]:
    from selfplay.sandbox.select import provider_of

    provider = provider_of(name, _recipe(session))
    try:
        yield provider
    finally:
        await provider.aclose()


async def _ask(
    session: Session, question: Callable[[SandboxProvider], Awaitable[T]]
) -> tuple[dict[str, T], dict[str, str]]:
    """The answer of each backend by its name, and why the others gave none."""
    from selfplay.errors import NotReady
    from selfplay.sandbox import SandboxInfraError

    answers: dict[str, T] = {}
    silent: dict[str, str] = {}
    for name in BACKENDS:
        try:
            async with _opened(session, name) as provider:
                answers[name] = await question(provider)
        except (SandboxInfraError, NotReady) as error:
            silent[name] = error.message
    return answers, silent


async def _all_left(session: Session) -> tuple[list[Left], dict[str, str]]:
    answers, silent = await _ask(session, lambda provider: provider.listed())
    return [one for left in answers.values() for one in left], silent


async def _check(session: Session, name: str) -> list[dict[str, Any]]:
    """Every check that applies, one after another, each shown as it ends."""
    from selfplay.sandbox.conformance import checks_for

    rows = []
    async with _opened(session, name) as provider:
        for one in checks_for(provider):
            words = one.__name__.replace("_", " ")
            try:
                async with asyncio.timeout(CHECK_SECONDS):
                    await one(provider)
                why = ""
            except Exception as error:  # noqa: BLE001 (whatever a check raises is its answer)
                why = " ".join(str(error).split())[:500] or type(error).__name__
            rows.append({"backend": name, "check": one.__name__, "passed": not why, "why": why})
            if not session.json:
                mark = "[red]✗[/]" if why else "[green]✓[/]"
                session.console().print(f"{mark} {name}  {words}")
                if why:
                    session.console().print(f"  {why}", markup=False)
    return rows


def _ready(session: Session, backend: str | None) -> list[str]:
    """The backends to look at: the one that is named, or those that isolate and are ready.

    Raises:
        NotReady: the named one is not, or none is.
    """
    from selfplay.errors import NotReady
    from selfplay.sandbox.select import preflight

    asked = [backend] if backend is not None else ["docker", "bubblewrap"]
    tried = {name: preflight(name, recipe=_recipe(session)) for name in asked}
    ready = [name for name, found in tried.items() if found.ready]
    missing = {name: found for name, found in tried.items() if not found.ready}
    if not ready:
        words = ". ".join(f"{name}: {found.what}" for name, found in missing.items())
        fixes = [found.fix for found in missing.values() if found.fix]
        raise NotReady(f"no sandbox to look at. {words}", hint=" -- or: ".join(fixes) or "selfplay doctor")
    for name, found in missing.items():
        session.say(f"left out: {name}: {found.what}")
    return ready


def _row(one: Left) -> dict[str, Any]:
    return {**dataclasses.asdict(one), "labels": dict(one.labels), "run": one.labels.get("run")}


def _print(session: Session, left: Sequence[Left]) -> None:
    from rich.table import Table
    from rich.text import Text

    from selfplay.views.words import UNKNOWN, duration

    table = Table(box=None, pad_edge=False, header_style="bold")
    for word in ("sandbox", "backend", "state", "age", "owner", "", "run"):
        table.add_column(word, overflow="fold")
    for one in sorted(left, key=lambda one: -one.age_seconds):
        host, _, rest = one.owner.partition(":")
        owner = f"{rest.partition(':')[0]} on {host}" if rest else UNKNOWN
        state = Text("dead", style="red") if one.dead else Text("alive")
        run = Text(one.labels.get("run", UNKNOWN))
        # note: as text, since owners and runs have names that other programs chose.
        cells = (Text(cell) for cell in (one.id, one.backend, one.state, duration(one.age_seconds), owner))
        table.add_row(*cells, state, run)
    session.console().print(table)
