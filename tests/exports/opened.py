"""`python opened.py FORMAT PLACE`: an export opened by the library that it is for; prints what it read as JSON.

Needs that library and nothing of selfplay, so that any interpreter can run it (Harbor wants a newer Python).
"""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def parquet(place: Path) -> Any:
    import pyarrow.parquet as pq

    tables = {file.stem: pq.read_table(file) for file in sorted(place.glob("*.parquet"))}
    return {
        "rows": {name: table.num_rows for name, table in tables.items()},
        "columns": {name: {field.name: str(field.type) for field in table.schema} for name, table in tables.items()},
        "plays": tables["plays"].to_pylist(),
        "metrics": tables["metrics"].to_pylist(),
    }


def hf(place: Path) -> Any:
    import datasets
    from huggingface_hub import DatasetCard

    found = {}
    for table in ("tasks", "plays"):
        loaded = datasets.load_dataset(str(place), table, cache_dir=str(place.with_name("hf-cache")))
        found[table] = {split: {"rows": rows.num_rows, "ids": rows["id"][:]} for split, rows in loaded.items()}
    card = DatasetCard.load(place / "README.md")
    return {"tables": found, "license": card.data.license, "tags": card.data.tags}


def tensorboard(place: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (folder,) = place.iterdir()
    read = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    read.Reload()
    return {name: [[e.step, e.wall_time, e.value] for e in read.Scalars(name)] for name in read.Tags()["scalars"]}


def trackio(place: Path) -> Any:
    os.environ["TRACKIO_DIR"] = str(place)
    from trackio import Api
    from trackio.sqlite_storage import SQLiteStorage

    (run,) = Api().runs("selfplay")
    return {"name": run.name, "config": run.config, "logs": SQLiteStorage.get_logs("selfplay", run.name)}


def wandb(place: Path) -> Any:
    from wandb.proto import wandb_internal_pb2

    (file,) = place.glob("wandb/offline-run-*/run-*.wandb")
    found: dict[str, Any] = {"history": []}
    for data in _records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found["name"] = record.run.display_name
        elif kind == "history":
            items = {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in record.history.item}
            found["history"].append(items)
    return found


def _records(data: bytes) -> Iterator[bytes]:
    """LevelDB's log format: blocks of 32 KiB after a header, records in pieces of (checksum, length, type, bytes)."""
    block, at, whole = 1 << 15, 7, b""
    while at + 7 <= len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        if kind == 0:
            return
        whole = (b"" if kind in (1, 2) else whole) + data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield whole


def inspect(place: Path) -> Any:
    from inspect_ai.analysis import samples_df
    from inspect_ai.log import list_eval_logs, read_eval_log

    logs = [read_eval_log(info) for info in list_eval_logs(str(place), descending=False)]
    return {
        "logs": [
            {
                "task": log.eval.task,
                "status": log.status,
                "accuracy": {name: m.value for name, m in log.results.scores[0].metrics.items()},
                "samples": [
                    {
                        "id": one.uuid,
                        "epoch": one.epoch,
                        "said": [[m.role, m.text] for m in one.messages],
                        "score": one.scores["verdict"].value if one.scores else None,
                        "why": one.scores["verdict"].explanation if one.scores else None,
                        "reply": one.output.completion,
                    }
                    for one in log.samples
                ],
            }
            for log in logs
        ],
        "frame": len(samples_df(str(place), quiet=True)),
    }


def atif(place: Path) -> Any:
    try:
        from harbor.models.trajectories import Trajectory
    except ImportError:
        from atif import Trajectory

    found = [Trajectory.model_validate_json(file.read_text()) for file in sorted(place.rglob("*.json"))]
    return [
        {"id": one.trajectory_id, "sources": [s.source for s in one.steps], "reward": one.extra["reward"]}
        for one in found
    ]


def harbor(place: Path) -> Any:
    from harbor.models.task.task import Task

    found = [Task(folder) for folder in sorted(place.iterdir())]
    return [
        {
            "name": one.name,
            "instruction": one.instruction,
            "files": [
                one.paths.discovered_test_path is not None,
                one.paths.discovered_solve_path is not None,
                (one.paths.environment_dir / "Dockerfile").is_file(),
            ],
            "split": one.config.metadata["split"],
        }
        for one in found
    ]


READERS: dict[str, Callable[[Path], Any]] = {
    one.__name__: one for one in (parquet, hf, tensorboard, trackio, wandb, inspect, atif, harbor)
}

if __name__ == "__main__":
    json.dump(READERS[sys.argv[1]](Path(sys.argv[2]).resolve()), sys.stdout)
