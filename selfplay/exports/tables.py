"""A run as tables in Parquet: tasks, plays, metrics.

Columns and types are fixed (`TASKS`, `PLAYS`, `METRICS`; README.md says what each means) and written with pyarrow, some
rows at a time, so that memory does not grow with the run. What differs from game to game is JSON text.

Not here: a data set with a card (`dataset`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from selfplay.exports.curves import moments
from selfplay.exports.plays import Play, plays
from selfplay.exports.seam import BOTH, Asked, Made, Out, Simple, needs, require_rows
from selfplay.exports.tasks import tasks_of
from selfplay.types import Seed, Task
from selfplay.views.traces import messages

Columns = Mapping[str, str]
"""Name -> type, as `_type` reads it."""

TASKS: Columns = {
    "id": "text",
    "game": "text",
    "seed": "text",
    "split": "text",
    "step": "int",
    "parent_id": "text",
    "key": "text",
    "payload": "text",
    "attempts": "int",
    "decided": "int",
    "passed": "int",
    "solve_rate": "float",
}
PLAYS: Columns = {
    "id": "text",
    "step": "int",
    "stage": "text",
    "side": "text",
    "role": "text",
    "split": "text",
    "subject_id": "text",
    "task_id": "text",
    "seed": "text",
    "index": "int",
    "messages": "messages",
    "token_ids": "ints",
    "sampled": "flags",
    "logprobs": "floats",
    "stop": "text",
    "truncated": "flag",
    "policy_low": "int",
    "policy_high": "int",
    "valid": "flag",
    "passed": "flag",
    "reward": "float",
    "reason": "text",
    "why": "text",
    "group_id": "text",
    "advantage": "float",
    "seconds": "float",
}
METRICS: Columns = {"step": "int", "at": "float", "name": "text", "value": "float"}

ROWS = 2_000
"""Of a row group, at least; the last may have fewer."""


def task_rows(asked: Asked) -> Iterator[dict[str, Any]]:
    """A row a task, with what its attempts came to."""
    seeds = {seed.id: seed for seed in asked.reader.seeds()}
    for task in tasks_of(asked):
        yield _task(asked, task, seeds.get(task.seed_id))


def _task(asked: Asked, task: Task, seed: Seed | None) -> dict[str, Any]:
    played = [one.id for one in asked.reader.trajectories_of(task.id) if one.fault is None]
    found = [verdict for name in played for verdict in asked.reader.verdicts_of(name) if verdict.stage == "judge"]
    decided = [verdict for verdict in found if verdict.passed is not None]
    passed = sum(bool(verdict.passed) for verdict in decided)
    return {
        **{name: getattr(task, name) for name in ("id", "game", "split", "step", "parent_id", "key")},
        "seed": seed.source if seed is not None else "",
        "payload": json.dumps(dict(task.payload), ensure_ascii=False, sort_keys=True),
        "attempts": len(played),
        "decided": len(decided),
        "passed": passed,
        "solve_rate": passed / len(decided) if decided else None,
    }


def play_row(play: Play) -> dict[str, Any]:
    """One play."""
    own, verdict = play.trajectory, play.verdict
    same = {name: getattr(own, name) for name in ("id", "step", "stage", "role", "subject_id", "index", "seconds")}
    return {
        **same,
        "side": play.side,
        "split": play.split,
        "task_id": play.task.id if play.task is not None else None,
        "seed": play.seed.source if play.seed is not None else "",
        "messages": messages(own.turns),
        "token_ids": list(own.token_ids),
        "sampled": [turn.sampled for turn in own.turns for _ in turn.token_ids],
        "logprobs": [value for turn in own.turns for value in turn.logprobs],
        "stop": str(own.stop),
        "truncated": own.stop.truncated,
        "policy_low": own.policy_version[0],
        "policy_high": own.policy_version[1],
        "valid": verdict.valid if verdict is not None and verdict.fault is None else None,
        "passed": verdict.passed if verdict is not None else None,
        "reward": play.reward,
        "reason": verdict.reason if verdict is not None else None,
        "why": play.why,
        "group_id": play.group.id if play.group is not None else None,
        "advantage": play.advantage,
    }


def metric_rows(asked: Asked) -> Iterator[dict[str, Any]]:
    """A row a number of a step."""
    for moment in moments(asked):
        for name, value in moment.values.items():
            yield {"step": moment.step, "at": moment.at, "name": name, "value": value}


def write(file: Path, columns: Columns, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write a table; how many rows it has.

    Raises:
        NotReady: pyarrow is missing.
    """
    pa, parquet = needs("pyarrow", extra="parquet"), needs("pyarrow.parquet", extra="parquet")
    schema = pa.schema([(name, _type(pa, kind)) for name, kind in columns.items()])
    file.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with closing(parquet.ParquetWriter(file, schema, compression="zstd")) as writer:
        kept: list[Mapping[str, Any]] = []
        for row in rows:
            kept.append(row)
            count += 1
            if len(kept) == ROWS:
                writer.write_table(pa.Table.from_pylist(kept, schema=schema))
                kept = []
        writer.write_table(pa.Table.from_pylist(kept, schema=schema))
    return count


def _type(pa: Any, kind: str) -> Any:
    said = pa.struct([("role", pa.string()), ("content", pa.string())])
    kinds: Mapping[str, Callable[[], Any]] = {
        "text": pa.string,
        "int": pa.int64,
        "float": pa.float64,
        "flag": pa.bool_,
        "ints": lambda: pa.list_(pa.int32()),
        "floats": lambda: pa.list_(pa.float32()),
        "flags": lambda: pa.list_(pa.bool_()),
        "messages": lambda: pa.list_(said),
    }
    return kinds[kind]()


def _write(asked: Asked, out: Out) -> Made:
    require_rows(asked)
    needs("pyarrow", extra="parquet")
    count = write(out.folder / "tasks.parquet", TASKS, task_rows(asked))
    count += write(out.folder / "plays.parquet", PLAYS, map(play_row, plays(asked)))
    kept = (row for row in metric_rows(asked) if asked.step in (None, row["step"]))
    count += write(out.folder / "metrics.parquet", METRICS, kept)
    return Made(
        count=count, next="python -c \"import pyarrow.parquet as p; print(p.read_table('{to}/plays.parquet'))\""
    )


PARQUET = Simple(
    about="tables of tasks, plays and metrics in Parquet", noun="row", shape="folder", takes=BOTH, writer=_write
)
