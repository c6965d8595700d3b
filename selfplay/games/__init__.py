"""What is played: `code`, `search`, `echo`. A game is the only code with domain knowledge.

A game turns seeds into what the proposer sees, proposals into tasks (`mint`), tasks into what the
solver sees, attempts into verdicts (`judge`), and a task's verdicts into the proposal's worth
(`grade`). It is pure but for the sandbox it verifies in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from selfplay.types import Example, Role, Seed, Task, Trajectory, Verdict, record


@record
class Minted:
    """What became of a proposal: a verdict (stage `mint`) and, where it is valid, the task."""

    verdict: Verdict
    task: Task | None


class Game(Protocol):
    """Two roles and the rules between them."""

    @property
    def name(self) -> str: ...

    @property
    def proposer(self) -> Role: ...

    @property
    def solver(self) -> Role: ...

    async def seeds(self) -> Sequence[Seed]:
        """Every seed, train and held-out, in a fixed order; cached by digest where it costs time.

        Raises:
            UserError: the source cannot be played (no tests, failing suite, no such package).
        """
        ...

    def proposer_view(self, seed: Seed) -> Mapping[str, object]:
        """The variables of the proposer's prompt."""
        ...

    def solver_view(self, task: Task) -> Mapping[str, object]:
        """The variables of the solver's prompt."""
        ...

    async def mint(self, proposal: Trajectory, seed: Seed) -> Minted:
        """Is the proposal a task? Decided by the game's checks; a fault decides nothing (reward None)."""
        ...

    async def judge(self, attempt: Trajectory, task: Task) -> Verdict:
        """Is the attempt right? Decided by the verifier; a fault decides nothing (reward None)."""
        ...

    def grade(self, proposal: Trajectory, minted: Verdict, judged: Sequence[Verdict]) -> Verdict:
        """What the proposal is worth, from its mint verdict and its task's first solver group."""
        ...

    def examples(self, *, seed: int, first: int, count: int) -> Sequence[Example]:
        """Warm-up examples `first` to `first + count - 1`: a pure function of its arguments, train seeds only."""
        ...

    async def dev(self) -> tuple[Sequence[Seed], Sequence[Task]]:
        """The warm-up's dev set: seeds to propose from, tasks to solve, never trained on; empty where there is none."""
        ...

    async def aclose(self) -> None:
        """Free sandboxes and files; idempotent."""
        ...
