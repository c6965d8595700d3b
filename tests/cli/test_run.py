from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay.build import Outcome
from selfplay.cli.run import Options, resolve, sum_up
from selfplay.cli.session import Session
from selfplay.errors import UserError

Typed = tuple[int, str, str]

SMALL = ("-s", "play.proposals=4", "-s", "play.attempts=4", "-s", "play.min_viable=2", "-s", "policy.threads=1")


def asked(preset: str | None = None, **given: object) -> Options:
    """What is typed, with everything else left out."""
    known = {"name": None, "new": False, "plan": False, "quiet": False, "sets": (), "steps": None, "sandbox": None}
    return Options.of(preset, {**known, **given})


@pytest.mark.parametrize(
    ("words", "code", "kind", "message", "hint"),
    [
        (["run", "quikstart"], 2, "not_found", "no preset `quikstart`", "did you mean `quickstart`? All presets:"),
        (["run", "nope.toml"], 2, "not_found", "no file `nope.toml`", "a preset's name or a file is expected"),
        (["run", "-s", "run.step=3"], 2, "config", "unknown key `run.step`", "did you mean `run.steps`?"),
        (["run", "demo", "-s", "roles.solver=echo_slover"], 2, "not_found", "no role `echo_slover`", "did you mean"),
        (["run", "demo", "-s", "roles.solver=repairer"], 2, "config", "role `repairer` is the solver of game", "roles"),
        (["run", "--name", "last"], 2, "config", "a run cannot be called `last`", "a name has up to 64"),
        (["run", "--name", "../x"], 2, "config", "a run cannot be called `../x`", "a name has up to 64"),
        (["run", "demo", "-s", "run.game=chess"], 2, "config", "role `echo_proposer` is the proposer of", "roles"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    here: Path, spawned: Callable[..., Typed], words: list[str], code: int, kind: str, message: str, hint: str
) -> None:
    before = sorted(here.rglob("*"))
    exit_code, out, err = spawned(*words, "--plan", "--json")
    error = json.loads(out)["error"]
    assert (exit_code, error["kind"]) == (code, kind)
    assert error["message"].startswith(message)
    assert error["hint"].startswith(hint)
    assert err.startswith(f"error: {message}")
    assert "Traceback" not in err
    assert sorted(here.rglob("*")) == before


def test_a_plan_plays_nothing(here: Path, typed: Callable[..., Typed]) -> None:
    code, out, err = typed("run", "--plan")
    assert code == 0
    for part in ("pypi:toolz==1.2.0", "-1 if invalid, -0.8 if s is 0 or 1, else 1 - 1.8 s", "P = 4", "G = 16", "+1 if"):
        assert part in " ".join(out.split())
    assert "nothing was played" in err
    assert not (here / "runs").exists()
    assert all(len(row) <= 80 for row in out.splitlines())


def test_a_run_ends_with_a_table_and_the_same_name_resumes(here: Path, spawned: Callable[..., Typed]) -> None:
    code, out, err = spawned("run", "demo", "--steps", "2", *SMALL)
    assert code == 0, err
    assert [row.split()[0] for row in err.splitlines() if row.startswith("step=")] == ["step=0", "step=1"]
    assert out.splitlines()[0].split()[0] == "step"
    assert f"demo: 2 of 2 steps, done; it lies in {here / 'runs' / 'demo'}" in err
    assert "selfplay status demo" in err

    code, out, err = spawned("run", "--name", "demo", "--steps", "3", "--json")
    messages = [json.loads(row) for row in out.splitlines()]
    assert code == 0, err
    assert {(message["schema"], message["run"]) for message in messages} == {("selfplay.event/1", "demo")}
    events = [message["data"] for message in messages]
    assert [event["step"] for event in events if event["kind"] == "step"] == [2]
    assert (events[-1]["kind"], events[-1]["data"]["stop"]) == ("end", "done")


def test_the_summary_has_the_steps_that_were_set_meanwhile(with_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = with_run / "runs" / "toy"
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text.replace("steps = 2 ", "steps = 40 ", 1))
    sum_up(Session(), folder, Outcome(stop="interrupted", steps=2))
    assert "toy: 2 of 40 steps, stopped" in capsys.readouterr().err


def test_the_summary_of_a_run_of_no_step_names_more(with_warmed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sum_up(Session(), with_warmed / "runs" / "warm", Outcome(stop="done", steps=0))
    assert "go on     selfplay run --name warm --steps 1\n" in capsys.readouterr().err


def test_other_settings_are_refused_by_name(with_run: Path, spawned: Callable[..., Typed]) -> None:
    code, out, err = spawned("run", "--name", "toy", "-s", "learner.lr=0.5", "--json")
    assert code == 2
    assert "run `toy` was started with other settings" in err
    assert "learner.lr  0.001 -> 0.5" in " ".join(err.split("\n")) or "-> 0.5" in err
    hints = [row.split(": ", 1)[1] for row in json.loads(out)["error"]["hint"].splitlines()]
    assert hints[0] == "selfplay run --name toy"
    assert hints[1].endswith("-s learner.lr=0.5 --name toy-2")
    for hint in hints:
        done = spawned(*shlex.split(hint)[1:], "--plan")
        assert done[0] == 0, done[2]


def test_the_name_decides_which_settings_are_meant(with_run: Path) -> None:
    session = Session()
    config, folder = resolve(session, asked(name="toy"))
    assert (config.run.game, config.run.steps, folder.name) == ("echo", 2, "toy")
    config, folder = resolve(session, asked(name="other"))
    assert (config.run.game, folder.name) == ("code", "other")
    config, folder = resolve(session, asked("demo", steps=7, sandbox="local", sets=("run.steps=3",)))
    assert (config.run.steps, config.sandbox.kind, folder.name) == (7, "local", "demo")
    config, folder = resolve(session, asked(name="toy", new=True))
    assert (config.run.game, folder.name) == ("echo", "toy-2")
    assert resolve(session, asked())[1].name == "quickstart"


def test_the_environment_is_checked_against_the_run(with_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFPLAY_RUN_SEED", "5")
    with pytest.raises(UserError, match=r"run\.seed  0 -> 5"):
        resolve(Session(), asked(name="toy"))


def stopped_by(number: int, words: list[str], *, after: str) -> tuple[int, list[str], str]:
    """Type a command, send a signal once a line begins with `after`; exit code, the lines until then, the rest."""
    seen = []
    command = [sys.executable, "-m", "selfplay", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        for row in process.stderr:
            seen.append(row.rstrip())
            if row.startswith(after):
                process.send_signal(number)
                break
        _, rest = process.communicate(timeout=120)
    return process.returncode, seen, rest


def test_signals_close_the_books_and_the_same_command_resumes(here: Path, spawned: Callable[..., Typed]) -> None:
    words = ["run", "demo", "--steps", "100000", *SMALL]
    code, _, err = stopped_by(signal.SIGINT, words, after="step=3 ")
    assert code == 130, err
    assert "stopping: turns in flight end first" in err
    assert "resume    selfplay run --name demo" in err
    assert "Traceback" not in err
    data = json.loads(spawned("status", "demo", "--json")[1])["data"]
    assert data["state"] == "stopped"
    assert data["closed"] >= 4

    code, seen, err = stopped_by(signal.SIGTERM, words, after="step=")
    assert code == 143, err
    assert seen[-1].startswith(f"step={data['closed']} ")


def test_a_run_that_is_held_says_by_whom(with_run: Path, spawned: Callable[..., Typed]) -> None:
    from selfplay.ledger.lock import Lock

    lock = Lock.take(with_run / "runs" / "toy")
    try:
        code, out, err = spawned("run", "--name", "toy", "--steps", "3", "--json")
    finally:
        lock.release()
    assert code == 4
    assert json.loads(out.splitlines()[-1])["error"]["kind"] == "held"
    assert str(os.getpid()) in err


def test_a_damaged_ledger_is_one_sentence(with_run: Path, spawned: Callable[..., Typed]) -> None:
    folder = with_run / "runs" / "toy"
    for name in ("ledger.db-wal", "ledger.db-shm"):
        (folder / name).unlink(missing_ok=True)
    (folder / "ledger.db").write_bytes(b"not a ledger" * 1000)
    for words in (["run", "--name", "toy"], ["status", "toy"], ["inspect", "toy"]):
        code, _, err = spawned(*words)
        assert code == 1, err
        assert err.startswith("error: ")
        assert "Traceback" not in err
    assert "toy" in spawned("status")[2]


def test_a_third_ctrl_c_ends_at_once(here: Path) -> None:
    code = (
        "import time\n"
        "from selfplay.cli.signals import listen\n"
        "from selfplay.events import Interrupt\n"
        "i = Interrupt()\n"
        "with listen(i, say=lambda text: None):\n"
        "    print('ready', flush=True)\n"
        "    end = time.time() + 60\n"
        "    while time.time() < end: time.sleep(0.01)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        assert process.wait(timeout=10) == -signal.SIGINT
