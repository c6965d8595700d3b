"""One invocation: where its words and data go, and the options that every command takes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from selfplay.cli.session import Session, common
from selfplay.errors import NotFound


@click.command()
@common
def told(session: Session) -> None:
    click.echo(json.dumps([session.json, session.color, str(session.project_folder)]))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], [False, None, "None"]),
        (["--json", "--no-color"], [True, False, "None"]),
        (["--project", "x"], [False, None, "x"]),
    ],
)
def test_every_command_takes_the_common_options(words: list[str], expected: list[object]) -> None:
    session = Session()
    done = CliRunner().invoke(told, words, obj=session)
    assert json.loads(done.output) == expected


def test_what_the_group_was_given_holds_for_the_command() -> None:
    session = Session(json=True)
    session.color = False
    session.project_folder = Path("y")
    assert json.loads(CliRunner().invoke(told, [], obj=session).output) == [True, False, "y"]


def test_a_project_that_is_not_there_is_said_when_it_is_asked_for(tmp_path: Path) -> None:
    session = Session()
    session.project_folder = tmp_path / "none"
    with pytest.raises(NotFound, match="no folder"):
        _ = session.project


def test_modules_of_the_project_can_be_named_while_a_command_runs(
    here: Path, typed: Callable[..., tuple[int, str, str]]
) -> None:
    before = list(sys.path)
    (here / "an_order_of_my_own.py").write_text("def first(history, seeds, **given):\n    return ()\n")
    words = ["run", "demo", "--plan", "-s", "curriculum.choose=an_order_of_my_own:first"]
    try:
        assert typed(*words)[0] == 0
        assert sys.path == before
    finally:
        sys.modules.pop("an_order_of_my_own", None)
    code, _, err = typed("run", "demo", "--plan", "-s", "curriculum.choose=an_order_of_nobody:first")
    assert (code, "No module named 'an_order_of_nobody'" in err) == (2, True)


def test_words_go_to_stderr_and_what_is_silent_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    session = Session()
    session.say("one")
    session.say_silent({"docker": "no engine", "other": "gone"})
    session.say_silent({})
    out, err = capsys.readouterr()
    assert (out, err) == ("", "one\nleft out: docker: no engine\nleft out: other: gone\n")


def test_a_console_is_as_wide_as_asked_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "43")
    assert Session().console().width == 43
    monkeypatch.delenv("COLUMNS")
    assert Session().console(stderr=True).width == 80


def test_once_stdout_is_claimed_only_data_reaches_it() -> None:
    code = (
        "import os, sys\n"
        "from selfplay.cli.session import Session\n"
        "with Session(json=True) as session:\n"
        "    session.claim_stdout()\n"
        "    session.claim_stdout()\n"
        "    print('a library prints')\n"
        "    os.system('echo a child prints')\n"
        "    session.answer('x', {'a': 1})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["data"] == {"a": 1}
    assert done.stdout.count("\n") == 1
    assert sorted(done.stderr.splitlines()) == ["a child prints", "a library prints"]
