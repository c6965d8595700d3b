"""Copies of what ships with selfplay, file by file: what `init` and `cp` share, and what `show` reads.

Not here: where a name is looked up (`project`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from selfplay.errors import NotReady, UserError
from selfplay.project import FOLDERS, LISTINGS, NOUNS, Kind, did_you_mean

if TYPE_CHECKING:
    from selfplay.project import Entry, Project

WORDS: Mapping[str, Kind] = {
    word: kind for kind in FOLDERS for word in (kind, NOUNS[kind], LISTINGS[kind], FOLDERS[kind])
}
"""What a person may call a kind: `role`, `roles`, `preset`, `curriculum`, ..."""


def kind_of(text: str) -> Kind:
    """The kind that `text` means.

    Raises:
        UserError: it is none.
    """
    if text not in WORDS:
        raise UserError(
            f"no kind `{text}`", hint=f"{did_you_mean(text, WORDS)}Kinds: {', '.join(dict.fromkeys(NOUNS.values()))}"
        )
    return WORDS[text]


def entry(project: Project, kind: Kind, name: str) -> Entry:
    """The entry of that name.

    Raises:
        NotFound: there is none; the hint names the nearest one.
    """
    path = project.find(kind, name)
    return next(one for one in project.list_all(kind) if one.path == path)


def files_of(found: Entry) -> dict[str, Path]:
    """Its files by their place below the kind's folder: `echo_solver/role.toml`, `demo.toml`."""
    if found.path.is_file():
        return {found.path.name: found.path}
    every = sorted(path for path in found.path.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {f"{found.path.name}/{path.relative_to(found.path)}": path for path in every}


def write(folder: Path, texts: Mapping[str, bytes], *, force: bool) -> tuple[list[str], list[str]]:
    """Write files below `folder`; those that are there stay, unless `force`. (written, skipped).

    Raises:
        NotReady: one cannot be written.
    """
    written, skipped = [], []
    for name, data in texts.items():
        path = folder / name
        if path.exists() and not force:
            skipped.append(name)
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except OSError as error:
            raise NotReady(f"cannot write {path}: {error.strerror}", hint=f"look: ls -ld {folder}") from error
        written.append(name)
    return written, skipped


def renamed(files: Mapping[str, Path], old: str, new: str) -> dict[str, bytes]:
    """The files' contents, as those of an entry that is called `new`."""
    made = {}
    for name, path in files.items():
        first, slash, rest = name.partition("/")
        made[f"{first.replace(old, new, 1)}{slash}{rest}"] = path.read_bytes()
    return made
