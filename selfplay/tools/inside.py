"""The program that the file tools run in the sandbox: looks at files, changes one, searches. Standard library only.

Sent as source to the sandbox's own interpreter (`python -I -S -c`) and run there as the candidate, in the work tree:
what a link leads to and what a regular expression costs is the candidate's affair. One request as JSON on standard
input, one answer as JSON on standard output: `{"text": ...}`, or `{"refused": ...}` where nothing was done, in words.

What is not covered: cutting answers to size (`text`, sent along), what a request may hold (`files`).
"""

import fnmatch
import json
import os
import re
import stat
import sys

from selfplay.tools.text import plain, shortened

TYPE_CHECKING = False
if TYPE_CHECKING:
    # note: known to type checkers by this name; `typing` and `collections` would cost milliseconds.
    from collections.abc import Iterator
    from typing import Any

MAX_FILE = 4 << 20
"""Largest file that is looked at, in bytes."""
MAX_ENTRIES = 2000
MAX_HITS = 1000
MAX_FILES = 50000
DEPTH = 2
"""Folders below the one that is listed."""
_LINE = 400
"""Characters of a line that a search shows."""
_CONTEXT = 3
"""Lines shown around what was changed."""
_SKIPPED = {".git", "__pycache__", ".pytest_cache", ".mypy_cache", "node_modules"}


class Refused(Exception):
    """Nothing was done; the message is a sentence for the policy."""


def place(path: str, workdir: str) -> str:
    """Where a path that the policy wrote lies: relative ones, and those below `workdir`, in the work tree."""
    if path == workdir or path.startswith(workdir + "/"):
        path = path[len(workdir) :].lstrip("/") or "."
    if not path or "\0" in path:
        raise Refused("a path is needed")
    return path


def inner(path: str, workdir: str) -> str:
    """The real path of a file in the work tree that may be changed."""
    root = os.path.realpath(".")
    real = os.path.realpath(place(path, workdir))
    if not real.startswith(root + os.sep):
        raise Refused(f"{path} is outside of the work tree {workdir}, where nothing can be changed with this tool")
    return real


def text_of(path: str, shown: str) -> str:
    """The text of a file."""
    try:
        # note: a pipe would wait for its writer.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Refused(f"{shown} is {'a folder' if os.path.isdir(path) else 'no plain file'}")
        if os.path.getsize(path) > MAX_FILE:
            raise Refused(f"{shown} has more than {MAX_FILE} bytes; use `bash`")
        with open(path, "rb") as file:
            raw = file.read(MAX_FILE + 1)
    except FileNotFoundError:
        raise Refused(f"there is no file {shown}{near(path)}") from None
    except OSError as error:
        raise Refused(f"{shown} cannot be read: {error.strerror}") from None
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise Refused(f"{shown} is not UTF-8 text; use `bash`") from None
    if "\0" in text:
        raise Refused(f"{shown} is a binary file; use `bash`")
    return text


def near(path: str) -> str:
    """What of that name is there, where it is only elsewhere."""
    found = [other for other, _ in walked(".") if os.path.basename(other) == os.path.basename(path)]
    return f"; did you mean {found[0]}?" if len(found) == 1 else ""


def written(path: str, text: str, shown: str) -> None:
    """Put a text in the place of a file, whole or not at all; the file keeps its mode."""
    aside = f"{path}.selfplay-{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        mode = stat.S_IMODE(os.stat(path).st_mode) if os.path.exists(path) else 0o644
        try:
            with open(aside, "xb") as file:
                file.write(text.encode())
            os.chmod(aside, mode)
            os.replace(aside, path)
        except BaseException:
            if os.path.exists(aside):
                os.unlink(aside)
            raise
    except OSError as error:
        raise Refused(f"{shown} cannot be written: {error.strerror}") from None


def numbered(lines: "list[str]", first: int) -> str:
    """Lines with their numbers, the first of which is `first`."""
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, start=first))


def lines_of(text: str) -> "list[str]":
    """Lines without their ends; a last one without newline counts."""
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def view(request: "dict[str, Any]") -> str:
    """A file with line numbers, or what a folder holds."""
    shown = request["path"]
    path = place(shown, request["workdir"])
    if os.path.isdir(path):
        return listed(path, shown)
    lines = lines_of(text_of(path, shown))
    if not lines:
        return f"[{shown} is empty]"
    first, last = request.get("first", 1), request.get("last", len(lines))
    if not 1 <= first <= min(last, len(lines)):
        raise Refused(f"{shown} has {len(lines)} lines, and {first} to {last} are not among them")
    last = min(last, len(lines))
    some = f"\n[lines {first} to {last} of {len(lines)}]" if (first, last) != (1, len(lines)) else ""
    return numbered(lines[first - 1 : last], first) + some


def listed(path: str, shown: str) -> str:
    """Names in a folder and in those below it."""
    names: list[str] = []
    more = 0
    for name, is_folder in walked(path, depth=DEPTH, hidden=False):
        if len(names) == MAX_ENTRIES:
            more += 1
        else:
            names.append(os.path.relpath(name, path) + ("/" if is_folder else ""))
    if not names:
        return f"[{shown} is an empty folder]"
    return "\n".join(names) + (f"\n[and {more} more]" if more else "")


def walked(path: str, *, depth: int = 50, hidden: bool = True) -> "Iterator[tuple[str, bool]]":
    """Paths below a folder by name, and whether each is a folder; no link is followed, caches and git's are left out.

    A list, not recursion: folders may be deeper than Python's stack.
    """
    todo = [(path, depth)]
    seen = 0
    while todo:
        folder, left = todo.pop()
        if folder != path:
            yield folder, True
        if not left:
            continue
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:
            continue
        below = []
        for entry in entries:
            seen += 1
            if entry.name in _SKIPPED or (not hidden and entry.name.startswith(".")) or seen > MAX_FILES:
                continue
            name = entry.name if folder == "." else os.path.join(folder, entry.name)
            if entry.is_dir(follow_symlinks=False):
                below.append((name, left - 1))
            else:
                yield name, False
        todo.extend(reversed(below))


def edit(request: "dict[str, Any]") -> str:
    """One place of a file replaced."""
    shown, old, new = request["path"], request["old"], request["new"]
    path = inner(shown, request["workdir"])
    text = text_of(path, shown)
    if "\r\n" in text and text.count("\r\n") == text.count("\n"):
        # note: a policy sees lines, not how they end.
        old, new = (part.replace("\r\n", "\n").replace("\n", "\r\n") for part in (old, new))
    if not old:
        raise Refused("`old` is empty; name the text that is to be replaced, or make a file with `create`")
    if old == new:
        raise Refused("`old` and `new` are equal: nothing would change")
    found = places(text, old)
    lines = [text.count("\n", 0, at) + 1 for at in found]
    if not found:
        raise Refused(f"`old` does not occur in {shown}{nearly(text, old)}")
    if len(found) > 1:
        where = ", ".join(map(str, lines[:10])) + (", ..." if len(lines) > 10 else "")
        raise Refused(f"`old` occurs {len(found)} times in {shown}, at lines {where}; add lines around it to say which")
    changed = text[: found[0]] + new + text[found[0] + len(old) :]
    written(path, changed, shown)
    first = max(1, lines[0] - _CONTEXT)
    some = lines_of(changed)[first - 1 : lines[0] + new.count("\n") + _CONTEXT]
    return f"[{shown} was changed at line {lines[0]}]\n{numbered(some, first)}"


def places(text: str, old: str) -> "list[int]":
    """Where `old` begins, overlapping places counted."""
    found: list[int] = []
    at = text.find(old)
    while at >= 0 and len(found) < MAX_HITS:
        found.append(at)
        at = text.find(old, at + 1)
    return found


def nearly(text: str, old: str) -> str:
    """Where it would occur if blanks at the ends of lines did not count."""
    wanted = [line.strip() for line in lines_of(old)]
    lines = [line.strip() for line in lines_of(text)]
    if not any(wanted):
        return ""
    for at in range(len(lines) - len(wanted) + 1):
        if lines[at : at + len(wanted)] == wanted:
            return f"; line {at + 1} differs from it in blanks only"
    first = next(line for line in wanted if line)
    at = next((at for at, line in enumerate(lines) if line == first), -1)
    return f"; line {at + 1} is like its first line, but what follows differs" if at >= 0 and len(wanted) > 1 else ""


def create(request: "dict[str, Any]") -> str:
    """A new file."""
    shown, text = request["path"], request["text"]
    path = inner(shown, request["workdir"])
    there = os.path.lexists(path)
    if os.path.isdir(path):
        raise Refused(f"{shown} is a folder")
    if there and not request.get("overwrite"):
        raise Refused(f"{shown} is there already; change it with `edit`, or say that it is to be overwritten")
    written(path, text, shown)
    return f"[{shown} was {'overwritten' if there else 'created'}: {len(lines_of(text))} lines]"


def search(request: "dict[str, Any]") -> str:
    """Lines that match, by path and line."""
    shown, pattern = request.get("path") or ".", request["pattern"]
    path = place(shown, request["workdir"])
    if not pattern:
        raise Refused("`pattern` is empty")
    try:
        wanted = re.compile(re.escape(pattern) if request.get("plain") else pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise Refused(f"`{pattern[:100]}` is no regular expression ({error}); set `plain` to search for text") from None
    if not os.path.exists(path):
        raise Refused(f"there is no {shown}{near(path)}")
    if os.path.isdir(path):
        files: Iterator[tuple[str, str]] = ((name, name) for name, is_folder in walked(path) if not is_folder)
    else:
        files = iter([(path, led(path, shown, request["workdir"]))])
    hits = []
    num_hits = num_files = 0
    for name, real in files:
        before = num_hits
        if request.get("names") and not fnmatch.fnmatch(os.path.basename(name), request["names"]):
            continue
        for number, line in enumerate(_readable(real), start=1):
            if wanted.search(line):
                num_hits += 1
                if num_hits <= MAX_HITS:
                    hits.append(f"{name}:{number}: {line if len(line) <= _LINE else line[:_LINE] + '...'}")
        num_files += num_hits > before
    if not hits:
        return f"[nothing in {shown} matches]"
    more = f", of which the first {MAX_HITS} are shown" if num_hits > MAX_HITS else ""
    return "\n".join(hits) + f"\n[{num_hits} lines in {num_files} files{more}]"


def led(path: str, shown: str, workdir: str) -> str:
    """The file that a path names, through a link in its place: whoever names a link means what it leads to."""
    if not os.path.islink(path):
        return path
    real, root = os.path.realpath(path), os.path.realpath(".")
    if not real.startswith(root + os.sep):
        raise Refused(f"{shown} is a link that leads out of the work tree {workdir}, where nothing is searched")
    return real


def _readable(path: str) -> "list[str]":
    """The lines of a text file; none of any other."""
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE:
            return []
        with open(path, "rb") as file:
            raw = file.read(MAX_FILE)
    except OSError:
        return []
    return [] if b"\0" in raw[:8192] else lines_of(raw.decode(errors="replace"))


VERBS = {"view": view, "edit": edit, "create": create, "search": search}


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    try:
        answer = {"text": shortened(plain(VERBS[request["verb"]](request)), request["limit"])}
    except Refused as refused:
        answer = {"refused": shortened(plain(str(refused)), request["limit"])}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
