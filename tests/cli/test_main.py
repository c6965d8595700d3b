from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from selfplay.cli import COMMANDS, group, main


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented_with_an_example(name: str) -> None:
    command = group.get_command(click.Context(group), name)
    assert command is not None
    assert command.name == name
    help_text = command.help or ""
    assert f"selfplay {name}" in help_text
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, option.name


def test_every_example_is_a_valid_command_line() -> None:
    lines = [group.epilog or ""] + [group.get_command(click.Context(group), name).help or "" for name in COMMANDS]  # type: ignore[union-attr]
    examples = re.findall(r"^ +selfplay ([^\n#>]+?)(?:  .*)?(?: >.*)?$", "\n".join(lines), re.MULTILINE)
    assert len(examples) > 12
    for example in examples:
        name, *words = shlex.split(example)
        command = group.get_command(click.Context(group), name)
        assert command is not None, example
        command.make_context(name, words, resilient_parsing=False, obj=None)


def test_help_and_version(typed: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = typed("--help")
    assert (code, err) == (0, "")
    for name in COMMANDS:
        assert f"  {name} " in out
    assert "75       stopped" in out
    assert all(len(row) <= 80 for row in out.splitlines())
    code, out, _ = typed("--version")
    assert code == 0
    assert re.fullmatch(r"selfplay \d+\.\d+\.\d+\n", out)


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["instpect"], "no command `instpect`", "did you mean `inspect`? All commands: selfplay --help"),
        (["run", "--stepz", "3"], "no option `--stepz`", "did you mean `--steps`? Usage: selfplay run --help"),
        (["inspect"], "missing argument 'RUN'", "Usage: selfplay inspect --help"),
        (["run", "--steps", "many"], "invalid value for '--steps'", "Usage: selfplay run --help"),
        (["ls", "roels"], "invalid value for", "Usage: selfplay ls --help"),
    ],
)
def test_wrong_usage_is_one_sentence(
    words: list[str], message: str, hint: str, typed: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, err = typed(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert f"\n\nhint: {hint}" in err
    code, out, _ = typed(*words, "--json")
    error = json.loads(out)["error"]
    assert code == 2
    assert error["kind"] == "config"
    assert error["message"].startswith(message)


def test_no_command_shows_the_help(typed: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = typed()
    assert code == 2
    assert "Usage: selfplay" in out + err


def test_common_options_stand_before_or_behind_the_command(
    here: Path, typed: Callable[..., tuple[int, str, str]]
) -> None:
    first = typed("--json", "--project", str(here), "ls", "runs")
    second = typed("ls", "runs", "--project", str(here), "--json")
    assert first[0] == second[0] == 0
    assert json.loads(first[1])["data"] == json.loads(second[1])["data"] == {"runs": []}
    code, _, err = typed("ls", "--project", "nowhere")
    assert code == 2
    assert err.startswith("error: no folder `nowhere` (--project)\n\nhint: make it: mkdir -p nowhere")


def test_it_is_a_module_and_a_closed_pipe_is_no_error(here: Path) -> None:
    command = f"{sys.executable} -m selfplay config --all | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) in (
        (0, ""),
        (0, "the other keys have their built-in values: selfplay config --all\n"),
    )
    assert done.stdout.startswith("run.game")


def test_colour_is_refused_by_variable_and_option(here: Path, spawned: Callable[..., tuple[int, str, str]]) -> None:
    for words, environ in ((["config", "demo"], {"NO_COLOR": "1"}), (["config", "demo", "--no-color"], {})):
        code, out, _ = spawned(*words, environ=environ)
        assert code == 0
        assert "\x1b" not in out


@pytest.mark.parametrize("encoding", ["ascii", "ascii:strict", "latin-1"])
def test_a_sign_that_the_output_cannot_hold_is_no_error(here: Path, encoding: str) -> None:
    (here / "curricula").mkdir()
    (here / "curricula" / "word→.toml").write_text("# A word → its echo.\n", encoding="utf-8")
    command, environ = [sys.executable, "-m", "selfplay", "ls", "presets"], {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(command, capture_output=True, check=False, env=environ)
    assert (done.returncode, b"error" in done.stderr) == (0, False)
    assert b"A word ? its echo." in done.stdout
    data = subprocess.run([*command, "--json"], capture_output=True, check=False, env=environ).stdout
    assert "word→" in [row["name"] for row in json.loads(data)["data"]["presets"]], "a program gets all of it"


def test_a_chosen_way_to_write_such_signs_is_kept(here: Path) -> None:
    (here / "curricula").mkdir()
    (here / "curricula" / "a.toml").write_text("# A word → its echo.\n", encoding="utf-8")
    environ = {**os.environ, "PYTHONIOENCODING": "ascii:backslashreplace"}
    command = [sys.executable, "-m", "selfplay", "ls", "presets"]
    done = subprocess.run(command, capture_output=True, check=True, env=environ)
    assert b"A word \\u2192 its echo." in done.stdout


def test_main_never_raises(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["selfplay", "config", "\x00"])
    assert main() in (1, 2)
    assert "Traceback" not in capsys.readouterr().err
