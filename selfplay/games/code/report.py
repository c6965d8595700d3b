"""Reads what pytest-json-report left: which tests passed in all three stages, what the others said, what broke.

What is covered: the report's JSON, taken as untrusted input (every field checked, duplicates count as failed), and
messages made fit to show: one line, printable, memory addresses and temporary names struck out, so that equal runs give
equal words. What is not: whether the report is honest.

Example:
    >>> message("AssertionError: assert <T object at 0x7f00a1> == 3\\n +  where ...")
    'AssertionError: assert <T object at 0x> == 3'
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from selfplay.types import record

MAX_MESSAGE = 120
"""Characters kept of a message."""
_STAGES = ("setup", "call", "teardown")
_ADDRESS = re.compile(
    r"(?<!\d)(?:1(?:39[6-9]|40[0-7])\d{11}|9[345]\d{12})(?!\d)"  # what `id` tells on 64-bit Linux: 0x7f.., 0x55..
    r"|(?<!\d)1(?:39[6-9]|40[0-7])\d{3,10}(?=\.\.\.)"
    r"|(?<=\.\.\.)\d{7,13}(?!\d)"
)
"""An address as a number, also where pytest took its end or its beginning away."""


@record
class Report:
    """The tests of one pytest session."""

    passed: tuple[str, ...]
    """Ids that passed in setup, call and teardown, in the order they ran."""
    failed: Mapping[str, str]
    """Id -> message, for tests with a failed stage."""
    others: Mapping[str, str]
    """Id -> what became of it: skipped, expected to fail, or without a call."""
    broken: Mapping[str, str]
    """Collector (a file or folder) -> the end of its traceback, for what could not be collected."""
    files: tuple[str, ...]
    """Files named in those tracebacks, relative to the tree where they are in it."""
    exit_code: int | None = None
    """What the session says that it ends with."""


def parse(content: bytes) -> Report:
    """The report.

    Raises:
        ValueError: it is not a report of pytest-json-report.
    """
    try:
        whole = json.loads(content)
        return _report(whole)
    except (KeyError, TypeError, AttributeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"not a test report: {error!r}") from error


def message(text: str, *, limit: int = MAX_MESSAGE) -> str:
    """The first line of what a test said, fit to show and the same in every run."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    # note: pytest cuts long representations in their middle, which may take the 0 of an address or more of it.
    line = re.sub(r"0x[0-9a-fA-F]+", "0x", line)
    line = re.sub(r"\.\.\.x?[0-9a-fA-F]+>", "...>", line)
    line = _ADDRESS.sub("0x", line)
    line = re.sub(r"/tmp/[\w./-]+", "/tmp", line)
    line = "".join(c if c.isprintable() else "?" for c in line)
    return line if len(line) <= limit else line[: limit - 3] + "..."


def _report(whole: Mapping[str, Any]) -> Report:
    passed: dict[str, None] = {}
    failed: dict[str, str] = {}
    others: dict[str, str] = {}
    for test in whole.get("tests", []):
        name = str(test["nodeid"])
        said = _failure(test)
        if name in passed or name in failed or name in others:
            failed[name] = "it is in the report twice"
        elif said is not None:
            failed[name] = said
        elif test["outcome"] == "passed" and all(test.get(stage, {}).get("outcome") == "passed" for stage in _STAGES):
            passed[name] = None
        else:
            others[name] = message(str(test["outcome"]))
    broken = {str(c["nodeid"]): str(c.get("longrepr", "")) for c in whole.get("collectors", []) if _is_broken(c)}
    root = str(whole.get("root", ""))
    code = whole.get("exitcode")
    return Report(
        passed=tuple(name for name in passed if name not in failed),
        failed=failed,
        others=others,
        broken={name: _end(said) for name, said in broken.items()},
        files=tuple(dict.fromkeys(file for said in broken.values() for file in _files(said, root))),
        exit_code=code if isinstance(code, int) else None,
    )


def _failure(test: Mapping[str, Any]) -> str | None:
    """What the first failed stage said, or None where no stage failed."""
    for stage in _STAGES:
        found = test.get(stage)
        if found is not None and found["outcome"] == "failed":
            crash = found.get("crash") or {}
            said = message(str(crash.get("message") or found.get("longrepr") or "it failed"))
            return said if stage == "call" else f"{stage}: {said}"[:MAX_MESSAGE]
    return None if test["outcome"] not in ("failed", "error") else "it failed"


def _is_broken(collector: Mapping[str, Any]) -> bool:
    return bool(collector["outcome"] == "failed")


def _end(said: str) -> str:
    """The exception of a traceback: its last line that starts with `E`, or in Python's own form the last."""
    lines = [line for line in said.splitlines() if line.startswith("E ")]
    if not lines and said.startswith("Traceback "):
        return message(said.rstrip().rpartition("\n")[2])
    return message(lines[-1][1:] if lines else said)


def _files(said: str, root: str) -> Iterator[str]:
    """The files that a traceback goes through, in pytest's form or Python's."""
    for found in re.finditer(r'^  File "([^"\n]+\.py)", line \d+', said, flags=re.MULTILINE):
        yield found[1].removeprefix(f"{root}/")
    for found in re.finditer(r"^([^\s:][^:\n]*\.py):\d+: in ", said, flags=re.MULTILINE):
        yield found[1]
