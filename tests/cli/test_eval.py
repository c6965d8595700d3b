"""`selfplay eval`: what is printed, for people and programs, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.served import serving

Typed = tuple[int, str, str]


@pytest.fixture
def there(with_run: Path) -> Path:
    """The project with a toy run called `small`: a run called `toy` would hide the model of that name."""
    (with_run / "runs" / "toy").rename(with_run / "runs" / "small")
    return with_run


def test_two_saves_and_where_they_are_kept(there: Path, typed: Callable[..., Typed]) -> None:
    words = ("eval", "small@1", "last", "--attempts", "2", "--tasks", "3", "--temperature", "0.5")
    code, out, err = typed(*words)
    assert code == 0
    rows = out.splitlines()
    assert rows[0] == "on        run small: 3 tasks, 3 seeds"
    assert rows[1] == "samples   2 a task, one proposal a seed; temperature 0.5, seed 0"
    assert rows[2] == "[..]      95 %, bootstrap over tasks (valid: over seeds), 2,000 resamples"
    assert "small@1 less small@1, on the same tasks" in rows
    assert all(len(row) <= 80 for row in rows)
    assert "small@1: kept in " in err
    again = typed(*words)
    assert again[:2] == (0, out)
    assert "small@1: kept in " not in again[2]
    made = there / "runs" / "small" / "evals" / "tasks_3.jsonl"
    code, out, err = typed("eval", "toy", "--on", str(made), "--attempts", "1", "--k", "1", "--tasks", "2")
    assert code == 0
    assert out.startswith(f"on        {made}: 2 tasks, 2 seeds\n")
    assert "kept in" not in err


def test_for_programs(there: Path, spawned: Callable[..., Typed]) -> None:
    code, out, err = spawned("eval", "toy", "small@1", "--on", "small", "--attempts", "1", "--tasks", "2", "--json")
    assert code == 0, err
    message = json.loads(out)
    assert (message["schema"], message["run"], message["data"]["attempts"]) == ("selfplay.eval/1", "small", 1)
    one, other = message["data"]["targets"]
    assert (one["target"], one["policy_version"], other["target"]) == ("toy", None, "small@1")
    assert (other["stored"], other["tasks"], list(other["pass_at"])) == (False, 2, ["1"])
    (difference,) = message["data"]["differences"]
    assert (difference["of"], difference["less"], difference["pass_at"]["1"]["units"]) == ("small@1", "toy", 2)


def test_an_endpoint(there: Path, typed: Callable[..., Typed], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving(lambda body: (200, {"choices": [{"text": "ab", "finish_reason": "stop"}]})) as served:
        words = ("--model", "m", "--tokenizer", "toy", "--on", "small", "--tasks", "6", "--attempts", "1")
        code, out, err = typed("eval", served.url, *words)
        assert (code, len(served.asked)) == (0, 12), err
        typed("eval", served.url, *words)
        assert len(served.asked) == 24
    # one of the six words is `ab`, and four of the six seeds want a word of two letters
    assert "  pass@1    16.7 % [" in out
    assert "  valid     66.7 % [" in out


def test_tasks_of_a_run_for_an_evaluation(there: Path, typed: Callable[..., Typed]) -> None:
    code, _, err = typed("export", "small", "--format", "tasks", "--to", "tasks.jsonl")
    assert (code, err.startswith("small: ")) == (0, True)
    code, out, err = typed("eval", "small@0", "--on", "tasks.jsonl")
    assert (code, out) == (2, "")
    assert err.startswith("error: the save `small@0` is not kept; there is small@1")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["nope"], "error: no run `nope` in "),
        (["nope@3"], "error: no run `nope` in "),
        (["smollm2-135m"], "error: what shall smollm2-135m be evaluated on? It is no run\n\nhint: name a run or "),
        (["small@1", "--on", "nope.jsonl"], "error: no file nope.jsonl\n\nhint: write one: selfplay export RUN "),
        (["small@1", "--on", "nope"], "error: no run `nope` in "),
        (["http://127.0.0.1:9/v1"], "error: http://127.0.0.1:9/v1 is an endpoint, and --model NAME is missing"),
        (["small@1", "--k", "1,9"], "error: --k 1,9: each k is a whole number from 1 to the 4 attempts a task"),
    ],
)
def test_bad_input(there: Path, typed: Callable[..., Typed], words: list[str], error: str) -> None:
    code, out, err = typed("eval", *words)
    assert (code, out) == (2, "")
    assert err.startswith(error)


@pytest.mark.bubblewrap
def test_a_run_with_nothing_held_out(here: Path, code_run: Path, typed: Callable[..., Typed]) -> None:
    code, out, err = typed("eval", "toy", "--on", "code")
    assert (code, out) == (2, "")
    assert err.startswith("error: run `code` has no held-out seed to evaluate on\n\nhint: hold some out ")
