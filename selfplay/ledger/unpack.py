"""Rows back to records: the inverse of `rows.py`, for readers. What cannot be decoded is `damage.Damaged`.

Not here: the queries that fetch the rows (`queries.py`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from selfplay.ledger import blobs, tally
from selfplay.ledger.blobs import Blob
from selfplay.ledger.damage import decoding
from selfplay.ledger.records import ControlRow, Launch, ParentRow, RunRow, StepRow
from selfplay.ledger.rows import COLUMNS
from selfplay.types import Choice, Fault, Group, Save, Seed, Stop, Task, ToolCall, Trajectory, Turn, Update, Verdict


def json_of(row: sqlite3.Row, column: str) -> Any:
    """What a column of JSON holds, in the form that records have it in; None for NULL.

    Raises:
        Damaged: it is no JSON, or not of its kind.
    """
    text = row[column]
    if text is None:
        return None
    form: Callable[[str], Any] = _FORMS.get(column, _object)
    with decoding(f"`{column}` of a row"):
        return form(text)


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    return value


_FORMS: Mapping[str, Callable[[str], Any]] = {
    "fault": lambda text: Fault(**_object(text)),
    "changed": lambda text: {key: (old, new) for key, (old, new) in _object(text).items()},
    "tallies": tally.load,
    "totals": tally.load,
}
"""Column -> its value, where that is no plain object."""


def run_of(row: sqlite3.Row) -> RunRow:
    """The row of `runs`."""
    same = ("config_digest", "seed", "game", "schema_version", "engine_version", "at")
    return RunRow(**{name: row[name] for name in same}, config=json_of(row, "config"))


def launch_of(row: sqlite3.Row) -> Launch:
    """A row of `launches` with how it ended, `ended_at` and `how`."""
    same = ("id", "pid", "host", "engine_version", "ended_at", "how")
    return Launch(**{name: row[name] for name in same}, started_at=row["at"])


def step_of(row: sqlite3.Row) -> StepRow:
    """A row of `steps`."""
    return StepRow(
        step=row["step"],
        opened_at=row["opened_at"],
        closed_at=row["at"],
        **{name: json_of(row, name) for name in ("stage_seconds", "counts", "tallies")},
    )


def control_of(row: sqlite3.Row) -> ControlRow:
    """A row of `control`."""
    return ControlRow(action=row["action"], arguments=json_of(row, "arguments"), at=row["at"])


def seed_of(row: sqlite3.Row) -> Seed:
    """A row of `seeds`."""
    same = ("id", "game", "source", "split")
    return Seed(**{name: row[name] for name in same}, payload=json_of(row, "payload"))


def choice_of(row: sqlite3.Row) -> Choice:
    """A row of `choices`."""
    return Choice(
        step=row["step"],
        index=row["position"],
        mode=row["mode"],
        subject_id=row["subject_id"],
        score=row["score"],
        why=row["why"],
        terms=json_of(row, "terms"),
    )


def task_of(row: sqlite3.Row) -> Task:
    """A row of `tasks`."""
    return Task(
        **{name: row[name] for name in ("id", "game", "seed_id", "key", "split", "step", "parent_id")},
        payload=json_of(row, "payload"),
    )


@decoding("a row of trajectories")
def trajectory_of(
    row: sqlite3.Row,
    *,
    turns: Sequence[sqlite3.Row],
    calls: Sequence[sqlite3.Row],
    packed: Mapping[str, Blob | None],
) -> Trajectory:
    """A row of `trajectories`, its rows of `turns` and `tool_calls` in order, and its blobs by column."""
    token_ids, logprobs = blobs.ids_of(_there(packed["token_ids"])), blobs.floats_of(_there(packed["logprobs"]))
    texts = blobs.text_of(_there(packed["texts"]))
    results = blobs.text_of(packed["results"]) if packed["results"] else ""
    pruned = not logprobs
    made: dict[int, list[ToolCall]] = {}
    at = 0
    for call in calls:
        result = results[at : at + call["num_chars"]]
        at += call["num_chars"]
        made.setdefault(call["turn"], []).append(
            ToolCall(
                name=call["name"],
                arguments=json_of(call, "arguments"),
                result=result,
                exit_code=call["exit_code"],
                seconds=call["seconds"],
            )
        )
    whole: list[Turn] = []
    ids_at = logprobs_at = chars_at = 0
    for turn in turns:
        num_logprobs = 0 if pruned else turn["num_logprobs"]
        whole.append(
            Turn(
                speaker=turn["speaker"],
                token_ids=tuple(token_ids[ids_at : ids_at + turn["num_tokens"]]),
                logprobs=tuple(logprobs[logprobs_at : logprobs_at + num_logprobs]),
                text=texts[chars_at : chars_at + turn["num_chars"]],
                calls=tuple(made.get(turn["position"], ())),
            )
        )
        ids_at, logprobs_at = ids_at + turn["num_tokens"], logprobs_at + num_logprobs
        chars_at += turn["num_chars"]
    return Trajectory(
        **{name: row[name] for name in ("id", "step", "stage", "role", "subject_id", "attempt", "seconds")},
        index=row["position"],
        turns=tuple(whole),
        stop=Stop(row["stop"]),
        policy_version=(row["policy_low"], row["policy_high"]),
        fault=json_of(row, "fault"),
        product=_object(blobs.text_of(packed["product"])) if packed["product"] else {},
    )


def verdict_of(row: sqlite3.Row) -> Verdict:
    """A row of `verdicts`."""
    return Verdict(
        **{name: row[name] for name in ("trajectory_id", "stage", "reward", "reason", "why", "task_id", "seconds")},
        valid=bool(row["valid"]),
        passed=None if row["passed"] is None else bool(row["passed"]),
        parts=json_of(row, "parts"),
        evidence=json_of(row, "evidence"),
        fault=json_of(row, "fault"),
    )


def group_of(row: sqlite3.Row, members: Sequence[sqlite3.Row]) -> Group:
    """A row of `groups` and its rows of `group_members` in order."""
    return Group(
        **{name: row[name] for name in ("id", "step", "role", "subject_id")},
        trajectory_ids=tuple(member["trajectory_id"] for member in members),
        rewards=tuple(member["reward"] for member in members),
        advantages=tuple(member["advantage"] for member in members),
        informative=bool(row["informative"]),
    )


@decoding("a row of updates")
def update_of(row: sqlite3.Row, packed: Mapping[str, Blob | None]) -> Update:
    """A row of `updates` and its blobs by column."""
    flat = blobs.floats_of(_there(packed["old_logprobs"]))
    old, at = [], 0
    for length in blobs.ids_of(_there(packed["old_lengths"])):
        old.append(tuple(flat[at : at + length]))
        at += length
    same = ("phase", "step", "policy_version", "lr", "weights_digest", "reference_digest", "fingerprint", "loss")
    return Update(
        **{name: row[name] for name in (*same, "grad_norm", "tokens", "skipped", "seconds")},
        metrics=json_of(row, "metrics"),
        trajectory_ids=tuple(json.loads(blobs.text_of(_there(packed["trajectory_ids"])))),
        advantages=tuple(blobs.floats_of(_there(packed["advantages"]))),
        partition=tuple(tuple(part) for part in json.loads(blobs.text_of(_there(packed["partition"])))),
        old_logprobs=tuple(old),
    )


def save_of(row: sqlite3.Row) -> Save:
    """A row of `saves`."""
    return Save(**{name: row[name] for name in COLUMNS["saves"]})


def parent_of(row: sqlite3.Row) -> ParentRow:
    """A row of `parents`."""
    same = ("path", "config_digest", "step", "policy_version", "weights_digest", "save_path")
    return ParentRow(**{name: row[name] for name in same}, changed=json_of(row, "changed"))


def _there(blob: Blob | None) -> Blob:
    if blob is None:
        raise ValueError("a blob is missing")
    return blob
