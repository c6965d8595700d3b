"""The one JSON shape that every `--json` output has.

`{"schema": "selfplay.status/1", "as_of": "…Z", "run": "quickstart", "data": …}`, and for errors
`{"schema": "selfplay.error/1", "as_of": "…Z", "error": {"kind": …, "message": …, "hint": …}}`. Within a schema
number keys are added, never renamed.

Not here: what `data` holds (each view).
"""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from selfplay.errors import SelfplayError

KINDS = ("config", "not_ready", "held", "not_found", "ambiguous", "fault", "internal")
"""Every value that `error.kind` can have."""


def envelope(command: str, data: Any, *, run: str | None = None) -> dict[str, Any]:
    """`data` in its envelope; `run` is left out where the answer is not about one run."""
    head = {"schema": f"selfplay.{command}/1", "as_of": now()}
    return {**head, **({"run": run} if run is not None else {}), "data": data}


def error_envelope(error: SelfplayError) -> dict[str, Any]:
    """An error in its envelope."""
    body = {"kind": error.kind, "message": error.message, "hint": error.hint}
    return {"schema": "selfplay.error/1", "as_of": now(), "error": body}


def emit(message: Mapping[str, Any], to: TextIO, *, indent: int | None = None) -> None:
    """Write one message and flush, so that a reader at the other end of a pipe sees it at once."""
    # note: elsewhere as escapes, for a sign that an encoding lacks would be lost.
    escaped = codecs.lookup(getattr(to, "encoding", None) or "utf-8").name != "utf-8"
    to.write(json.dumps(finite(message), ensure_ascii=escaped, allow_nan=False, indent=indent) + "\n")
    to.flush()


def finite(value: Any) -> Any:
    """`value` with every NaN and infinity, which JSON does not have, as None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return value


def now() -> str:
    """The time, UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
