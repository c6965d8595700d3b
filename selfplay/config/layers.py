"""Reads settings from files, the environment and `-s`, merges them, and says exactly what is wrong with one.

Not here: the keys (`config.tables`), the merged result (`config.settings`).
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from selfplay.config import written
from selfplay.config.scales import ORIGIN, SCALES
from selfplay.config.settings import BUILT_IN, Config, expected, fields
from selfplay.errors import NotFound, UserError
from selfplay.project import Project, did_you_mean, line_of, read_toml
from selfplay.types import record

PREFIX = "SELFPLAY_"


@record
class Setting:
    """One value that was given somewhere."""

    name: str
    """`table.key`."""
    value: Any
    origin: str
    """Short, for provenance: `curricula/demo.toml:7`, `SELFPLAY_RUN_STEPS`, `-s`."""
    place: str
    """For messages: `curricula/demo.toml, line 7`."""


def load(
    preset: str,
    *,
    project: Project,
    sets: Sequence[str] = (),
    scale: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """The configuration of `preset`: a name under curricula/, or a path (it ends in .toml or has a slash).

    `sets` are `table.key=value` pairs, values in TOML's syntax, bare strings allowed; `scale` names one of
    `scales.SCALES`, which is laid over the preset.

    Raises:
        NotFound: there is no such preset or file.
        UserError: a key is unknown or a value does not fit; the message names key, value and place.
    """
    is_file = preset.endswith(".toml") or "/" in preset
    path = Path(preset).expanduser() if is_file else project.find("curriculum", preset)
    settings = [*_project_settings(project), *_file_settings(path, project), *_scale_settings(scale)]
    return _resolve(settings, name=path.stem, sets=sets, environ=environ)


def from_run(
    folder: Path, *, project: Project, sets: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> Config:
    """The configuration that a run was started with, from its `config.toml`.

    The project's file plays no part: every value is in the run's, and so is where it came from. Pass `environ={}` for
    the recorded values alone.

    Raises:
        NotFound: the folder holds no run.
        UserError: as for `load`.
    """
    path = folder / "config.toml"
    if not path.is_file():
        raise NotFound(f"no run in {folder}", hint="all runs: selfplay ls runs")
    raw, text = read_toml(path)
    settings = _recovered(_settings_of(raw, text, shown=_shown(path, project)), text)
    config = _resolve(settings, name=folder.name, sets=sets, environ=environ)
    config._preset = written.preset(text)
    return config


def _resolve(settings: list[Setting], *, name: str, sets: Sequence[str], environ: Mapping[str, str] | None) -> Config:
    settings += _environment_settings(os.environ if environ is None else environ)
    settings += [_parse_set(text) for text in sets]
    known = dict(fields())
    given: dict[str, Setting] = {}
    for setting in settings:
        if setting.name not in known:
            raise _unknown(setting, known)
        given[setting.name] = setting
    raw: dict[str, dict[str, Any]] = {}
    for setting in given.values():
        table, key = setting.name.split(".")
        raw.setdefault(table, {})[key] = tuple(setting.value) if isinstance(setting.value, list) else setting.value
    try:
        config = Config.model_validate(raw)
    except ValidationError as error:
        raise _misfit(error, given, known) from error
    config._provenance.update({setting.name: setting.origin for setting in given.values()})
    config._name = name
    return config


def _project_settings(project: Project) -> Iterable[Setting]:
    file = project.folder / "selfplay.toml" if project.folder is not None else None
    return _file_settings(file, project) if file is not None and file.is_file() else ()


def _file_settings(path: Path, project: Project) -> Iterator[Setting]:
    raw, text = read_toml(path)
    return _settings_of(raw, text, shown=_shown(path, project))


def _settings_of(raw: Mapping[str, Any], text: str, *, shown: str) -> Iterator[Setting]:
    for table, keys in raw.items():
        if not isinstance(keys, dict):
            line = line_of(text, table=None, key=table)
            raise UserError(
                f"`{table}` stands outside a table ({_place(shown, line)})",
                hint=f"Keys live in tables, e.g. [run]. {_in_tables(table)}All keys: selfplay config --all",
            )
        if not keys and table not in Config.model_fields:
            raise _unknown_table(table, _place(shown, line_of(text, table=table, key="")))
        for key, value in keys.items():
            line = line_of(text, table=table, key=key)
            yield Setting(
                name=f"{table}.{key}",
                value=value,
                origin=f"{shown}:{line}" if line is not None else shown,
                place=_place(shown, line),
            )


def _recovered(settings: Iterable[Setting], text: str) -> list[Setting]:
    """Each with the origin that is written behind it; with the run's file where nothing is, or it cannot be so.

    Without that a run would forget with its first resume which of its values somebody chose.
    """
    origins, defaults = {line.key: line.origin for line in written.lines(text)}, Config().values()
    found = []
    for setting in settings:
        origin = origins.get(setting.name, "")
        # note: of a value that was edited, or by a version with other defaults and scales.
        other = origin == BUILT_IN and setting.value != defaults.get(setting.name)
        gone = origin.startswith(ORIGIN) and origin.removeprefix(ORIGIN) not in SCALES
        found.append(replace(setting, origin=origin) if origin and not other and not gone else setting)
    return found


def _scale_settings(scale: str | None) -> Iterator[Setting]:
    if scale is None:
        return
    if scale not in SCALES:
        names = ", ".join(SCALES)
        raise UserError(f"there is no scale `{scale}`", hint=f"{did_you_mean(scale, SCALES)}Scales: {names}")
    for name, value in SCALES[scale].values.items():
        yield Setting(name=name, value=value, origin=f"{ORIGIN}{scale}", place=f"{ORIGIN}{scale}")


def _environment_settings(environ: Mapping[str, str]) -> list[Setting]:
    """Variables that begin with a table's name are settings, so that a slip in the key's name is found."""
    known = {PREFIX + name.replace(".", "_").upper(): (name, info) for name, info in fields()}
    tables = [f"{PREFIX}{table.upper()}_" for table in Config.model_fields]
    settings = []
    for variable in sorted(environ):
        table = next((table for table in tables if variable.startswith(table)), None)
        if table is None:
            continue
        slip = f"{table[len(PREFIX) : -1].lower()}.{variable[len(table) :].lower()}"
        name, info = known.get(variable, (slip, None))
        settings.append(
            Setting(name=name, value=_parse_value(environ[variable], info), origin=variable, place=variable)
        )
    return settings


def _parse_set(text: str) -> Setting:
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals:
        raise UserError(f"`-s {text}` has no `=`", hint="write -s table.key=value, e.g. -s run.steps=20")
    info = dict(fields()).get(name)
    return Setting(name=name, value=_parse_value(value.strip(), info), origin="-s", place=f"-s {text}")


def _parse_value(text: str, info: FieldInfo | None) -> Any:
    """A TOML value; what is not TOML, or meant for a key that takes a string, is the text itself."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    takes_string = info is not None and info.annotation is str
    return text if takes_string and not isinstance(value, str) else value


def _unknown(setting: Setting, known: Mapping[str, FieldInfo]) -> UserError:
    table, _, key = setting.name.partition(".")
    if table not in Config.model_fields and key:
        moved = [name for name in known if name.split(".")[1] == key]
        if not did_you_mean(table, Config.model_fields) and not moved:
            return _unknown_table(table, setting.place)
    short = f"{table}.{''.join(word[:1] for word in key.split('_'))}"
    # note: `learning_rate` is nearer to `lr` than letters tell.
    near = f"did you mean `{short}`? " if short in known else did_you_mean(setting.name, known)
    near = near or did_you_mean(setting.name, [name for name in known if name.split(".")[1] == (key or table)])
    if not near:
        same = [name for name in known if name.split(".")[1] == (key or table)]
        near = f"did you mean `{same[0]}`? " if same else ""
    default = ""
    if near:
        name = near.split("`")[1]
        value = Config().values()[name]
        default = f"It is {'unset' if value is None else value} by default. "
    return UserError(
        f"unknown key `{setting.name}` ({setting.place})", hint=f"{near}{default}All keys: selfplay config --all"
    )


def _unknown_table(table: str, place: str) -> UserError:
    near = did_you_mean(table, Config.model_fields)
    names = ", ".join(Config.model_fields)
    return UserError(f"unknown table `[{table}]` ({place})", hint=f"{near}Tables: {names}")


def _misfit(error: ValidationError, given: Mapping[str, Setting], known: Mapping[str, FieldInfo]) -> UserError:
    first = error.errors()[0]
    table, key = str(first["loc"][0]), str(first["loc"][1])
    name = f"{table}.{key}"
    setting = given[name]
    return UserError(
        f"`{name}` is {setting.value!r}, expected {expected(known[name])} ({setting.place})",
        hint=f"{_near_value(setting.value, known[name])}{known[name].description}",
    )


def _near_value(value: object, info: FieldInfo) -> str:
    return did_you_mean(str(value), [part for part in get_args(info.annotation) if isinstance(part, str)])


def _in_tables(key: str) -> str:
    return did_you_mean(key, [name for name, _ in fields() if name.split(".")[1] == key])


def _shown(path: Path, project: Project) -> str:
    resolved = path.resolve()
    for base in (project.folder, project.shipped):
        if base is not None and resolved.is_relative_to(base.resolve()):
            return str(resolved.relative_to(base.resolve()))
    return str(path)


def _place(shown: str, line: int | None) -> str:
    return f"{shown}, line {line}" if line is not None else shown
