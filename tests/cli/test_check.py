from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Typed = tuple[int, str, str]


def test_a_line_a_check_and_nothing_wrong(with_run: Path, typed: Callable[..., Typed]) -> None:
    code, out, err = typed("check", "toy")
    assert code == 0, out
    assert [row.split()[:2] for row in out.splitlines() if not row.startswith(" ")] == [
        ["ok", name]
        for name in (
            *("file", "references", "json", "ids", "turns", "choices", "verdicts", "groups", "updates", "steps"),
            *("saves", "config", "weights", "folder"),
        )
    ]
    assert all(len(row) <= 90 for row in out.splitlines())
    assert "toy: 14 checks in " in err
    assert "nothing wrong" in err


def test_as_json(with_run: Path, answered: Callable[..., Any]) -> None:
    data = answered("check", "toy")
    assert data["ok"] is True
    assert set(data["checks"][0]) == {"name", "what", "count", "problems", "num_problems", "notes", "seconds"}


def test_what_is_wrong_is_said_with_a_way_out(with_run: Path, typed: Callable[..., Typed]) -> None:
    model = next((with_run / "runs" / "toy" / "weights").glob("step_*/model.safetensors"))
    raw = bytearray(model.read_bytes())
    raw[-1] ^= 1
    model.write_bytes(raw)
    code, out, err = typed("check", "toy")
    assert code == 1
    assert "WRONG weights" in out
    assert "its weights are not those that were recorded" in out
    assert "toy: 1 problem in " in err
    assert "selfplay check toy --salvage toy-2" in err


def test_a_damaged_ledger_is_salvaged_and_goes_on(with_run: Path, typed: Callable[..., Typed]) -> None:
    path = with_run / "runs" / "toy" / "ledger.db"
    path.write_bytes(path.read_bytes()[: -2 * 4096])
    for words in (("check", "toy"), ("run", "--name", "toy"), ("status", "toy")):
        code, _, err = typed(*words)
        assert code == 1, (words, err)
        assert str(path) in err
        assert "is damaged" in err
        assert "selfplay check toy --salvage toy-2" in err
    code, _, err = typed("check", "toy", "--salvage", "toy-2")
    assert code == 0, err
    assert "toy-2: " in err
    assert "selfplay run --name toy-2" in err
    assert typed("check", "toy-2")[0] == 0
    code, _, err = typed("run", "--name", "toy-2")
    assert code == 0, err
    assert typed("check", "toy-2")[0] == 0


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        (["check", "tyo"], "not_found", "no run `tyo`"),
        (["check", "toy", "--salvage", "toy"], "config", "there is a run `toy` already"),
        (["check", "toy", "--salvage", "../x"], "config", "a run cannot be called `../x`"),
    ],
)
def test_bad_input_is_one_sentence(
    with_run: Path, typed: Callable[..., Typed], words: list[str], kind: str, message: str
) -> None:
    before = sorted(with_run.rglob("*"))
    code, out, _ = typed(*words, "--json")
    error = json.loads(out)["error"]
    assert (code, error["kind"]) == (2, kind)
    assert error["message"].startswith(message)
    assert sorted(with_run.rglob("*")) == before
