"""Files of questions, answered by searching, by heart and from the right passages, beside each other."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from selfplay.cli import eval_questions
from selfplay.config import Config
from selfplay.errors import NotFound, UserError
from selfplay.evaluation.answering import Exam, exam, single_turn
from selfplay.evaluation.measure import Ask
from selfplay.evaluation.targets import Target
from selfplay.events import ignore
from selfplay.project import Project
from selfplay.retrieval import Document
from selfplay.retrieval.writing import add
from tests.experts.search_players import ASKED, fillings, passages, solver
from tests.experts.search_stage import SearchCast, config
from tests.experts.search_stage import project as staged
from tests.experts.stage import Speaks, scripted

TOWNS = {"Lindisby": "1874", "Oxmouth": "1881", "Tarnwick": "1902", "Averham": "1913"}
TEXTS = {
    town: f"The harbour of {town} was opened to foreign ships in {year} by the queen." for town, year in TOWNS.items()
}
TOY = Target(words="toy", kind="model", name="toy")


def asked(town: str) -> str:
    return f'{ASKED}"The harbour of {town} was opened to foreign ships in ____ by the queen."'


def row(town: str, **other: Any) -> dict[str, Any]:
    return {"id": town, "question": asked(town), "golden_answers": [TOWNS[town], f"in {TOWNS[town]}"], **other}


SUPPORT = {"supporting_facts": [["Oxmouth", 0]], "context": [["Oxmouth", [TEXTS["Oxmouth"]]], ["Rest", ["Nothing."]]]}


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A corpus with two of the four towns."""
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))
    kept = {town: TEXTS[town] for town in ("Lindisby", "Tarnwick")}
    texts = {**kept, **{f"Mill {n}": f"The mill number {n} was built of stone." for n in range(20)}}
    add("towns", "t", [Document(id=k, title=k, digest=v, pieces=lambda v=v: (v,)) for k, v in texts.items()])  # type: ignore[misc]
    return "towns"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = [row("Lindisby"), row("Oxmouth", **SUPPORT), row("Tarnwick"), row("Averham")]
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in [*rows, {**row("Averham"), "answerable": False}]))
    return path


class Reads:
    """A single-turn solver that reads what is given to it, and knows one year by heart."""

    def reply(self, said: str) -> str:
        """A bare answer, or the wrong one."""
        masked = re.findall(rf'{re.escape(ASKED)}"(.*)"', said)
        if not masked:
            return "..."
        known = {"1913": ""} if "Averham" in masked[0] else {}
        return next(iter({**fillings(masked[0], passages(said)), **known}), "nobody knows")


def figures(ready: Exam, project: Project, speaks: Speaks, path: Path) -> dict[str, Any]:
    with scripted(speaks):
        found = eval_questions.answered(
            ready,
            [TOY],
            Ask(attempts=2, temperature=None, seed=None),
            ks=(1,),
            project=project,
            observe=ignore,
        )
    shown = "\n".join(eval_questions.lines(found, ready, path, attempts=2))
    data = eval_questions.data(found, ready, path, attempts=2)
    json.dumps(data)
    (target,) = data["targets"]
    rates = {name: (one["pass_at"]["1"]["value"], one["tasks"]) for name, one in target["conditions"].items()}
    for name in rates:
        assert name in shown
    assert "1 without an answer left out" in shown
    return rates


def made(path: Path, project: Project, *, run: Config | None = None, corpus: str | None = None, **given: Any) -> Exam:
    return exam(path, run=run, corpus=corpus, project=project, **{"count": None, "sandbox": None, **given})


@pytest.fixture
def toys(project: Project, tmp_path: Path) -> Project:
    """The shipped preset with the toy's model."""
    text = (project.shipped / "curricula" / "search-quickstart.toml").read_text()
    (tmp_path / "curricula").mkdir()
    changed = text.replace('model = "smollm2-135m"', 'model = "toy"')
    (tmp_path / "curricula" / "search-quickstart.toml").write_text(changed)
    return Project(folder=tmp_path, shipped=project.shipped, runs=tmp_path / "runs")


def test_without_a_corpus_there_are_the_baselines(file: Path, toys: Project) -> None:
    ready = made(file, toys)
    assert (ready.questions, ready.unanswerable, ready.corpus) == (4, 1, None)
    assert figures(ready, toys, Reads(), file) == {"closed book": (0.25, 4), "oracle": (1.0, 1)}


def test_with_a_corpus_what_is_found_in_it_is_given(file: Path, toys: Project, corpus: str) -> None:
    ready = made(file, toys, corpus=corpus)
    rates = figures(ready, toys, Reads(), file)
    assert rates == {"found": (0.75, 4), "closed book": (0.25, 4), "oracle": (1.0, 3)}


def test_a_solver_with_tools_searches_and_reads_in_a_single_turn(
    file: Path, project: Project, tmp_path: Path, corpus: str
) -> None:
    at = staged(tmp_path, project)
    run = config(at, f"game.corpus={corpus}")
    ready = made(file, at, run=run)
    assert [sitting.ground.solver and sitting.ground.solver.tools is None for sitting in ready.sittings] == [
        False,
        True,
    ]
    rates = figures(ready, at, SearchCast(proposers={}, solvers={"expert": solver()}), file)
    assert rates == {"search": (0.5, 4), "closed book": (0.0, 4), "oracle": (1.0, 3)}


def test_few_questions_are_the_first_ones(file: Path, toys: Project) -> None:
    ready = made(file, toys, count=2)
    assert ready.questions == 2
    assert {task.payload["question"] for task in tasks(ready)} == {asked("Lindisby"), asked("Oxmouth")}


def tasks(ready: Exam) -> Sequence[Any]:
    return [task for sitting in ready.sittings for task in (sitting.ground.on.tasks if sitting.ground.on else ())]


def test_equal_questions_under_other_conditions_are_other_tasks(file: Path, toys: Project, corpus: str) -> None:
    ids = [task.id for task in tasks(made(file, toys, corpus=corpus))]
    assert len(ids) == len(set(ids)) == 11


def test_what_cannot_be_evaluated_is_refused(file: Path, toys: Project, corpus: str, toy_config: Any) -> None:
    with pytest.raises(UserError, match="need no sandbox"):
        made(file, toys, sandbox="docker")
    with pytest.raises(UserError, match="plays `echo`"):
        made(file, toys, run=toy_config())
    with pytest.raises(NotFound, match="no corpus `nowhere`"):
        made(file, toys, corpus="nowhere")


def test_a_single_turn_keeps_a_role_that_has_one(project: Project) -> None:
    short, long = project.load_role("search_solver_short"), project.load_role("search_solver")
    assert single_turn(short) is short
    assert single_turn(long).tools is None
    assert (single_turn(long).limits.turns, single_turn(long).sampling.stop) == (1, ())
