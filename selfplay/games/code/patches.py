"""Reads a diff that a model wrote, and applies it to a tree strictly: what was reviewed is what is changed.

What is covered: a reply's text made into a proper diff (fences, prose around it, line ends, prefixes, hunk headers,
the final newline), refusals with a reason each, a filter of paths with what it dropped, and `git apply` without fuzz,
configuration, attributes, hooks or the tree's own names: git sees numbered files in a private folder, so no name of
the diff ever reaches the file system.

Where a hunk goes: where its header says, if its old lines are there; else where they are, if that is one place only.
Line ends: those of the diff do not count. A file with CRLF throughout keeps CRLF; one with both kinds is refused.

What is not covered: combined diffs, binary hunks, copies, modes and links (refused), and whether the result is right.

Example:
    >>> patch = parse(b"--- a/m.py\\n+++ b/m.py\\n@@ -1 +1 @@\\n-x = 1\\n+x = 2\\n")
    >>> apply(patch, tree={"m.py": b"x = 1\\n"}).files
    {'m.py': b'x = 2\\n'}
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import tarfile
import tempfile
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import Path

from selfplay.games.code.difftext import Hunk, Line, Malformed, Section, read, unfenced
from selfplay.games.code.protected import why_dropped
from selfplay.games.code.source import is_test
from selfplay.sandbox import SandboxInfraError
from selfplay.types import record

GIT_SECONDS = 60.0
_SETTINGS = ("core.hooksPath=/dev/null", "core.attributesFile=/dev/null", "core.fsmonitor=false", "core.autocrlf=false")
_WORDS_OF_MODES = {"120000": "symlink", "160000": "submodule"}


class Reason(StrEnum):
    """Why a diff is refused."""

    EMPTY = "patch_empty"
    """No hunk, or nothing that it changes."""
    HUGE = "patch_huge"
    NOT_UTF8 = "patch_not_utf8"
    """The diff, or a file that it changes."""
    BINARY = "patch_binary"
    MALFORMED = "patch_malformed"
    """It cannot be read as a unified diff."""
    ABSOLUTE = "patch_absolute"
    TRAVERSES = "patch_traverses"
    """A path with `..`, or one that no tree can hold."""
    GIT_PATH = "patch_git_path"
    SYMLINK = "patch_symlink"
    SUBMODULE = "patch_submodule"
    MODE = "patch_mode"
    RENAME_ONTO_TEST = "patch_rename_onto_test"
    LINE_ENDS = "patch_line_ends"
    """It changes a file that has both LF and CRLF."""
    APPLY_FAILED = "apply_failed"
    """A proper diff that does not fit the tree."""


@record
class Refusal:
    """Why it goes no further."""

    reason: Reason
    why: str


@record
class Limits:
    """How large a diff may be."""

    max_bytes: int = 1 << 18
    max_files: int = 50
    max_lines: int = 5000
    """Lines in hunks, in all."""


@record
class Patch:
    """A diff that was read: what it does to which file."""

    sections: tuple[Section, ...]
    dropped: Mapping[str, str] = field(default_factory=dict)
    """Path -> why it was taken out."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that it touches, sorted."""
        return tuple(sorted({path for section in self.sections for path in section.paths}))


@record
class Applied:
    """What became of the tree."""

    files: Mapping[str, bytes | None]
    """Path -> new content, or None where the file is gone; only what changed."""
    patch: str
    """The diff as it was applied, with true headers."""
    dropped: Mapping[str, str]


def parse(raw: bytes, *, limits: Limits | None = None) -> Patch | Refusal:
    """The diff in a reply."""
    limits = limits or Limits()
    if len(raw) > limits.max_bytes:
        return Refusal(reason=Reason.HUGE, why=f"the diff has {len(raw)} bytes, more than {limits.max_bytes}")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        return Refusal(reason=Reason.NOT_UTF8, why=f"the diff is not UTF-8 (byte {error.start})")
    text = unfenced(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    if "\0" in text or re.search(r"^(GIT binary patch$|Binary files .* differ$)", text, flags=re.MULTILINE):
        return Refusal(reason=Reason.BINARY, why="the diff has binary content")
    try:
        sections = read(text)
    except Malformed as error:
        return Refusal(reason=Reason.MALFORMED, why=str(error))
    if not sections:
        return Refusal(reason=Reason.EMPTY, why="there is no diff in the reply")
    num_lines = sum(len(hunk.lines) for section in sections for hunk in section.hunks)
    if len(sections) > limits.max_files or num_lines > limits.max_lines:
        return Refusal(reason=Reason.HUGE, why=f"the diff has {len(sections)} files and {num_lines} lines")
    return next(filter(None, map(_forbidden, sections)), None) or Patch(sections=sections)


def filtered(patch: Patch, *, allow: Sequence[str] = ("*",)) -> Patch:
    """The patch without files outside `allow` (glob patterns, `*` also matches `/`) and without protected ones."""
    kept, dropped = [], dict(patch.dropped)
    for section in patch.sections:
        told = {path: why for path in section.paths if (why := why_dropped(path, allow=allow))}
        dropped |= told
        if not told:
            kept.append(section)
    return Patch(sections=tuple(kept), dropped=dropped)


def apply(patch: Patch, *, tree: Mapping[str, bytes] | Path) -> Applied | Refusal:
    """The tree with the patch; `tree` is path -> content, or an uncompressed tar file.

    Raises:
        SandboxInfraError: git is not there or did not end; nothing was decided.
    """
    if not patch.sections:
        only = f" (dropped: {', '.join(sorted(patch.dropped))[:100]})" if patch.dropped else ""
        return Refusal(reason=Reason.EMPTY, why=f"nothing is left of the diff{only}")
    try:
        held, links = _held(tree, patch.paths)
        for path in patch.paths:
            if any(link == path or path.startswith(f"{link}/") for link in links):
                raise _Refused(Reason.SYMLINK, f"{path} is, or lies behind, a symbolic link")
        fitted = [_fitted(section, held) for section in patch.sections]
        files = _by_git(fitted, held)
    except _Refused as error:
        return Refusal(reason=error.reason, why=error.why)
    if not files:
        return Refusal(reason=Reason.EMPTY, why="the diff changes nothing")
    return Applied(files=files, patch="".join(one.text(*one.paths) for one in fitted), dropped=patch.dropped)


class _Refused(Exception):
    def __init__(self, reason: Reason, why: str) -> None:
        super().__init__(why)
        self.reason, self.why = reason, why


@record
class _Fitted:
    """A section with its place in the tree known to the line."""

    section: Section
    header: str
    body: str

    @property
    def paths(self) -> tuple[str, str]:
        old, new = self.section.old, self.section.new
        return old or new or "", new or old or ""

    def text(self, old: str, new: str) -> str:
        """As a diff, under these names."""
        first = "/dev/null" if self.section.old is None else f"a/{old}"
        last = "/dev/null" if self.section.new is None else f"b/{new}"
        names = f"--- {first}\n+++ {last}\n" if self.body else ""
        return f"diff --git a/{old} b/{new}\n{self.header}{names}{self.body}"


def _forbidden(section: Section) -> Refusal | None:
    """Why a section is refused for what it is, whatever the tree holds."""
    for mode in section.modes:
        if mode in _WORDS_OF_MODES:
            reason = Reason(f"patch_{_WORDS_OF_MODES[mode]}")
            return Refusal(reason=reason, why=f"{section.paths[0]} would be a {_WORDS_OF_MODES[mode]}")
    if section.changes_mode or any(mode != "100644" for mode in section.modes):
        return Refusal(reason=Reason.MODE, why=f"the diff sets the mode of {section.paths[0]}")
    for path in section.paths:
        refused = _bad_path(path)
        if refused is not None:
            return refused
    if section.old and section.new and section.old != section.new and (is_test(section.new) or is_test(section.old)):
        why = f"{section.old} would be renamed to {section.new}, and a test is no place for that"
        return Refusal(reason=Reason.RENAME_ONTO_TEST, why=why)
    return None


def _bad_path(path: str) -> Refusal | None:
    shown = "".join(c if c.isprintable() else "?" for c in path)[:100]
    parts = path.replace("\\", "/").split("/")
    if path.startswith(("/", "\\", "~")) or re.match(r"[A-Za-z]:", path):
        return Refusal(reason=Reason.ABSOLUTE, why=f"`{shown}` is an absolute path")
    if any(_is_git(part) for part in parts):
        return Refusal(reason=Reason.GIT_PATH, why=f"`{shown}` belongs to git")
    if "\\" in path or not path.isprintable() or any(part in ("", ".", "..") for part in parts):
        return Refusal(reason=Reason.TRAVERSES, why=f"`{shown}` is not a plain path inside the tree")
    return None


def _is_git(part: str) -> bool:
    """`.git` as any file system may understand it (case, ignorable characters, short names, trailing dots)."""
    plain = "".join(c for c in unicodedata.normalize("NFKC", part) if unicodedata.category(c) not in ("Cf", "Mn"))
    return plain.casefold().rstrip(" .").partition(":")[0] in (".git", "git~1")


def _held(tree: Mapping[str, bytes] | Path, paths: Sequence[str]) -> tuple[dict[str, bytes], frozenset[str]]:
    """Content of those of `paths` that the tree holds, and its links."""
    if not isinstance(tree, Path):
        return {path: tree[path] for path in paths if path in tree}, frozenset()
    held: dict[str, bytes] = {}
    links = set()
    with tarfile.open(tree, "r:") as packed:
        for entry in packed:
            name = entry.name.removeprefix("./")
            if entry.issym() or entry.islnk():
                links.add(name)
            elif entry.isreg() and name in paths:
                stream = packed.extractfile(entry)
                assert stream is not None
                held[name] = stream.read()
    return held, frozenset(links)


def _fitted(section: Section, held: Mapping[str, bytes]) -> _Fitted:
    """The section with every hunk at its place.

    Raises:
        _Refused: it does not fit.
    """
    if section.old is None:
        assert section.new is not None
        if section.new in held:
            raise _Refused(Reason.APPLY_FAILED, f"{section.new} is to be created, and is there already")
        body = "".join(_written(hunk.lines, at=0, last=-1, end="", bare=False) for hunk in section.hunks)
        return _Fitted(section=section, header="new file mode 100644\n", body=body)
    if section.old not in held:
        raise _Refused(Reason.APPLY_FAILED, f"there is no file {section.old}")
    if section.new not in (None, section.old) and section.new in held:
        raise _Refused(Reason.APPLY_FAILED, f"{section.new} is there already")
    lines, end, bare = _lines(section.old, held[section.old])
    placed = sorted(_places(section, lines), key=lambda one: one[0])
    if section.new is None and lines and not placed:
        raise _Refused(Reason.APPLY_FAILED, f"{section.old} is to be deleted, and the diff does not show its lines")
    body, shift = "", 0
    for index, (at, hunk) in enumerate(placed):
        if at + len(hunk.old) > min((other for other, _ in placed[index + 1 :]), default=len(lines)):
            raise _Refused(Reason.APPLY_FAILED, f"two hunks change the same lines of {section.old}")
        body += _written(hunk.lines, at=at, last=len(lines) - 1, end=end, bare=bare, shift=shift)
        shift += len(hunk.new) - len(hunk.old)
    return _Fitted(section=section, header="deleted file mode 100644\n" if section.new is None else "", body=body)


def _lines(path: str, content: bytes) -> tuple[list[str], str, bool]:
    """Lines of a file without their ends, what they have before the newline, and whether the last one has none."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise _Refused(Reason.NOT_UTF8, f"{path} is not UTF-8") from None
    crlf = text.count("\r\n")
    if crlf and crlf != text.count("\n"):
        raise _Refused(Reason.LINE_ENDS, f"{path} has lines that end in LF and lines that end in CRLF")
    lines = (text.replace("\r\n", "\n") if crlf else text).split("\n")
    bare = bool(lines.pop())
    if bare:
        lines = text.replace("\r\n", "\n").split("\n")
    return lines, "\r" if crlf else "", bare


def _places(section: Section, lines: list[str]) -> Iterator[tuple[int, Hunk]]:
    """The index of the first old line of every hunk that changes something."""
    for number, hunk in enumerate(section.hunks, start=1):
        if hunk.old == hunk.new and not any(line.bare for line in hunk.lines if line.kind != " "):
            continue
        old, stated = list(hunk.old), hunk.start
        what = f"hunk {number} of {section.old}"
        if not old:
            if stated is None or stated > len(lines):
                raise _Refused(Reason.APPLY_FAILED, f"{what} has no old line and does not say where it goes")
            yield stated, hunk
            continue
        fits = [at for at in range(len(lines) - len(old) + 1) if lines[at : at + len(old)] == old]
        if stated is not None and stated - 1 in fits:
            yield stated - 1, hunk
        elif len(fits) == 1:
            yield fits[0], hunk
        else:
            said = f"fits in {len(fits)} places" if fits else f"has lines that are not in it: `{_missing(old, lines)}`"
            raise _Refused(Reason.APPLY_FAILED, f"{what} {said}")


def _missing(old: Sequence[str], lines: Sequence[str]) -> str:
    return next((line for line in old if line not in lines), old[0]).strip()[:60]


def _written(lines: Sequence[Line], *, at: int, last: int, end: str, bare: bool, shift: int = 0) -> str:
    """A hunk with a true header and true marks of a missing newline, which only the last line of a file may lack."""
    lines = list(lines)
    num_old = sum(line.kind != "+" for line in lines)
    reaches_end = at + num_old - 1 == last or last < 0
    if bare and reaches_end and num_old:
        final = max(i for i, line in enumerate(lines) if line.kind != "+")
        if lines[final].kind == " " and final < len(lines) - 1:
            # note: what follows a line without newline gives it one, so it is changed, not context.
            lines[final : final + 1] = [dataclasses.replace(lines[final], kind=kind, bare=False) for kind in "-+"]
    num_new = sum(line.kind != "-" for line in lines)
    # note: git looks first where the new start says; for a pure removal it would write one less, and look there.
    first_old, first_new = at + (num_old > 0), at + shift + (num_new > 0 or at + shift > 0)
    parts = [f"@@ -{first_old},{num_old} +{first_new},{num_new} @@\n"]
    seen_old = 0
    final_new = max((i for i, line in enumerate(lines) if line.kind != "-"), default=-1)
    for index, line in enumerate(lines):
        seen_old += line.kind != "+"
        is_last_old = line.kind != "+" and at + seen_old - 1 == last
        is_bare = bare if is_last_old else line.kind == "+" and line.bare and index == final_new and reaches_end
        parts.append(f"{line.kind}{line.text}" + ("\n\\ No newline at end of file\n" if is_bare else f"{end}\n"))
    return "".join(parts)


def _by_git(fitted: Sequence[_Fitted], held: Mapping[str, bytes]) -> dict[str, bytes | None]:
    """What `git apply` makes of the files, which lie in a private folder under numbers."""
    with tempfile.TemporaryDirectory(prefix="selfplay-patch-") as folder:
        root = Path(folder, "tree")
        root.mkdir()
        numbers = {str(index): one for index, one in enumerate(fitted)}
        for number, one in numbers.items():
            if one.section.old is not None or not one.body:
                (root / number).write_bytes(held[one.section.old] if one.section.old else b"")
        text = "".join(one.text(number, number) for number, one in numbers.items() if one.body)
        if text:
            _run_git(text.encode(), root, {number: one.paths[1] for number, one in numbers.items()})
        files: dict[str, bytes | None] = {}
        for number, one in numbers.items():
            section = one.section
            if section.old is not None and section.new != section.old:
                files[section.old] = None
            if section.new is not None:
                content = (root / number).read_bytes()
                if content != held.get(section.new):
                    files[section.new] = content
        return files


def _run_git(text: bytes, root: Path, names: Mapping[str, str]) -> None:
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    argv = ["git", *settings, "apply", "--unidiff-zero", "--whitespace=nowarn", "--no-ignore-whitespace", "-"]
    # note: nothing of the user's environment, and no repository to be found above the folder.
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(root.parent), "LC_ALL": "C"}
    environment |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1"}
    environment |= {"GIT_CEILING_DIRECTORIES": str(root.parent), "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(argv, cwd=root, env=environment, input=text, capture_output=True, timeout=GIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxInfraError(f"git apply did not run: {error}", hint="apt-get install -y git") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["git gave no reason"]
        line = re.sub(r"\b(\d+)(?=:)", lambda found: names.get(found[1], found[1]), said[0].removeprefix("error: "))
        raise _Refused(Reason.APPLY_FAILED, f"git apply: {line[:200]}")
