"""What `data` holds in each command's `--json` answer, written once, as short as can be, and made into JSON Schema.

A shape is a type, a list of one shape, a mapping of names to shapes (all of them there, more may come), `Maybe` of a
shape (or null), `Table` (any names, one shape), `Any`, or a tuple of shapes (one of them). Keys are added within a
schema number, never renamed. Every command has one: `run` and `demo` write an event a line (`event`), and a plan with
`--plan` (`plan`).

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
RUN = {
    "name": str,
    "folder": str,
    "state": str,
    "paused": bool,
    "holder": Maybe(str),
    "game": str,
    "steps": int,
    "closed": int,
}
CHOICE = {"step": int, "mode": str, "subject_id": str, "score": float, "why": str, "terms": dict}
BELIEF = {"step": int, "mean": float, "low": float, "high": float, "prior": float}
WHY = {
    "task": {
        "id": str,
        "game": str,
        "split": str,
        "step": int,
        "seed": {"id": str, "source": Maybe(str)},
        "proposal_id": Maybe(str),
        "attempt_id": Maybe(str),
        "parent_id": Maybe(str),
    },
    "asked": Maybe(CHOICE),
    "proposals": [{"id": str, "step": int, "role": str, "subject_id": str, "valid": Maybe(bool), "minted": bool}],
    "choices": [CHOICE],
    "steps": [{"step": int, "role": str, "decided": int, "solved": int, "hinted": bool, "believed": Maybe(BELIEF)}],
    "cell": Maybe(str),
    "now": Maybe(BELIEF),
    "children": [{"id": str, "step": int, "decided": int, "solved": int}],
    "refused_children": Table(int),
    "standing": {"code": str, "why": str},
}
SHOT = {"step": int, "tasks": int, "bins": [int], "never_solved": int, "always_solved": int, "near_target": int}
FRONTIER = {
    "curriculum": str,
    "window": int,
    "half_life": Maybe(float),
    "target": {"rate": float, "low": float, "high": float, "from": str},
    "reward": {"name": str, "pays_most_at": Maybe(float)},
    "edges": [float],
    "steps": [{**SHOT, "mean": Maybe(float)}],
    "cells": [{"cell": str, "tasks": int, "mean": float, "deviation": float, "strength": float}],
    "svg": Maybe(str),
}
CHECKED = {"name": str, "what": str, "count": int, "num_problems": int, "seconds": float, "problems": [str]}
SALVAGED = {"folder": str, "steps": int, "rows": Table(int), "saves": [str], "left_out": str}
REPOSITORY = {
    "repository": str,
    "ok": Maybe(bool),
    "problem": Maybe({"message": str, "hint": str}),
    "facts": [{"name": str, "what": str, "then": str, "trouble": bool}],
    "seeds": Maybe(int),
    "stable_tests": Maybe(int),
    "left_out": Maybe(dict),
    "seconds": Maybe(float),
}
SUMMARY = {"pass_at": Table(ESTIMATE), "valid": ESTIMATE, "tasks": int, "seeds": int, "attempts": int, "undecided": int}
EXAM = {"on": str, "attempts": int, "seed": int, "intervals": {"level": float, "resamples": int, "method": str}}
SAT = {"target": str, "policy_version": Maybe(int), "temperature": float, "seconds": float}
SANDBOX = {"id": str, "backend": str, "owner": str, "dead": bool, "state": str, "age_seconds": float, "labels": dict}
REMOVED = {"id": str, "backend": str}
CORPUS = {"name": str, "path": str, "documents": int, "passages": int, "sources": [str], "digest": str}
PASSAGE = {"id": str, "text": str, "title": str, "document": str, "start": int, "end": int, "score": float}
ADDED = {"source": str, "documents": int, "new": int, "changed": int, "unchanged": int, "removed": int}

SHAPES: Mapping[str, Shape] = {
    "stop": ASKED,
    "pause": ASKED,
    "resume": ASKED,
    "set": ASKED,
    "status": (RUN, {"runs": [RUN], "unreadable": [{"name": str, "kind": str, "message": str}]}),
    "watch": {**RUN, "ended": bool, "window": int, "roles": [dict], "plays": [dict], "choices": [dict]},
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
        "installed_from": {"kind": str, "where": str, "commit": Maybe(str), "changed": bool, "requirement": str},
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
    "plan": {"folder": str, "rows": [dict], "differences": [dict]},
    "launch": {"run": str, "pid": int, "folder": str, "log": str, "watch": str},
    "event": {"kind": str, "step": Maybe(int), "stage": Maybe(str), "data": dict},
    "why": WHY,
    "frontier": FRONTIER,
    "sql": {"columns": [str], "rows": [list], "truncated": bool},
    "check": (
        {"ok": bool, "checks": [{**CHECKED, "notes": [str]}]},
        {"salvaged": SALVAGED},
        REPOSITORY,
        {"ok": bool, "project": [{"kind": str, "name": str, "ok": bool, "what": str, "fix": str}]},
    ),
    "eval": (
        {**EXAM, "targets": [{**SAT, **SUMMARY, "stored": bool, "kept": Maybe(str)}], "differences": [dict]},
        {**EXAM, "questions": int, "corpus": Maybe(str), "targets": [{**SAT, "conditions": Table(SUMMARY)}]},
    ),
    "serve": {"url": str, "record": str},
    "play": {
        "game": str,
        "side": str,
        "role": str,
        "sandbox": str,
        "subject": dict,
        "prompt": str,
        "reply": str,
        "calls": [dict],
        "product": dict,
        "verdict": dict,
        "checks": [{"what": str, "state": str}],
        "task": Maybe(dict),
    },
    "replay": {
        "step": int,
        "save": Maybe(str),
        "applied": int,
        "same_fingerprint": bool,
        "sampler": Maybe({"total": int, "equal": int, "uncovered": int, "logprobs": bool, "first": Maybe(dict)}),
        "learner": Maybe({"recorded": str, "again": str, "drift": Maybe(str), "skipped": Maybe(str)}),
        "equal": bool,
    },
    "reverify": {
        "what": str,
        "total": int,
        "identical": int,
        "undecided": int,
        "changed": [{"id": str, "task_id": str, "step": int, "old": str, "new": str, "why": str}],
    },
    "export": {"format": str, "file": Maybe(str), "count": int, "left_out": int},
    "verify": {
        "ok": bool,
        "judge": str,
        "sandbox": str,
        "rows": [{"name": str, "group": str, "does": str, "cells": Table({"word": str, "wrong": bool, "why": str})}],
    },
    "sandbox": (
        {"command": str, "image": str},
        {"command": str, "sandboxes": [SANDBOX], "silent": Table(str)},
        {"command": str, "removed": [REMOVED], "found": [REMOVED], "silent": Table(str)},
        {"command": str, "passed": bool, "checks": [dict]},
        {"command": str, "floor_ms": float, "median_ms": Table(Table(float))},
    ),
    "corpus": (
        {"command": str, "corpus": str, **ADDED, "passages": int, "skipped": Table(int), "seconds": float},
        {"command": str, "corpora": [CORPUS], "silent": Table(str)},
        {"command": str, "corpus": str, "query": str, "hits": [PASSAGE], "seconds": float},
    ),
    "completion": {"shell": str, "script": str},
    "schema": {"what": str, "schema": dict},
    "study": ({"page": str}, {"study": str, "measured": int, "results": str, "page": str}, dict),
}
"""Command, or what a command writes -> the shape of its `data`."""

WRITES: Mapping[str, str] = {"run": "event", "demo": "event"}
"""Command -> the name in the `schema` of its answers, where that is not its own."""


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
