"""How calls of tools are written in a reply, and what the model reads about tools. Pure.

Four forms, chosen by the role:

`fenced`: CWM's. One block a reply; its body is raw, so that programs need no escapes:

    <tool: bash>
    ls -l
    </tool>

  The required arguments stand in the body in their order: a line each, the last one all lines that are left. Optional
  ones stand in the tag (`<tool: view first=3 last=9>`). A tool with `body = "replacement"` takes its last two from a
  SEARCH/REPLACE block. A reply with two blocks carries neither out, and one without a block is a mistake as well: such
  a play ends with a tool that hands something over.
`json`: Hermes' and Qwen's. `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, any number of them, which are
  carried out in order, or none of them where one is broken. A reply without a call is the last one.
`native`: the tokenizer's chat template shows the tools and the answers. Calls are read as in `json`, or, where the
  reply begins with `{`, as Llama 3 writes them: JSON objects with `name` and `parameters`, separated by `;` or space.

`tags`: Search-R1's and SSP's. `<search>QUERY</search>`: a tool by its name, around its one argument; one block a reply,
  and what was found comes back in `<information>...</information>`. A play ends with a tool that hands something over.

Whatever a model wrote gives calls or a named problem, never an exception. What stands before the last `</think>` is a
thought, in which nothing is a call.

Not here: whether arguments fit the tool (`tools`), how messages become ids (`renderers`).

Sources: facebookresearch/cwm, `cwm/rl/swerl/default_tools.py` and `cwm/rl/envs/envs/swerl_tool.py`; the chat templates
of Qwen 2.5 and Llama 3.1; PeterGriffinJin/Search-R1, `search_r1/llm_agent/generation.py`.

Example:
    >>> read('I look. <tool_call>{"name": "view", "arguments": {"path": "a"}}</tool_call>', form="json", specs=()).calls
    (Call(name='view', arguments={'path': 'a'}),)
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from selfplay.rollout.renderers import Message, function_of
from selfplay.tools import Answer, Call, ToolSpec
from selfplay.types import record

Form = Literal["fenced", "json", "native", "tags"]

Reason = Literal["no_call", "two_calls", "unclosed", "broken_json", "no_name", "broken_body"]
"""What can be wrong with a reply's calls."""


@record
class Problem:
    """Why no call of a reply can be carried out."""

    reason: Reason
    why: str
    """One sentence, for the model."""


@record
class Reading:
    """What a reply asks for: calls, or a problem; neither where it is the last one."""

    calls: tuple[Call, ...] = ()
    problem: Problem | None = None


class _Broken(Exception):
    """A call that cannot be read."""

    def __init__(self, reason: Reason, why: str) -> None:
        self.problem = Problem(reason=reason, why=why)


def read(text: str, *, form: Form, specs: Sequence[ToolSpec]) -> Reading:
    """The calls in a reply's `text`."""
    said = text.rpartition("</think>")[2]
    try:
        return Reading(calls=tuple(_READERS[form](said, {spec.name: spec for spec in specs})))
    except _Broken as error:
        return Reading(problem=error.problem)


def _fenced(text: str, specs: Mapping[str, ToolSpec]) -> Iterator[Call]:
    openings = list(_TAG.finditer(text))
    if not openings:
        raise _Broken("no_call", "there is no <tool: NAME> block; write exactly one in each reply")
    if len(openings) > 1:
        raise _Broken("two_calls", f"there are {len(openings)} <tool: NAME> blocks; write exactly one in each reply")
    closed = re.compile(r"^</tool>", flags=re.MULTILINE).search(text, openings[0].end())
    if closed is None:
        raise _Broken("unclosed", "the block does not end with a line </tool>")
    name, tag = openings[0].groups()
    body = text[openings[0].end() : closed.start()].removesuffix("\n")
    yield Call(name=name, arguments=_arguments(specs[name], tag, body) if name in specs else {})


_TAG = re.compile(r"<tool:[ \t]*([A-Za-z_][\w.-]*)((?:[ \t]+\w+=[^\s>]+)*)[ \t]*>[ \t]*\n")


def _arguments(spec: ToolSpec, tag: str, body: str) -> dict[str, Any]:
    """The arguments that the tag and the body of a fenced call hold."""
    properties: Mapping[str, Any] = spec.parameters.get("properties", {})
    required = [name for name in properties if name in spec.parameters.get("required", ())]
    given: dict[str, str] = dict(re.findall(r"(\w+)=(\S+)", tag))
    if spec.body == "replacement":
        body, *halves = _halves(body)
        given |= dict(zip(required[-2:], halves, strict=False))
    expected = [name for name in required if name not in given]
    if body and not expected:
        # note: a tool that needs nothing may still be told something, such as a note with what is handed over.
        expected = [name for name in properties if name not in given][:1]
    if expected:
        given |= dict(zip(expected, body.split("\n", len(expected) - 1), strict=False))
    return {name: _typed(value, properties.get(name, {})) for name, value in given.items()}


def _halves(body: str) -> tuple[str, str, str]:
    """What stands before a SEARCH/REPLACE block, and its halves."""
    lines = body.rstrip("\n").split("\n")
    marks = [at for at, line in enumerate(lines) if line.rstrip() in _MARKS]
    if [lines[at].rstrip() for at in marks] != list(_MARKS) or marks[-1] != len(lines) - 1:
        raise _Broken("broken_body", f"the body does not end with one block of the lines {', '.join(_MARKS)}")
    first, middle, last = marks
    parts = (lines[:first], lines[first + 1 : middle], lines[middle + 1 : last])
    before, old, new = ("\n".join(part) for part in parts)
    return before, old, new


_MARKS = ("<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE")


def _typed(value: str, schema: Mapping[str, Any]) -> Any:
    """`value` as the schema's kind where it is one; else as it is, which the tool then refuses."""
    kinds = schema.get("type")
    if isinstance(kinds, str) and kinds in ("integer", "number", "boolean", "array", "object"):
        try:
            return _json(value)
        except ValueError:
            return value
    return value


def _hermes(text: str, specs: Mapping[str, ToolSpec]) -> Iterator[Call]:
    opened = text.split("<tool_call>")[1:]
    for number, part in enumerate(opened, start=1):
        inside, closing, _ = part.partition("</tool_call>")
        if not closing:
            raise _Broken("unclosed", f"call {number} of {len(opened)} does not end with </tool_call>")
        try:
            yield _call(_json(inside), "arguments")
        except ValueError as error:
            raise _Broken("broken_json", f"call {number} of {len(opened)} is not JSON: {error}") from error


def _native(text: str, specs: Mapping[str, ToolSpec]) -> Iterator[Call]:
    bare = text.strip().removeprefix("<|python_tag|>")
    if "<tool_call>" in text or not bare.startswith("{"):
        yield from _hermes(text, specs)
        return
    while bare:
        try:
            value, end = _DECODER.raw_decode(bare)
        except (ValueError, RecursionError) as error:
            raise _Broken("broken_json", f"the call is not JSON: {error}") from error
        yield _call(value, "parameters", "arguments")
        bare = bare[end:].lstrip("; \t\n")


def _tags(text: str, specs: Mapping[str, ToolSpec]) -> Iterator[Call]:
    names = "|".join(map(re.escape, specs))
    openings = re.findall(rf"<({names})>", text)
    blocks = re.findall(rf"<({names})>((?:(?!<\1>).)*?)</\1>", text, flags=re.DOTALL)
    if not openings:
        shown = " or ".join(f"<{name}>...</{name}>" for name in specs)
        raise _Broken("no_call", f"there is no {shown}; write exactly one in each reply")
    if not blocks:
        raise _Broken("unclosed", f"<{openings[-1]}> is not closed by </{openings[-1]}>")
    if len(blocks) > 1:
        raise _Broken("two_calls", f"there are {len(blocks)} blocks; write exactly one in each reply")
    ((name, body),) = blocks
    required = specs[name].parameters.get("required", ())
    yield Call(name=name, arguments={argument: body.strip() for argument in required[:1]})


_READERS: Mapping[Form, Callable[[str, Mapping[str, ToolSpec]], Iterator[Call]]] = {
    "fenced": _fenced,
    "json": _hermes,
    "native": _native,
    "tags": _tags,
}


def _call(value: object, *keys: str) -> Call:
    """A call from its JSON; the arguments stand under the first of `keys` that is there."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise _Broken("no_name", 'a call is a JSON object with "name" and "arguments"')
    arguments: Any = next((value[key] for key in keys if key in value), {})
    if isinstance(arguments, str):
        # note: some models write the arguments as a JSON text inside the JSON.
        try:
            arguments = _json(arguments)
        except ValueError:
            arguments = None
    if not isinstance(arguments, dict):
        raise _Broken("broken_json", f'"{keys[0]}" of the call is not a JSON object')
    return Call(name=value["name"], arguments=arguments)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a number")
    return value


# note: Python reads NaN and numbers beyond all bounds as JSON, and nobody after it does.
_DECODER = json.JSONDecoder(parse_constant=_finite, parse_float=_finite)


def _json(text: str) -> Any:
    """JSON that every reader takes.

    Raises:
        ValueError: it is none.
    """
    try:
        return _DECODER.decode(text.strip())
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def instructions(form: Form, specs: Sequence[ToolSpec], *, turns: int, context: int) -> str:
    """What the system message says of the tools; empty where the template shows them."""
    if form == "native":
        return ""
    bounds = f"There are at most {turns} turns, and {context} tokens for everything."
    if form == "fenced":
        shown = "\n\n".join(map(_shown, specs))
        return f"You work by using tools. {bounds} Here are their specifications:\n\n{shown}\n\n{_RULE}"
    if form == "tags":
        each = "\n".join(f"<{spec.name}>...</{spec.name}>: {spec.text}" for spec in specs)
        return f"You work in turns. {bounds} End each reply with exactly one of these:\n{each}"
    shown = "\n".join(json.dumps(function_of(spec)) for spec in specs)
    return f"# Tools\n\nYou may call one or more of these functions. {bounds}\n<tools>\n{shown}\n</tools>\n\n{_HERMES}"


_RULE = "Use exactly one tool in each reply."
_HERMES = (
    "For each function call, write a JSON object with the function's name and its arguments within "
    '<tool_call></tool_call>:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)


def _shown(spec: ToolSpec) -> str:
    """A fenced call of the tool with its arguments' names in place of their values, and what it does."""
    properties: Mapping[str, Any] = spec.parameters.get("properties", {})
    needed = spec.parameters.get("required", ())
    required = [name for name in properties if name in needed]
    tag = "".join(f" [{name}=...]" for name in properties if name not in needed)
    lines = [f"[{name}]" for name in required]
    if spec.body == "replacement":
        lines[-2:] = ["<<<<<<< SEARCH", lines[-2], "=======", lines[-1], ">>>>>>> REPLACE"]
    said = [f"* {name}: {about['description']}" for name, about in properties.items() if "description" in about]
    return "\n".join([f"<tool: {spec.name}{tag}>", *lines, "</tool>", spec.text, *said])


def replies(form: Form, answers: Sequence[tuple[Call, Answer]], *, known: Sequence[str], notice: str) -> list[Message]:
    """The answers as messages to the model, in the calls' order; `notice` goes with the last.

    Only the names in `known` are repeated: a name that the model made up goes into no template.
    """
    texts = [answer.text for _, answer in answers]
    if form == "native":
        texts[-1] += f"\n\n{notice}"
        names = [call.name if call.name in known else "unknown" for call, _ in answers]
        return [Message(role="tool", text=text, name=name) for text, name in zip(texts, names, strict=True)]
    if form == "tags":
        # note: as published, without what is left of the budget: a search would cost thirty tokens more.
        return [Message(role="user", text="\n".join(f"<information>\n{text}\n</information>" for text in texts))]
    mark = "output" if form == "fenced" else "tool_response"
    said = "\n".join(f"<{mark}>\n{text}\n</{mark}>" for text in texts)
    return [Message(role="user", text=f"{said}\n\n{notice}")]


def refusal(problem: Problem, *, notice: str) -> list[Message]:
    """What the model reads where nothing could be carried out."""
    return [Message(role="user", text=f"Nothing was done: {problem.why}.\n\n{notice}")]


def budget(*, turns: int, tokens: int) -> str:
    """What is left, as the model reads it. Source: CWM's `BUDGET_NOTICE_TEMPLATE`."""
    return f"<budget>\n* Remaining turns: {turns}\n* Remaining tokens: {tokens}\n</budget>"
