"""Every game as an environment of the package `verifiers` (0.4), for its runner and for trainers that use it.

    vf-eval selfplay --env.taskset.preset demo --env.agent.runtime.type subprocess -n 4 -r 2 -m MODEL
        --client.base-url URL --client.api-key-var KEY

The taskset's rows are tasks that no model made (`side = "solver"`), or seeds to propose from; a preset and `sets` say
of which game, as `selfplay run PRESET -s ...` would. Its harness plays a role as a run does, in this process: prompt,
tools and sandbox are the game's, each reply is asked of the address that verifiers gives, and what was said becomes
messages. In verifiers' own runtime nothing runs: `subprocess`, which needs no account, will do. The reward is the
verifier's; where it decides nothing (a fault) scoring fails, and there is no reward. A proposal is worth 1 where it
becomes a task and 0 where it does not: what solvers make of it is not known here.

A role of one turn may be played by any other harness of verifiers too: then its last reply counts. One game is opened
for each configuration, on a thread of its own, and closed when Python ends.

Not covered: plays by token ids (verifiers' training client records those), the warm-up, the curriculum, checks of
proposals that ask the policy itself (search).
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Any, Literal, TypeVar

import requests
import verifiers.v1 as vf
from pydantic import Field

from selfplay import parts
from selfplay.config import load
from selfplay.errors import RunFailed, UserError
from selfplay.events import ignore
from selfplay.games import Game, GivesTools, MakesTasks
from selfplay.project import find_project
from selfplay.rollout import calls, render
from selfplay.tools import Answer, Call, Toolbox
from selfplay.types import Role, Seed, Stop, Task, ToolCall, Trajectory, Turn, Verdict, draw

__all__ = ["GameHarness", "GameTaskset"]
"""What verifiers finds under the id `selfplay`."""

T = TypeVar("T")
Side = Literal["proposer", "solver"]
PATIENCE_SECONDS = 3600.0
"""Longest wait for one reply."""
BROKEN = 3
"""Replies in a row of which nothing could be carried out, after which a play ends, as in a run."""


class GameConfig(vf.TasksetConfig):  # type: ignore[misc]
    """What is played: under `--env.taskset.*`."""

    preset: str = "demo"
    """A preset's name or a file, as `selfplay run` takes it."""
    sets: list[str] = Field(default_factory=list)
    """Overrides, `table.key=value` each; a list, which is what verifiers' command line can read."""
    side: Side = "solver"
    split: Literal["train", "held_out"] = "train"
    """Of the seeds."""
    rows: int = 16
    """Most tasks, or seeds."""


class GameData(vf.TaskData):  # type: ignore[misc]
    """One row."""

    preset: str
    sets: tuple[str, ...]
    side: Side
    subject: dict[str, Any]
    """The task, or the seed, as JSON."""


class GameState(vf.State):  # type: ignore[misc]
    """What the harness hands to the reward."""

    turns: list[dict[str, Any]] = Field(default_factory=list)
    """Each reply: `text`, and its `calls`."""
    product: dict[str, Any] = Field(default_factory=dict)
    stop: str = ""
    """Empty: nobody played here."""


class GameTask(vf.Task[GameData, GameState]):  # type: ignore[misc]
    """Judged by its game."""

    @vf.reward  # type: ignore[untyped-decorator,unused-ignore]
    async def verdict(self, trace: Any) -> float:
        """The reward that the verifier decided.

        Raises:
            RunFailed: it decided nothing.
        """
        found = await Table.of(self.data).away(self._judged(trace))
        trace.info |= {"valid": found.valid, "passed": found.passed, "reason": found.reason, "why": found.why}
        if self.data.side == "proposer" and found.fault is None:
            return float(found.valid)
        if found.reward is None:
            raise RunFailed(f"nothing was decided: {found.why}")
        return found.reward

    async def _judged(self, trace: Any) -> Verdict:
        game, subject = await Table.of(self.data).game(), _subject(self.data)
        played = _trajectory(self.data, subject, trace)
        if isinstance(subject, Task):
            return await game.judge(played, subject)
        return (await game.mint(played, subject)).verdict


class GameTaskset(vf.Taskset[GameTask, GameConfig]):  # type: ignore[misc]
    """Rows of a game."""

    def load(self) -> Sequence[GameTask]:
        """Up to `rows` tasks or seeds, in an order that their ids decide.

        Raises:
            UserError, NotFound, NotReady: as a run would.
        """
        config = self.config
        sets = tuple(config.sets)
        table = Table.at(config.preset, sets)
        return [
            GameTask(
                GameData(
                    id=subject.id,
                    name=f"{subject.game} {subject.id[:8]}",
                    prompt=prompt,
                    preset=config.preset,
                    sets=sets,
                    side=config.side,
                    subject=asdict(subject),
                ),
                config.task,
            )
            for subject, prompt in table.here(_rows(table, config))
        ]


class GameHarness(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc]
    """Plays a role as a run would; runs nothing in verifiers' own runtime."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: Mapping[str, str],
        data: Any,
    ) -> Any:
        """Play once."""
        table = Table.of(data)

        def ask(messages: Sequence[Mapping[str, str]]) -> Mapping[str, Any]:
            answer = requests.post(
                f"{endpoint.rstrip('/')}/chat/completions",
                json={"model": ctx.model, "messages": list(messages)},
                headers={"Authorization": f"Bearer {secret}"},
                timeout=PATIENCE_SECONDS,
            )
            if answer.status_code != 200:
                raise RunFailed(f"the model's address answered {answer.status_code}: {answer.text[:300]}")
            found: Mapping[str, Any] = answer.json()
            return found

        trace.state.turns, trace.state.product, trace.state.stop = await table.away(_played(table, data, ask))
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


class Table:
    """One opened game, on an event loop of its own: verifiers loads rows from inside of its own loop."""

    def __init__(self, preset: str, sets: Sequence[str]) -> None:
        self._config = load(preset, project=find_project(explicit=None), sets=list(sets))
        self._project = find_project(explicit=None)
        self._loop = asyncio.new_event_loop()
        self._opening: asyncio.Task[Game] | None = None
        self._stack = AsyncExitStack()
        threading.Thread(target=self._loop.run_forever, daemon=True, name="selfplay").start()
        atexit.register(lambda: self.here(self._stack.aclose()))

    @staticmethod
    @functools.cache
    def at(preset: str, sets: tuple[str, ...]) -> Table:
        """The game of that configuration, one for each in this process."""
        return Table(preset, sets)

    @classmethod
    def of(cls, data: Any) -> Table:
        """The game of a row."""
        return cls.at(data.preset, data.sets)

    def here(self, job: Coroutine[Any, Any, T]) -> T:
        """Its result, waited for by this thread."""
        return asyncio.run_coroutine_threadsafe(job, self._loop).result()

    async def away(self, job: Coroutine[Any, Any, T]) -> T:
        """Its result, waited for on another loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(job, self._loop))

    async def game(self) -> Game:
        """The game, opened now where it is not; on its loop."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        return await self._opening

    async def _open(self) -> Game:
        players = parts.roles(self._config, self._project)
        game, _ = await parts.game(self._config, self._project, players, observe=ignore, stack=self._stack)
        for role in (game.proposer, game.solver):
            if role.tools is not None and role.tools.harness:
                raise UserError(f"role `{role.name}` is played by a harness of its own", hint="name another role")
        await game.seeds()
        return game


async def _rows(table: Table, config: Any) -> list[tuple[Seed | Task, str]]:
    """Tasks or seeds, with the prompt of each."""
    game = await table.game()
    if config.side == "proposer":
        seeds = [seed for seed in await game.seeds() if seed.split == config.split]
        chosen = sorted(seeds, key=lambda seed: draw("verifiers", seed.id))[: config.rows]
        return [(seed, render(game.proposer, game.proposer_view(seed))) for seed in chosen]
    tasks = (await game.held_out(config.rows))[1] if config.split == "held_out" else await _given(game, config.rows)
    return [(task, render(game.solver, game.solver_view(task))) for task in tasks]


async def _given(game: Game, most: int) -> list[Task]:
    """Tasks of train seeds, each once."""
    if not isinstance(game, MakesTasks):
        raise UserError(
            f"the game `{game.name}` makes no train task without a model", hint="--env.taskset.split held_out"
        )
    found: dict[str, Task] = {}
    seeds = [seed for seed in await game.seeds() if seed.split == "train"]
    for seed in sorted(seeds, key=lambda seed: draw("verifiers", seed.id)):
        if len(found) == most:
            break
        task = await game.given(seed)
        if task is not None:
            found.setdefault(task.id, task)
    return list(found.values())


Ask = Callable[[Sequence[Mapping[str, str]]], Mapping[str, Any]]


async def _played(table: Table, data: Any, ask: Ask) -> tuple[list[dict[str, Any]], dict[str, Any], str]:
    """One play: its turns, what was handed over, and why it ended."""
    game, subject = await table.game(), _subject(data)
    role = game.proposer if data.side == "proposer" else game.solver
    toolbox: Toolbox | None = None
    if role.tools is not None:
        assert isinstance(game, GivesTools), "a role with tools plays a game that gives them"
        toolbox = await game.toolbox(role, subject)
    try:
        play = _Play(role=role, toolbox=toolbox, ask=ask)
        stop = await play.run(data.prompt)
    finally:
        if toolbox is not None:
            await toolbox.aclose()
    return play.turns, play.product, stop.value


class _Play:
    """One role's conversation, by messages."""

    def __init__(self, *, role: Role, toolbox: Toolbox | None, ask: Ask) -> None:
        self.role, self._toolbox, self._ask = role, toolbox, ask
        self.turns: list[dict[str, Any]] = []
        self.product: dict[str, Any] = {}
        self._sampled = self._broken = 0

    async def run(self, prompt: str) -> Stop:
        """Play to the end."""
        tools, limits, box = self.role.tools, self.role.limits, self._toolbox
        said = [{"role": "user", "content": prompt}]
        names = tools.names if tools is not None else ()
        specs = [spec for spec in (box.specs if box is not None else ()) if not names or spec.name in names]
        # note: calls are text here, so a template's own form is written as JSON.
        form = "json" if tools is None or tools.form == "native" else tools.form
        if box is not None:
            system = calls.instructions(form, specs, turns=limits.turns, context=limits.context)
            said.insert(0, {"role": "system", "content": system})
        for number in range(limits.turns):
            reply, ended = await self._reply(said)
            if box is None or not ended:
                return Stop.DONE if ended else Stop.TOKENS
            notice = calls.budget(turns=limits.turns - number - 1, tokens=max(0, limits.output - self._sampled))
            reading = calls.read(reply, form=form, specs=specs)
            if reading.problem is not None:
                self._broken += 1
                answers = calls.refusal(reading.problem, notice=notice)
            else:
                made = [(call, await self._call(box, call)) for call in reading.calls]
                if self.product or not made:
                    return Stop.DONE
                self._broken = self._broken + 1 if all(answer.refused for _, answer in made) else 0
                answers = calls.replies(form, made, known=[spec.name for spec in specs], notice=notice)
            if self._broken == BROKEN:
                return Stop.MALFORMED
            if self._sampled >= limits.output:
                return Stop.OUTPUT
            said += [{"role": "assistant", "content": reply}]
            said += [{"role": "user", "content": answer.text} for answer in answers]
        return Stop.TURNS

    async def _reply(self, said: Sequence[Mapping[str, str]]) -> tuple[str, bool]:
        """The next reply, and whether the model ended it by itself."""
        found = await asyncio.to_thread(self._ask, said)
        (choice,) = found["choices"]
        text = str(choice["message"].get("content") or "")
        self._sampled += int((found.get("usage") or {}).get("completion_tokens") or 0)
        self.turns.append({"text": text, "calls": []})
        return text, choice.get("finish_reason") != "length"

    async def _call(self, box: Toolbox, call: Call) -> Answer:
        if self.product:
            return Answer(text="")
        answer = await box.call(call)
        self.product = dict(answer.product or {})
        made = ToolCall(
            name=call.name,
            arguments=call.arguments,
            result=answer.text,
            exit_code=answer.exit_code,
            seconds=answer.seconds,
        )
        self.turns[-1]["calls"].append(asdict(made))
        return answer


def _subject(data: Any) -> Seed | Task:
    return Seed(**data.subject) if data.side == "proposer" else Task(**data.subject)


def _trajectory(data: Any, subject: Seed | Task, trace: Any) -> Trajectory:
    """What was played, for the judge; of another harness the last reply."""
    state: GameState = trace.state
    turns, stop = state.turns, Stop(state.stop or "done")
    if not state.stop:
        said = [one for branch in trace.branches[-1:] for one in branch.messages if one.role == "assistant"]
        turns = [{"text": str(one.content or ""), "calls": []} for one in said]
    return Trajectory(
        id=f"{data.id}/{trace.id}",
        step=0,
        stage="propose" if isinstance(subject, Seed) else "attempt",
        role=data.side,
        subject_id=subject.id,
        index=0,
        turns=tuple(
            Turn(
                speaker="policy",
                token_ids=(),
                text=one["text"],
                calls=tuple(ToolCall(**call) for call in one["calls"]),
            )
            for one in turns
        ),
        stop=stop,
        policy_version=(0, 0),
        product=state.product,
    )
