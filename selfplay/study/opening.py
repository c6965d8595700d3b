"""The test tasks: whether they are those that the study names, and who has looked at them.

A study's test is opened once, when every arm has been played. `opened.json` beside its results says with which digest
of the study; the same study may go on (a killed evaluation, a result that was deleted), a changed one is refused unless
it is told, and every opening stays on the page.

Not here: making the tasks (`evaluation.making`), the evaluation (`measuring`).
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from selfplay.errors import NotReady, UserError
from selfplay.study.results import whole
from selfplay.study.spec import HELD_OUT, Study
from selfplay.types import digest

NAME = "opened.json"


def task_files(study: Study) -> tuple[Path, ...]:
    """The files of the endpoint's tasks, by name; none where the runs' own held-out tasks are asked.

    Raises:
        NotReady: they are not there.
        UserError: they are not those whose digest the study names, or it names none.
    """
    if study.endpoint.tasks == HELD_OUT:
        return ()
    found = files_in(study)
    if not found:
        raise NotReady(
            f"the tasks of study `{study.name}` are not there: {place(study)}",
            hint=f"make them: selfplay study {study.path} --make-tasks",
        )
    now = digest_of(found)
    if now != study.endpoint.digest:
        named = f"other tasks ({study.endpoint.digest[:12]})" if study.endpoint.digest else "no digest of its tasks"
        raise UserError(
            f"{study.path} names {named}, and {place(study)} holds {now}",
            hint=f'write it down before the runs, under [endpoint]: digest = "{now}"',
        )
    return found


def place(study: Study) -> Path:
    """The file or folder of the endpoint's tasks."""
    return study.path.parent / study.endpoint.tasks


def files_in(study: Study) -> tuple[Path, ...]:
    """Those that are there."""
    where = place(study)
    return (where,) if where.is_file() else tuple(sorted(where.glob("*.jsonl")))


def digest_of(paths: Sequence[Path]) -> str:
    """Of the names and contents of the files."""
    return digest("tasks", [[path.name, path.read_text(encoding="utf-8")] for path in paths])


def openings(folder: Path) -> list[dict[str, Any]]:
    """Who has looked at the test tasks, first one first.

    Raises:
        UserError: the file that says so is damaged.
    """
    path = folder / NAME
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}", hint=f"bring back its last form: git checkout {path}") from error
    assert isinstance(found, list)
    return found


def is_open(study: Study) -> bool:
    """Was the test opened with this very form of the study?"""
    return any(one["study"] == study.digest for one in openings(study.results))


def open_test(study: Study, *, again: bool) -> None:
    """Write down that the test is looked at.

    Raises:
        UserError: it was opened with another form of the study, and nobody said that this is meant.
    """
    study.results.mkdir(parents=True, exist_ok=True)
    held = os.open(study.results, os.O_RDONLY)
    try:
        # note: two shells that play one study may come here at the same moment.
        fcntl.flock(held, fcntl.LOCK_EX)
        _note(study, again=again)
    finally:
        os.close(held)


def _note(study: Study, *, again: bool) -> None:
    if is_open(study):
        return
    before = openings(study.results)
    if before and not again:
        raise UserError(
            f"the test of study `{study.name}` was opened before, and the study has changed since",
            hint="what was tuned since then has seen the test. If that is meant, it stays on the page:\n"
            f"      selfplay study {study.path} --open-again",
        )
    entry = {"study": study.digest, "seeds": list(study.seeds), "budget": study.budget}
    whole(study.results / NAME, json.dumps([*before, entry], indent=1) + "\n")
