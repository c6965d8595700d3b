"""What the repairer reads: the prompt that warm-ups taught, to the byte; a hint stands before its last line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from selfplay.project import Project
from selfplay.rollout import render

TAUGHT = "Find the bug: rewrite one line.\n{{ function }}\n{% if tests %}Failing tests:\n{{ tests }}\n{% endif %}Fix:\n"
"""The template before there were hints."""


@pytest.mark.parametrize("tests", ["", "test_add: assert -1 == 3"])
def test_the_prompt_without_a_hint_is_the_one_that_was_taught(tests: str, project: Project) -> None:
    role = project.load_role("repairer")
    view = {"function": "1|def add(a, b):\n2|    return a - b", "tests": tests}
    before = render(replace(role, prompt=TAUGHT), view)
    assert render(role, {**view, "hint": ""}) == before
    helped = render(role, {**view, "hint": "look at line 2"})
    assert helped == before.removesuffix("Fix:\n") + "Hint: look at line 2\nFix:\n"
