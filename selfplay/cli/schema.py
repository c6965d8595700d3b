"""`selfplay schema`: JSON Schema of the configuration, of the envelope of `--json`, and of errors.

Not here: the shapes themselves (`config.tables`, `views.envelope`).
"""

from __future__ import annotations

import json
from typing import Any

import click

from selfplay.cli.session import Session, common

WHAT = ("config", "envelope", "error")


@click.command("schema", short_help="JSON Schema of the configuration and of `--json` outputs.")
@click.argument("what", required=False, type=click.Choice(WHAT), default="config")
@common
def command(session: Session, what: str) -> None:
    """JSON Schema of the configuration, of the envelope of --json, or of errors.

    \b
    Examples:
      selfplay schema > selfplay.schema.json
      selfplay schema error
    """
    session.data.write(json.dumps(schema_of(what), indent=2) + "\n")


def schema_of(what: str) -> dict[str, Any]:
    """The schema of `what`, draft 2020-12."""
    if what == "config":
        from selfplay.config import Config

        return Config.model_json_schema()
    from selfplay.views.envelope import KINDS

    text = {"type": "string"}
    head = {
        "schema": {"type": "string", "pattern": "^selfplay\\.[a-z]+/[0-9]+$"},
        "as_of": {**text, "format": "date-time"},
    }
    if what == "envelope":
        return {
            "type": "object",
            "required": ["schema", "as_of", "data"],
            "properties": {**head, "run": text, "data": {}},
        }
    body = {
        "type": "object",
        "required": ["kind", "message", "hint"],
        "properties": {"kind": {"enum": list(KINDS)}, "message": text, "hint": text},
    }
    return {"type": "object", "required": ["schema", "as_of", "error"], "properties": {**head, "error": body}}
