"""`selfplay schema`: JSON Schema of the configuration, of the envelope of `--json`, of errors, of a command's answer.

Not here: the shapes themselves (`config.tables`, `views.envelope`, `views.shapes`).
"""

from __future__ import annotations

import json
from typing import Any

import click

from selfplay.cli.session import Session, common
from selfplay.errors import NotFound

WHAT = ("config", "envelope", "error")
SETTINGS = "config"
"""Of this word the configuration is meant; of `selfplay config --json`, `config-answer`."""


@click.command("schema", short_help="JSON Schema of the configuration and of `--json` outputs.")
@click.argument("what", required=False, default=SETTINGS)
@common
def command(session: Session, what: str) -> None:
    """JSON Schema of the configuration, of the envelope of --json, of errors, or of a command's answer.

    WHAT is config [default], envelope, error, or the name of a command: status, inspect, compare, ... The answer of
    `selfplay config --json` is config-answer, that of `selfplay run --plan --json` is plan, of `selfplay run --detach
    --json` launch. With --json the schema is in an envelope itself.

    \b
    Examples:
      selfplay schema > selfplay.schema.json
      selfplay schema inspect
    """
    found = schema_of(what)
    if session.json:
        session.answer("schema", {"what": what, "schema": found})
    else:
        session.data.write(json.dumps(found, indent=2) + "\n")


def schema_of(what: str) -> dict[str, Any]:
    """The schema of `what`, draft 2020-12.

    Raises:
        NotFound: nothing of that name has one.
    """
    if what == SETTINGS:
        from selfplay.config import Config

        return Config.model_json_schema()
    from selfplay.views.envelope import KINDS
    from selfplay.views.shapes import SHAPES, WRITES, schema

    text = {"type": "string"}
    head = {
        "schema": {"type": "string", "pattern": "^selfplay\\.[a-z]+/[0-9]+$"},
        "as_of": {**text, "format": "date-time"},
    }
    if what == "error":
        body = {
            "type": "object",
            "required": ["kind", "message", "hint"],
            "properties": {"kind": {"enum": list(KINDS)}, "message": text, "hint": text},
        }
        return {"type": "object", "required": ["schema", "as_of", "error"], "properties": {**head, "error": body}}
    name = what.removesuffix("-answer")
    name = WRITES.get(name, name)
    if what != "envelope" and name not in SHAPES:
        from selfplay.project import did_you_mean

        known = [*WHAT, "config-answer", *WRITES, *(one for one in SHAPES if one != SETTINGS)]
        raise NotFound(f"no schema `{what}`", hint=f"{did_you_mean(what, known)}Known: {', '.join(known)}")
    data = schema(SHAPES[name]) if what != "envelope" else {}
    if what != "envelope":
        head["schema"] = {"const": f"selfplay.{name}/1"}
    return {
        "type": "object",
        "required": ["schema", "as_of", "data"],
        "properties": {**head, "run": text, "data": data},
    }
