"""`selfplay report`: a run as one HTML file that needs nothing beside it.

Not here: what is said (`views.report`), the page (`views.report_page`).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from selfplay.cli import runs
from selfplay.cli.session import Session, common
from selfplay.errors import NotFound, NotReady

if TYPE_CHECKING:
    from selfplay.ledger import Reader
    from selfplay.project import Project
    from selfplay.views.frontier import FrontierView
    from selfplay.views.report import Report, Setting
    from selfplay.views.status import RunView

NAME = "report.html"


@click.command("report", short_help="A run as one HTML file that needs nothing beside it.")
@click.argument("run")
@click.option(
    "--to",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where to write it [default: report.html in the run's folder].",
)
@common
def command(session: Session, run: str, to: Path | None) -> None:
    """A run as one HTML file that needs nothing beside it: no network, no script; light and dark.

    Learning curves, the frontier over time, reasons for rejection, costs, proposals and their attempts, choices and
    why, configuration and how to reproduce it. Ids are anchors: report.html#task-ID, #t-ID, #step-N.

    \b
    Examples:
      selfplay report last
      selfplay report quickstart --to quickstart.html
    """
    from selfplay.ledger import Ledger
    from selfplay.views.report_page import page

    folder = runs.find_run(run, project=session.project)
    with Ledger.read(folder) as reader:
        report = report_of(reader, project=session.project)
        text = page(report)
    file = to if to is not None else folder / NAME
    num_bytes = write(file, text)
    if session.json:
        session.answer("report", _data(report, file, num_bytes), run=folder.name)
        return
    from selfplay.views.words import plural, size

    session.say(f"{folder.name}: {plural(report.run.closed, 'step')}, {size(num_bytes)}")
    session.data.write(f"{file}\n")
    session.data.flush()
    session.say(f"  open      python -m webbrowser {shlex.quote(file.resolve().as_uri())}")


def report_of(reader: Reader, *, project: Project) -> Report:
    """The report of an open ledger."""
    from selfplay.alarms import ALARMS
    from selfplay.cli.status import view_of
    from selfplay.views.report import gather

    run = view_of(reader, reader.folder)
    return gather(
        reader,
        run,
        frontier=_frontier(reader),
        fixes={name: alarm.fix for name, alarm in ALARMS.items()},
        settings=tuple(settings(reader)),
        commands=commands(run, reader, project=project),
    )


def settings(reader: Reader) -> Iterator[Setting]:
    """Every key, with its origin from config.toml's comments; from the ledger alone where that file is gone."""
    from selfplay.config import written
    from selfplay.views.report import Setting

    try:
        text = (reader.folder / "config.toml").read_text(encoding="utf-8")
    except (OSError, ValueError):
        for key, value in reader.run_row().config.items():
            yield Setting(key=key, value="" if value is None else str(value), origin="")
        return
    for line in written.lines(text):
        yield Setting(key=line.key, value=line.value, origin=line.origin)


def commands(run: RunView, reader: Reader, *, project: Project) -> tuple[tuple[str, str], ...]:
    """What to type to look on, to go on, and to play the same again."""
    from selfplay.cli.repro import again

    name, version = runs.typed(reader.folder, project=project), run.status.run.engine_version
    found = [("The version that played it:", f"pip install selfplay-curriculum=={version}")]
    if (reader.folder / "config.toml").is_file():
        start = "the weights that it was forked with" if reader.parent_row() is not None else "the beginning"
        words = f"The same settings, played again from {start}, beside it:"
        found.append((words, again(reader, project=project)))
    if run.resumable and runs.is_named(reader.folder, project=project):
        found.append(("What is left of it:", f"selfplay run --name {name}"))
    if run.closed:
        last = run.closed - 1
        found.append(("Its last step done again and compared with its records:", f"selfplay replay {name} {last}"))
    found.append(("Every digest, reference and sum of its records:", f"selfplay check {name}"))
    return (*found, ("Its proposals and attempts, all of them:", f"selfplay inspect {name}"))


def write(file: Path, text: str) -> int:
    """Write the file, whole or not at all; how many bytes it has.

    Raises:
        NotReady: it cannot be written.
    """
    data, aside = text.encode("utf-8"), file.with_name(f".{file.name}.part")
    try:
        aside.write_bytes(data)
        os.replace(aside, file)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise NotReady(
            f"cannot write {file}: {error.strerror}", hint=f"check the folder: ls -ld {file.parent}"
        ) from error
    return len(data)


def _frontier(reader: Reader) -> FrontierView | None:
    from selfplay.cli import frontier

    try:
        return frontier.view_of(reader, None)
    except NotFound:
        return None


def _data(report: Report, file: Path, num_bytes: int) -> dict[str, Any]:
    return {
        "file": str(file),
        "num_bytes": num_bytes,
        "steps": report.run.closed,
        "pairs": [pair.task.id for pair in report.pairs],
        "sampled": {
            "proposals": len(report.sample.proposals),
            "of": report.sample.of,
            "steps": list(report.sample.steps),
        },
    }
