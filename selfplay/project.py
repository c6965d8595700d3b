"""Finds what people edit: roles, curricula, sandboxes, and the folder of the runs.

A *project* is a folder with `selfplay.toml`, roles or curricula. A name is looked up in the project first,
then in the copy that ships with selfplay (`selfplay/_project` in a wheel, the repository root in a checkout).

Not here: settings (`config`), rendering of prompts (`rollout`), plug-ins.

Example:
    >>> project = find_project(explicit=None)
    >>> project.load_role("injector").side
    'proposer'
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from selfplay.errors import NotFound, UserError
from selfplay.types import Limits, Role, Sampling, Side, Tools, record

Kind = Literal["role", "curriculum", "sandbox"]

FOLDERS: Mapping[Kind, str] = {"role": "roles", "curriculum": "curricula", "sandbox": "sandboxes"}
NOUNS: Mapping[Kind, str] = {"role": "role", "curriculum": "preset", "sandbox": "sandbox"}
LISTINGS: Mapping[Kind, str] = {"role": "roles", "curriculum": "presets", "sandbox": "sandboxes"}


@record
class Entry:
    """One role, preset or sandbox and where it comes from."""

    kind: Kind
    name: str
    path: Path
    """The folder; for a preset the file."""
    origin: Literal["project", "shipped"]
    hides: Path | None
    """The shipped one of the same name, which this one replaces."""
    about: str
    """First comment line of its TOML."""


@record
class Project:
    """Where things are looked up, first hit wins."""

    folder: Path | None
    """The project; None where there is none."""
    shipped: Path
    """What comes with selfplay."""
    runs: Path
    """Holds one folder a run."""

    def find(self, kind: Kind, name: str) -> Path:
        """Folder of the role or sandbox, or file of the preset.

        Raises:
            NotFound: there is none; the hint names the nearest one.
        """
        for entry in self.list_all(kind):
            if entry.name == name:
                return entry.path
        names = [entry.name for entry in self.list_all(kind)]
        raise NotFound(
            f"no {NOUNS[kind]} `{name}`",
            hint=f"{did_you_mean(name, names)}All {LISTINGS[kind]}: selfplay ls {LISTINGS[kind]}",
        )

    def list_all(self, kind: Kind) -> tuple[Entry, ...]:
        """Every entry of a kind that can be found, by name, with what it hides."""
        shipped = dict(_scan(self.shipped / FOLDERS[kind], kind))
        own = dict(_scan(self.folder / FOLDERS[kind], kind)) if self.folder is not None else {}
        entries = []
        for name in sorted(shipped.keys() | own.keys()):
            path = own.get(name, shipped.get(name))
            assert path is not None
            hidden = shipped.get(name) if name in own else None
            entries.append(
                Entry(
                    kind=kind,
                    name=name,
                    path=path,
                    origin="project" if name in own else "shipped",
                    hides=hidden if hidden != path else None,
                    about=_about(path),
                )
            )
        return tuple(entries)

    def load_role(self, name: str) -> Role:
        """The role `name`, checked: an unknown key, side or type is refused.

        Raises:
            NotFound: there is no such role.
            UserError: `role.toml` or `prompt.md` cannot be used; the message names file, line and key.
        """
        folder = self.find("role", name)
        prompt = folder / "prompt.md"
        if not prompt.is_file():
            raise UserError(f"role `{name}` has no prompt.md ({folder})", hint=f"write {prompt}")
        try:
            text = prompt.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{prompt} is not UTF-8: {error.reason} at byte {error.start}") from error
        return _role(folder / "role.toml", name=name, prompt=text)


def find_project(*, explicit: Path | None, start: Path | None = None) -> Project:
    """The project to work in: `explicit`, else `SELFPLAY_PROJECT`, else the nearest folder upwards from `start`.

    Runs lie in the project's `runs/` (in `start`'s, where there is no project); `SELFPLAY_RUNS` overrides.

    Raises:
        NotFound: a folder that was named does not exist.
    """
    start = (start or Path.cwd()).resolve()
    named = explicit or (Path(value) if (value := os.environ.get("SELFPLAY_PROJECT")) else None)
    if named is not None:
        folder: Path | None = named.expanduser().resolve()
        if not named.expanduser().is_dir():
            whence = "--project" if explicit is not None else "SELFPLAY_PROJECT"
            raise NotFound(f"no folder `{named}` ({whence})", hint=f"make it: mkdir -p {named}")
    else:
        folder = next((parent for parent in (start, *start.parents) if _is_project(parent)), None)
    runs = Path(value).expanduser() if (value := os.environ.get("SELFPLAY_RUNS")) else (folder or start) / "runs"
    return Project(folder=folder, shipped=shipped_folder(), runs=runs)


def shipped_folder() -> Path:
    """The copy of roles, curricula and sandboxes that comes with this installation."""
    package = Path(__file__).resolve().parent
    inside = package / "_project"
    return inside if inside.is_dir() else package.parent


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`did you mean `NAME`? ` for the nearest of `names`, or nothing."""
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f"did you mean `{near[0]}`? " if near else ""


def read_toml(path: Path) -> tuple[dict[str, Any], str]:
    """Values and text of a TOML file.

    Raises:
        NotFound: no such file.
        UserError: it cannot be read, is not UTF-8 or not TOML.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text), text
    except FileNotFoundError as error:
        raise NotFound(
            f"no file `{path}`", hint="a preset's name or a file is expected: selfplay ls presets"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not TOML: {error}", hint="strings need quotes; one `key = value` a line") from error


def line_of(text: str, *, table: str | None, key: str) -> int | None:
    """1-based line on which `key` of `table` is set in TOML `text`; None where it cannot be told.

    With `key` empty, the line of the table's header.
    """
    current: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        header = re.match(r"\s*\[\[?\s*([^\]#]+?)\s*\]", line)
        if header is not None:
            current = header.group(1).replace('"', "").replace("'", "")
            if not key and current == table:
                return number
            continue
        assigned = re.match(r"""\s*["']?([\w.\-]+)["']?\s*=""", line)
        if assigned is not None and key:
            path = assigned.group(1) if current is None else f"{current}.{assigned.group(1)}"
            if path == (key if table is None else f"{table}.{key}"):
                return number
    return None


def _is_project(folder: Path) -> bool:
    # A bare roles/ is not enough: other tools use that name.
    return (
        (folder / "selfplay.toml").is_file()
        or next(iter((folder / "roles").glob("*/role.toml")), None) is not None
        or next(iter((folder / "curricula").glob("*.toml")), None) is not None
    )


def _scan(folder: Path, kind: Kind) -> Iterable[tuple[str, Path]]:
    if kind == "curriculum":
        return [(path.stem, path) for path in sorted(folder.glob("*.toml"))]
    pattern = "*/role.toml" if kind == "role" else "*/*"
    return sorted({(path.parent.name, path.parent) for path in folder.glob(pattern)})


def _about(path: Path) -> str:
    file = path if path.is_file() else next(iter(sorted(path.glob("*.toml"))), None)
    if file is None:
        return ""
    with file.open(encoding="utf-8", errors="replace") as lines:
        first = lines.readline()
    return first.lstrip("# ").strip() if first.startswith("#") else ""


_ROLE_KEYS: Mapping[str, Mapping[str, type]] = {
    "": {"game": str, "side": str, "template": str},
    "limits": {"turns": int, "tokens": int, "context": int, "output": int, "seconds": float},
    "sampling": {"temperature": float, "max_tokens": int, "stop": list},
    "tools": {"names": list, "form": str, "renderer": str, "harness": list},
}
TURNS = 128
"""Replies that a role with tools may give where it does not say. Source: CWM's `max_turns`."""
_TABLES = tuple(filter(None, _ROLE_KEYS))
_WORDS: Mapping[type, str] = {
    str: "a string",
    int: "a whole number above 0",
    float: "a number above 0",
    list: "a list of strings",
}


def _role(file: Path, *, name: str, prompt: str) -> Role:
    raw, text = read_toml(file)
    top = {key: value for key, value in raw.items() if not isinstance(value, dict)}
    tables = {key: value for key, value in raw.items() if isinstance(value, dict)}
    for table, values in {"": top, **tables}.items():
        _check_role_table(file, text, table=table, values=values)
    for key in ("game", "side"):
        if key not in top:
            raise UserError(f"role `{name}` sets no `{key}` ({file})", hint=f"add a line to {file}: {key} = ...")
    _check_choice(file, text, key="side", value=top["side"], choices=get_args(Side))
    template = top.get("template", "plain")
    _check_choice(file, text, key="template", value=template, choices=("plain", "chat"))
    sampling = dict(tables.get("sampling", {}))
    sampling["stop"] = tuple(sampling.get("stop", ()))
    tools = _tools(file, text, values=tables["tools"], template=template) if "tools" in tables else None
    limits = Limits(**{"turns": TURNS if tools else 1, **tables.get("limits", {})})
    if limits.turns > 1 and tools is None:
        where = _where(file, line_of(text, table="limits", key="turns"))
        raise UserError(
            f"role `{name}` has {limits.turns} turns and no tools to use in them ({where})",
            hint="give it a table [tools], or set `turns = 1`",
        )
    return Role(
        name=name,
        game=top["game"],
        side=top["side"],
        template=template,
        prompt=prompt,
        limits=limits,
        sampling=Sampling(**sampling),
        tools=tools,
        origin=str(file.parent),
    )


def _tools(file: Path, text: str, *, values: Mapping[str, Any], template: str) -> Tools:
    """The table [tools], whose keys and types are checked already."""
    made = Tools(**{**values, "names": tuple(values.get("names", ())), "harness": tuple(values.get("harness", ()))})
    for key, choices in (
        ("form", ("fenced", "json", "native", "tags")),
        ("renderer", ("auto", "chatml", "llama3", "plain")),
    ):
        _check_choice(file, text, table="tools", key=key, value=getattr(made, key), choices=choices)
    twice = next((name for number, name in enumerate(made.names) if name in made.names[:number]), None)
    if twice is not None:
        where = _where(file, line_of(text, table="tools", key="names"))
        raise UserError(f"`tools.names` names `{twice}` twice ({where})")
    if made.harness and (beside := next((key for key in ("names", "form") if key in values), None)):
        where = _where(file, line_of(text, table="tools", key=beside))
        raise UserError(f"a harness has tools of its own, and `tools.{beside}` says nothing of them ({where})")
    if made.form == "native" and (made.renderer != "auto" or template != "chat"):
        where = _where(file, line_of(text, table="tools", key="form"))
        raise UserError(
            f'`form = "native"` needs the tokenizer\'s chat template ({where})',
            hint='set `template = "chat"`, and no `tools.renderer`',
        )
    return made


def _check_role_table(file: Path, text: str, *, table: str, values: Mapping[str, Any]) -> None:
    known = _ROLE_KEYS.get(table)
    if known is None:
        where = _where(file, line_of(text, table=table, key=""))
        raise UserError(
            f"unknown table `[{table}]` ({where})",
            hint=f"{did_you_mean(table, _TABLES)}A role has the tables {', '.join(f'[{name}]' for name in _TABLES)}",
        )
    for key, value in values.items():
        where = _where(file, line_of(text, table=table or None, key=key))
        full = f"{table}.{key}" if table else key
        if key not in known:
            names = ", ".join(known)
            raise UserError(f"unknown key `{full}` ({where})", hint=f"{did_you_mean(key, known)}Known here: {names}")
        if not _fits(value, known[key]):
            raise UserError(f"`{full}` is {value!r}, expected {_WORDS[known[key]]} ({where})")


def _check_choice(
    file: Path, text: str, *, key: str, value: str, choices: tuple[str, ...], table: str | None = None
) -> None:
    if value not in choices:
        where = _where(file, line_of(text, table=table, key=key))
        raise UserError(
            f"`{f'{table}.{key}' if table else key}` is {value!r}, expected {' or '.join(choices)} ({where})",
            hint=did_you_mean(value, choices).strip(),
        )


def _fits(value: object, kind: type) -> bool:
    if kind is list:
        return isinstance(value, list) and all(isinstance(part, str) for part in value)
    if kind is str:
        return isinstance(value, str)
    if isinstance(value, bool):
        return False
    if kind is int:
        return isinstance(value, int) and value > 0
    return isinstance(value, int | float) and value > 0


def _where(file: Path, line: int | None) -> str:
    return f"{file}, line {line}" if line is not None else str(file)
