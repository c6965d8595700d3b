"""Where an export goes: lines to a file or a stream, or a folder; whole or not at all.

A file that is there is replaced. A folder that is there is not touched: an export of many files beside older ones would
be neither. What is half written lies beside its place under a name that starts with a dot, and is removed.

Not here: what is written.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from selfplay.errors import NotReady, UserError
from selfplay.exports.seam import Out, Shape


class Lines:
    """Rows as JSON lines into a stream, or kept."""

    def __init__(self, to: TextIO | None) -> None:
        self._to = to
        self.folder = Path()
        self.rows: list[Mapping[str, Any]] = []
        """Those that went nowhere else."""

    def line(self, row: Mapping[str, Any]) -> None:
        """One row more."""
        if self._to is None:
            self.rows.append(row)
        else:
            self._to.write(json.dumps(row, ensure_ascii=False) + "\n")


class Folder:
    """A folder to fill."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def line(self, row: Mapping[str, Any]) -> None:
        """Never: this is a folder."""
        raise TypeError("a format in the shape `folder` writes files, not lines")


@contextmanager
def opened(to: Path, shape: Shape) -> Iterator[Out]:
    """Where a format may write; it gets the name `to` when the block ends without an error.

    Raises:
        NotReady: it cannot be written.
        UserError: a folder, or a file where a folder is meant, is there already.
    """
    if (shape == "folder" and (to.exists() or to.is_symlink())) or to.is_dir():
        raise UserError(f"{to} is there already", hint="name another place with --to, or remove this one")
    aside = to.with_name(f".{to.name}.{os.getpid()}.part")
    try:
        if shape == "folder":
            aside.mkdir()
            yield Folder(aside)
        else:
            with aside.open("w", encoding="utf-8") as file:
                yield Lines(file)
        aside.replace(to)
    except OSError as error:
        raise NotReady(
            f"cannot write {to}: {error.strerror or error}", hint=f"check the folder: ls -ld {to.parent}"
        ) from error
    finally:
        if aside.is_dir():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.unlink(missing_ok=True)
