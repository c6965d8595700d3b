"""The pages under docs/: what is generated is current, and what is linked is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cogapp import Cog

from selfplay.cli import COMMANDS
from selfplay.cli.reference import markdown

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))


def test_the_command_reference_is_current() -> None:
    assert Cog().main(["cog", "--check", "--diff", str(ROOT / "docs" / "commands.md")]) == 0, "cog -r docs/commands.md"


def test_every_command_has_a_section_that_any_terminal_prints_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    text = markdown()
    titles = re.findall(r"^## `selfplay ?([\w ]*)`$", text, re.MULTILINE)
    assert titles[0] == ""
    assert {title.split()[0] for title in titles[1:]} == set(COMMANDS)
    assert {"sandbox bench", "corpus search"} <= set(titles)
    monkeypatch.setenv("COLUMNS", "200")
    assert markdown() == text


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert target.startswith("https://") or (page.parent / target).exists(), target
