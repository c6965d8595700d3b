"""A bug as five files, as Self-play SWE-RL writes it (arXiv 2512.18552; research note `selfplay-papers.md` §A.2).

What is covered: reading the files from a folder or a mapping under either of the paper's two sets of names, applying
both diffs strictly, diffs of changed files, and a second-order bug: a failed attempt on top of a first-order one.

Two of the five are never used: `test_script.sh` and the parser. The tests are started and their results read by this
package's own program (`inside`, `report`). A proposer that writes the parser decides what passed, and could prove any
bug and any repair; so what it sends is named in `unused`, and that is all.

What is not covered: whether it is a bug (`checks`), and second-order bugs in the form of one edit (`children`).

Example:
    >>> found = of_files({"test_files.txt": b"tests/test_a.py\\n", "bug_patch.diff": b"", "test_patch.diff": b""})
    >>> found.test_files
    ('tests/test_a.py',)
"""

from __future__ import annotations

import dataclasses
import difflib
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from selfplay.games.code import patches
from selfplay.games.code.bugs import Problem, Reason
from selfplay.games.code.source import Repository, is_test
from selfplay.types import record

NAMES: Mapping[str, tuple[str, ...]] = {
    "script": ("test_script.sh",),
    "test_files": ("test_files.txt",),
    "parser": ("test_parser.py", "parse_test_output.py"),
    "bug": ("bug_inject.diff", "bug_patch.diff"),
    "weakening": ("test_weaken.diff", "test_patch.diff"),
}
"""What a file is for -> its name in the paper's body, and its name in the paper's prompts where that is another."""
MAX_BYTES = 1 << 20
"""Longest file that is read."""
MAX_ORDER = 2
"""The paper stops at the second order: deeper ones overlap too much (§A.5)."""
_UNUSED = ("script", "parser")
_OPTIONAL = ("script", "parser")

Files = Mapping[str, bytes | None]
"""Path -> content, or None where the file is gone."""


@record
class Artifact:
    """A bug, and how its tests were weakened to hide it."""

    test_files: tuple[str, ...]
    """The oracle: what tests decide, whatever a candidate made of these files."""
    bug: str
    """Diff over code files, from the clean tree."""
    weakening: str
    """Diff over those test files. Its reverse is the specification that a solver sees."""
    order: int = 1
    unused: tuple[str, ...] = ()
    """Files that were sent and not used."""


@record
class Applied:
    """What an artifact makes of the clean tree."""

    code: Files
    tests: Files
    dropped: Mapping[str, str]
    """Path -> why the bug's diff may not change it, and so does not."""


def of_folder(folder: Path) -> Artifact | Problem:
    """The artifact in a folder; links and anything but plain files are as good as missing.

    Raises:
        OSError: a file cannot be read.
    """
    files: dict[str, bytes] = {}
    for name in (name for names in NAMES.values() for name in names):
        path = folder / name
        if path.exists() and stat.S_ISREG(path.lstat().st_mode):
            with path.open("rb") as file:
                files[name] = file.read(MAX_BYTES + 1)
    return of_files(files)


def of_files(files: Mapping[str, bytes]) -> Artifact | Problem:
    """The artifact in a mapping of file names to contents; other names are left alone."""
    texts: dict[str, str] = {}
    for use, names in NAMES.items():
        there = [name for name in names if name in files]
        if not there and use not in _OPTIONAL:
            return _refused(Reason.ARTIFACT, f"there is no {' or '.join(names)}")
        if len({files[name] for name in there}) > 1:
            return _refused(Reason.ARTIFACT, f"{' and '.join(there)} are two names of one file, and differ")
        if use in _UNUSED or not there:
            continue
        content = files[there[0]]
        if len(content) > MAX_BYTES:
            return _refused(Reason.ARTIFACT, f"{there[0]} has more than {MAX_BYTES} bytes")
        try:
            texts[use] = content.decode()
        except UnicodeDecodeError:
            return _refused(Reason.ARTIFACT, f"{there[0]} is not UTF-8")
    listed = [line.strip().removeprefix("./") for line in texts["test_files"].splitlines()]
    return Artifact(
        test_files=tuple(dict.fromkeys(line for line in listed if line and not line.startswith("#"))),
        bug=texts["bug"],
        weakening=texts["weakening"],
        unused=tuple(name for use in _UNUSED for name in NAMES[use] if name in files),
    )


def applied(artifact: Artifact, *, repository: Repository) -> Applied | Problem:
    """Both diffs, strictly, on the clean tree.

    Of the bug's diff, files that no candidate may change (tests, settings, `protected`) are dropped and named; the
    weakening is taken whole, and `checks` refuses it where it leaves the listed test files.

    Raises:
        SandboxInfraError: git did not run.
    """
    bug = patches.parse(artifact.bug.encode())
    if isinstance(bug, patches.Refusal):
        return _refused(bug.reason, f"the bug's diff: {bug.why}")
    code = patches.apply(patches.filtered(bug), tree=repository.archive)
    if isinstance(code, patches.Refusal):
        return _refused(code.reason, f"the bug's diff: {code.why}")
    weakening = patches.parse(artifact.weakening.encode())
    if isinstance(weakening, patches.Refusal):
        return _refused(weakening.reason, f"the weakening: {weakening.why}")
    tests = patches.apply(weakening, tree=repository.archive)
    if isinstance(tests, patches.Refusal):
        return _refused(tests.reason, f"the weakening: {tests.why}")
    return Applied(code=code.files, tests=tests.files, dropped=code.dropped)


def on_top(artifact: Artifact, *, attempt: Files, repository: Repository) -> Artifact | Problem:
    """The second-order bug: `attempt`, the files that a failed attempt left, on top of a first-order bug.

    It has the same oracle and the same weakening, and is to be proved like any other (§A.5).

    Raises:
        SandboxInfraError: git did not run.
    """
    if artifact.order >= MAX_ORDER:
        return _refused(Reason.ARTIFACT, f"a bug of order {artifact.order} is as deep as it goes")
    first = applied(artifact, repository=repository)
    if isinstance(first, Problem):
        return first
    code = {**first.code, **{path: content for path, content in attempt.items() if not is_test(path)}}
    clean = contents(repository, code)
    if any(content is not None and not _is_text(content) for content in code.values()):
        return _refused(patches.Reason.NOT_UTF8, "the attempt left a file that is not UTF-8")
    bug = diff_of(clean, code)
    if not bug:
        return _refused(patches.Reason.EMPTY, "the attempt repaired it: nothing differs from the clean tree")
    return dataclasses.replace(artifact, bug=bug, order=artifact.order + 1)


def contents(repository: Repository, paths: Mapping[str, object] | Sequence[str]) -> dict[str, bytes | None]:
    """Those files of the clean tree; None where there is none."""
    known = frozenset(repository.files)
    return {path: (repository.root / path).read_bytes() if path in known else None for path in paths}


def diff_of(old: Files, new: Files) -> str:
    """Unified diff of the files that differ, by path; all are UTF-8."""
    return "".join(_diff(path, old.get(path), new.get(path)) for path in sorted({*old, *new}))


def _diff(path: str, old: bytes | None, new: bytes | None) -> str:
    if old == new:
        return ""
    before = "/dev/null" if old is None else f"a/{path}"
    after = "/dev/null" if new is None else f"b/{path}"
    found = list(difflib.unified_diff(lines_of(old), lines_of(new), before, after))
    if not found:
        # note: an empty file that comes or goes has no hunk, so git's own header says so.
        word = "new" if old is None else "deleted"
        return f"diff --git a/{path} b/{path}\n{word} file mode 100644\n"
    ended = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in found)
    return f"diff --git a/{path} b/{path}\n" + "".join(ended)


def lines_of(content: bytes | None) -> list[str]:
    """Lines with their newlines, and no other line ends counted."""
    return [] if content is None else [f"{line}\n" for line in content.decode().split("\n")[:-1]] + _rest(content)


def _rest(content: bytes) -> list[str]:
    last = content.decode().rpartition("\n")[2]
    return [last] if last else []


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in content


def _refused(reason: str, why: str) -> Problem:
    return Problem(reason=reason, why=why)
