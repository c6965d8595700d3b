"""What the ledger costs: appending, size, pruning, questions, and readers beside the writer.

    python tests/bench/ledger.py [--trajectories N] [--folder DIR]

It appends whole steps through `Ledger.append` and `close_step`, as the loop does, with blobs; beside it in the same
run SQLite itself takes the same rows (the limit: nothing is packed or made), sqlite-utils takes them 200 a
transaction, and one row at a time is committed in each synchronisation mode. With `--trajectories` above
`APPENDED` the file is grown by copies in SQL (`ledger_data.multiply`) and appended to again at that size; status,
the curriculum's choice and `inspect` are asked there. Rows are counted in the file, blobs as rows of their own.
Reports; does not gate.

Processor seconds are of this process (both threads) and tell more than the clock where the machine is shared.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Self

import ledger_data as data
from sqlite_utils import Database

from selfplay.curriculum import uniform
from selfplay.ledger import Ledger, Reader
from selfplay.types import record
from selfplay.views import inspect, inspect_data

APPENDED = 20_000
"""Trajectories that go in through the ledger before the file is grown by copies."""
STEP_SECONDS = 60.0
"""What a step takes on two cores without a GPU (DESIGN §6: sampling alone is 50 s)."""
READERS, POLL_SECONDS = 8, 0.1
TABLES = ("blobs", "choices", "trajectories", "turns", "tasks", "verdicts", "groups", "group_members", "updates")


@record
class Spent:
    """What some rows took."""

    rows: int
    seconds: float
    worked: float
    """Processor seconds."""

    def __str__(self) -> str:
        return f"{self.rows / self.seconds:>9,.0f} rows/s {self.rows / self.worked:>10,.0f} a CPU second"


@contextlib.contextmanager
def timed(into: list[Spent], rows: Callable[[], int]) -> Iterator[None]:
    """Count the rows, the time and the work of what is inside."""
    before, began, working = rows(), time.perf_counter(), time.process_time()
    yield
    seconds, worked = time.perf_counter() - began, time.process_time() - working
    into.append(Spent(rows=rows() - before, seconds=seconds, worked=worked))


def total(spent: Sequence[Spent]) -> Spent:
    """The sum."""
    return Spent(
        rows=sum(s.rows for s in spent), seconds=sum(s.seconds for s in spent), worked=sum(s.worked for s in spent)
    )


class Counter:
    """Rows of the tables that only grow by whole steps: by highest rowid or, without one, by counting children."""

    def __init__(self, folder: Path) -> None:
        self._connection = sqlite3.connect(folder / "ledger.db")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def __call__(self) -> int:
        return sum(self._count(table) for table in TABLES)

    def _count(self, table: str) -> int:
        # note: a count(*) of a million rows would warm or spoil the cache between two measurements.
        parts = {
            "turns": "SELECT 2 * coalesce(max(rowid), 0) FROM trajectories",
            "group_members": "SELECT coalesce(max(rowid), 0) FROM trajectories",
        }
        found = self._connection.execute(parts.get(table, f"SELECT coalesce(max(rowid), 0) FROM {table}")).fetchone()
        return int(found[0])


def append(ledger: Ledger, steps: Sequence[int], count: Counter) -> tuple[list[Spent], list[float]]:
    """Append and close these steps: what each took, and the seconds of each close."""
    spent: list[Spent] = []
    closes: list[float] = []
    for step in steps:
        records, groups, update = data.step_records(step)
        with timed(spent, count):
            for one in records:
                ledger.append(one)
            ledger.flush()
            closing = time.perf_counter()
            ledger.close_step(step=step, groups=groups, update=update, stage_seconds={}, counts={})
            closes.append(time.perf_counter() - closing)
    return spent, closes


def peers(folder: Path, aside: Path) -> None:
    """The same rows, taken by others, into tables with the same indexes and triggers."""
    source = sqlite3.connect(folder / "ledger.db")
    per_step = data.PER_STEP
    blob_rows = 3 * per_step + 5
    with _empty(source, aside / "raw.db") as raw:
        spent: list[Spent] = []
        for step in range(20):
            rows = {table: _rows_of(source, table, step, blob_rows) for table in TABLES}
            number = sum(map(len, rows.values()))
            began, working = time.perf_counter(), time.process_time()
            with raw:
                for table, values in rows.items():
                    raw.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values[0]))})", values)
            done, worked = time.perf_counter() - began, time.process_time() - working
            spent.append(Spent(rows=number, seconds=done, worked=worked))
        print(f"  {total(spent)}  sqlite3.executemany of finished rows, a step a transaction: the limit")
    with _empty(source, aside / "utils.db") as other:
        spent = []
        db = Database(other)
        columns = {table: [row[1] for row in source.execute(f"PRAGMA table_info({table})")] for table in TABLES}
        for step in range(5):
            dicts = {
                table: [dict(zip(columns[table], row, strict=True)) for row in _rows_of(source, table, step, blob_rows)]
                for table in TABLES
            }
            number = sum(map(len, dicts.values()))
            began, working = time.perf_counter(), time.process_time()
            for table, records in dicts.items():
                db.table(table).insert_all(records, batch_size=200)
            done, worked = time.perf_counter() - began, time.process_time() - working
            spent.append(Spent(rows=number, seconds=done, worked=worked))
        print(f"  {total(spent)}  sqlite-utils, 200 rows a transaction")
    for mode, number in (("OFF", 2000), ("NORMAL", 2000), ("FULL", 300)):
        with _empty(source, aside / f"{mode}.db") as single:
            single.isolation_level = None
            single.execute(f"PRAGMA synchronous = {mode}")
            rows_ = [row for step in range(9) for row in _rows_of(source, "blobs", step, blob_rows)][:number]
            began, working = time.perf_counter(), time.process_time()
            for row in rows_:
                single.execute("INSERT INTO blobs VALUES (?, ?, ?, ?)", row)
            took = Spent(rows=number, seconds=time.perf_counter() - began, worked=time.process_time() - working)
            print(f"  {took}  single-row commits of blobs, synchronous = {mode}")
    source.close()


@contextlib.contextmanager
def _empty(source: sqlite3.Connection, path: Path) -> Iterator[sqlite3.Connection]:
    """A file with the ledger's tables, indexes and triggers, and its seeds."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        for (sql,) in source.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND tbl_name NOT LIKE '\\_%' ESCAPE '\\' "
            "ORDER BY type = 'trigger', type = 'index', rowid"
        ):
            connection.execute(sql)
        connection.execute("DROP TRIGGER IF EXISTS steps_in_order")
        connection.executemany("INSERT INTO seeds VALUES (?, ?, ?, ?, ?, ?)", source.execute("SELECT * FROM seeds"))
        connection.commit()
        yield connection


def _rows_of(source: sqlite3.Connection, table: str, step: int, blob_rows: int) -> list[tuple[object, ...]]:
    which = {
        "blobs": f"id > {step * blob_rows} AND id <= {(step + 1) * blob_rows}",
        "turns": f"trajectory_id IN (SELECT id FROM trajectories WHERE step = {step})",
        "verdicts": f"trajectory_id IN (SELECT id FROM trajectories WHERE step = {step})",
        "group_members": f"group_id IN (SELECT id FROM groups WHERE step = {step})",
    }
    return source.execute(f"SELECT * FROM {table} WHERE {which.get(table, f'step = {step}')}").fetchall()


def sizes(folder: Path, trajectories: int) -> None:
    """Bytes a trajectory by table, its indexes included."""
    connection = sqlite3.connect(folder / "ledger.db")
    try:
        found = connection.execute(
            "SELECT m.tbl_name, sum(s.pageno) * 4096 FROM dbstat s JOIN sqlite_master m ON m.name = s.name "
            "WHERE s.aggregate = TRUE GROUP BY 1 ORDER BY 2 DESC"
        ).fetchall()
    except sqlite3.OperationalError:
        shell = shutil.which("sqlite3")
        sql = "SELECT m.tbl_name, sum(s.pageno) * 4096 FROM dbstat s JOIN sqlite_master m ON m.name = s.name "
        sql += "WHERE s.aggregate = TRUE GROUP BY 1 ORDER BY 2 DESC"
        if shell is None:
            print("sizes by table: this SQLite has no dbstat")
            return
        path = str(folder / "ledger.db")
        out = subprocess.run([shell, "-readonly", path, sql], capture_output=True, text=True, check=True).stdout
        found = [(line.split("|")[0], int(line.split("|")[1])) for line in out.splitlines()]
    finally:
        connection.close()
    parts = [f"{name} {size / trajectories:,.0f}" for name, size in found if size / trajectories >= 1]
    print(f"bytes a trajectory: {sum(size for _, size in found) / trajectories:,.0f}; by table: {', '.join(parts)}")


def pruning(folder: Path) -> None:
    """What dropping log-probabilities frees, and whether the file grows by less afterwards."""
    path = folder / "ledger.db"
    with Ledger.open(folder) as ledger:
        last = ledger.last_closed_step()
        before = path.stat().st_size
        began = time.perf_counter()
        freed = ledger.prune_logprobs(before=last - 1)
        seconds = time.perf_counter() - began
    after = path.stat().st_size
    print(
        f"pruning all but the last two steps: {freed / 1e6:,.1f} MB of log-probabilities in {seconds:.1f} s; file "
        f"{before / 1e6:,.1f} -> {after / 1e6:,.1f} MB = {(before - after) / before:.0%}"
    )
    grown: dict[bool, list[int]] = {True: [], False: []}
    with Ledger.open(folder) as ledger:
        for step in range(last + 1, last + 11):
            records, groups, update = data.step_records(step)
            for one in records:
                ledger.append(one)
            ledger.flush()
            ledger.close_step(step=step, groups=groups, update=update, stage_seconds={}, counts={})
            prune = step > last + 5
            freed = ledger.prune_logprobs(before=step - 1) if prune else 0
            grown[prune].append(_size(path))
    plain, pruned = (median(b - a for a, b in pairwise(g)) for g in (grown[False], grown[True][1:]))
    print(f"a step of {data.PER_STEP} trajectories adds {plain / 1e3:,.0f} kB, with pruning {pruned / 1e3:,.0f} kB")


def _size(path: Path) -> int:
    """Of the pages in use, those still in the -wal file included."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
    return int((pages - free) * size)


def questions(folder: Path) -> None:
    """Query time in this process (median of 9, a new connection each), and whole processes against `python -c pass`."""
    with Ledger.read(folder) as reader:
        step = reader.open_step()
        proposal = reader.trajectories(step // 2, "propose")[3].id

    def choose(reader: Reader) -> None:
        uniform(reader, reader.seeds(), n=8, step=step, seed=0, first=0, taken=())

    def look(reader: Reader) -> None:
        _, found = inspect.identify(reader, proposal[:10])
        inspect_data.proposal_data(inspect.proposal_of(reader, reader.trajectory(found)), content=True)

    asked: dict[str, Callable[[Reader], object]] = {"status": Reader.status, "choice": choose, "inspect": look}
    words = {"status": ["status", str(folder)], "inspect": ["inspect", str(folder), proposal[:10]]}
    bare = _process(["-c", "pass"])
    print(f"python -c pass: {bare * 1e3:.0f} ms")
    for name, ask in asked.items():
        times = []
        for _ in range(9):
            with Ledger.read(folder) as reader:
                began = time.perf_counter()
                ask(reader)
                times.append(time.perf_counter() - began)
        whole = f"; process {_process(['-m', 'selfplay', *words[name]]) * 1e3:.0f} ms" if name in words else ""
        print(f"{name}: first {times[0] * 1e3:.1f} ms, median {median(times) * 1e3:.1f} ms (reach < 200){whole}")


def _process(arguments: list[str]) -> float:
    times = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    return median(times)


READER = """
import json, sys, time
from itertools import pairwise
from pathlib import Path
from selfplay.ledger import Ledger
folder, flag, out, poll = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])
times = []
out.with_suffix(".up").touch()
with Ledger.read(folder) as reader:
    while not flag.with_name("end").exists():
        if flag.exists():
            began = time.perf_counter()
            reader.status()
            times.append(time.perf_counter() - began)
        time.sleep(poll)
out.write_text(json.dumps(times))
"""


def readers(folder: Path, aside: Path, *, rounds: int = 6, steps: int = 3) -> None:
    """Eight processes ask for the status ten times a second; rounds with and without them take turns."""
    flag = aside / "poll"
    outs = [aside / f"reader-{i}.json" for i in range(READERS)]
    command = [sys.executable, "-c", READER, str(folder), str(flag)]
    with Ledger.open(folder) as ledger, Counter(folder) as count:
        children = [subprocess.Popen([*command, str(out), str(POLL_SECONDS)]) for out in outs]
        try:
            while not all(out.with_suffix(".up").exists() for out in outs):
                time.sleep(0.05)
            alone: list[Spent] = []
            watched: list[Spent] = []
            for number in range(2 * rounds):
                first = ledger.open_step()
                flag.unlink(missing_ok=True) if number % 2 == 0 else flag.touch()
                time.sleep(2 * POLL_SECONDS)
                spent, _ = append(ledger, range(first, first + steps), count)
                (watched if number % 2 else alone).append(total(spent))
        finally:
            (aside / "end").touch()
            for child in children:
                child.wait()
    times = sorted(t for out in outs for t in json.loads(out.read_text()))
    slower = median(s.seconds / s.rows for s in watched) / median(s.seconds / s.rows for s in alone)
    worked = median(s.worked / s.rows for s in watched) / median(s.worked / s.rows for s in alone)
    print(
        f"{READERS} readers, {len(times)} questions: median {median(times) * 1e3:.1f} ms, p99 "
        f"{times[int(0.99 * len(times))] * 1e3:.1f} ms; writer's time x {slower:.2f} (its CPU x {worked:.2f}), "
        f"{len(alone)} rounds each, in turns"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, default=APPENDED)
    parser.add_argument("--folder", type=Path, default=None, help="where the files go [default: the temporary folder]")
    asked = parser.parse_args()
    if asked.folder is not None:
        asked.folder.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix="selfplay-bench-", dir=asked.folder))
    try:
        report(aside, asked.trajectories)
    finally:
        shutil.rmtree(aside)


def report(aside: Path, num_trajectories: int) -> None:
    """Every row of the report."""
    folder = aside / "run"
    steps = range(min(num_trajectories, APPENDED) // data.PER_STEP)
    with (
        Ledger.create(folder, config_digest=data.CONFIG, config={}, seed=0, game="code") as ledger,
        Counter(folder) as count,
    ):
        ledger.append(*(data.seed_of(s) for s in range(data.SEEDS))).result()
        spent, closes = append(ledger, steps, count)
        ledger.end_launch("done")
    print(f"  {total(spent)}  the ledger, blobs included (reach >= 20,000)")
    peers(folder, aside)
    _share(spent, closes)
    trajectories = len(steps) * data.PER_STEP
    if num_trajectories > APPENDED:
        began = time.perf_counter()
        trajectories = data.multiply(folder, num_trajectories)
        print(f"{trajectories:,} trajectories after copying for {time.perf_counter() - began:.0f} s")
        with Ledger.open(folder) as ledger, Counter(folder) as count:
            first = ledger.open_step()
            spent, closes = append(ledger, range(first, first + 35), count)
            trajectories += 35 * data.PER_STEP
        print(f"  {total(spent)}  the ledger at that size")
        _share(spent, closes)
    sizes(folder, trajectories)
    questions(folder)
    readers(folder, aside)
    pruning(folder)


def _share(spent: Sequence[Spent], closes: Sequence[float]) -> None:
    step = median(s.seconds for s in spent)
    print(
        f"a step of {data.PER_STEP} trajectories: {step * 1e3:.0f} ms = {step / STEP_SECONDS:.2%} of "
        f"{STEP_SECONDS:.0f} s (reach < 1 %); closing {median(closes) * 1e3:.0f} ms, at most {max(closes) * 1e3:.0f}"
    )


if __name__ == "__main__":
    main()
