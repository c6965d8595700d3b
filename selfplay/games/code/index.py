"""Finds one source distribution on the package index that pip is configured for, and downloads it, checked.

What is covered: pip's own settings, asked of pip itself (index-url, extra-index-url, find-links, no-index, cert, proxy;
files and `PIP_*` variables alike), the simple repository API as HTML (PEP 503) and JSON (PEP 691), `file:` locations,
credentials in URLs, and the sha256 that the index states.

What is not covered: building. Nothing of the package is run here; `pip download` would run its set-up code to learn its
metadata. `trusted-host` is not honoured: an index whose certificate does not verify is an error. Wheels are not used.

Example:
    >>> find_sdist("toolz", version="1.2.0").filename  # doctest: +SKIP
    'toolz-1.2.0.tar.gz'
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import requests
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version

from selfplay.errors import NotFound, NotReady, UserError
from selfplay.types import record

MAX_BYTES = 200 << 20
"""Largest download, and largest index page."""

_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_TIMEOUT = (15.0, 120.0)
"""Seconds to connect and to wait for the next bytes."""


@record
class Archive:
    """One file that an index offers."""

    filename: str
    url: str
    sha256: str | None
    """As the index states it; None for a folder of files (find-links)."""


@record
class Places:
    """Where pip looks, in pip's order."""

    indexes: tuple[str, ...]
    """Roots of simple repositories: URLs or local folders."""
    links: tuple[str, ...]
    """Pages or folders of files (find-links)."""
    verify: str | bool = True
    """Path of a certificate bundle, or True for the default."""
    proxy: str | None = None


def find_sdist(name: str, *, version: str, places: Places | None = None) -> Archive:
    """The source distribution of exactly this version.

    Raises:
        NotFound: no such package, or no such version.
        UserError: the version exists, but without a source distribution.
        NotReady: no index could be asked.
    """
    places = places or configured()
    wanted = _version(version)
    offered, problems = _offered(name, places)
    sdists: dict[Version, Archive] = {}
    others: set[str] = set()
    for archive in offered:
        found = _sdist_version(archive.filename, name=name)
        if found is not None:
            sdists.setdefault(found, archive)
        elif archive.filename.endswith(".whl"):
            others.add(archive.filename)
    if wanted in sdists:
        return sdists[wanted]
    if problems and not offered:
        raise NotReady(
            f"no package index could be asked for `{name}`: {problems[0]}",
            hint="check the network and `pip config list`, or name a folder instead: game.source=PATH",
        )
    if not offered:
        raise NotFound(
            f"no package `{name}` on the configured index", hint=f"check the name: pip index versions {name}"
        )
    if any(_wheel_version(filename) == wanted for filename in others):
        raise UserError(
            f"{name} {version} has wheels but no source distribution, so its tests cannot be had",
            hint=_try_instead(name, sdists) or "name a git URL or a folder instead",
        )
    raise NotFound(f"no version {version} of `{name}` on the configured index", hint=_try_instead(name, sdists))


def download(archive: Archive, *, places: Places | None = None) -> bytes:
    """The file's bytes, equal to the digest that the index states where it states one.

    Raises:
        NotReady: it could not be read, or is not what the index says.
    """
    places = places or configured()
    try:
        content, _ = _read(archive.url, places)
    except (OSError, LookupError) as error:
        raise NotReady(
            f"{archive.filename} could not be downloaded: {_first_line(error)}",
            hint="check the network, then type the same command again",
        ) from error
    if archive.sha256 is not None and hashlib.sha256(content).hexdigest() != archive.sha256:
        raise NotReady(
            f"{archive.filename} does not have the sha256 that its index states; it was thrown away",
            hint="type the same command again; if it stays so, ask whoever runs the index",
        )
    return content


def configured() -> Places:
    """Where pip looks on this machine, as pip itself says.

    Raises:
        NotReady: this interpreter has no pip.
    """
    settings = _settings(_pip("config", "list"))
    indexes: list[str] = []
    if settings.get("no-index", "false").lower() not in {"1", "true", "yes", "on"}:
        indexes = [settings.get("index-url") or _default_index(), *settings.get("extra-index-url", "").split()]
    return Places(
        indexes=tuple(indexes),
        links=tuple(settings.get("find-links", "").split()),
        verify=settings.get("cert") or True,
        proxy=settings.get("proxy"),
    )


def _settings(listing: str) -> Mapping[str, str]:
    """The settings in force, from the output of `pip config list`: variables before commands before global."""
    ranked: dict[str, tuple[int, str]] = {}
    for line in listing.splitlines():
        name, equals, value = line.partition("=")
        section, _, key = name.strip().rpartition(".")
        rank = {"global": 0, "install": 1, "download": 2, ":env:": 3}.get(section)
        if rank is None or not equals or rank < ranked.get(key, (-1, ""))[0]:
            continue
        try:
            ranked[key] = (rank, str(ast.literal_eval(value.strip())))
        except (ValueError, SyntaxError):
            ranked[key] = (rank, value.strip())
    return {key: value for key, (_, value) in ranked.items()}


def _default_index() -> str:
    """The index that pip uses where nothing is configured; its help is the one public place that names it."""
    found = re.search(r"--index-url\s.*?\(default\s+(\S+?)\)", _pip("download", "--help"), flags=re.DOTALL)
    if found is None:
        raise NotReady("pip does not say which index it uses", hint="pip config set global.index-url URL")
    return found[1]


def _pip(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode:
        raise NotReady("this Python has no working pip to ask for the package index", hint="python -m ensurepip")
    return done.stdout


def _offered(name: str, places: Places) -> tuple[list[Archive], list[str]]:
    """Everything offered under `name`, and what went wrong at places that could not be asked."""
    offered: list[Archive] = []
    problems: list[str] = []
    pages = [f"{index.rstrip('/')}/{canonicalize_name(name)}/" for index in places.indexes]
    for page in [*pages, *places.links]:
        try:
            offered += [archive for archive in _list(page, places) if _belongs(archive.filename, name)]
        except LookupError:
            continue
        except OSError as error:
            problems.append(_first_line(error))
    return offered, problems


def _list(page: str, places: Places) -> list[Archive]:
    """The files of one page or folder.

    Raises:
        LookupError: there is no such page.
        OSError: it could not be read.
    """
    folder = _local(page)
    if folder is not None and folder.is_dir() and not (folder / "index.html").is_file():
        return [Archive(filename=path.name, url=str(path), sha256=None) for path in sorted(folder.iterdir())]
    content, kind = _read(page, places)
    if kind.startswith("application/vnd.pypi.simple") and "json" in kind:
        return list(_from_json(content, page))
    return list(_from_html(content.decode("utf-8", "replace"), page))


def _read(place: str, places: Places) -> tuple[bytes, str]:
    """Content and media type of a URL or a path; LookupError where it is not there, OSError for anything else."""
    path = _local(place)
    if path is not None:
        path = path / "index.html" if path.is_dir() else path
        if not path.is_file():
            raise LookupError(str(path))
        return path.read_bytes(), "text/html"
    proxies = {"http": places.proxy, "https": places.proxy} if places.proxy else None
    headers = {"Accept": _ACCEPT}
    with requests.get(  # note: requests' errors are OSErrors
        place, headers=headers, timeout=_TIMEOUT, verify=places.verify, proxies=proxies, stream=True
    ) as answer:
        if answer.status_code in (404, 410):
            raise LookupError(place)
        answer.raise_for_status()
        content = bytearray()
        for chunk in answer.iter_content(1 << 16):
            content += chunk
            if len(content) > MAX_BYTES:
                raise OSError(f"more than {MAX_BYTES >> 20} MiB")
        return bytes(content), answer.headers.get("content-type", "")


def _local(place: str) -> Path | None:
    """The path that a place names, or None where it is on a network."""
    parts = urlsplit(place)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if "://" in place else Path(place).expanduser()


def _from_json(content: bytes, page: str) -> Iterator[Archive]:
    try:
        files = json.loads(content).get("files", [])
    except (ValueError, AttributeError) as error:
        raise OSError("the index's answer is not the JSON it claims to be") from error
    for file in files:
        sha256 = file.get("hashes", {}).get("sha256")
        yield Archive(filename=str(file["filename"]), url=urljoin(page, str(file["url"])), sha256=sha256)


def _from_html(text: str, page: str) -> Iterator[Archive]:
    anchors = _Anchors()
    anchors.feed(text)
    base = page if "://" in page else (Path(page).expanduser().resolve() / "index.html").as_uri()
    for href in anchors.hrefs:
        url, _, fragment = urljoin(base, href).partition("#")
        stated = re.fullmatch(r"sha256=([0-9a-f]{64})", fragment)
        filename = unquote(urlsplit(url).path.rpartition("/")[2])
        yield Archive(filename=filename, url=url, sha256=stated[1] if stated else None)


class _Anchors(HTMLParser):
    """Collects the `href` of every link."""

    def __init__(self) -> None:
        super().__init__()
        self.hrefs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hrefs += [value for key, value in attrs if tag == "a" and key == "href" and value]


def _belongs(filename: str, name: str) -> bool:
    """True for the files of a package; a folder of files holds others as well."""
    if filename.endswith(".whl"):
        return canonicalize_name(filename.partition("-")[0]) == canonicalize_name(name)
    return _sdist_version(filename, name=name) is not None


def _sdist_version(filename: str, *, name: str) -> Version | None:
    try:
        found, version = parse_sdist_filename(filename)
    except (InvalidSdistFilename, InvalidVersion):
        return None
    return version if found == canonicalize_name(name) else None


def _wheel_version(filename: str) -> Version | None:
    parts = filename.split("-")
    try:
        return Version(parts[1]) if len(parts) >= 5 else None
    except InvalidVersion:
        return None


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion as error:
        raise UserError(f"`{text}` is not a version", hint="write pypi:NAME==VERSION, e.g. toolz==1.2.0") from error


def _try_instead(name: str, sdists: Mapping[Version, Archive]) -> str:
    newest: Sequence[Version] = sorted(sdists, reverse=True)[:5]
    return f"try one of pypi:{name}==" + ", ==".join(str(version) for version in newest) if newest else ""


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
