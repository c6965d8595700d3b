"""A repository's past: a proposer has it where there is one, a solver never; strategies that need it are refused."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from selfplay import parts
from selfplay.config import load
from selfplay.curriculum import ladder
from selfplay.errors import UserError
from selfplay.games import CODE_STRATEGIES, abilities_of
from selfplay.games.code import history
from selfplay.games.code.source import fetch
from selfplay.plan import plan
from selfplay.project import Project
from selfplay.rollout import render
from selfplay.tools import Call, Toolbox
from tests.games.code.conftest import write
from tests.games.code.test_agentic import CUT, FILES, SCALE
from tests.games.code.test_tree_game import Bench

git = pytest.mark.bubblewrap
OLD = "    return [one * by for one in x]\n"


def committed(folder: Path, *versions: str) -> Path:
    """The small package with a commit for each body of `scale`, the last one as it is."""
    write(folder, FILES)
    run(folder, "init", "-q", "-b", "main")
    for number, body in enumerate(versions):
        (folder / "pkg" / "a.py").write_text(FILES["pkg/a.py"].replace(SCALE, body))
        run(folder, "add", "-A")
        run(folder, "commit", "-q", "-m", f"version {number}")
    return folder


def run(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def bench(bubblewrap: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("past")
    committed(folder / "pkg-1", "    return x\n", OLD, SCALE)
    made = Bench(folder)
    yield made
    made.close()


def shell(bench: Bench, tools: Toolbox, command: str) -> str:
    return bench.do(tools.call(Call(name="bash", arguments={"command": command}))).text


@git
def test_a_proposer_has_the_past_and_a_solver_has_none(bench: Bench) -> None:
    game, seed = bench.game, bench.seeds["scale"]
    tools = bench.do(game.toolbox(game.proposer, seed))
    said = shell(bench, tools, "git log --format=%s; git status --short; git log -L :scale:pkg/a.py --format=%s | cat")
    assert said.splitlines()[:4] == ["The tree as it was fetched", "version 2", "version 1", "version 0"]
    assert f"+{OLD.rstrip()}" in said
    # note: restore, in the words of the strategy: the newest tree with the code of an older commit.
    shell(
        bench, tools, "git checkout -q HEAD~3 -- pkg/a.py; git checkout -q HEAD -- tests; grep -n 'return x' pkg/a.py"
    )
    assert "Stage WEAKEN" in bench.do(tools.call(Call(name="submit", arguments={}))).text
    assert shell(bench, tools, "git log --format=%s").splitlines()[0] != "version 0"
    assert shell(bench, tools, "git rev-list --count --all").split()[0] == "1"
    bench.do(tools.aclose())


@git
def test_a_solvers_repository_is_one_commit_without_a_trace(bench: Bench) -> None:
    game, task = bench.game, bench.task(bench.seeds["scale"])
    tools = bench.do(game.toolbox(game.solver, task))
    assert shell(bench, tools, "git log --all --format=%s | wc -l").split()[0] == "1"
    assert shell(bench, tools, "git rev-list --all --count; git reflog | wc -l; git stash list | wc -l").split()[
        :3
    ] == [
        "1",
        "0",
        "0",
    ]
    said = shell(bench, tools, "git cat-file --batch-all-objects --batch | grep -a -c -e 'out.append' -e 'one \\* by'")
    assert said.split()[0] == "0"
    assert CUT in shell(bench, tools, "cat pkg/a.py")
    bench.do(tools.aclose())


@git
def test_strategies_say_what_they_ask(bench: Bench, project: Project) -> None:
    role = project.load_role("tree_injector")
    prompts = {}
    for name in CODE_STRATEGIES:
        view = bench.game.proposer_view(bench.seeds["scale"], terms={"strategy": name})
        prompts[name] = render(role, view)
        assert "All 30 tests that count passed there twice." in prompts[name]
        assert "tests/test_a.py (2 tests)" in prompts[name]
    assert len(set(prompts.values())) == 4, "`removal+history` is one of the two"
    assert prompts["removal+history"] in (prompts["removal"], prompts["history"])
    drawn = {
        bench.game.proposer_view(s, terms={"strategy": "removal+history"})["strategy"] for s in bench.seeds.values()
    }
    assert drawn == {"removal", "history"}
    whole = render(project.load_role("tree_injector_whole"), bench.game.proposer_view(bench.seeds["scale"]))
    assert "Hand over a folder with these files" in whole


@git
def test_without_a_past_removal_stands_in_and_history_is_refused(bubblewrap: None, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    try:
        seed = bench.seeds["scale"]
        assert bench.game.proposer_view(seed, terms={"strategy": "removal+history"})["strategy"] == "removal"
        with pytest.raises(UserError, match=r"strategy `history` needs a git history: .*pkg-1 is not the top"):
            bench.game.proposer_view(seed, terms={"strategy": "history"})
    finally:
        bench.close()


def test_pasts_that_are_none(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    empty = write(tmp_path / "empty", FILES)
    run(empty, "init", "-q")
    one = committed(tmp_path / "one", SCALE)
    two = committed(tmp_path / "two", OLD, SCALE)
    (two / "pkg" / "a.py").write_text(FILES["pkg/a.py"] + "\n\nY = 1\n")
    for folder, why in ((empty, "has no commit that git can read"), (one, "is one commit")):
        assert why in history.past_of(fetch(str(folder), cache=cache), cache=cache).why
    found = history.past_of(fetch(str(two), cache=cache), cache=cache)
    assert (found.num_commits, found.why) == (2, "")
    assert found.archive is not None
    assert history.past_of(fetch(str(two), cache=cache), cache=cache) == found
    url = history.past_of(fetch(two.as_uri(), cache=cache), cache=cache)
    assert (url.num_commits, url.why) == (2, "")
    assert history.why_none("pypi:toolz==1.2.0").endswith("holds no git history")


def test_it_is_refused_before_anything_is_played(tmp_path: Path, project: Project) -> None:
    asks = "curriculum.options={strategies='history'}"
    with pytest.raises(UserError, match=r"pypi:toolz==1\.2\.0 is a source distribution") as error:
        plan(load("code-agent", project=project, sets=[asks]), project)
    assert "removal+history" in error.value.hint
    folder = committed(tmp_path / "two", OLD, SCALE)
    assert plan(load("code-agent", project=project, sets=[asks, f"game.source='{folder}'"]), project)
    assert plan(load("code-agent", project=project), project)


def test_a_ladder_climbs_the_strategies_of_the_game_with_tools(project: Project) -> None:
    sets = ["curriculum.choose=ladder", "curriculum.options={strategies='direct,removal,feature'}"]
    config = load("code-agent", project=project, sets=sets)
    chosen = parts.chooser(config, parts.roles(config, project))
    assert chosen.func is ladder  # type: ignore[attr-defined]
    assert set(CODE_STRATEGIES) == set(abilities_of("code", tools=True).strategies)
    wrong = load("code-agent", project=project, sets=[sets[0], "curriculum.options={strategies='mirror'}"])
    with pytest.raises(UserError, match="strategy `mirror`"):
        parts.chooser(wrong, parts.roles(wrong, project))
