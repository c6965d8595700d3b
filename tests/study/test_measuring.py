"""What a result holds of the endpoint's tasks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selfplay.build import Outcome
from selfplay.config import from_run
from selfplay.evaluation import tasks as files
from selfplay.events import Interrupt, ignore
from selfplay.ledger import Ledger, held_out
from selfplay.project import Project
from selfplay.study import arms, measuring
from selfplay.study.spec import read
from tests.study.small import written


def test_proposals_on_the_tasks_seeds_are_asked_for_unless_it_says_not(
    tmp_path: Path, play: Callable[..., Outcome], project: Project
) -> None:
    run, path = tmp_path / "run", tmp_path / "tasks.jsonl"
    play(run, "eval.every=1", "eval.tasks=4", steps=1)
    config = from_run(run, project=project, environ={})
    with Ledger.read(run) as reader:
        made = files.rows(
            reader.ask(held_out.tasks), reader.seeds(), config=config, config_digest=config.digest, digest=None
        )
        path.write_text("".join(json.dumps(row) + "\n" for row in made))

    def looked(more: str) -> dict[str, Any]:
        study = read(written(tmp_path, 'tasks = "held_out"', f'tasks = "tasks.jsonl"{more}'))
        base = arms.Job(study=study, arm=study.arm("warmup"), seed=0, root=tmp_path / "runs")
        assert arms.play(base, project=project, observe=ignore, interrupt=Interrupt())
        found = measuring.result(base, test=(path,), tested=True, project=project, observe=ignore)
        return dict(found["looked"]["endpoint"])

    asked, not_asked = looked(""), looked("\nproposals = false")
    assert asked["valid"][0] == 4
    assert not_asked["valid"] == [0, 0]
    assert asked["counts"] == not_asked["counts"]
    assert sum(len(bugs) for bugs in asked["counts"].values()) == 4
