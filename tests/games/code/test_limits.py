"""A recipe's limits, from the project's file to what runs in its sandboxes."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from selfplay import parts
from selfplay.config import load
from selfplay.events import ignore
from selfplay.games.code import CodeGame, Settings, TreeGame
from selfplay.games.code.opening import Opening
from selfplay.games.code.survey import Rules
from selfplay.games.code.verify import Budget
from selfplay.project import Project, find_project
from selfplay.sandbox import Sandbox, SandboxSpec
from selfplay.sandbox.bubblewrap import BubblewrapProvider
from selfplay.sandbox.holder import BubblewrapSandbox
from selfplay.sandbox.recipe import load_recipe
from selfplay.sandbox.select import preflight
from selfplay.tools import Call
from selfplay.types import Limits, Role, Tools

pytestmark = pytest.mark.bubblewrap
OWN = {"memory_mb": 512, "pids": 100, "tmpfs_mb": 16, "file_mb": 8}
LOOK = "prlimit --output SOFT --noheadings --raw --data --nproc --fsize; df -m /workspace | tail -1"
SEEN = [str(512 << 20), "100", str(8 << 20)]


def with_recipe(folder: Path, **limits: float) -> Path:
    """A project folder whose sandboxes have these limits; its recipes."""
    (folder / "selfplay.toml").write_text("")
    recipes = folder / "sandboxes"
    shutil.copytree(load_recipe().folder, recipes / "python")
    lines = "".join(f"{key} = {value}\n" for key, value in limits.items())
    (recipes / "python" / "sandbox.toml").write_text(f"[limits]\n{lines}")
    return recipes


def project_of(folder: Path) -> Project:
    return find_project(explicit=folder)


def test_the_projects_recipe_limits_what_the_verifier_runs(
    bubblewrap: None, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))
    with_recipe(tmp_path, **OWN)
    project = project_of(tmp_path)
    sets = [f"game.source={package}", "sandbox.kind=bubblewrap", "sandbox.workers=1", "warmup.steps=0"]

    async def seen() -> list[str]:
        config = load("quickstart", project=project, sets=sets, environ={})
        async with AsyncExitStack() as stack:
            game, _ = await parts.game(config, project, parts.roles(config, project), observe=ignore, stack=stack)
            assert isinstance(game, CodeGame)
            verifier = (await game.opened()).verifier
            async with verifier.sandbox(change=None) as sandbox:
                return (await sandbox.exec(["sh", "-c", LOOK], timeout_seconds=30.0)).stdout.split()

    found = asyncio.run(seen())
    assert (found[:3], found[4]) == (SEEN, "16")


class Noting(BubblewrapProvider):
    """Notes what sandboxes it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[SandboxSpec] = []

    async def create(self, spec: SandboxSpec) -> BubblewrapSandbox:
        self.asked.append(spec)
        return await super().create(spec)

    async def acquire(self, spec: SandboxSpec) -> Sandbox:
        self.asked.append(spec)
        return await super().acquire(spec)


def limits_asked(package: Path, cache: Path, spec: SandboxSpec | None) -> set[tuple[object, ...]]:
    """The limits of all sandboxes that a survey, the look for copies, a run and a play ask for."""
    provider = Noting()
    settings = Settings(rules=Rules(max_failing=0.3), stdlib=5)
    limits = Limits(turns=1, tokens=10, seconds=400.0)
    game = TreeGame(
        opening=Opening(str(package), cache=cache, provider=provider, settings=settings, spec=spec),
        proposer=Role(name="p", game="code", side="proposer", prompt="", limits=limits, tools=Tools()),
        solver=Role(name="s", game="code", side="solver", prompt="", limits=limits, tools=Tools()),
        config_digest="test",
    )

    async def play() -> None:
        opened = await game.opened()
        test = ["tests/test_core.py::test_double"]
        assert (await opened.verifier.run(test, budget=Budget(cpu_seconds=20.0, seconds=60.0))).clean
        before = len(provider.asked)
        toolbox = await game.toolbox(game.proposer, opened.seeds[0])
        try:
            await toolbox.call(Call(name="bash", arguments={"command": "true"}))
        finally:
            await toolbox.aclose()
        assert 4000.0 in {one.ttl_seconds for one in provider.asked[before:]}

    async def main() -> None:
        try:
            await play()
        finally:
            await game.aclose()

    asyncio.run(main())
    assert len(provider.asked) >= 5
    assert all(one.archive is not None for one in provider.asked)
    # note: a play's time to live is its own, and the pool's refill asks for another such sandbox at a time of its own.
    assert {one.ttl_seconds for one in provider.asked} == {1800.0, 4000.0}
    return {(one.name, one.cpus, one.memory_mb, one.pids, one.tmpfs_mb, one.file_mb) for one in provider.asked}


def test_every_sandbox_of_a_repository_has_the_recipes_limits(bubblewrap: None, package: Path, tmp_path: Path) -> None:
    own = load_recipe(folder=with_recipe(tmp_path, **OWN)).spec()
    usual = ("python", 1.0, 1024, 256, 256, 64)
    assert limits_asked(package, tmp_path / "cache", None) == {usual}
    surveys = set((tmp_path / "cache" / "surveys").glob("*.json"))
    assert limits_asked(package, tmp_path / "cache", load_recipe().spec()) == {usual}
    assert set((tmp_path / "cache" / "surveys").glob("*.json")) == surveys, (
        "the shipped recipe is what there was before"
    )
    assert limits_asked(package, tmp_path / "cache", own) == {("python", 1.0, 512, 100, 16, 8)}
    assert len(set((tmp_path / "cache" / "surveys").glob("*.json"))) == 2, "other limits may pass other tests"


def test_a_recipe_that_nothing_runs_in_is_not_ready(bubblewrap: None, tmp_path: Path) -> None:
    recipe = load_recipe(folder=with_recipe(tmp_path, memory_mb=1))
    assert not preflight("bubblewrap", recipe=recipe).ready
