from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from selfplay.sandbox import SandboxInfraError
from selfplay.sandbox import difference as module
from selfplay.sandbox.difference import compare, difference, entries_of_folder

Tree = Mapping[str, bytes | tuple[bytes, int]]


def tar_of(tree: Tree, *more: tarfile.TarInfo) -> bytes:
    """A tar file of `path: content` or `path: (content, mode)`, and of members without content."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for path, value in tree.items():
            content, mode = value if isinstance(value, tuple) else (value, 0o644)
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(content), mode
            tar.addfile(member, io.BytesIO(content))
        for member in more:
            tar.addfile(member)
    return stream.getvalue()


def special(path: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.type, member.linkname = kind, target
    return member


def write(folder: Path, tree: Tree) -> None:
    folder.mkdir(parents=True)
    for path, value in tree.items():
        content, mode = value if isinstance(value, tuple) else (value, 0o644)
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
        (folder / path).chmod(mode)


def read(folder: Path) -> dict[str, tuple[bytes, bool]]:
    """What lies below, with whether it is a program."""
    files = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(folder)): (path.read_bytes(), os.access(path, os.X_OK)) for path in files}


def apply(folder: Path, patch: bytes) -> None:
    """`git apply` onto the tree below `folder`."""
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    env["GIT_CEILING_DIRECTORIES"] = str(folder.parent)
    if patch:
        words = ["git", "apply", "--whitespace=nowarn", "-"]
        done = subprocess.run(words, input=patch, cwd=folder, capture_output=True, env=env)
        assert done.returncode == 0, done.stderr.decode(errors="replace")


@pytest.fixture
def base(tmp_path: Path) -> str:
    path = tmp_path / "base.tar"
    path.write_bytes(tar_of({"a.py": b"X = 1\nY = 2\n", "run.sh": (b"#!/bin/sh\n", 0o755), "data.bin": b"\0\1\2"}))
    return str(path)


def test_what_changed_is_a_git_patch(base: str) -> None:
    tree = {"./a.py": b"X = 1\nY = 3\n", "run.sh": (b"#!/bin/sh\n", 0o644), "new/b.py": b"Z\n"}
    told = difference(tar_of(tree), base)
    assert told.changed == ("a.py", "data.bin", "new/b.py", "run.sh")
    assert told.dropped == {}
    for line in (
        b"diff --git a/a.py b/a.py",
        b"-Y = 2\n+Y = 3\n",
        b"deleted file mode 100644",
        b"GIT binary patch",
        b"diff --git a/new/b.py b/new/b.py\nnew file mode 100644",
        b"old mode 100755\nnew mode 100644",
    ):
        assert line in told.patch, told.patch.decode()


def test_nothing_changed(base: str) -> None:
    told = difference(Path(base).read_bytes(), base)
    assert (told.patch, told.changed, told.dropped) == (b"", (), {})
    assert difference(tar_of({}), None).patch == b""


def test_without_a_base_everything_is_new() -> None:
    told = difference(tar_of({"a": b"1\n"}), None)
    assert told.changed == ("a",)
    assert b"new file mode 100644" in told.patch


_PARTS = st.sampled_from(["a", "b", "c.py", "-x", "é", 'q"uote', "tab\there", "line\nbreak", " blank ", "back\\slash"])
_PATHS = st.lists(_PARTS, min_size=1, max_size=3).map("/".join)
_CONTENTS = st.one_of(st.binary(max_size=60), st.text("ab\n\r", max_size=60).map(str.encode))
_TREES = st.dictionaries(_PATHS, st.tuples(_CONTENTS, st.sampled_from([0o644, 0o755])), max_size=6).map(
    lambda tree: {path: tree[path] for path in tree if not any(path.startswith(f"{other}/") for other in tree)}
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(old=_TREES, new=_TREES)
def test_applying_the_patch_gives_the_tree_back(old: Tree, new: Tree) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "base.tar").write_bytes(tar_of(old))
        told = difference(tar_of(new), f"{name}/base.tar")
        assert told.dropped == {}
        write(Path(name) / "got", old)
        apply(Path(name) / "got", told.patch)
        write(Path(name) / "wanted", new)
        assert read(Path(name) / "got") == read(Path(name) / "wanted")
        # The same again, out of a folder instead of a tar file.
        root = os.open(Path(name) / "wanted", os.O_RDONLY)
        try:
            assert compare(entries_of_folder(root), f"{name}/base.tar", allow=("*",), max_bytes=1 << 20) == told
        finally:
            os.close(root)


@pytest.mark.parametrize(
    "attributes", [b"* -text diff=evil filter=evil\n", b"* binary\n", b"* -diff\n", b"* eol=crlf\n"]
)
def test_attributes_of_the_tree_have_no_say(attributes: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = tmp_path / "gitconfig"
    hostile.write_text('[diff "evil"]\n command = touch /tmp/selfplay-evil\n[core]\n autocrlf = true\n')
    for name, value in {
        "GIT_CONFIG_GLOBAL": str(hostile),
        "GIT_EXTERNAL_DIFF": "false",
        "GIT_DIFF_OPTS": "-u0",
        "GIT_DIR": "/nowhere",
    }.items():
        monkeypatch.setenv(name, value)
    config = {"info/attributes": attributes, "sub/.gitattributes": attributes}
    old, new = {"a.txt": b"one\r\n", "sub/b.txt": b"1\n"}, {"a.txt": b"two\r\n", "sub/b.txt": b"2\n"}
    (tmp_path / "base.tar").write_bytes(tar_of({**old, **config}))
    plain = difference(tar_of({**new, **config}), str(tmp_path / "base.tar"))
    (tmp_path / "base.tar").write_bytes(tar_of({**old, **config, ".gitattributes": attributes}))
    told = difference(tar_of({**new, **config, ".gitattributes": attributes}), str(tmp_path / "base.tar"))
    assert told == plain
    assert b"-one\r\n+two\r\n" in told.patch
    assert b"GIT binary patch" not in told.patch
    assert not os.path.exists("/tmp/selfplay-evil")


def test_what_is_no_plain_file_is_dropped_with_the_reason(base: str) -> None:
    tree = tar_of(
        {
            "a.py": b"X = 1\nY = 2\n",
            "run.sh": (b"#!/bin/sh\n", 0o755),
            "data.bin": b"\0\1\2",
            ".git/config": b"evil",
            "sub/.GIT/hooks/post-commit": b"evil",
            ".git. /x": b"evil",
            ".g\u200cit/x": b"evil",
            "GIT~1/x": b"evil",
            "../up": b"evil",
            "/etc/passwd": b"evil",
            "fine.git/x": b"fine\n",
            "link/below": b"evil",
        },
        special("link", tarfile.SYMTYPE, "/etc/passwd"),
        special("pipe", tarfile.FIFOTYPE),
        special("device", tarfile.CHRTYPE),
        special("again", tarfile.LNKTYPE, "a.py"),
        special("hard", tarfile.LNKTYPE, "/etc/shadow"),
    )
    told = difference(tree, base)
    assert told.changed == ("again", "fine.git/x")
    assert told.dropped == {
        ".git/config": "a name of git's own",
        "sub/.GIT/hooks/post-commit": "a name of git's own",
        ".git. /x": "a name of git's own",
        ".g\u200cit/x": "a name of git's own",
        "GIT~1/x": "a name of git's own",
        "../up": "a name that leaves the tree",
        "/etc/passwd": "a name that leaves the tree",
        "link": "a link",
        "link/below": "below something that is no folder",
        "pipe": "a pipe",
        "device": "a device",
        "hard": "a link to nothing in the tree",
    }


def test_links_of_the_base_may_stay_or_go_but_not_move(tmp_path: Path) -> None:
    links = [special(name, tarfile.SYMTYPE, "a") for name in ("stays", "goes", "moves", "becomes")]
    (tmp_path / "base.tar").write_bytes(tar_of({"a": b"1\n"}, *links))
    tree = tar_of({"a": b"1\n", "becomes/x": b"2\n"}, links[0], special("moves", tarfile.SYMTYPE, "/etc"))
    told = difference(tree, str(tmp_path / "base.tar"))
    assert told.changed == ("becomes", "becomes/x", "goes")
    assert told.dropped == {"moves": "a link"}
    write(tmp_path / "tree", {"a": b"1\n"})
    for name in ("stays", "goes", "moves", "becomes"):
        (tmp_path / "tree" / name).symlink_to("a")
    apply(tmp_path / "tree", told.patch)
    assert sorted(os.listdir(tmp_path / "tree")) == ["a", "becomes", "moves", "stays"]
    assert (tmp_path / "tree" / "becomes" / "x").read_bytes() == b"2\n"


def test_allowed_paths_only(base: str) -> None:
    tree = {"src/deep/a.py": b"1\n", "tests/t.py": b"2\n", "run.sh": (b"#!/bin/sh\n", 0o755)}
    told = difference(tar_of(tree), base, allow=("src/*.py", "data.*"))
    assert told.changed == ("data.bin", "src/deep/a.py")
    assert told.dropped == {"tests/t.py": "not allowed", "a.py": "not allowed"}


def test_too_large_is_told_and_what_did_not_change_is_not_counted(tmp_path: Path) -> None:
    (tmp_path / "base.tar").write_bytes(tar_of({"big": b"b" * 5000, "same": b"s" * 5000}))
    tree = {"big": b"c" * 5000, "same": b"s" * 5000, "m": b"m" * 600, "n": b"n" * 600, "o": b"o" * 400}
    told = difference(tar_of(tree), str(tmp_path / "base.tar"), max_bytes=1000)
    assert told.changed == ("m", "o")
    assert told.dropped == {"big": "too large", "n": "too large"}


def test_names_that_are_no_text(base: str, tmp_path: Path) -> None:
    name = os.fsdecode(b"n\xff\xfe.txt")
    told = difference(tar_of({name: b"1\n"}), None)
    assert told.changed == (name,)
    write(tmp_path / "tree", {})
    apply(tmp_path / "tree", told.patch)
    assert os.listdir(os.fsencode(tmp_path / "tree")) == [b"n\xff\xfe.txt"]


def test_caches_are_no_part_of_it(base: str) -> None:
    tree = {"a/__pycache__/m.cpython-311.pyc": b"1", "m.pyc": b"2", ".pytest_cache/v/x": b"3"}
    told = difference(tar_of({**tree, "a.py": b"X = 1\nY = 2\n", "data.bin": b"\0\1\2"}), base, allow=("*.py*",))
    assert told.changed == ()
    assert told.dropped == {"run.sh": "not allowed"}


def test_large_patches_and_many_files(tmp_path: Path) -> None:
    many = {f"d{n % 100}/f{n}": f"{n}\n".encode() for n in range(10_000)}
    (tmp_path / "base.tar").write_bytes(tar_of(many))
    lines = b"".join(b"line %d\n" % n for n in range(200_000))
    tree = {**many, "d1/f1": b"changed\n", "long": lines, "bytes": os.urandom(2_000_000)}
    told = difference(tar_of(tree), str(tmp_path / "base.tar"))
    assert told.changed == ("bytes", "d1/f1", "long")
    assert len(told.patch) > 4_000_000
    assert told == difference(io.BytesIO(tar_of(dict(reversed(tree.items())))), str(tmp_path / "base.tar"))
    assert len(difference(tar_of(many), None).changed) == 10_000


def test_large_text_is_shown_as_binary(tmp_path: Path) -> None:
    name = 'odd *[x]? "name"\\.txt'
    tree = {name: b"1\n" * 400_000, "small": b"1\n"}
    told = difference(tar_of(tree), None)
    assert told.patch.count(b"GIT binary patch") == 1
    write(tmp_path / "tree", {})
    apply(tmp_path / "tree", told.patch)
    assert read(tmp_path / "tree") == {path: (content, False) for path, content in tree.items()}


def test_more_names_than_anybody_wants(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NAMES", 10)
    told = difference(tar_of({f"f{n}": b"" for n in range(20)}), base)
    assert (told.patch, told.changed, list(told.dropped)) == (b"", (), ["."])


def test_folder_that_an_adversary_arranged(base: str, tmp_path: Path) -> None:
    write(tmp_path / "tree", {"a.py": b"X = 1\nY = 2\n", "run.sh": (b"#!/bin/sh\n", 0o755), "data.bin": b"\0\1\2"})
    (tmp_path / "tree" / "link").symlink_to("/etc")
    os.mkfifo(tmp_path / "tree" / "pipe")
    deep = tmp_path / "tree" / Path(*["d"] * 120)
    deep.mkdir(parents=True)
    (deep / "x").write_bytes(b"x")
    root = os.open(tmp_path / "tree", os.O_RDONLY)
    try:
        told = compare(entries_of_folder(root), base, allow=("*",), max_bytes=1000)
    finally:
        os.close(root)
    assert told.changed == ()
    assert {path: why for path, why in told.dropped.items() if "/" not in path} == {"link": "a link", "pipe": "a pipe"}
    assert [why for path, why in told.dropped.items() if "/" in path] == ["too deep a folder"]


@pytest.mark.parametrize("cut", [1, 700, 1500])
def test_damaged_tar_is_no_deletion(base: str, cut: int) -> None:
    whole = tar_of({f"f{n}": b"x" * 100 for n in range(10)})
    body = whole.rstrip(b"\0")
    with pytest.raises(SandboxInfraError, match="cannot read the tar file"):
        difference(body[: len(body) - cut], base)
    with pytest.raises(SandboxInfraError):
        difference(whole, f"{base}.none")


def test_files_with_holes(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    with open(tmp_path / "tree" / "holes", "wb") as file:
        file.write(b"head")
        file.seek(300_000)
        file.write(b"tail")
    for path, size in (("endless", 1 << 40), ("empty", 400_000)):
        with open(tmp_path / "tree" / path, "wb") as file:
            file.truncate(size)
    words = ["tar", "--create", "--sparse", "--format=gnu", "--file=-", "."]
    tree = subprocess.run(words, cwd=tmp_path / "tree", capture_output=True, check=True).stdout
    assert len(tree) < 100_000
    told = difference(tree, None)
    assert (told.changed, told.dropped) == (("empty", "holes"), {"endless": "too large"})
    root = os.open(tmp_path / "tree", os.O_RDONLY)
    try:
        assert compare(entries_of_folder(root), None, allow=("*",), max_bytes=8 << 20) == told
    finally:
        os.close(root)


def test_a_pipe_is_read_too(base: str) -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as pipe:
        pipe.write(tar_of({"a.py": b"Z\n"}))
    with os.fdopen(read_end, "rb") as pipe:
        assert difference(pipe, base).changed == ("a.py", "data.bin", "run.sh")
