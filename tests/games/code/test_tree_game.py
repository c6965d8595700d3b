"""The game with tools: what is handed over becomes tasks, verdicts, children; tools are given while there is room."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest

from selfplay.games import Game, GivesTools, ProposesAlone
from selfplay.games.code import Settings, TreeGame, given, patches, tree_game
from selfplay.games.code.artifact import contents, diff_of
from selfplay.games.code.bugs import Reason
from selfplay.games.code.opening import Opening
from selfplay.games.code.rejudge import proved
from selfplay.games.code.survey import Rules
from selfplay.sandbox.bubblewrap import BubblewrapProvider
from selfplay.tools import Call
from selfplay.types import Limits, Role, Seed, Stop, Task, Tools, Trajectory
from tests.games.code.conftest import trajectory, write
from tests.games.code.test_agentic import CUT, FILES, SCALE, WEAK, Edit, changed

pytestmark = pytest.mark.bubblewrap
T = TypeVar("T")
SPLIT = CUT.replace("    return out\n", "    for one in x:\n        out.append(one)\n    return out\n")
"""A repair that is half of one: without the factor."""


class Bench:
    """The game on the small package of `test_agentic`, with two toolboxes at once."""

    def __init__(
        self, folder: Path, *, held_out: float = 0.0, context: int = 32_768, source: str | None = None
    ) -> None:
        self._runner = asyncio.Runner()
        limits = Limits(turns=8, tokens=100, context=context)
        source = source or str(write(folder / "pkg-1", FILES))
        settings = Settings(rules=Rules(), held_out=held_out, seconds=60.0)
        self.game = TreeGame(
            opening=Opening(source, cache=folder / "cache", provider=BubblewrapProvider(), settings=settings),
            proposer=Role(name="breaks", game="code", side="proposer", prompt="", limits=limits, tools=Tools()),
            solver=Role(name="mends", game="code", side="solver", prompt="", limits=limits, tools=Tools()),
            config_digest="test",
        )
        self.seeds = {seed.payload["qualname"]: seed for seed in self.do(self.game.seeds())}

    def do(self, job: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(job)

    def clean(self, *paths: str) -> Mapping[str, bytes | None]:
        return contents(self.do(self.game.opened()).verifier.repository, paths)

    def artifact(self, *bug: Edit, weak: Edit = WEAK) -> Trajectory:
        """A proposal that handed this bug over."""
        files = {
            "test_files.txt": f"{weak[0]}\n",
            "bug_inject.diff": changed(self.clean(*(path for path, _, _ in bug)), *bug),
            "test_weaken.diff": changed(self.clean(weak[0]), weak),
        }
        return product({"files": files}, stage="propose")

    def task(self, seed: Seed) -> Task:
        minted = self.do(self.game.mint(self.artifact(("pkg/a.py", SCALE, CUT)), seed))
        assert minted.task is not None, minted.verdict
        return minted.task

    def close(self) -> None:
        self.do(self.game.aclose())
        self._runner.close()


def product(made: Mapping[str, Any], *, stage: Literal["propose", "attempt"], stop: Stop = Stop.DONE) -> Trajectory:
    return dataclasses.replace(trajectory("", stage=stage, stop=stop), product=made)


def repair(old: str, new: str) -> Trajectory:
    """An attempt that left `new` in pkg/a.py, where the broken tree has `old`."""
    text = FILES["pkg/a.py"].replace(SCALE, CUT)
    assert old in text
    patch = diff_of({"pkg/a.py": text.encode()}, {"pkg/a.py": text.replace(old, new, 1).encode()})
    return product({"patch": patch}, stage="attempt")


@pytest.fixture(scope="module")
def bench(bubblewrap: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("tree"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def task(bench: Bench) -> Task:
    return bench.task(bench.seeds["scale"])


def test_it_is_a_game_that_gives_tools(bench: Bench) -> None:
    game: Game = bench.game
    assert isinstance(game, GivesTools)
    assert game.examples(seed=0, first=0, count=3) == ()
    assert bench.do(game.dev()) == ((), ())


def test_what_players_are_told(bench: Bench, task: Task) -> None:
    told = bench.game.proposer_view(bench.seeds["last"])
    assert (told["package"], told["module"], told["strategy"]) == ("pkg-1", "pkg/b.py", "removal")
    assert (told["command"], told["kept"]) == ("python -m pytest -q", "")
    assert bench.game.proposer_view(bench.seeds["last"], terms={"strategy": "direct"})["strategy"] == "direct"
    told = bench.game.solver_view(task)
    assert "+    assert scale([1, 2]) == [2, 4]" in str(told["specification"])
    assert (told["hint"], str(told["tests"])[:10]) == ("", "test_scale")
    assert bench.game.solver_view(task, terms={"hint": True})["hint"] == "look at pkg/a.py::scale"


def test_a_task_its_repair_and_its_worth(bench: Bench, task: Task) -> None:
    assert (task.split, task.payload["touched"], task.payload["qualname"]) == ("train", ["pkg/a.py::scale"], "scale")
    whole = bench.do(bench.game.judge(repair(CUT, SCALE), task))
    assert (whole.passed, whole.reason, whole.reward) == (True, Reason.PASSED, 1.0)
    half = bench.do(bench.game.judge(repair(CUT, SPLIT), task))
    assert (half.passed, half.reason, half.reward) == (False, Reason.TESTS_FAIL, -1.0)
    minted = bench.do(bench.game.mint(bench.artifact(("pkg/a.py", SCALE, CUT)), bench.seeds["scale"]))
    assert minted.verdict.evidence["diff"] == task.payload["artifact"]["bug"]
    graded = bench.game.grade(trajectory("", stage="propose"), minted.verdict, [whole, *[half] * 5])
    assert (graded.reason, graded.parts["solve_rate"]) == ("graded", pytest.approx(1 / 6))
    assert bench.do(proved(bench.game, task)).holds


def test_a_mutation_is_a_proposal_that_nobody_is_paid_for(bench: Bench) -> None:
    game, seed = bench.game, bench.seeds["shift"]
    assert isinstance(game, ProposesAlone)
    assert game.handed_over(seed, step=0, index=0, terms={"strategy": "direct"}) is None
    made = [game.handed_over(seed, step=0, index=index, terms={"strategy": given.STRATEGY}) for index in range(8)]
    plays = [product(one, stage="propose") for one in made if one is not None]
    assert len(plays) == len(made)
    found = [bench.do(game.mint(play, seed)) for play in plays]
    good = [at for at, minted in enumerate(found) if minted.task is not None]
    assert good, [minted.verdict.why for minted in found]
    task = found[good[0]].task
    assert task is not None
    assert (task.split, task.step, task.parent_id, task.payload["qualname"]) == ("train", 0, "t", "shift")
    assert task.payload["specification"]
    assert bench.do(proved(game, task)).holds
    whole = bench.do(game.judge(repair_of(task, bench), task))
    assert whole.passed
    graded = game.grade(plays[good[0]], found[good[0]].verdict, [whole] * 8)
    assert (graded.reward, graded.reason, graded.why) == (None, given.UNPAID, "8 of 8 attempts repaired it")
    bad = next((at for at, minted in enumerate(found) if minted.task is None), None)
    if bad is not None:
        assert game.grade(plays[bad], found[bad].verdict, []).reward is None


def repair_of(task: Task, bench: Bench) -> Trajectory:
    """An attempt that takes the bug back."""
    bug = task.payload["artifact"]["bug"]
    path = task.payload["path"]
    clean = bench.clean(path)
    repository = bench.do(bench.game.opened()).verifier.repository
    found = patches.parse(bug.encode())
    assert not isinstance(found, patches.Refusal)
    broken = patches.apply(patches.filtered(found), tree=repository.archive)
    assert not isinstance(broken, patches.Refusal)
    return product({"patch": diff_of(broken.files, clean)}, stage="attempt")


def test_nothing_was_handed_over(bench: Bench, task: Task) -> None:
    named = {Stop.DONE: "no_submit", Stop.TURNS: "limit_turns", Stop.MALFORMED: "malformed_calls"}
    for stop, reason in named.items():
        minted = bench.do(bench.game.mint(product({}, stage="propose", stop=stop), bench.seeds["scale"]))
        assert (minted.task, minted.verdict.reason) == (None, reason)
        assert str(stop) in minted.verdict.why
    judged = bench.do(bench.game.judge(product({}, stage="attempt", stop=Stop.SECONDS), task))
    assert (judged.valid, judged.passed, judged.reason) == (False, False, "limit_seconds")


def test_repairs_that_are_none(bench: Bench, task: Task) -> None:
    for patch, reason in (
        ("", "patch_empty"),
        ("words", "patch_empty"),
        ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", ""),
    ):
        judged = bench.do(bench.game.judge(product({"patch": patch}, stage="attempt"), task))
        assert (judged.valid, judged.passed) == (False, False)
        assert judged.reason == (reason or "apply_failed")


def test_a_child_is_what_a_failed_repair_left(bench: Bench, task: Task) -> None:
    child = bench.do(bench.game.mutate(task, repair(CUT, SPLIT), step=4))
    assert child.task is not None, child.verdict
    assert (child.task.step, child.task.parent_id, child.task.payload["artifact"]["order"]) == (4, "t", 2)
    assert "+        out.append(one)" in child.task.payload["artifact"]["bug"]
    again = bench.do(bench.game.mutate(child.task, repair(CUT, SPLIT), step=5))
    assert again.task is None
    same = bench.do(bench.game.mutate(task, repair("[one + by for one in x]", "[by + one for one in x]"), step=4))
    assert (same.task, same.verdict.reason) == (None, Reason.SAME_AS_PARENT)
    whole = bench.do(bench.game.mutate(task, repair(CUT, SCALE), step=4))
    assert (whole.task, whole.verdict.reason) == (None, "patch_empty")


def test_held_out_functions_stay_and_make_tasks(bubblewrap: None, tmp_path: Path) -> None:
    bench = Bench(tmp_path, held_out=0.5)
    try:
        kept = {name for name, seed in bench.seeds.items() if seed.split == "held_out"}
        seeds, tasks = bench.do(bench.game.held_out(4))
        assert {seed.payload["qualname"] for seed in seeds} <= kept
        assert tasks
        assert all(task.split == "held_out" and task.payload["qualname"] in kept for task in tasks)
        train = next(seed for seed in bench.seeds.values() if seed.split == "train")
        told = str(bench.game.proposer_view(train)["kept"])
        assert {line.partition("::")[2] for line in told.splitlines()} == kept
        refused = bench.do(bench.game.mint(product({"files": _files(tasks[0])}, stage="propose"), train))
        assert (refused.task, refused.verdict.reason) == (None, tree_game.HELD_OUT)
    finally:
        bench.close()


def _files(task: Task) -> Mapping[str, str]:
    told = task.payload["artifact"]
    listed = "".join(f"{path}\n" for path in told["test_files"])
    return {"test_files.txt": listed, "bug_inject.diff": told["bug"], "test_weaken.diff": told["weakening"]}


def test_a_weakening_that_a_solver_cannot_be_shown_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = dataclasses.replace(bench.game.solver.limits, context=100)
    monkeypatch.setattr(bench.game, "solver", dataclasses.replace(bench.game.solver, limits=limits))
    minted = bench.do(bench.game.mint(bench.artifact(("pkg/a.py", SCALE, CUT)), bench.seeds["scale"]))
    assert (minted.task, minted.verdict.reason) == (None, tree_game.TOO_LONG)


def test_a_hidden_part_of_the_tests_decides_and_is_not_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.game, "settings", dataclasses.replace(bench.game.settings, hidden_share=0.5))
    clean = bench.clean("pkg/a.py", "tests/test_a.py")
    shift = "    return [one + by for one in x]\n"
    both = [("pkg/a.py", SCALE, CUT), ("pkg/a.py", shift, "    return x\n")]
    weak = [WEAK, ("tests/test_a.py", "assert shift([1]) == [2]", "shift([1])")]
    files = {
        "test_files.txt": "tests/test_a.py\n",
        "bug_inject.diff": changed({"pkg/a.py": clean["pkg/a.py"]}, *both),
        "test_weaken.diff": changed({"tests/test_a.py": clean["tests/test_a.py"]}, *weak),
    }
    minted = bench.do(bench.game.mint(product({"files": files}, stage="propose"), bench.seeds["shift"]))
    assert minted.task is not None, minted.verdict
    payload = minted.task.payload
    assert len(payload["failing"]) == 2
    [secret] = payload["hidden"]
    name = secret.rpartition("_")[2]
    told = bench.game.solver_view(minted.task)
    assert f"assert {name}(" not in str(told["specification"])
    assert "assert " in str(told["specification"])
    assert f"test_{name}" not in str(told["tests"])
    assert "test_" in str(told["tests"])
    assert set(payload["tests"]) == {"tests/test_a.py::test_scale", "tests/test_a.py::test_shift"}


def test_tools_are_given_while_there_is_room(bench: Bench, task: Task) -> None:
    async def played() -> None:
        game, seed = bench.game, bench.seeds["scale"]
        first, second = await asyncio.gather(game.toolbox(game.proposer, seed), game.toolbox(game.solver, task))
        waits = asyncio.create_task(game.toolbox(game.solver, task))
        await asyncio.sleep(0.2)
        assert not waits.done()
        show = Call(name="bash", arguments={"command": "git log --oneline | wc -l; grep -c append pkg/a.py"})
        assert (await first.call(show)).text.split()[:2] == ["1", "1"]
        assert (await second.call(show)).text.split()[:2] == ["1", "0"]
        for _ in range(3):
            await first.aclose()
        third = await waits
        late = asyncio.create_task(game.toolbox(game.solver, task))
        await asyncio.sleep(0.2)
        assert not late.done(), "a toolbox that is closed again gives no second place"
        late.cancel()
        await asyncio.gather(second.aclose(), third.aclose(), late, return_exceptions=True)

    bench.do(played())
