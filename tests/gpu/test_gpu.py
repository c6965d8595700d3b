"""The self-test itself: on the processor with a tiny model, and what it says without a card."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.gpu import __main__ as gpu
from tests.gpu.checks import TINY, Bench


def test_on_the_processor_every_check_holds(tmp_path: Path) -> None:
    out = tmp_path / "answer.json"
    assert gpu.main(["--cpu", "--out", str(out), "--vllm-python", str(tmp_path / "none")]) == 0
    answer = json.loads(out.read_text())
    found = {row["name"]: row["verdict"] for row in answer["checks"]}
    held = dict.fromkeys(("update", "agreement", "resumed", "fsdp", "memory", "throughput"), "ok")
    assert found == held | {"vllm": "skipped"}
    assert {row["what"] for row in answer["throughput"]} == {"sampler", "learner"}
    assert all(row["tokens_per_second"] > 0 for row in answer["throughput"])
    assert answer["machine"]["device"] == "cpu"


def test_without_a_card_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out = tmp_path / "answer.json"
    assert gpu.main(["--out", str(out)]) == 3
    assert "there is no card" in capsys.readouterr().err
    assert not out.exists()


def test_a_check_that_breaks_is_a_row_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(bench: Bench) -> str:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(gpu, "CHECKS", (("one", breaks), ("two", lambda bench: "fine")))
    rows = gpu.checked(Bench(device=torch.device("cpu"), size=TINY), only=["one", "two"])
    assert [(row["verdict"], row["what"]) for row in rows] == [("failed", "RuntimeError: two lines"), ("ok", "fine")]
