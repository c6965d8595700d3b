"""`selfplay export`: a run's tasks or plays as rows, for other tools or for `selfplay eval --on FILE`.

Not here: the rows (`games.code.swebench`, `evaluation.tasks`, `views.traces`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from selfplay.cli import runs
from selfplay.cli.session import Session, common
from selfplay.errors import NotReady, UserError

if TYPE_CHECKING:
    from selfplay.types import Task

FORMATS = ("swebench", "tasks", "sft", "dpo")
TRACES = ("sft", "dpo")
"""Formats that hold plays, not tasks."""


@click.command("export", short_help="A run's tasks or plays as rows for other tools.")
@click.argument("run")
@click.option("--format", "form", type=click.Choice(FORMATS), default="swebench", help="What to make of it.")
@click.option("--to", type=click.Path(path_type=Path), metavar="FILE", help="Write there [default: stdout].")
@click.option("--held-out", is_flag=True, help="Also tasks of held-out seeds and of the dev set.")
@common
def command(session: Session, run: str, *, form: str, to: Path | None, held_out: bool) -> int:
    """Write the tasks of RUN as JSON lines: in the columns of SWE-bench, or for `selfplay eval --on FILE` (tasks).

    Or what was played, for other learners, in TRL's conversational columns: sft has every play that succeeded, dpo the
    best and the worst of each group that taught something. Held-out tasks are in neither.

    A row of SWE-bench has the gold patch, the tests that decide, and a script that its public harness can grade. A
    source archive has no commit: base_commit is a digest of the tree with the bug, which `source` and `bug_patch` make.
    Tests whose names hold white space are left out, since the harness cannot read them. The run is only read.

    \b
    Examples:
      selfplay export last --format swebench > tasks.jsonl
      selfplay export quickstart --format tasks --held-out --to tasks.jsonl
      selfplay export quickstart --format dpo --to pairs.jsonl
    """
    folder = runs.find_run(run, project=session.project)
    if form in TRACES:
        if held_out:
            raise UserError(f"--held-out is for tasks: {form} holds what the run learnt from", hint="leave it out")
        return _traces(session, folder, form, to)
    tasks = _tasks(folder, held_out=held_out, form=form)
    rows = _own_rows(session, folder, tasks) if form == "tasks" else _rows(session, folder, tasks)
    left_out = len(tasks) - len(rows)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if to is not None:
        _write(to, text)
    if session.json:
        data = {"format": form, "file": str(to) if to else None, "count": len(rows), "left_out": left_out}
        session.answer("export", data if to else {**data, "rows": rows}, run=folder.name)
        return 0
    if to is None:
        session.data.write(text)
    from selfplay.views.words import plural

    where = f", in {to}" if to else ""
    session.say(f"{folder.name}: {plural(len(rows), 'task')}{where}" + (f"; {left_out} left out" if left_out else ""))
    return 0


def _traces(session: Session, folder: Path, form: str, to: Path | None) -> int:
    """Plays as rows, one step in memory at a time where they go into a file."""
    from selfplay.ledger import Ledger
    from selfplay.views import traces
    from selfplay.views.words import plural

    count, rows = 0, []
    with Ledger.read(folder) as reader, _lines(to, session) as put:
        for row in (traces.sft if form == "sft" else traces.dpo)(reader):
            count += 1
            if session.json and to is None:
                rows.append(row)
            else:
                put(json.dumps(row, ensure_ascii=False) + "\n")
    if session.json:
        data = {"format": form, "file": str(to) if to else None, "count": count, "left_out": 0}
        session.answer("export", data if to else {**data, "rows": rows}, run=folder.name)
    else:
        session.say(f"{folder.name}: {plural(count, 'row')}" + (f", in {to}" if to else ""))
    return 0


@contextmanager
def _lines(to: Path | None, session: Session) -> Iterator[Callable[[str], object]]:
    """Where lines go: a file, whole or not at all, or stdout."""
    if to is None:
        yield session.data.write
        return
    aside = to.with_name(f".{to.name}.{os.getpid()}.part")
    try:
        with aside.open("w", encoding="utf-8") as file:
            yield file.write
        aside.replace(to)
    except OSError as error:
        hint = f"check the folder: ls -ld {to.parent}"
        raise NotReady(f"cannot write {to}: {error.strerror}", hint=hint) from error
    finally:
        aside.unlink(missing_ok=True)


def _tasks(folder: Path, *, held_out: bool, form: str) -> list[Task]:
    """Every task that was minted, by step and id."""
    from selfplay.ledger import Ledger

    with Ledger.read(folder) as reader:
        if form == "swebench" and reader.run_row().game != "code":
            raise UserError(
                f"run `{folder.name}` plays `{reader.run_row().game}`, and SWE-bench rows are bugs in code",
                hint=f"for evaluations: selfplay export {folder.name} --format tasks",
            )
        # note: dev tasks are of step -1.
        found = [task for step in range(-1, reader.open_step() + 1) for task in reader.tasks(step)]
    return [task for task in found if held_out or task.split == "train"]


def _own_rows(session: Session, folder: Path, tasks: list[Task]) -> list[dict[str, Any]]:
    from selfplay.evaluation.grounds import config_of
    from selfplay.evaluation.tasks import digest_of, rows
    from selfplay.ledger import Ledger

    config, own = config_of(folder, project=session.project)
    digest = digest_of(config, session.project)
    with Ledger.read(folder) as reader:
        return list(rows(tasks, reader.seeds(), config=config, config_digest=own, digest=digest))


def _rows(session: Session, folder: Path, tasks: list[Task]) -> list[dict[str, Any]]:
    from selfplay import parts
    from selfplay.cache import cache_folder
    from selfplay.config import from_run
    from selfplay.games.code.needs import wheels_of
    from selfplay.games.code.source import fetch
    from selfplay.games.code.swebench import Packed, rows
    from selfplay.ledger import Ledger
    from selfplay.sandbox.environment import tool_versions
    from selfplay.sandbox.recipe import load_recipe

    config = from_run(folder, project=session.project, environ={})
    repository = fetch(parts.source_of(config, session.project), cache=cache_folder())
    tools = tool_versions(load_recipe(folder=parts.sandboxes(session.project)).tools)
    wheels = wheels_of(repository, more=config.game.requirements, tools=tools)
    with Ledger.read(folder) as reader:
        made = datetime.fromtimestamp(reader.run_row().at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    needed = sorted({*tools, *(f"{wheel.name}=={wheel.version}" for wheel in wheels)})
    try:
        return list(rows(tasks, packed=Packed(repository=repository, requirements=tuple(needed), created_at=made)))
    except (ValueError, FileNotFoundError) as error:
        raise UserError(
            f"the tasks of `{folder.name}` do not fit {config.game.source}: {error}",
            hint="give the tree that the run was played on back its content, and type the command again",
        ) from error


def _write(to: Path, text: str) -> None:
    """Whole or not at all."""
    aside = to.with_name(f".{to.name}.{os.getpid()}.part")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(to)
    except OSError as error:
        raise NotReady(
            f"cannot write {to}: {error.strerror}", hint="check the folder: ls -ld " + str(to.parent)
        ) from error
    finally:
        aside.unlink(missing_ok=True)
