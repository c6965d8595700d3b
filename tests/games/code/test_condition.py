"""What is special about a repository is said of a small real folder each, and what is done about it is what happens."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from selfplay.errors import UserError
from selfplay.games.code import condition
from selfplay.games.code.condition import Fact
from selfplay.games.code.opened import Settings
from selfplay.games.code.source import fetch
from selfplay.games.code.survey import MOST_TESTS, Function, Rules, Survey, needs_network, survey
from selfplay.games.code.verify import Verifier
from selfplay.sandbox.bubblewrap import BubblewrapProvider
from selfplay.types import draw
from tests.games.code.conftest import write

CODE = "def twice(x):\n    y = x * 2\n    return y\n"
TEST = "from pkg.core import twice\n\n\ndef test_twice():\n    assert twice(2) == 4\n"
PLAIN = {"pkg/__init__.py": "", "pkg/core.py": CODE, "tests/test_core.py": TEST}
UNITTEST = (
    "import unittest\n\nfrom pkg.core import twice\n\n\nclass TestTwice(unittest.TestCase):\n"
    "    def test_twice(self):\n        self.assertEqual(twice(2), 4)\n"
)
SETUP = "from setuptools import Extension, setup\n\nsetup(ext_modules=[Extension('pkg._fast', ['pkg/fast.c'])])\n"
FOLDERS: Mapping[str, tuple[dict[str, str], str]] = {
    "src layout": (
        {"src/pkg/__init__.py": "", "src/pkg/core.py": CODE, "tests/test_core.py": TEST},
        "modules lie under src/",
    ),
    "namespace package": (
        {
            "org/pkg/__init__.py": "",
            "org/pkg/core.py": CODE,
            "tests/test_core.py": TEST.replace("pkg.core", "org.pkg.core"),
        },
        "org has packages in it",
    ),
    "unittest only": ({**PLAIN, "tests/test_core.py": UNITTEST}, "unittest's classes"),
    "tox or nox": ({**PLAIN, "tox.ini": "[tox]\nenvlist = py\n", "noxfile.py": "import nox\n"}, "tox.ini, noxfile.py"),
    "compiled extensions": ({**PLAIN, "pkg/fast.c": "int x;\n", "setup.py": SETUP}, "pkg/fast.c, built by setup.py"),
    "several packages": (
        {
            "one/pyproject.toml": "[project]\nname = 'one'\n",
            "one/pkg/__init__.py": "",
            "one/pkg/core.py": CODE,
            "one/tests/test_core.py": TEST,
            "two/setup.py": "from setuptools import setup\n\nsetup()\n",
            "two/other.py": CODE,
        },
        "one, two have a project of its own",
    ),
    "submodules": (
        {**PLAIN, ".gitmodules": '[submodule "data"]\n\tpath = data\n\turl = https://example.org/data\n'},
        "data; without files: data",
    ),
    "no git history": (PLAIN, "is not the top of a git repository"),
}


def facts_of(files: dict[str, str], folder: Path) -> Mapping[str, Fact]:
    repository = fetch(str(write(folder / "repo", files)), cache=folder / "cache")
    return {fact.name: fact for fact in condition.layout_of(repository)}


@pytest.mark.parametrize("name", FOLDERS)
def test_each_is_said_of_its_folder_and_of_no_other(name: str, tmp_path: Path) -> None:
    files, what = FOLDERS[name]
    found = facts_of(files, tmp_path)
    assert what in found[name].what
    assert found[name].then
    assert set(found) == {name, "no git history"}


def looked_at(folder: Path, files: Mapping[str, str], **rules: float) -> Survey:
    async def look() -> Survey:
        provider = BubblewrapProvider()
        repository = fetch(str(write(folder / "repo", files)), cache=folder / "cache")
        verifier = Verifier(repository, provider=provider, workers=2)
        try:
            return await survey(verifier, rules=Rules(**rules), cache=folder / "cache")  # type: ignore[arg-type]
        finally:
            await verifier.aclose()
            await provider.aclose()

    return asyncio.run(look())


@pytest.mark.bubblewrap
@pytest.mark.parametrize("name", ["src layout", "namespace package", "unittest only"])
def test_such_layouts_are_played_as_they_lie(name: str, bubblewrap: None, tmp_path: Path) -> None:
    found = looked_at(tmp_path, FOLDERS[name][0])
    assert [function.qualname for function in found.functions] == ["twice"]
    assert condition.suite_of_survey(found, settings=Settings()) == ()


@pytest.mark.bubblewrap
def test_tests_that_need_a_network_are_left_out_and_counted(bubblewrap: None, tmp_path: Path) -> None:
    online = (
        "import socket\nimport urllib.request\n\nimport pytest\n\n\n"
        '@pytest.mark.parametrize("n", range(4))\ndef test_name(n):\n    socket.getaddrinfo("example.org", 443)\n\n\n'
        'def test_url():\n    urllib.request.urlopen("https://example.org")\n'
    )
    found = looked_at(tmp_path, {**PLAIN, "tests/test_online.py": online})
    assert list(found.seconds) == ["tests/test_core.py::test_twice"], "five of six tests fail, and it is played"
    assert len(found.network) == 5
    [fact] = condition.suite_of_survey(found, settings=Settings())
    assert fact.name == "tests that need a network"
    assert fact.what.startswith("5 of them, e.g. tests/test_online.py::")


@pytest.mark.bubblewrap
def test_only_offline_failures_count_against_a_suite(bubblewrap: None, tmp_path: Path) -> None:
    wrong = "def test_wrong():\n    assert False\n\n\ndef test_other():\n    assert False\n"
    with pytest.raises(UserError, match="2 of 3 tests of `repo` fail on the clean tree"):
        looked_at(tmp_path, {**PLAIN, "tests/test_wrong.py": wrong})


def test_messages_of_a_machine_without_a_network() -> None:
    for said in (
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
        "OSError: [Errno 101] Network is unreachable",
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='x', port=443): Max retries exceeded",
    ):
        assert needs_network(said)
    assert not any(map(needs_network, ("assert 1 == 2", "ConnectionRefusedError: [Errno 111] Connection refused")))


def test_ten_thousand_tests() -> None:
    found = Survey(functions=(), seconds={f"t::test[{i}]": 0.001 for i in range(10_000)}, left_out={})
    [fact] = condition.suite_of_survey(found, settings=Settings())
    assert (fact.name, fact.what, fact.trouble) == ("many tests", "10000 stable tests", False)
    assert "within 600 s each time" in fact.then
    function = Function(path="t.py", qualname="f", line=1, source="", doc="", tests=("t::test",) * MOST_TESTS)
    [_, crowded] = condition.suite_of_survey(replace(found, functions=(function,)), settings=Settings())
    assert (crowded.name, crowded.trouble) == ("many tests of one function", False)
    assert crowded.what == "t.py::f and 0 more are reached by 500 tests or more"


@pytest.mark.bubblewrap
def test_of_a_suite_that_does_not_end_a_part_is_looked_at(bubblewrap: None, tmp_path: Path) -> None:
    names = sorted((f"tests/test_{i}.py" for i in range(4)), key=lambda path: draw("survey", path))
    # note: what the kernel does to a process that used up its time, so that nobody has to wait for that.
    late = "import os\nimport signal\n\n\ndef test_late():\n    os.kill(os.getpid(), signal.SIGXCPU)\n"
    slow = dict.fromkeys(names[2:], late)
    files = {"pkg/__init__.py": "", "pkg/core.py": CODE, **dict.fromkeys(names[:2], TEST), **slow}
    found = looked_at(tmp_path, files)
    assert found.sampled == "2 of 4 test files, since all of them do not end within 600 s"
    assert set(found.seconds) == {f"{name}::test_twice" for name in names[:2]}
    assert set(names[2:]) <= {name for name, said in found.left_out.items() if said.startswith("it was not run")}
    assert "sampled suite" in {fact.name for fact in condition.suite_of_survey(found, settings=Settings())}


def test_a_suite_of_more_than_ninety_seconds_is_named() -> None:
    found = Survey(functions=(), seconds={"t::a": 60.0, "t::b": 31.0}, left_out={})
    [fact] = condition.suite_of_survey(found, settings=Settings())
    assert (fact.name, fact.trouble) == ("slow suite", True)
    assert "need 91 s of processor time" in fact.what
