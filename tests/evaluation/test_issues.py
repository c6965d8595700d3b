"""Files of issues: whose each is, what is refused; and that a task with one is another task, held out.

Playing by issues: `tests/experts/test_alone.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from selfplay.config import load
from selfplay.errors import NotFound, UserError
from selfplay.evaluation import issues
from selfplay.evaluation.grounds import Ground
from selfplay.evaluation.stints import HeldOut
from selfplay.project import Project
from selfplay.types import Seed, Task, task_id

CONFIG = "c0ffee"


def task(name: str) -> Task:
    key = f"key-{name}"
    return Task(
        id=task_id(CONFIG, game="code", key=key),
        game="code",
        seed_id=f"seed-{name}",
        key=key,
        payload={"specification": "+ assert"},
        split="train",
        step=0,
    )


def seed(name: str) -> Seed:
    return Seed(id=f"seed-{name}", game="code", source="", payload={}, split="train")


@pytest.fixture
def ground(project: Project) -> Ground:
    """Three tasks of an agent's run."""
    names = ("a", "b", "c")
    on = HeldOut(seeds=tuple(map(seed, names)), tasks=tuple(map(task, names)))
    config = load("code-agent", project=project, environ={})
    return Ground(words="tasks.jsonl", config=config, config_digest=CONFIG, folder=None, on=on, count=3)


def rows(path: Path, *made: Mapping[str, object]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in made) + "\n\n")
    return path


def test_tasks_with_an_issue_are_played_and_nobody_proposes(ground: Ground, tmp_path: Path, project: Project) -> None:
    path = rows(
        tmp_path / "issues.jsonl",
        {"task_id": task("c").id, "issue": "c is slow", "more": 1},
        {"instance_id": f"selfplay__pkg-1-{task('a').id[:12]}", "problem_statement": " a is wrong\n", "patch": "x"},
        {"instance_id": "astropy__astropy-12907", "problem_statement": "somebody else's"},
    )
    found = issues.told(ground, path, project=project)
    assert found.words == "tasks.jsonl, 2 of 3 tasks by their issues in issues.jsonl"
    assert found.on is not None
    assert (found.on.seeds, [one.id for one in found.on.others]) == ((), ["seed-a", "seed-c"])
    assert [one.payload["issue"] for one in found.on.tasks] == ["a is wrong", "c is slow"]
    [first, _] = found.on.tasks
    assert (first.split, first.payload["specification"]) == ("held_out", "+ assert")
    assert first.id == task_id(CONFIG, game="code", key=first.key) != task("a").id
    others = rows(tmp_path / "others.jsonl", {"task_id": task("a").id, "issue": "a is quite wrong"})
    other = issues.told(ground, others, project=project)
    assert other.on is not None
    assert other.on.tasks[0].id != first.id, "what was played by one issue is no answer for another"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("words", "line 2 is no JSON"),
        ("[]", "line 2 is no JSON object"),
        ('{"issue": "x"}', "line 2 is no issue: it has no task_id or instance_id"),
        ('{"task_id": "a", "problem_statement": " "}', "line 2 is no issue: it has no problem_statement or issue"),
        ('{"task_id": "b", "issue": "another"}', "line 2: b had another issue before"),
    ],
)
def test_lines_that_are_no_issues(line: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "issues.jsonl"
    path.write_text('{"task_id": "b", "issue": "one"}\n' + line)
    with pytest.raises(UserError, match=said) as error:
        issues.read(path)
    assert error.value.hint


def test_what_cannot_be_told_by_issues(ground: Ground, tmp_path: Path, project: Project) -> None:
    path = rows(tmp_path / "issues.jsonl", {"task_id": "nobody", "issue": "x"})
    with pytest.raises(UserError, match="has 1 issues, and none is of one of the 3 tasks"):
        issues.told(ground, path, project=project)
    with pytest.raises(NotFound, match="no file"):
        issues.told(ground, tmp_path / "nothing.jsonl", project=project)
    with pytest.raises(UserError, match="are not made yet"):
        issues.told(replace(ground, on=None), path, project=project)
    plain = load("quickstart", project=project, environ={})
    for one, configs in ((replace(ground, config=plain), ()), (ground, (plain,))):
        with pytest.raises(UserError, match="role `repairer` has no place for an issue"):
            issues.told(one, path, configs=configs, project=project)
