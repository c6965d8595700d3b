"""The checks of what was learnt: groups, updates, saves. See `check.py`.

Not here: whether an update, applied again, gives its weights (`replay`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from selfplay.ledger import blobs
from selfplay.ledger.blobs import Blob, unpack
from selfplay.ledger.found import Found, one

VARIANCE_FLOOR = 1e-6
"""Rewards closer together than this are the same (`learner.estimators`)."""

COMPARING = ("grpo", "dr_grpo", "rloo", "batch_std")
"""Estimators that compare siblings only: to them a group without variance teaches nothing."""

_MEMBERS = """
SELECT g.id AS group_id, g.num_members, g.informative, g.step AS step, g.role, g.subject_id, m.position, m.reward,
    m.advantage, m.trajectory_id, t.step AS own_step, t.role AS own_role,
    CASE WHEN g.subject_id LIKE 'cell:%' THEN (SELECT 'cell:' || coalesce(json_extract(s.payload, '$.strategy'), '')
        || '/' || coalesce(json_extract(s.payload, '$.hop'), 0) FROM seeds s WHERE s.id = t.subject_id)
    ELSE t.subject_id END AS own_subject,
    (SELECT v.reward FROM verdicts v WHERE v.trajectory_id = t.id
     AND v.stage = CASE t.stage WHEN 'propose' THEN 'grade' ELSE 'judge' END) AS decided
FROM groups g LEFT JOIN group_members m ON m.group_id = g.id LEFT JOIN trajectories t ON t.id = m.trajectory_id
WHERE {where} ORDER BY g.rowid, m.position
"""


def groups(connection: sqlite3.Connection, found: Found, *, where: str = "1", given: tuple[int, ...] = ()) -> None:
    """Each group has its members, their rewards as decided, and advantages that fit the rewards."""
    (estimator,) = connection.execute("SELECT json_extract(config, '$.\"learner.estimator\"') FROM runs").fetchone()
    (credit,) = connection.execute("SELECT json_extract(config, '$.\"learner.credit\"') FROM runs").fetchone()
    # note: turns teach where the outcomes of plays do not differ; how much they gained is not recorded.
    turns = credit == "gain"
    members: list[sqlite3.Row] = []
    for row in connection.execute(_MEMBERS.format(where=where), given):
        if members and members[0]["group_id"] != row["group_id"]:
            _group(members, found, compares=estimator in COMPARING, turns=turns)
            members = []
        members.append(row)
    if members:
        _group(members, found, compares=estimator in COMPARING, turns=turns)


def _group(members: Sequence[sqlite3.Row], found: Found, *, compares: bool, turns: bool) -> None:
    """`compares`: nothing but its own siblings gives a member of this run an advantage; `turns`: but its turns."""
    found.count += 1
    first = members[0]
    name = f"group {first['group_id']}"
    if first["position"] is None or [m["position"] for m in members] != list(range(first["num_members"])):
        found.problem(f"{name}: it has not the {first['num_members']} members that it counts")
        return
    place = [(m["own_step"], m["own_role"], m["own_subject"]) for m in members]
    found.unless(
        set(place) == {(first["step"], first["role"], first["subject_id"])}, f"{name}: a member was played elsewhere"
    )
    found.unless(all(m["reward"] == m["decided"] for m in members), f"{name}: a reward is not what was decided")
    rewards = [m["reward"] for m in members]
    pairs = sorted((m["reward"], m["advantage"]) for m in members)
    varied = len(members) > 1 and max(rewards) - min(rewards) > VARIANCE_FLOOR
    informative = varied or any(advantage for _, advantage in pairs)
    taught = bool(first["informative"])
    found.unless(informative == taught or (turns and taught), f"{name}: its rewards say otherwise whether it teaches")
    found.unless(varied or not informative or not compares, f"{name}: its rewards are the same, yet it has advantages")
    for (low, small), (high, large) in pairwise(pairs):
        if small > large or (low == high and small != large):
            found.problem(f"{name}: its advantages are not in the order of its rewards")
            break


_UPDATES = "SELECT * FROM updates ORDER BY phase = 'play', step"


def updates(connection: sqlite3.Connection, found: Found) -> None:
    """Versions go up by one with each change, steps follow each other, members and advantages are the groups'."""
    version, before = start(connection)
    expected = {"warmup": 0, "play": 0}
    for row in connection.execute(_UPDATES):
        found.count += 1
        phase, step, skipped = row["phase"], row["step"], row["skipped"] is not None
        name = f"update {step} of phase {phase}"
        found.unless(step == expected[phase], f"{name}: update {expected[phase]} is missing before it")
        expected[phase] = step + 1
        version += not skipped
        found.unless(row["policy_version"] == version, f"{name}: its version is not {version}")
        version = row["policy_version"]
        same = before is None or row["weights_digest"] == before
        found.unless(same or not skipped, f"{name}: it was skipped, and the weights changed")
        before = row["weights_digest"]
        for problem in content(connection, row, skipped=skipped):
            found.problem(f"{name}: {problem}")
    closed = one(connection, "SELECT coalesce(max(step), -1) + 1 FROM steps")
    found.unless(expected["play"] == closed, f"{closed} steps are closed, and {expected['play']} have an update")


def start(connection: sqlite3.Connection) -> tuple[int, str | None]:
    """Version and digest of the weights that the run began with; the pretrained ones' digest is not recorded."""
    row = connection.execute("SELECT policy_version, weights_digest FROM parents").fetchone()
    return (row[0], row[1]) if row else (0, None)


def content(connection: sqlite3.Connection, row: sqlite3.Row, *, skipped: bool) -> Iterator[str]:
    """What is wrong with the blobs of one update."""
    ids = json.loads(blobs.text_of(_blob(connection, row["trajectory_ids"])))
    advantages = blobs.floats_of(_blob(connection, row["advantages"]))
    partition = json.loads(blobs.text_of(_blob(connection, row["partition"])))
    lengths = blobs.ids_of(_blob(connection, row["old_lengths"]))
    old = _blob(connection, row["old_logprobs"])
    if len(advantages) != len(ids):
        yield f"{len(advantages)} advantages for {len(ids)} samples"
    parts = [position for part in partition for position in part]
    if len(set(parts)) != len(parts) or not set(parts) <= set(range(len(ids))):
        yield "its micro-batches are no partition of its samples"
    if row["phase"] == "warmup":
        return
    if len(lengths) not in (0, len(ids)):
        yield f"log-probabilities of {len(lengths)} samples, and it has {len(ids)}"
    if old.raw and len(blobs.floats_of(old)) != sum(lengths):
        yield "its log-probabilities are more or fewer than its samples have tokens"
    yield from _members(connection, row["step"], dict(zip(ids, advantages, strict=False)), lengths, skipped=skipped)


def _members(
    connection: sqlite3.Connection, step: int, advantages: dict[str, float], lengths: Sequence[int], *, skipped: bool
) -> Iterator[str]:
    """What is wrong between an update and the groups of its step."""
    sql = (
        "SELECT m.trajectory_id, m.advantage, t.num_sampled FROM groups g CROSS JOIN group_members m "
        "ON m.group_id = g.id JOIN trajectories t ON t.id = m.trajectory_id WHERE g.step = ?"
    )
    grouped = {row[0]: (row[1], row[2]) for row in connection.execute(sql, (step,))}
    strange = [trajectory_id for trajectory_id in advantages if trajectory_id not in grouped]
    if strange:
        yield f"trajectory {strange[0]} is in no group of its step"
        return
    if any(advantage != grouped[trajectory_id][0] for trajectory_id, advantage in advantages.items()):
        yield "its advantages are not those of its step's groups"
    sampled = [grouped[trajectory_id][1] for trajectory_id in advantages]
    if any(length not in (0, num) for length, num in zip(lengths, sampled, strict=False)):
        yield "its log-probabilities are not one a sampled token"
    if not skipped and one(connection, "SELECT json_extract(config, '$.\"roles.train\"') IS NOT NULL FROM runs"):
        sql = "SELECT id FROM trajectory_states WHERE step = ? AND state = 'trained'"
        if {row[0] for row in connection.execute(sql, (step,))} != set(advantages):
            yield "its samples are not the trajectories that the step trains on"


def saves(connection: sqlite3.Connection, found: Found) -> None:
    """Each save has the digest of the update whose version it has."""
    version, digest = start(connection)
    for row in connection.execute("SELECT * FROM saves ORDER BY id"):
        found.count += 1
        sql = "SELECT weights_digest FROM updates WHERE policy_version = ? ORDER BY skipped IS NOT NULL LIMIT 1"
        made = connection.execute(sql, (row["policy_version"],)).fetchone()
        expected = digest if row["policy_version"] == version else made[0] if made else ""
        name = f"save {row['path']}"
        found.unless(expected != "", f"{name}: no update made version {row['policy_version']}")
        found.unless(
            expected in (None, "", row["weights_digest"]), f"{name}: its digest is not that of the update before it"
        )


def _blob(connection: sqlite3.Connection, blob_id: Any) -> Blob:
    """The blob of that id; empty where it is pruned."""
    return unpack(*connection.execute("SELECT dtype, codec, data FROM blobs WHERE id = ?", (blob_id,)).fetchone())
