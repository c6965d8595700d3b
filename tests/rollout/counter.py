"""A toolbox that counts, for plays in tests: real tools that need no machine."""

from __future__ import annotations

import json
import string
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Literal

from selfplay.policy import Policy
from selfplay.policy.scripted import Script, ScriptedPolicy
from selfplay.policy.toy import CharTokenizer
from selfplay.rollout import Play, Player, talk
from selfplay.tools import Answer, Call, ToolSpec
from selfplay.types import Limits, Role, Sampling, Tools, Trajectory

TOKENIZER = CharTokenizer(string.printable + "é")

ADD = ToolSpec(
    name="add",
    text="Adds to the total.",
    parameters={
        "type": "object",
        "properties": {"by": {"type": "integer", "description": "how much"}},
        "required": ["by"],
    },
)
SUBMIT = ToolSpec(
    name="submit",
    text="Hands the total over.",
    parameters={"type": "object", "properties": {"note": {"type": "string"}}, "required": []},
)


class Counter:
    """Implements `Toolbox`: a total, what was called, and whether it was closed."""

    specs: Sequence[ToolSpec] = (ADD, SUBMIT)

    def __init__(self, *, before: Callable[[Call], Awaitable[None]] | None = None) -> None:
        self.total = 0
        self.called: list[Call] = []
        self.closed = 0
        self._before = before

    async def call(self, call: Call) -> Answer:
        self.called.append(call)
        if self._before is not None:
            await self._before(call)
        if call.name == "submit":
            return Answer(text="handed over", product={"total": self.total, **call.arguments})
        by = call.arguments.get("by")
        if call.name != "add" or not isinstance(by, int):
            return Answer(text="no such tool, or `by` is no whole number", refused=True)
        self.total += by
        return Answer(text=f"the total is {self.total}", exit_code=0)

    async def aclose(self) -> None:
        self.closed += 1


Form = Literal["fenced", "json", "native"]


def written(form: Form, name: str, **arguments: Any) -> str:
    """A call as a model would write it in this form."""
    if form == "fenced":
        return f"<tool: {name}>\n" + "".join(f"{value}\n" for value in arguments.values()) + "</tool>"
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def role(form: Form = "fenced", *, names: tuple[str, ...] = (), max_tokens: int = 400, **limits: Any) -> Role:
    """A role that counts in plain text."""
    return Role(
        name="counter",
        game="echo",
        side="solver",
        prompt="count to {{ goal }}\n",
        limits=Limits(**{"turns": 8, "tokens": 400, **limits}),
        sampling=Sampling(max_tokens=max_tokens),
        tools=Tools(names=names, form=form, renderer="plain"),
        origin="roles/counter",
    )


def place(own: Role, **other: Any) -> Play:
    return Play(**{"role": own, "stage": "attempt", "step": 0, "subject_id": "s", "index": 0, **other})


def player(script: Script, *, max_context: int = 8192) -> Player:
    return Player(policy=scripted(script, max_context=max_context), config_digest="c", seed=0)


def scripted(script: Script, *, max_context: int = 8192) -> Policy:
    return ScriptedPolicy(script, tokenizer=TOKENIZER, max_context=max_context)


def at_once() -> AbstractAsyncContextManager[None]:
    """A sampler with room for everybody."""
    return nullcontext()


async def played(
    who: Player, play: Play, toolbox: Counter, *, sampling: Callable[[], Any] = at_once, goal: object = 3
) -> Trajectory:
    async def open_tools() -> Counter:
        return toolbox

    return await talk(who, play, {"goal": goal}, open_tools=open_tools, sampling=sampling)
