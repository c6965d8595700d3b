"""`selfplay sandbox ...` against real backends, in this process; images are built in tests/sandbox/test_image.py."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selfplay.cli import sandbox
from selfplay.cli.session import Session
from selfplay.sandbox import Left, conformance
from selfplay.sandbox.select import preflight

pytestmark = pytest.mark.bubblewrap
Typed = tuple[int, str, str]

ENGINE = """
import asyncio
from selfplay.sandbox import SandboxSpec
from selfplay.sandbox.local import LocalProvider
async def main():
    sandbox = await LocalProvider().create(SandboxSpec(name="python", labels={"run": "mine"}))
    print(sandbox.id, flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""


@pytest.fixture
def bubblewrap() -> None:
    if not preflight("bubblewrap").ready:
        pytest.skip("bubblewrap is not ready")


def test_what_is_there_whose_it_is_and_what_the_reaper_takes(
    here: Path, typed: Callable[..., Typed], answered: Callable[..., Any]
) -> None:
    engines = [subprocess.Popen([sys.executable, "-c", ENGINE], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        living, dead = (engine.stdout.readline().strip() for engine in engines if engine.stdout is not None)
        engines[1].send_signal(signal.SIGKILL)
        engines[1].wait()
        rows = {row["id"]: row for row in answered("sandbox", "ls")["sandboxes"]}
        assert (rows[living]["backend"], rows[living]["dead"], rows[living]["run"]) == ("local", False, "mine")
        assert rows[dead]["dead"] is True
        assert rows[living]["owner"].split(":")[1] == str(engines[0].pid)
        code, out, _ = typed("sandbox", "ls")
        assert code == 0
        assert living[:12] in out
        found = {row["id"] for row in answered("sandbox", "reap", "--dry-run")["found"]}
        assert dead in found
        assert living not in found
        assert dead not in {row["id"] for row in answered("sandbox", "reap", "--older-than", "86400")["removed"]}
        assert dead in {row["id"] for row in answered("sandbox", "reap")["removed"]}
        rest = {row["id"] for row in answered("sandbox", "ls")["sandboxes"]}
        assert living in rest
        assert dead not in rest
    finally:
        for engine in engines:
            engine.kill()
            engine.communicate()
        typed("sandbox", "reap")


def test_brackets_in_what_others_named_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    left = Left(
        id="a[b]", backend="docker", owner="host[1]:7:1", dead=True, state="up", age_seconds=9, labels={"run": "[/x]"}
    )
    sandbox._print(Session(), [left])
    row = capsys.readouterr().out.splitlines()[1].split()
    assert row == ["a[b]", "docker", "up", "9.0", "s", "7", "on", "host[1]", "dead", "[/x]"]


def test_checks_are_shown_one_a_line(
    here: Path,
    bubblewrap: None,
    typed: Callable[..., Typed],
    answered: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def breaks_its_word(provider: object) -> None:
        raise AssertionError("it [does] not hold")

    checks = (conformance.command_is_reported, breaks_its_word)
    monkeypatch.setattr(conformance, "checks_for", lambda provider: checks)
    code, out, err = typed("sandbox", "check", "bubblewrap")
    assert code == 1
    assert out.splitlines() == [
        "✓ bubblewrap  command is reported",
        "✗ bubblewrap  breaks its word",
        "  it [does] not hold",
    ]
    assert "1 of 2 checks passed" in err
    assert [row["passed"] for row in answered("sandbox", "check", "bubblewrap", code=1)["checks"]] == [True, False]
    monkeypatch.setattr(conformance, "checks_for", lambda provider: checks[:1])
    assert typed("sandbox", "check", "bubblewrap")[0] == 0


def test_a_named_backend_that_is_not_ready(
    here: Path, typed: Callable[..., Typed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    for words in (("check", "docker"), ("bench", "docker"), ("build",)):
        code, out, err = typed("sandbox", *words)
        assert (code, out) == (3, "")
        assert "no Docker engine answers" in err
        assert "hint: start it" in err
    code, _, err = typed("sandbox", "ls")
    assert code == 0
    assert re.search(r"left out: docker: .*no Docker engine answers", err)


def test_a_short_look_at_latencies(
    here: Path, bubblewrap: None, typed: Callable[..., Typed], answered: Callable[..., Any]
) -> None:
    data = answered("sandbox", "bench", "bubblewrap", "--repeat", "1")
    assert set(data["median_ms"]["bubblewrap"]) == {"create", "acquire", "exec", "put", "get", "close"}
    assert data["floor_ms"] > 0
    code, out, _ = typed("sandbox", "bench", "bubblewrap", "--repeat", "1")
    assert code == 0
    assert "floor:" in out


def test_wrong_usage(here: Path, typed: Callable[..., Typed], tmp_path: Path) -> None:
    (tmp_path / "root.tar").write_bytes(b"")
    assert typed("sandbox", "build", "--base", "a", "--rootfs", str(tmp_path / "root.tar"))[0] == 2
    assert typed("sandbox", "build", "nosuch")[0] == 2
    assert typed("sandbox", "check", "podman")[0] == 2
    assert typed("sandbox", "reap", "--older-than", "-1")[0] == 2
