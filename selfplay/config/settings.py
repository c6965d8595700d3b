"""A validated configuration: reading its keys, its digest, its difference from another, its TOML text.

Not here: the keys (`config.tables`), where values come from (`config.layers`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, PrivateAttr
from pydantic.fields import FieldInfo

from selfplay.config import tables, written
from selfplay.types import digest, record

BUILT_IN = "built-in"
"""The origin of a value that nobody chose."""


class Config(BaseModel):
    """Every setting of a run, one attribute a table: `config.learner.lr`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: tables.Run = tables.Run()
    game: tables.Game = tables.Game()
    curriculum: tables.Curriculum = tables.Curriculum()
    roles: tables.Roles = tables.Roles()
    play: tables.Play = tables.Play()
    policy: tables.Policy = tables.Policy()
    sandbox: tables.Sandbox = tables.Sandbox()
    warmup: tables.Warmup = tables.Warmup()
    learner: tables.Learner = tables.Learner()
    rewards: tables.Rewards = tables.Rewards()
    eval: tables.Eval = tables.Eval()
    alarms: tables.Alarms = tables.Alarms()

    _provenance: dict[str, str] = PrivateAttr(default_factory=dict)
    _name: str = PrivateAttr(default="")
    _preset: str = PrivateAttr(default="")
    """Of a run's own file, whose stem says nothing: the preset that it was started with."""

    @property
    def provenance(self) -> Mapping[str, str]:
        """Where each value came from, by `table.key`: `built-in`, `FILE:LINE`, a variable's name or `-s`."""
        return {name: self._provenance.get(name, BUILT_IN) for name, _ in fields()}

    @property
    def name(self) -> str:
        """The preset's name (a file's stem): the default name of the run."""
        return self._name

    @property
    def digest(self) -> str:
        """Of every key that affects results: equal digests make the same tasks, plays and updates."""
        return digest("config", {name: value for name, value in self.values().items() if affects_results(name)})

    def values(self) -> dict[str, Any]:
        """Every value by `table.key`, as JSON values, in the order of the tables."""
        return {
            f"{table}.{key}": value
            for table, keys in self.model_dump(mode="json").items()
            for key, value in keys.items()
        }

    def to_toml(self) -> str:
        """The configuration as TOML that gives the same values when it is read again; origins as comments."""
        lines = [
            written.HEAD.format(self._preset or self.name or "selfplay"),
            "# Behind each value: where it came from.",
        ]
        for name, value in self.values().items():
            table, key = name.split(".")
            if f"[{table}]" not in lines:
                lines += ["", f"[{table}]"]
            if value is None:
                lines.append(f"# {key}{written.UNSET}")
            else:
                lines.append(f"{key} = {toml_value(value)}  # {self.provenance[name]}")
        return "\n".join(lines) + "\n"

    def write(self, folder: Path) -> Path:
        """Write `config.toml` into a run's folder, whole or not at all; returns its path.

        The caller holds the run: a copy that a killed launch left half written is written over.
        """
        folder.mkdir(parents=True, exist_ok=True)
        target, aside = folder / "config.toml", folder / ".config.toml.part"
        try:
            with aside.open("w", encoding="utf-8") as file:
                file.write(self.to_toml())
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, target)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        return target


@record
class Difference:
    """A key whose value is not the same in two configurations."""

    key: str
    old: Any
    new: Any


def diff(old: Config, new: Config, *, every_key: bool = False) -> tuple[Difference, ...]:
    """Keys that differ and affect results (`every_key`: all that differ), in the order of the tables."""
    before, after = old.values(), new.values()
    return tuple(
        Difference(key=name, old=before[name], new=after[name])
        for name in before
        if before[name] != after[name] and (every_key or affects_results(name))
    )


def fields() -> Iterator[tuple[str, FieldInfo]]:
    """Every key as `table.key` with its declaration, in the order of the tables."""
    for table in Config.model_fields:
        model: type[tables.Table] = getattr(tables, table.capitalize())
        for key, info in model.model_fields.items():
            yield f"{table}.{key}", info


def affects_results(name: str) -> bool:
    """Is `table.key` part of the digest?"""
    extra = dict(fields())[name].json_schema_extra
    assert isinstance(extra, dict)
    return bool(extra["affects_results"])


def expected(info: FieldInfo) -> str:
    """What a key takes, in words: `a whole number, at least 1`."""
    bounds = [
        f"{word} {getattr(part, mark):g}"
        for part in (*info.metadata, *_inner_bounds(info.annotation))
        for mark, word in (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below"))
        if type(part).__name__.lower() == mark
    ]
    return ", ".join([_kind(info.annotation), *bounds])


def toml_value(value: Any) -> str:
    """A JSON value as TOML: strings quoted, booleans in lower case, objects as inline tables.

    Raises:
        TypeError: None has no TOML value.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        escaped = "".join(_ESCAPES.get(c) or (c if c.isprintable() else f"\\U{ord(c):08x}") for c in value)
        return f'"{escaped}"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(part) for part in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_toml_key(name)} = {toml_value(part)}' for name, part in value.items())}}}"
    raise TypeError(f"{value!r} has no TOML form")


def _toml_key(name: str) -> str:
    return name if name and all(c.isascii() and (c.isalnum() or c in "_-") for c in name) else toml_value(name)


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_WORDS: Mapping[Any, str] = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def _inner_bounds(annotation: Any) -> tuple[Any, ...]:
    """Bounds that stand inside an optional type: `Annotated[float, Field(gt=0)] | None`."""
    return tuple(
        bound
        for part in get_args(annotation)
        for inner in getattr(part, "__metadata__", ())
        for bound in getattr(inner, "metadata", ())
    )


def _kind(annotation: Any) -> str:
    if annotation in _WORDS:
        return _WORDS[annotation]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return f"one of {', '.join(map(str, parts))}" if len(parts) > 1 else f"`{parts[0]}`"
    if origin in (Union, UnionType):
        return " or ".join(_kind(part) for part in parts if part is not type(None))
    if origin is dict:
        return "an inline table of numbers, strings and booleans"
    if origin is tuple:
        if parts[-1] is Ellipsis:
            return f"a list ({_kind(parts[0])} each)"
        return f"a list of {len(parts)} numbers"
    if hasattr(annotation, "__metadata__"):
        return _kind(parts[0])
    return str(annotation)
