"""Whole runs of the toy game with a real vLLM: the weights reach it after every update, and records stay exact."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay.build import Outcome
from selfplay.errors import UserError
from selfplay.events import Event
from selfplay.ledger import Ledger, check
from selfplay.project import Project
from selfplay.replay import replay
from tests.together import check_together


def sets(python: str) -> tuple[str, ...]:
    """The toy game with vLLM."""
    return ("policy.backend=vllm", f"policy.options={{python='{python}', kv_gb=0.25}}", "run.save_every=1")


def test_every_step_is_sampled_from_the_learners_weights(
    python: str, play: Callable[..., Outcome], project: Project, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    assert play(folder, *sets(python), steps=3).steps == 3
    with Ledger.read(folder) as ledger:
        check_together(ledger, steps=3)
        assert not ledger.alarms()
    assert not [one for one in check.checks(folder) if one.num_problems]
    said: list[str] = []
    again = replay(folder, 2, project=project, say=said.append)
    assert again.sampler is None
    assert again.equal
    assert "cannot be had again" in said[0]
    with pytest.raises(UserError, match="cannot be had again"):
        replay(folder, 2, project=project, learner=False, say=said.append)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "words", "when"),
    [(signal.SIGKILL, "killed by SIGKILL", (1, 3)), (signal.SIGSTOP, "it said nothing for 30 s", (1,))],
)
def test_an_engine_that_is_lost_within_steps_costs_no_reply_that_had_ended(
    python: str,
    play: Callable[..., Outcome],
    tmp_path: Path,
    number: signal.Signals,
    words: str,
    when: tuple[int, ...],
) -> None:
    folder, told = tmp_path / "run", list[str]()
    had: dict[str, tuple[int, ...]] = {}
    struck: set[int | None] = set()

    def observe(event: Event) -> None:
        if event.kind == "note":
            told.append(str(event.data["text"]))
        # note: in the midst of a step's replies, once.
        if event.kind == "tick" and event.step in when and event.step not in struck and event.data["done"] == 2:
            struck.add(event.step)
            had.update(_recorded(folder))
            for pid in _engine():
                os.kill(pid, number)

    options = ("policy.backend=vllm", f"policy.options={{python='{python}', kv_gb=0.25, stall_seconds=30.0}}")
    assert play(folder, *options, "run.save_every=1", steps=5, observe=observe).steps == 5
    assert not [one for one in check.checks(folder) if one.num_problems]
    assert sum(words in text for text in told) >= 1
    after = _recorded(folder)
    assert len(had) > 10
    assert {name: after.get(name) for name in had} == had, "what was recorded stands as it was, once"
    with Ledger.read(folder) as ledger:
        assert not ledger.alarms()


def _recorded(folder: Path) -> dict[str, tuple[int, ...]]:
    """Every trajectory that is committed: its id and tokens."""
    with Ledger.read(folder) as ledger:
        stages = [(step, stage) for step in range(5) for stage in ("propose", "attempt")]
        return {t.id: t.token_ids for step, stage in stages for t in ledger.trajectories(step, stage)}


def _engine() -> list[int]:
    """Engines that this process started."""
    own = str(os.getpid())
    lines = [(path, path.joinpath("cmdline").read_bytes().split(b"\0")) for path in Path("/proc").glob("[0-9]*")]
    return [int(path.name) for path, words in lines if any(b"vllm_child" in w for w in words) and own.encode() in words]
