"""The table of every key, for `selfplay config`, for curricula/README.md and for JSON Schema.

Not here: the keys themselves (`config.tables`).

Example:
    >>> markdown().splitlines()[0]
    '| key | default | takes | meaning |'
"""

from __future__ import annotations

from typing import Any

from selfplay.config.settings import Config, affects_results, expected, fields, toml_value
from selfplay.types import record


@record
class Row:
    """One key of a configuration."""

    key: str
    value: Any
    origin: str
    default: Any
    expected: str
    """What it takes, in words."""
    meaning: str
    affects_results: bool
    """Part of the digest that guards resume."""


def rows(config: Config) -> list[Row]:
    """Every key of `config`, in the order of the tables."""
    values, defaults, origins = config.values(), Config().values(), config.provenance
    return [
        Row(
            key=name,
            value=values[name],
            origin=origins[name],
            default=defaults[name],
            expected=expected(info),
            meaning=info.description or "",
            affects_results=affects_results(name),
        )
        for name, info in fields()
    ]


def markdown() -> str:
    """Every key as a Markdown table; a key marked `*` may change between launches of one run."""
    lines = ["| key | default | takes | meaning |", "|---|---|---|---|"]
    for row in rows(Config()):
        default = "" if row.default is None else f"`{toml_value(row.default)}`"
        star = "" if row.affects_results else " *"
        lines.append(f"| `{row.key}`{star} | {default} | {row.expected} | {row.meaning} |")
    return "\n".join(lines)
