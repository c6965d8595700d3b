"""What a run's `config.toml` says beside its values: where each came from, and which preset that was.

The text is `Config.to_toml`'s, though somebody may have edited it since.

Not here: writing it (`config.settings`), the values themselves (`config.layers`).

Example:
    >>> [line] = lines("[run]\\nsteps = 3  # -s")
    >>> line.key, line.value, line.origin
    ('run.steps', '3', '-s')
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

from selfplay.types import record

HEAD = "# The resolved settings of a run of `{}`; itself a valid input."
UNSET = " is unset"


@record
class Line:
    """One key."""

    key: str
    """`table.key`."""
    value: str
    """As TOML; empty where it is unset."""
    origin: str
    """Where it came from; empty where that is not said, `unset` where there is no value."""


def lines(text: str) -> Iterator[Line]:
    """Every key that stands on one line, in the order of the text."""
    table = ""
    for line in text.splitlines():
        if line.startswith("["):
            table = line.strip("[] ")
        elif line.endswith(UNSET) and line.startswith("# "):
            yield Line(key=f"{table}.{line[2:].removesuffix(UNSET)}", value="", origin="unset")
        elif found := re.fullmatch(r"(\w+) = (.*)", line):
            value, origin = _split(found[2])
            yield Line(key=f"{table}.{found[1]}", value=value, origin=origin)


def preset(text: str) -> str:
    """The preset that the head names; empty where there is no such head."""
    before, _, after = HEAD.partition("{}")
    head, _, _ = text.partition("\n")
    named = head.startswith(before) and head.endswith(after) and len(head) > len(before) + len(after)
    return head[len(before) : -len(after)] if named else ""


def _split(text: str) -> tuple[str, str]:
    """Value and comment; what looks like a comment's beginning may stand in a string, so TOML itself is asked."""
    for found in re.finditer("  # ", text):
        try:
            tomllib.loads(f"value = {text[: found.start()]}")
        except tomllib.TOMLDecodeError:
            continue
        return text[: found.start()], text[found.end() :]
    return text, ""
