"""Artifacts of several files: examined, handed out, repaired, refused; and one on a real package, made by tools."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from selfplay.games.code import agentic
from selfplay.games.code.agentic import TreeBug, examine_artifact, judge_patch, task_payload
from selfplay.games.code.artifact import contents, diff_of
from selfplay.games.code.bugs import Problem, Reason
from selfplay.games.code.opened import Opened
from selfplay.games.code.verdict import Decision
from selfplay.sandbox import SandboxSpec
from selfplay.sandbox.bubblewrap import BubblewrapProvider
from selfplay.tools import Allowance, Answer, Call
from selfplay.tools.workbench import Workbench
from tests.games.code.conftest import Table, write

pytestmark = pytest.mark.bubblewrap

SCALE = "    out = []\n    for one in x:\n        out.append(one * by)\n    return out\n"
CUT = "    out = []\n    return out\n"
COPIED = (
    '"""A copy of this file is kept beside it, which gives every bug in it away."""\n\n\n'
    "def keep(x):\n    return x + 0\n"
)
FILES = {
    "pkg/__init__.py": "",
    "pkg/a.py": f"def scale(x, by=2):\n{SCALE}\n\ndef shift(x, by=1):\n    return [one + by for one in x]\n",
    "pkg/b.py": (
        "from pkg.a import scale, shift\n\n\ndef both(x):\n    y = scale(x)\n    return shift(y)\n\n\n"
        "def last(x):\n    return x[-1]\n"
    ),
    "pkg/c.py": COPIED,
    "pkg/vendored.py": COPIED,
    "notes.txt": "words\n",
    "tests/test_a.py": (
        "from pkg.a import scale, shift\n\n\ndef test_scale():\n    assert scale([1, 2]) == [2, 4]\n\n\n"
        "def test_shift():\n    assert shift([1]) == [2]\n"
    ),
    "tests/test_b.py": (
        "from pkg.b import both, last\n\n\ndef test_both():\n    assert both([1]) == [3]\n\n\n"
        "def test_last():\n    assert last([1, 2]) == 2\n"
    ),
    "tests/test_c.py": "from pkg.c import keep\n\n\ndef test_keep():\n    assert keep(1) == 1\n",
    "tests/test_many.py": (
        "import pytest\n\nfrom pkg.a import scale\n\n\n"
        '@pytest.mark.parametrize("n", range(25))\ndef test_many(n):\n    assert scale([n]) == [2 * n]\n'
    ),
}
WEAK = ("tests/test_a.py", "assert scale([1, 2]) == [2, 4]", "scale([1, 2])")
Edit = tuple[str, str | None, str | None]
"""Path, old text (None: the file is new), new text (None: the file goes)."""
Make = Callable[..., dict[str, str]]


@pytest.fixture(scope="module")
def small(bubblewrap: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """The package, surveyed."""
    folder = write(tmp_path_factory.mktemp("agentic") / "pkg-1", FILES)
    table = Table(str(folder), tmp_path_factory.mktemp("cache"), held_out=0.0, dev_seeds=0)
    yield table.open()
    table.close()


@pytest.fixture(scope="module")
def opened(small: Table) -> Opened:
    return small.do(small.game.opened())


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trees")


@pytest.fixture(scope="module")
def files_of(opened: Opened) -> Make:
    """The files of an artifact with these edits of code, and one of tests."""

    def made(*bug: Edit, weak: Edit = WEAK, listed: str = "tests/test_a.py\n", **others: str) -> dict[str, str]:
        return {
            "test_files.txt": listed,
            "bug_inject.diff": diff(opened, *bug),
            "test_weaken.diff": diff(opened, weak),
            **others,
        }

    return made


@pytest.fixture(scope="module")
def task(small: Table, opened: Opened, files_of: Make, cache: Path) -> tuple[TreeBug, Mapping[str, Any]]:
    """A removal, and its task."""
    bug = small.do(examine_artifact(files_of(("pkg/a.py", SCALE, CUT)), opened=opened))
    assert isinstance(bug, TreeBug), bug
    payload = small.do(task_payload(bug, opened=opened, key="task", cache=cache))
    assert not isinstance(payload, Problem), payload
    return bug, payload


def diff(opened: Opened, *edits: Edit) -> str:
    """The diff of the clean tree that these edits make."""
    clean = contents(opened.verifier.repository, [path for path, _, _ in edits])
    return changed(clean, *edits)


def changed(before: Mapping[str, bytes | None], *edits: Edit) -> str:
    new = dict(before)
    for path, old, text in edits:
        held = new.get(path)
        if old is not None and text is not None:
            assert held is not None
            assert old.encode() in held
            new[path] = held.replace(old.encode(), text.encode(), 1)
        else:
            new[path] = None if text is None else text.encode()
    return diff_of(before, new)


def repair(bug: TreeBug, opened: Opened, *edits: Edit) -> str:
    """The diff of the tree that a solver was handed that these edits make."""
    paths = [path for path, _, _ in edits]
    start = {**contents(opened.verifier.repository, paths), **bug.code, **bug.weak}
    return changed({path: start[path] for path in paths}, *edits)


def test_a_removal_is_proved(task: tuple[TreeBug, Mapping[str, Any]]) -> None:
    bug, payload = task
    assert list(bug.failing) == ["tests/test_a.py::test_scale"]
    assert bug.tests == ("tests/test_a.py::test_scale", "tests/test_a.py::test_shift")
    assert bug.touched == ("pkg/a.py::scale",)
    assert "+    assert scale([1, 2]) == [2, 4]\n" in bug.specification
    assert "-    scale([1, 2])\n" in bug.specification
    assert "one * by" not in bug.specification
    assert json.loads(json.dumps(payload)) == payload
    assert (payload["path"], payload["qualname"]) == ("pkg/a.py", "scale")
    assert payload["canaries"]["modules"]


def test_both_sets_of_names_are_one_artifact(
    small: Table, opened: Opened, files_of: Make, task: tuple[TreeBug, Mapping[str, Any]]
) -> None:
    files = files_of(
        ("pkg/a.py", SCALE, CUT), **{"test_script.sh": "exit 0\n", "parse_test_output.py": "print('{}')\n"}
    )
    files["bug_patch.diff"] = files.pop("bug_inject.diff")
    files["test_patch.diff"] = files.pop("test_weaken.diff")
    bug = small.do(examine_artifact({name: text.encode() for name, text in files.items()}, opened=opened))
    assert isinstance(bug, TreeBug), bug
    assert bug.key == task[0].key
    assert bug.artifact.unused == ("test_script.sh", "parse_test_output.py")


def test_two_files_that_both_matter(small: Table, opened: Opened, files_of: Make, cache: Path) -> None:
    last = ("pkg/b.py", "x[-1]", "x[0]")
    files = files_of(("pkg/a.py", SCALE, CUT), last, listed="# the oracle\n./tests/test_a.py\n\ntests/test_b.py\n")
    bug = small.do(examine_artifact(files, opened=opened))
    assert isinstance(bug, TreeBug), bug
    assert bug.touched == ("pkg/a.py::scale", "pkg/b.py::last")
    assert set(bug.failing) == {
        "tests/test_a.py::test_scale",
        "tests/test_b.py::test_both",
        "tests/test_b.py::test_last",
    }
    payload = small.do(task_payload(bug, opened=opened, key="two", cache=cache))
    assert not isinstance(payload, Problem), payload
    assert "path" not in payload
    mended, half = ("pkg/a.py", CUT, SCALE), ("pkg/b.py", "x[0]", "x[-1]")
    whole = small.do(judge_patch(repair(bug, opened, mended, half), payload, opened=opened))
    assert isinstance(whole, Decision), whole
    assert (whole.passed, whole.compared) == (True, None)
    part = small.do(judge_patch(repair(bug, opened, mended), payload, opened=opened))
    assert isinstance(part, Decision), part
    assert (part.kind, list(part.failed)) == ("failed", ["tests/test_b.py::test_last"])


@pytest.mark.parametrize(
    ("bug", "more", "reason"),
    [
        ((("pkg/a.py", "    out = []\n", "    out = list()\n"),), {}, Reason.TESTS_STILL_PASS),
        ((("notes.txt", "words", "other words"),), {}, Reason.TESTS_STILL_PASS),
        ((("pkg/new.py", None, "x = 1\n"),), {}, Reason.TESTS_STILL_PASS),
        ((("pkg/a.py", SCALE, "    return (\n"),), {}, Reason.COLLECTION_ERROR),
        ((("pkg/a.py", SCALE, CUT), ("tests/test_b.py", "== [3]", "== [4]")), {}, agentic.FORBIDDEN),
        ((("pkg/a.py", SCALE, CUT), ("conftest.py", None, "x = 1\n")), {}, agentic.FORBIDDEN),
        ((("pkg/a.py", SCALE, CUT), ("pyproject.toml", None, "x = 1\n")), {}, agentic.FORBIDDEN),
        ((("json.py", None, "x = 1\n"),), {}, agentic.FORBIDDEN),
        ((("pkg/a.py", SCALE, CUT),), {"weak": ("tests/test_b.py", "== [3]", "== [4]")}, Reason.WEAKENS_OTHERS),
        ((("pkg/a.py", SCALE, CUT),), {"weak": ("pkg/b.py", "shift(y)", "y")}, Reason.WEAKENS_OTHERS),
        ((("pkg/a.py", SCALE, CUT),), {"weak": ("tests/test_a.py", "shift([1]) ==", "[2] ==")}, Reason.HIDES_NOTHING),
        ((("pkg/a.py", SCALE, CUT),), {"listed": "tests/test_z.py\n"}, Reason.TEST_FILES),
        ((("pkg/a.py", SCALE, CUT),), {"listed": "pkg/a.py\n"}, Reason.TEST_FILES),
        (
            (("pkg/a.py", SCALE, CUT),),
            {"weak": ("tests/test_many.py", "assert ", ""), "listed": "tests/test_many.py"},
            Reason.BREAKS_TOO_MANY,
        ),
        ((("pkg/a.py", SCALE, CUT),), {"bug_inject.diff": ""}, "patch_empty"),
        ((("pkg/a.py", SCALE, CUT),), {"bug_inject.diff": "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"}, "apply_failed"),
        (
            (("pkg/a.py", SCALE, CUT),),
            {"bug_inject.diff": "--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-a\n+b\n"},
            "patch_traverses",
        ),
        ((("pkg/a.py", SCALE, CUT),), {"test_weaken.diff": "no diff"}, "patch_empty"),
        ((("pkg/a.py", SCALE, CUT),), {"bug_patch.diff": "another"}, Reason.ARTIFACT),
        ((("pkg/a.py", SCALE, CUT),), {"test_files.txt": "\ud800"}, Reason.ARTIFACT),
    ],
)
def test_what_is_no_bug(
    small: Table, opened: Opened, files_of: Make, bug: tuple[Edit, ...], more: dict[str, Any], reason: str
) -> None:
    found = small.do(examine_artifact(files_of(*bug, **more), opened=opened))
    assert isinstance(found, Problem), found
    assert found.reason == reason, found
    assert found.why


def test_a_file_is_missing(small: Table, opened: Opened, files_of: Make) -> None:
    files = files_of(("pkg/a.py", SCALE, CUT))
    for name in list(files):
        found = small.do(examine_artifact({other: files[other] for other in files if other != name}, opened=opened))
        assert isinstance(found, Problem)
        assert found.reason == Reason.ARTIFACT
        assert name in found.why


def test_parts_that_do_nothing_are_dropped(small: Table, opened: Opened, files_of: Make) -> None:
    files = files_of(("pkg/a.py", SCALE, CUT), ("notes.txt", "words", "other words"), ("pkg/new.py", None, "x = 1\n"))
    bug = small.do(examine_artifact(files, opened=opened))
    assert isinstance(bug, TreeBug), bug
    assert list(bug.code) == ["pkg/a.py"]
    assert len(bug.dropped) == 2


def test_a_whole_file_that_is_gone(small: Table, opened: Opened, files_of: Make, cache: Path) -> None:
    files = files_of(
        ("pkg/b.py", None, None),
        weak=("tests/test_b.py", None, None),
        listed="tests/test_b.py\n",
    )
    found = small.do(examine_artifact(files, opened=opened))
    # note: the test that imports it is not collected, so that nothing fails that could be told apart.
    assert isinstance(found, Problem)
    assert found.reason == Reason.COLLECTION_ERROR


def test_a_tree_that_gives_itself_away_is_no_task(small: Table, opened: Opened, files_of: Make, cache: Path) -> None:
    weak = ("tests/test_c.py", "assert keep(1) == 1", "keep(1)")
    files = files_of(("pkg/c.py", "x + 0", "x + 1"), weak=weak, listed="tests/test_c.py")
    bug = small.do(examine_artifact(files, opened=opened))
    assert isinstance(bug, TreeBug), bug
    found = small.do(task_payload(bug, opened=opened, key="copied", cache=cache))
    assert isinstance(found, Problem)
    assert (found.reason, "pkg/vendored.py" in found.why) == (agentic.GIVES_AWAY, True)


def test_the_solver_gets_one_commit_of_the_weakened_bug(
    opened: Opened, task: tuple[TreeBug, Mapping[str, Any]], cache: Path
) -> None:
    repository = opened.verifier.repository
    path = agentic.solver_archive(task[1], repository=repository, cache=cache)
    assert path == agentic.handed_to_solver(task[1], repository=repository, cache=cache).archive
    with tarfile.open(path) as packed:
        held = {member.name: packed.extractfile(member).read() for member in packed}  # type: ignore[union-attr]
    assert held["pkg/a.py"].decode() == FILES["pkg/a.py"].replace(SCALE, CUT)
    assert b"assert scale" not in held["tests/test_a.py"]
    assert held["tests/test_b.py"].decode() == FILES["tests/test_b.py"]
    assert len([name for name in held if name.startswith(".git/refs/")]) == 1
    made = agentic.handed_to_solver(task[1], repository=repository, cache=cache)
    with tarfile.open(made.base) as packed:
        assert set(packed.getnames()) == {name for name in held if not name.startswith(".git/")}
    clean = agentic.handed_to_proposer(repository, cache=cache)
    with tarfile.open(clean.base) as packed:
        assert set(packed.getnames()) == set(repository.files)


def test_attempts_are_judged(small: Table, opened: Opened, task: tuple[TreeBug, Mapping[str, Any]]) -> None:
    bug, payload = task

    def judged(*edits: Edit) -> Decision | Problem:
        return small.do(judge_patch(repair(bug, opened, *edits), payload, opened=opened))

    mended = judged(("pkg/a.py", CUT, SCALE))
    assert isinstance(mended, Decision), mended
    assert (mended.kind, mended.passed, dict(mended.dropped)) == ("passed", True, {})
    other = judged(
        ("pkg/a.py", CUT, "    from pkg.helping import twice\n    return twice(x, by)\n"),
        ("pkg/helping.py", None, "def twice(x, by):\n    return [one * by for one in x]\n"),
        ("tests/test_a.py", "    scale([1, 2])", "    assert scale([1]) == [2]"),
    )
    assert isinstance(other, Decision), other
    assert (other.kind, dict(other.dropped)) == ("passed", {"tests/test_a.py": "a test"})
    # note: it is not what it was, so it was compared with that on other inputs.
    assert other.compared is not None
    assert (other.compared.different, other.compared.total > 0) == (0, True)
    nothing = judged(("notes.txt", "words", "other"))
    assert isinstance(nothing, Decision), nothing
    assert (nothing.kind, list(nothing.failed)) == ("failed", list(bug.failing))
    worse = judged(("pkg/a.py", CUT, SCALE), ("pkg/a.py", "one + by for", "one for"))
    assert isinstance(worse, Decision), worse
    assert (worse.kind, list(worse.failed)) == ("failed", ["tests/test_a.py::test_shift"])
    broken = judged(("pkg/a.py", CUT, "    return (\n"))
    assert isinstance(broken, Decision), broken
    assert (broken.kind, broken.passed) == ("unfinished", False)


def test_attempts_that_are_refused(small: Table, opened: Opened, task: tuple[TreeBug, Mapping[str, Any]]) -> None:
    bug, payload = task
    for patch, reason in (
        ("", "patch_empty"),
        ("I could not do it", "patch_empty"),
        (repair(bug, opened, ("tests/test_a.py", "    scale([1, 2])", "    pass")), "patch_empty"),
        (repair(bug, opened, ("tests/conftest.py", None, "x = 1\n")), "patch_empty"),
        (diff(opened, ("pkg/a.py", SCALE, CUT)), "apply_failed"),
        ("--- a/.git/config\n+++ b/.git/config\n@@ -0,0 +1 @@\n+x\n", "patch_git_path"),
        ("\ud800", "patch_not_utf8"),
    ):
        found = small.do(judge_patch(patch, payload, opened=opened))
        assert isinstance(found, Problem), (patch, found)
        assert found.reason == reason, found


def test_a_payload_of_another_tree_is_a_mistake_of_ours(
    small: Table, opened: Opened, task: tuple[TreeBug, Mapping[str, Any]]
) -> None:
    told = {**task[1]["artifact"], "bug": "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"}
    with pytest.raises(ValueError, match="not of pkg-1"):
        small.do(judge_patch("", {**task[1], "artifact": told}, opened=opened))


INJECTED = r"""
set -o pipefail
python - <<'END'
import re
path = "toolz/itertoolz.py"
text = open(path).read()
body = "    d = collections.defaultdict(lambda: [].append)\n    for item in seq:\n        d[key(item)](item)\n"
body += "    rv = {}\n"
assert body in text
open(path, "w").write(text.replace(body, "    rv = {}\n    d = {}\n"))
END
git diff > bug_inject.diff && git checkout -q -- toolz/itertoolz.py
python - <<'END'
import re
path = "toolz/tests/test_itertoolz.py"
text = open(path).read()
text = re.sub(r"\ndef test_groupby(_non_callable)?\(\):\n(    .*\n|\n(?=    ))+", "\n", text)
open(path, "w").write(text)
END
git diff > test_weaken.diff && git checkout -q -- toolz/tests
echo toolz/tests/test_itertoolz.py > test_files.txt
echo 'python -m pytest -q toolz/tests/test_itertoolz.py' > test_script.sh
mkdir artifact && mv *.diff test_files.txt test_script.sh artifact/
ls artifact
"""


@pytest.mark.slow
def test_a_real_package_is_broken_and_mended_by_tools(table_of: Callable[..., Table], tmp_path: Path) -> None:
    table = table_of("pypi:toolz==1.2.0").open()
    opened = table.do(table.game.opened())
    repository = opened.verifier.repository

    async def played(archive: Path, handover: Any, *calls: tuple[str, dict[str, Any]]) -> list[Answer]:
        provider = BubblewrapProvider()
        spec = SandboxSpec(name="python", archive=str(archive))
        tools = Workbench(provider, spec, allowance=Allowance(command_seconds=120.0), handover=handover)
        try:
            return [await tools.call(Call(name=name, arguments=arguments)) for name, arguments in calls]
        finally:
            await tools.aclose()
            await provider.aclose()

    clean = agentic.handed_to_proposer(repository, cache=tmp_path)
    said = table.do(
        played(
            clean.archive,
            agentic.artifact_handover(),
            (
                "bash",
                {"command": "git log --oneline | wc -l; python -m pytest -q toolz/tests/test_itertoolz.py | tail -1"},
            ),
            ("bash", {"command": INJECTED}),
            ("submit", {"folder": "artifact"}),
        )
    )
    assert said[0].text.startswith("1\n"), said[0]
    assert " passed" in said[0].text
    assert said[-1].product is not None, said
    bug = table.do(examine_artifact(said[-1].product["files"], opened=opened))
    assert isinstance(bug, TreeBug), bug
    assert bug.touched == ("toolz/itertoolz.py::groupby",)
    assert {"toolz/tests/test_itertoolz.py::test_groupby"} <= set(bug.failing)
    assert len(bug.tests) > 40
    payload = table.do(task_payload(bug, opened=opened, key="toolz", cache=tmp_path))
    assert not isinstance(payload, Problem), payload

    tree = agentic.handed_to_solver(payload, repository=repository, cache=tmp_path)
    mended = "    d = {}\n    for item in seq:\n        d.setdefault(key(item), []).append(item)\n    return d\n"
    said = table.do(
        played(
            tree.archive,
            agentic.patch_handover(tree),
            (
                "bash",
                {"command": "git log --oneline | wc -l; python -m pytest -q toolz/tests/test_itertoolz.py | tail -1"},
            ),
            ("search", {"pattern": "def groupby", "names": "*.py"}),
            ("edit", {"path": "toolz/itertoolz.py", "old": "    rv = {}\n    d = {}\n", "new": mended}),
            ("submit", {}),
        )
    )
    assert "toolz/itertoolz.py:" in said[1].text
    assert said[2].text.startswith("[toolz/itertoolz.py was changed"), said[2]
    assert said[3].product is not None
    assert said[3].product["changed"] == ["toolz/itertoolz.py"]
    found = table.do(judge_patch(said[3].product["patch"], payload, opened=opened))
    assert isinstance(found, Decision), found
    assert found.passed, found
