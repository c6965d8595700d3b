"""Programs that are to be written whole: the solver sees the beginning of a file and goes on with it.

The reply is a block of code, a whole function, or what follows the prompt. It becomes the file, and the task's tests
decide in a fresh sandbox, with the canaries and looks that any repair gets (`games.code.verdict`).

Not here: which programs (`external`), playing them (`measure`).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from selfplay.games import NO_TERMS, Minted, Terms
from selfplay.games.code import decisions
from selfplay.games.code.bugs import Reason
from selfplay.games.code.game import CodeGame
from selfplay.games.code.verdict import decide
from selfplay.games.rewards import ALONE, Beside, PlusMinusOne
from selfplay.sandbox import SandboxInfraError
from selfplay.types import Example, Limits, Role, Sampling, Seed, Task, Trajectory, Verdict

TOKENS = 384
"""Sampled tokens of one program."""
PROGRAM = "program"
"""Of a task's payload: the beginning of the file that is to be written."""
_BLOCK = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
_ENDS = re.compile(r"\n(?=(?:class |if __name__|print\(|assert |#|@))")


def is_written(tasks: Sequence[Task]) -> bool:
    """Are these programs to be written?"""
    return bool(tasks) and all(PROGRAM in task.payload for task in tasks)


def role() -> Role:
    """Who writes: the prompt is the beginning of the file and nothing else."""
    return Role(
        name="writer",
        game="code",
        side="solver",
        prompt="{{ program }}",
        limits=Limits(turns=1, tokens=TOKENS),
        sampling=Sampling(temperature=1.0, max_tokens=TOKENS),
    )


def program_of(reply: str, *, prompt: str, entry: str) -> str:
    """The whole file that a reply means."""
    block = _BLOCK.search(reply)
    text = block[1] if block else reply
    if re.search(rf"^(async )?def {re.escape(entry)}\b", text, re.MULTILINE):
        # note: what stands before the prompt's own function, imports and helpers, is still needed.
        before = re.split(rf"^(?:async )?def {re.escape(entry)}\b", prompt, maxsplit=1, flags=re.MULTILINE)[0]
        return f"{before}{text.rstrip()}\n"
    return f"{prompt}{_ENDS.split(text, maxsplit=1)[0].rstrip()}\n"


class Written:
    """The code game, asked for whole programs; nobody proposes any."""

    def __init__(self, game: CodeGame) -> None:
        self._game = game
        self.name = game.name
        self.proposer, self.solver = game.proposer, game.solver

    async def seeds(self) -> Sequence[Seed]:
        """The functions of the right programs."""
        return await self._game.seeds()

    def proposer_view(self, seed: Seed, *, terms: Terms = NO_TERMS) -> Mapping[str, object]:
        """As in the code game."""
        return self._game.proposer_view(seed, terms=terms)

    async def mint(self, proposal: Trajectory, seed: Seed) -> Minted:
        """As in the code game."""
        return await self._game.mint(proposal, seed)

    def solver_view(self, task: Task, *, terms: Terms = NO_TERMS) -> Mapping[str, object]:
        """`program`: the beginning of the file."""
        return {"program": task.payload[PROGRAM]}

    async def judge(self, attempt: Trajectory, task: Task) -> Verdict:
        """Passed where the file that the reply means passes the task's tests, and the report can be believed."""
        payload: Mapping[str, Any] = task.payload
        worth = PlusMinusOne()
        text = program_of(attempt.reply, prompt=payload[PROGRAM], entry=payload["qualname"])
        evidence = {"program": text}
        try:
            # note: a reply that reached its limit may still hold a whole program before what follows it.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compile(text, payload["path"], "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            why = f"the program does not compile: {error}"[:200]
            return decisions.judged(attempt, False, Reason.DOES_NOT_COMPILE, why, evidence, worth=worth, valid=False)
        opened = await self._game.opened()
        budget = opened.budget(payload["tests"])
        try:
            found = await decide(opened.verifier, payload, files={payload["path"]: text.encode()}, budget=budget)
        except SandboxInfraError as error:
            return decisions.undecided(attempt, "judge", error)
        failing = [test for test, _ in payload["failing"]]
        return decisions.decided(attempt, found, failing=failing, path=payload["path"], evidence=evidence, worth=worth)

    async def mutate(self, parent: Task, attempt: Trajectory, *, step: int) -> Minted:
        """As in the code game."""
        return await self._game.mutate(parent, attempt, step=step)

    def grade(
        self, proposal: Trajectory, minted: Verdict, judged: Sequence[Verdict], *, beside: Beside = ALONE
    ) -> Verdict:
        """As in the code game."""
        return self._game.grade(proposal, minted, judged, beside=beside)

    def examples(self, *, seed: int, first: int, count: int) -> Sequence[Example]:
        """None: nothing is learnt from these programs."""
        return ()

    async def dev(self) -> tuple[Sequence[Seed], Sequence[Task]]:
        """Empty."""
        return (), ()

    async def held_out(self, count: int) -> tuple[Sequence[Seed], Sequence[Task]]:
        """As in the code game."""
        return await self._game.held_out(count)

    async def aclose(self) -> None:
        """Close every sandbox."""
        await self._game.aclose()
