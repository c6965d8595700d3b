"""A person in the seat of a role: the same game, prompt, tools, sandbox and verdict, and no model.

What is covered: opening the game of a configuration, finding what is played on (a train seed; a task of a run, or one
that was made without a model), carrying out calls, and the decision about what was said or handed over. What is held
out is refused: a person who has seen it could tell.

What is not covered: what is typed and printed (`cli.play`), the limits of the role, which hold for models. Nothing is
written to a ledger.

Example:
    >>> with Seat.open(config, project, side="solver") as seat:  # doctest: +SKIP
    ...     print(seat.prompt(seat.given()))
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from selfplay import parts
from selfplay.config import Config
from selfplay.errors import Ambiguous, NotFound, UserError
from selfplay.events import Observer
from selfplay.games import Game, GivesTools, MakesTasks, ProposesAlone, abilities_of
from selfplay.ledger import Ledger
from selfplay.project import Project
from selfplay.rollout import render
from selfplay.tools import Answer, Call, Toolbox
from selfplay.types import Role, Seed, Side, Stop, Task, ToolCall, Trajectory, Turn, Verdict, draw

T = TypeVar("T")
Subject = Seed | Task
TRIED = 40
"""Seeds of which a task is tried to be made."""


class Seat:
    """One side of an opened game; a context manager that closes it."""

    def __init__(self, game: Game, role: Role, *, sandbox: str, runner: asyncio.Runner, stack: AsyncExitStack) -> None:
        self.game = game
        self.role = role
        self.sandbox = sandbox
        """Its name, in words."""
        self._runner = runner
        self._stack = stack
        self._seeds: Sequence[Seed] = ()
        self._tools: Toolbox | None = None
        self._turns: list[Turn] = []
        self._product: Mapping[str, Any] = {}

    @classmethod
    def open(cls, config: Config, project: Project, *, side: Side, observe: Observer) -> Self:
        """The seat of `side` in the game that is configured.

        Raises:
            UserError, NotFound, NotReady: as a run would.
        """
        players = parts.roles(config, project)
        role = players.proposer if side == "proposer" else players.solver
        if role.tools is not None and role.tools.harness:
            raise UserError(
                f"role `{role.name}` is played by a harness, which has no tools for a person",
                hint="take another: -s roles.solver=tree_repairer",
            )
        runner, stack = asyncio.Runner(), AsyncExitStack()

        async def opened() -> tuple[Game, str, Sequence[Seed]]:
            game, sandbox = await parts.game(config, project, players, observe=observe, stack=stack)
            return game, sandbox, await game.seeds()

        try:
            game, sandbox, seeds = runner.run(opened())
        except BaseException:
            runner.run(stack.aclose())
            runner.close()
            raise
        seat = cls(game, role, sandbox=sandbox, runner=runner, stack=stack)
        seat._seeds = seeds
        return seat

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if self._tools is not None:
                self._do(self._tools.aclose)
            self._do(self._stack.aclose)
        finally:
            self._runner.close()

    def seed(self, wanted: str | None, *, key: int = 0) -> Seed:
        """The train seed whose id begins with `wanted`, or whose source ends with it; where none is named, a drawn one.

        Raises:
            NotFound, Ambiguous, UserError: there is none, there are several, or it is held out.
        """
        if wanted is None:
            return self._drawn(key)[0]
        found = [seed for seed in self._seeds if seed.id.startswith(wanted) or seed.source.endswith(wanted)]
        if len(found) > 1:
            some = ", ".join(seed.source for seed in found[:4])
            raise Ambiguous(f"`{wanted}` means {len(found)} seeds: {some}", hint="give more of the name or the id")
        if not found:
            raise NotFound(f"no seed `{wanted}`", hint=f"one of them: {self._drawn(key)[0].source}")
        return _train(found[0], found[0].source)

    def given(self, wanted: str | None = None, *, key: int = 0) -> Task:
        """A task that no model made: of the seed `wanted`, else of the first drawn one that has one.

        Raises:
            UserError: there is none, or the game makes none.
            NotFound, Ambiguous: as `seed`.
        """
        if not isinstance(self.game, MakesTasks):
            raise UserError(
                f"the game `{self.game.name}` makes no task without a model",
                hint="take one of a run: --run RUN --task ID",
            )
        for seed in [self.seed(wanted)] if wanted is not None else self._drawn(key)[:TRIED]:
            task = self._run(self.game.given(seed))
            if task is not None:
                return task
        raise UserError(
            f"no task can be made without a model of {f'seed `{wanted}`' if wanted else 'these seeds'}",
            hint="take another seed, or one of a run: --run RUN --task ID",
        )

    def prompt(self, subject: Subject, *, strategy: str | None = None) -> str:
        """What a model in this seat would read.

        Raises:
            UserError: the game has no such strategy, or it needs what the source has not.
        """
        if isinstance(subject, Task):
            return render(self.role, self.game.solver_view(subject))
        known = abilities_of(self.game.name, tools=self.role.tools is not None).strategies
        if strategy is not None and strategy not in known:
            raise UserError(
                f"game `{self.game.name}` has no strategy `{strategy}` in this form",
                hint=f"its strategies: {', '.join(known) or 'none'}",
            )
        terms = {"strategy": strategy} if strategy else {}
        alone = isinstance(self.game, ProposesAlone) and self.game.handed_over(subject, step=0, index=0, terms=terms)
        if alone:
            raise UserError(f"for strategy `{strategy}` nobody is asked", hint="take another: --strategy removal")
        return render(self.role, self.game.proposer_view(subject, terms=terms))

    def call(self, call: Call, subject: Subject) -> Answer:
        """Carry a call out, as for a model; the tools are opened at the first.

        Raises:
            SandboxInfraError: the machine failed.
        """
        if self._tools is None:
            assert isinstance(self.game, GivesTools), "a role with tools plays a game that gives them"
            self._tools = self._run(self.game.toolbox(self.role, subject))
        answer = self._run(self._tools.call(call))
        made = ToolCall(
            name=call.name,
            arguments=call.arguments,
            result=answer.text,
            exit_code=answer.exit_code,
            seconds=answer.seconds,
        )
        self._turns.append(Turn(speaker="policy", token_ids=(), calls=(made,)))
        if answer.product is not None:
            self._product = answer.product
        return answer

    def decide(self, subject: Subject, *, reply: str = "") -> tuple[Trajectory, Verdict, Task | None]:
        """What was played, what is decided about it, and the task that came of a proposal."""
        turns = self._turns or [Turn(speaker="policy", token_ids=(), text=reply)]
        played = Trajectory(
            id="seat",
            step=0,
            stage="propose" if isinstance(subject, Seed) else "attempt",
            role=self.role.name,
            subject_id=subject.id,
            index=0,
            turns=tuple(turns),
            stop=Stop.DONE,
            policy_version=(0, 0),
            product=self._product,
        )
        if isinstance(subject, Task):
            return played, self._run(self.game.judge(played, subject)), None
        minted = self._run(self.game.mint(played, subject))
        return played, minted.verdict, minted.task

    def _drawn(self, key: int) -> list[Seed]:
        """The train seeds in the order of a draw."""
        train = [seed for seed in self._seeds if seed.split == "train"]
        if not train:
            raise UserError("there is no train seed to play on", hint="hold fewer out: -s game.held_out=0.3")
        return sorted(train, key=lambda seed: draw("seat", key, seed.id))

    def _run(self, job: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await job

        return self._runner.run(awaited())

    def _do(self, job: Callable[[], Awaitable[None]]) -> None:
        self._run(job())


def recorded(folder: Path, task_id: str) -> Task:
    """The task of the run in `folder` with that id; its ledger is only read.

    Raises:
        NotFound: there is none.
        UserError: it is held out.
    """
    with Ledger.read(folder) as reader:
        task = reader.task(task_id)
    if task is None:
        raise NotFound(f"no task {task_id} in run `{folder.name}`", hint=f"its tasks: selfplay inspect {folder.name}")
    return _train(task, f"task {task.id[:8]}")


S = TypeVar("S", Seed, Task)


def _train(subject: S, words: str) -> S:
    """`subject`, if it may be played by somebody who remembers."""
    if subject.split != "train":
        raise UserError(f"{words} is held out for examinations", hint="name another, or none: one is drawn")
    return subject
