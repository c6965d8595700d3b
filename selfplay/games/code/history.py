"""The past of a repository, for a proposer who plants bugs by it: its tree with the commits that led there.

    a folder whose top holds .git, a git URL  ->  the last `DEPTH` commits, and on top of them one of the tree as it was
                                                  fetched
    `pypi:NAME==VERSION`                      ->  none: a source distribution holds no history

What is covered: saying beforehand why a source has none, fetching the commits once (shallow, without tags, submodules,
hooks or settings of the source), and a tar of the tree with them, kept by content. Nothing of the source is run, but
git's own reading of it.

What is not covered: what a proposer makes of it (`roles/`), and solvers, whose tree has one commit and no past
(`handed`).

Example:
    >>> why_none("pypi:toolz==1.2.0")
    'pypi:toolz==1.2.0 is a source distribution, which holds no git history'
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from selfplay.games.code.source import WHEN, WHO, Repository, is_folder, is_git, pack, remote_of, stage, the_git
from selfplay.types import digest, record

STRATEGY = "history"
"""The strategy that cannot do without one."""
HINT = (
    "give a folder with .git or a git URL as game.source, or ask for `removal+history`, which does without where there "
    "is none: -s 'curriculum.options={strategies=\"removal+history\"}'"
)
DEPTH = 1000
"""Commits that are looked at."""
MAX_BYTES = 48 << 20
"""Largest `.git` that goes into a sandbox."""
_FORMAT = 1
"""Changes whenever an equal source would give another past."""
_KEPT = frozenset({"HEAD", "config", "index", "refs/heads/main", "shallow"})


@record
class Past:
    """What there is of a repository's history."""

    archive: Path | None
    """A tar of the tree with a git repository that holds its past; None where there is none."""
    why: str = ""
    """Why there is none."""
    num_commits: int = 0


def why_none(source: str) -> str:
    """Why a source has no history, as far as its name and its folder tell; empty where it may have one."""
    if is_git(source):
        return ""
    if not is_folder(source):
        return f"{source} is a source distribution, which holds no git history"
    if not (Path(source).expanduser() / ".git").exists():
        return f"{source} is not the top of a git repository: it holds no .git"
    return ""


def past_of(repository: Repository, *, cache: Path) -> Past:
    """The past of a repository, fetched once; without one where git cannot give it, and the reason.

    Raises:
        NotReady: git is not there.
    """
    why = why_none(repository.source)
    if why:
        return Past(archive=None, why=why)
    git = the_git()
    try:
        head = "" if is_git(repository.source) else git.Repo(Path(repository.source).expanduser()).head.commit.hexsha
    except (ValueError, git.GitError, OSError) as error:
        return Past(archive=None, why=f"{repository.source} has no commit that git can read: {_said(error)}")
    name = digest("past", _FORMAT, repository.source, repository.digest, head, DEPTH)
    made, told = (cache / "handed" / f"{name}{ending}" for ending in (".past.tar", ".past.json"))
    if told.is_file():
        known = json.loads(told.read_text())
        return Past(archive=made if known["num_commits"] else None, why=known["why"], num_commits=known["num_commits"])
    made.parent.mkdir(parents=True, exist_ok=True)
    try:
        count, why = _made(repository, archive=made, git=git)
    except (ValueError, git.GitError, OSError) as error:
        # note: not kept, since a network comes back.
        return Past(archive=None, why=f"the history of {repository.source} cannot be had: {_said(error)}")
    aside = told.with_suffix(_own())
    aside.write_text(json.dumps({"num_commits": count, "why": why}))
    aside.replace(told)
    return Past(archive=made if count else None, why=why, num_commits=count)


def _made(repository: Repository, *, archive: Path, git: Any) -> tuple[int, str]:
    """Write the tar; how many commits it holds beside its own, or 0 and why there is none."""
    url, branch = _remote(repository.source)
    files = {path: (repository.root / path).read_bytes() for path in repository.files}
    with tempfile.TemporaryDirectory(prefix="selfplay-past-") as folder:
        tree = Path(folder, "tree")
        with git.Repo.init(tree, mkdir=True, initial_branch="main") as made:
            options = [f"--depth={DEPTH}", "--no-tags", "--no-recurse-submodules", "--quiet"]
            with made.git.custom_environment(GIT_TERMINAL_PROMPT="0"):
                made.git.fetch(*options, url, branch)
            past = made.commit("FETCH_HEAD")
            count = int(made.git.rev_list("--count", past.hexsha))
            if count < 2:
                return 0, f"the git history of {repository.source} is one commit"
            for path, body in files.items():
                target = tree / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(body)
            stage(made, files)
            who = git.Actor(WHO, "")
            by = {"author": who, "committer": who, "author_date": WHEN, "commit_date": WHEN, "skip_hooks": True}
            made.index.commit("The tree as it was fetched", parent_commits=[past], **by)
        kept = {f".git/{name}": (tree / ".git" / name).read_bytes() for name in _needed(tree / ".git")}
    if sum(map(len, kept.values())) > MAX_BYTES:
        return 0, f"the last {count} commits of {repository.source} have more than {MAX_BYTES >> 20} MiB"
    aside = archive.with_suffix(_own())
    pack({**files, **kept}, aside)
    aside.replace(archive)
    return count, ""


def _own() -> str:
    """An ending that nobody else writes under at the same time, in this process or another."""
    return f".{os.getpid()}-{threading.get_ident()}"


def _remote(source: str) -> tuple[str, str]:
    """The URL and the branch that commits are fetched from."""
    if is_git(source):
        url, branch = remote_of(source)
        return url, branch or "HEAD"
    # note: as a URL, since git takes a depth of no plain path.
    return Path(source).expanduser().resolve().as_uri(), "HEAD"


def _needed(folder: Path) -> Iterator[str]:
    """What of `.git` goes along: no hooks, reflogs, descriptions."""
    for inner, _, names in os.walk(folder):
        for name in names:
            path = Path(inner, name).relative_to(folder).as_posix()
            if path in _KEPT or path.startswith("objects/"):
                yield path


def _said(error: BaseException) -> str:
    """The last line in which git says why."""
    lines = [line.strip() for line in str(getattr(error, "stderr", "") or error).strip().splitlines() if line.strip()]
    fatal = [line for line in lines if "fatal:" in line or "error:" in line]
    return (fatal or lines or [type(error).__name__])[-1].removeprefix("stderr: ").strip("'\"")[:200]
