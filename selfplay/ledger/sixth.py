"""Version 6 of the schema: what a run plays with beside its settings.

The settings name a source and roles; what these hold may change between two launches, and then tasks that were proved
on one tree would be judged on another, and half of a run would be asked by another prompt.

Not here: earlier versions (`schema.py` to `fifth.py`), what is recorded and when it is compared (`selfplay.origins`).
"""

from __future__ import annotations

TABLES = """
CREATE TABLE origins ( -- What the run plays with beside its settings, as its first launch found it.
    name TEXT PRIMARY KEY, -- source (files or corpus), or `role NAME`.
    digest TEXT NOT NULL, -- Of its content.
    at REAL NOT NULL -- When it was committed, Unix seconds.
) STRICT;
"""


def statements() -> list[str]:
    """The SQL of version 6, a statement each."""
    return [
        TABLES.strip().removesuffix(";"),
        *(
            f"CREATE TRIGGER origins_no_{verb.lower()} BEFORE {verb} ON origins "
            "BEGIN SELECT RAISE(ABORT, 'rows of origins are never changed'); END"
            for verb in ("UPDATE", "DELETE")
        ),
    ]
