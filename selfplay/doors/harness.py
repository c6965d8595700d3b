"""A play in which a program of somebody else, a harness, is the agent and the policy only replies.

    the harness starts in the work tree -> asks -> reply -> asks -> ... -> it ends, what it changed is handed over

A role with `tools.harness` is played this way: its command runs in the play's sandbox, where it finds an address that
speaks OpenAI's chat completions (`OPENAI_BASE_URL`). What it asks goes through a `Proxy`, so that the play is recorded
by token ids, judged, stored and learnt from like any other. The harness is not trusted: what the policy has it do, it
does in the sandbox.

The trajectory is the branch of the conversation with the most replies (of equals the latest). Where a harness begins
others beside it, titles and summaries say, their token ids are kept in the product as `beside`, and nothing learns from
them. Before the first reply nothing that goes wrong is the policy's doing: it is a fault of the role. After it, a
request that cannot be answered is told so, as any server would; a harness that dies leaves what it changed.

A play ends with DONE where the harness ended; with MALFORMED where the relay in the sandbox was killed or `BROKEN`
requests in a row could not be answered; at a limit of the role; or with FAULT. Not here: conversations (`proxy`), what
runs in the sandbox (`tools.harness`, `tools.relay`), plays whose calls the engine carries out (`rollout.talk`).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

from selfplay.doors.proxy import Proxy, Reply, TooLong, turns_of
from selfplay.doors.web import COMPLETIONS, completion_of, object_of, refusal_of, stream_of
from selfplay.errors import UserError
from selfplay.rollout import Play, Player, record_of, render
from selfplay.rollout.talk import Place
from selfplay.sandbox import ChannelLost, SandboxInfraError
from selfplay.tools import Answer, Call, Toolbox
from selfplay.tools.harness import ANSWER, START, HarnessBench
from selfplay.types import Fault, Stop, Trajectory

MODEL = "selfplay"
"""What the model is called."""
TASK, PYTHON = "{task}", "{python}"
"""Stand in a harness's command for the rendered prompt and the sandbox's interpreter."""
BROKEN = 20
"""Requests in a row that could not be answered, after which a play ends."""
TOLD = 4000
"""Most characters of a sentence of the sandbox's that a fault keeps."""

T = TypeVar("T")


async def harnessed(
    player: Player,
    play: Play,
    view: Mapping[str, object],
    *,
    open_tools: Callable[[], Awaitable[Toolbox]],
    sampling: Place,
    calling: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Trajectory:
    """Play `play.role`, which has a harness, once on the subject that `view` describes; parameters as `rollout.talk`.

    Raises:
        UserError: the prompt does not render, or the game gives no sandbox to a harness.
    """
    started = time.monotonic()
    whole = _Play(player=player, play=play, sampling=sampling, calling=calling)
    stop, fault = Stop.FAULT, None
    try:
        toolbox = await open_tools()
        try:
            stop, fault = await whole.run(toolbox, render(play.role, view))
        finally:
            await toolbox.aclose()
    except SandboxInfraError as error:
        stop, fault = Stop.FAULT, Fault(culprit="sandbox", where="harness", message=error.message, detail=error.hint)
    rows = whole.main
    return record_of(
        play,
        player.config_digest,
        turns=turns_of(rows),
        stop=stop,
        policy_version=(
            min((row["policy_version"][0] for row in rows), default=0),
            max((row["policy_version"][1] for row in rows), default=0),
        ),
        seconds=time.monotonic() - started,
        product=whole.product_with_others(),
        fault=fault,
    )


class _Over(Exception):
    """The play ends here."""

    def __init__(self, stop: Stop, fault: Fault | None = None) -> None:
        self.stop, self.fault = stop, fault


@dataclass(slots=True, kw_only=True)
class _Play:
    """One play as far as it has come."""

    player: Player
    play: Play
    sampling: Place
    calling: Callable[[], AbstractContextManager[None]]
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    """Every reply, as the proxy notes it."""
    product: Mapping[str, Any] | None = None
    spent: float = 0.0
    """Seconds in sampling and in the sandbox."""
    broken: int = 0

    @property
    def main(self) -> list[Mapping[str, Any]]:
        """The rows of the branch with the most replies, of equals the latest."""
        numbers = [row["branch"] for row in self.rows]
        if not numbers:
            return []
        main = max(set(numbers), key=lambda number: (numbers.count(number), number))
        return [row for row in self.rows if row["branch"] == main]

    def product_with_others(self) -> Mapping[str, Any] | None:
        """What was handed over, and what was said beside the trajectory."""
        main = self.main
        kept = ("branch", "shown_ids", "token_ids", "logprobs")
        others = [{name: row[name] for name in kept} for row in self.rows if row not in main]
        return {**(self.product or {}), "beside": others} if others else self.product

    async def run(self, toolbox: Toolbox, task: str) -> tuple[Stop, Fault | None]:
        """Play to the end: why it ended, and what is to blame where the machine or the role is."""
        role, limits = self.play.role, self.play.role.limits
        assert role.tools is not None, "a role with a harness has a table [tools]"
        proxy = Proxy(
            self.player.policy,
            rendering="plain" if role.template == "plain" and role.tools.renderer == "auto" else role.tools.renderer,
            temperature=role.sampling.temperature,
            max_tokens=min(role.sampling.max_tokens, limits.tokens),
            note=self.rows.append,
            seed=self.player.seed,
            context=limits.context,
            stop=role.sampling.stop,
            role=role.name,
        )
        argv = [word.replace(TASK, task).replace(PYTHON, _python(toolbox)) for word in role.tools.harness]
        try:
            said = await self._call(toolbox, Call(name=START, arguments={"argv": argv}))
            while said.product is None:
                answer = await self._answer(proxy, said.text)
                said = await self._call(toolbox, Call(name=ANSWER, arguments=answer))
        except _Over as over:
            if self.rows or over.fault is not None:
                return over.stop, over.fault
            return Stop.FAULT, _blame(f"the harness was at its limit ({over.stop}) before the first reply", "")
        except ChannelLost as error:
            return (Stop.MALFORMED, None) if self.rows else (Stop.FAULT, _blame(error.message, ""))
        if not self.rows:
            why = f"the harness ended with exit code {said.exit_code} before it asked for anything"
            return Stop.FAULT, _blame(why, said.text)
        self.product = {**said.product, "exit_code": said.exit_code}
        return Stop.DONE, None

    async def _call(self, toolbox: Toolbox, call: Call) -> Answer:
        with self.calling():
            return await self._timed(lambda: toolbox.call(call))

    async def _answer(self, proxy: Proxy, line: str) -> dict[str, Any]:
        """What a request is answered with: `status`, `type` and `body`."""
        try:
            request = object_of(line)
            path = str(request.get("path")).partition("?")[0].rstrip("/")
            if path == "/v1/models":
                return _json(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
            if path != COMPLETIONS or request.get("method") != "POST":
                raise UserError(f"nothing is at {path}; there are /v1/models and {COMPLETIONS}")
            body = object_of(str(request.get("body")))
            reply = await self._reply(proxy, body)
        except TooLong:
            raise _Over(Stop.CONTEXT) from None
        except UserError as error:
            if not self.rows:
                raise _Over(Stop.FAULT, _blame(error.message, error.hint)) from error
            self.broken += 1
            if self.broken == BROKEN:
                raise _Over(Stop.MALFORMED) from error
            return _json(400, refusal_of(error.message))
        self.broken = 0
        answer = completion_of(reply, model=MODEL)
        if body.get("stream"):
            return {"status": 200, "type": "text/event-stream", "body": stream_of(answer)}
        return _json(200, answer)

    async def _reply(self, proxy: Proxy, body: Mapping[str, Any]) -> Reply:
        """A reply within the limits of the role.

        Raises:
            _Over: there is none.
        """
        limits = self.play.role.limits
        if len(self.rows) >= limits.turns:
            raise _Over(Stop.TURNS)
        left = limits.output - sum(len(row["token_ids"]) for row in self.rows)
        if left <= 0:
            raise _Over(Stop.OUTPUT)
        asked = body.get("max_completion_tokens") or body.get("max_tokens")
        most = min(asked, left) if isinstance(asked, int) and asked > 0 else asked or left
        place = self.play
        episode = "/".join(
            map(str, (place.step, place.stage, place.role.name, place.subject_id, place.index, place.attempt))
        )
        async with self.sampling():
            return await self._timed(lambda: proxy.reply(episode, {**body, "max_completion_tokens": most}))

    async def _timed(self, job: Callable[[], Awaitable[T]]) -> T:
        """The result of `job`, within the seconds that are left.

        Raises:
            _Over: it took longer.
        """
        left = self.play.role.limits.seconds - self.spent
        if left <= 0:
            raise _Over(Stop.SECONDS)
        began = time.monotonic()
        try:
            async with asyncio.timeout(left) as timer:
                return await job()
        except TimeoutError:
            if not timer.expired():
                raise
            raise _Over(Stop.SECONDS) from None
        finally:
            self.spent += time.monotonic() - began


def _python(toolbox: Toolbox) -> str:
    """The sandbox's interpreter.

    Raises:
        UserError: the tools are others.
    """
    inner = getattr(toolbox, "inner", toolbox)
    if not isinstance(inner, HarnessBench):
        raise UserError("this game gives no sandbox to a harness", hint="take `harness` out of the role's [tools]")
    return inner.python


def _blame(why: str, detail: str) -> Fault:
    return Fault(culprit="role", where="harness", message=_written(why), detail=_written(detail))


def _written(text: str) -> str:
    """As much of the sandbox's words as the ledger is to keep, which takes no half characters."""
    return text[-TOLD:].encode(errors="replace").decode()


def _json(status: int, value: Any) -> dict[str, Any]:
    return {"status": status, "type": "application/json", "body": json.dumps(value)}
