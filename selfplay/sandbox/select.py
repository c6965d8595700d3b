"""Chooses the backend, and finds out whether one is ready by trying it.

`auto` is Docker where an engine answers and has (or can be given) its image, else bubblewrap, else a
refusal with the exact command that mends it. It never falls back to `local`, which isolates nothing and has
to be asked for by name.

Not covered: printing (the sentences are returned), building images (`image.build_image`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from selfplay.errors import NotReady, UserError
from selfplay.sandbox import Preflight, SandboxProvider, local
from selfplay.sandbox.bubblewrap import BubblewrapProvider
from selfplay.sandbox.environment import tool_environment
from selfplay.sandbox.local import LocalProvider
from selfplay.sandbox.recipe import Recipe, load_recipe
from selfplay.sandbox.wheels import Wheel
from selfplay.types import record

Name = Literal["auto", "docker", "bubblewrap", "local"]
NAMES: tuple[Name, ...] = ("auto", "docker", "bubblewrap", "local")
_T = TypeVar("_T")


@record
class Chosen:
    """A backend, and what the person should know of the choice."""

    provider: SandboxProvider
    notice: str
    """One line for stderr; empty where there is nothing to say."""


def choose(
    name: str = "auto", *, recipe: str = "python", folder: Path | None = None, wheels: Sequence[Wheel] = ()
) -> Chosen:
    """The backend that `name` means here, tried before it is handed out.

    `folder` is the project's `sandboxes/`; None is the shipped one. `wheels` are what the repository under play
    requires. May be called with or without a running event loop.

    Raises:
        UserError: there is no backend of that name, or the recipe is wrong.
        NotReady: it does not work here (`auto`: none that isolates does); the hint says what mends it.
    """
    known = load_recipe(recipe, folder=folder)
    if name == "auto":
        return _auto(known, wheels)
    tried = preflight(name, recipe=known)
    if not tried.ready:
        raise NotReady(f"sandbox `{name}` is not ready: {tried.what}", hint=tried.fix)
    return Chosen(provider=provider_of(name, known, wheels=wheels), notice=local.WARNING if name == "local" else "")


def preflight(name: str, *, recipe: Recipe | None = None) -> Preflight:
    """Is the backend ready here? Makes a sandbox, looks around in it, removes it.

    Raises:
        UserError: there is no backend of that name.
    """
    known = recipe if recipe is not None else load_recipe()
    if name == "docker":
        # note: imported here, because the docker package costs 200 ms and bubblewrap does without.
        from selfplay.sandbox.docker import DockerProvider

        return _run(lambda: DockerProvider.preflight(recipe=known))
    if name == "bubblewrap":
        return _run(lambda: BubblewrapProvider.preflight(recipe=known))
    if name == "local":
        return _run(lambda: LocalProvider.preflight(recipe=known))
    raise UserError(f"no sandbox `{name}`", hint=f"one of: {', '.join(NAMES)}")


def _auto(recipe: Recipe, wheels: Sequence[Wheel]) -> Chosen:
    by_docker = preflight("docker", recipe=recipe)
    if by_docker.ready:
        return Chosen(provider=provider_of("docker", recipe, wheels=wheels), notice="")
    by_bubblewrap = preflight("bubblewrap", recipe=recipe)
    if by_bubblewrap.ready:
        # An engine that only lacks its image is worth a line; no engine at all is the common, quiet case.
        notice = ""
        if "has no image" in by_docker.what:
            notice = f"sandbox: bubblewrap, because {by_docker.what[0].lower()}{by_docker.what[1:]} ({by_docker.fix})"
        return Chosen(provider=provider_of("bubblewrap", recipe, wheels=wheels), notice=notice)
    fixes = [fix for fix in (by_bubblewrap.fix, by_docker.fix) if fix]
    raise NotReady(
        f"no sandbox works here. bubblewrap: {by_bubblewrap.what}. docker: {by_docker.what}",
        hint=" -- or: ".join(fixes) or "--sandbox local runs the model's code unprotected, as you",
    )


def provider_of(name: str, recipe: Recipe, *, wheels: Sequence[Wheel] = ()) -> SandboxProvider:
    """The provider of that name, not tried; with `wheels`, its sandboxes have them too.

    Raises:
        NotReady: an image or environment with the wheels could not be made.
    """
    if name == "docker":
        from selfplay.sandbox.docker import DockerProvider
        from selfplay.sandbox.image import layered_image

        return DockerProvider(recipe=recipe, image=layered_image(recipe, wheels) if wheels else None)
    environment = tool_environment(recipe.tools, wheels=wheels)
    if name == "bubblewrap":
        return BubblewrapProvider(environment=environment)
    return LocalProvider(environment=environment)


def _run(make: Callable[[], Awaitable[_T]]) -> _T:
    """The result of a coroutine, from code that may itself run inside an event loop: on a thread of its own."""
    result: list[_T] = []
    failure: list[BaseException] = []

    async def main() -> _T:
        return await make()

    def body() -> None:
        try:
            result.append(asyncio.run(main()))
        except BaseException as error:  # noqa: BLE001
            # Carried over to the caller's thread, where it is raised.
            failure.append(error)

    thread = threading.Thread(target=body, name="selfplay-preflight")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]
