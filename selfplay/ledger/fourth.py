"""Version 4 of the schema: what a play with tools handed over, and plays that end by their output.

Not here: earlier versions (`schema.py`, `second.py`, `third.py`).
"""

from __future__ import annotations

from selfplay.ledger import second

COLUMNS = {
    "trajectories": {
        "product": ("INTEGER", "What the policy handed over with a tool, JSON in blobs; NULL where nothing was.")
    }
}
"""Table -> added column -> its type and comment."""


SAID = {
    "trajectories": {"stop": "Why it ended: done, malformed, tokens, output, context, turns, seconds, fault."},
    "tasks": {
        "key": "What copies share; for code: function, places, failing tests, change without layout and names.",
        "parent_id": "Its proposal, or the attempt that it is a child of; NULL: given.",
    },
    "verdicts": {"task_id": "The task that a mint made or found, of a proposal or of an attempt."},
}
"""Table -> column -> a comment that replaces version 1's, whose SQL never changes; of this version and of the fifth."""


def statements() -> list[str]:
    """The SQL of version 4, a statement each."""
    return [
        *(
            f"ALTER TABLE {table} ADD COLUMN {name} {kind} REFERENCES blobs(id) /* {said} */"
            for table, added in COLUMNS.items()
            for name, (kind, said) in added.items()
        ),
        # note: the view tells which plays were learnt from, and there is one more way to be truncated.
        "DROP VIEW trajectory_states",
        second.view(),
    ]
