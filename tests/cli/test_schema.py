from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay.cli import COMMANDS
from selfplay.cli.schema import schema_of
from selfplay.ledger import Ledger
from selfplay.views.shapes import SHAPES, WRITES
from tests.schemas import misfits, misfits_of_lines

Typed = tuple[int, str, str]


@pytest.mark.parametrize("what", [[], ["config"], ["envelope"], ["error"], *([name] for name in SHAPES)])
def test_each_is_a_schema_of_an_object(typed: Callable[..., Typed], what: list[str]) -> None:
    code, out, _ = typed("schema", *what)
    schema = json.loads(out)
    assert code == 0
    assert schema["type"] == "object"
    assert schema["properties"]


def test_the_configurations_schema_knows_every_table(typed: Callable[..., Typed]) -> None:
    from selfplay.config import Config

    assert set(json.loads(typed("schema")[1])["properties"]) == set(Config.model_fields)


def test_a_name_that_is_none_suggests_the_nearest(typed: Callable[..., Typed]) -> None:
    code, _, err = typed("schema", "inspekt")
    assert code == 2
    assert "did you mean `inspect`? Known: config, envelope, error, config-answer" in err


WORDS = [
    ["inspect", "again"],
    ["inspect", "again", "--best"],
    ["inspect", "again", "--stuck", "--content"],
    ["inspect", "again", "--rejected", "truncated"],
    ["inspect", "again", "PROPOSAL", "--content"],
    ["inspect", "again", "ATTEMPT"],
    ["inspect", "again", "TASK"],
    ["inspect", "again", "SEED"],
    ["status"],
    ["status", "again"],
    ["watch", "again", "--once"],
    ["stop", "again"],
    ["compare", "again", "again"],
    ["plot", "again"],
    ["repro", "again"],
    ["clean"],
    ["ls"],
    ["config", "demo"],
    ["report", "again"],
    ["init", "there"],
    ["show", "role", "echo_solver"],
    ["cp", "preset", "demo"],
    ["why", "again", "TASK"],
    ["frontier", "again"],
    ["sql", "again"],
    ["sql", "again", "select id, step, 0.5, null from tasks limit 2"],
    ["check", "again"],
    ["export", "again", "--format", "sft"],
    ["completion", "bash"],
    ["schema", "why"],
]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_every_answer_fits_the_schema_of_its_command(
    with_replays: Path, typed: Callable[..., Typed], words: list[str]
) -> None:
    with Ledger.read(with_replays / "runs" / "again") as reader:
        attempt = reader.trajectories(0, "attempt")[0]
        proposal = reader.trajectories(0, "propose")[0]
    ids = {"PROPOSAL": proposal.id, "SEED": proposal.subject_id, "ATTEMPT": attempt.id, "TASK": attempt.subject_id}
    code, out, err = typed(*[ids.get(word, word) for word in words], "--json")
    assert code == 0, err
    assert misfits_of_lines(out) == []
    assert json.loads(out.splitlines()[-1])["schema"] == f"selfplay.{words[0]}/1"


def test_a_plan_fits(here: Path, spawned: Callable[..., Typed]) -> None:
    code, out, err = spawned("run", "demo", "--plan", "--json")
    assert code == 0, err
    assert json.loads(out)["schema"] == "selfplay.plan/1"


ELSEWHERE = {
    "run": "test_run.py",
    "demo": "test_run.py",
    "pause": "test_steering.py",
    "resume": "test_steering.py",
    "set": "test_steering.py",
    "eval": "test_eval.py",
    "play": "test_play.py",
    "replay": "test_replay.py",
    "reverify": "test_reverify.py",
    "doctor": "test_doctor.py",
    "sandbox": "test_sandbox.py",
    "corpus": "test_corpus.py",
    "verify": "test_verify.py",
}
"""Commands whose answers are asked for, and held against their schema by the fixtures, where more is needed for it."""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_schema_and_a_test_of_its_answer(name: str) -> None:
    assert WRITES.get(name, name) in SHAPES
    schema = schema_of("config-answer" if name == "config" else name)
    assert schema["properties"]["schema"] == {"const": f"selfplay.{WRITES.get(name, name)}/1"}
    if name not in {words[0] for words in WORDS}:
        here = Path(__file__).parent
        places = [here / ELSEWHERE[name]] if name in ELSEWHERE else here.parent.rglob("test_*.py")
        texts = [text for place in places if f'"{name}"' in (text := place.read_text(encoding="utf-8"))]
        assert any("--json" in text or "answered" in text for text in texts)


def test_what_does_not_fit_is_found() -> None:
    answer = {"schema": "selfplay.stop/1", "as_of": "x", "run": "a", "data": {"action": "stop", "acted": 1}}
    assert list(misfits(answer, schema_of("stop"))) == ["$.data: no `said`", "$.data.acted: 1 is no boolean"]


def test_errors_fit_too(here: Path, typed: Callable[..., Typed]) -> None:
    code, out, _ = typed("inspect", "nope", "--json")
    assert code == 2
    assert list(misfits(json.loads(out), schema_of("error"))) == []
