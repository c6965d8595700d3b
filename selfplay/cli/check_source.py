"""`selfplay check REPOSITORY`: what is special about it, what is done about that, and whether it can be played.

Not here: the facts (`games.code.condition`), the survey (`games.code.survey`).
"""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfplay.cli import runs
from selfplay.cli.session import Session
from selfplay.errors import UserError

if TYPE_CHECKING:
    from selfplay.config import Config
    from selfplay.games.code.condition import Fact
    from selfplay.games.code.opened import Opened
    from selfplay.project import Project

PRESET = "quickstart"
"""Its settings hold where none are typed."""


def is_source(text: str, *, project: Project) -> bool:
    """True where `text` means a repository rather than a run."""
    from selfplay.games.code.source import is_git

    if text.startswith("pypi:") or is_git(text):
        return True
    names = {run.name for run in runs.all_runs(project)}
    folder = Path(text).expanduser()
    return text not in (*names, "last") and folder.is_dir() and not (folder / runs.LEDGER).is_file()


def check(session: Session, source: str, *, sets: Sequence[str], read_only: bool) -> int:
    """Read it, run its tests, and say what was found; returns the exit code."""
    if session.json:
        session.claim_stdout()
    from selfplay import config as configs
    from selfplay.cache import cache_folder
    from selfplay.games.code import condition
    from selfplay.games.code.source import fetch

    # note: as a full path, since a plain name is relative to the project.
    place = str(Path(source).expanduser().resolve()) if Path(source).expanduser().is_dir() else source
    config = configs.load(
        PRESET, project=session.project, sets=[*sets, f"game.source={_quoted(place)}", "warmup.steps=0"]
    )
    repository = fetch(place, cache=cache_folder())
    facts = list(condition.layout_of(repository))
    if not session.json:
        session.data.write(f"{repository.name}: {len(repository.files)} files, {repository.digest[:12]}\n")
        session.data.write("".join(map(told, facts)))
        session.data.flush()
    opened: Opened | None = None
    problem: UserError | None = None
    if not read_only:
        try:
            opened, settings = asyncio.run(_surveyed(config, session))
            found = condition.suite_of_survey(opened.survey, settings=settings)
            facts += found
            if not session.json:
                session.data.write("".join(map(told, found)))
        except UserError as error:
            problem = error
    if session.json:
        session.answer("check", data(repository.name, facts, opened, problem, read_only=read_only))
    elif problem is not None:
        session.data.write(f"\ncannot be played: {problem.message}\n")
        session.say(f"hint: {problem.hint}" if problem.hint else "")
    elif opened is not None:
        session.data.write(f"\n{summary(opened)}\n")
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", repository.name).strip("-._") or "mine"
        session.say(f"  play      selfplay run {shlex.join(['-s', f'game.source={place}'])} --name {name}")
    else:
        session.say(f"  its tests selfplay check {shlex.quote(source)}")
    return 1 if problem is not None else 0


async def _surveyed(config: Config, session: Session) -> tuple[Opened, Any]:
    """The repository as a run of these settings would open it, and the game's settings."""
    from selfplay import parts
    from selfplay.games.code.game import CodeGame
    from selfplay.views.observers import PlainObserver

    project = session.project
    async with AsyncExitStack() as stack:
        players = parts.roles(config, project)
        with PlainObserver(sys.stderr, run="check") as observe:
            game, _ = await parts.game(config, project, players, observe=observe, stack=stack)
        assert isinstance(game, CodeGame), "the preset's roles have no tools"
        return await game.opened(), game.settings


def told(fact: Fact) -> str:
    """One fact, for people."""
    return f"\n{'!' if fact.trouble else '·'} {fact.name}: {fact.what}\n  -> {fact.then}\n"


def summary(opened: Opened) -> str:
    """What there is to play, in words."""
    held_out = sum(seed.split == "held_out" for seed in opened.seeds)
    found = opened.survey
    return (
        f"can be played: {len(opened.seeds)} functions ({held_out} held out) that {len(found.seconds)} stable tests "
        f"reach; {len(found.left_out)} tests or files left out; {sum(found.seconds.values()):.1f} s of processor time"
    )


def data(
    name: str, facts: Sequence[Fact], opened: Opened | None, problem: UserError | None, *, read_only: bool
) -> dict[str, Any]:
    """The same, as JSON."""
    found = opened.survey if opened is not None else None
    return {
        "repository": name,
        "ok": None if read_only else problem is None,
        "problem": {"message": problem.message, "hint": problem.hint} if problem is not None else None,
        "facts": [asdict(fact) for fact in facts],
        "seeds": len(opened.seeds) if opened is not None else None,
        "stable_tests": len(found.seconds) if found is not None else None,
        "left_out": dict(found.left_out) if found is not None else None,
        "network_tests": list(found.network) if found is not None else None,
        "seconds": sum(found.seconds.values()) if found is not None else None,
    }


def _quoted(text: str) -> str:
    """A TOML string."""
    from selfplay.config.settings import toml_value

    return toml_value(text)
