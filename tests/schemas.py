"""Does a value fit a JSON Schema? The part of the language that `selfplay schema` writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from selfplay.cli.schema import schema_of

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}
_KNOWN = {"type", "required", "properties", "items", "additionalProperties", "anyOf", "enum", "const", "pattern"}


def misfits_of_lines(out: str) -> list[str]:
    """What does not fit in the answers to a command with --json, a line each: every one names its schema."""
    wrong = []
    for line in out.splitlines():
        message = json.loads(line)
        name = re.fullmatch(r"selfplay\.([a-z]+)/\d+", message["schema"])
        assert name is not None, message["schema"]
        wrong += misfits(message, schema_of("config-answer" if name[1] == "config" else name[1]))
    return wrong


def misfits(value: Any, schema: Mapping[str, Any], where: str = "$") -> Iterator[str]:
    """What does not fit, a sentence each."""
    assert set(schema) <= {*_KNOWN, "format"}, schema
    if "anyOf" in schema:
        found = [list(misfits(value, part, where)) for part in schema["anyOf"]]
        if all(found):
            yield f"{where}: none of {len(found)} forms: {min(found, key=len)[:3]}"
        return
    if "const" in schema and value != schema["const"]:
        yield f"{where}: {value!r} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is none of {schema['enum']}"
    kind = schema.get("type")
    if kind and (not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind in ("integer", "number"))):
        yield f"{where}: {value!r} is no {kind}"
        return
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{where}: {value!r} does not match"
    if isinstance(value, dict):
        yield from (f"{where}: no `{name}`" for name in schema.get("required", ()) if name not in value)
        for name, part in value.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if inner is not None:
                yield from misfits(part, inner, f"{where}.{name}")
    if isinstance(value, list) and "items" in schema:
        for number, part in enumerate(value):
            yield from misfits(part, schema["items"], f"{where}[{number}]")
