"""A run whose sampler sleeps while the learner works: before every update, and never before it was asked for anything.

The engine is a stand-in that speaks vLLM's lines (`tests.policy.engine_fake`); everything else is a run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay.build import Outcome
from selfplay.ledger import Ledger
from tests.policy.test_vllm import FAKE


def test_an_engine_sleeps_before_every_update(
    play: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ENGINE", str(tmp_path))
    monkeypatch.setenv("FAKE_VOCABULARY", "6")
    (tmp_path / "mode").write_text("plain")
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
    wrapper.chmod(0o755)
    sets = ("policy.backend=vllm", f"policy.options={{python='{wrapper}', sleep=true}}", "alarms.stop=[]")
    assert play(tmp_path / "run", *sets, "warmup.steps=0", steps=3).steps == 3
    asked = (tmp_path / "asked").read_text().split()
    turns = [word for word, before in zip(asked, ["", *asked], strict=False) if word != before]
    with Ledger.read(tmp_path / "run") as ledger:
        assert len(ledger.updates("play")) == 3
    assert asked.count("sleep") == 3
    assert turns[:4] == ["weights", "sample", "sleep", "weights"], "and it wakes with the weights"
    assert len((tmp_path / "launches").read_text()) == 1
