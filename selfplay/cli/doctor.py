"""`selfplay doctor`: is this machine ready? Facts, a verdict and a fix a line; `--fix` builds what it can.

Isolation is proved by trying: inside a sandbox of each ready backend it reaches out, forks, fills memory and disk,
reads and climbs, and says what stopped it.

Not here: how an image is built (`sandbox.image`), installing system packages.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import click

from selfplay.cli.session import Session, common
from selfplay.errors import SelfplayError
from selfplay.types import record

if TYPE_CHECKING:
    from selfplay.config import Config
    from selfplay.sandbox.proof import Attempt
    from selfplay.sandbox.recipe import Recipe

DISTRIBUTION = "selfplay-curriculum"

SIZED = "quickstart"
"""The preset whose memory is looked at."""

NEEDED_GB = 2.0
"""Below this a run of the quickstart would fill the disk: weights, moments and two saves."""

COMFORTABLE_GB = 8.0

MARKS = {"ok": "✓", "missing": "✗", "warning": "!"}


@record
class Check:
    """One line of the answer."""

    name: str
    verdict: Literal["ok", "missing", "warning"]
    """`missing` stops a run; `warning` does not."""
    what: str
    fix: str = ""


@click.command("doctor", short_help="Is this machine ready?")
@click.option("--fix", is_flag=True, help="Build what is missing and can be built: the image of a Docker sandbox.")
@common
def command(session: Session, *, fix: bool) -> int:
    """Is this machine ready? The exit code is 3 where it is not.

    \b
    Examples:
      selfplay doctor
      selfplay doctor --fix
    """
    if fix:
        _build_image(session)
    found = list(checks(session))
    ready = all(check.verdict != "missing" for check in found)
    if session.json:
        rows = [{"name": c.name, "verdict": c.verdict, "what": c.what, "fix": c.fix} for c in found]
        session.answer("doctor", {"ready": ready, "checks": rows})
        return 0 if ready else 3
    _print(session, found)
    session.say(
        "this machine is ready: selfplay run" if ready else "this machine is not ready; selfplay demo needs no sandbox"
    )
    return 0 if ready else 3


def _build_image(session: Session) -> None:
    """The Docker image, where an engine answers; silent where none does."""
    from selfplay.sandbox.image import build_image
    from selfplay.sandbox.recipe import load_recipe
    from selfplay.sandbox.select import preflight

    recipe = load_recipe()
    tried = preflight("docker", recipe=recipe)
    if not tried.ready and "has no image" in tried.what:
        session.say(f"the image is {build_image(recipe, say=session.say)}")


def checks(session: Session) -> Iterator[Check]:
    """Every check, in the order a newcomer meets them."""
    yield _python()
    yield from _packages()
    yield _git()
    yield from _disk(session)
    yield _model()
    yield from _sampling(session)
    yield from _cluster()
    yield from _sandboxes(session)


def _cluster() -> Iterator[Check]:
    """Ray, where it is installed or named; a run without a cluster does not want it."""
    from selfplay.cluster import looking

    for line in looking.lines(os.environ):
        yield Check(name=line.name, verdict="ok" if line.good else "warning", what=line.what, fix=line.fix)


def _python() -> Check:
    ok = sys.version_info >= (3, 11)
    where = f"Python {platform.python_version()} on {platform.machine()}, {os.cpu_count()} cores"
    return Check(name="python", verdict="ok" if ok else "missing", what=where, fix="" if ok else "install Python 3.11")


def _packages() -> Iterator[Check]:
    """Each required distribution, by its metadata: importing torch would take seconds."""
    from packaging.requirements import Requirement

    try:
        needed = [Requirement(text) for text in importlib.metadata.requires(DISTRIBUTION) or ()]
    except importlib.metadata.PackageNotFoundError:
        fix = "pip install -c constraints.txt -e ."
        yield Check(
            name="packages", verdict="warning", what=f"{DISTRIBUTION} is not installed, only importable", fix=fix
        )
        return
    present, wrong = [], []
    for requirement in needed:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} is {version}, not {requirement.specifier}")
        if requirement.name in ("torch", "transformers"):
            present.append(f"{requirement.name} {version}")
    if wrong:
        yield Check(
            name="packages", verdict="missing", what="; ".join(wrong), fix="pip install -c constraints.txt -e ."
        )
    else:
        yield Check(name="packages", verdict="ok", what=", ".join(sorted(present)) + " and the rest are there")


def _git() -> Check:
    found = shutil.which("git")
    if found is None:
        return Check(name="git", verdict="missing", what="no git on PATH", fix="apt-get install -y git")
    try:
        done = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Check(name="git", verdict="missing", what=f"git does not run: {error}", fix="apt-get install -y git")
    return Check(name="git", verdict="ok", what=done.stdout.strip())


def _disk(session: Session) -> Iterator[Check]:
    from selfplay.cache import cache_folder

    for name, folder in (("runs", session.project.runs), ("cache", cache_folder())):
        base = folder
        while not base.exists():
            base = base.parent
        free = shutil.disk_usage(base).free / 1e9
        what = f"{free:.1f} GB free for {folder}"
        if not os.access(base, os.W_OK):
            yield Check(
                name=name,
                verdict="missing",
                what=f"{base} cannot be written",
                fix=f"choose another: {_VARIABLES[name]}",
            )
        elif free < NEEDED_GB:
            yield Check(
                name=name, verdict="missing", what=what, fix=f"free {NEEDED_GB:.0f} GB, or set {_VARIABLES[name]}"
            )
        else:
            yield Check(name=name, verdict="ok" if free >= COMFORTABLE_GB else "warning", what=what)


_VARIABLES = {"runs": "SELFPLAY_RUNS", "cache": "SELFPLAY_CACHE"}


def _model() -> Check:
    from selfplay.cache import cache_folder

    folder = cache_folder() / "models"
    found = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if not found:
        return Check(
            name="model", verdict="warning", what="no weights in the cache: the first run fetches and converts them"
        )
    return Check(name="model", verdict="ok", what=f"in the cache: {', '.join(found[:4])}")


def _sampling(session: Session) -> Iterator[Check]:
    """Cards, vLLM, and whether the settings fit into the memory there is."""
    from selfplay import config as configs
    from selfplay import sizing

    found = sizing.cards()
    what = ", ".join(f"{name}, {mb / 1000:.0f} GB" for name, mb in found)
    yield Check(name="cards", verdict="ok", what=what or "none: everything runs on the processor")
    try:
        config = configs.load(SIZED, project=session.project)
        yield _vllm(config)
        yield _memory(session, config)
    except SelfplayError as error:
        yield Check(name="settings", verdict="missing", what=error.message, fix=error.hint)


def _vllm(config: Config) -> Check:
    """The vLLM of the environment that the settings name, and whether it is supported; only one backend wants it."""
    from selfplay.errors import NotReady
    from selfplay.policy import vllm_setup
    from selfplay.samplers import constants

    wanted = config.policy.backend == "vllm"
    options = config.policy.options if wanted else {}
    try:
        found = vllm_setup.installed(constants(vllm_setup.Options, options, backend="vllm"))
    except NotReady as error:
        what = error.message if wanted else f"{error.message}; only policy.backend = vllm wants it"
        return Check(name="vllm", verdict="missing" if wanted else "warning", what=what, fix=error.hint)
    return Check(name="vllm", verdict="ok", what=f"vLLM {found.version} of {found.python}: {found.support}")


def _memory(session: Session, config: Config) -> Check:
    """What the settings would take, device by device."""
    from selfplay import parts, sizing

    needs = sizing.needs_of(config, parts.roles(config, session.project))
    if needs is None:
        what = f"{config.policy.model}: its config.json is not on this disk yet, or a kind that is not counted"
        return Check(name="memory", verdict="ok", what=what)
    sizes = sizing.pick(needs, sizing.devices(config))
    loads = "; ".join(
        f"{one.device.name}: {one.total_mb / 1000:.1f} of {one.device.limit_mb / 1000:.1f} GB" for one in sizes.loads
    )
    what = f"{SIZED} ({config.policy.model}), planned: {loads}; token budget up to {sizes.token_budget}"
    fix = "" if sizes.fits else "selfplay run --plan says what takes it; -s learner.lora_rank=8 takes less"
    return Check(name="memory", verdict="ok" if sizes.fits else "warning", what=what, fix=fix)


def _sandboxes(session: Session) -> Iterator[Check]:
    """Docker and bubblewrap, each tried, and tried to get out of; one of them is enough."""
    from selfplay.sandbox.recipe import load_recipe
    from selfplay.sandbox.select import preflight

    try:
        recipe = load_recipe("python", folder=session.project.find("sandbox", "python").parent)
    except SelfplayError as error:
        yield Check(name="sandbox", verdict="missing", what=error.message, fix=error.hint)
        return
    tried = {name: preflight(name, recipe=recipe) for name in ("docker", "bubblewrap")}
    enough = any(found.ready for found in tried.values())
    for name, found in tried.items():
        verdict: Literal["ok", "missing", "warning"] = "ok" if found.ready else ("warning" if enough else "missing")
        yield Check(name=name, verdict=verdict, what=found.what, fix=found.fix)
        if found.ready:
            yield from _isolation(name, recipe)
    if tried["docker"].ready:
        yield _engine_disk()


def _isolation(name: str, recipe: Recipe) -> Iterator[Check]:
    """What stopped a candidate of this backend that tries to get out, and what dead owners left."""
    try:
        attempts, num_dead, num_alive = asyncio.run(_tried(name, recipe))
    except SelfplayError as error:
        yield Check(
            name=f"{name}: isolation",
            verdict="missing",
            what=error.message,
            fix=error.hint or f"selfplay sandbox check {name}",
        )
        return
    for attempt in attempts:
        yield Check(
            name=f"{name}: {attempt.name}",
            verdict="ok" if attempt.stopped else "missing",
            what=attempt.what if attempt.stopped else f"nothing stopped it: {attempt.what}",
            fix="" if attempt.stopped else f"do not use {name} here; try: selfplay sandbox check {name}",
        )
    what = f"{num_dead} left by dead owners, {num_alive} of living ones"
    fix = "selfplay sandbox reap" if num_dead else ""
    yield Check(name=f"{name}: leftovers", verdict="warning" if num_dead else "ok", what=what, fix=fix)


async def _tried(name: str, recipe: Recipe) -> tuple[Sequence[Attempt], int, int]:
    """The attempts; how many sandboxes of dead and of living owners are there."""
    from selfplay.sandbox.proof import prove
    from selfplay.sandbox.select import provider_of

    provider = provider_of(name, recipe)
    try:
        left = await provider.listed()
        num_dead = sum(one.dead for one in left)
        return await prove(provider), num_dead, len(left) - num_dead
    finally:
        await provider.aclose()


def _engine_disk() -> Check:
    """Room where the Docker engine keeps its images and containers."""
    from selfplay.sandbox.image import engine_root

    try:
        root = engine_root()
        free = shutil.disk_usage(root).free / 1e9 if root is not None else None
    except (SelfplayError, OSError) as error:
        return Check(name="docker: room", verdict="warning", what=f"not known: {error}")
    if free is None:
        return Check(name="docker: room", verdict="ok", what="the engine keeps its data on another machine")
    enough = free >= NEEDED_GB
    return Check(
        name="docker: room",
        verdict="ok" if enough else "warning",
        what=f"{free:.1f} GB free for {root}",
        fix="" if enough else "docker system df; docker image prune",
    )


def _print(session: Session, found: Sequence[Check]) -> None:
    from rich.table import Table
    from rich.text import Text

    styles = {"ok": "green", "missing": "red", "warning": "yellow"}
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in found:
        words = Text(check.what)
        if check.fix and check.verdict != "ok":
            words.append(f"\nfix: {check.fix}", style="bold")
        table.add_row(Text(f"{MARKS[check.verdict]} {check.verdict}", style=styles[check.verdict]), check.name, words)
    session.console().print(table)
