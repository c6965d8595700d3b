"""Files of tasks: what a line may not say, lines that were changed, and what was played of a file before that."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selfplay.build import Outcome
from selfplay.config import Config
from selfplay.errors import UserError
from selfplay.evaluation import tasks as files
from selfplay.evaluation.grounds import on_file, on_run
from selfplay.evaluation.measure import Ask, measure
from selfplay.evaluation.targets import of_run
from selfplay.events import ignore
from selfplay.project import Project
from selfplay.types import Seed, Task, digest, task_id

Rows = list[dict[str, Any]]


def made(config: Config, *words: str) -> Rows:
    """The lines of tasks of the toy game, as they are written."""
    seeds = [Seed(id=f"seed-{w}", game="echo", source="", payload={"length": len(w)}, split="held_out") for w in words]
    tasks = [
        Task(
            id=task_id(config.digest, game="echo", key=f"held_out:{word}"),
            game="echo",
            seed_id=f"seed-{word}",
            key=f"held_out:{word}",
            payload={"word": word},
            split="held_out",
            step=-1,
        )
        for word in words
    ]
    return json.loads(
        json.dumps(list(files.rows(tasks, seeds, config=config, config_digest=config.digest, digest=None)))
    )  # type: ignore[no-any-return]


def written(path: Path, rows: Rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def older(rows: Rows) -> Rows:
    """As they were written before lines had a digest."""
    return [{key: value for key, value in row.items() if key != "line_digest"} for row in rows]


@pytest.mark.parametrize(
    ("name", "value"),
    [("sandbox.kind", "local"), ("policy.options", {"python": "/bin/false"}), ("learner.lr", 1.0), ("gamer.x", 1)],
)
def test_a_line_sets_nothing_but_what_is_right(
    tmp_path: Path, toy_config: Callable[..., Config], project: Project, name: str, value: object
) -> None:
    rows = older(made(toy_config(), "ab", "aab"))
    rows[1]["settings"][name] = value
    path = written(tmp_path / "tasks.jsonl", rows)
    with pytest.raises(UserError, match=rf"tasks.jsonl, line 2 is no task: it sets `{name}`, which") as error:
        on_file(path, run=None, count=None, sandbox=None, project=project)
    assert "selfplay export" in error.value.hint


@pytest.mark.parametrize("game", ["planted_game:Made", "echo+planted_game:Made"])
def test_a_file_does_not_say_which_module_is_imported(
    tmp_path: Path, toy_config: Callable[..., Config], monkeypatch: pytest.MonkeyPatch, game: str
) -> None:
    [row] = older(made(toy_config(), "ab"))
    row["settings"] |= {"run.game": game, "roles.proposer": game, "roles.solver": game}
    row |= {"game": game, "source": game.replace("+", " + ")}
    row["digest"] = digest("mix", [None, None]) if "+" in game else None
    path = written(tmp_path / "tasks.jsonl", [row])
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "planted_game.py").write_text("raise SystemExit('it was imported')\n")
    mine = Project(folder=tmp_path, shipped=Path(__file__).parents[2], runs=tmp_path / "runs")

    def ground() -> Config:
        return on_file(path, run=None, count=None, sandbox=None, project=mine).config

    (tmp_path / "selfplay.toml").write_text('[run]\ngame = "planted_game:Other"\n')
    with pytest.raises(UserError, match="are of the module `planted_game:Made`, which nobody here has named") as error:
        ground()
    assert f'game = "{game}"' in error.value.hint
    (tmp_path / "selfplay.toml").write_text(f'[run]\ngame = "{game}"\n')
    assert ground().run.game == game, "the project's own is known"
    assert "planted_game" not in sys.modules


def test_a_line_that_was_changed_is_refused(
    tmp_path: Path, toy_config: Callable[..., Config], project: Project
) -> None:
    config = toy_config()
    path = written(tmp_path / "tasks.jsonl", made(config, "ab", "aab"))
    assert [task.payload["word"] for task in files.read(path).on.tasks] == ["ab", "aab"]
    changes: list[Callable[[dict[str, Any]], None]] = [
        lambda row: row["task"]["payload"].update(word="x"),
        lambda row: row["seed"]["payload"].update(length=9),
        lambda row: row["settings"].update({"sandbox.timeout_seconds": 1.0}),
        lambda row: row.update(line_digest=None),
    ]
    for change in changes:
        rows = made(config, "ab", "aab")
        change(rows[1])
        with pytest.raises(UserError, match="line 2 was changed since it was written"):
            files.read(written(path, rows))
    assert files.read(written(path, older(made(config, "ab")))).on.tasks, "files of before are read"


def test_committed_tasks_are_read() -> None:
    path = Path(__file__).parents[2] / "curricula" / "studies" / "tasks" / "slips" / "boltons-26.2.0.jsonl"
    assert "line_digest" not in path.read_text().partition("\n")[0]
    assert files.read(path).on.tasks


def test_what_was_played_of_a_file_is_no_answer_for_a_changed_one(
    tmp_path: Path, play: Callable[..., Outcome], toy_config: Callable[..., Config], project: Project
) -> None:
    play(tmp_path / "run", steps=1)
    target = of_run(tmp_path / "run", None, project=project)

    def stored(rows: Rows) -> bool:
        path = written(tmp_path / "tasks.jsonl", rows)
        ground = on_file(path, run=None, count=None, sandbox=None, project=project)
        ask = Ask(attempts=1, temperature=None, seed=None)
        [found] = measure([target], ground, ask, project=project, observe=ignore)
        return found.stored

    rows = older(made(toy_config(), "ab", "aab"))
    assert [stored(rows), stored(rows)] == [False, True]
    assert stored(made(toy_config(), "ab", "aab")), "a line's digest is nothing that is played"
    rows[1]["task"]["payload"]["word"] = "abb"
    assert not stored(rows)


def test_a_runs_own_tasks_are_found_where_they_were_kept(
    tmp_path: Path, play: Callable[..., Outcome], project: Project
) -> None:
    folder = tmp_path / "run"
    play(folder, "eval.every=1", "eval.tasks=2", "run.seed=0", steps=1)
    target = of_run(folder, None, project=project)
    ask = Ask(attempts=1, temperature=None, seed=None)
    for stored in (False, True):
        ground = on_run(folder, count=None, sandbox=None, project=project)
        [found] = measure([target], ground, ask, project=project, observe=ignore)
        assert found.stored == stored
