from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selfplay.cli import main
from selfplay.errors import NotFound, NotReady, UserError
from selfplay.exports import place, seam

PLUG_IN = """
from selfplay.exports.seam import Made, Simple

def _write(asked, out):
    for step in asked.steps:
        out.line({"step": step, "held_out": asked.held_out})
    return Made(count=len(asked.steps))

STEPS = Simple(about="numbers of steps", noun="step", shape="lines", takes=frozenset({"step"}), writer=_write)
LACKING = object()

def broken():
    raise RuntimeError("no good")
"""


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution that adds formats, as an installed one does."""
    site = tmp_path / "site"
    (site / "someones-1.0.dist-info").mkdir(parents=True)
    (site / "someones_format.py").write_text(PLUG_IN)
    (site / "someones-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: someones\nVersion: 1.0\n")
    (site / "someones-1.0.dist-info" / "entry_points.txt").write_text(
        "[selfplay.exports]\nsteps = someones_format:STEPS\nlacking = someones_format:LACKING\n"
        "broken = someones_format:broken\nsft = someones_format:STEPS\n"
    )
    monkeypatch.syspath_prepend(str(site))


@pytest.mark.parametrize("name", seam.BUILT_IN)
def test_every_format_meets_the_protocol(name: str) -> None:
    form = seam.find(name)
    assert form.about
    assert form.noun
    assert form.shape in ("lines", "folder")
    assert form.takes <= {"held_out", "step"}


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(NotFound) as caught:
        seam.find("parkett")
    assert caught.value.hint.startswith("did you mean `parquet`? Known: swebench, ")


@pytest.mark.usefixtures("plug_in")
def test_a_package_adds_a_format(six_steps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {"steps", "lacking", "broken"} <= set(seam.names())
    assert main(["export", str(six_steps), "--format", "steps", "--step", "2"]) == 0
    assert json.loads(capsys.readouterr().out) == {"step": 2, "held_out": False}
    assert main(["export", str(six_steps), "--format", "steps", "--held-out"]) == 2


@pytest.mark.usefixtures("plug_in")
def test_a_package_that_cannot_be_used() -> None:
    with pytest.raises(NotReady, match="cannot be loaded: no good"):
        seam.find("broken")
    with pytest.raises(NotReady, match="has no about, noun, shape, takes, write"):
        seam.find("lacking")
    assert seam.find("sft").noun == "row"


def test_a_missing_library_is_named() -> None:
    with pytest.raises(NotReady) as caught:
        seam.needs("no_such_library.inner", extra="hf")
    assert "written with no_such_library" in caught.value.message
    assert caught.value.hint == "install it: pip install 'selfplay-curriculum[hf]'"


@pytest.mark.parametrize("form", ["atif", "trl", "sft", "tasks"])
def test_steps_that_are_not_there(six_steps: Path, exported: Callable[..., Any], form: str) -> None:
    with pytest.raises(UserError, match=r"has no (closed )?step 99"):
        exported(six_steps, form, step=99)


def broken(to: Path) -> None:
    """An export that ends half way."""
    with place.opened(to, "folder") as out:
        (out.folder / "half").write_text("half")
        raise ZeroDivisionError


def test_a_folder_is_whole_or_not_there(tmp_path: Path) -> None:
    to = tmp_path / "made"
    with pytest.raises(ZeroDivisionError):
        broken(to)
    assert list(tmp_path.iterdir()) == []
    with place.opened(to, "folder") as out:
        (out.folder / "whole").write_text("whole")
    assert [path.name for path in to.iterdir()] == ["whole"]
    with pytest.raises(UserError, match="is there already"), place.opened(to, "folder"):
        pass
    with pytest.raises(UserError, match="is there already"), place.opened(to, "lines"):
        pass
    with pytest.raises(NotReady, match="cannot write"), place.opened(tmp_path / "no" / "such", "folder"):
        pass
