"""Diffs as models write them, made proper, refused with a reason, or applied strictly."""

from __future__ import annotations

import io
import random
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from selfplay.games.code.patches import Applied, Limits, Patch, Reason, Refusal, apply, filtered, parse
from selfplay.games.code.protected import why_dropped

CORE = b"import os\n\n\ndef add(a, b):\n    return a - b\n\n\ndef sub(a, b):\n    return a - b\n"
TREE = {"pkg/core.py": CORE, "tests/test_core.py": b"def test():\n    pass\n", "pkg/bare.py": b"x = 1\ny = 2"}
BODY = " def add(a, b):\n-    return a - b\n+    return a + b\n"
HEADER = "--- a/pkg/core.py\n+++ b/pkg/core.py\n"
FIXED = CORE.replace(b"a - b", b"a + b", 1)


def done(diff: str | bytes, *, tree: Mapping[str, bytes] | Path = TREE, limits: Limits | None = None) -> Applied:
    """The diff applied; fails where it is refused."""
    found = tried(diff, tree=tree, limits=limits)
    assert isinstance(found, Applied), found
    return found


def tried(
    diff: str | bytes, *, tree: Mapping[str, bytes] | Path = TREE, limits: Limits | None = None
) -> Applied | Refusal:
    """The diff parsed and applied."""
    patch = parse(diff.encode() if isinstance(diff, str) else diff, limits=limits)
    return patch if isinstance(patch, Refusal) else apply(patch, tree=tree)


THE_REST = ("fence", "prose", "crlf diff", "no context")


@pytest.mark.parametrize(
    "diff",
    [
        f"diff --git a/pkg/core.py b/pkg/core.py\nindex 1..2 100644\n{HEADER}@@ -4,2 +4,2 @@\n{BODY}",
        f"--- a/pkg/core.py\n+++ b/pkg/core.py\n@@ -4,2 +4,2 @@\n{BODY}".rstrip("\n"),
        f"--- pkg/core.py\n+++ pkg/core.py\n@@ -4,2 +4,2 @@\n{BODY}",
        f"--- ./pkg/core.py\t2024-01-01 00:00:00\n+++ ./pkg/core.py\t2024-01-02\n@@ -4,2 +4,2 @@\n{BODY}",
        f'--- "a/pkg/core.py"\n+++ "b/pkg/core.py"\n@@ -4,2 +4,2 @@\n{BODY}',
        f"--- a/pkg/core.py\n+++ b/pkg/core.py\n@@ -4,9 +4,1 @@ def add\n{BODY}",
        f"--- a/pkg/core.py\n+++ b/pkg/core.py\n@@ -400,9 +4,1 @@\n{BODY}",
        f"--- a/pkg/core.py\n+++ b/pkg/core.py\n@@\n{BODY}",
        f"--- a/pkg/core.py\n+++ b/pkg/core.py\n@@ ... @@\n\n\n{BODY}\n\n",
        f"Here it is:\n```diff\n--- a/pkg/core.py\n+++ b/pkg/core.py\n@@ -4,2 +4,2 @@\n{BODY}```\n- done\n",
        f"Here it is:\n\n--- a/pkg/core.py\n+++ b/pkg/core.py\n@@ -4,2 +4,2 @@\n{BODY}Now it adds.\n",
        f"--- a/pkg/core.py\n+++ b/pkg/core.py\n@@ -4,2 +4,2 @@\n{BODY}".replace("\n", "\r\n"),
        "--- a/pkg/core.py\n+++ b/pkg/core.py\n@@ -5 +5 @@\n-    return a - b\n+    return a + b\n",
    ],
    ids=[
        "git",
        "no newline",
        "no prefix",
        "stamps",
        "quoted",
        "counts",
        "start",
        "no numbers",
        "blank lines",
        *THE_REST,
    ],
)
def test_the_same_diff_in_many_forms(diff: str) -> None:
    assert done(diff).files == {"pkg/core.py": FIXED}


def test_what_was_applied_is_told_as_a_proper_diff_that_git_takes(tmp_path: Path) -> None:
    applied = done(f"--- pkg/core.py\n+++ pkg/core.py\n@@\n{BODY}")
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/core.py").write_bytes(CORE)
    subprocess.run(["git", "apply", "--unidiff-zero"], cwd=tmp_path, input=applied.patch.encode(), check=True)
    assert (tmp_path / "pkg/core.py").read_bytes() == FIXED


def test_several_hunks_in_any_order_and_sections_of_one_file() -> None:
    second = "@@ -8,2 +8,3 @@\n def sub(a, b):\n-    return a - b\n+    c = a - b\n+    return c\n"
    first = f"@@ -4,2 +4,2 @@\n{BODY}"
    expected = CORE.replace(b"return a - b", b"return a + b", 1).replace(
        b"    return a - b", b"    c = a - b\n    return c"
    )
    header = "--- a/pkg/core.py\n+++ b/pkg/core.py\n"
    assert done(header + first + second).files["pkg/core.py"] == expected
    assert done(header + second + first).files["pkg/core.py"] == expected
    assert done(header + second + header + first).files["pkg/core.py"] == expected


@pytest.mark.parametrize(
    ("hunk", "expected"),
    [
        (" x = 1\n-y = 2\n+y = 3\n", b"x = 1\ny = 3\n"),
        (" x = 1\n-y = 2\n\\ No newline at end of file\n+y = 3\n\\ No newline at end of file\n", b"x = 1\ny = 3"),
        ("-x = 1\n+x = 2\n y = 2\n", b"x = 2\ny = 2"),
        (" y = 2\n+z = 3\n", b"x = 1\ny = 2\nz = 3\n"),
    ],
)
def test_a_file_without_final_newline(hunk: str, expected: bytes) -> None:
    assert done(f"--- a/pkg/bare.py\n+++ b/pkg/bare.py\n@@\n{hunk}").files == {"pkg/bare.py": expected}


def test_new_deleted_and_renamed_files() -> None:
    new = "diff --git a/n.py b/n.py\nnew file mode 100644\n--- /dev/null\n+++ b/n.py\n@@ -0,0 +1,2 @@\n+a\n+b\n"
    assert done(new).files == {"n.py": b"a\nb\n"}
    assert done("--- /dev/null\n+++ b/n.py\n@@\n+a\n\\ No newline at end of file\n").files == {"n.py": b"a"}
    assert done("diff --git a/e.py b/e.py\nnew file mode 100644\nindex 0..e69\n").files == {"e.py": b""}
    gone = "--- a/pkg/bare.py\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-x = 1\n-y = 2\n"
    assert done(gone).files == {"pkg/bare.py": None}
    moved = "diff --git a/pkg/bare.py b/pkg/b.py\nsimilarity index 100%\nrename from pkg/bare.py\nrename to pkg/b.py\n"
    assert done(moved).files == {"pkg/bare.py": None, "pkg/b.py": b"x = 1\ny = 2"}
    changed = moved + "--- a/pkg/bare.py\n+++ b/pkg/b.py\n@@ -1 +1 @@\n-x = 1\n+x = 5\n"
    assert done(changed).files == {"pkg/bare.py": None, "pkg/b.py": b"x = 5\ny = 2"}


def edit(path: str, *, head: str = "") -> str:
    """A small diff of `path`."""
    return f"{head}--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+b\n"


def created(path: str, mode: str) -> str:
    """A diff that makes `path`."""
    return f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+a\n"


REFUSED: Mapping[str, tuple[str | bytes, Reason]] = {
    "nothing": ("", Reason.EMPTY),
    "prose": ("I do not know.\n- maybe\n", Reason.EMPTY),
    "no change": ("--- a/pkg/core.py\n+++ b/pkg/core.py\n@@ -1 +1 @@\n import os\n", Reason.EMPTY),
    "same line": ("--- a/pkg/core.py\n+++ b/pkg/core.py\n@@ -1 +1 @@\n-import os\n+import os\n", Reason.EMPTY),
    "binary": ("diff --git a/a b/a\nindex 1..2\nGIT binary patch\nliteral 1\nIcmZPo\n", Reason.BINARY),
    "binary files": ("diff --git a/a b/a\nBinary files a/a and b/a differ\n", Reason.BINARY),
    "nul": (edit("a.py") + "+\0\n", Reason.BINARY),
    "not utf-8": (edit("a.py").encode() + b"+\xff\n", Reason.NOT_UTF8),
    "absolute": ("--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n-a\n+b\n", Reason.ABSOLUTE),
    "absolute below prefix": (edit("/etc/passwd"), Reason.ABSOLUTE),
    "drive": (edit("C:/a.py"), Reason.ABSOLUTE),
    "climbs": (edit("../a.py"), Reason.TRAVERSES),
    "climbs inside": (edit("pkg/../../a.py"), Reason.TRAVERSES),
    "climbs when quoted": ('--- "a/\\056\\056/a.py"\n+++ "b/\\056\\056/a.py"\n@@\n-a\n+b\n', Reason.TRAVERSES),
    "backslash": (edit("pkg\\a.py"), Reason.TRAVERSES),
    "link": (created("a.py", "120000"), Reason.SYMLINK),
    "link edited": (edit("a.py", head="diff --git a/a.py b/a.py\nindex 1..2 120000\n"), Reason.SYMLINK),
    "submodule": (created("lib", "160000"), Reason.SUBMODULE),
    "program": (created("a.py", "100755"), Reason.MODE),
    "mode": ("diff --git a/pkg/core.py b/pkg/core.py\nold mode 100644\nnew mode 100755\n", Reason.MODE),
    "git": (edit(".git/config"), Reason.GIT_PATH),
    "git below": (edit("pkg/.GIT/hooks/a"), Reason.GIT_PATH),
    "git in disguise": (edit(".g\u200cit/config"), Reason.GIT_PATH),
    "git short name": (edit("git~1/config"), Reason.GIT_PATH),
    "onto a test": (
        "diff --git a/pkg/bare.py b/tests/test_core.py\nrename from pkg/bare.py\nrename to tests/test_core.py\n",
        Reason.RENAME_ONTO_TEST,
    ),
    "onto a test, plain": ("--- a/pkg/bare.py\n+++ b/tests/test_a.py\n@@\n-x = 1\n+x = 2\n", Reason.RENAME_ONTO_TEST),
    "copy": ("diff --git a/pkg/bare.py b/b.py\ncopy from pkg/bare.py\ncopy to b.py\n", Reason.MALFORMED),
    "stray": (edit("a.py") + "lost its space\n+c\n", Reason.MALFORMED),
    "no file": ("@@ -1 +1 @@\n-a\n+b\n", Reason.MALFORMED),
    "combined": ("diff --cc a.py\n@@@ -1,1 -1,1 +1,1 @@@\n", Reason.MALFORMED),
    "no such file": (edit("pkg/none.py"), Reason.APPLY_FAILED),
    "other lines": (edit("pkg/core.py"), Reason.APPLY_FAILED),
    "other spaces": ("--- a/pkg/core.py\n+++ b/pkg/core.py\n@@ -1 +1 @@\n-import  os\n+b\n", Reason.APPLY_FAILED),
    "two places": (
        "--- a/pkg/core.py\n+++ b/pkg/core.py\n@@ -1 +1 @@\n-    return a - b\n+    return a + b\n",
        Reason.APPLY_FAILED,
    ),
    "overlap": (
        "--- a/pkg/core.py\n+++ b/pkg/core.py\n@@ -1 +1 @@\n-import os\n+import re\n@@ -1 +1 @@\n-import os\n+a\n",
        Reason.APPLY_FAILED,
    ),
    "is there": (created("pkg/core.py", "100644"), Reason.APPLY_FAILED),
    "deletes other lines": ("--- a/pkg/core.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-import os\n", Reason.APPLY_FAILED),
    "already applied": (
        "--- a/pkg/core.py\n+++ b/pkg/core.py\n@@ -4,2 +4,2 @@\n" + BODY.replace("-b", "+b").replace("a - b", "a * b"),
        Reason.APPLY_FAILED,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_reason_and_one_sentence(name: str) -> None:
    diff, reason = REFUSED[name]
    found = tried(diff)
    assert isinstance(found, Refusal), found
    assert found.reason == reason
    assert found.why
    assert "\n" not in found.why


def test_limits() -> None:
    lines = "".join(f"+x{i}\n" for i in range(100))
    diff = f"--- /dev/null\n+++ b/n.py\n@@ -0,0 +1,100 @@\n{lines}"
    assert done(diff).files
    for limits in (Limits(max_bytes=100), Limits(max_lines=99), Limits(max_files=0)):
        found = tried(diff, limits=limits)
        assert isinstance(found, Refusal)
        assert found.reason is Reason.HUGE


def test_a_crlf_file_keeps_its_line_ends_and_a_mixed_one_is_refused() -> None:
    hunk = "--- a/w.py\n+++ b/w.py\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
    for diff in (hunk, hunk.replace("\n", "\r\n")):
        assert done(diff, tree={"w.py": b"a\r\nb\r\n"}).files == {"w.py": b"a\r\nc\r\n"}
    found = tried(hunk, tree={"w.py": b"a\r\nb\n"})
    assert isinstance(found, Refusal)
    assert found.reason is Reason.LINE_ENDS
    told = tried(hunk, tree={"w.py": b"a\nb\n\xff\n"})
    assert isinstance(told, Refusal)
    assert told.reason is Reason.NOT_UTF8


def test_what_may_not_change_is_dropped_and_recorded() -> None:
    patch = parse((edit("tests/test_core.py") + edit("pkg/core.py") + edit("docs/a.txt")).encode())
    assert isinstance(patch, Patch)
    kept = filtered(patch, allow=("pkg/*.py",))
    assert kept.paths == ("pkg/core.py",)
    assert dict(kept.dropped) == {"tests/test_core.py": "a test", "docs/a.txt": "not among the paths that may change"}
    nothing = apply(filtered(kept, allow=()), tree=TREE)
    assert isinstance(nothing, Refusal)
    assert nothing.reason is Reason.EMPTY
    assert "tests/test_core.py" in nothing.why


@pytest.mark.parametrize(
    "path",
    [
        "tests/a.py",
        "test_a.py",
        "conftest.py",
        "pkg/conftest.py",
        "sitecustomize.py",
        "a.pth",
        "pytest.py",
        "src/json.py",
        *("_pytest/runner.py", "pyproject.toml", "setup.cfg", "x.dist-info/entry_points.txt", "pkg/core.so"),
        *("pkg/__pycache__/core.cpython-311.pyc", "unittest/__init__.py", ".gitattributes"),
    ],
)
def test_protected_paths(path: str) -> None:
    assert why_dropped(path)


def test_ordinary_paths_are_taken() -> None:
    assert not any(map(why_dropped, ["pkg/core.py", "src/pkg/json.py", "boltons/iterutils.py", "pkg/setup_tools.py"]))


def test_a_tree_in_a_tar_file_and_its_links(tmp_path: Path) -> None:
    archive = tmp_path / "tree.tar"
    with tarfile.open(archive, "w") as packed:
        for path, body in TREE.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(body)
            packed.addfile(entry, io.BytesIO(body))
        link = tarfile.TarInfo("lib")
        link.type, link.linkname = tarfile.SYMTYPE, "pkg"
        packed.addfile(link)
    diff = f"--- a/pkg/core.py\n+++ b/pkg/core.py\n@@\n{BODY}"
    assert done(diff, tree=archive).files == {"pkg/core.py": FIXED}
    found = tried(diff.replace("pkg/core.py", "lib/core.py"), tree=archive)
    assert isinstance(found, Refusal)
    assert found.reason is Reason.SYMLINK


def test_settings_of_the_user_and_of_the_tree_have_no_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".gitconfig").write_text("[apply]\n whitespace = fix\n[core]\n autocrlf = true\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "none"))
    tree = {**TREE, ".gitattributes": b"* text eol=crlf filter=evil\n"}
    diff = "--- a/pkg/core.py\n+++ b/pkg/core.py\n@@ -1 +1 @@\n-import os\n+import re  \n"
    assert done(diff, tree=tree).files == {"pkg/core.py": CORE.replace(b"import os", b"import re  ")}


def test_names_of_the_tree_need_not_fit_this_file_system() -> None:
    long = "pkg/" + "é" * 300 + ".py"
    assert done(f"--- a/{long}\n+++ b/{long}\n@@\n-a\n+b\n", tree={long: b"a\n"}).files == {long: b"b\n"}


def test_what_git_writes_is_applied_to_the_byte(tmp_path: Path) -> None:
    """Random edits with doubtful lines, with and without final newlines, as `git diff` writes them."""
    drawn = random.Random(7)
    for _ in range(40):
        old = [drawn.choice(["a", "b", "  x", "", "-- q", "++ z", "@@ k"]) for _ in range(drawn.randrange(1, 14))]
        new = list(old)
        for _ in range(drawn.randrange(1, 4)):
            new[drawn.randrange(len(new)) :][:1] = []
            new.insert(drawn.randrange(len(new) + 1), drawn.choice(["n", "", "\\ w", "--- a", "+++ b"]))
        before, after = (("\n".join(lines) + drawn.choice(["", "\n"])).encode() for lines in (old, new))
        (tmp_path / "m").write_bytes(before)
        (tmp_path / "n").write_bytes(after)
        argv = ["git", "diff", "--no-index", f"-U{drawn.choice((0, 1, 3))}", "m", "n"]
        diff = subprocess.run(argv, cwd=tmp_path, capture_output=True).stdout.replace(b"b/n", b"b/m")
        if before and after and before != after:
            assert done(diff, tree={"m": before}).files == {"m": after}
