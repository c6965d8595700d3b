"""Reads the text of a unified diff as models write it: forgiving in what a person would not notice, in nothing else.

What is covered: git's headers and plain `---`/`+++` ones, with or without `a/` and `b/`, quoted names, time stamps,
prose before and after, fences, hunk headers with wrong or no numbers (only the old start is kept, as a hint), blank
context lines that lost their space. A changed line that belongs to no hunk is an error: nothing is left out in silence.

What is not covered: combined diffs, copies, binary hunks; where a hunk goes and whether it may (`patches`).

Example:
    >>> read("--- m.py\\n+++ m.py\\n@@\\n-x = 1\\n+x = 2\\n")[0].hunks[0].new
    ('x = 2',)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from selfplay.types import record

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


class Malformed(ValueError):
    """It cannot be read; the message is one sentence."""


@record
class Line:
    """One line of a hunk."""

    kind: str
    """A space, `+` or `-`."""
    text: str
    bare: bool = False
    """It was marked to have no newline."""


@record
class Hunk:
    """Lines that are replaced by others."""

    start: int | None
    """The old start in its header, counted from 1, where it says one."""
    lines: tuple[Line, ...]

    @property
    def old(self) -> tuple[str, ...]:
        """What must be there."""
        return tuple(line.text for line in self.lines if line.kind != "+")

    @property
    def new(self) -> tuple[str, ...]:
        """What will be there."""
        return tuple(line.text for line in self.lines if line.kind != "-")


@record
class Section:
    """What is done to one file."""

    old: str | None
    """None: it is created."""
    new: str | None
    """None: it is deleted."""
    hunks: tuple[Hunk, ...]
    modes: tuple[str, ...] = ()
    """Every mode that is named."""
    changes_mode: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths touched, one or two."""
        return tuple(dict.fromkeys(path for path in (self.old, self.new) if path is not None))


def unfenced(text: str) -> str:
    """The diffs inside of Markdown fences, where there are any; else the text."""
    blocks = re.findall(r"^(`{3,}|~{3,})[^\n]*\n(.*?)(?:^\1[ \t]*$|\Z)", text, flags=re.MULTILINE | re.DOTALL)
    diffs = [body for _, body in blocks if re.search(r"^(diff --git |--- |@@)", body, flags=re.MULTILINE)]
    return "".join(diffs) if diffs else text


def read(text: str) -> tuple[Section, ...]:
    """The sections of a diff with newline line ends; files named twice are joined.

    Raises:
        Malformed: a hunk without a file, a change outside a hunk, a path that is missing or cannot be read.
    """
    reader = _Reader(text.split("\n"))
    sections: dict[tuple[str | None, str | None], Section] = {}
    for section in reader.sections():
        known = sections.get((section.old, section.new))
        if known is not None:
            if None in (section.old, section.new):
                raise Malformed(f"{section.paths[0]} is created or deleted twice")
            section = Section(old=section.old, new=section.new, hunks=known.hunks + section.hunks)
        sections[section.old, section.new] = section
    touched = [path for section in sections.values() for path in section.paths]
    if len(touched) != len(set(touched)):
        raise Malformed("a file is changed in two different ways")
    return tuple(sections.values())


class _Reader:
    """Goes over the lines once."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.at = 0

    def sections(self) -> list[Section]:
        found = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.startswith(("diff --cc ", "diff --combined ", "@@@ ")):
                raise Malformed("combined diffs are not taken")
            if self._is_header(self.at):
                found.append(self._section())
            elif line.startswith("@@"):
                raise Malformed(f"a hunk without a file: `{line[:60]}`")
            elif found and re.match(r"[+-]", line) and line.strip() not in ("--", "---"):
                raise Malformed(f"a changed line that belongs to no hunk: `{line[:60]}`")
            else:
                self.at += 1
        return found

    def _is_header(self, at: int) -> bool:
        """A `diff --git` line, or `---` and `+++` lines with a hunk below."""
        three = [*self.lines[at : at + 3], "", "", ""][:3]
        return three[0].startswith("diff --git ") or (
            three[0].startswith("--- ") and three[1].startswith("+++ ") and three[2].startswith("@@")
        )

    def _section(self) -> Section:
        head, modes, changes_mode = "", [], False
        old = new = None
        while self.at < len(self.lines):
            line = self.lines[self.at]
            word, _, rest = line.partition(" ")
            if word == "diff" and not head:
                head = rest
            elif word in ("old", "new") and rest.startswith("mode "):
                modes.append(rest[5:].strip())
                changes_mode = True
            elif word in ("new", "deleted") and rest.startswith("file mode "):
                modes.append(rest[10:].strip())
                old, new = (None, new) if word == "new" else (old, None)
                head += f" {word}"
            elif word == "index" and (mode := re.search(r" (1[26]0000)$", rest)):
                modes.append(mode[1])
            elif word == "rename":
                side, _, name = rest.partition(" ")
                old, new = (_name(name), new) if side == "from" else (old, _name(name))
            elif word == "copy":
                raise Malformed("copies are not taken")
            elif word not in ("index", "similarity", "dissimilarity"):
                break
            self.at += 1
        if self.at + 1 < len(self.lines) and self.lines[self.at].startswith("--- "):
            old, new = _pair(self.lines[self.at], self.lines[self.at + 1])
            self.at += 2
        elif old is None or new is None:
            old, new = _from_head(head)
        if old is None and new is None:
            raise Malformed("a section of the diff names no file")
        return Section(old=old, new=new, hunks=self._hunks(), modes=tuple(modes), changes_mode=changes_mode)

    def _hunks(self) -> tuple[Hunk, ...]:
        hunks = []
        while self.at < len(self.lines) and self.lines[self.at].startswith("@@"):
            header = re.match(r"@@ -(\d{1,9})(?:,\d{1,9})? ", self.lines[self.at])
            self.at += 1
            lines = self._body()
            if lines:
                hunks.append(Hunk(start=int(header[1]) if header else None, lines=tuple(lines)))
        return tuple(hunks)

    def _body(self) -> list[Line]:
        lines: list[Line] = []
        blank = 0
        while self.at < len(self.lines) and not self._is_header(self.at):
            line = self.lines[self.at]
            if line.startswith("\\") and lines:
                last = lines.pop()
                lines.append(Line(kind=last.kind, text=last.text, bare=True))
            elif line == "":
                blank += 1
            elif line[0] in " +-":
                # note: blank lines count as context only where more of the hunk follows them.
                lines += [Line(kind=" ", text="")] * blank
                blank = 0
                lines.append(Line(kind=line[0], text=line[1:]))
            else:
                break
            self.at += 1
        return lines


def _pair(first: str, second: str) -> tuple[str | None, str | None]:
    """The two paths of `---` and `+++` lines."""
    if not second.startswith("+++ "):
        raise Malformed(f"a `---` line without `+++` below it: `{first[:60]}`")
    old, new = _name(first[4:]), _name(second[4:])
    both = None not in (old, new)
    if old is not None and old.startswith("a/") and not (both and old == new):
        old = old[2:]
    if new is not None and new.startswith("b/") and not (both and f"{old}" == new):
        new = new[2:]
    return old, new


def _from_head(head: str) -> tuple[str | None, str | None]:
    """The paths of a `diff --git` line, for sections without hunks."""
    found = re.match(r"--git a/(.+) b/\1( new| deleted)?$", head)
    if found is None:
        raise Malformed(f"a section of the diff without paths: `diff {head[:60]}`")
    return (None if found[2] == " new" else found[1]), (None if found[2] == " deleted" else found[1])


def _name(text: str) -> str | None:
    """A path as a diff's header writes it; None for /dev/null."""
    text = text.strip()
    text = _unquoted(text) if text.startswith('"') else text.partition("\t")[0].rstrip()
    if text == "/dev/null":
        return None
    while text.startswith("./"):
        text = text[2:]
    if not text:
        raise Malformed("a header of the diff names no file")
    return text


def _unquoted(text: str) -> str:
    """A name in git's quotes."""
    found = re.match(r'"((?:[^"\\]|\\.)*)"', text)
    if found is None:
        raise Malformed(f"a quoted name does not end: `{text[:60]}`")
    octal = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8) & 255), found[1])
    plain = re.sub(r"\\(.)", lambda code: _ESCAPES.get(code[1], code[1]), octal)
    try:
        return plain.encode("latin-1").decode()
    except UnicodeEncodeError:
        return plain
    except UnicodeDecodeError:
        raise Malformed("a name in the diff is not UTF-8") from None
