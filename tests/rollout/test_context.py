"""A prompt that is longer than the model's context ends its play, not the run: the toy model, through the engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from selfplay.build import Outcome, execute
from selfplay.config import Config
from selfplay.events import Interrupt, ignore
from selfplay.ledger import Ledger
from selfplay.project import Project
from selfplay.types import Stop

LONG = '{% if word|length > 1 %}{{ "?" * 300 }}{% endif %}{{ word }}>'
"""Words of two letters come with more than the toy's 256 tokens."""


def test_such_plays_are_failures_that_teach_nothing(
    tmp_path: Path, project: Project, toy_config: Callable[..., Config]
) -> None:
    role = tmp_path / "roles" / "echo_solver"
    role.mkdir(parents=True)
    (role / "role.toml").write_text((project.shipped / "roles" / "echo_solver" / "role.toml").read_text())
    (role / "prompt.md").write_text(LONG)
    own = Project(folder=tmp_path, shipped=project.shipped, runs=tmp_path / "runs")
    folder = tmp_path / "runs" / "long"
    found = execute(toy_config("run.steps=4"), project=own, folder=folder, observe=ignore, interrupt=Interrupt())
    assert found == Outcome(stop="done", steps=4)
    with Ledger.read(folder) as ledger:
        assert ledger.check() == ()
        plays = [play for step in range(4) for play in ledger.trajectories(step, "attempt")]
        full = [play for play in plays if play.stop is Stop.CONTEXT]
        for play in full:
            word = str(ledger.task(play.subject_id).payload["word"])  # type: ignore[union-attr]
            assert (len(word), play.num_sampled, play.fault) == (2, 0, None)
            judged = next(v for v in ledger.verdicts_of(play.id) if v.stage == "judge")
            assert (judged.passed, judged.fault) == (False, None)
        learnt = {name for update in ledger.updates("play") for name in update.trajectory_ids}
        assert not learnt & {play.id for play in full}
        assert all(play.stop is not Stop.CONTEXT for play in plays if play not in full)
        assert full, "a word of two letters was proposed and tried"
