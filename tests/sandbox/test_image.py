"""Images from a root file system and from a named base, and the layer with a repository's wheels; no registry."""

from __future__ import annotations

import asyncio
import contextlib
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import docker
import docker.errors
import pytest

from selfplay.cache import cache_folder
from selfplay.errors import NotReady
from selfplay.sandbox import SandboxSpec
from selfplay.sandbox.docker import DockerProvider
from selfplay.sandbox.environment import tool_environment
from selfplay.sandbox.image import _rootfs, build_image, connect, engine_root, has_image, image_tag, layered_image
from selfplay.sandbox.recipe import Recipe, load_recipe
from selfplay.sandbox.wheels import Wheel

pytestmark = pytest.mark.docker
OURS = uuid4().hex
"""In all that goes into an image here, so that no other process makes, uses or removes the same one."""
ONE, TWO = f"one {OURS}".encode(), f"two {OURS}".encode()
MADE: list[str] = []
"""Images to be removed, the upper ones first."""


@pytest.fixture
def api(need: Callable[[str], None]) -> Iterator[Any]:
    """A client; what these tests made is removed, and nothing else: other processes may be at work beside them."""
    need("docker")
    client = connect(timeout_seconds=60.0)
    yield client
    made = [f"selfplay-base:{sha256(tarred(content)).hexdigest()[:16]}" for content in (ONE, TWO)]
    for image in (*MADE, *made):
        with contextlib.suppress(docker.errors.APIError):
            client.remove_image(image, force=True)
    MADE.clear()
    client.close()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def plain(tmp_path: Path) -> Recipe:
    """A recipe whose image is nothing but its base and a line."""
    folder = tmp_path / "recipes" / "plain"
    folder.mkdir(parents=True)
    (folder / "sandbox.toml").write_text("[limits]\npids = 10\n")
    (folder / "Dockerfile").write_text(f"ARG BASE\nFROM ${{BASE}}\nCOPY site/pytest/__init__.py /pytest.py\n# {OURS}\n")
    return load_recipe("plain", folder=tmp_path / "recipes")


def tarred(content: bytes) -> bytes:
    """A root file system of one file."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        entry = tarfile.TarInfo("etc/motd")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def rootfs(path: Path, content: bytes) -> Path:
    path.write_bytes(tarred(content))
    return path


def wheel(content: bytes = b"VALUE = 41", *, tag: str = "py3-none-any", module: str = "planted_dep") -> Wheel:
    """A wheel of one module, in the cache."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr(
            zipfile.ZipInfo(f"{module}.py"), content + f"  # {OURS}\n".encode()
        )  # note: with no clock, so that it is the same again
    pin = sha256(packed.getvalue()).hexdigest()
    made = Wheel(name="dep", version="1.0", filename=f"dep-1.0-{tag}.whl", sha256=pin)
    made.path.parent.mkdir(parents=True, exist_ok=True)
    made.path.write_bytes(packed.getvalue())
    return made


def test_a_root_file_system_becomes_the_base(api: Any, plain: Recipe, tmp_path: Path) -> None:
    said: list[str] = []
    tag = build_image(plain, rootfs=rootfs(tmp_path / "one.tar", ONE), say=said.append)
    assert tag == image_tag(plain, tool_environment(plain.tools))
    assert any(line.startswith("importing") for line in said)
    first = api.inspect_image(tag)["Id"]
    MADE.extend((tag, first))
    assert build_image(plain) == tag, "it is there"
    assert api.inspect_image(tag)["Id"] == first
    build_image(plain, rootfs=rootfs(tmp_path / "two.tar", TWO))
    assert api.inspect_image(tag)["Id"] != first, "a base that is given is used"


def test_bases_that_cannot_be_had(api: Any, plain: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selfplay.sandbox.image.PULL_SECONDS", 3.0)
    with pytest.raises(NotReady, match=r"no image `selfplay\.invalid/none:1`") as caught:
        build_image(plain, base="selfplay.invalid/none:1")
    assert "--rootfs" in caught.value.hint
    (tmp_path / "no.tar").write_bytes(b"this is no tar" * 100)
    with pytest.raises(NotReady, match="could not be"):
        build_image(plain, rootfs=tmp_path / "no.tar")
    assert not has_image(api, image_tag(plain, tool_environment(plain.tools)))


def test_equal_wheels_are_one_layer_and_sandboxes_have_them(api: Any) -> None:
    recipe, said = load_recipe(), []
    tag = layered_image(recipe, [wheel()], say=said.append)
    assert (layered_image(recipe, [wheel()], say=said.append), len(said)) == (tag, 1)
    other = layered_image(recipe, [wheel(b"VALUE = 42")])
    MADE.extend((tag, other))
    assert other != tag
    assert layered_image(recipe, []) == image_tag(recipe, tool_environment(recipe.tools))

    async def main() -> str:
        provider = DockerProvider(recipe=recipe, image=tag)
        try:
            sandbox = await provider.create(SandboxSpec(name="python"))
            script = "import planted_dep, pytest; print(planted_dep.VALUE, planted_dep.__cached__)"
            return (await sandbox.exec([provider.python, "-I", "-c", script], timeout_seconds=30.0)).stdout
        finally:
            await provider.aclose()

    value, cached = asyncio.run(main()).split()
    assert value == "41"
    assert cached.startswith("/opt/selfplay/env/")


def test_wheels_that_do_not_fit_are_refused_with_the_way_out(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selfplay.sandbox.image._python_version", lambda: "3.99")
    with pytest.raises(NotReady, match=r"for Python 3.99, and the image has 3\.") as caught:
        layered_image(load_recipe(), [wheel(b"A = 1", tag="cp399-cp399-linux_x86_64")])
    assert caught.value.hint == "selfplay sandbox build --base python:3.99-slim"
    with pytest.raises(NotReady, match="have pytest already"):
        layered_image(load_recipe(), [wheel(b"A = 1", module="pytest/__init__")])


@pytest.fixture
def bootstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """`bootstrap("tar", "exit 2")`: what a program does that makes a base out of nothing."""
    programs = tmp_path / "bin"
    programs.mkdir()

    def does(name: str, script: str) -> None:
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)

    does("debootstrap", 'for last; do :; done; mkdir "$last"; echo plain > "$last/file"')
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return does


def test_a_base_is_made_once(bootstrap: Callable[[str, str], None]) -> None:
    said: list[str] = []
    path = _rootfs("selfplay-base:made", say=said.append)
    with tarfile.open(path) as tar:
        assert "./file" in tar.getnames()
    assert (_rootfs("selfplay-base:made", say=said.append), len(said)) == (path, 1)


@pytest.mark.parametrize(
    ("program", "script", "sentence"),
    [
        ("debootstrap", "echo no mirror; exit 1", "debootstrap failed: no mirror"),
        ("tar", "echo No space left on device >&2; exit 2", "tar failed: No space left on device"),
        ("debootstrap", "exec sleep 60", "debootstrap took longer than"),
        ("tar", "exec sleep 60", "tar took longer than"),
    ],
)
def test_a_base_that_cannot_be_made_is_said_in_a_sentence(
    bootstrap: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch, program: str, script: str, sentence: str
) -> None:
    bootstrap(program, script)
    if "longer" in sentence:
        monkeypatch.setattr("selfplay.sandbox.image.BOOTSTRAP_SECONDS", 2.0)
    with pytest.raises(NotReady, match=sentence):
        _rootfs("selfplay-base:none", say=lambda line: None)
    assert list((cache_folder() / "rootfs").iterdir()) == [], "nothing half made is kept"


def test_the_engines_disk(api: Any) -> None:
    root = engine_root()
    assert root is None or root.is_dir()
