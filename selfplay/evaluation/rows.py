"""Files of rows: JSON lines, or one JSON array, read with a sentence for whatever is wrong with them.

Not here: what a row says (`questions`, `external`, `issues`, `tasks`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from selfplay.errors import NotFound, NotReady, UserError


def text_of(path: Path, *, hint: str) -> str:
    """What the file holds, without a byte order mark; `hint` says how to make such a file.

    Raises:
        NotFound, NotReady: it is not there, or cannot be read.
        UserError: it is no text.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise NotFound(f"no file {path}", hint=hint) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no text in UTF-8: {error}", hint=hint) from error
    except OSError as error:
        raise NotReady(f"cannot read {path}: {error.strerror}", hint=f"look: ls -ld {path}") from error


def rows_of(path: Path, *, hint: str) -> Iterator[tuple[int, Any]]:
    """(number of the line, what it holds); of a file that is one array, (number of the row, row).

    Raises:
        NotFound, NotReady, UserError: as `text_of`.
        UserError: a line is no JSON.
    """
    text = text_of(path, hint=hint)
    if text.lstrip()[:1] == "[":
        try:
            rows = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path} is no JSON array: {error}", hint=hint) from error
        yield from enumerate(rows, start=1)
        return
    # note: not `splitlines`, which ends lines at characters that JSON may hold in a string.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path}, line {number} is no JSON: {error}", hint=hint) from error
