"""Arguments that do not fit, and what the policy is told."""

from __future__ import annotations

from typing import Any

import pytest

from selfplay.tools.arguments import why_unfit

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "first": {"type": "integer"},
        "share": {"type": "number"},
        "all": {"type": "boolean"},
        "either": {"type": ["string", "null"]},
        "any": {},
    },
    "required": ["path"],
}


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": ""},
        {"path": "a", "first": 3, "share": 3, "all": False, "either": None, "any": [1]},
        {"path": "a", "share": 0.5, "either": "x", "any": {"a": 1}},
    ],
)
def test_what_fits(arguments: dict[str, Any]) -> None:
    assert why_unfit(SCHEMA, arguments, name="t") == ""


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "`t` needs `path`"),
        ({"path": 3}, "`path` of `t` has to be of type string, and is integer"),
        ({"path": "a", "first": "3"}, "`first` of `t` has to be of type integer, and is string"),
        ({"path": "a", "first": True}, "`first` of `t` has to be of type integer, and is boolean"),
        ({"path": "a", "first": 1.5}, "`first` of `t` has to be of type integer, and is number"),
        ({"path": None}, "`path` of `t` has to be of type string, and is null"),
        ({"path": "a", "either": 1}, "`either` of `t` has to be of type string or null, and is integer"),
        ({"path": "\ud800"}, "`path` of `t` is not Unicode text"),
        ({"pth": "a"}, "`t` has no argument `pth`; did you mean `path`?"),
        ({"path": "a", "zzz\n": 1}, "`t` has no argument `zzz?`; its arguments: path, first, share, all, either, any"),
    ],
)
def test_what_does_not(arguments: dict[str, Any], why: str) -> None:
    assert why_unfit(SCHEMA, arguments, name="t") == why


def test_a_tool_without_arguments_says_so() -> None:
    assert why_unfit({"type": "object"}, {"x": 1}, name="t") == "`t` has no argument `x`; it takes none"
