"""Version 3 of the schema: what a choice asks of the game beside its subject.

A strategy, a level, a hint or the failed attempt that a child is made of: without it, a choice that is played after a
kill would not be the one that was committed.

Not here: earlier versions (`schema.py`, `second.py`), what each term means (`curriculum`).
"""

from __future__ import annotations

COLUMNS = {
    "choices": {
        "terms": ("TEXT", "What is asked beside the subject: strategy, hint, level, ..., JSON; {} for nothing.")
    }
}
"""Table -> added column -> its type and comment."""


def statements() -> list[str]:
    """The SQL of version 3, a statement each."""
    return [
        f"ALTER TABLE {table} ADD COLUMN {name} {kind} NOT NULL DEFAULT '{{}}' /* {said} */"
        for table, added in COLUMNS.items()
        for name, (kind, said) in added.items()
    ]
