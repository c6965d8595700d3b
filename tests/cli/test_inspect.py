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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["toy", "zzzz"], "nothing in run `toy` has an id that begins with `zzzz`"),
        (["toy", "--step", "9"], "run `toy` has no step 9, its newest is 1"),
        (["toy", "ab", "--step", "1"], "an ID and --step exclude each other"),
        (["toy", "--content"], "--content needs --json"),
        (["nope"], "no run `nope` in"),
    ],
)
def test_bad_input(with_run: Path, typed: Callable[..., Typed], words: list[str], message: str) -> None:
    code, out, err = typed("inspect", *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert "\n\nhint: " in err
