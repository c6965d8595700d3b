"""Reverify: nothing changes where nothing did, and what changed is named; the ledger keeps its verdicts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from selfplay.build import Outcome
from selfplay.errors import Held, UserError
from selfplay.exports import card, licences, seam
from selfplay.exports.tasks import bugs_of
from selfplay.games.code.artifact import diff_of
from selfplay.ledger import Ledger
from selfplay.project import Project
from selfplay.reverify import reverify, stored_attempts
from selfplay.types import Task
from tests import scripted
from tests.backends import needed
from tests.games.search.ground import corpus

MIXED = (
    *("run.game=code+search", "roles.proposer=injector+search_proposer_short"),
    *("roles.solver=repairer+search_solver_short", "game.corpus=small", "game.answers=2"),
    "game.options={top_k=1, answerable=false, ablation=false, closed_book=false, unique=false, quote=false}",
)


def change(folder: Path, statement: str) -> None:
    """Change the ledger behind its back."""
    with sqlite3.connect(folder / "ledger.db") as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        assert connection.execute(statement).rowcount
    connection.close()


def put(folder: Path, task: Task, changes: dict[str, object]) -> None:
    """Change a task's payload."""
    payload = json.dumps({**task.payload, **changes}).replace("'", "''")
    change(folder, f"UPDATE tasks SET payload = '{payload}' WHERE id = '{task.id}'")


def ignore(words: str) -> None:
    """Say nothing."""


@pytest.mark.bubblewrap
def test_attempts_get_the_same_rows_again(code_run: Path, project: Project) -> None:
    found = reverify(code_run, project=project, say=ignore)
    assert (found.what, found.total, found.identical, found.undecided, found.changed) == ("attempts", 4, 4, 0, ())
    with Ledger.read(code_run) as reader:
        verdicts = [verdict for _, _, verdict in stored_attempts(reader)]
        assert sorted(verdict.passed for verdict in verdicts if verdict.passed is not None) == [
            False,
            False,
            True,
            True,
        ]
        [alarm] = reader.alarms()
        assert (alarm.level, alarm.code) == ("note", "reverified")
        assert alarm.message == "4 attempts judged again: 0 changed, 0 undecided"
        assert reader.launches()[-1].how == "reverified"


@pytest.mark.bubblewrap
def test_what_changed_is_named_and_the_record_stays(code_run: Path, project: Project) -> None:
    change(code_run, "UPDATE verdicts SET passed = 1, reason = 'passed' WHERE reason = 'tests_fail' AND passed = 0")
    found = reverify(code_run, project=project, say=ignore)
    assert (found.total, found.identical, len(found.changed)) == (4, 2, 2)
    assert {(one.old, one.new) for one in found.changed} == {("passed (passed)", "failed (tests_fail)")}
    assert all("ValueError" in one.why for one in found.changed)
    with Ledger.read(code_run) as reader:
        assert all(verdict.passed for _, _, verdict in stored_attempts(reader))
        assert reader.alarms()[-1].level == "warning"


@pytest.mark.bubblewrap
def test_the_newest_few(code_run: Path, project: Project) -> None:
    with Ledger.read(code_run) as reader:
        newest = [attempt.id for attempt, _, _ in stored_attempts(reader)][-1:]
        assert [attempt.id for attempt, _, _ in stored_attempts(reader, limit=1)] == newest
        assert len(stored_attempts(reader, limit=9)) == 4


@pytest.mark.bubblewrap
def test_bugs_pass_gold_and_fail_no_op(code_run: Path, project: Project) -> None:
    found = reverify(code_run, project=project, tasks=True, say=ignore)
    assert (found.what, found.total, found.identical, found.changed) == ("tasks", 2, 2, ())


@pytest.mark.bubblewrap
def test_a_bug_that_is_none_is_named(code_run: Path, project: Project) -> None:
    with Ledger.read(code_run) as reader:
        first, second = reader.tasks(0)
    path = first.payload["path"]
    clean = (scripted.PACKAGE[path].lstrip("\n")).encode()
    harmless = {**first.payload["artifact"], "bug": diff_of({path: clean}, {path: clean + b"# nothing\n"})}
    put(code_run, first, {"artifact": harmless})
    put(code_run, second, {"tests": [*second.payload["tests"], "tests/test_core.py::gone"]})
    found = reverify(code_run, project=project, tasks=True, say=ignore)
    whys = {one.task_id: one.why for one in found.changed}
    assert whys == {
        first.id: "the bug is accepted as it is",
        second.id: "the clean code is not accepted: gone: it did not run",
    }


@pytest.mark.bubblewrap
def test_a_run_that_is_held_is_left_alone(code_run: Path, project: Project) -> None:
    with Ledger.open(code_run), pytest.raises(Held):
        reverify(code_run, project=project, say=ignore)


@pytest.mark.bubblewrap
def test_other_settings_are_refused(code_run: Path, project: Project) -> None:
    config = code_run / "config.toml"
    config.write_text(config.read_text().replace("attempts = 16", "attempts = 15"))
    with pytest.raises(UserError, match=r"is not what the run was started with: play.attempts") as refused:
        reverify(code_run, project=project, say=ignore)
    assert refused.value.hint == "set it back: play.attempts was 16"


@pytest.mark.bubblewrap
def test_another_source_is_refused(code_run: Path, project: Project) -> None:
    with Ledger.read(code_run) as reader:
        put(code_run, reader.tasks(0)[0], {"line": 99})
    with pytest.raises(UserError, match=r"^what run `code` recorded does not fit its source .*: pkg/core.py::"):
        reverify(code_run, project=project, say=ignore)


@pytest.mark.bubblewrap
def test_settings_that_are_newer_than_the_run_are_none_of_it(code_run: Path, project: Project) -> None:
    change(code_run, "UPDATE runs SET config_digest = 'older', config = json_remove(config, '$.\"game.max_lines\"')")
    assert reverify(code_run, project=project, limit=1, say=ignore).identical == 1


def test_attempts_of_the_toy_game(tmp_path: Path, play: Callable[..., Outcome], project: Project) -> None:
    folder = tmp_path / "toy"
    play(folder, steps=6)
    found = reverify(folder, project=project, say=ignore)
    assert found.total == found.identical > 0


@pytest.fixture(scope="module")
def mixed_run(tmp_path_factory: pytest.TempPathFactory, project: Project) -> Iterator[Path]:
    """A run of both games: two bugs and a question, each attempted twice; not to be changed."""
    needed("bubblewrap")
    folder = tmp_path_factory.mktemp("mixed")
    text = "The tower in the middle of the city was built by the engineer Gustave Eiffel in two years and two months."
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_CACHE", str(scripted.cache(folder)))
        corpus(folder / "texts", {"tower": text})
        scripted.play(folder / "mixed", *MIXED, source=scripted.written(folder), project=project)
        yield folder / "mixed"


@pytest.mark.bubblewrap
def test_a_mix_is_judged_again_game_by_game(mixed_run: Path, project: Project) -> None:
    found = reverify(mixed_run, project=project, say=ignore)
    assert (found.what, found.total, found.identical, found.undecided, found.changed) == ("attempts", 6, 6, 0, ())
    with Ledger.read(mixed_run) as reader:
        reasons = [(task.game, verdict.reason) for _, task, verdict in stored_attempts(reader)]
    assert sorted(reasons) == [
        *[("code", "passed")] * 2,
        *[("code", "tests_fail")] * 2,
        *[("search", "passed"), ("search", "wrong")],
    ]


@pytest.mark.bubblewrap
def test_of_a_mix_the_bugs_are_proved_again(mixed_run: Path, project: Project) -> None:
    found = reverify(mixed_run, project=project, tasks=True, say=ignore)
    assert (found.what, found.total, found.identical, found.changed) == ("tasks", 2, 2, ())


@pytest.mark.bubblewrap
def test_a_mix_is_exported_with_what_each_game_is_made_of(mixed_run: Path, project: Project) -> None:
    with Ledger.read(mixed_run) as reader:
        asked = seam.Asked(reader=reader, project=project)
        code, search = licences.sources(asked)
        assert (code.licence, bool(code.digest), code.note) == ("unknown", True, "")
        assert (search.name, search.licence, bool(search.digest)) == ("small", "unknown", True)
        assert [task.game for task in bugs_of(asked, what="bugs")] == ["code", "code"]
        contents = card.Contents(splits={}, rates=(), without=0, sources=(code, search), held_out=False)
        told = card.text(asked, contents)
    assert '- "code"\n- "search"' in told
    assert "shares its process with the tests" in told
    assert "right answer that no check found" in told


@pytest.mark.parametrize("sets", [(), ("run.game=echo+search", "roles.proposer=echo_proposer+search_proposer_short")])
def test_without_the_game_there_are_no_bugs(
    tmp_path: Path, play: Callable[..., Outcome], project: Project, sets: tuple[str, ...], monkeypatch: Any
) -> None:
    if sets:
        monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))
        corpus(tmp_path / "texts", {"a": "It was drawn by the architect John Bradfield, they say in the old town."})
        sets = (*sets, "roles.solver=echo_solver+search_solver_short", "game.corpus=small", *MIXED[-1:])
    folder = tmp_path / "run"
    play(folder, *sets, steps=1)
    with pytest.raises(UserError, match="has no bugs to prove again"):
        reverify(folder, project=project, tasks=True, say=ignore)
