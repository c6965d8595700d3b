"""Records of whole steps for the ledger's benchmark, and a way to make a ledger of a million trajectories of them.

A step is the quickstart's, larger: 8 seeds, 4 proposals a seed, 8 attempts a task. Prompts have about 500
tokens and are shared inside a group, replies have 8 to 64. Text is cut from the standard library's source and
split into tokens by a rule, so that both deflate as real ones do.

`multiply` copies the steps that are there under other ids, by SQL: a million trajectories in minutes. What it does
not change is inside blobs: the trajectory ids that a copied update names are the original's.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import shutil
import sqlite3
import subprocess
import textwrap
import zlib
from functools import cache
from pathlib import Path

from selfplay.ledger import tally
from selfplay.ledger.rows import BLOB_COLUMNS
from selfplay.types import (
    Choice,
    Group,
    Seed,
    Stage,
    Stop,
    Task,
    Trajectory,
    Turn,
    Update,
    Verdict,
    VerdictStage,
    digest,
    play_id,
    task_id,
)

CONFIG = "bench"
SEEDS, PROPOSALS, ATTEMPTS = 8, 4, 8
PER_STEP = SEEDS * PROPOSALS * (1 + ATTEMPTS)
PROMPT_TOKENS = 500
REPLY_TOKENS = (8, 64)
_TOKEN = re.compile(r" ?\w{1,7}|\s+|[^\w\s]{1,2}")

Record = Seed | Choice | Task | Trajectory | Verdict


def seed_of(number: int) -> Seed:
    """A seed."""
    return Seed(id=digest("seed", number), game="code", source=f"bench:{number}", payload={"n": number}, split="train")


@cache
def _tokens() -> list[str]:
    text = "".join(Path(str(m.__file__)).read_text() for m in (argparse, json, random, subprocess, textwrap))
    return _TOKEN.findall(text)


@cache
def prompt(number: int) -> Turn:
    """Some 500 tokens of source."""
    draw = random.Random(f"prompt {number}")
    return _turn(draw, PROMPT_TOKENS + draw.randrange(-100, 100), sampled=False)


@cache
def reply(number: int) -> Turn:
    """8 to 64 tokens with log-probabilities."""
    draw = random.Random(f"reply {number}")
    return _turn(draw, draw.randint(*REPLY_TOKENS), sampled=True)


def _turn(draw: random.Random, count: int, *, sampled: bool) -> Turn:
    tokens = _tokens()
    start = draw.randrange(len(tokens) - count)
    words = tokens[start : start + count]
    # note: a sampler's log-probabilities are float32: most bits are noise.
    floats = tuple(-draw.getrandbits(22) / 2**21 for _ in words) if sampled else ()
    return Turn(
        speaker="policy" if sampled else "prompt",
        token_ids=tuple(zlib.crc32(word.encode()) % 49_152 for word in words),
        logprobs=floats,
        text="".join(words),
    )


def _play(draw: random.Random, step: int, stage: Stage, role: str, subject: str, index: int, asked: Turn) -> Trajectory:
    return Trajectory(
        id=play_id(CONFIG, step=step, stage=stage, role=role, subject_id=subject, index=index, attempt=0),
        step=step,
        stage=stage,
        role=role,
        subject_id=subject,
        index=index,
        turns=(asked, reply(draw.randrange(2048))),
        stop=Stop.DONE,
        policy_version=(step, step),
        seconds=1.0,
    )


def step_records(step: int) -> tuple[list[Record], list[Group], Update]:
    """Everything of one step, in the order in which a run would append it."""
    draw = random.Random(step)
    records: list[Record] = []
    groups: list[Group] = []
    members: list[Trajectory] = []
    for s in range(SEEDS):
        seed = seed_of(s)
        records.append(Choice(step=step, index=s, mode="propose", subject_id=seed.id, score=1.0, why="least played"))
        asked = prompt(draw.randrange(512))
        proposals = [_play(draw, step, "propose", "injector", seed.id, p, asked) for p in range(PROPOSALS)]
        for proposal in proposals:
            task = _task(step, seed, proposal)
            records += [proposal, task, _verdict(proposal, "mint", task.id), _verdict(proposal, "grade", None)]
            shown = prompt(draw.randrange(512))
            attempts = [_play(draw, step, "attempt", "repairer", task.id, a, shown) for a in range(ATTEMPTS)]
            for attempt in attempts:
                records += [attempt, _verdict(attempt, "judge", None)]
            groups.append(_group(attempts))
            members += attempts
        groups.append(_group(proposals))
        members += proposals
    return records, groups, _update(step, members)


def _task(step: int, seed: Seed, proposal: Trajectory) -> Task:
    key = f"{step} {seed.id} {proposal.index}"
    return Task(
        id=task_id(CONFIG, game="code", key=key),
        game="code",
        seed_id=seed.id,
        key=key,
        payload={"path": "toolz/itertoolz.py", "source": proposal.turns[0].text[:600], "tests": ["a", "b", "c"]},
        split="train",
        step=step,
        parent_id=proposal.id,
    )


def _verdict(trajectory: Trajectory, stage: VerdictStage, task: str | None) -> Verdict:
    return Verdict(
        trajectory_id=trajectory.id,
        stage=stage,
        valid=True,
        passed=trajectory.index % 2 == 0 if stage == "judge" else None,
        reward=None if stage == "mint" else float(trajectory.index % 2),
        reason="tests_fail",
        why="two of the stable tests fail with the edit",
        task_id=task,
        parts={"solve_rate": 0.5} if stage == "grade" else {},
        evidence={
            "failed": ["tests/test_itertoolz.py::test_groupby", "tests/test_itertoolz.py::test_countby"],
            "message": "AssertionError: assert {1: [1], 2: [2]} == {1: [1, 2]}",
            "seconds": 0.4,
        },
    )


def _group(members: list[Trajectory]) -> Group:
    rewards = tuple(float(member.index % 2) for member in members)
    return Group(
        id=members[0].group_id,
        step=members[0].step,
        role=members[0].role,
        subject_id=members[0].subject_id,
        trajectory_ids=tuple(member.id for member in members),
        rewards=rewards,
        advantages=tuple(reward - 0.5 for reward in rewards),
        informative=True,
    )


def _update(step: int, members: list[Trajectory]) -> Update:
    return Update(
        step=step,
        phase="play",
        policy_version=step + 1,
        trajectory_ids=tuple(member.id for member in members),
        advantages=tuple(0.5 for _ in members),
        partition=tuple((i,) for i in range(len(members))),
        old_logprobs=tuple(member.turns[1].logprobs for member in members),
        lr=1e-6,
        weights_digest=digest("weights", step),
        reference_digest=None,
        fingerprint="bench",
        loss=0.1,
        grad_norm=1.0,
        tokens=sum(member.num_sampled for member in members),
        seconds=1.0,
    )


_TABLES = ("blobs", "choices", "trajectories", "turns", "tasks", "verdicts", "groups", "group_members", "updates")
_IDS = frozenset({"trajectory_id", "task_id", "group_id", "parent_id"})
_BLOBS = frozenset({*BLOB_COLUMNS["trajectories"], *BLOB_COLUMNS["updates"]})


def multiply(folder: Path, num_trajectories: int) -> int:
    """Copy the closed steps of the run in `folder` under new ids until it has that many; how many it has."""
    path, original = folder / "ledger.db", folder / "original.db"
    shutil.copy(path, original)
    connection = sqlite3.connect(path, isolation_level=None)
    # note: nothing else has the file open, and a bench's file need not survive a crash.
    for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -524288"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    connection.execute("ATTACH ? AS original", (str(original),))
    count = int(connection.execute("SELECT count(*) FROM trajectories").fetchone()[0])
    (blobs,) = connection.execute("SELECT max(id) FROM blobs").fetchone()
    steps = connection.execute("SELECT * FROM steps ORDER BY step").fetchall()
    totals = tally.load(steps[-1][5])
    copies = max(1, math.ceil(num_trajectories / count))
    for copy in range(1, copies):
        mask, first = zlib.crc32(f"copy {copy}".encode()), copy * len(steps)
        connection.create_function("other", 1, lambda i, mask=mask: i and f"{int(i[:8], 16) ^ mask:08x}{i[8:]}")
        connection.execute("BEGIN")
        for table in _TABLES:
            connection.execute(_copying(connection, table), {"step": first, "blob": copy * blobs})
        for step, stage_seconds, counts, opened_at, tallies, _, at in steps:
            totals = tally.add(totals, tally.load(tallies))
            row = (first + step, stage_seconds, counts, opened_at, tallies, json.dumps(tally.dump(totals)), at)
            connection.execute("INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        connection.execute("COMMIT")
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.close()
    original.unlink()
    return count * copies


def _copying(connection: sqlite3.Connection, table: str) -> str:
    """Insert the original's rows of `table` once more, shifted to other steps, ids and blobs."""
    values = []
    for _, column, *_ in connection.execute(f"PRAGMA table_info({table})"):
        if column in ("step", "policy_low", "policy_high", "policy_version"):
            values.append(f"{column} + :step")
        elif column in _BLOBS or (table == "blobs" and column == "id"):
            values.append(f"{column} + :blob")
        elif column in _IDS or (column == "id" and table in ("trajectories", "tasks", "groups")):
            values.append(f"other({column})")
        elif column == "subject_id" and table in ("trajectories", "groups"):
            values.append("CASE role WHEN 'repairer' THEN other(subject_id) ELSE subject_id END")
        else:
            values.append(column)
    return f"INSERT INTO main.{table} SELECT {', '.join(values)} FROM original.{table}"
