"""A run of the code game whose replies were written beforehand: real seeds, bugs, attempts and verdicts in a ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import cast

from selfplay import parts
from selfplay.cache import cache_folder
from selfplay.config import Config, load
from selfplay.events import ignore
from selfplay.games import Game, MakesTasks
from selfplay.games.code.mutate import mutations
from selfplay.ledger import Ledger
from selfplay.project import Project
from selfplay.types import Seed, Stage, Stop, Task, Trajectory, Turn, play_id

PACKAGE = {
    "pkg/__init__.py": "",
    "pkg/core.py": '''
def add(a, b):
    """The sum."""
    total = a + b
    return total


def count(n):
    i = 0
    while i < n:
        i += 1
    return i
''',
    "tests/test_core.py": """
import pytest

from pkg import core


@pytest.mark.parametrize(("a", "b"), [(1, 2), (3, -4), ("a b", "c/d"), (0, 0)])
def test_add(a, b):
    assert core.add(a, b) == a + b


def test_count():
    assert core.count(3) == 3


def test_count_none():
    assert core.count(0) == 0
""",
}


def written(folder: Path) -> Path:
    """The package, under `folder`."""
    for path, text in PACKAGE.items():
        file = folder / "pkg-1.0" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.lstrip("\n"))
    return folder / "pkg-1.0"


def cache(folder: Path) -> Path:
    """A cache of its own under `folder`, but for the test tools' environment, which takes ten seconds to make."""
    own = folder / "cache"
    own.mkdir()
    (cache_folder() / "env").mkdir(parents=True, exist_ok=True)
    (own / "env").symlink_to(cache_folder() / "env")
    return own


def settings(source: Path, project: Project, *sets: str) -> Config:
    """The quickstart's settings on another source, without a warm-up."""
    own = [f"game.source={source}", "sandbox.kind=bubblewrap", "warmup.steps=0", "game.held_out=0.0"]
    return load("quickstart", project=project, sets=[*own, *sets])


def play(folder: Path, *sets: str, source: Path, project: Project) -> Config:
    """One step: a bug in each function, each attempted twice, by the repair and by another bug; nothing is learnt.

    Where `sets` mix `search` in, each of its seeds, as a sentence with a blank, is answered rightly and wrongly.
    """
    config = settings(source, project, *sets)
    config.write(folder)
    values = config.values()
    with Ledger.create(folder, config_digest=config.digest, config=values, seed=0, game=config.run.game) as ledger:
        asyncio.run(_play(config, project, ledger))
    return config


async def _play(config: Config, project: Project, ledger: Ledger) -> None:
    async with AsyncExitStack() as stack:
        players = parts.roles(config, project)
        game, _ = await parts.game(config, project, players, observe=ignore, stack=stack)
        seeds = await game.seeds()
        ledger.append(*seeds)
        for seed in seeds:
            if seed.game == "search":
                given = await cast(MakesTasks, game).given(seed)
                assert given is not None
                ledger.append(given)
                task, replies = given, (seed.payload["answer"], "nobody")
            else:
                task, bug = await _minted(game, seed, config, ledger)
                replies = tuple(_replies(seed, bug))
            for index, reply in enumerate(replies):
                attempt = said(reply, stage="attempt", subject=task.id, index=index, config=config, game=seed.game)
                ledger.append(attempt, await game.judge(attempt, task))


async def _minted(game: Game, seed: Seed, config: Config, ledger: Ledger) -> tuple[Task, str]:
    """The first mutation of the seed's function that is a bug, recorded with its verdict."""
    for index, mutation in enumerate(mutations(seed.payload["source"])):
        proposal = said(mutation.edit.text, stage="propose", subject=seed.id, index=index, config=config)
        minted = await game.mint(proposal, seed)
        records = [minted.task] if minted.task is not None else []
        ledger.append(proposal, *records, minted.verdict)
        if minted.task is not None:
            return minted.task, mutation.repair.text
    raise AssertionError(f"no mutation of {seed.source} is a bug")


def _replies(seed: Seed, repair: str) -> Iterator[str]:
    """The repair, and a line that makes the function raise."""
    yield repair
    number, _, text = repair.splitlines()[0].partition("|")
    indent = text[: len(text) - len(text.lstrip())]
    yield f"{number}|{indent}raise ValueError({seed.payload['qualname']!r})"


def said(reply: str, *, stage: Stage, subject: str, index: int, config: Config, game: str = "code") -> Trajectory:
    """A reply as a rollout would have recorded it."""
    role = "injector" if stage == "propose" else "repairer" if game == "code" else "search_solver_short"
    where = {"step": 0, "stage": stage, "role": role, "subject_id": subject, "index": index, "attempt": 0}
    turns = (
        Turn(speaker="prompt", token_ids=(1,), text="?"),
        Turn(speaker="policy", token_ids=(2,), logprobs=(-1.0,), text=reply),
    )
    made = Trajectory(id="", turns=turns, stop=Stop.DONE, policy_version=(0, 0), **where)  # type: ignore[arg-type]
    return replace(made, id=play_id(config.digest, **where))  # type: ignore[arg-type]


def attempts(ledger_folder: Path) -> Sequence[Trajectory]:
    """Its attempts, in order."""
    with Ledger.read(ledger_folder) as reader:
        return reader.trajectories(0, "attempt")
