"""Options of a curriculum: the fields of the record that its function has as default are what a run may set.

A function whose keyword `options` has a record as its default can be configured, whoever wrote it; one without can not.

Example:
    >>> configured(frontier, {"replay": 0.3})  # doctest: +SKIP
    functools.partial(<function frontier ...>, options=Frontier(replay=0.3, ...))
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

from selfplay.errors import UserError

_KINDS: Mapping[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}


def configured(choose: Any, given: Mapping[str, Any], *, name: str = "", key: str = "curriculum.options") -> Any:
    """`choose` with these options; without options the function itself.

    Raises:
        UserError: an option is unknown, of the wrong kind, or outside its bounds.
    """
    if not given:
        return choose
    name = name or getattr(choose, "__name__", "this function")
    return partial(choose, options=filled(defaults_of(choose), given, name=name, key=key))


def defaults_of(choose: Any) -> Any:
    """The record of options that a function takes; None where it takes none."""
    parameter = inspect.signature(choose).parameters.get("options")
    default = parameter.default if parameter is not None else None
    return default if is_dataclass(default) else None


def filled(default: Any, given: Mapping[str, Any], *, name: str, key: str) -> Any:
    """`default` with the given fields; whole numbers serve as numbers.

    Raises:
        UserError: as `configured`.
    """
    known = {field.name: getattr(default, field.name) for field in fields(default)} if default is not None else {}
    values = {}
    for option, value in given.items():
        if option not in known:
            listed = ", ".join(known) or "none"
            raise UserError(
                f"`{name}` has no option `{option}` ({key})", hint=f"{near(option, known)}its options: {listed}"
            )
        kind = type(known[option])
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise UserError(
                f"option `{option}` of `{name}` is {value!r}, expected {_KINDS[kind]}",
                hint=f"it is {known[option]!r} by default",
            )
        values[option] = value
    try:
        return replace(default, **values)
    except ValueError as error:
        raise UserError(f"{error} (`{name}`, {key})", hint=f"all options: {', '.join(known)}") from error


def near(name: str, names: Iterable[str]) -> str:
    """`did you mean `NAME`? ` for the nearest of `names`, or nothing."""
    found = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f"did you mean `{found[0]}`? " if found else ""


def within(options: Any, **bounds: tuple[float, float]) -> None:
    """Every named field lies within its bounds, both included.

    Raises:
        ValueError: one does not.
    """
    for name, (low, high) in bounds.items():
        value = getattr(options, name)
        if not low <= value <= high:
            end = "" if high == float("inf") else f" and at most {high:g}"
            raise ValueError(f"option `{name}` is {value:g}, expected at least {low:g}{end}")


def listed(text: str) -> tuple[str, ...]:
    """The names in a comma-separated list."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
