"""Where the installed selfplay came from: a package index, a git repository at a commit, or a folder.

It says what somebody else can install to have the same code, and does not promise a release that nobody made. It asks
git of a folder only, and nothing over a network.

Not here: which code a run was played with; its ledger keeps the version alone (`selfplay repro` says so).
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from urllib.request import url2pathname

from selfplay import __version__
from selfplay.types import record

PACKAGE = "selfplay-curriculum"
SECONDS = 10.0
"""Longest that git is waited for."""


@record
class Origin:
    """What the code that runs here was installed from."""

    kind: str
    """`index`, `git` or `folder`."""
    where: str
    """The index's requirement, the repository's address, or the folder."""
    commit: str | None = None
    """None where nobody knows."""
    changed: bool = False
    """Are there changes that no commit holds?"""

    @property
    def requirement(self) -> str:
        """As pip takes it, in requirements.txt too."""
        if self.kind == "git" and self.commit is not None:
            return f"{PACKAGE} @ git+{self.where}@{self.commit}"
        return self.where

    @property
    def words(self) -> str:
        """For people."""
        at = f", commit {self.commit[:12]}" if self.commit is not None else ""
        return f"{self.where}{at}" + (" and changes that no commit holds" if self.changed else "")

    @property
    def command(self) -> str:
        """What installs it."""
        return f"pip install {shlex.quote(self.requirement)}"


def origin() -> Origin:
    """Of the code that runs here."""
    try:
        text = metadata.distribution(PACKAGE).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return of_folder(Path(__file__).parents[2])
    if text is None:
        return Origin(kind="index", where=f"{PACKAGE}=={__version__}")
    return of_direct_url(json.loads(text))


def of_direct_url(found: Mapping[str, Any]) -> Origin:
    """From what an installer noted (PEP 610)."""
    url = str(found["url"])
    if "vcs_info" in found:
        return Origin(kind="git", where=_plain(url), commit=str(found["vcs_info"]["commit_id"]))
    if url.startswith("file:") and "dir_info" in found:
        return of_folder(Path(url2pathname(urlsplit(url).path)))
    return Origin(kind="folder", where=_plain(url))


def of_folder(folder: Path) -> Origin:
    """A checkout; by its remote repository where that is known and nothing was changed."""
    if not (folder / ".git").exists() or (commit := _git(folder, "rev-parse", "HEAD")) is None:
        return Origin(kind="folder", where=str(folder))
    changed = bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))
    remote = _git(folder, "remote", "get-url", "origin") or ""
    if not changed and remote.startswith(("https://", "http://", "ssh://")):
        return Origin(kind="git", where=_plain(remote), commit=commit)
    return Origin(kind="folder", where=str(folder), commit=commit, changed=changed)


def _plain(url: str) -> str:
    """Without the name and the password that an address may hold."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _git(folder: Path, *words: str) -> str | None:
    """What git says, or None where it cannot."""
    command = ["git", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
