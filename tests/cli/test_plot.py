from __future__ import annotations

import importlib.util
import shutil
import xml.dom.minidom
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Typed = tuple[int, str, str]


def test_in_the_terminal_and_as_a_file(
    with_replays: Path, typed: Callable[..., Typed], answered: Callable[..., Any]
) -> None:
    code, out, err = typed("plot", "again")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "valid proposals"
    assert all(len(row) <= 80 for row in out.splitlines())
    code, out, _ = typed("plot", "again", "--metric", "entropy", "--to", "curve.svg")
    assert (code, out) == (0, "curve.svg\n")
    xml.dom.minidom.parse(str(with_replays / "curve.svg"))
    data = answered("plot", "again", "--metric", "solved")
    assert [len(chart["series"][0]["points"]) for chart in data["charts"]] == [3]


def test_runs_of_one_name_are_told_apart(with_run: Path, answered: Callable[..., Any]) -> None:
    places = [f"runs/studies/{study}/frontier-0" for study in ("small", "long")]
    for place in places:
        shutil.copytree(with_run / "runs" / "toy", with_run / place)
    [chart] = answered("plot", "toy", *places, "runs/toy", "--metric", "solved")["charts"]
    assert [one["run"] for one in chart["series"]] == ["toy", "small/frontier-0", "long/frontier-0"]


@pytest.mark.skipif(importlib.util.find_spec("cairosvg") is not None, reason="cairosvg is there")
def test_png_without_its_library(with_run: Path, typed: Callable[..., Typed]) -> None:
    code, _, err = typed("plot", "toy", "--to", "curve.png")
    assert code == 3
    assert "hint: pip install cairosvg; or --to FILE.svg" in err


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["toy", "--metric", "solvd"], "no metric `solvd`", "did you mean `solved`? Known: valid, solved"),
        (["toy", "--to", "curve.gif"], "`curve.gif` is no place for a picture", "--to FILE.svg"),
        ([], "missing argument 'RUN...'", "selfplay plot --help"),
    ],
)
def test_bad_input(with_run: Path, typed: Callable[..., Typed], words: list[str], message: str, hint: str) -> None:
    code, out, err = typed("plot", *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert hint in err
