"""One flipped bit inside a value of a ledger, which SQLite does not notice, and everything that a reader can be asked.

Not here: damaged pages (`test_files.py`, `tests/crash/test_damage.py`).
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, get_args

from selfplay.ledger import Ledger, Reader, held_out, metrics, picking, watching
from selfplay.ledger.rows import COLUMNS, JSON_COLUMNS
from selfplay.types import Fault, Stage, Stop, ToolCall, Trajectory, Turn, Verdict, VerdictStage, play_id

JSON = [
    ("runs", "config"),
    *((table, column) for table, columns in COLUMNS.items() for column in columns if column in JSON_COLUMNS),
]
"""Every (table, column) that holds JSON."""

FAULT = Fault(culprit="machine", where="sampler", message="out of memory")


def flip(folder: Path, table: str, column: str) -> None:
    """Flip a bit of the first letter of what a row of `table` has in `column`, in the file of a closed ledger."""
    path = folder / "ledger.db"
    whole = path.read_bytes()
    (text,) = _asked(path, f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL LIMIT 1")
    beginning, at = text.encode()[:200], -1
    while (at := whole.find(beginning, at + 1)) >= 0:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        if _asked(path, f"SELECT count(*) FROM {table} WHERE {column} IS NOT NULL AND NOT json_valid({column})")[0]:
            return
    raise AssertionError(f"{column} of {table} does not lie in {path}")


def _asked(path: Path, sql: str) -> Any:
    # note: immutable, so that nothing is left beside the file.
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as connection:
        return connection.execute(sql).fetchone()


@contextlib.contextmanager
def unguarded(folder: Path) -> Iterator[sqlite3.Connection]:
    """The ledger without its triggers, to do damage."""
    with closing(sqlite3.connect(folder / "ledger.db")) as connection, connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        yield connection


def fill(folder: Path) -> None:
    """Append to a run that was played a row for every kind of JSON that it may lack; it is as whole as before."""
    with Ledger.open(folder) as ledger:
        config, seed = ledger.run_row().config_digest, ledger.seeds()[0].id
        place: dict[str, Any] = {"step": 0, "stage": "evaluate", "role": "solver", "subject_id": seed, "attempt": 0}
        call = ToolCall(name="shell", arguments={"cmd": "ls"}, result="a.py\n", exit_code=0, seconds=0.25)
        said = Turn(speaker="policy", token_ids=(8, 9), logprobs=(-0.5, -0.25), text="ab", calls=(call,))

        def play(index: int, **other: Any) -> Trajectory:
            own = play_id(config, **place, index=index)
            return Trajectory(id=own, **place, index=index, policy_version=(0, 0), **other)

        broken = play(90, turns=(), stop=Stop.FAULT, fault=FAULT)
        looked = play(91, turns=(Turn(speaker="prompt", token_ids=(5,), text="s"), said), stop=Stop.DONE)
        undecided = Verdict(
            trajectory_id=looked.id, stage="judge", valid=False, passed=None, reward=None, reason="infra", why="broke",
            fault=FAULT,
        )  # fmt: skip
        ledger.append(broken, looked, undecided)
        ledger.append_control(action="pause", arguments={"asked": "by a test"})
        first = next(iter(ledger.updates()), None)
        ledger.end_launch("done")
    with closing(sqlite3.connect(folder / "ledger.db")) as connection, connection:
        parent = (
            1,
            "../old",
            "c",
            -1,
            0,
            first.weights_digest if first else "w",
            "weights/x",
            '{"play.seed":[0,1]}',
            0,
        )
        connection.execute(f"INSERT INTO parents VALUES ({', '.join('?' * len(parent))})", parent)


def _step_by_step(reader: Reader) -> None:
    for step in range(-1, reader.open_step() + 1):
        for ask in (reader.choices, reader.tasks, reader.groups):
            ask(step)
        reader.ask(partial(picking.learnt_from, step=step))
        for stage in get_args(Stage):
            reader.trajectories(step, stage)
            reader.trajectories(step, stage, faulty=True)
            for decided in get_args(VerdictStage):
                reader.verdicts(step, stage, decided)


QUESTIONS: Mapping[str, Callable[[Reader], object]] = {
    **{name: getattr(Reader, name) for name in ("run_row", "parent_row", "launches", "status", "seeds", "faults")},
    **{name: getattr(Reader, name) for name in ("alarms", "control", "updates", "saves", "step_rows", "comparable")},
    "by step": _step_by_step,
    "known_tasks": lambda reader: reader.known_tasks(since=0, before=99),
    "proposals": lambda reader: reader.proposals(since=0, before=99),
    "learnt": lambda reader: reader.ask(partial(watching.learnt, after=-1)),
    "metrics": lambda reader: reader.ask(partial(metrics.played, after=-1)),
    "newest choices": lambda reader: reader.ask(partial(watching.newest_choices, limit=9)),
    "held-out tasks": lambda reader: reader.ask(held_out.tasks),
}
"""Everything that decodes what is stored."""
