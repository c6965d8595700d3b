"""Requirements become pinned wheels of a local index, and nothing of them is run."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay.errors import NotReady, UserError
from selfplay.sandbox.environment import tool_environment, tool_versions
from selfplay.sandbox.wheels import pinned, unpack

Offer = Callable[..., Path]


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """`offer("dep", requires=["other>=1"])` puts a wheel where pip looks, and only there."""
    links = tmp_path / "links"
    links.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))

    def make(name: str, *, version: str = "1.0", requires: list[str] | None = None, **files: str) -> Path:
        told = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {one}" for one in requires or [])]
        metadata = "\n".join(["Metadata-Version: 2.1", *told, ""])
        path = links / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as packed:
            for place, text in {f"{name}/__init__.py": "VALUE = 1\n", **files}.items():
                packed.writestr(place, text)
            packed.writestr(f"{name}-{version}.dist-info/METADATA", metadata)
            packed.writestr(f"{name}-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            packed.writestr(f"{name}-{version}.dist-info/RECORD", "")
        return path

    return make


def test_requirements_are_closed_pinned_and_kept(offer: Offer, monkeypatch: pytest.MonkeyPatch) -> None:
    offer("dep", requires=["other>=1", "pytest>=1", "mine"])
    offer("other", version="1.5")
    offer("mine")
    tools = tool_versions()
    offer("pytest", version=dict(tool.split("==") for tool in tools)["pytest"])
    asked = ["dep", "pytest>=7", "mine>=1", 'never; python_version < "3"']
    wheels = pinned(asked, tools=tools, without="Mine")
    assert [(wheel.name, wheel.version) for wheel in wheels] == [("dep", "1.0"), ("other", "1.5")]
    assert all(wheel.pure and len(wheel.sha256) == 64 and wheel.path.is_file() for wheel in wheels)
    offer("other", version="2.0")
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    assert pinned(asked, tools=tools, without="Mine") == wheels, "the index was asked again"
    assert pinned([]) == ()


def test_equal_pins_are_one_environment_and_unpacking_runs_nothing(offer: Offer, tmp_path: Path) -> None:
    trap = f"open({str(tmp_path / 'ran')!r}, 'w')\n"
    offer("dep", **{"dep/__init__.py": trap, "dep-1.0.data/purelib/more.py": "A = 1\n", "dep-1.0.data/scripts/x": "no"})
    wheels = pinned(["dep"])
    made = tool_environment(wheels=wheels)
    assert (made.packages / "dep/__init__.py").read_text() == trap
    assert (made.packages / "more.py").is_file()
    assert (made.packages / "pytest").is_dir()
    assert tool_environment(wheels=pinned(["dep>=1"])).digest == made.digest
    assert tool_environment().digest != made.digest
    assert not list(made.path.rglob("scripts"))
    assert not (tmp_path / "ran").exists()


def test_a_wheel_cannot_replace_a_tool_or_climb(offer: Offer, tmp_path: Path) -> None:
    offer("dep", **{"pytest/__init__.py": "", "../out.py": "", "/abs.py": ""})
    wheels = pinned(["dep"])
    with pytest.raises(NotReady, match="would write over `pytest`"):
        tool_environment(wheels=wheels)
    unpack(wheels[0], tmp_path / "to" / "site")
    assert not (tmp_path / "to" / "out.py").exists()
    assert not [path for path in (tmp_path / "cache" / "env").iterdir() if wheels], "half an environment is left"


def test_a_damaged_wheel_is_thrown_away(offer: Offer, tmp_path: Path) -> None:
    offer("dep")
    (wheel,) = pinned(["dep"])
    wheel.path.write_bytes(b"something else")
    with pytest.raises(NotReady, match="damaged"):
        unpack(wheel, tmp_path / "site")
    assert pinned(["dep"]) == (wheel,)
    unpack(wheel, tmp_path / "site")


@pytest.mark.parametrize(
    ("asked", "kind", "said"),
    [
        ("a b", UserError, "is no requirement"),
        ("dep @ https://example.invalid/dep.tar.gz", UserError, "names a URL"),
        ("pytest<3", UserError, "does not go with the sandbox's pytest"),
        ("absent", NotReady, "no wheels for absent"),
        ("sdist-only", NotReady, "no wheels for sdist-only"),
    ],
)
def test_what_cannot_be_had_is_said(
    offer: Offer, tmp_path: Path, asked: str, kind: type[UserError | NotReady], said: str
) -> None:
    (tmp_path / "links" / "sdist-only-1.0.tar.gz").write_bytes(b"")
    with pytest.raises(kind, match=said) as caught:
        pinned([asked], tools=tool_versions())
    assert caught.value.hint
