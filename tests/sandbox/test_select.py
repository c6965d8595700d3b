from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from selfplay.errors import NotReady, UserError
from selfplay.sandbox.local import WARNING
from selfplay.sandbox.select import choose, preflight


def close(chosen: object) -> None:
    asyncio.run(chosen.provider.aclose())  # type: ignore[attr-defined]


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine.sock")


def test_local_is_loud() -> None:
    chosen = choose("local")
    close(chosen)
    assert chosen.provider.name == "local"
    assert chosen.notice == WARNING
    assert "UNSAFE" in WARNING


def test_unknown_backend() -> None:
    with pytest.raises(UserError) as caught:
        choose("dokcer")
    assert "bubblewrap" in caught.value.hint


def test_missing_engine_is_a_sentence(no_engine: None) -> None:
    tried = preflight("docker")
    assert not tried.ready
    assert "no Docker engine answers" in tried.what
    assert tried.fix


@pytest.mark.bubblewrap
def test_auto_without_an_engine_is_bubblewrap(no_engine: None, need: object) -> None:
    need("bubblewrap")  # type: ignore[operator]
    chosen = choose("auto")
    close(chosen)
    assert (chosen.provider.name, chosen.notice) == ("bubblewrap", "")


@pytest.mark.docker
def test_auto_with_an_engine_that_lacks_the_image(need: object, tmp_path: Path) -> None:
    need("docker")  # type: ignore[operator]
    need("bubblewrap")  # type: ignore[operator]
    shipped = Path(__file__).parents[2] / "sandboxes" / "python"
    (tmp_path / "python").mkdir()
    for name in ("sandbox.toml", "Dockerfile"):
        text = (shipped / name).read_text(encoding="utf-8")
        (tmp_path / "python" / name).write_text(f"# another one\n{text}", encoding="utf-8")
    chosen = choose("auto", folder=tmp_path)
    close(chosen)
    assert chosen.provider.name == "bubblewrap"
    assert "has no image" in chosen.notice
    assert "selfplay doctor --fix" in chosen.notice


def test_auto_never_falls_back_to_local(no_engine: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotReady) as caught:
        choose("auto")
    assert "apt-get install -y bubblewrap" in caught.value.hint


def test_choosing_inside_an_event_loop() -> None:
    async def main() -> str:
        chosen = choose("local")
        await chosen.provider.aclose()
        return chosen.provider.name

    assert asyncio.run(main()) == "local"
