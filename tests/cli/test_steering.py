from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Typed = tuple[int, str, str]


def test_a_run_that_nobody_plays(with_run: Path, typed: Callable[..., Typed], answered: Callable[..., Any]) -> None:
    code, out, err = typed("stop", "toy")
    assert (code, out) == (0, "")
    assert err.startswith("toy: it is not running (done), so there is nothing to stop\n")
    assert answered("stop", "toy")["acted"] is False
    for words in (["pause", "toy"], ["resume", "toy"], ["set", "toy", "run.steps=9"]):
        code, _, err = typed(*words)
        assert code == 2
        assert err.startswith(f"error: run `toy` is not running (done), so nobody can {words[0]} it")
        assert "hint: play it: selfplay run --name toy" in err
    assert not (with_run / "runs" / "toy" / "control.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["set", "toy", "run.steps"], "`run.steps` has no `=`"),
        (["set", "toy", "learner.lr=1"], "`learner.lr` cannot be changed while the run plays: it affects results"),
        (["set", "toy", "run.stepz=1"], "unknown key `run.stepz`"),
        (["pause", "nope"], "no run `nope`"),
    ],
)
def test_bad_input(with_run: Path, typed: Callable[..., Typed], words: list[str], message: str) -> None:
    code, _, err = typed(*words)
    assert code == 2
    assert err.startswith(f"error: {message}")


def test_a_process_is_paused_goes_on_and_ends(here: Path, spawned: Callable[..., Typed]) -> None:
    words = ["run", "demo", "--steps", "100000", "-s", "play.proposals=4", "-s", "curriculum.seeds=2"]
    told = here / "told.txt"
    with told.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "selfplay", *words], stderr=file, stdout=subprocess.DEVNULL, text=True
        )
    try:
        until = time.monotonic() + 600
        while "step=1 " not in told.read_text() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        for action in ("pause", "resume"):
            code, out, err = spawned(action, "demo", "--json")
            assert code == 0, err
            assert json.loads(out)["data"] == {"action": action, "acted": True, "said": f"demo: {_SAID[action]}"}
            if action == "pause":
                for words in (["watch", "demo", "--once"], ["status", "demo"]):
                    assert json.loads(spawned(*words, "--json")[1])["data"]["paused"] is True
                for words in (["status"], ["status", "demo"], ["ls", "runs"], ["watch", "demo", "--once"]):
                    assert "paused" in spawned(*words)[1], words
                assert "resume    selfplay resume demo" in spawned("status")[2]
        assert spawned("set", "demo", "run.save_every=7", "--json")[0] == 0
        assert spawned("stop", "demo", "--wait")[0] == 0
        assert process.wait(timeout=600) == 75, told.read_text()
    finally:
        process.kill()
        process.wait()
    assert "note: asked to stop: turns in flight end first" in told.read_text()
    assert "save_every = 7 " in (here / "runs" / "demo" / "config.toml").read_text()


_SAID = {"pause": "paused, no reply is begun", "resume": "going on"}
