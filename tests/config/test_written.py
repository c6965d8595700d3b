from __future__ import annotations

from selfplay.config import Config
from selfplay.config.settings import fields, toml_value
from selfplay.config.written import Line, lines, preset


def test_a_line_for_every_key() -> None:
    config = Config()
    found = {line.key: line for line in lines(config.to_toml())}
    assert list(found) == [name for name, _ in fields()]
    for name, value in config.values().items():
        expected = ("", "unset") if value is None else (toml_value(value), "built-in")
        assert (found[name].value, found[name].origin) == expected


def test_what_somebody_edited() -> None:
    text = '[run]\nsteps = 3\n# a word\n\n[ game ]\nsource = "a  # b"  # mine  # or not\noptions = {a = "  # "}\n'
    assert list(lines(text)) == [
        Line(key="run.steps", value="3", origin=""),
        Line(key="game.source", value='"a  # b"', origin="mine  # or not"),
        Line(key="game.options", value='{a = "  # "}', origin=""),
    ]


def test_the_preset_stands_in_the_head() -> None:
    assert preset(Config().to_toml()) == "selfplay"
    assert preset("# The resolved settings of a run of `a`b`; itself a valid input.\n[run]") == "a`b"
    for text in ("", "[run]\n", "# The resolved settings of a run of `", "# Mine.\n"):
        assert preset(text) == ""
