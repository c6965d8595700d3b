"""The table of options: one row an option, with its words; that curricula/README.md holds it: `test_presets_load`."""

from __future__ import annotations

from dataclasses import fields

from selfplay.curriculum import CURRICULA
from selfplay.curriculum.options import defaults_of
from selfplay.curriculum.reference import markdown


def test_every_option_has_a_row_with_a_meaning_and_its_default_as_toml() -> None:
    head, rule, *rows = markdown().splitlines()
    assert (head.count("|"), rule) == (5, "|---|---|---|---|")
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    named = [(name.strip("`"), option.strip("`")) for name, option, *_ in cells]
    assert named == [(name, field.name) for name, choose in CURRICULA.items() for field in fields(defaults_of(choose))]
    assert all(len(cell) == 4 and cell[3].endswith(".") for cell in cells), "no pipe inside, a sentence each"
    defaults = {cell[2].strip("`") for cell in cells}
    assert not defaults & {"True", "False", "None"}
    assert {"true", "false"} & defaults
