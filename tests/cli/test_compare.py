from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Typed = tuple[int, str, str]


@pytest.fixture
def two(with_run: Path) -> Path:
    """The toy run twice, under two names."""
    shutil.copytree(with_run / "runs" / "toy", with_run / "runs" / "other")
    return with_run


def test_two_runs(two: Path, typed: Callable[..., Typed], answered: Callable[..., Any]) -> None:
    code, out, err = typed("compare", "toy", "other")
    assert code == 0
    assert out.splitlines()[0].rstrip() == "toy · other"
    assert "settings: the same" in out
    assert "selfplay eval toy other" in err
    data = answered("compare", "toy", "other")
    assert [run["name"] for run in data["runs"]] == ["toy", "other"]
    assert data["failed"] == []


def test_a_condition_that_holds_is_exit_code_1(two: Path, typed: Callable[..., Typed]) -> None:
    code, _, err = typed("compare", "toy", "other", "--fail-if", "valid<-0.5", "--fail-if", "valid>=0")
    assert code == 1
    assert "fails: valid>=0\n" in err
    assert "valid<-0.5" not in err
    assert typed("compare", "toy", "other", "--fail-if", "valid<0")[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["toy"], "missing argument 'SECOND'"),
        (["toy", "nope"], "no run `nope`"),
        (["toy", "other", "--fail-if", "valid"], "`valid` is no condition"),
        (["toy", "other", "--fail-if", "speed<0"], "`speed` is not known of both runs"),
    ],
)
def test_bad_input(two: Path, typed: Callable[..., Typed], words: list[str], message: str) -> None:
    code, out, err = typed("compare", *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
