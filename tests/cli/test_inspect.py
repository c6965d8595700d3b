from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selfplay.ledger import Ledger

Typed = tuple[int, str, str]


def test_the_listing(with_run: Path, typed: Callable[..., Typed], answered: Callable[..., Any]) -> None:
    code, out, _ = typed("inspect", "toy")
    assert code == 0
    assert [row for row in out.splitlines() if row.startswith("step")] == ["step 0", "step 1"]
    data = answered("inspect", "toy", "--step", "1")
    assert [step["step"] for step in data["steps"]] == [1]
    assert data["steps"][0]["closed"] is True
    assert "turns" not in json.dumps(data)


def test_each_kind_of_id(with_run: Path, typed: Callable[..., Typed], answered: Callable[..., Any]) -> None:
    with Ledger.read(with_run / "runs" / "toy") as reader:
        proposal = reader.trajectories(0, "propose")[0]
        attempt = next(iter(reader.trajectories(0, "attempt")), None)
        ids = {"proposal": proposal.id, "seed": proposal.subject_id}
        if attempt is not None:
            ids |= {"attempt": attempt.id, "task": attempt.subject_id}
    for kind, record_id in ids.items():
        code, out, err = typed("inspect", "toy", record_id[:14])
        assert code == 0, err
        assert out.startswith(f"{kind} {record_id[:10]}")
        assert answered("inspect", "toy", record_id)[kind]["id"] == record_id
    content = answered("inspect", "toy", proposal.id, "--content")["proposal"]
    assert content["turns"][1]["text"] == proposal.reply


@pytest.mark.parametrize("selector", ["best", "worst", "stuck", "surprising"])
def test_selectors(
    with_replays: Path, typed: Callable[..., Typed], answered: Callable[..., Any], selector: str
) -> None:
    data = answered("inspect", "again", f"--{selector}")
    assert data["selector"] == selector
    assert data["steps"] == [0, 1, 2]
    code, out, err = typed("inspect", "again", f"--{selector}", "--step", "1")
    assert code == 0, err
    assert "in step 1" in out.splitlines()[0]
    if data["found"]:
        first = data["found"][0]
        assert data["first"][first["kind"]]["id"] == first["id"]
        assert f"\n{first['id'][:12]} " in typed("inspect", "again", f"--{selector}")[1]
        assert "the first of" in typed("inspect", "again", f"--{selector}")[1]
    assert "why" not in json.dumps(data)
    assert "turns" not in json.dumps(data)


def test_a_task_and_its_proposal(with_replays: Path, typed: Callable[..., Typed], answered: Callable[..., Any]) -> None:
    with Ledger.read(with_replays / "runs" / "again") as reader:
        task = next(task for step in range(3) for task in reader.tasks(step))
    data = answered("inspect", "again", "--task", task.id[:14])
    assert data["task"]["id"] == task.id
    assert data["proposal"]["id"] == task.parent_id
    assert data["attempts"]
    code, out, _ = typed("inspect", "again", "--task", task.id[:14])
    assert code == 0
    for part in (f"task {task.id[:12]}", f"proposal {task.parent_id[:12]}", "proof     ✓ the reply ended", "attempt"):
        assert part in out


def test_refused_proposals(with_run: Path, typed: Callable[..., Typed], answered: Callable[..., Any]) -> None:
    with Ledger.read(with_run / "runs" / "toy") as reader:
        refused = [v for v in reader.verdicts(1, "propose", "mint").values() if not v.valid]
    reason = refused[0].reason
    data = answered("inspect", "toy", "--rejected", reason, "--step", "1")
    assert {row["id"] for row in data["found"]} <= {v.trajectory_id for v in refused}
    assert {row["reason"] for row in data["found"]} == {reason}
    code, _, err = typed("inspect", "toy", "--rejected", reason[:-1])
    assert code == 2
    assert f"did you mean `{reason}`? In its newest steps: " in err


def test_plain_text_is_whole(with_run: Path, typed: Callable[..., Typed], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Ledger.read(with_run / "runs" / "toy") as reader:
        proposal = reader.trajectories(0, "propose")[0]
    assert "\x1b" not in typed("inspect", "toy", proposal.id, "--text")[1]


def test_a_run_of_no_step(with_warmed: Path, typed: Callable[..., Typed], answered: Callable[..., Any]) -> None:
    assert typed("inspect", "warm") == (0, "", "no step of run `warm` has begun; selfplay status warm\n")
    assert answered("inspect", "warm") == {"steps": [], "truncated": False}
    for words in (["--step", "0"], ["--best", "--step", "0"]):
        code, _, err = typed("inspect", "warm", *words)
        assert code == 2
        assert err.startswith("error: run `warm` has no step 0, none has begun\n")
        assert "hint: where it stands: selfplay status warm" in err
    assert typed("inspect", "warm", "--best")[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["toy", "zzzz"], "nothing in run `toy` has an id that begins with `zzzz`"),
        (["toy", "--step", "9"], "run `toy` has no step 9, its newest is 1"),
        (["toy", "ab", "--step", "1"], "an ID and --step exclude each other"),
        (["toy", "ab", "--best"], "an ID and --best exclude each other"),
        (["toy", "ab", "--task", "cd"], "an ID and --task exclude each other"),
        (["toy", "--task", "ab", "--rejected", "x"], "--task and --rejected exclude each other"),
        (["toy", "--best", "--rejected", "x"], "--best and --rejected exclude each other"),
        (["toy", "--best", "--step", "9"], "run `toy` has no step 9, its newest is 1"),
        (["toy", "--task", "zz"], "no task in run `toy` has an id that begins with `zz`"),
        (["toy", "--content"], "--content needs --json"),
        (["nope"], "no run `nope` in"),
    ],
)
def test_bad_input(with_run: Path, typed: Callable[..., Typed], words: list[str], message: str) -> None:
    code, out, err = typed("inspect", *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert "\n\nhint: " in err
