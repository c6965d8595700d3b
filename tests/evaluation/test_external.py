"""Tasks that others made: read, proved in bubblewrap, and attempted by replies that are known."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from selfplay.errors import NotFound, UserError
from selfplay.evaluation import external
from selfplay.evaluation.bringing import bring, is_brought
from selfplay.evaluation.grounds import Ground
from selfplay.evaluation.measure import Ask, Bench
from selfplay.events import ignore
from selfplay.games import Game
from selfplay.project import Project
from tests import scripted
from tests.backends import needed

QUIXBUGS = {
    "python_programs/gcd.py": (
        "def gcd(a, b):\n    if b == 0:\n        return a\n    return gcd(a % b, b)\n\n\n" + '"""\nA text.\n"""\n'
    ),
    "correct_python_programs/gcd.py": "def gcd(a, b):\n    if b == 0:\n        return a\n    return gcd(b, a % b)\n",
    "json_testcases/gcd.json": "[[13, 13], 13]\n[[37, 600], 1]\n[[20, 100], 20]\n",
    "python_programs/last.py": "def last(xs):\n    return xs[0]\n",
    "correct_python_programs/last.py": "def last(xs):\n    return xs[-1]\n",
    "python_testcases/test_last.py": (
        "import pytest\n\nif pytest.use_correct:\n    from correct_python_programs.last import last\nelse:\n"
        "    from python_programs.last import last\n\n\ndef test_last():\n    assert last([1, 2]) == 2\n"
    ),
    "python_programs/alone.py": "def alone():\n    return 1\n",
}
HUMANEVAL = {
    "task_id": "Small/0",
    "prompt": 'def double(x):\n    """Twice x."""\n',
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-1) == -2\n",
    "entry_point": "double",
}


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a cache of its own."""
    needed("bubblewrap")
    monkeypatch.setenv("SELFPLAY_CACHE", str(scripted.cache(tmp_path)))
    return tmp_path


def quixbugs(folder: Path) -> Path:
    """The folder, written."""
    for path, text in QUIXBUGS.items():
        (folder / "quix" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "quix" / path).write_text(text)
    return folder / "quix"


def lines(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def judged(ground: Ground, replies: list[list[str]], project: Project) -> list[list[bool | None]]:
    """Task by task: which of the replies pass."""

    async def main() -> list[list[bool | None]]:
        async with AsyncExitStack() as stack:
            ask = Ask(attempts=1, temperature=None, seed=None)
            bench = Bench(ground=ground, ask=ask, project=project, observe=ignore, stack=stack)
            return await _passed(await bench.game(), ground, replies)

    return asyncio.run(main())


async def _passed(game: Game, ground: Ground, replies: list[list[str]]) -> list[list[bool | None]]:
    assert ground.on is not None
    found = []
    for task, mine in zip(ground.on.tasks, replies, strict=True):
        said = [
            scripted.said(reply, stage="attempt", subject=task.id, index=index, config=ground.config)
            for index, reply in enumerate(mine)
        ]
        found.append([(await game.judge(attempt, task)).passed for attempt in said])
    return found


@pytest.mark.bubblewrap
def test_a_folder_of_quixbugs(apart: Path, project: Project) -> None:
    path = quixbugs(apart)
    assert is_brought(str(path))
    found = bring(path, count=None, sandbox="bubblewrap", project=project, observe=ignore)
    assert found.left_out == {"alone": "it has no right program in correct_python_programs/"}
    [ground] = found.grounds
    assert ground.on is not None
    assert {task.payload["qualname"] for task in ground.on.tasks} == {"gcd", "last"}
    assert all(task.split == "held_out" for task in ground.on.tasks)
    right = {"gcd": "4|    return gcd(b, a % b)", "last": "2|    return xs[-1]"}
    wrong = {"gcd": "4|    return gcd(b, b)", "last": "2|    return xs[1:]"}
    names = [task.payload["qualname"] for task in ground.on.tasks]
    assert judged(ground, [[right[name], wrong[name]] for name in names], project) == [[True, False]] * 2
    again = bring(path, count=None, sandbox="bubblewrap", project=project, observe=ignore)
    assert again.grounds[0].on == ground.on, "they are proved once"


@pytest.mark.bubblewrap
def test_programs_of_humaneval_are_written_whole(apart: Path, project: Project) -> None:
    bare = {key: value for key, value in HUMANEVAL.items() if key != "canonical_solution"} | {"task_id": "Small/1"}
    path = lines(apart / "humaneval.jsonl", HUMANEVAL, bare)
    found = bring(path, count=None, sandbox="bubblewrap", project=project, observe=ignore)
    assert list(found.left_out) == ["Small/1"]
    [ground] = found.grounds
    assert ground.solver is not None
    assert ground.solver.prompt == "{{ program }}"
    replies = [
        "    return x + x\n",
        "```python\ndef double(x):\n    return x * 2\n```",
        "    return x\n",
        "    return (",
    ]
    assert judged(ground, [replies], project) == [[True, True, False, False]]


@pytest.mark.bubblewrap
def test_rows_of_swebench_that_were_exported(code_run: Path, project: Project) -> None:
    from selfplay.cli import main

    path = code_run.parent.parent / "rows.jsonl"
    assert main(["export", "code", "--format", "swebench", "--to", str(path), "--project", str(path.parent)]) == 0
    found = bring(path, count=1, sandbox="bubblewrap", project=project, observe=ignore)
    [ground] = found.grounds
    assert ground.on is not None
    [task] = ground.on.tasks
    assert task.payload["buggy"] != task.payload["source"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("[[1], 1", "json_testcases/gcd.json, line 2 is no JSON: "),
        ("[" * 10_000, "json_testcases/gcd.json, line 2 is no JSON: "),
        ("7", "json_testcases/gcd.json, line 2 is not a list of arguments and result"),
        ("[[13, 13]]", "json_testcases/gcd.json, line 2 is not a list of arguments and result"),
    ],
    ids=["torn", "deep", "number", "alone"],
)
def test_a_program_whose_cases_cannot_be_read_is_left_out(tmp_path: Path, line: str, why: str) -> None:
    path = quixbugs(tmp_path)
    (path / "json_testcases" / "gcd.json").write_text(f"[[13, 13], 13]\n{line}\n")
    [brought] = external.read(path, cache=tmp_path / "cache")
    assert [plant.name for plant in brought.plants] == ["last"]
    assert brought.left_out["gcd"].startswith(why)
    assert not (Path(brought.source) / "python_testcases" / "test_gcd.py").exists()


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"instance_id": "django__django-1", "patch": "x"}, "row 1: django__django-1 has no `source` and `bug_patch`"),
        ({**HUMANEVAL, "test": 3}, "row 1: `test` is missing, or no text"),
        ({**HUMANEVAL, "entry_point": "a b"}, "`entry_point` is 'a b', no name"),
        (
            {**HUMANEVAL, "entry_point": "other"},
            "holds no program that is to be written: its prompt and solution are no",
        ),
        ({"other": 1}, "is of no layout that is known"),
    ],
)
def test_bad_rows(tmp_path: Path, row: object, error: str) -> None:
    with pytest.raises(UserError, match=error):
        external.read(lines(tmp_path / "rows.jsonl", row), cache=tmp_path / "cache")


def test_bad_folders(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no file or folder"):
        external.read(tmp_path / "none", cache=tmp_path)
    (tmp_path / "quix" / "python_programs").mkdir(parents=True)
    with pytest.raises(UserError, match="has no correct_python_programs"):
        external.read(tmp_path / "quix", cache=tmp_path)
    (tmp_path / "quix" / "correct_python_programs").mkdir()
    with pytest.raises(UserError, match="holds no program with a bug in one function: there is no program"):
        external.read(tmp_path / "quix", cache=tmp_path)
    (tmp_path / "bad.jsonl").write_text('{"entry_point": 1}\n{')
    with pytest.raises(UserError, match=r"`prompt` is missing|line 2 is no JSON"):
        external.read(tmp_path / "bad.jsonl", cache=tmp_path)
    assert not is_brought(str(tmp_path / "none"))
