"""Checks a call's arguments against the schema that its policy was shown.

What is covered: the part of JSON Schema that the tools use: an object with `properties` and `required`, of which each
has a `type` (string, integer, number, boolean, object, array, null, or several of them). An argument that the schema
does not know is refused, and the nearest one named.

What is not covered: everything else of JSON Schema; what a value means (the tool).

Example:
    >>> schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    >>> why_unfit(schema, {"pth": "a.py"}, name="view")
    '`view` has no argument `pth`; did you mean `path`?'
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list, tuple),
    "null": (type(None),),
}
_SHOWN = 60
"""Characters of a name that a policy made up."""


def why_unfit(schema: Mapping[str, Any], arguments: Mapping[str, Any], *, name: str) -> str:
    """Why `arguments` do not fit the schema of the tool `name`, in a sentence; empty where they do."""
    known: Mapping[str, Any] = schema.get("properties", {})
    for argument, value in arguments.items():
        if argument not in known:
            return (
                f"`{name}` has no argument `{_short(argument)}`; {nearest(str(argument), known, what='its arguments')}"
            )
        wanted = known[argument].get("type", list(_KINDS))
        kinds = [wanted] if isinstance(wanted, str) else list(wanted)
        if not any(_is(value, kind) for kind in kinds):
            return f"`{argument}` of `{name}` has to be of type {' or '.join(kinds)}, and is {_kind_of(value)}"
        if isinstance(value, str) and not _is_text(value):
            return f"`{argument}` of `{name}` is not Unicode text"
    missing = [argument for argument in schema.get("required", ()) if argument not in arguments]
    return f"`{name}` needs `{missing[0]}`" if missing else ""


def nearest(name: str, known: Collection[str], *, what: str) -> str:
    """`did you mean ...?`, or all that there are, as `what`."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    if found:
        return f"did you mean `{found[0]}`?"
    return f"{what}: {', '.join(known)}" if known else "it takes none"


def _is(value: object, kind: str) -> bool:
    # note: in Python a truth value is a number; in JSON it is not.
    return isinstance(value, _KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _kind_of(value: object) -> str:
    return next((kind for kind in _KINDS if _is(value, kind)), type(value).__name__)


def _is_text(value: str) -> bool:
    """False where it holds half of a surrogate pair, which JSON can say and no file can hold."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _short(name: object) -> str:
    return "".join(c if c.isprintable() else "?" for c in str(name))[:_SHOWN]
