"""The seam: what a format is, what it gets, and which formats there are.

Built-in formats are imported when one is asked for. A package adds its own through the entry-point group
`selfplay.exports`: the entry's name is the format's, its value an object that meets `Format` or a function without
arguments that makes one. A built-in name cannot be taken; a plug-in that cannot be loaded is named in the error.

Not here: where files go (`place`), the formats.

Example:
    >>> sorted(BUILT_IN)[:3]
    ['atif', 'dpo', 'harbor']
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from selfplay.errors import NotFound, NotReady, UserError
from selfplay.ledger import Reader
from selfplay.project import Project, did_you_mean
from selfplay.types import record
from selfplay.views.evaluation import recorded

GROUP = "selfplay.exports"
"""Of the entry points."""

Shape = Literal["lines", "folder"]
"""`lines`: JSON lines, to a file or to stdout; `folder`: a folder of files, `--to` is needed."""


@record
class Asked:
    """What is exported."""

    reader: Reader
    """The run."""
    project: Project
    held_out: bool = False
    """Also what is held out."""
    step: int | None = None
    """Only what is of this step; None: of every closed one, and for tasks of the open one too."""

    @property
    def name(self) -> str:
        """The run's."""
        return self.reader.folder.name

    @property
    def steps(self) -> tuple[int, ...]:
        """The closed steps that are meant."""
        return self._meant(self.reader.last_closed_step() + 1)

    @property
    def evaluations(self) -> tuple[int, ...]:
        """After how many closed steps what is held out may have been played; none where it is not asked for.

        The last follows the last step, so that it is one more; it is there once it is whole.
        """
        closed = self.reader.last_closed_step() + 1
        return self._meant(closed + _evaluated(self.reader, closed)) if self.held_out else ()

    def _meant(self, count: int) -> tuple[int, ...]:
        return tuple(step for step in range(count) if self.step in (None, step))


def _evaluated(reader: Reader, done: int) -> bool:
    config = reader.run_row().config
    every, tasks, attempts = (int(config.get(f"eval.{name}") or 0) for name in ("every", "tasks", "attempts"))
    return every > 0 and recorded(reader, done, tasks=tasks, attempts=attempts) is not None


class Out(Protocol):
    """Where a format writes."""

    folder: Path
    """Of formats in the shape `folder`: there, empty, and given its name only once everything is written."""

    def line(self, row: Mapping[str, Any]) -> None:
        """Of formats in the shape `lines`: one JSON line more."""
        ...


@record
class Made:
    """What was written."""

    count: int
    left_out: int = 0
    """Things that the format has no form for."""
    notes: tuple[str, ...] = ()
    """What a person should know, a sentence each."""
    next: str = ""
    """A command that opens it; `{to}` stands for where it lies."""


class Format(Protocol):
    """One way to write a run."""

    about: str
    """One line for `selfplay export --help`."""
    noun: str
    """What is counted, in the singular."""
    shape: Shape
    takes: frozenset[str]
    """Which of `held_out` and `step` mean something for it; the others are refused."""

    def write(self, asked: Asked, out: Out) -> Made:
        """Write the run.

        Raises:
            NotReady: a library is missing; the hint has pip's command.
            UserError: the run holds nothing that this format is for.
        """
        ...


BUILT_IN: Mapping[str, str] = {
    "swebench": "tasks:SWEBENCH",
    "tasks": "tasks:TASKS",
    "harbor": "harbor:HARBOR",
    "sft": "traces:SFT",
    "dpo": "traces:DPO",
    "trl": "trl:TRL",
    "parquet": "tables:PARQUET",
    "hf": "dataset:HF",
    "atif": "atif:ATIF",
    "inspect": "inspect_log:INSPECT",
    "tensorboard": "trackers:TENSORBOARD",
    "trackio": "trackers:TRACKIO",
    "wandb": "trackers:WANDB",
}
"""Name -> where it lies in this package."""


def plug_ins() -> dict[str, metadata.EntryPoint]:
    """Name -> entry point of every format that an installed package adds; those of built-in names are passed over."""
    found = sorted(metadata.entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))
    return {entry.name: entry for entry in found if entry.name not in BUILT_IN}


def names() -> tuple[str, ...]:
    """Every format's name, built-in ones first."""
    return (*BUILT_IN, *plug_ins())


def find(name: str) -> Format:
    """The format of that name.

    Raises:
        NotFound: there is none.
        NotReady: a package says that it has it, and it cannot be loaded.
    """
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        return cast(Format, getattr(importlib.import_module(f"selfplay.exports.{module}"), attribute))
    entry = plug_ins().get(name)
    if entry is None:
        known = names()
        raise NotFound(f"no export format `{name}`", hint=f"{did_you_mean(name, known)}Known: {', '.join(known)}")
    try:
        found = entry.load()
        made = found() if isinstance(found, type) or (callable(found) and not hasattr(found, "write")) else found
    except Exception as error:
        raise NotReady(
            f"the format `{name}` ({entry.value}) cannot be loaded: {error}",
            hint=f"look: python -c 'import {entry.module}'",
        ) from error
    return _checked(name, made, entry.value)


def _checked(name: str, made: Any, origin: str) -> Format:
    lacking = [one for one in ("about", "noun", "shape", "takes", "write") if not hasattr(made, one)]
    if lacking:
        raise NotReady(
            f"the format `{name}` ({origin}) has no {', '.join(lacking)}",
            hint="it must meet selfplay.exports.seam.Format",
        )
    return cast(Format, made)


def needs(module: str, *, extra: str) -> Any:
    """The third-party module that a format writes with.

    Raises:
        NotReady: it is not installed; the hint has pip's command.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        top = module.partition(".")[0]
        raise NotReady(
            f"this format is written with {top}, which cannot be imported: {error}",
            hint=f"install it: pip install 'selfplay-curriculum[{extra}]'",
        ) from error


def require_rows(asked: Asked) -> None:
    """Check that the steps that are asked for are there and closed.

    Raises:
        UserError: no step is closed, or the one asked for is not.
    """
    last = asked.reader.last_closed_step()
    if last < 0:
        raise UserError(
            f"run `{asked.name}` has no closed step yet", hint=f"see how far it is: selfplay status {asked.name}"
        )
    if not asked.steps and not asked.evaluations:
        raise UserError(f"run `{asked.name}` has no closed step {asked.step}", hint=f"its closed steps are 0 to {last}")


@record
class Simple:
    """A format made of a function: what the built-in ones are."""

    about: str
    noun: str
    shape: Shape
    takes: frozenset[str]
    writer: Callable[[Asked, Out], Made]

    def write(self, asked: Asked, out: Out) -> Made:
        """As `Format.write`."""
        return self.writer(asked, out)


BOTH = frozenset({"held_out", "step"})
ONLY_STEP = frozenset({"step"})
NEITHER: frozenset[str] = frozenset()
