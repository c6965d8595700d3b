"""Repositories of unlikely shapes, from what is said of them to what is played: remote ones, monorepos, many tests."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from selfplay.errors import UserError
from selfplay.games.code import condition
from selfplay.games.code.opened import Settings
from selfplay.games.code.source import fetch
from selfplay.games.code.survey import MOST_TESTS
from selfplay.tools import Call
from tests.games.code.test_agentic import SCALE
from tests.games.code.test_condition import CODE, FOLDERS, PLAIN, TEST, looked_at
from tests.games.code.test_history import OLD, committed, run
from tests.games.code.test_tree_game import Bench

MANY, CALLED = 10_000, 80


@pytest.mark.bubblewrap
def test_a_repository_by_its_url_with_a_past_and_a_submodule(bubblewrap: None, tmp_path: Path) -> None:
    data = committed(tmp_path / "data", SCALE)
    there = committed(tmp_path / "there", "    return x\n", OLD, SCALE)
    run(there, "-c", "protocol.file.allow=always", "submodule", "add", "-q", data.as_uri(), "data")
    run(there, "commit", "-q", "-m", "with data")
    url = there.as_uri()
    facts = {fact.name: fact for fact in condition.layout_of(fetch(url, cache=tmp_path / "cache"))}
    assert set(facts) == {"submodules"}, "it has a history"
    assert facts["submodules"].what == "data; without files: data"
    assert facts["submodules"].then.startswith("they are not fetched; tests that need what is missing fail")
    bench = Bench(tmp_path, source=url)
    try:
        game, seed = bench.game, bench.seeds["scale"]
        assert game.proposer_view(seed, terms={"strategy": "history"})["strategy"] == "history"
        tools = bench.do(game.toolbox(game.proposer, seed))
        show = Call(name="bash", arguments={"command": "git log --format=%s; git status --short; ls -d data; git diff"})
        lines = bench.do(tools.call(show)).text.splitlines()
        assert lines[:5] == ["The tree as it was fetched", "with data", "version 2", "version 1", "version 0"]
        assert "cannot access 'data'" in lines[5], "nothing else differs, and nothing of the submodule is there"
        back = "git show HEAD~2:pkg/a.py > pkg/a.py && grep -c 'one [*] by' pkg/a.py"
        assert bench.do(tools.call(Call(name="bash", arguments={"command": back}))).text.split()[0] != "0"
        bench.do(tools.aclose())
    finally:
        bench.close()


@pytest.mark.bubblewrap
def test_one_package_of_several_is_played_by_its_folder(bubblewrap: None, tmp_path: Path) -> None:
    files, _ = FOLDERS["several packages"]
    with pytest.raises(UserError, match=r"no test of `repo` passes on the clean tree .*No module named 'pkg'"):
        looked_at(tmp_path, files)
    one = {path.removeprefix("one/"): text for path, text in files.items() if path.startswith("one/")}
    found = looked_at(tmp_path / "one", one)
    assert [function.qualname for function in found.functions] == ["twice"]


@pytest.mark.slow
@pytest.mark.bubblewrap
def test_ten_thousand_tests_are_surveyed(bubblewrap: None, tmp_path: Path) -> None:
    began = time.monotonic()
    found = looked_at(tmp_path, many())
    print(f"{len(found.seconds)} tests surveyed in {time.monotonic() - began:.0f} s")
    assert len(found.seconds) == MANY + 1
    counts = {function.qualname: len(function.tests) for function in found.functions}
    assert counts == {"thrice": 1, **{f"times{n}": MOST_TESTS for n in range(CALLED)}}
    assert len({function.tests for function in found.functions}) == 2, "all of them are asked by the same tests"
    facts = {fact.name: fact for fact in condition.suite_of_survey(found, settings=Settings())}
    assert facts["many tests"].what == f"{MANY + 1} stable tests"
    assert facts["many tests of one function"].what.endswith(f" and {CALLED - 1} more are reached by 500 tests or more")
    assert "sampled suite" not in facts


def many() -> Mapping[str, str]:
    """A package with so many tests, each of which calls so many functions, and one test of another function."""
    functions = [CODE.replace("2", str(n)).replace("twice", f"times{n}") for n in range(CALLED)]
    return {
        **PLAIN,
        "pkg/core.py": "\n\n".join([*functions, CODE.replace("twice", "thrice").replace("2", "3")]),
        "tests/test_core.py": TEST.replace("twice", "thrice").replace("== 4", "== 6"),
        "tests/test_many.py": (
            "import pytest\n\nfrom pkg import core\n\n"
            f"ALL = [getattr(core, f'times{{n}}') for n in range({CALLED})]\n\n\n"
            f'@pytest.mark.parametrize("n", range({MANY}))\ndef test_many(n):\n'
            "    assert all(times(n) == n * at for at, times in enumerate(ALL))\n"
        ),
    }
