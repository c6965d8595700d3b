"""What is stored and cannot be decoded: told as SQLite tells of a damaged page, and apart from a fault of the engine.

SQLite notices a damaged page, and not a flipped bit inside a value. Whatever is stored is decoded inside `decoding`, so
that every reader has one place where damage becomes a sentence (`files.translated`).

Not here: what a person is told (`files.translate`), which rows are still good for something (`rescue.py`).
"""

from __future__ import annotations

import contextlib
import sqlite3
import zlib
from collections.abc import Iterator


class Damaged(sqlite3.DatabaseError):
    """A stored value is not what was written."""


@contextlib.contextmanager
def decoding(what: str) -> Iterator[None]:
    """What cannot be decoded inside is `Damaged`, and told as `what`. Also a decorator of what decodes."""
    try:
        yield
    except (ValueError, LookupError, TypeError, zlib.error) as error:
        raise Damaged(f"{what} cannot be decoded: {error}") from error


def said(error: Exception) -> str:
    """What an error of SQLite says, without a text that it quotes whole: one that is no UTF-8, half of the schema."""
    return str(error).partition(" with text ")[0].partition("\n")[0]
