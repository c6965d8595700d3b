"""Tasks as JSON lines, one a line, with what their judging needs: the file of `selfplay export RUN --format tasks`.

A line holds the task, its seed, the source with the digest of its files, and the settings that decide what a right
answer is; other settings are refused, since a file may come from somebody else. A digest of settings, task and seed is
in each line, so that one that was changed is refused; older files have none, and of them only the ids are checked.

Not here: playing them (`measure`), rows for other tools (`games.code.swebench`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from selfplay.cache import cache_folder
from selfplay.config import Config
from selfplay.errors import UserError
from selfplay.evaluation.rows import text_of
from selfplay.evaluation.stints import HeldOut
from selfplay.mix import alone, games_of
from selfplay.parts import sources_of
from selfplay.project import Project
from selfplay.types import Seed, Task, digest, record, task_id

SCHEMA = "selfplay.task/1"

SETTINGS = ("run.game", "roles.proposer", "roles.solver", "play.temperature", "sandbox.timeout_seconds")
"""Settings that a line carries, beside all of the table `game`."""
LINE_DIGEST = "line_digest"


@record
class TaskFile:
    """What a file of tasks holds; all lines share the first four."""

    game: str
    source: str
    digest: str | None
    """Of the source's files; None where the game has none."""
    config_digest: str
    """Of the settings that the ids were made with."""
    settings: dict[str, Any]
    on: HeldOut


def digest_of(config: Config, project: Project) -> str | None:
    """Digest of what the configured source holds, files or a corpus; None where the game plays without either.

    Raises:
        NotFound, UserError, NotReady: as `games.code.source.fetch` and `retrieval.store.Corpus`.
    """
    if len(singles := alone(config)) > 1:
        return digest("mix", [digest_of(single, project) for single in singles])
    if config.run.game == "search":
        from selfplay.retrieval.store import Corpus

        with closing(Corpus(config.game.corpus)) as corpus:
            return corpus.info().digest
    if config.run.game != "code":
        return None
    from selfplay.games.code.source import fetch

    each = [fetch(source, cache=cache_folder()).digest for source in sources_of(config, project)]
    return each[0] if len(each) == 1 else digest("sources", each)


def source_in_words(config: Config) -> str:
    """Where the tasks come from; the game's name where it plays without a source."""
    known = {"code": config.game.source, "search": config.game.corpus}
    return " + ".join(known.get(name, name) for name in games_of(config))


def rows(
    tasks: Sequence[Task], seeds: Sequence[Seed], *, config: Config, config_digest: str, digest: str | None
) -> Iterator[dict[str, Any]]:
    """What a line holds, a task each, in their order; `config` and its digest are what they were made with."""
    own = {seed.id: seed for seed in seeds}
    kept = {k: v for k, v in config.values().items() if _is_carried(k)}
    for task in tasks:
        row = {
            "schema": SCHEMA,
            "game": config.run.game,
            "source": source_in_words(config),
            "digest": digest,
            "config_digest": config_digest,
            "settings": kept,
            "task": asdict(task),
            "seed": asdict(own[task.seed_id]),
        }
        yield {**row, LINE_DIGEST: _digest_of(row)}


def read(path: Path) -> TaskFile:
    """The tasks in `path`, in its order.

    Raises:
        NotFound: there is no such file.
        NotReady: it cannot be read.
        UserError: it holds no task, a line that is none or was changed, or tasks of several games, sources or settings.
    """
    made: TaskFile | None = None
    tasks: dict[str, Task] = {}
    seeds: dict[str, Seed] = {}
    for number, text in enumerate(text_of(path, hint=_HINT).split("\n"), start=1):
        if not text.strip():
            continue
        place = f"{path}, line {number}"
        try:
            row = json.loads(text)
            found, task, seed = _row(row)
            changed = LINE_DIGEST in row and row[LINE_DIGEST] != _digest_of(row)
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(f"{place} is no task: {error}", hint=_HINT) from error
        if task.id != task_id(found.config_digest, game=task.game, key=task.key) or task.seed_id != seed.id:
            raise UserError(f"{place}: the task is not the one that its id was made of", hint=_HINT)
        if changed:
            raise UserError(f"{place} was changed since it was written", hint=_HINT)
        made = made or found
        for what in ("game", "source", "digest", "config_digest"):
            if getattr(found, what) != getattr(made, what):
                name = "settings" if what == "config_digest" else what
                ours, theirs = getattr(found, what), getattr(made, what)
                hint = "evaluate on one file for each"
                raise UserError(f"{place} is of {name} {ours}, and the lines before it are of {theirs}", hint=hint)
        tasks[task.id], seeds[seed.id] = task, seed
    if made is None:
        raise UserError(f"{path} holds no task", hint=_HINT)
    return TaskFile(
        game=made.game,
        source=made.source,
        digest=made.digest,
        config_digest=made.config_digest,
        settings=made.settings,
        on=HeldOut(seeds=tuple(seeds.values()), tasks=tuple(tasks.values())),
    )


_HINT = "write one: selfplay export RUN --format tasks --held-out --to FILE"


def _row(row: Any) -> tuple[TaskFile, Task, Seed]:
    if not isinstance(row, dict) or row.get("schema") != SCHEMA:
        raise ValueError(f"its schema is not {SCHEMA}")
    settings = dict(row["settings"])
    if strange := [name for name in settings if not _is_carried(name)]:
        raise ValueError(f"it sets `{strange[0]}`, which is not for a file of tasks to say")
    head = TaskFile(
        game=str(row["game"]),
        source=str(row["source"]),
        digest=row["digest"],
        config_digest=str(row["config_digest"]),
        settings=settings,
        on=HeldOut(seeds=(), tasks=()),
    )
    # note: what it was minted from is a row of the run that made it, and of no other ledger.
    return head, Task(**{**row["task"], "parent_id": None}), Seed(**row["seed"])


def _is_carried(name: str) -> bool:
    """Is it a setting that a line carries?"""
    return name in SETTINGS or name.startswith("game.")


def _digest_of(row: Mapping[str, Any]) -> str:
    """Of what a line says of its task, as JSON has it."""
    return digest("line", row["settings"], row["task"], row["seed"])
