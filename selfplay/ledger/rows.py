"""Records to rows. One table a noun; the columns are the record's fields in the table's words.

JSON columns are canonical (sorted keys), so equal records give equal rows; a mapping comes back with
lists where it held tuples. The text of a turn is derived from its token ids, yet stored beside them,
deflated: a reader then shows a run without its tokenizer, on a laptop, years later, for about as many
bytes as the ids take. Lone surrogates, which no SQLite text can hold, become U+FFFD in columns that are
for people; turns, JSON and tool results keep them.

Not here: rows to records (`unpack.py`), SQL that asks (`queries.py`), clocks and blob ids (`writer.py` adds them).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import singledispatch
from itertools import chain
from typing import Any, NamedTuple

from selfplay.ledger import blobs
from selfplay.ledger.blobs import Blob
from selfplay.ledger.records import ParentRow
from selfplay.types import Choice, Fault, Group, Save, Seed, Task, Trajectory, Turn, Update, Verdict

_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode

Value = str | int | float | None | Blob


class Row(NamedTuple):
    """One row to insert: values in the order of `COLUMNS[table]`, without `at`."""

    table: str
    values: tuple[Value, ...]


COLUMNS: dict[str, tuple[str, ...]] = {
    "launches": ("pid", "host", "engine_version"),
    "launch_ends": ("launch_id", "how"),
    "seeds": ("id", "game", "source", "payload", "split"),
    "choices": ("step", "position", "mode", "subject_id", "score", "why", "terms"),
    "trajectories": (
        *("id", "step", "stage", "role", "subject_id", "position", "attempt", "stop", "policy_low", "policy_high"),
        *("num_turns", "num_sampled", "fault", "seconds", "token_ids", "logprobs", "texts", "results", "product"),
    ),
    "turns": ("trajectory_id", "position", "speaker", "num_tokens", "num_logprobs", "num_chars"),
    "tool_calls": ("trajectory_id", "turn", "position", "name", "arguments", "exit_code", "num_chars", "seconds"),
    "tasks": ("id", "game", "seed_id", "key", "payload", "split", "step", "parent_id"),
    "verdicts": (
        *("trajectory_id", "stage", "valid", "passed", "reward", "reason", "why", "task_id", "parts", "fault"),
        *("seconds", "evidence"),
    ),
    "groups": ("id", "step", "role", "subject_id", "num_members", "informative"),
    "group_members": ("group_id", "position", "trajectory_id", "reward", "advantage"),
    "updates": (
        *("phase", "step", "policy_version", "lr", "weights_digest", "reference_digest", "fingerprint", "loss"),
        *("grad_norm", "tokens", "skipped", "metrics", "seconds"),
        *("trajectory_ids", "advantages", "partition", "old_lengths", "old_logprobs"),
    ),
    "steps": ("step", "stage_seconds", "counts", "opened_at", "tallies", "totals"),
    "saves": ("phase", "step", "policy_version", "path", "weights_digest", "state_digest", "num_bytes"),
    "faults": ("launch_id", "trajectory_id", "attempt", "culprit", "place", "message", "detail"),
    "alarms": ("level", "code", "message", "step"),
    "control": ("action", "arguments"),
    "parents": ("id", "path", "config_digest", "step", "policy_version", "weights_digest", "save_path", "changed"),
    "origins": ("name", "digest"),
}
"""Table -> columns that are written, in the order in which tables refer to each other."""

KEYS: dict[str, tuple[str, ...]] = {
    "launch_ends": ("launch_id",),
    "seeds": ("id",),
    "choices": ("step", "position"),
    "trajectories": ("id",),
    "turns": ("trajectory_id", "position"),
    "tool_calls": ("trajectory_id", "turn", "position"),
    "tasks": ("id",),
    "verdicts": ("trajectory_id", "stage"),
    "groups": ("id",),
    "group_members": ("group_id", "position"),
    "updates": ("phase", "step"),
    "steps": ("step",),
    "saves": ("phase", "step", "path"),
    "parents": ("id",),
    "origins": ("name",),
}
"""Table -> columns that name a row; tables that are missing here only grow."""

BLOB_COLUMNS: dict[str, tuple[str, ...]] = {
    "trajectories": ("token_ids", "logprobs", "texts", "results", "product"),
    "updates": ("trajectory_ids", "advantages", "partition", "old_lengths", "old_logprobs"),
}

JSON_COLUMNS = frozenset(
    {"config", "payload", "parts", "evidence", "fault", "metrics", "stage_seconds", "counts", "tallies", "totals"}
    | {"arguments", "changed", "terms"}
)

UNTIMED = frozenset({"turns", "tool_calls", "groups", "group_members"})
"""Tables without `at`: their parent row has it."""


def dump(value: Any) -> str:
    """Canonical JSON.

    Raises:
        ValueError: it is not JSON (NaN, infinity, an object of another kind).
    """
    try:
        return _canonical(value)
    except TypeError as error:
        raise ValueError(f"not JSON: {error}") from error


def clean(text: str) -> str:
    """`text` as a SQLite column can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udfff]", "\ufffd", text)
    return text


@singledispatch
def of(record: object) -> list[Row]:
    """The rows of one record, its own first.

    Raises:
        ValueError: it holds what cannot be stored.
        TypeError: it is no record of the ledger.
    """
    raise TypeError(f"the ledger has no table for {type(record).__name__}")


@of.register
def _(seed: Seed) -> list[Row]:
    return [Row("seeds", (seed.id, seed.game, clean(seed.source), dump(seed.payload), seed.split))]


@of.register
def _(choice: Choice) -> list[Row]:
    score = _real(choice.score, "Choice.score")
    own = (choice.step, choice.index, choice.mode, choice.subject_id, score, clean(choice.why), dump(choice.terms))
    return [Row("choices", own)]


@of.register
def _(trajectory: Trajectory) -> list[Row]:
    turns, calls = [], []
    results: list[str] = []
    asked = trajectory.turns[0] if trajectory.turns else Turn(speaker="prompt", token_ids=())
    for position, turn in enumerate(trajectory.turns):
        lengths = (len(turn.token_ids), len(turn.logprobs), len(turn.text))
        turns.append(Row("turns", (trajectory.id, position, turn.speaker, *lengths)))
        for number, call in enumerate(turn.calls):
            seconds = _real(call.seconds, "ToolCall.seconds")
            calls.append(
                Row(
                    "tool_calls",
                    (
                        *(trajectory.id, position, number, clean(call.name), dump(call.arguments), call.exit_code),
                        *(len(call.result), seconds),
                    ),
                )
            )
            results.append(call.result)
    own = Row(
        "trajectories",
        (
            *(trajectory.id, trajectory.step, trajectory.stage, trajectory.role, trajectory.subject_id),
            *(trajectory.index, trajectory.attempt, str(trajectory.stop), *trajectory.policy_version),
            *(len(turns), trajectory.num_sampled, _fault(trajectory.fault)),
            _real(trajectory.seconds, "Trajectory.seconds"),
            blobs.of_ids(chain.from_iterable(turn.token_ids for turn in trajectory.turns), shared=len(asked.token_ids)),
            blobs.of_floats(chain.from_iterable(turn.logprobs for turn in trajectory.turns)),
            blobs.of_text("".join(turn.text for turn in trajectory.turns), shared=asked.text),
            blobs.of_text("".join(results)) if calls else None,
            blobs.of_text(dump(trajectory.product)) if trajectory.product else None,
        ),
    )
    return [own, *turns, *calls]


@of.register
def _(task: Task) -> list[Row]:
    own = (task.id, task.game, task.seed_id, clean(task.key), dump(task.payload), task.split, task.step, task.parent_id)
    return [Row("tasks", own)]


@of.register
def _(verdict: Verdict) -> list[Row]:
    return [
        Row(
            "verdicts",
            (
                *(verdict.trajectory_id, verdict.stage, int(verdict.valid)),
                None if verdict.passed is None else int(verdict.passed),
                None if verdict.reward is None else _real(verdict.reward, "Verdict.reward"),
                *(clean(verdict.reason), clean(verdict.why), verdict.task_id, dump(verdict.parts)),
                *(_fault(verdict.fault), _real(verdict.seconds, "Verdict.seconds"), dump(verdict.evidence)),
            ),
        )
    ]


@of.register
def _(group: Group) -> list[Row]:
    own = (group.id, group.step, group.role, group.subject_id, len(group.trajectory_ids), int(group.informative))
    members = zip(group.trajectory_ids, group.rewards, group.advantages, strict=True)
    return [
        Row("groups", own),
        *(
            Row(
                "group_members", (group.id, i, member, _real(reward, "Group.rewards"), _real(worth, "Group.advantages"))
            )
            for i, (member, reward, worth) in enumerate(members)
        ),
    ]


@of.register
def _(update: Update) -> list[Row]:
    return [
        Row(
            "updates",
            (
                *(update.phase, update.step, update.policy_version, _real(update.lr, "Update.lr")),
                *(update.weights_digest, update.reference_digest, clean(update.fingerprint)),
                *(_real(update.loss, "Update.loss"), _real(update.grad_norm, "Update.grad_norm"), update.tokens),
                *(None if update.skipped is None else clean(update.skipped), dump(update.metrics)),
                _real(update.seconds, "Update.seconds"),
                blobs.of_text(dump(update.trajectory_ids)),
                blobs.of_floats(update.advantages),
                blobs.of_text(dump(update.partition)),
                blobs.of_ids(len(values) for values in update.old_logprobs),
                blobs.of_floats(chain.from_iterable(update.old_logprobs)),
            ),
        )
    ]


@of.register
def _(save: Save) -> list[Row]:
    own = (save.phase, save.step, save.policy_version, save.path, save.weights_digest, save.state_digest)
    return [Row("saves", (*own, save.num_bytes))]


def launch(*, pid: int, host: str, engine_version: str) -> Row:
    """A process takes the run."""
    return Row("launches", (pid, host, engine_version))


def launch_end(launch_id: int, *, how: str) -> Row:
    """A process lets go of the run."""
    return Row("launch_ends", (launch_id, how))


def fault(broken: Fault, *, trajectory_id: str | None, attempt: int, launch_id: int) -> Row:
    """A fault, and what it happened to."""
    words = (broken.culprit, clean(broken.where), clean(broken.message), clean(broken.detail))
    return Row("faults", (launch_id, trajectory_id, attempt, *words))


def alarm(*, level: str, code: str, message: str, step: int | None) -> Row:
    """Something to look at."""
    return Row("alarms", (level, code, clean(message), step))


def control(*, action: str, arguments: Mapping[str, Any]) -> Row:
    """A line of `control.jsonl`."""
    return Row("control", (clean(action), dump(arguments)))


def step(*, step: int, stage_seconds: Mapping[str, float], counts: Mapping[str, float]) -> Row:
    """A step closes; the writer adds opening time, tallies and totals from the rows themselves."""
    return Row("steps", (step, dump(stage_seconds), dump(counts), None, None, None))


def parent(row: ParentRow) -> Row:
    """Where a fork comes from."""
    own = (1, row.path, row.config_digest, row.step, row.policy_version, row.weights_digest, row.save_path)
    return Row("parents", (*own, dump({key: list(pair) for key, pair in row.changed.items()})))


def _real(value: float, what: str) -> float:
    if value != value:
        raise ValueError(f"{what} is not a number")
    return float(value)


def _fault(broken: Fault | None) -> str | None:
    if broken is None:
        return None
    words = {"culprit": broken.culprit, "where": broken.where, "message": broken.message, "detail": broken.detail}
    return dump(words)


def origin(name: str, digest: str) -> Row:
    """What the run plays with: the source, or a role."""
    return Row("origins", (clean(name), digest))
