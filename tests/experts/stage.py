"""A run of the code game with tools whose players are scripted: real prompts, calls, sandboxes, verdicts and updates.

The model is the toy one; what it would say is taken from `players`. One token is one line, so that what is learnt from
stays short. Who a play is of is decided when it begins, and said in each reply: the engine knows nothing of it.

The product has no test hooks: functions of it are replaced while `scripted` is entered.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

from selfplay.games import echo
from selfplay.policy import Completion, Request, local, toy
from selfplay.project import Project
from selfplay.sandbox.recipe import load_recipe
from selfplay.sandbox.select import provider_of
from selfplay.types import Stop
from tests.experts.players import Player

LINES = 30_000
"""Different lines that all players and tools may say."""
CONTEXT = 32_768
ALPHABET = "".join(chr(0xF0000 + i) for i in range(LINES))
_NAME = re.compile(r"^I am (\w+)\.$", re.MULTILINE)


@dataclass(slots=True)
class Cast:
    """Who plays: each list is gone through as often as it takes."""

    proposers: Mapping[str, Player]
    """For each seed, in order."""
    solvers: Mapping[str, Player]
    """For each task, in order."""
    _next: dict[str, Iterator[str]] = field(default_factory=dict)

    def reply(self, said: str) -> str:
        """What is said next in this conversation."""
        named = _NAME.findall(said)
        solves, proposes = "I am improving its tests" in said, "Look at `" in said
        if not solves and not proposes:
            return "..."  # the end of a prompt, by which sampler and learner are compared
        players = self.solvers if solves else self.proposers
        if not named:
            order = self._next.setdefault(said, itertools.cycle(players))
            named = [next(order)]
            return f"I am {named[0]}.\n{players[named[0]](0, said)}"
        return f"I am {named[0]}.\n{players[named[0]](len(named), said)}"


class Speaks(Protocol):
    """Says what a model would."""

    def reply(self, said: str) -> str:
        """What is said next in this conversation."""
        ...


class LineTokenizer(toy.CharTokenizer):
    """One id a line, numbered as they come."""

    def __init__(self, alphabet: str = ALPHABET) -> None:
        super().__init__(alphabet)
        self._lines: dict[str, int] = {}

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of the lines, line ends included."""
        return tuple(self._lines.setdefault(line, len(self._lines)) + 2 for line in text.splitlines(keepends=True))

    def decode(self, token_ids: Sequence[int]) -> str:
        """The lines."""
        lines = list(self._lines)
        return "".join(lines[i - 2] for i in token_ids if i > toy.EOS)


@contextlib.contextmanager
def scripted(cast: Speaks) -> Iterator[None]:
    """Runs of the model `toy` say what the cast says."""
    tokenizer = LineTokenizer()
    made = toy.toy_model

    def model(seed: int, **given: Any) -> Any:
        return made(seed, hidden=32, context=CONTEXT, alphabet=ALPHABET)[0], tokenizer

    async def sample(self: Any, request: Request) -> Completion:
        ids = (*tokenizer.encode(cast.reply(tokenizer.decode(request.prompt_ids)) + "\n"), toy.EOS)
        version = self._version()
        return Completion(
            token_ids=ids,
            logprobs=(-1.0,) * len(ids),
            stop=Stop.DONE,
            policy_version=(version, version),
            seconds=0.0,
        )

    with (
        patch.object(echo, "CHARACTERS", ALPHABET),
        patch.object(toy, "toy_model", model),
        patch.object(local.LocalPolicy, "sample", sample),
    ):
        yield


def project(
    folder: Path, shipped: Project, *, seconds: float = 600.0, mend_seconds: float | None = None, turns: int = 12
) -> Project:
    """A project with the shipped roles and preset, for a model without a chat template; the solver calls in JSON.

    `mend_seconds` are the solver's, where it has others.
    """
    mend = seconds if mend_seconds is None else mend_seconds
    for name, form, most in (("tree_injector", "fenced", seconds), ("tree_repairer", "json", mend)):
        role = folder / "roles" / name
        role.mkdir(parents=True)
        given = shipped.shipped / "roles" / name
        text = (given / "role.toml").read_text()
        for old, new in (
            ('template = "chat"', 'template = "plain"'),
            ('form = "fenced"', f'form = "{form}"'),
            ("turns = 64", f"turns = {turns}"),
            ("seconds = 1800", f"seconds = {most:g}"),
        ):
            assert old in text
            text = text.replace(old, new)
        (role / "role.toml").write_text(text)
        (role / "prompt.md").write_text((given / "prompt.md").read_text())
    return Project(folder=folder, shipped=shipped.shipped, runs=folder / "runs")


def left_by_us(kind: str) -> frozenset[str]:
    """Ids of sandboxes that this process made and did not close, whoever still uses them."""
    provider = provider_of(kind, load_recipe())

    async def listed() -> frozenset[str]:
        try:
            ours = [left for left in await provider.listed() if left.owner.split(":")[1:2] == [str(os.getpid())]]
            return frozenset(left.id for left in ours)
        finally:
            await provider.aclose()

    return asyncio.run(listed())
