"""Tasks that others made, in the files as their makers wrote them, as bugs to be proved (`planted`).

    SWE-bench       rows that `selfplay export --format swebench` wrote, as JSON lines or one array: `source` and
                    `bug_patch` make the tree with the bug
    QuixBugs        a folder with `python_programs/` and `correct_python_programs/`, and tests in `python_testcases/`
                    or cases in `json_testcases/`
    HumanEval       JSON lines with `prompt`, `canonical_solution`, `test` (a `check(candidate)`) and `entry_point`: the
                    function is to be written

The last two become a repository of their own in the cache: the right programs with their tests. A row of SWE-bench's
own data set needs an image of its repository, which no sandbox here has, and is refused. A row whose bug is in several
functions is none for the single-turn form; it is left out, with the reason.

Not here: proving (`planted`), who writes whole programs (`written`), files of questions (`questions`).
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from selfplay.errors import NotFound, NotReady, UserError
from selfplay.evaluation.planted import Plant
from selfplay.evaluation.rows import rows_of
from selfplay.games.code import patches
from selfplay.games.code.source import fetch, is_test
from selfplay.games.code.survey import functions_of
from selfplay.types import digest, record

HINT = (
    "what can be read: tasks and SWE-bench rows of `selfplay export`, a folder of QuixBugs' layout, HumanEval's JSON "
    "lines, questions; or a folder of such files of tasks"
)
PROGRAMS, RIGHT, TESTS, CASES = "python_programs", "correct_python_programs", "python_testcases", "json_testcases"
_CONFTEST = """import pytest

# The programs under python_programs are the right ones here; tests ask which they shall import.
pytest.use_correct = False
pytest.run_slow = False
"""


@record
class Brought:
    """What a file or folder holds, of one source."""

    source: str
    """As `game.source` names it."""
    plants: tuple[Plant, ...]
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Name of a bug -> the beginning of the program that is to be written; empty where functions are to be mended."""
    left_out: Mapping[str, str] = field(default_factory=dict)


def kind_of(path: Path) -> str:
    """`quixbugs`, `swebench`, `humaneval`, or empty where it is none of them."""
    if path.is_dir():
        return "quixbugs" if (path / PROGRAMS).is_dir() else ""
    try:
        row = next(rows_of(path, hint=HINT))[1]
    except (UserError, NotReady, NotFound, StopIteration):
        return ""
    if not isinstance(row, dict) or "schema" in row:
        return ""
    return "swebench" if "instance_id" in row else "humaneval" if "entry_point" in row else ""


def read(path: Path, *, cache: Path) -> tuple[Brought, ...]:
    """What `path` holds, a source each.

    Raises:
        NotFound, NotReady: it is not there, or cannot be read.
        UserError: it is of no known layout, or a row is not what it should be; its number is named.
    """
    if not path.exists():
        raise NotFound(f"no file or folder {path}", hint=HINT)
    kind = kind_of(path)
    if kind == "quixbugs":
        return (_quixbugs(path, cache=cache),)
    if kind == "humaneval":
        return (_humaneval(path, cache=cache),)
    if kind == "swebench":
        return tuple(_swebench(path, cache=cache))
    raise UserError(f"{path} is of no layout that is known", hint=HINT)


def _text(row: Any, key: str, *, path: Path, number: int) -> str:
    value = row.get(key) if isinstance(row, dict) else None
    if not isinstance(value, str) or not value:
        raise UserError(f"{path}, row {number}: `{key}` is missing, or no text", hint=HINT)
    return value


def _swebench(path: Path, *, cache: Path) -> Iterator[Brought]:
    """The rows by their source, in the file's order."""
    plants: dict[str, list[Plant]] = {}
    left_out: dict[str, dict[str, str]] = {}
    for number, row in rows_of(path, hint=HINT):
        name = _text(row, "instance_id", path=path, number=number)
        if "source" not in row or "bug_patch" not in row:
            raise UserError(
                f"{path}, row {number}: {name} has no `source` and `bug_patch`: a row of SWE-bench's own needs an "
                "image of its repository, which no sandbox here has",
                hint="rows that can be read here: selfplay export RUN --format swebench --to FILE",
            )
        source, patch = (_text(row, key, path=path, number=number) for key in ("source", "bug_patch"))
        mine = plants.setdefault(source, [])
        found = _broken(name, source, patch, cache=cache)
        if isinstance(found, Plant):
            mine.append(found)
        else:
            left_out.setdefault(source, {})[name] = found
    for source, mine in plants.items():
        yield Brought(source=source, plants=tuple(mine), left_out=left_out.get(source, {}))


def _broken(name: str, source: str, patch: str, *, cache: Path) -> Plant | str:
    """The one function that a patch breaks, as it reads then; else why there is none."""
    repository = fetch(source, cache=cache)
    parsed = patches.parse(patch.encode())
    applied = parsed if isinstance(parsed, patches.Refusal) else patches.apply(parsed, tree=repository.archive)
    if isinstance(applied, patches.Refusal):
        return f"its bug_patch does not apply to {source}: {applied.why}"
    changed: list[Plant] = []
    for path, content in applied.files.items():
        if path not in repository.files or not path.endswith(".py") or content is None:
            continue
        clean = {one.qualname: one for one in functions_of(repository.read(path), path=path)}
        changed += [
            Plant(name=name, path=path, qualname=one.qualname, source=one.source)
            for one in functions_of(content.decode(errors="replace"), path=path)
            if one.qualname in clean and clean[one.qualname].source != one.source and not is_test(path)
        ]
    return changed[0] if len(changed) == 1 else f"its bug is in {len(changed)} functions, and one can be shown"


def _quixbugs(path: Path, *, cache: Path) -> Brought:
    if not (path / RIGHT).is_dir():
        raise UserError(f"{path} has no {RIGHT}/, so that no test can be proved", hint=HINT)
    files: dict[str, str] = {"conftest.py": _CONFTEST, f"{PROGRAMS}/__init__.py": ""}
    for folder in (TESTS, CASES):
        for file in sorted((path / folder).rglob("*")) if (path / folder).is_dir() else []:
            if file.is_file() and file.suffix in (".py", ".json"):
                files[file.relative_to(path).as_posix()] = _of(file)
    for file in sorted(path.glob("*.py")):
        if file.name not in ("conftest.py", "setup.py"):
            files[file.name] = _of(file)
    plants: list[Plant] = []
    left_out: dict[str, str] = {}
    for broken in sorted((path / PROGRAMS).glob("*.py")):
        right = path / RIGHT / broken.name
        if broken.stem == "__init__" or broken.stem.endswith("_test"):
            continue
        if not right.is_file():
            left_out[broken.stem] = f"it has no right program in {RIGHT}/"
            continue
        place = f"{PROGRAMS}/{broken.name}"
        files[place] = _of(right)
        found = _differing(broken.stem, place, _of(right), _of(broken))
        if isinstance(found, str):
            left_out[broken.stem] = found
            continue
        name, cases = f"{TESTS}/test_{broken.stem}.py", f"{CASES}/{broken.stem}.json"
        if name not in files and cases in files:
            try:
                files[name] = _cases(broken.stem, files[cases])
            except ValueError as error:
                left_out[broken.stem] = f"{cases}, {error}"
                continue
        plants.append(found)
    if not plants:
        why = next(iter(left_out.values()), "there is no program")
        raise UserError(f"{path} holds no program with a bug in one function: {why}", hint=HINT)
    return Brought(source=_kept("quixbugs", files, cache), plants=tuple(plants), left_out=left_out)


def _of(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise NotReady(f"cannot read {file}: {error}", hint=f"look: ls -ld {file}") from error


def _differing(name: str, path: str, right: str, broken: str) -> Plant | str:
    """The one function that differs in two forms of a program."""
    clean = {one.qualname: one.source for one in functions_of(right, path=path)}
    found = {one.qualname: one.source for one in functions_of(broken, path=path)}
    if not clean or not found:
        return "it is no plain Python with functions"
    changed = [one for one in found if one in clean and found[one] != clean[one]]
    if len(changed) != 1 or set(clean) != set(found):
        return f"its forms differ in {len(changed)} functions, and one can be shown"
    return Plant(name=name, path=path, qualname=changed[0], source=found[changed[0]])


def _cases(name: str, text: str) -> str:
    """Tests of QuixBugs' JSON cases: a line [arguments, result] each; results of generators are compared as lists.

    Raises:
        ValueError: a line is none; its number is named.
    """
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number} is no JSON: {error}") from error
        if not isinstance(row, list) or len(row) != 2:
            raise ValueError(f"line {number} is not a list of arguments and result")
        rows.append(row)
    return (
        f"import pytest\n\nfrom {PROGRAMS}.{name} import {name}\n\n"
        f"CASES = {rows!r}\n\n\n"
        '@pytest.mark.parametrize("given, wanted", CASES)\n'
        "def test_case(given, wanted):\n"
        f"    found = {name}(*given) if isinstance(given, list) else {name}(given)\n"
        "    if hasattr(found, '__next__'):\n        found = list(found)\n"
        "    if isinstance(found, tuple):\n        found = list(found)\n"
        "    assert found == wanted\n"
    )


def _humaneval(path: Path, *, cache: Path) -> Brought:
    files: dict[str, str] = {"programs/__init__.py": ""}
    plants: list[Plant] = []
    prompts: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for number, row in rows_of(path, hint=HINT):
        prompt, test, entry = (_text(row, key, path=path, number=number) for key in ("prompt", "test", "entry_point"))
        name = str(row.get("task_id") or f"row {number}")
        if not isinstance(row.get("canonical_solution"), str):
            left_out[name] = "it has no `canonical_solution`, so that its tests cannot be proved"
            continue
        if not entry.isidentifier():
            raise UserError(f"{path}, row {number}: `entry_point` is {entry!r}, no name", hint=HINT)
        stem = re.sub(r"\W+", "_", f"p{number}_{entry}")
        place = f"programs/{stem}.py"
        files[place] = prompt + row["canonical_solution"].rstrip() + "\n"
        files[f"tests/test_{stem}.py"] = (
            f"from programs.{stem} import {entry}\n\n{test.rstrip()}\n\n\ndef test_{entry}():\n    check({entry})\n"
        )
        own = next((one for one in functions_of(files[place], path=place) if one.qualname == entry), None)
        head = _head(prompt, entry)
        if own is None or head is None:
            left_out[name] = f"its prompt and solution are no plain function `{entry}`"
            continue
        plants.append(Plant(name=name, path=place, qualname=entry, source=f"{head}    raise NotImplementedError\n"))
        prompts[name] = prompt
    if not plants:
        why = next(iter(left_out.values()), "it is empty")
        raise UserError(f"{path} holds no program that is to be written: {why}", hint=HINT)
    return Brought(source=_kept("humaneval", files, cache), plants=tuple(plants), prompts=prompts, left_out=left_out)


def _head(prompt: str, entry: str) -> str | None:
    """The function's signature and docstring."""
    text = prompt.rstrip() + "\n    pass\n"
    own = next((one for one in functions_of(text, path="p.py") if one.qualname == entry), None)
    return own.source.removesuffix("    pass\n") if own is not None and own.source.endswith("    pass\n") else None


def _kept(name: str, files: Mapping[str, str], cache: Path) -> str:
    """A folder in the cache with these files, made once; its path."""
    folder = cache / "external" / f"{name}-{digest(name, sorted(files.items()))[:16]}"
    if not folder.is_dir():
        aside = folder.with_name(f".{folder.name}.part")
        shutil.rmtree(aside, ignore_errors=True)
        for path, text in files.items():
            (aside / path).parent.mkdir(parents=True, exist_ok=True)
            (aside / path).write_text(text, encoding="utf-8")
        aside.rename(folder)
    return str(folder)


def names(brought: Sequence[Brought]) -> dict[str, str]:
    """What is left out of all of them -> why."""
    return {name: why for one in brought for name, why in one.left_out.items()}
