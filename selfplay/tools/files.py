"""The tools `edit`, `create`, `view` and `search`: one run of the program `inside` each, in the sandbox.

What is covered: paths relative to the work tree (not to where `bash` went), reading wherever the sandbox lets a
candidate read, changing files of the work tree only, answers in words for all that does not go: no such file, text
that occurs twice or not at all, a file that is there already, a full disk, an expression that does not end.

What is not covered: files that are no UTF-8 text, for which there is `bash`; removing and renaming.

Example:
    >>> edit = FileTool("edit", place=place, allowance=Allowance())  # doctest: +SKIP
    >>> (await edit.call({"path": "a.py", "old": "x = 1", "new": "x = 2"})).text  # doctest: +SKIP
    '[a.py was changed at line 1]\\n     1\\tx = 2'
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from selfplay.tools import Allowance, Answer, ToolSpec
from selfplay.tools.place import Place
from selfplay.tools.text import plain, shortened
from selfplay.types import Result

_PARTS = ("text.py", "inside.py")
_BYTES = 12
"""Most bytes of a character in JSON."""


def _spec(
    name: str,
    text: str,
    needs: tuple[str, ...],
    /,
    *,
    body: Literal["lines", "replacement"] = "lines",
    **properties: tuple[str, str],
) -> ToolSpec:
    """A property's type and words, by its name; `needs` are those that a call must give."""
    told = {key: {"type": kind, "description": words} for key, (kind, words) in properties.items()}
    schema = {"type": "object", "properties": told, "required": list(needs)}
    return ToolSpec(name=name, text=text, parameters=schema, body=body)


_PATH = ("string", "relative to the work tree")
_SPECS = (
    _spec(
        "edit",
        "Replaces one place of a file of the work tree. `old` must occur in it exactly once, blanks and line ends "
        "included.",
        ("path", "old", "new"),
        path=_PATH,
        old=("string", "the text to be replaced"),
        new=("string", "the text in its place; empty to remove it"),
        body="replacement",
    ),
    _spec(
        "create",
        "Makes a new file in the work tree, with its folders.",
        ("path", "text"),
        path=_PATH,
        text=("string", "the whole file"),
        overwrite=("boolean", "true to replace a file that is there"),
    ),
    _spec(
        "view",
        "Shows a file with line numbers, or what a folder holds.",
        ("path",),
        path=("string", "relative to the work tree; `.` is the work tree itself"),
        first=("integer", "first line to be shown"),
        last=("integer", "last line to be shown"),
    ),
    _spec(
        "search",
        "Finds lines that match a Python regular expression, in a file or in all text files of a folder.",
        ("pattern",),
        pattern=("string", "what to look for"),
        path=("string", "file or folder, relative to the work tree, which is the default"),
        names=("string", "only files whose names match, e.g. `*.py`"),
        plain=("boolean", "true to look for the pattern as it stands"),
    ),
)
SPECS: Mapping[str, ToolSpec] = {spec.name: spec for spec in _SPECS}
"""What the policy is told of each."""


class FileTool:
    """One of the tools in `SPECS`."""

    def __init__(self, name: str, *, place: Place, allowance: Allowance) -> None:
        self.spec = SPECS[name]
        self._place = place
        self._allowance = allowance

    async def call(self, arguments: Mapping[str, Any]) -> Answer:
        """Carry a call out; `arguments` fit the schema.

        Raises:
            SandboxInfraError: the machine failed.
        """
        limit = self._allowance.output_chars
        request = {**arguments, "verb": self.spec.name, "workdir": self._place.spec.workdir, "limit": limit}
        found, result = await self._place.ask(
            program(), request, seconds=self._allowance.command_seconds, limit=_BYTES * limit + (1 << 12)
        )
        text = str(found.get("text", found.get("refused", ""))) or self._failed(result)
        # note: what it printed is the candidate's word, who may have got in its way; its size is ours.
        return Answer(text=shortened(plain(text), limit), seconds=result.seconds)

    def _failed(self, result: Result) -> str:
        """What came of it where the program gave no answer."""
        if result.timed_out:
            return f"[no end within {self._allowance.command_seconds:g} s]"
        what = "out of memory" if result.oom_killed else f"exit code {result.exit_code}"
        return f"[`{self.spec.name}` could not run in the sandbox ({what}): {result.stderr.strip()[-300:]}]"


@functools.cache
def program() -> str:
    """The parts of the program as one."""
    lines = "".join(Path(__file__).with_name(part).read_text(encoding="utf-8") for part in _PARTS).splitlines()
    return "\n".join(line for line in lines if not line.startswith("from selfplay."))
