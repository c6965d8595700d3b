"""Reading pip's settings and the pages of an index."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from selfplay.errors import NotReady
from selfplay.games.code import index
from tests.http_here import Handler, listening

CONTENT = b"an archive"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Index(Handler):
    """An index: `/html/` speaks PEP 503, `/json/` PEP 691, `/lies/` states a wrong digest."""

    def do_GET(self) -> None:
        _, kind, name, *rest = self.path.split("/")
        if rest == ["pkg-1.0.tar.gz"]:
            self.answer(200, CONTENT, kind="application/gzip")
        elif name != "a-pkg":
            self.send_error(404)
        elif kind == "json":
            file = {"filename": "a_pkg-1.0.tar.gz", "url": "pkg-1.0.tar.gz", "hashes": {"sha256": SHA256}}
            self.answer(200, json.dumps({"files": [file]}).encode(), kind="application/vnd.pypi.simple.v1+json")
        else:
            sha256 = SHA256 if kind == "html" else "0" * 64
            href = f"pkg-1.0.tar.gz#sha256={sha256}".replace("pkg-1.0", "../a-pkg/a_pkg-1.0")
            text = f'<a href="{href}">x</a><a href="a_pkg-0.9-py3-none-any.whl">w</a>'
            self.answer(200, text.encode(), kind="text/html")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with listening(Index) as found:
        yield found


def test_both_forms_of_the_simple_api(address: str) -> None:
    for kind in ("html", "json"):
        places = index.Places(indexes=(f"{address}/{kind}",), links=())
        found = index.find_sdist("A.Pkg", version="1.0.0", places=places)
        assert found.filename == "a_pkg-1.0.tar.gz"
        assert found.sha256 == SHA256
    assert index.download(found, places=places) == CONTENT


def test_a_wrong_digest_is_refused(address: str) -> None:
    archive = index.Archive(filename="a_pkg-1.0.tar.gz", url=f"{address}/json/a-pkg/pkg-1.0.tar.gz", sha256="0" * 64)
    with pytest.raises(NotReady, match="sha256"):
        index.download(archive, places=index.Places(indexes=(), links=()))


def test_a_folder_of_files_is_a_place(tmp_path: Path) -> None:
    (tmp_path / "a_pkg-1.0.tar.gz").write_bytes(CONTENT)
    (tmp_path / "other-1.0.tar.gz").write_bytes(b"")
    places = index.Places(indexes=("http://127.0.0.1:9",), links=(str(tmp_path),))
    found = index.find_sdist("a-pkg", version="1.0", places=places)
    assert index.download(found, places=places) == CONTENT


def test_pip_says_where_to_look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = http://one/simple\nextra-index-url =\n  http://two\n  http://three\n")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_FIND_LINKS", "/somewhere")
    places = index.configured()
    assert places.indexes[0] == "http://one/simple"
    assert places.indexes[-2:] == ("http://two", "http://three")
    assert places.links == ("/somewhere",)
    monkeypatch.setenv("PIP_INDEX_URL", "http://four")
    assert index.configured().indexes[0] == "http://four"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert index.configured().indexes == ()


def test_where_nothing_is_configured_it_is_pips_own_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert index.configured().indexes[0].startswith("https://")
