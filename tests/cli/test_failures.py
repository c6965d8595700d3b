from __future__ import annotations

import errno
import json
from pathlib import Path

import click
import pytest

from selfplay.cli.failures import chain, recognise, show
from selfplay.cli.session import Session
from selfplay.errors import Held, NotFound, NotReady, RunFailed, SelfplayError, UserError


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (SelfplayError("x"), 1, "internal"),
        (RunFailed("x"), 1, "fault"),
        (UserError("x"), 2, "config"),
        (NotFound("x"), 2, "not_found"),
        (NotReady("x"), 3, "not_ready"),
        (Held("x"), 4, "held"),
        (OSError(errno.ENOSPC, "No space left on device", "runs/a/ledger.db"), 3, "not_ready"),
        (OSError(errno.EDQUOT, "Quota exceeded"), 3, "not_ready"),
        (click.UsageError("Bad."), 2, "config"),
        (ExceptionGroup("several", [ValueError("x"), NotReady("y")]), 3, "not_ready"),
    ],
)
def test_every_error_has_its_exit_code(
    error: Exception, code: int, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(error, session=Session(json=True)) == code
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["kind"] == kind
    assert err.startswith("error: ")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (SystemExit(7), 7),
        (SystemExit("x"), 1),
        (click.exceptions.Exit(2), 2),
    ],
)
def test_ends_that_are_no_errors(error: BaseException, code: int) -> None:
    assert show(error, session=Session()) == code


def test_a_cause_is_recognised() -> None:
    error = RuntimeError("outer")
    error.__cause__ = NotReady("no engine", hint="start it")
    found = recognise(error)
    assert found is not None
    assert found.message == "no engine"
    error.__cause__ = error
    assert list(chain(error)) == [error]


def test_the_unexpected_leaves_a_traceback_in_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = Session(json=True)
    session.run_folder = tmp_path
    with pytest.raises(KeyError) as caught:
        raise KeyError("surprise")
    assert show(caught.value, session=session) == 1
    out, err = capsys.readouterr()
    (file,) = (tmp_path / "logs").iterdir()
    assert "test_failures.py" in file.read_text()
    assert err.startswith("error: unexpected KeyError: 'surprise' at test_failures.py:")
    assert str(file) in json.loads(out)["error"]["hint"]
    assert "Traceback" not in err


def test_without_a_place_for_it_the_traceback_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "file"))
    assert show(ValueError("a\nb"), session=Session()) == 1
    err = capsys.readouterr().err
    assert "error: unexpected ValueError: a b\n" in err


def test_a_long_message_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = Session()
    session.run_folder = tmp_path
    show(ValueError("x" * 100_000), session=session)
    assert len(capsys.readouterr().err) < 1000
