"""Several repositories in one run: each seed and task is of one of them, from the survey to what is exported."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from selfplay import parts
from selfplay.config import load
from selfplay.curriculum.history import module_of
from selfplay.errors import UserError
from selfplay.events import ignore
from selfplay.exports import licences, seam
from selfplay.exports.tasks import bugs_of, packed_of, swebench_rows
from selfplay.games import kept_back
from selfplay.games.code import CodeGame, Repositories, Settings, TreeGame
from selfplay.games.code.opening import Opening, Room
from selfplay.games.code.options import Options
from selfplay.games.code.survey import Rules
from selfplay.games.code.verify import Budget
from selfplay.ledger import Ledger
from selfplay.plan import plan
from selfplay.project import Project
from selfplay.reverify import reverify
from selfplay.sandbox.bubblewrap import BubblewrapProvider
from selfplay.tools import Call
from selfplay.types import Limits, Role, Seed, Tools
from tests import scripted
from tests.games.code.conftest import trajectory, write

OTHER = {
    "words/__init__.py": "",
    "words/text.py": """
        def shout(text):
            loud = text.upper()
            return loud + "!"


        def total(a, b):
            total = a + b
            return total


        def longest(words):
            found = ""
            for word in words:
                if len(word) > len(found):
                    found = word
            return found
    """,
    "tests/test_text.py": """
        from words import text


        def test_shout():
            assert text.shout("a") == "A!"


        def test_total():
            assert text.total(1, 2) == 3


        def test_longest():
            assert text.longest(["a", "ccc", "bb"]) == "ccc"
    """,
    "PKG-INFO": """
        Metadata-Version: 2.1
        Name: words
        Version: 2.0
        License: MIT
    """,
}


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Two packages; `add` and `total` are one program."""
    return scripted.written(tmp_path), write(tmp_path / "words-2.0", OTHER)


class Bench:
    """The game on several repositories, from synchronous tests."""

    def __init__(
        self,
        sources: Sequence[Path],
        cache: Path,
        *,
        workers: int = 2,
        rehearsed: int = 0,
        tools: bool = False,
        **settings: object,
    ) -> None:
        self.runner, self.room = asyncio.Runner(), Room(workers)
        self.settings = Settings(rules=Rules(max_failing=0.3), stdlib=20, workers=workers, **settings)
        limits, made = Limits(turns=3, tokens=10, seconds=60.0), Tools() if tools else None
        self.game = Repositories(
            [
                (TreeGame if tools else CodeGame)(
                    opening=Opening(
                        str(source), cache=cache, provider=BubblewrapProvider(), settings=self.settings, room=self.room
                    ),
                    proposer=Role(
                        name="p", game="code", side="proposer", prompt="{{ function }}", limits=limits, tools=made
                    ),
                    solver=Role(
                        name="s",
                        game="code",
                        side="solver",
                        prompt="{{ function }}{{ tests }}",
                        limits=limits,
                        tools=made,
                    ),
                    config_digest="test",
                )
                for source in sources
            ],
            rehearsed=rehearsed,
        )

    def do(self, job):
        return self.runner.run(job)

    def seeds(self) -> dict[str, Seed]:
        return {seed.payload["qualname"]: seed for seed in self.do(self.game.seeds())}

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.do(self.game.aclose())
        self.runner.close()


@pytest.mark.bubblewrap
def test_each_task_is_decided_in_its_repository(bubblewrap: None, two: tuple[Path, Path], tmp_path: Path) -> None:
    with Bench(two, tmp_path / "cache", held_out=0.0, dev_seeds=1) as bench:
        seeds, game = bench.seeds(), bench.game
        assert list(seeds) == ["add", "count", "shout", "total", "longest"]
        assert module_of(seeds["add"]) == "pkg-1.0:pkg/core.py"
        assert [s.source.partition(":")[0] for s in seeds.values()] == [str(two[0])] * 2 + [str(two[1])] * 3
        made = {
            name: bench.do(game.mint(trajectory(reply, stage="propose"), seeds[name]))
            for name, reply in {"add": "3|    total = a - b", "shout": "2|    loud = text.lower()"}.items()
        }
        assert all(minted.verdict.valid for minted in made.values()), made
        tests = {name: [test for test, _ in minted.task.payload["failing"]] for name, minted in made.items()}
        assert tests["shout"] == ["tests/test_text.py::test_shout"]
        assert all(test.startswith("tests/test_core.py::test_add") for test in tests["add"])
        task = made["shout"].task
        assert "lower" in str(game.solver_view(task)["function"])
        right, wrong = (
            bench.do(game.judge(trajectory(reply, stage="attempt"), task))
            for reply in ("2|    loud = text.upper()", "2|    loud = text")
        )
        assert (right.passed, wrong.passed) == (True, False)
        graded = game.grade(trajectory("", stage="propose"), made["shout"].verdict, [right, wrong] * 3)
        assert graded.reward is not None
        dev, tasks = bench.do(game.dev())
        assert {seed.source.partition(":")[0] for seed in dev} == {str(two[1])}, "the first has too few for one"
        assert {task.seed_id for task in tasks} <= {seed.id for seed in dev}
        assert game.handed_over(seeds["add"], step=0, index=0, terms={"strategy": "procedural"}) is None


@pytest.mark.bubblewrap
def test_they_share_the_room_of_the_machine(bubblewrap: None, two: tuple[Path, Path], tmp_path: Path) -> None:
    with Bench(two, tmp_path / "cache") as bench:
        bench.seeds()
        verifiers = [game.surveyed.verifier for game in bench.game.games]
        budget = Budget(cpu_seconds=10.0, seconds=30.0)

        async def kept_out() -> bool:
            tests = ["tests/test_core.py::test_count", "tests/test_text.py::test_shout"]
            async with bench.room.runs.alone():
                pairs = zip(verifiers, tests, strict=True)
                runs = [asyncio.ensure_future(verifier.run([test], budget=budget)) for verifier, test in pairs]
                done, _ = await asyncio.wait(runs, timeout=1.0)
            return not done and all(run.clean for run in await asyncio.gather(*runs))

        assert bench.do(kept_out())


@pytest.mark.bubblewrap
def test_what_is_held_out_has_no_copy_in_the_other(bubblewrap: None, two: tuple[Path, Path], tmp_path: Path) -> None:
    def splits(options: Options) -> dict[str, str]:
        # note: a share that holds out one function of each.
        with Bench(two, tmp_path / "cache", held_out=0.4, options=options, dev_seeds=0, package_share=1.0) as bench:
            seeds = bench.seeds()
            offered, tasks = bench.do(bench.game.held_out(9))
            assert tuple(offered) == kept_back(list(seeds.values()))
            assert all(task.split == "held_out" for task in tasks)
            assert {task.seed_id for task in tasks} <= {seed.id for seed in offered}
            return {name: seed.split for name, seed in seeds.items()}

    plain, apart = splits(Options()), splits(Options(distinct=True))
    assert {plain["add"], plain["total"]} == {"train", "held_out"}, "else this test shows nothing"
    assert apart["add"] == apart["total"] == "train"
    assert {name for name in plain if plain[name] != apart[name]} <= {"add", "total"}


@pytest.mark.bubblewrap
def test_the_warm_up_draws_from_all_of_them(bubblewrap: None, two: tuple[Path, Path], tmp_path: Path) -> None:
    asked = {"held_out": 0.0, "dev_seeds": 0, "package_share": 1.0}
    with Bench(two, tmp_path / "cache", rehearsed=40, **asked) as bench:
        bench.seeds()
        found = bench.game.examples(seed=0, first=0, count=40)
        assert found == tuple(bench.game.examples(seed=0, first=at, count=1)[0] for at in range(40))
        whose = Counter(one.source.partition("::")[0] for one in found)
        assert set(whose) == {"pkg/core.py", "words/text.py"}
        assert {one.role for one in found if one.source.startswith("words")} == {"p", "s"}
        told = [one for one in found if one.role == "s"]
        assert told, "repairers are taught"
        assert all("test_" in one.prompt for one in told), "each was rehearsed in its own repository"


@pytest.mark.bubblewrap
def test_tools_are_given_in_the_subjects_repository(bubblewrap: None, two: tuple[Path, Path], tmp_path: Path) -> None:
    with Bench(two, tmp_path / "cache", held_out=0.0, tools=True) as bench:
        seeds, game = bench.seeds(), bench.game
        for name, package in (("add", "pkg"), ("shout", "words")):
            tools = bench.do(game.toolbox(game.proposer, seeds[name]))
            seen = bench.do(tools.call(Call(name="bash", arguments={"command": "ls"}))).text.split()
            bench.do(tools.aclose())
            assert {package, "tests"} <= set(seen)
            assert game.proposer_view(seeds[name])["module"] == seeds[name].payload["path"]
            handed = game.handed_over(seeds[name], step=0, index=0, terms={"strategy": "procedural"})
            assert handed is not None


@pytest.mark.bubblewrap
def test_folders_of_one_name_with_equal_functions_are_refused(bubblewrap: None, tmp_path: Path) -> None:
    first = scripted.written(tmp_path)
    second = tmp_path / "again" / first.name
    shutil.copytree(first, second)
    with Bench([first, second], tmp_path / "cache") as bench, pytest.raises(UserError, match="known by its name"):
        bench.seeds()


@pytest.fixture
def played(
    bubblewrap: None, two: tuple[Path, Path], tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A run on both, from settings to ledger."""
    monkeypatch.setenv("SELFPLAY_CACHE", str(scripted.cache(tmp_path)))
    folder = tmp_path / "runs" / "both"
    scripted.play(folder, source=f"{two[0]} + {two[1]}", project=project)
    return folder


@pytest.mark.bubblewrap
def test_a_run_is_judged_again_and_exported(played: Path, two: tuple[Path, Path], project: Project) -> None:
    for tasks in (False, True):
        found = reverify(played, project=project, say=lambda words: None, tasks=tasks)
        assert (found.total, found.identical) == ((5, 5) if tasks else (10, 10))
    with Ledger.read(played) as reader:
        asked = seam.Asked(reader=reader, project=project)
        code, words = licences.sources(asked)
        assert (code.name, words.name) == tuple(map(str, two))
        assert (code.licence, words.licence) == (licences.UNKNOWN, "MIT")
        assert code.digest != words.digest
        rows = list(swebench_rows(asked, bugs_of(asked, what="rows"), packed_of(asked)))
    assert Counter(row["repo"] for row in rows) == {"selfplay/pkg": 2, "selfplay/words": 3}
    assert {row["source"] for row in rows} == {str(source) for source in two}
    shutil.rmtree(two[1])
    with Ledger.read(played) as reader:
        asked = seam.Asked(reader=reader, project=project)
        [_, gone] = licences.sources(asked)
        assert (gone.name, gone.licence) == (str(two[1]), licences.UNKNOWN)
        assert "does not exist" in gone.note


def test_the_plan_names_each_of_them(project: Project) -> None:
    sets = ["game.source=pypi:toolz==1.2.0 + pypi:boltons==26.2.0"]
    config = load("quickstart", project=project, sets=sets, environ={})
    rows = [row.value for row in plan(config, project=project) if row.name == "source"]
    assert rows == ["pypi:toolz==1.2.0", "pypi:boltons==26.2.0"]


def test_sandboxes_on_a_cluster_are_of_one(project: Project) -> None:
    sets = ["game.source=pypi:toolz==1.2.0 + pypi:boltons==26.2.0", "run.cluster={sandboxes = 2}"]
    config = load("quickstart", project=project, sets=sets, environ={})

    async def opened() -> None:
        async with AsyncExitStack() as stack:
            await parts.game(config, project, parts.roles(config, project), observe=ignore, stack=stack)

    with pytest.raises(UserError, match=r"of one repository, and game\.source names several"):
        asyncio.run(opened())
