"""Whatever a model wrote gives calls or a named problem, in each of the forms."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfplay.rollout.calls import Form, Message, budget, instructions, read, refusal, replies
from selfplay.tools import Answer, Call, ToolSpec

FORMS: tuple[Form, ...] = ("fenced", "json", "native")


def spec(name: str, *required: str, body: Literal["lines", "replacement"] = "lines", **optional: str) -> ToolSpec:
    kinds = dict.fromkeys(required, "string") | optional
    return ToolSpec(
        name=name,
        text=f"Does {name}.",
        parameters={
            "type": "object",
            "properties": {key: {"type": kind} for key, kind in kinds.items()},
            "required": list(required),
        },
        body=body,
    )


SPECS = (
    spec("bash", "command"),
    spec("create", "path", "text", overwrite="boolean"),
    spec("edit", "path", "old", "new", body="replacement"),
    spec("view", "path", first="integer", last="integer"),
    spec("submit", folder="string"),
)


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("<tool: bash>\nls -l\n</tool>", "bash", {"command": "ls -l"}),
        ("I look first.\n<tool: bash>\ncd a\n\nls <b>\n</tool>\n", "bash", {"command": "cd a\n\nls <b>"}),
        ("<tool:bash>\n\n  x\n\n</tool>", "bash", {"command": "\n  x\n"}),
        ("<tool: create>\na.py\nx = 1\ny = 2\n</tool>", "create", {"path": "a.py", "text": "x = 1\ny = 2"}),
        ("<tool: create>\na.py\n</tool>", "create", {"path": "a.py"}),
        (
            "<tool: create overwrite=true>\na.py\nx\n</tool>",
            "create",
            {"path": "a.py", "text": "x", "overwrite": True},
        ),
        ("<tool: view first=3 last=x>\na.py\n</tool>", "view", {"path": "a.py", "first": 3, "last": "x"}),
        ("<tool: view path=a.py first=3>\n</tool>", "view", {"path": "a.py", "first": 3}),
        ("<tool: submit>\n</tool>", "submit", {}),
        ("<tool: submit>\nout\n</tool>", "submit", {"folder": "out"}),
        (
            "<tool: edit>\na.py\n<<<<<<< SEARCH\n  a\n\n=======\n  b\n>>>>>>> REPLACE\n</tool>",
            "edit",
            {"path": "a.py", "old": "  a\n", "new": "  b"},
        ),
        (
            "<tool: edit>\na.py\n<<<<<<< SEARCH\na\n=======\n>>>>>>> REPLACE\n</tool>",
            "edit",
            {"path": "a.py", "old": "a", "new": ""},
        ),
        ("<tool: fly>\nhigh\n</tool>", "fly", {}),
        ("<think><tool: bash>\nno\n</tool></think><tool: bash>\nyes\n</tool>", "bash", {"command": "yes"}),
    ],
)
def test_a_fenced_call(text: str, name: str, arguments: dict[str, Any]) -> None:
    reading = read(text, form="fenced", specs=SPECS)
    assert reading.problem is None
    assert reading.calls == (Call(name=name, arguments=arguments),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no_call"),
        ("run <tool: bash> please", "no_call"),
        ("<tool: bash>\nls\n</tool></think>", "no_call"),
        ("<tool: bash>\nls\n", "unclosed"),
        ("<tool: bash>\nls </tool>", "unclosed"),
        ("<tool: bash>\nls\n</tool>\n<tool: bash>\npwd\n</tool>", "two_calls"),
        ("<tool: edit>\na.py\nold\nnew\n</tool>", "broken_body"),
        (
            "<tool: edit>\na\n<<<<<<< SEARCH\nTitle\n=======\n=======\nt\n>>>>>>> REPLACE\n</tool>",
            "broken_body",
        ),
    ],
)
def test_what_is_wrong_with_a_fenced_call(text: str, reason: str) -> None:
    reading = read(text, form="fenced", specs=SPECS)
    assert reading.calls == ()
    assert reading.problem is not None
    assert reading.problem.reason == reason


@pytest.mark.parametrize("form", ["json", "native"])
def test_json_calls_come_in_order(form: Form) -> None:
    text = (
        'First.<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>\n'
        '<tool_call>\n{"name": "view", "arguments": "{\\"path\\": \\"a\\"}"}\n</tool_call>'
        '<tool_call>{"name":"submit"}</tool_call>'
    )
    assert read(text, form=form, specs=SPECS).calls == (
        Call(name="bash", arguments={"command": "ls"}),
        Call(name="view", arguments={"path": "a"}),
        Call(name="submit", arguments={}),
    )


@pytest.mark.parametrize("form", ["json", "native"])
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('<tool_call>{"name": "bash", "arguments": {"command": "ls"}</tool_call>', "broken_json"),
        ('<tool_call>{"name": "a", "arguments": [1]}</tool_call>', "broken_json"),
        ('<tool_call>{"name": "a", "arguments": "x"}</tool_call>', "broken_json"),
        ('<tool_call>{"name": "a", "arguments": {"x": NaN}}</tool_call>', "broken_json"),
        ('<tool_call>{"name": "a", "arguments": {"x": 1e999}}</tool_call>', "broken_json"),
        (f"<tool_call>{'[' * 9999}</tool_call>", "broken_json"),
        ('<tool_call>{"name": "a"}', "unclosed"),
        ('<tool_call>{"arguments": {}}</tool_call>', "no_name"),
        ("<tool_call>[]</tool_call>", "no_name"),
        ('<tool_call>{"name": "a"}</tool_call><tool_call>{</tool_call>', "broken_json"),
    ],
)
def test_one_broken_call_and_none_is_carried_out(text: str, reason: str, form: Form) -> None:
    reading = read(text, form=form, specs=SPECS)
    assert reading.calls == ()
    assert reading.problem is not None
    assert reading.problem.reason == reason


@pytest.mark.parametrize("form", ["json", "native"])
def test_a_reply_without_a_call_is_the_last(form: Form) -> None:
    reading = read("It is done. <think>hm</think>", form=form, specs=SPECS)
    assert reading.calls == ()
    assert reading.problem is None


def test_llamas_calls() -> None:
    one = '{"name": "bash", "parameters": {"command": "ls"}}'
    call = Call(name="bash", arguments={"command": "ls"})
    assert read(one, form="native", specs=SPECS).calls == (call,)
    assert read(f"<|python_tag|>{one}; {one}\n", form="native", specs=SPECS).calls == (call, call)
    broken = read('{"name": "bash", ', form="native", specs=SPECS).problem
    assert broken is not None
    assert broken.reason == "broken_json"


BLOCK = ("<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE\n")
MARKS = ("<tool_call>", "</tool_call>", "<tool: bash>\n", "<tool: edit a=1>\n", "</tool>", "</think>", "-", "1e999")
PARTS = (*'{}[]<>"\n:,=', *MARKS, *BLOCK, '"name"', '"arguments"', "\\ud800")


@given(
    st.lists(st.sampled_from(PARTS) | st.text(max_size=3), max_size=12).map("".join),
    st.sampled_from(FORMS),
)
def test_nothing_that_a_model_writes_is_an_error(text: str, form: Form) -> None:
    reading = read(text, form=form, specs=SPECS)
    assert not (reading.calls and reading.problem)
    for call in reading.calls:
        json.dumps(dict(call.arguments), allow_nan=False)


def test_the_system_message_shows_the_form() -> None:
    fenced = instructions("fenced", SPECS, turns=5, context=99)
    assert "<tool: edit>\n[path]\n<<<<<<< SEARCH\n[old]\n=======\n[new]\n>>>>>>> REPLACE\n</tool>\nDoes edit." in fenced
    assert "<tool: view [first=...] [last=...]>\n[path]\n</tool>" in fenced
    assert "at most 5 turns, and 99 tokens" in fenced
    shown = instructions("json", SPECS, turns=5, context=99).split("<tools>\n")[1].split("\n</tools>")[0].splitlines()
    assert [json.loads(line)["function"]["name"] for line in shown] == [one.name for one in SPECS]
    assert instructions("native", SPECS, turns=5, context=99) == ""


def test_answers_are_told_with_what_is_left() -> None:
    answers = [
        (Call(name="bash", arguments={}), Answer(text="a")),
        (Call(name="<|x|>", arguments={}), Answer(text="b")),
    ]
    notice = budget(turns=2, tokens=30)
    assert notice == "<budget>\n* Remaining turns: 2\n* Remaining tokens: 30\n</budget>"
    assert replies("native", answers, known=["bash"], notice=notice) == [
        Message(role="tool", text="a", name="bash"),
        Message(role="tool", text=f"b\n\n{notice}", name="unknown"),
    ]
    (fenced,) = replies("fenced", answers[:1], known=["bash"], notice=notice)
    assert fenced == Message(role="user", text=f"<output>\na\n</output>\n\n{notice}")
    (hermes,) = replies("json", answers, known=["bash"], notice=notice)
    assert hermes.text.startswith(
        "<tool_response>\na\n</tool_response>\n<tool_response>\nb\n</tool_response>\n\n<budget>"
    )
    problem = read("", form="fenced", specs=SPECS).problem
    assert problem is not None
    assert refusal(problem, notice=notice)[0].text.startswith("Nothing was done: there is no <tool: NAME> block")
