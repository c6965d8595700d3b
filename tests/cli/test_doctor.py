from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selfplay.cli import doctor
from selfplay.sandbox.proof import Attempt
from selfplay.sandbox.select import preflight

Typed = tuple[int, str, str]


def test_facts_verdicts_and_fixes(here: Path, typed: Callable[..., Typed]) -> None:
    code, out, err = typed("doctor")
    assert code in (0, 3)
    for name in ("python", "packages", "git", "runs", "cache", "model", "cards", "vllm", "memory", "docker"):
        assert f" {name} " in out
    assert ("this machine is ready" in err) == (code == 0)
    assert all(len(row) <= 80 for row in out.splitlines())


@pytest.mark.bubblewrap
def test_isolation_is_proved_by_trying(
    here: Path, answered: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    if not preflight("bubblewrap").ready:
        pytest.skip("bubblewrap is not ready")
    rows = {row["name"]: row for row in answered("doctor")["checks"]}
    tried = ("network", "processes", "memory", "disk", "file", "secrets", "privileges")
    assert {rows[f"bubblewrap: {name}"]["verdict"] for name in tried} == {"ok"}
    assert "no route" in rows["bubblewrap: network"]["what"]
    assert "left by dead owners" in rows["bubblewrap: leftovers"]["what"]


def test_what_nothing_stops_is_said(here: Path, typed: Callable[..., Typed], monkeypatch: pytest.MonkeyPatch) -> None:
    async def prove(provider: object) -> tuple[Attempt, ...]:
        return (Attempt(name="network", stopped=False, what="it reaches 192.0.2.1, by the interfaces eth0, lo"),)

    monkeypatch.setattr("selfplay.sandbox.proof.prove", prove)
    if not any(preflight(name).ready for name in ("docker", "bubblewrap")):
        pytest.skip("no backend is ready")
    code, out, err = typed("doctor")
    assert code == 3
    assert "nothing stopped it: it reaches 192.0.2.1" in " ".join(out.split())
    assert "this machine is not ready" in err


def test_for_programs(here: Path, answered: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    data = answered("doctor", code=3)
    assert data["ready"] is False
    rows = {row["name"]: row for row in data["checks"]}
    assert rows["git"] == {
        "name": "git",
        "verdict": "missing",
        "what": "no git on PATH",
        "fix": "apt-get install -y git",
    }
    assert all(row["fix"] for row in data["checks"] if row["verdict"] == "missing")


def test_cards_vllm_and_memory_are_looked_at(
    here: Path, answered: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (
        ("nvidia-smi", "echo '0, Card A, 24564'"),
        ("old", """echo '{"vllm": "0.9.1", "python": "3"}'"""),
        ("right", """echo '{"vllm": "0.32.0", "python": "3"}'"""),
        ("newer", """echo '{"vllm": "0.40.1", "python": "3"}'"""),
    ):
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")

    def rows(python: str) -> dict[str, Any]:
        monkeypatch.setenv("SELFPLAY_POLICY_BACKEND", "vllm")
        monkeypatch.setenv("SELFPLAY_POLICY_OPTIONS", f'{{python = "{tools / python}"}}')
        return {row["name"]: row for row in answered("doctor", code=3)["checks"]}

    found = rows("old")
    assert found["cards"]["what"] == "card 0 (Card A), 26 GB"
    assert (found["vllm"]["verdict"], "is older than 0.32" in found["vllm"]["what"]) == ("missing", True)
    assert "pip install" in found["vllm"]["fix"]
    assert found["memory"]["verdict"] == "ok"
    assert "supported, the version that the tests run" in rows("right")["vllm"]["what"]
    assert "newer than the version that the tests run" in rows("newer")["vllm"]["what"]


def test_a_full_disk_is_missing_space(
    here: Path, answered: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    monkeypatch.setattr(doctor, "NEEDED_GB", 1e9)
    rows = {row["name"]: row for row in answered("doctor", code=3)["checks"]}
    assert (rows["runs"]["verdict"], rows["cache"]["verdict"]) == ("missing", "missing")
    assert "SELFPLAY_RUNS" in rows["runs"]["fix"]
