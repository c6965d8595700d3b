"""Is everything in a ledger as it was written? Every reference, id, length and sum, taken again from the rows.

One read transaction, one pass a check, rows streamed: the memory needed does not grow with the run, a
run that is being played may be checked, and a damaged page spoils only the checks that meet it.

    file         SQLite's own structure
    references   foreign keys
    json         every JSON column is JSON of its kind, and every text is text
    ids          ids of trajectories, tasks and groups, computed again from what they are digests of
    turns        lengths and blobs: a conversation is its turns end to end, each the prefix of the next
    choices      positions in a row, subjects that exist, nothing held out played to learn from, children decided
    verdicts     of the right stage, never paid for a fault, none missing in a closed step
    groups       members, rewards as decided, advantages that fit them
    updates      versions in a row, members and advantages of their step's groups, log-probabilities
    steps        in a row, each with its update, tallies and totals counted again
    saves        digests as the update recorded them

Not here: files beside the ledger (`audit`), putting anything right (`salvage.py`).
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from selfplay.ledger import blobs, check_learning, files, held_out, tally, unpack
from selfplay.ledger.damage import Damaged
from selfplay.ledger.fifth import ATTEMPT
from selfplay.ledger.found import MOST, Check, Checked, Found, one, timed
from selfplay.ledger.records import Tally
from selfplay.ledger.rows import COLUMNS, JSON_COLUMNS
from selfplay.types import Stop, digest, play_id, task_id

_FLOATS = {"float32": 4, "float64": 8}

STOPS = frozenset(Stop)
"""How a trajectory may end."""


def checks(folder: Path) -> Iterator[Checked]:
    """Check the ledger in `folder`, one thing after another, in the order of `CHECKS`.

    Raises:
        NotFound, UserError, RunFailed: it cannot be opened at all.
    """
    with contextlib.closing(files.connect_read_only(folder)) as connection:
        connection.execute("BEGIN")
        for name, (what, check) in CHECKS.items():
            yield timed(name, what, partial(check, connection))


def _file(connection: sqlite3.Connection, found: Found) -> None:
    for (text,) in connection.execute(f"PRAGMA integrity_check({MOST})"):
        found.unless(text == "ok", f"SQLite: {text}")
    found.count = one(connection, "PRAGMA page_count")


def _references(connection: sqlite3.Connection, found: Found) -> None:
    for row in connection.execute("PRAGMA foreign_key_check"):
        found.problem(f"row {row['rowid']} of {row['table']} refers to a missing row of {row['parent']}")
    found.count = sum(len(list(connection.execute(f"PRAGMA foreign_key_list({table})"))) for table in COLUMNS)


def _json(connection: sqlite3.Connection, found: Found) -> None:
    for table, columns in {"runs": ("config",), **COLUMNS}.items():
        bad = dict.fromkeys((column for column in columns if column in JSON_COLUMNS), 0)
        found.count += len(bad)
        # note: all columns are asked for, since reading a text that is no UTF-8 fails.
        for row in connection.execute(f"SELECT * FROM {table}"):
            for column in bad:
                try:
                    unpack.json_of(row, column)
                except Damaged:
                    bad[column] += 1
        for column, num in bad.items():
            found.unless(not num, f"{num} rows of {table} have a {column} that is no JSON of its kind")


def own_id(table: str, row: sqlite3.Row, *, config: str) -> str:
    """The id that a row of `trajectories` or `tasks` must have in a run of that configuration's digest."""
    if table == "tasks":
        return task_id(config, game=row["game"], key=row["key"])
    place = {name: row[name] for name in ("step", "stage", "role", "subject_id", "attempt")}
    return play_id(config, **place, index=row["position"])


def _ids(connection: sqlite3.Connection, found: Found) -> None:
    ((config, game),) = connection.execute("SELECT config_digest, game FROM runs")
    for row in connection.execute("SELECT id, step, stage, role, subject_id, position, attempt FROM trajectories"):
        found.count += 1
        same = row["id"] == own_id("trajectories", row, config=config)
        found.unless(same, f"trajectory {row['id']} has another place's id")
    for row in connection.execute("SELECT id, game, key FROM tasks"):
        found.count += 1
        own, of_game = row["id"], row["game"]
        found.unless(own == own_id("tasks", row, config=config), f"task {own} has another task's id")
        # note: a run of several games names them with a plus between.
        found.unless(of_game in game.split("+"), f"task {own} is of game {of_game}, and the run of {game}")
    sql = (
        "SELECT g.id, g.step, g.role, g.subject_id, t.stage FROM groups g LEFT JOIN group_members m "
        "ON m.group_id = g.id AND m.position = 0 LEFT JOIN trajectories t ON t.id = m.trajectory_id"
    )
    for own, step, role, subject, stage in connection.execute(sql):
        found.count += 1
        found.unless(own == digest("group", step, stage, role, subject), f"group {own} has another group's id")


_PLAYS = (
    "SELECT t.id, t.step, t.stage, t.stop, t.num_turns, t.num_sampled, t.fault, t.results, t.product, "
    + ", ".join(
        f"{name}.{part} AS {name}_{part}" for name in ("i", "l", "x", "r", "p") for part in ("dtype", "codec", "data")
    )
    + " FROM trajectories t LEFT JOIN blobs i ON i.id = t.token_ids LEFT JOIN blobs l ON l.id = t.logprobs "
    "LEFT JOIN blobs x ON x.id = t.texts LEFT JOIN blobs r ON r.id = t.results "
    "LEFT JOIN blobs p ON p.id = t.product"
)


def _turns(connection: sqlite3.Connection, found: Found) -> None:
    conversations(connection, found, closed=one(connection, "SELECT coalesce(max(step), -1) FROM steps"))


def conversations(
    connection: sqlite3.Connection, found: Found, *, closed: int, where: str = "1", given: tuple[int, ...] = ()
) -> None:
    """The trajectories where `where` holds (of `t`): turns, lengths, blobs. Steps up to `closed` may be pruned."""
    for own, problem in broken(connection, where=where, given=given, closed=closed):
        found.count += 1
        found.unless(problem is None, f"trajectory {own}: {problem}")


def broken(
    connection: sqlite3.Connection, *, closed: int, where: str, given: tuple[int, ...] = ()
) -> Iterator[tuple[str, str | None]]:
    """(id, what is wrong with it or None) of each of those."""
    for row in connection.execute(f"{_PLAYS} WHERE {where}", given):
        try:
            problem = _conversation(connection, row, closed=closed)
        except (zlib.error, ValueError, LookupError) as error:
            problem = f"its blobs are damaged ({error})"
        yield row["id"], problem


def _conversation(connection: sqlite3.Connection, row: sqlite3.Row, *, closed: int) -> str | None:
    """What is wrong with one trajectory's turns; None where nothing is."""
    sql = "SELECT position, speaker, num_tokens, num_logprobs, num_chars FROM turns WHERE trajectory_id = ? ORDER BY 1"
    turns = list(connection.execute(sql, (row["id"],)))
    if [turn["position"] for turn in turns] != list(range(row["num_turns"])):
        return f"{len(turns)} turns are there, and it has {row['num_turns']}"
    if row["stop"] not in STOPS:
        return f"it stopped by {row['stop']}, which is no way to end"
    if (row["fault"] is not None) != (row["stop"] == "fault"):
        return f"it stopped by {row['stop']}, which does not fit its fault"
    # note: an endpoint may not say them: none are recorded then, and `learner.refuse` keeps the turn out of updates.
    if any(t["num_logprobs"] not in (0, t["num_tokens"] if t["speaker"] == "policy" else 0) for t in turns):
        return "a turn's log-probabilities are not one a sampled token"
    if row["num_sampled"] != sum(t["num_tokens"] for t in turns if t["speaker"] == "policy"):
        return "its sampled tokens are not those of its turns"
    ids, logprobs, text = (_unpacked(row, name) for name in ("i", "l", "x"))
    if len(ids.raw) != 4 * sum(t["num_tokens"] for t in turns):
        return f"{len(ids.raw) // 4} token ids are there, and its turns have {sum(t['num_tokens'] for t in turns)}"
    pruned = row["l_data"] is None
    if pruned and row["step"] > closed:
        return "its log-probabilities are pruned, and its step is open"
    if not pruned and len(logprobs.raw) != _FLOATS[logprobs.dtype] * sum(t["num_logprobs"] for t in turns):
        return "its log-probabilities are more or fewer than its turns have"
    if len(blobs.text_of(text)) != sum(t["num_chars"] for t in turns):
        return "its text is longer or shorter than its turns have"
    if row["results"] is not None:
        calls = one(connection, "SELECT coalesce(sum(num_chars), 0) FROM tool_calls WHERE trajectory_id = ?", row["id"])
        if len(blobs.text_of(_unpacked(row, "r"))) != calls:
            return "its tools' results are longer or shorter than its calls have"
    if row["product"] is not None and not isinstance(json.loads(blobs.text_of(_unpacked(row, "p"))), dict):
        return "what it handed over is no object"
    return None


def _choices(connection: sqlite3.Connection, found: Found) -> None:
    for sql, sentence in _CHOICES.items():
        for row in connection.execute(sql):
            found.problem(sentence.format(*row))
    found.count = one(connection, "SELECT count(*) FROM choices")


_CHOICES = {
    "SELECT step FROM choices GROUP BY step HAVING max(position) + 1 <> count(*)": "step {}: its choices have a gap",
    "SELECT step, position FROM choices c WHERE NOT EXISTS (SELECT 1 FROM seeds s WHERE s.id = c.subject_id) "
    "AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.id = c.subject_id)": "step {}: choice {} is of nothing that exists",
    "SELECT c.step, c.subject_id FROM choices c JOIN seeds s ON s.id = c.subject_id "
    "WHERE c.mode = 'propose' AND s.split = 'held_out'": "step {}: the held-out seed {} was proposed on",
    # note: not the other way round, since the dev set of a warm-up is made of train seeds and held out.
    "SELECT t.id FROM tasks t JOIN seeds s ON s.id = t.seed_id WHERE s.split = 'held_out' AND t.split = 'train'": (
        "task {} comes of a held-out seed, and is not held out"
    ),
    f"SELECT c.step, {ATTEMPT} FROM choices c WHERE c.mode = 'mutate' AND NOT EXISTS (SELECT 1 FROM trajectories t "
    f"WHERE t.id = {ATTEMPT} AND t.stage = 'attempt' AND t.subject_id = c.subject_id AND t.step < c.step)": (
        "step {}: a child was chosen of attempt {}, which no earlier step has on its task"
    ),
    f"SELECT c.step, {ATTEMPT} FROM choices c WHERE c.mode = 'mutate' AND c.step <= (SELECT max(step) FROM steps) "
    f"AND NOT EXISTS (SELECT 1 FROM verdicts v WHERE v.trajectory_id = {ATTEMPT} AND v.stage = 'mint')": (
        "step {} is closed, and nothing was decided about a child of attempt {}"
    ),
    "SELECT k.id FROM tasks k JOIN trajectories t ON t.id = k.parent_id AND t.stage = 'attempt' "
    "JOIN tasks p ON p.id = t.subject_id JOIN trajectories u ON u.id = p.parent_id AND u.stage = 'attempt'": (
        "task {} is the child of a child"
    ),
    **held_out.STRAYS,
}


def _verdicts(connection: sqlite3.Connection, found: Found) -> None:
    for sql, sentence in _VERDICTS.items():
        for row in connection.execute(sql):
            found.problem(sentence.format(*row))
    found.count = one(connection, "SELECT count(*) FROM verdicts")


_VERDICTS = {
    "SELECT v.trajectory_id, v.stage, t.stage FROM verdicts v JOIN trajectories t ON t.id = v.trajectory_id "
    "WHERE CASE t.stage WHEN 'propose' THEN v.stage = 'judge' WHEN 'attempt' THEN v.stage = 'grade' ELSE 0 END": (
        "trajectory {} has a verdict of stage {}, and was played for stage {}"
    ),
    "SELECT v.trajectory_id FROM verdicts v JOIN trajectories t ON t.id = v.trajectory_id WHERE t.stage = 'attempt' "
    "AND v.stage = 'mint' AND NOT EXISTS (SELECT 1 FROM choices c WHERE c.mode = 'mutate' "
    f"AND c.subject_id = t.subject_id AND {ATTEMPT} = t.id)": (
        "attempt {} was decided for a child, and no choice named it"
    ),
    "SELECT v.trajectory_id FROM verdicts v JOIN trajectories t ON t.id = v.trajectory_id WHERE t.stage = 'attempt' "
    "AND v.stage = 'mint' AND v.reward IS NOT NULL": "attempt {} was paid for a child",
    "SELECT trajectory_id FROM verdicts WHERE fault IS NOT NULL AND reward IS NOT NULL": (
        "trajectory {} was paid for a fault"
    ),
    "SELECT v.trajectory_id FROM verdicts v JOIN trajectories t ON t.id = v.trajectory_id "
    "WHERE t.stage <> 'evaluate' AND v.stage = 'mint' AND v.valid AND v.task_id IS NULL": (
        "{} became a task, and the task is not there"
    ),
    "SELECT t.id, t.step FROM trajectories t WHERE t.fault IS NULL AND t.stage <> 'evaluate' "
    "AND t.step <= (SELECT max(step) FROM steps) "
    "AND NOT EXISTS (SELECT 1 FROM verdicts v WHERE v.trajectory_id = t.id "
    "AND v.stage = CASE t.stage WHEN 'propose' THEN 'mint' ELSE 'judge' END)": (
        "trajectory {} of the closed step {} has no verdict"
    ),
}


def _unpacked(row: sqlite3.Row, name: str) -> blobs.Blob:
    return blobs.unpack(row[f"{name}_dtype"], row[f"{name}_codec"], row[f"{name}_data"])


def _steps(connection: sqlite3.Connection, found: Found) -> None:
    before: dict[str, Tally] = {}
    for step, tallies, totals in connection.execute("SELECT step, tallies, totals FROM steps ORDER BY step"):
        found.unless(step == found.count, f"step {step} is closed, and step {found.count} is missing")
        found.count = step + 1
        counted = tally.of_step(connection, step)
        # note: by way of the records, so that a count that is newer than the row is nothing there.
        found.unless(counted == tally.load(tallies), f"step {step}: its rows do not give its tallies")
        before = tally.add(before, counted)
        found.unless(before == tally.load(totals), f"step {step}: its totals are not the tallies' sum")


CHECKS: Mapping[str, tuple[str, Check]] = {
    "file": ("pages of the file", _file),
    "references": ("kinds of reference between rows", _references),
    "json": ("columns of JSON", _json),
    "ids": ("ids, computed again", _ids),
    "turns": ("trajectories: turns, lengths, blobs", _turns),
    "choices": ("choices", _choices),
    "verdicts": ("verdicts", _verdicts),
    "groups": ("groups: members, rewards, advantages", check_learning.groups),
    "updates": ("updates: versions, members, log-probabilities", check_learning.updates),
    "steps": ("closed steps: tallies and totals", _steps),
    "saves": ("recorded saves: digests as the updates have them", check_learning.saves),
}
"""Name -> what is looked at, and how."""
