"""Under which licence what a run was made from stands, as its source says itself.

Read from the tree, a repository or a folder of documents: the licence expression, field or classifiers of PKG-INFO,
`project.license` of pyproject.toml, and the first line of a licence file. What a source does not say is said to be
unknown, never guessed; so is a corpus of several sources that do not all say the same.

Not here: legal advice.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import closing
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING

from selfplay.errors import SelfplayError
from selfplay.exports.seam import Asked
from selfplay.types import record

if TYPE_CHECKING:
    from selfplay.config import Config
    from selfplay.project import Project

UNKNOWN = "unknown"
NOT_NEEDED = "none needed"
"""Of what a program makes."""
KNOWN = ("apache-2.0", "bsd-2-clause", "bsd-3-clause", "gpl-3.0", "isc", "lgpl-3.0", "mit", "mpl-2.0", "unlicense")
"""What the header of a card may name; all else is `other`."""
FILES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENSE.rst", "LICENCE", "LICENCE.txt", "COPYING", "COPYING.txt")


@record
class Source:
    """One thing that seeds come from."""

    name: str
    licence: str
    """As it says itself; `unknown` where it does not."""
    digest: str
    """Of its files; empty where it has none, or where it could not be read."""
    note: str = ""
    """Why it could not be read."""


def sources(asked: Asked) -> tuple[Source, ...]:
    """What the run's seeds come from, game by game; a source that cannot be had any more is named all the same."""
    from selfplay.config import from_run
    from selfplay.mix import alone

    config = from_run(asked.reader.folder, project=asked.project, environ={})
    return tuple(one for single in alone(config) for one in _sources(single, asked.project))


def _sources(config: Config, project: Project) -> Iterator[Source]:
    """Of a run of one game: of `code` each repository."""
    from selfplay.evaluation.tasks import digest_of, source_in_words

    game, words = config.run.game, source_in_words(config)
    if game == "code":
        yield from _repositories(config, project)
        return
    try:
        digest = digest_of(config, project) or ""
        licence = _of_corpus(config) if game == "search" else NOT_NEEDED
    except SelfplayError as error:
        yield Source(name=words, licence=UNKNOWN, digest="", note=error.message)
        return
    note = "made by a program"
    if game == "search":
        note = "not all of the corpus's sources say theirs" if licence == UNKNOWN else ""
    yield Source(name=words, licence=licence, digest=digest, note=note)


def _repositories(config: Config, project: Project) -> Iterator[Source]:
    from selfplay.cache import cache_folder
    from selfplay.games.code.source import fetch
    from selfplay.grounds import in_words, sources_of

    for name, source in zip(in_words(config), sources_of(config, project), strict=True):
        try:
            found = fetch(source, cache=cache_folder())
        except SelfplayError as error:
            yield Source(name=name, licence=UNKNOWN, digest="", note=error.message)
        else:
            yield Source(name=name, licence=licence_of(found.root), digest=found.digest)


def _of_corpus(config: Config) -> str:
    """What the folders say that its documents come from, where all say the same."""
    from selfplay.retrieval.store import Corpus

    with closing(Corpus(config.game.corpus)) as corpus:
        found = {licence_of(Path(source)) for source in corpus.info().sources}
    return found.pop() if len(found) == 1 else UNKNOWN


def licence_of(tree: Path) -> str:
    """What a tree says of its licence; `unknown` where it says nothing."""
    return next((text for text in _told(tree) if text and text.upper() != "UNKNOWN"), UNKNOWN)


def header_of(found: tuple[Source, ...]) -> str:
    """The one word that the header of a card has for them; what a program made has no say in it."""
    words = {source.licence.lower() for source in found if source.licence != NOT_NEEDED}
    return next(iter(words)) if len(words) == 1 and words <= set(KNOWN) else "other"


def _told(tree: Path) -> Iterator[str]:
    for file in (tree / "PKG-INFO", *sorted(tree.glob("*.egg-info/PKG-INFO"))):
        if file.is_file():
            head = HeaderParser().parsestr(file.read_text(encoding="utf-8", errors="replace"))
            yield str(head.get("License-Expression") or "").strip()
            yield str(head.get("License") or "").strip().split("\n", 1)[0]
            marks = [str(one) for one in head.get_all("Classifier", []) if str(one).startswith("License ::")]
            yield "; ".join(mark.rpartition("::")[2].strip() for mark in marks)
    yield _of_pyproject(tree / "pyproject.toml")
    for name in FILES:
        if (tree / name).is_file():
            lines = (tree / name).read_text(encoding="utf-8", errors="replace").splitlines()
            yield next((line.strip() for line in lines if line.strip()), "")


def _of_pyproject(file: Path) -> str:
    try:
        told = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {}).get("license", "")
    except (OSError, ValueError):
        return ""
    if isinstance(told, str):
        return told
    return str(told.get("text", "")).split("\n", 1)[0] if isinstance(told, dict) else ""
