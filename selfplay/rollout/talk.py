"""A play with tools: the loop over turns, one growing sequence of ids.

    opening -> reply -> tools -> answers -> reply -> ... -> something is handed over, or a limit is reached

Every reply is sampled behind exactly the ids that stand in the record before it. Only sampled ids are the policy's
turns, so only they carry loss. A place in the sampler is held while a reply is sampled and at no other time: a slow
tool delays nobody else. Each answer ends with what is left of the budget.

A play ends with DONE where a tool handed something over, or where a reply asks for nothing and its form of calls takes
that for the last one; with MALFORMED after `BROKEN` replies in a row of which nothing could be carried out; at a limit
of the role, with CONTEXT before the first reply where the prompt leaves no room for one; or with FAULT where the
machine failed, which says nothing about the policy.

Not here: the single-turn form (`play`), how calls and turns are written (`calls`, `renderers`), who opens which tools
(`games`), tries after a fault (`stages`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from selfplay.errors import UserError
from selfplay.policy import Completion, Request
from selfplay.retrieval import RetrievalFailed
from selfplay.rollout import calls
from selfplay.rollout.play import Play, Player, record_of, render, request_of
from selfplay.rollout.renderers import Message, Renderer, renderer_of
from selfplay.sandbox import SandboxInfraError
from selfplay.tools import Answer, Call, Toolbox, ToolSpec
from selfplay.types import Fault, Limits, Role, Stop, ToolCall, Tools, Trajectory, Turn

BROKEN = 3
"""Replies in a row of which nothing could be carried out, after which a play ends."""

T = TypeVar("T")

Place = Callable[[], AbstractAsyncContextManager[None]]
"""Waits for a place in the sampler and holds it."""


async def talk(
    player: Player,
    play: Play,
    view: Mapping[str, object],
    *,
    open_tools: Callable[[], Awaitable[Toolbox]],
    sampling: Place,
    calling: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Trajectory:
    """Play `play.role`, which has tools, once on the subject that `view` describes.

    `open_tools` makes the episode's tools, which are closed before this returns; `calling` is entered around each
    call. What `sampling` raises ends the play without a record.

    Raises:
        UserError: the prompt does not render, or the role names tools or a form that there are not.
    """
    started = time.monotonic()
    whole = _Talk(player=player, play=play, sampling=sampling, calling=calling)
    stop, fault = Stop.FAULT, None
    try:
        toolbox = await open_tools()
        try:
            stop = await whole.run(toolbox, view)
        finally:
            await toolbox.aclose()
    except SandboxInfraError as error:
        stop, fault = Stop.FAULT, Fault(culprit="sandbox", where="tools", message=error.message, detail=error.hint)
    except RetrievalFailed as error:
        stop, fault = Stop.FAULT, Fault(culprit="machine", where="retrieval", message=error.message, detail=error.hint)
    return record_of(
        play,
        player.config_digest,
        turns=tuple(whole.turns),
        stop=stop,
        policy_version=(min(whole.versions, default=0), max(whole.versions, default=0)),
        seconds=time.monotonic() - started,
        product=whole.product,
        fault=fault,
    )


class _OutOfTime(Exception):
    """The play has used up its seconds."""


@dataclass(slots=True, kw_only=True)
class _Talk:
    """One play as far as it has come."""

    player: Player
    play: Play
    sampling: Place
    calling: Callable[[], AbstractContextManager[None]]
    turns: list[Turn] = field(default_factory=list)
    ids: tuple[int, ...] = ()
    """Of all turns."""
    versions: list[int] = field(default_factory=list)
    """Of the weights that sampled."""
    product: Mapping[str, Any] | None = None
    sampled: int = 0
    spent: float = 0.0
    """Seconds in sampling and tools."""
    broken: int = 0
    """Replies in a row of which nothing could be carried out."""

    @property
    def role(self) -> Role:
        return self.play.role

    @property
    def limits(self) -> Limits:
        return self.play.role.limits

    @property
    def tools(self) -> Tools:
        assert self.play.role.tools is not None, "a role without tools plays its single turn"
        return self.play.role.tools

    @property
    def context(self) -> int:
        """Tokens that the whole may have."""
        return min(self.limits.context, self.player.policy.capabilities.max_context)

    @property
    def left(self) -> int:
        """Tokens that may still be sampled."""
        return min(self.context - len(self.ids), self.limits.output - self.sampled)

    async def run(self, toolbox: Toolbox, view: Mapping[str, object]) -> Stop:
        """Play to the end."""
        specs = _offered(self.role, self.tools, toolbox)
        renderer = renderer_of(self.role, self.player.policy.tokenizer)
        if not self._open(renderer, specs, view):
            return Stop.CONTEXT
        try:
            for number in range(self.limits.turns):
                stop = await self._reply(number)
                if stop is not Stop.DONE:
                    return stop
                messages = await self._answers(toolbox, specs, turns=self.limits.turns - number - 1)
                if messages is None:
                    return Stop.DONE
                if self.broken == BROKEN:
                    return Stop.MALFORMED
                if number + 1 < self.limits.turns and not self._go_on(renderer, messages):
                    return Stop.CONTEXT
        except _OutOfTime:
            return Stop.SECONDS
        return Stop.TURNS

    def _open(self, renderer: Renderer, specs: tuple[ToolSpec, ...], view: Mapping[str, object]) -> bool:
        """Append the prompt; False where it leaves no room for a reply."""
        user = render(self.role, view)
        system = calls.instructions(self.tools.form, specs, turns=self.limits.turns, context=self.context)
        shown = specs if self.tools.form == "native" else ()
        ids = renderer.opening(system=system, user=user, tools=shown)
        self._append(Turn(speaker="prompt", token_ids=ids, text=f"{system}\n\n{user}" if system else user))
        return len(ids) < self.context

    async def _reply(self, number: int) -> Stop:
        """Sample a reply behind all that stands; DONE where the policy ended it."""
        if self.left <= 0:
            return self._full()
        request = request_of(self.play, self.ids, seed=self.player.seed, turn=number, room=self.left)
        async with self.sampling():
            completion = await self._timed(lambda: self.player.policy.sample(request))
        self.versions += completion.policy_version
        self.sampled += len(completion.token_ids)
        self._append(
            Turn(
                speaker="policy",
                token_ids=completion.token_ids,
                logprobs=completion.logprobs,
                text=self.player.policy.tokenizer.decode(completion.token_ids),
            )
        )
        return self._stop_of(completion, request)

    def _stop_of(self, completion: Completion, request: Request) -> Stop:
        """Which limit cut a reply, if one did: the sampler knows only one for all."""
        own = min(self.role.sampling.max_tokens, self.limits.tokens)
        if completion.stop is Stop.TOKENS and request.sampling.max_tokens < own:
            return self._full()
        return completion.stop

    def _full(self) -> Stop:
        return Stop.OUTPUT if self.sampled >= self.limits.output else Stop.CONTEXT

    async def _answers(self, toolbox: Toolbox, specs: tuple[ToolSpec, ...], *, turns: int) -> _Said | None:
        """Carry the last reply's calls out; None where the play ends with it, else what to say, given the tokens left.

        Calls after one that hands something over are not carried out.
        """
        reading = calls.read(self.turns[-1].text, form=self.tools.form, specs=specs)
        problem = reading.problem
        if problem is not None:
            self.broken += 1
            return lambda tokens: calls.refusal(problem, notice=calls.budget(turns=turns, tokens=tokens))
        answered: list[tuple[Call, Answer]] = []
        for call in reading.calls:
            answer = await self._call(toolbox, call)
            answered.append((call, answer))
            if answer.product is not None:
                self.product = answer.product
                return None
        if not answered:
            return None
        self.broken = self.broken + 1 if all(answer.refused for _, answer in answered) else 0
        known, form = [spec.name for spec in specs], self.tools.form
        return lambda tokens: calls.replies(
            form, answered, known=known, notice=calls.budget(turns=turns, tokens=tokens)
        )

    async def _call(self, toolbox: Toolbox, call: Call) -> Answer:
        began = time.monotonic()
        if self.tools.names and call.name not in self.tools.names:
            answer = Answer(text=f"there is no such tool; there are: {', '.join(self.tools.names)}", refused=True)
        else:
            try:
                with self.calling():
                    answer = await self._timed(lambda: toolbox.call(call))
            except _OutOfTime:
                self._record(call, Answer(text="(the time of the play ran out)", seconds=time.monotonic() - began))
                raise
        self._record(call, answer)
        return answer

    def _record(self, call: Call, answer: Answer) -> None:
        made = ToolCall(
            name=call.name,
            arguments=call.arguments,
            result=answer.text,
            exit_code=answer.exit_code,
            seconds=answer.seconds,
        )
        self.turns[-1] = replace(self.turns[-1], calls=(*self.turns[-1].calls, made))

    def _go_on(self, renderer: Renderer, said: _Said) -> bool:
        """Append what is said to the model; False where it does not fit."""
        reply = self.turns[-1].token_ids
        # note: how much is left depends on how long the message is that says it, which a few digits do not change.
        ids = renderer.onward(reply, said(self.left))
        messages = said(max(0, self.left - len(ids)))
        ids = renderer.onward(reply, messages)
        if len(self.ids) + len(ids) >= self.context:
            return False
        self._append(Turn(speaker="tool", token_ids=ids, text="\n".join(message.text for message in messages)))
        return True

    def _append(self, turn: Turn) -> None:
        longer = self.ids + turn.token_ids
        assert longer[: len(self.ids)] == self.ids, "a conversation only grows"
        self.ids = longer
        self.turns.append(turn)

    async def _timed(self, job: Callable[[], Awaitable[T]]) -> T:
        """The result of `job`, within the seconds that are left.

        Raises:
            _OutOfTime: it took longer.
        """
        left = self.limits.seconds - self.spent
        if left <= 0:
            raise _OutOfTime
        began = time.monotonic()
        try:
            async with asyncio.timeout(left) as timer:
                return await job()
        except TimeoutError:
            if not timer.expired():
                raise
            raise _OutOfTime from None
        finally:
            self.spent += time.monotonic() - began


_Said = Callable[[int], list[Message]]
"""What is said to the model, given the tokens that are left."""


def _offered(role: Role, tools: Tools, toolbox: Toolbox) -> tuple[ToolSpec, ...]:
    """The tools of the role, in its order; all where it names none."""
    specs = {spec.name: spec for spec in toolbox.specs}
    for name in tools.names:
        if name not in specs:
            raise UserError(
                f"role `{role.name}` uses the tool `{name}`, which the game `{role.game}` does not give",
                hint=f"its tools are: {', '.join(specs)}; the file is {role.origin}/role.toml",
            )
    return tuple(specs[name] for name in tools.names) or tuple(specs.values())
