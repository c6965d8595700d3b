"""Rows back to records: the inverse of `rows.py`, for readers.

Not here: the queries that fetch the rows (`queries.py`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence

from selfplay.ledger import blobs
from selfplay.ledger.blobs import Blob
from selfplay.ledger.records import ParentRow
from selfplay.ledger.rows import COLUMNS
from selfplay.types import Choice, Fault, Group, Save, Seed, Stop, Task, ToolCall, Trajectory, Turn, Update, Verdict


def seed_of(row: sqlite3.Row) -> Seed:
    """A row of `seeds`."""
    return Seed(
        id=row["id"], game=row["game"], source=row["source"], payload=json.loads(row["payload"]), split=row["split"]
    )


def choice_of(row: sqlite3.Row) -> Choice:
    """A row of `choices`."""
    return Choice(
        step=row["step"],
        index=row["position"],
        mode=row["mode"],
        subject_id=row["subject_id"],
        score=row["score"],
        why=row["why"],
        terms=json.loads(row["terms"]),
    )


def task_of(row: sqlite3.Row) -> Task:
    """A row of `tasks`."""
    return Task(
        **{name: row[name] for name in ("id", "game", "seed_id", "key", "split", "step", "parent_id")},
        payload=json.loads(row["payload"]),
    )


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
                arguments=json.loads(call["arguments"]),
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
        fault=_fault_of(row["fault"]),
        product=json.loads(blobs.text_of(packed["product"])) if packed["product"] else {},
    )


def verdict_of(row: sqlite3.Row) -> Verdict:
    """A row of `verdicts`."""
    return Verdict(
        **{name: row[name] for name in ("trajectory_id", "stage", "reward", "reason", "why", "task_id", "seconds")},
        valid=bool(row["valid"]),
        passed=None if row["passed"] is None else bool(row["passed"]),
        parts=json.loads(row["parts"]),
        evidence=json.loads(row["evidence"]),
        fault=_fault_of(row["fault"]),
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
        metrics=json.loads(row["metrics"]),
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
    changed = {key: (old, new) for key, (old, new) in json.loads(row["changed"]).items()}
    return ParentRow(**{name: row[name] for name in same}, changed=changed)


def _fault_of(text: str | None) -> Fault | None:
    return None if text is None else Fault(**json.loads(text))


def _there(blob: Blob | None) -> Blob:
    assert blob is not None, "the schema has it NOT NULL"
    return blob
