"""`selfplay run`: play and learn; the same command again resumes.

Not here: what is played (`build`, `loop`), the screen (`views.progress`).
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from selfplay.cli import runs, signals
from selfplay.cli.session import Session, common
from selfplay.errors import UserError
from selfplay.events import Event, Interrupt
from selfplay.types import record

if TYPE_CHECKING:
    from selfplay.build import Outcome
    from selfplay.config import Config
    from selfplay.project import Project
    from selfplay.views.observers import JsonObserver, LiveObserver, PlainObserver

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT = "quickstart"

STOPPED = 75
"""Stopped with work owed."""


@record
class Options:
    """What was typed."""

    preset: str | None
    name: str | None
    new: bool
    plan: bool
    quiet: bool
    detach: bool
    fork: str | None
    """`RUN[@STEP]`."""
    scale: str | None
    sets: tuple[str, ...]
    """`-s`, with `--steps` and `--sandbox` behind them."""

    @classmethod
    def of(cls, preset: str | None, given: Mapping[str, Any]) -> Self:
        """From click's values."""
        sets = list(given["sets"])
        if given["steps"] is not None:
            sets.append(f"run.steps={given['steps']}")
        if given["sandbox"] is not None:
            sets.append(f"sandbox.kind={given['sandbox']}")
        return cls(
            preset=preset,
            name=given["name"],
            new=given["new"],
            plan=given["plan"],
            quiet=given["quiet"],
            detach=bool(given.get("detach")),
            fork=given.get("fork"),
            scale=given.get("scale"),
            sets=tuple(sets),
        )


def options(function: F) -> F:
    """The options of `run` and `demo`."""
    for option in (
        click.option("-q", "--quiet", is_flag=True, help="No progress, only alarms and the summary."),
        click.option("--detach", is_flag=True, help="Play in a process of its own; return once it holds the run."),
        click.option("--plan", is_flag=True, help="Print what would be played, with every constant; play nothing."),
        click.option("--fork", metavar="RUN[@STEP]", help="Start from that run's weights; needs a --name of its own."),
        click.option("--new", is_flag=True, help="Start another run (NAME-2, ...) where NAME exists."),
        click.option("--scale", metavar="S", help="How much: smoke, laptop, gpu, node or ray; laid over the preset."),
        click.option("--sandbox", metavar="S", help="auto, docker, bubblewrap, or local (isolates nothing)."),
        click.option("-s", "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Override a setting; repeatable."),
        click.option("--steps", type=int, metavar="N", help="Steps in all."),
        click.option("--name", metavar="N", help="Name of the run [default: the preset's]."),
    ):
        function = option(function)
    return function


@click.command("run", short_help="Play and learn; the same command again resumes.")
@click.argument("preset", required=False, metavar="[PRESET|FILE.toml]")
@options
@common
def command(session: Session, preset: str | None, **given: object) -> int:
    """Play and learn; the same command again resumes.

    PRESET is a name under curricula/ [default: quickstart]. With --name alone an existing run goes on with its own
    settings. --fork starts another run from the weights of a save, without warm-up, with that run's settings where
    no PRESET is given; typed again it goes on, also where that save or that run is gone.

    \b
    Examples:
      selfplay run
      selfplay run quickstart --steps 2 -s learner.lr=2e-6 --name slow
      selfplay run --fork quickstart@5 -s learner.lr=5e-7 --name slower
      selfplay run --detach
    """
    return play(session, Options.of(preset, given))


def play(session: Session, asked: Options) -> int:
    """Resolve the settings, play, sum up; returns the exit code."""
    if session.json:
        session.claim_stdout()
    config, folder = resolve(session, asked)
    if asked.fork is not None:
        _fork(session, asked.fork, config, folder, only_say=asked.plan or asked.detach)
    if asked.plan:
        return show_plan(session, config, folder)
    if asked.detach:
        from selfplay.cli.detach import detach

        preset = asked.preset or _settings_of(asked, project=session.project)
        return detach(session, [*_words(asked, preset=preset), "--name", folder.name], folder)
    session.run_folder = folder
    from selfplay import build

    interrupt = Interrupt()
    observer = make_observer(session, folder.name, quiet=asked.quiet)
    began = time.monotonic()
    with observer, signals.listen(interrupt, say=_announcer(observer)):
        outcome = build.execute(config, project=session.project, folder=folder, observe=observer, interrupt=interrupt)
        seconds = time.monotonic() - began
        observer(Event(kind="end", data={"stop": outcome.stop, "steps": outcome.steps, "seconds": seconds}))
    sum_up(session, folder, outcome)
    if outcome.stop == "done":
        return 0
    return 128 + interrupt.signal if outcome.stop == "interrupted" and interrupt.signal else STOPPED


def resolve(session: Session, asked: Options) -> tuple[Config, Path]:
    """The settings and the folder of the run that was asked for.

    Raises:
        UserError: a setting is wrong, or the run exists with other settings.
    """
    from selfplay import config as configs

    project = session.project
    named = project.runs / runs.check_name(asked.name) if asked.name is not None else None
    goes_on = named is not None and (named / "config.toml").is_file()
    own = named if goes_on and not asked.new else None
    if asked.scale is not None and asked.preset is None and (asked.fork is not None or goes_on):
        raise UserError(
            "--scale is laid over a preset, and the settings of a run have their sizes already",
            hint=f"leave it out, or name the preset: selfplay run {DEFAULT} --scale {asked.scale} --name NAME",
        )
    if asked.fork is not None and asked.preset is None:
        parent, _ = _forked(session, asked.fork, own)
        # note: of a deleted parent's settings those that were taken over are in the fork's own.
        known = parent if own is None or (parent / "config.toml").is_file() else own
        config = configs.from_run(known, project=project, sets=asked.sets)
    elif asked.preset is None and named is not None and goes_on:
        config = configs.from_run(named, project=project, sets=asked.sets)
    else:
        config = configs.load(asked.preset or DEFAULT, project=project, sets=asked.sets, scale=asked.scale)
    if asked.fork is not None and asked.name is None:
        free = runs.free_name(_forked(session, asked.fork, None)[0].name, project=project)
        raise UserError("a fork is another run and needs a name", hint=f"add --name {free}")
    name = runs.check_name(asked.name or config.name)
    folder = project.runs / (runs.free_name(name, project=project) if asked.new else name)
    _refuse_change(config, folder, session=session, asked=asked)
    return config, folder


def _settings_of(asked: Options, *, project: Project) -> str | None:
    """The file whose settings a --new run takes over from the run of that name; behind its own name none are found."""
    if not asked.new or asked.fork is not None or asked.name is None:
        return None
    file = project.runs / asked.name / "config.toml"
    return str(file) if file.is_file() else None


def _forked(session: Session, text: str, folder: Path | None) -> tuple[Path, int | None]:
    """`RUN[@STEP]`: the run's folder and the step; where the fork in `folder` says so, that of a deleted run."""
    name, at, number = text.rpartition("@") if "@" in text else (text, "", "")
    if at and not number.removeprefix("-").isdecimal():
        raise UserError(f"`{text}` has no step behind the `@`", hint=f"a number, e.g. --fork {name}@5")
    parent = _gone(folder, name) if folder is not None else None
    return parent or runs.find_run(name, project=session.project), int(number) if at else None


def _gone(folder: Path, name: str) -> Path | None:
    """Where the run `name` lay, if the one in `folder` is a fork of it and it is there no more."""
    from selfplay import fork
    from selfplay.ledger import Ledger

    if not (folder / runs.LEDGER).is_file():
        return None
    with Ledger.read(folder) as reader:
        row = reader.parent_row()
    parent = fork.parent_of(folder, row) if row is not None else None
    # note: not left to `find_run`, for which the name of a deleted run may be the beginning of its fork's.
    return parent if parent and parent.name == Path(name).name and not (parent / runs.LEDGER).is_file() else None


def _fork(session: Session, text: str, config: Config, folder: Path, *, only_say: bool) -> None:
    """Make the fork in `folder`, or see whether it could be made; one that is there needs nothing of its parent."""
    from selfplay import config as configs
    from selfplay import fork

    parent, step = _forked(session, text, folder)
    if row := fork.made(config, parent, folder=folder, step=step):
        words, version = row.words, row.policy_version
    else:
        changed = configs.diff(configs.from_run(parent, project=session.project, environ={}), config)
        source = fork.find(parent, changed, step=step)
        words, version = source.words, source.save.policy_version
        if not only_say:
            fork.make(config, source, folder=folder)
    session.say(f"{folder.name}: forked from {words}, weights v{version}, no warm-up")


def _refuse_change(config: Config, folder: Path, *, session: Session, asked: Options) -> None:
    """Name every key that differs from the settings a run was started with."""
    from selfplay import config as configs

    if not (folder / "config.toml").is_file():
        return
    recorded = configs.from_run(folder, project=session.project, environ={})
    changed = configs.diff(recorded, config)
    if not changed:
        return
    width = max(len(difference.key) for difference in changed)
    lines = [f"  {d.key:<{width}}  {_value(d.old)} -> {_value(d.new)}" for d in changed]
    raise UserError(
        f"run `{folder.name}` was started with other settings\n\n" + "\n".join(lines),
        hint=_ways_out(
            asked, folder, [d.key for d in changed], free=runs.free_name(folder.name, project=session.project)
        ),
    )


def _ways_out(asked: Options, folder: Path, changed: Sequence[str], *, free: str) -> str:
    """The commands that one may have meant: keep the settings, start anew, start from the weights."""
    from selfplay.fork import FIXED

    again = _command(asked, preset=asked.preset or (str(folder / "config.toml") if asked.name else None))
    ways = [
        f"keep the old settings: selfplay run --name {folder.name}",
        f"or start another run: {again} --name {free}",
    ]
    if asked.fork is None and not set(changed) & set(FIXED):
        again = _command(asked, preset=asked.preset)
        ways.append(f"or start from its weights: {again} --fork {folder.name} --name {free}")
    return "\n      ".join(ways)


def _command(asked: Options, *, preset: str | None) -> str:
    return shlex.join(["selfplay", *_words(asked, preset=preset)])


def _words(asked: Options, *, preset: str | None) -> list[str]:
    """What would be typed again, but for the name."""
    words = ["run", *([preset] if preset else [])]
    if asked.scale is not None:
        words += ["--scale", asked.scale]
    for text in asked.sets:
        words += ["-s", text]
    if asked.fork is not None:
        words += ["--fork", asked.fork]
    return words


def _value(value: object) -> str:
    return "unset" if value is None else str(value)


def make_observer(session: Session, run: str, *, quiet: bool) -> LiveObserver | PlainObserver | JsonObserver:
    """JSON lines where asked for, a live screen on a terminal, plain lines elsewhere."""
    from selfplay.views.observers import JsonObserver, LiveObserver, PlainObserver

    if session.json:
        return JsonObserver(session.data, run=run)
    console = session.console(stderr=True)
    if quiet or not console.is_terminal or console.is_dumb_terminal:
        return PlainObserver(sys.stderr, run=run, quiet=quiet)
    return LiveObserver(console, run=run)


def _announcer(observer: LiveObserver | PlainObserver | JsonObserver) -> Callable[[str], None]:
    """Tells people that the run is stopping, where they look."""
    from selfplay.views.observers import LiveObserver

    def say(text: str) -> None:
        if isinstance(observer, LiveObserver):
            observer(Event(kind="note", data={"text": text}))
        else:
            # Inside a signal handler a buffered stream may be in the middle of a write.
            os.write(2, f"{text}\n".encode())

    return say


def show_plan(session: Session, config: Config, folder: Path) -> int:
    """Print what would be played, with every formula and constant, and what it will take."""
    from selfplay import build
    from selfplay.cli import forecast
    from selfplay.plan import published
    from selfplay.views.plan import differences_table, plan_data, plan_table

    rows = (*build.plan(config, session.project), *forecast.rows(config, session.project, folder))
    others = published(config, session.project)
    if session.json:
        data = {"folder": str(folder), "rows": plan_data(rows), "differences": [asdict(one) for one in others]}
        session.answer("plan", data, run=folder.name)
    else:
        session.console().print(plan_table(rows))
        if others:
            session.console().print("", differences_table(others))
        session.say(f"nothing was played; without --plan it is, in {folder}")
    return 0


def sum_up(session: Session, folder: Path, outcome: Outcome) -> None:
    """The summary table, where the run lies, and the next commands."""
    if session.json:
        return
    from selfplay import config as configs
    from selfplay.ledger import Ledger
    from selfplay.views.status import step_table, time_words

    with Ledger.read(folder) as reader:
        rows: Sequence[Any] = reader.step_rows()
    if rows:
        session.console().print(step_table(rows))
        session.say(f"time: {time_words(rows)}")
    name = folder.name
    # note: read anew, since `selfplay set` may have changed them while it played.
    steps = configs.from_run(folder, project=session.project, environ={}).run.steps
    end = "done" if outcome.stop == "done" else "stopped, the rest is owed"
    session.say(f"{name}: {outcome.steps} of {steps} steps, {end}; it lies in {folder}")
    if outcome.stop != "done":
        session.say(f"  resume    selfplay run --name {name}")
    session.say(f"  look      selfplay status {name} · selfplay inspect {name}")
    if outcome.steps:
        session.say(f"  report    selfplay report {name}")
    if outcome.stop == "done":
        session.say(f"  go on     selfplay run --name {name} --steps {max(1, steps * 2)}")
