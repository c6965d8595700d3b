from __future__ import annotations

import io
import json

from selfplay.errors import Ambiguous, Held, NotFound, NotReady, RunFailed, SelfplayError, UserError
from selfplay.views.envelope import KINDS, emit, envelope, error_envelope


def test_an_answer() -> None:
    message = envelope("status", {"steps": 3}, run="demo")
    assert (message["schema"], message["run"], message["data"]) == ("selfplay.status/1", "demo", {"steps": 3})
    assert message["as_of"].endswith("Z")
    assert "run" not in envelope("ls", {})


def test_every_error_has_a_kind_of_the_closed_set() -> None:
    for kind in (SelfplayError, UserError, NotFound, Ambiguous, NotReady, Held, RunFailed):
        assert error_envelope(kind("what", hint="do"))["error"]["kind"] in KINDS


def test_what_is_written_is_json_whatever_it_holds() -> None:
    to = io.StringIO()
    emit(envelope("x", {"loss": float("nan"), "rates": (float("inf"), 1.0), "text": "é\x00"}), to)
    assert json.loads(to.getvalue())["data"] == {"loss": None, "rates": [None, 1.0], "text": "é\x00"}
    assert to.getvalue().count("\n") == 1
