"""A bug's five files: their names, what is wrong with them, and the diffs between trees."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from selfplay.games.code import patches
from selfplay.games.code.artifact import Artifact, applied, diff_of, of_files, of_folder, on_top
from selfplay.games.code.bugs import Problem
from selfplay.games.code.source import Repository, fetch
from tests.games.code.conftest import write

BUG = "--- a/pkg/a.py\n+++ b/pkg/a.py\n@@ -1,2 +1,2 @@\n def one(x):\n-    return x + 1\n+    return x - 1\n"
WEAKENING = (
    "--- a/tests/test_a.py\n+++ b/tests/test_a.py\n"
    "@@ -4,2 +4,2 @@\n def test_one():\n-    assert one(1) == 2\n+    one(1)\n"
)
BODY = {
    "test_script.sh": b"pytest\n",
    "test_files.txt": b"# the oracle\n./tests/test_a.py\n\ntests/test_a.py\n",
    "test_parser.py": b"print('{}')\n",
    "bug_inject.diff": BUG.encode(),
    "test_weaken.diff": WEAKENING.encode(),
}
PROMPTS = {"test_parser.py": "parse_test_output.py", "bug_inject.diff": "bug_patch.diff"} | {
    "test_weaken.diff": "test_patch.diff"
}
"""The names in the paper's body -> those in its prompts."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """One function in one file, and its test."""
    files = {
        "pkg/__init__.py": "",
        "pkg/a.py": "def one(x):\n    return x + 1\n",
        "tests/test_a.py": "from pkg.a import one\n\n\ndef test_one():\n    assert one(1) == 2\n",
    }
    folder = write(tmp_path_factory.mktemp("artifact") / "pkg-1", files)
    return fetch(str(folder), cache=tmp_path_factory.mktemp("cache"))


def read(files: Mapping[str, bytes]) -> Artifact:
    found = of_files(files)
    assert isinstance(found, Artifact), found
    return found


def test_both_sets_of_names_are_read(tmp_path: Path) -> None:
    one = read(BODY)
    other = read({PROMPTS.get(name, name): content for name, content in BODY.items()})
    assert one.test_files == ("tests/test_a.py",)
    assert (one.bug, one.weakening) == (BUG, WEAKENING) == (other.bug, other.weakening)
    for name, content in BODY.items():
        (tmp_path / name).write_bytes(content)
    assert of_folder(tmp_path) == one


def test_the_script_and_the_parser_are_named_and_not_used() -> None:
    assert read(BODY).unused == ("test_script.sh", "test_parser.py")
    without = {name: content for name, content in BODY.items() if "diff" in name or "files" in name}
    assert read(without).unused == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bug_inject.diff": None}, "no bug_inject.diff or bug_patch.diff"),
        ({"test_files.txt": None}, "no test_files.txt"),
        ({"bug_patch.diff": b"another"}, "two names of one file"),
        ({"test_weaken.diff": b"\xff"}, "not UTF-8"),
        ({"bug_inject.diff": b"x" * (1 << 21)}, "more than"),
    ],
)
def test_an_artifact_that_is_not_whole_is_refused(change: Mapping[str, bytes | None], said: str) -> None:
    files = {name: content for name, content in {**BODY, **change}.items() if content is not None}
    found = of_files(files)
    assert isinstance(found, Problem)
    assert found.reason == "artifact_incomplete"
    assert said in found.why


def test_equal_copies_under_both_names_are_one_file() -> None:
    assert read({**BODY, "bug_patch.diff": BUG.encode()}).bug == BUG


def test_a_link_in_a_folder_is_as_good_as_missing(tmp_path: Path) -> None:
    for name, content in BODY.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "bug_inject.diff").rename(tmp_path / "elsewhere")
    (tmp_path / "bug_inject.diff").symlink_to(tmp_path / "elsewhere")
    found = of_folder(tmp_path)
    assert isinstance(found, Problem)
    assert "no bug_inject.diff" in found.why


def test_the_bug_changes_code_only_and_what_is_dropped_is_named(repository: Repository) -> None:
    files = applied(read({**BODY, "bug_inject.diff": (BUG + WEAKENING).encode()}), repository=repository)
    assert not isinstance(files, Problem)
    assert files.code == {"pkg/a.py": b"def one(x):\n    return x - 1\n"}
    assert dict(files.dropped) == {"tests/test_a.py": "a test"}
    assert files.tests["tests/test_a.py"] == b"from pkg.a import one\n\n\ndef test_one():\n    one(1)\n"


@pytest.mark.parametrize(
    ("name", "diff", "reason"),
    [
        ("bug_inject.diff", WEAKENING, "patch_empty"),
        ("bug_inject.diff", BUG.replace("x + 1", "x + 2"), "apply_failed"),
        ("test_weaken.diff", "no diff at all\n", "patch_empty"),
        ("test_weaken.diff", WEAKENING.replace("tests/", "../tests/"), "patch_traverses"),
    ],
)
def test_a_diff_that_does_not_apply_is_refused(repository: Repository, name: str, diff: str, reason: str) -> None:
    found = applied(read({**BODY, name: diff.encode()}), repository=repository)
    assert isinstance(found, Problem)
    assert found.reason == reason
    assert ("weakening" in found.why) == (name == "test_weaken.diff")


def test_a_failed_attempt_on_top_makes_a_second_order_bug(repository: Repository) -> None:
    first = read(BODY)
    second = on_top(first, attempt={"pkg/a.py": b"def one(x):\n    return x - 2\n"}, repository=repository)
    assert isinstance(second, Artifact)
    assert (second.order, second.test_files, second.weakening) == (2, first.test_files, first.weakening)
    files = applied(second, repository=repository)
    assert not isinstance(files, Problem)
    assert files.code == {"pkg/a.py": b"def one(x):\n    return x - 2\n"}
    third = on_top(second, attempt={"pkg/a.py": b""}, repository=repository)
    assert isinstance(third, Problem)
    assert third.reason == "artifact_incomplete"


def test_an_attempt_that_repaired_it_is_no_second_order_bug(repository: Repository) -> None:
    found = on_top(read(BODY), attempt={"pkg/a.py": b"def one(x):\n    return x + 1\n"}, repository=repository)
    assert isinstance(found, Problem)
    assert found.reason == "patch_empty"


TREES: tuple[tuple[dict[str, bytes | None], dict[str, bytes | None]], ...] = (
    ({"m.py": b"a\nb\nc\n"}, {"m.py": b"a\nB\nc\n"}),
    ({"m.py": b"a\nb"}, {"m.py": b"a\nB"}),
    ({"m.py": b"a\nb"}, {"m.py": b"a\nb\n"}),
    ({"m.py": b"a\x0cb\x85\n".decode("latin1").encode()}, {"m.py": "a\x0cc\u2028\n".encode()}),
    ({"m.py": b"a\n"}, {"m.py": None}),
    ({"m.py": None}, {"m.py": b"a\n"}),
    ({"a b.py": b"a\n", "n.py": b"1\n"}, {"a b.py": b"b\n", "n.py": b"2\n"}),
)


@pytest.mark.parametrize(("old", "new"), TREES)
def test_a_diff_that_is_made_applies(old: dict[str, bytes | None], new: dict[str, bytes | None]) -> None:
    for before, after in ((old, new), (new, old)):
        patch = patches.parse(diff_of(before, after).encode())
        assert isinstance(patch, patches.Patch), patch
        tree = {path: content for path, content in before.items() if content is not None}
        found = patches.apply(patch, tree=tree)
        assert isinstance(found, patches.Applied), found
        assert found.files == after
