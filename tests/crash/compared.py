"""How a run that was killed differs from one that was not: rows, weights, and what was left behind.

`differences` is empty where guarantee C holds: equal tables, equal weights, no row lost or repeated, no
sandbox, process or half-written file left.

Not here: running and killing (`harness.py`).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfplay.ledger import Ledger

if TYPE_CHECKING:
    from harness import Chain


def differences(chain: Chain, whole: Path) -> list[str]:
    """How the finished chain differs from the run without interruption, a line each."""
    found = left_files(chain.folder)
    mine, theirs = _comparable(chain.folder), _comparable(whole)
    found += [f"table {name}" for name in theirs if mine[name] != theirs[name]]
    for folder in (chain.folder, whole):
        with Ledger.read(folder) as ledger:
            found += [f"{folder.name}: {sentence}" for sentence in ledger.check()]
    lost, repeated = rows_lost_and_repeated(chain.folder, whole)
    found += [f"{lost} rows lost"] if lost else []
    found += [f"{repeated} rows repeated"] if repeated else []
    found += [] if final_weights(chain.folder) == final_weights(whole) else ["the final weights differ"]
    return found + left_sandboxes(chain)


def _comparable(folder: Path) -> dict[str, str]:
    with Ledger.read(folder) as ledger:
        return dict(ledger.comparable())


def rows_lost_and_repeated(folder: Path, whole: Path) -> tuple[int, int]:
    """(rows of `whole` that `folder` lacks, rows of `folder` that `whole` lacks), by what names them."""
    keys = {
        "trajectories": "id",
        "verdicts": "trajectory_id || stage",
        "tasks": "id",
        "choices": "step || '.' || position",
        "updates": "phase || step",
        "groups": "id",
        "steps": "step",
        "seeds": "id",
    }
    lost = repeated = 0
    for table, key in keys.items():
        mine, theirs = (_column(place, f"SELECT {key} FROM {table}") for place in (folder, whole))
        lost += sum((theirs - mine).values())
        repeated += sum((mine - theirs).values())
    return lost, repeated


def _column(folder: Path, sql: str) -> Counter[Any]:
    with contextlib.closing(sqlite3.connect(f"file:{folder / 'ledger.db'}?mode=ro", uri=True)) as connection:
        return Counter(row[0] for row in connection.execute(sql))


def final_weights(folder: Path) -> str:
    """The digest of the weights as they lie on the disk after the last step; it is the recorded one.

    Raises:
        AssertionError: they are not there, or not what the ledger says.
    """
    from selfplay.learner import weights

    with Ledger.read(folder) as ledger:
        version, recorded = ledger.status().policy_version, [u.weights_digest for u in ledger.updates()][-1]
        saves = [s for s in ledger.saves() if s.policy_version == version and (folder / s.path).is_dir()]
    assert saves, f"{folder.name}: the weights after the last step are not saved"
    found = weights.tensors_digest(weights.read(folder / saves[-1].path).tensors)
    assert found == saves[-1].weights_digest == recorded, f"{folder.name}: the saved weights are not the recorded ones"
    return found


EXPECTED = ("ledger.db", "ledger.lock", "config.toml", "weights", "logs", "control.jsonl")
EMPTY = ("ledger.db-wal", "ledger.db-shm")
"""What SQLite leaves where the last connection could only read; without a row in it."""


def left_files(folder: Path) -> list[str]:
    """What lies in a finished run's folder and is not part of a run."""
    wal = folder / "ledger.db-wal"
    expected = EXPECTED if wal.is_file() and wal.stat().st_size else EXPECTED + EMPTY
    found = [file.name for file in folder.iterdir() if file.name not in expected]
    for place in (folder / "weights").iterdir():
        if place.name.startswith(("step_", "warmup", "start")) and (place / "model.safetensors").is_file():
            found += [f"weights/{place.name}/{part.name}" for part in place.iterdir() if part.name.startswith(".")]
        else:
            found.append(f"weights/{place.name}")
    return [f"left behind: {name}" for name in found]


def left_sandboxes(chain: Chain) -> list[str]:
    """Sandboxes and processes that this chain's processes made and that are still there."""
    owners = tuple(f":{pid}:" for pid in chain.pids)
    found = [f"sandbox left: {line}" for line in _marked() if any(owner in line for owner in owners)]
    if chain.setup.sandbox == "docker":
        form = '{{.Label "selfplay.owner"}} {{.Names}}'
        argv = ["docker", "ps", "-a", "--filter", "label=selfplay.owner", "--format", form]
        listed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
        found += [f"container left: {line}" for line in listed if any(owner in line for owner in owners)]
    sessions = set(chain.pids)
    found += [f"process left: {pid} {argv}" for pid, session, argv in _processes() if session in sessions]
    return found


def _processes() -> Iterator[tuple[int, int, str]]:
    """(process, session, arguments) of every process."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError):
                argv = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                stat = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if stat[0] != "Z":
                    yield int(entry.name), int(stat[3]), argv


def _marked() -> Iterator[str]:
    """A line for each bubblewrap process and each local sandbox folder: it holds `host:pid:start` of its owner."""
    for pid, _, argv in _processes():
        if "SELFPLAY_OWNER" in argv:
            yield f"process {pid}: {argv}"
    for owner in Path("/tmp").glob(f"selfplay-local-{os.getuid()}/sp-*/owner"):
        with contextlib.suppress(OSError):
            yield f"folder {owner.parent.name}: {owner.read_text()}"
