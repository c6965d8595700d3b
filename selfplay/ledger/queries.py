"""Everything a run can be asked, by name: records out, in short read-only transactions.

Standard library only: the progress screen, `status` and a laptop without torch use this file. What a
caller gets is in a fixed order that does not depend on what finished first.

Not here: writing (`writer.py`), comparing two runs (`compare.py`), deciding anything from the answers.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from selfplay.errors import NotFound
from selfplay.ledger import bulk, compare, files, history, tally, unpack
from selfplay.ledger.bulk import Ask
from selfplay.ledger.curricula import CurriculumQueries
from selfplay.ledger.damage import Damaged, decoding
from selfplay.ledger.records import AlarmRow, ControlRow, FaultRow, Launch, ParentRow, RunRow, Status, StepRow
from selfplay.types import (
    Choice,
    Fault,
    Group,
    Phase,
    Save,
    Seed,
    Stage,
    Task,
    Trajectory,
    Update,
    Verdict,
    VerdictStage,
    task_id,
)

T = TypeVar("T")

_CHUNK = 500
"""Ids a statement; SQLite takes 32,766 parameters, older ones 999."""

_LAST_CLOSED = "SELECT coalesce(max(step), -1) AS step FROM steps"


class Reader(CurriculumQueries):
    """A run, open for reading; any thread may ask. Every method may raise RunFailed where the file is damaged."""

    def __init__(self, folder: Path) -> None:
        """Open the run in `folder`.

        Raises:
            NotFound: there is none.
            UserError: another version of selfplay wrote it.
            RunFailed: the file is damaged, or is no ledger.
        """
        self.folder = folder
        self._mutex = threading.Lock()
        self._connection = files.connect_read_only(folder)

    def close(self) -> None:
        """Free the file; idempotent."""
        with self._mutex:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # The run.

    def run_row(self) -> RunRow:
        """What the run is."""
        found = self._one(unpack.run_of, "SELECT * FROM runs")
        if found is None:
            raise files.translate(Damaged("it has no run"), self.folder / files.NAME)
        return found

    def origins(self) -> dict[str, str]:
        """What it plays with beside its settings, `source` or `role NAME` -> digest; empty before its first launch."""
        return {row["name"]: row["digest"] for row in self._rows("SELECT name, digest FROM origins ORDER BY name")}

    def parent_row(self) -> ParentRow | None:
        """Where the run was forked from; None where it was not."""
        return self._one(unpack.parent_of, "SELECT * FROM parents")

    def parent(self) -> Reader | None:
        """The run that this one was forked from, open for reading; None where there is none, or none any more."""
        row = self.parent_row()
        try:
            found = Reader(self.folder / row.path) if row is not None else None
        except NotFound:
            return None
        if row is None or found is None or found.run_row().config_digest == row.config_digest:
            return found
        found.close()
        return None

    def launches(self) -> tuple[Launch, ...]:
        """Each process that held the run, oldest first."""
        return self._all(unpack.launch_of, _LAUNCHES + " ORDER BY l.id")

    def status(self) -> Status:
        """One screen's worth; its cost hardly grows with the run."""
        run = self.run_row()
        with self._snapshot() as ask:
            closed = ask(_STEPS + " ORDER BY step DESC LIMIT 1")
            last = closed[0]["step"] if closed else -1
            newest = [f"(SELECT at FROM {table} ORDER BY rowid DESC LIMIT 1)" for table in _TIMED]
            launches = ask(_LAUNCHES + " ORDER BY l.id DESC LIMIT 1")
            return Status(
                run=run,
                last_closed_step=last,
                closed=unpack.json_of(closed[0], "totals") if closed else {},
                open=tally.after_step(self._connection, last),
                last_step=unpack.step_of(closed[0]) if closed else None,
                num_seeds=_counts(ask("SELECT split AS name, count(*) AS num FROM seeds GROUP BY split")),
                num_tasks=ask(_NUM_TASKS)[0]["num"],
                num_updates={
                    phase: num for phase, num in zip(("warmup", "play"), ask(_NUM_UPDATES)[0], strict=True) if num
                },
                num_faults=ask("SELECT coalesce(max(id), 0) AS num FROM faults")[0]["num"],
                num_alarms=_counts(ask("SELECT level AS name, count(*) AS num FROM alarms GROUP BY level")),
                policy_version=ask(_POLICY_VERSION)[0]["version"],
                last_seen=max(value for value in ask(f"SELECT {', '.join(newest)}")[0] if value is not None),
                launch=unpack.launch_of(launches[0]) if launches else None,
                parent=unpack.parent_of(parents[0]) if (parents := ask("SELECT * FROM parents")) else None,
            )

    def by_prefix(self, prefix: str, *, limit: int = 20) -> tuple[tuple[str, str], ...]:
        """(table, id) of every trajectory, task and seed whose id starts so, at most `limit`, in order."""
        end = prefix + "\U0010ffff"
        parts = [f"SELECT '{table}' AS name, id FROM {table} WHERE id >= ? AND id < ?" for table in _NAMED]
        sql = " UNION ALL ".join(parts) + " LIMIT ?"
        return tuple(sorted((row["name"], row["id"]) for row in self._rows(sql, *([prefix, end] * len(_NAMED)), limit)))

    # What is played.

    def seeds(self) -> tuple[Seed, ...]:
        """Every seed, in the order in which the game gave them."""
        return self._all(unpack.seed_of, "SELECT * FROM seeds ORDER BY rowid")

    def seed(self, seed_id: str) -> Seed | None:
        """The seed of that id."""
        return self._one(unpack.seed_of, "SELECT * FROM seeds WHERE id = ?", seed_id)

    def choices(self, step: int) -> tuple[Choice, ...]:
        """The choices of a step, by index."""
        return self._all(unpack.choice_of, "SELECT * FROM choices WHERE step = ? ORDER BY position", step)

    def task(self, task_id: str) -> Task | None:
        """The task of that id."""
        return self._one(unpack.task_of, "SELECT * FROM tasks WHERE id = ?", task_id)

    def find_task(self, key: str) -> Task | None:
        """The task of that key: its id is a digest of the run's configuration, the game and the key."""
        run = self.run_row()
        ids = (task_id(run.config_digest, game=game, key=key) for game in run.game.split("+"))
        return next((task for task in map(self.task, ids) if task is not None), None)

    def tasks(self, step: int) -> tuple[Task, ...]:
        """The tasks that a step minted, by id."""
        return self._all(unpack.task_of, "SELECT * FROM tasks WHERE step = ? ORDER BY id", step)

    # What was played.

    def trajectories(self, step: int, stage: Stage, *, faulty: bool = False) -> tuple[Trajectory, ...]:
        """The trajectories of a stage without a fault (`faulty`: with one), by role, subject, index and try."""
        which = "t.step = ? AND t.stage = ? AND t.fault IS " + ("NOT NULL" if faulty else "NULL")
        return self._trajectories(which, step, stage)

    def trajectory(self, trajectory_id: str) -> Trajectory:
        """The trajectory of that id.

        Raises:
            NotFound: there is none.
        """
        found = self._trajectories("t.id = ?", trajectory_id)
        if not found:
            raise NotFound(f"run `{self.folder.name}` has no trajectory {trajectory_id}", hint="selfplay inspect RUN")
        return found[0]

    def trajectories_by_id(self, ids: Iterable[str]) -> dict[str, Trajectory]:
        """The trajectories of those ids, in bulk; unknown ids are missing."""
        wanted = list(dict.fromkeys(ids))
        found: dict[str, Trajectory] = {}
        for chunk in (wanted[i : i + _CHUNK] for i in range(0, len(wanted), _CHUNK)):
            which = f"t.id IN ({', '.join('?' * len(chunk))})"
            found.update((trajectory.id, trajectory) for trajectory in self._trajectories(which, *chunk))
        return {trajectory_id: found[trajectory_id] for trajectory_id in wanted if trajectory_id in found}

    def trajectories_of(self, subject_id: str) -> tuple[Trajectory, ...]:
        """Every trajectory played on a seed or task, faulty ones included, by step, stage, role, index and try."""
        return self._trajectories("t.subject_id = ?", subject_id)

    def attempts_made(self, step: int, stage: Stage) -> dict[tuple[str, str, int], int]:
        """(subject id, role, index) -> trajectories recorded there, faulty ones included."""
        sql = (
            "SELECT subject_id, role, position, count(*) AS num FROM trajectories WHERE step = ? AND stage = ? "
            "GROUP BY role, subject_id, position"
        )
        rows = self._rows(sql, step, stage)
        return {(row["subject_id"], row["role"], row["position"]): row["num"] for row in rows}

    def verdicts(self, step: int, stage: Stage, verdict_stage: VerdictStage) -> dict[str, Verdict]:
        """Trajectory id -> what `verdict_stage` decided, for the trajectories of a step's `stage`."""
        sql = (
            "SELECT v.* FROM trajectories t CROSS JOIN verdicts v ON v.trajectory_id = t.id "
            "WHERE t.step = ? AND t.stage = ? AND v.stage = ? ORDER BY t.role, t.subject_id, t.position, t.attempt"
        )
        found = self._all(unpack.verdict_of, sql, step, stage, verdict_stage)
        return {verdict.trajectory_id: verdict for verdict in found}

    def verdicts_of(self, trajectory_id: str) -> tuple[Verdict, ...]:
        """What was decided about one trajectory: judge, then mint (of a proposal, or for its child), then grade."""
        order = "stage = 'grade', stage = 'mint'"
        sql = f"SELECT * FROM verdicts WHERE trajectory_id = ? ORDER BY {order}"
        return self._all(unpack.verdict_of, sql, trajectory_id)

    def faults(self) -> tuple[FaultRow, ...]:
        """Everything that was retried, oldest first."""
        return tuple(
            FaultRow(
                fault=Fault(culprit=row["culprit"], where=row["place"], message=row["message"], detail=row["detail"]),
                trajectory_id=row["trajectory_id"],
                attempt=row["attempt"],
                at=row["at"],
            )
            for row in self._rows("SELECT * FROM faults ORDER BY id")
        )

    def alarms(self) -> tuple[AlarmRow, ...]:
        """Every alarm, oldest first."""
        rows = self._rows("SELECT * FROM alarms ORDER BY id")
        return tuple(
            AlarmRow(**{name: row[name] for name in ("level", "code", "message", "step", "at")}) for row in rows
        )

    def control(self) -> tuple[ControlRow, ...]:
        """Every line of `control.jsonl` that was acted on, oldest first."""
        return self._all(unpack.control_of, "SELECT * FROM control ORDER BY id")

    # What was learnt.

    def groups(self, step: int) -> tuple[Group, ...]:
        """The groups of a step, in the order in which they were committed."""
        return self._groups("g.step = ?", step)

    def groups_of(self, trajectory_id: str) -> tuple[Group, ...]:
        """The groups that a trajectory is in: its advantages."""
        return self._groups("g.id IN (SELECT group_id FROM group_members WHERE trajectory_id = ?)", trajectory_id)

    def past_rewards(self, before: int, role: str, limit: int) -> tuple[float, ...]:
        """The newest rewards of a role in steps below `before` that are closed, at most `limit`, oldest first."""
        with self._snapshot() as ask:
            return history.past_rewards(ask, before, role, limit)

    def updates(self, phase: Phase | None = None, *, after: int | None = None) -> tuple[Update, ...]:
        """The updates (of a phase; of steps above `after`), warm-up first, by step."""
        which, given = [], []
        for condition, value in (("phase = ?", phase), ("step > ?", after)):
            if value is not None:
                which.append(condition)
                given.append(value)
        return self._updates(" AND ".join(which) or "1", *given)

    def update(self, step: int, phase: Phase = "play") -> Update | None:
        """The update of a step."""
        return next(iter(self._updates("step = ? AND phase = ?", step, phase)), None)

    def last_pruned_step(self) -> int:
        """The newest step whose log-probabilities were pruned, and with it all earlier ones; -1 where none was."""
        return int(self._rows(bulk.LAST_PRUNED)[0]["step"])

    def num_updates(self, phase: Phase) -> int:
        """How many updates of a phase are recorded."""
        return int(self._rows("SELECT count(*) AS num FROM updates WHERE phase = ?", phase)[0]["num"])

    def saves(self) -> tuple[Save, ...]:
        """Every save that was recorded, oldest first; its folder may be gone since."""
        return self._all(unpack.save_of, "SELECT * FROM saves ORDER BY id")

    def last_closed_step(self) -> int:
        """-1 where none is closed."""
        return int(self._rows(_LAST_CLOSED)[0]["step"])

    def open_step(self) -> int:
        """The step that is played next, or is half played."""
        return self.last_closed_step() + 1

    def step_rows(self, *, after: int = -1) -> tuple[StepRow, ...]:
        """Every closed step above `after`, in order."""
        return self._all(unpack.step_of, _STEPS + " WHERE step > ? ORDER BY step", after)

    # The whole.

    def comparable(self, *, logprobs_from: int = 0) -> dict[str, str]:
        """Table -> digest of its rows, for guarantee C: equal in two runs of one configuration.

        Rows are sorted by key; clocks, hosts, blob ids and the tables of launches, faults, alarms and
        control are left out (`compare.py`), and log-probabilities of steps before `logprobs_from`.
        """
        with self._snapshot():
            return compare.digests(self._connection, logprobs_from=logprobs_from)

    def check(self) -> tuple[str, ...]:
        """What SQLite finds wrong with the file and its references, a sentence each; reads all of it."""
        with self._snapshot() as ask:
            found = [row[0] for row in ask("PRAGMA integrity_check") if row[0] != "ok"]
            found += [
                f"row {row['rowid']} of {row['table']} refers to a missing row of {row['parent']}"
                for row in ask("PRAGMA foreign_key_check")
            ]
        return tuple(found)

    # How it is asked.

    def ask(self, question: Callable[[Ask], T]) -> T:
        """What `question` finds in one snapshot; for questions that have a file of their own (`held_out`)."""
        with self._snapshot() as ask:
            return question(ask)

    def _before_read(self) -> None:
        """For a writer: make what was appended visible."""

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[Ask]:
        """One read transaction: every question inside sees the same rows."""
        self._before_read()
        with self._mutex, files.translated(self.folder / files.NAME):
            self._connection.execute("BEGIN")
            try:
                yield lambda sql, *given: self._connection.execute(sql, given).fetchall()
            finally:
                self._connection.execute("ROLLBACK")

    def _rows(self, sql: str, *given: Any) -> list[sqlite3.Row]:
        with self._snapshot() as ask:
            return ask(sql, *given)

    def _all(self, decode: Callable[[sqlite3.Row], T], sql: str, *given: Any) -> tuple[T, ...]:
        """What `decode` makes of each row."""
        rows = self._rows(sql, *given)
        with files.translated(self.folder / files.NAME), decoding("a row"):
            return tuple(map(decode, rows))

    def _one(self, decode: Callable[[sqlite3.Row], T], sql: str, *given: Any) -> T | None:
        """What it makes of the first row; None where there is none."""
        return next(iter(self._all(decode, sql, *given)), None)

    def _trajectories(self, which: str, *given: Any) -> tuple[Trajectory, ...]:
        return self.ask(lambda ask: bulk.trajectories(ask, which, *given))

    def _groups(self, which: str, *given: Any) -> tuple[Group, ...]:
        return self.ask(lambda ask: bulk.groups(ask, which, *given))

    def _updates(self, which: str, *given: Any) -> tuple[Update, ...]:
        return self.ask(lambda ask: bulk.updates(ask, which, *given))


_STEPS = "SELECT step, opened_at, at, stage_seconds, counts, tallies, totals FROM steps"
_LAUNCHES = "SELECT l.*, e.at AS ended_at, e.how AS how FROM launches l LEFT JOIN launch_ends e ON e.launch_id = l.id"
# note: a bare count(*) is one instruction, a condition visits each row; the warm-up is short, the play is not.
_WARMUPS = "(SELECT count(*) FROM updates WHERE phase = 'warmup')"
_NUM_UPDATES = f"SELECT {_WARMUPS}, (SELECT count(*) FROM updates) - {_WARMUPS}"
# note: without the tasks that a dev set or an evaluation was given.
_NUM_TASKS = "SELECT count(*) - (SELECT count(*) FROM tasks WHERE step = -1) AS num FROM tasks"
_POLICY_VERSION = (
    "SELECT coalesce((SELECT policy_version FROM updates ORDER BY rowid DESC LIMIT 1), "
    "(SELECT policy_version FROM parents), 0) AS version"
)
_NAMED = ("trajectories", "tasks", "seeds")
_TIMED = ("runs", "launches", "choices", "trajectories", "verdicts", "updates", "steps", "saves", "faults")


def _counts(rows: Iterable[sqlite3.Row]) -> dict[str, int]:
    return {row["name"]: row["num"] for row in rows}
