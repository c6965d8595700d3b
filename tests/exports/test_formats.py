"""What needs no other library: trajectories, curves, cards, licences, the refusals of every format."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from selfplay.cli import main
from selfplay.errors import UserError
from selfplay.exports import card, curves, licences, seam, tables
from selfplay.exports.plays import plays
from selfplay.ledger import Ledger
from selfplay.project import Project
from selfplay.types import Stop, ToolCall, Trajectory, Turn

Exported = Callable[..., tuple[seam.Made, Path]]


def asked_of(run: Path, project: Project, **more: Any) -> seam.Asked:
    return seam.Asked(reader=Ledger.read(run), project=project, **more)


def test_held_out_plays_only_where_asked_for(evaluated: Path, project: Project) -> None:
    with Ledger.read(evaluated) as reader:
        usual = list(plays(seam.Asked(reader=reader, project=project)))
        more = list(plays(seam.Asked(reader=reader, project=project, held_out=True)))
    assert {play.split for play in usual} == {"train"}
    extra = [play for play in more if play.split == "held_out"]
    assert extra
    assert {play.trajectory.stage for play in extra} == {"evaluate"}
    assert {play.side for play in extra} == {"proposer", "solver"}
    assert len(more) == len(usual) + len(extra)
    assert {play.trajectory.step for play in extra} == {0, 1, 2}, "after two steps as well"


def test_the_last_evaluation_has_a_step_of_its_own(evaluated: Path, exported: Exported, project: Project) -> None:
    made, to = exported(evaluated, "atif", step=2, held_out=True)
    told = [json.loads(file.read_text())["extra"] for file in to.rglob("*.json")]
    assert made.count == len(told) > 0
    assert {(one["step"], one["stage"], one["split"]) for one in told} == {(2, "evaluate", "held_out")}
    for more in ({"step": 2}, {"step": 3, "held_out": True}):
        with Ledger.read(evaluated) as reader, pytest.raises(UserError, match="has no closed step"):
            seam.require_rows(seam.Asked(reader=reader, project=project, **more))


def test_an_evaluation_that_is_not_whole_is_left_out(evaluated: Path, tmp_path: Path, project: Project) -> None:
    folder = Path(shutil.copytree(evaluated, tmp_path / "half"))
    with closing(sqlite3.connect(folder / "ledger.db")) as connection, connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(
            "DELETE FROM verdicts WHERE trajectory_id = "
            "(SELECT id FROM trajectories WHERE stage = 'evaluate' AND step = 2 ORDER BY id LIMIT 1)"
        )
    with Ledger.read(folder) as reader:
        found = list(plays(seam.Asked(reader=reader, project=project, held_out=True)))
    assert {play.trajectory.step for play in found if play.split == "held_out"} == {0, 1}


def test_a_play_has_what_was_decided(six_steps: Path, project: Project) -> None:
    with Ledger.read(six_steps) as reader:
        found = list(plays(seam.Asked(reader=reader, project=project)))
        in_groups = [play for play in found if play.group is not None]
        for play in in_groups:
            assert play.group is not None
            at = play.group.trajectory_ids.index(play.trajectory.id)
            assert (play.reward, play.advantage) == (play.group.rewards[at], play.group.advantages[at])
    assert in_groups
    assert all(play.seed is not None for play in found)
    assert all(play.task is not None for play in found if play.side == "solver")


def test_trajectories_as_files(six_steps: Path, exported: Exported) -> None:
    made, to = exported(six_steps, "atif", step=3)
    files = sorted(to.rglob("*.json"))
    assert made.count == len(files) > 0
    assert {file.parent.parent.name for file in files} == {"step-00003"}
    told = json.loads(files[0].read_text())
    assert told["schema_version"] == "ATIF-v1.7"
    assert [step["source"] for step in told["steps"]] == ["user", "agent"]
    metrics = told["steps"][1]["metrics"]
    assert len(metrics["completion_token_ids"]) == len(metrics["logprobs"]) == metrics["completion_tokens"]
    assert told["extra"]["step"] == 3


def test_calls_and_what_they_gave_belong_to_the_reply() -> None:
    from selfplay.exports.atif import trajectory_of
    from selfplay.exports.plays import Play

    call = ToolCall(name="bash", arguments={"command": "ls"}, result="a.py", exit_code=0, seconds=0.1)
    turns = (
        Turn(speaker="prompt", token_ids=(1, 2), text="repair"),
        Turn(speaker="policy", token_ids=(3,), logprobs=(-0.5,), text="look", calls=(call,)),
        Turn(speaker="tool", token_ids=(4, 5), text="a.py"),
        Turn(speaker="policy", token_ids=(6,), logprobs=(-0.1,), text="done"),
    )
    common = {"step": 0, "stage": "attempt", "role": "r", "subject_id": "s", "index": 0}
    own = Trajectory(id="t", turns=turns, stop=Stop.DONE, policy_version=(0, 0), **common)
    play = Play(
        trajectory=own, side="solver", split="train", seed=None, task=None, verdict=None, grade=None, group=None,
        advantage=None,
    )  # fmt: skip
    told = trajectory_of(play, run="run", model="m")
    assert [step["source"] for step in told["steps"]] == ["user", "agent", "agent"]
    first, second = told["steps"][1:]
    assert first["tool_calls"][0]["function_name"] == "bash"
    assert first["observation"]["results"][0]["source_call_id"] == first["tool_calls"][0]["tool_call_id"]
    assert first["observation"]["results"][0]["content"] == "a.py"
    assert second["metrics"]["prompt_tokens"] == 5
    assert told["final_metrics"] == {"total_prompt_tokens": 7, "total_completion_tokens": 2}


def test_each_step_is_a_moment(evaluated: Path, project: Project) -> None:
    with Ledger.read(evaluated) as reader:
        found = list(curves.moments(seam.Asked(reader=reader, project=project)))
        rows = reader.step_rows()
        updates = [reader.update(step) for step in (0, 1)]
    assert [(one.step, one.at) for one in found] == [(row.step, row.closed_at) for row in rows]
    for one, row, update in zip(found, rows, updates, strict=True):
        proposed = row.tallies["propose/echo_proposer"]
        assert one.values["propose/echo_proposer/valid"] == proposed.valid / proposed.decided
        assert one.values["held_out/pass@1"] <= one.values["held_out/pass@2"]
        assert ("update/loss" in one.values) == (update is not None and update.skipped is None)


def test_the_card_counts_what_the_ledger_holds(six_steps: Path, project: Project) -> None:
    with Ledger.read(six_steps) as reader:
        asked = seam.Asked(reader=reader, project=project)
        rates = [row["solve_rate"] for row in tables.task_rows(asked)]
        contents = card.Contents(
            splits={"tasks": {"train": len(rates)}, "plays": {}},
            rates=[rate for rate in rates if rate is not None],
            without=rates.count(None),
            sources=(licences.Source(name="a|b\n<c>", licence="MIT", digest="d"),),
            held_out=False,
        )
        told = card.text(asked, contents)
        valid = sum(
            tally.valid for row in reader.step_rows() for place, tally in row.tallies.items() if "propose/" in place
        )
    assert told.startswith("---\nlicense: mit\n")
    assert "path: data/tasks-train.parquet" in told
    assert "config_name: plays" not in told
    assert f"{valid} became tasks" in told
    assert "| a\\|b &lt;c> | MIT | `d` |" in told
    assert "selfplay export toy --format hf" in told


def test_solve_rates_in_tenths() -> None:
    assert card.histogram([0.0, 0.05, 0.1, 0.95, 1.0]) == [2, 1, 0, 0, 0, 0, 0, 0, 0, 2]


@pytest.mark.parametrize(
    ("files", "licence"),
    [
        ({"PKG-INFO": "Metadata-Version: 2.4\nName: a\nLicense-Expression: BSD-3-Clause\n"}, "BSD-3-Clause"),
        (
            {"PKG-INFO": "Name: a\nLicense: UNKNOWN\nClassifier: License :: OSI Approved :: MIT License\n"},
            "MIT License",
        ),
        ({"pyproject.toml": "[project]\nlicense = 'Apache-2.0'\n"}, "Apache-2.0"),
        ({"pyproject.toml": "[project]\nlicense = {text = 'ISC'}\n"}, "ISC"),
        ({"pyproject.toml": "not toml", "LICENSE": "\nMIT License\n\nCopyright"}, "MIT License"),
        ({"a.py": ""}, "unknown"),
    ],
)
def test_what_a_tree_says_of_its_licence(tmp_path: Path, files: dict[str, str], licence: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert licences.licence_of(tmp_path) == licence


def test_the_header_names_a_licence_that_all_share() -> None:
    mit = licences.Source(name="a", licence="MIT", digest="")
    assert licences.header_of((mit, mit)) == "mit"
    assert licences.header_of((mit, licences.Source(name="b", licence="unknown", digest=""))) == "other"


FOLDERS = [name for name in seam.BUILT_IN if seam.find(name).shape == "folder"]


@pytest.mark.parametrize("form", FOLDERS)
def test_a_folder_wants_a_place(six_steps: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    assert main(["export", str(six_steps), "--format", form]) == 2
    assert "--to does not say where" in capsys.readouterr().err


@pytest.mark.parametrize("form", [name for name in FOLDERS if name != "harbor"])
def test_a_run_without_a_closed_step(played_nothing: Path, tmp_path: Path, capsys: Any, form: str) -> None:
    assert main(["export", str(played_nothing), "--format", form, "--to", str(tmp_path / "to")]) == 2
    assert "has no closed step yet" in capsys.readouterr().err
    assert not (tmp_path / "to").exists()


@pytest.fixture(scope="session")
def played_nothing(tmp_path_factory: pytest.TempPathFactory, toy_config: Callable[..., Any]) -> Path:
    """A run that was made and not played."""
    folder, config = tmp_path_factory.mktemp("nothing") / "toy", toy_config()
    with Ledger.create(folder, config_digest="0" * 32, config=config.values(), seed=0, game="echo"):
        config.write(folder)
    return folder


def test_the_answer(six_steps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to = tmp_path / "trajectories"
    assert main(["export", str(six_steps), "--format", "atif", "--step", "1", "--to", str(to), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert (data["format"], data["file"], data["left_out"]) == ("atif", str(to), 0)
    assert data["count"] == len(list(to.rglob("*.json")))
    assert main(["export", str(six_steps), "--format", "atif", "--to", str(to)]) == 2
    assert main(["export", str(six_steps), "--format", "tensorboard", "--step", "1", "--to", str(tmp_path / "x")]) == 2
