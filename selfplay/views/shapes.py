"""What `data` holds in each command's `--json` answer, written once, as short as can be, and made into JSON Schema.

A shape is a type, a list of one shape, a mapping of names to shapes (all of them there, more may come), `Maybe` of a
shape (or null), `Table` (any names, one shape), `Any`, or a tuple of shapes (one of them). Keys are added within a
schema number, never renamed; a command that is not listed has no promise about its data yet.

Not here: the envelope (`envelope`), the command that prints a schema (`cli.schema`).

Example:
    >>> schema({"name": str, "steps": [int]})["properties"]["steps"]
    {'type': 'array', 'items': {'type': 'integer'}}
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any

Shape = Any


class Maybe:
    """A shape, or null."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape


class Table:
    """Any names, each with the same shape."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape


TYPES: Mapping[type, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
    list: "array",
    NoneType: "null",
}

VERDICT = {
    "stage": str,
    "valid": bool,
    "passed": Maybe(bool),
    "reward": Maybe(float),
    "reason": str,
    "task_id": Maybe(str),
    "parts": Table(float),
    "num_failing": Maybe(int),
    "seconds": float,
}
PLAY = {
    "id": str,
    "stage": str,
    "step": int,
    "role": str,
    "subject_id": str,
    "index": int,
    "stop": str,
    "policy_version": [int],
    "sampled_tokens": int,
    "trained_tokens": Maybe(int),
    "replies": int,
    "calls": [{"name": str, "exit_code": Maybe(int), "seconds": float}],
    "seconds": float,
    "reward": Maybe(float),
    "advantage": Maybe(float),
    "informative": Maybe(bool),
    "trained": Maybe(bool),
    "hinted": bool,
    "verdicts": [VERDICT],
}
SEED = {"id": str, "source": str, "split": str}
PROPOSAL = {
    **PLAY,
    "seed": Maybe(SEED),
    "proof": [{"what": str, "state": str}],
    "task_id": Maybe(str),
    "passed": int,
    "decided": int,
    "attempts": [PLAY],
    "replays": [PLAY],
}
AGAIN = {"passed": int, "decided": int, "attempts": [PLAY]}
TASK = {"id": str, "seed_id": str, "split": str, "step": int, "parent_id": Maybe(str)}
ENTRY = (
    {"proposal": PROPOSAL},
    {"attempt": PLAY},
    {"task": TASK, "proposal": Maybe(PLAY), "attempts": [PLAY]},
    {"seed": SEED, "proposals": [PROPOSAL]},
)
STEP = {
    "step": int,
    "closed": bool,
    "proposals": [PROPOSAL],
    "replays": [{**AGAIN, "task_id": str, "hinted": bool, "why": str}],
    "children": [{**AGAIN, "attempt_id": str, "parent_id": str, "verdict": Maybe(VERDICT), "task_id": Maybe(str)}],
}
PICKED = {"id": str, "kind": str, "step": int, "score": float, "reason": Maybe(str), "reward": Maybe(float)}
ESTIMATE = {"value": Maybe(float), "low": Maybe(float), "high": Maybe(float), "units": int, "left_out": int}
ASKED = {"action": str, "acted": bool, "said": str}
RUN = {"name": str, "folder": str, "state": str, "holder": Maybe(str), "game": str, "steps": int, "closed": int}

SHAPES: Mapping[str, Shape] = {
    "stop": ASKED,
    "pause": ASKED,
    "resume": ASKED,
    "set": ASKED,
    "status": (RUN, {"runs": [RUN], "unreadable": [{"name": str, "kind": str, "message": str}]}),
    "watch": {**RUN, "ended": bool, "paused": bool, "window": int, "roles": [dict], "plays": [dict], "choices": [dict]},
    "inspect": (
        {"steps": [STEP], "truncated": bool},
        {"selector": str, "steps": [int], "found": [PICKED]},
        *ENTRY,
    ),
    "plot": {
        "file": Maybe(str),
        "charts": [{"title": str, "percent": bool, "series": [{"run": str, "points": [list], "band": [list]}]}],
    },
    "compare": {
        "runs": [{"name": str, "closed": int, "evaluated": Maybe(int), "figures": Table(Maybe(float))}],
        "held_out": [{"name": str, "first": ESTIMATE, "second": ESTIMATE, "difference": ESTIMATE}],
        "won": int,
        "lost": int,
        "settings": [{"key": str, "first": Any, "second": Any}],
        "failed": [str],
    },
    "repro": {
        "engine": str,
        "config_digest": str,
        "seed": int,
        "game": str,
        "source": Maybe(str),
        "model": Maybe(str),
        "forked_from": Maybe(str),
        "steps": int,
        "fingerprints": [str],
        "here": Table(str),
        "settings": dict,
        "commands": [str],
        "folder": Maybe(str),
    },
    "clean": {
        "kinds": [{"where": str, "kind": str, "count": int, "num_bytes": int, "can_go": int}],
        "can_go": [{"where": str, "kind": str, "path": str, "num_bytes": int, "why": str}],
        "removed": [str],
        "num_bytes_removed": int,
        "held": [str],
    },
    "init": {"folder": str, "written": [str], "skipped": [str]},
    "show": {"kind": str, "name": str, "origin": str, "path": str, "files": Table(str)},
    "cp": {"kind": str, "name": str, "folder": str, "written": [str]},
    "ls": Table([dict]),
    "config": {"digest": str, "settings": [{"key": str, "value": Any, "origin": str, "affects_results": bool}]},
    "doctor": {"ready": bool, "checks": [dict]},
    "report": {"file": str, "num_bytes": int, "steps": int, "pairs": [str], "sampled": dict},
    "plan": {"folder": str, "rows": [dict]},
}
"""Command -> the shape of its `data`."""


def schema(shape: Shape) -> dict[str, Any]:
    """JSON Schema of a shape, draft 2020-12."""
    if isinstance(shape, Maybe):
        return {"anyOf": [schema(shape.shape), {"type": "null"}]}
    if isinstance(shape, Table):
        return {"type": "object", "additionalProperties": schema(shape.shape)}
    if isinstance(shape, tuple):
        return {"anyOf": [schema(part) for part in shape]}
    if isinstance(shape, list):
        return {"type": "array", "items": schema(shape[0])}
    if isinstance(shape, Mapping):
        parts = {name: schema(part) for name, part in shape.items()}
        return {"type": "object", "required": list(shape), "properties": parts}
    return {"type": TYPES[shape]} if shape in TYPES else {}
