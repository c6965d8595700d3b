from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

Typed = tuple[int, str, str]


def test_everything_with_its_origin(with_run: Path, typed: Callable[..., Typed], answered: Callable[..., Any]) -> None:
    role = with_run / "roles" / "injector"
    role.mkdir(parents=True)
    (role / "role.toml").write_text('# My own.\ngame = "code"\nside = "proposer"\n')
    data = answered("ls")
    assert [row["name"] for row in data["runs"]] == ["toy"]
    assert {row["name"] for row in data["presets"]} >= {"quickstart", "demo"}
    assert [row["name"] for row in data["sandboxes"]] == ["python"]
    roles = {row["name"]: row for row in data["roles"]}
    assert (roles["injector"]["origin"], roles["repairer"]["origin"]) == ("project", "shipped")
    assert roles["injector"]["hides"].endswith("roles/injector")
    code, out, _ = typed("ls")
    assert code == 0
    assert "My own. (hides " in out
    assert all(len(row) <= 80 for row in out.splitlines())


def test_brackets_in_a_name_are_text(here: Path, typed: Callable[..., Typed]) -> None:
    (here / "curricula").mkdir()
    (here / "curricula" / "a[red]b.toml").write_text("# Mine [x].\n")
    code, out, err = typed("ls", "presets")
    assert code == 0, err
    assert ["a[red]b", "project", "Mine", "[x]."] in [row.split() for row in out.splitlines()]


def test_one_kind(here: Path, typed: Callable[..., Typed], answered: Callable[..., Any]) -> None:
    assert set(answered("ls", "presets")) == {"presets"}
    code, out, err = typed("ls", "runs")
    assert (code, out.strip()) == (0, "")
    assert "selfplay run starts one" in err


def test_the_alarms_are_listed_where_they_are_asked_for(
    here: Path, typed: Callable[..., Typed], answered: Callable[..., Any]
) -> None:
    assert "alarms" not in answered("ls")
    rows = {row["name"]: row for row in answered("ls", "alarms")["alarms"]}
    assert rows["agreement"]["fix"]
    code, out, _ = typed("ls", "alarms")
    assert code == 0
    assert "entropy_floor" in out


def test_formats_are_listed_with_the_package_that_adds_them(
    here: Path, typed: Callable[..., Typed], answered: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = EntryPoint(name="mine", value="no_such_module:FORMAT", group="selfplay.exports")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [broken])
    rows = {row["name"]: row for row in answered("ls", "formats")["formats"]}
    assert rows["parquet"]["origin"] == "shipped"
    assert rows["mine"]["origin"] == "no_such_module:FORMAT"
    assert "cannot be loaded" in rows["mine"]["about"]
    assert "parquet" in typed("ls", "formats")[1]
