"""Reads the attacks and the packages that they are tried on, and makes the trees that a judge gets.

Rows are TOML (`rows/`): `name`, `does` in one sentence, `origin`, and what is done to the tree with the bug: `append`
(to the module), `files`, `remove`, `links`, `pipes`, and a few that need the target: `empty_tests` (the test file with
empty tests), `empty_tests_at` (the same at another path), `clean_bytecode`, `odd_names`. `@@name@@` stands for a fact
of the target or a piece of `rows/snippets.toml`. No row may be accepted; a row of `process.toml` must be decided,
too. Targets (`targets/`) name the module, the clean and the buggy lines, the tests, and honest repairs, all of which
must be accepted.

What is not covered: judging (`judges`), trying all of them (`matrix`).
"""

from __future__ import annotations

import importlib.util
import io
import json
import marshal
import tarfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path, PurePosixPath
from typing import Any

from selfplay.games.code.source import Repository, fetch
from selfplay.types import record

HERE = Path(__file__).parent
_TARGET_KEYS = ("module", "function", "clean", "buggy", "special")


@record
class Target:
    """A package with one bug."""

    name: str
    repository: Repository
    """The clean tree."""
    module: str
    """Path of the file with the bug."""
    function: str
    clean: str
    """Lines of the clean file."""
    buggy: str
    """What stands in their place."""
    special: str
    """A definition of the function that knows the visible inputs only."""
    failing: tuple[str, ...]
    passing: tuple[str, ...]
    honest: Mapping[str, str]
    """Name -> lines in place of the clean ones, all of them right."""

    @property
    def tests(self) -> tuple[str, ...]:
        """What decides."""
        return (*self.failing, *self.passing)

    @property
    def test_file(self) -> str:
        """The file of the tests that fail."""
        return self.failing[0].partition("::")[0]


@record
class Case:
    """A candidate's tree: what differs from the tree with the bug."""

    name: str
    does: str
    origin: str
    group: str
    """The file of the row, or `honest`."""
    files: Mapping[str, bytes | None]
    """Path -> content; None: removed. Names that are no UTF-8 are surrogate-escaped."""
    links: Mapping[str, str] = field(default_factory=dict)
    pipes: tuple[str, ...] = ()
    slow: bool = False
    """It waits for a limit."""

    @property
    def honest(self) -> bool:
        """It must be accepted; all others must not."""
        return self.group == "honest"


def targets(names: Sequence[str], *, cache: Path, folder: Path) -> list[Target]:
    """The targets of these names, or all; `folder` is where packages that are part of a target are written.

    Raises:
        NotReady: a package is not in the cache, and the index cannot be reached.
    """
    return [_target(HERE / "targets" / f"{name}.toml", cache=cache, folder=folder) for name in names or known()]


def known() -> list[str]:
    """Names of all targets, the smallest first."""
    return sorted((path.stem for path in (HERE / "targets").glob("*.toml")), key=lambda name: (name != "toy", name))


def _target(path: Path, *, cache: Path, folder: Path) -> Target:
    told = tomllib.loads(path.read_text())
    source = told.get("source")
    if source is None:
        source = str(folder / path.stem)
        for name, text in told["files"].items():
            file = Path(source, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.removeprefix("\n"))
    target = Target(
        name=path.stem,
        repository=fetch(source, cache=cache),
        failing=tuple(told["failing"]),
        passing=tuple(told["passing"]),
        honest={row["name"]: row["code"] for row in told["honest"]},
        **{key: told[key] for key in _TARGET_KEYS},
    )
    assert target.repository.read(target.module).count(target.clean) == 1, f"{path.name}: `clean` is not there once"
    return target


def cases(target: Target) -> list[Case]:
    """Every honest repair of a target, then every attack on it."""
    clean = target.repository.read(target.module)
    found = [
        Case(
            name=name,
            does="an honest repair",
            origin="",
            group="honest",
            files={target.module: clean.replace(target.clean, code).encode()},
        )
        for name, code in target.honest.items()
    ]
    snippets = tomllib.loads((HERE / "rows" / "snippets.toml").read_text())
    facts = _facts(target)
    for path in sorted((HERE / "rows").glob("*.toml")):
        rows = tomllib.loads(path.read_text()).get("attack", [])
        found += [_case(row, path.stem, target=target, pieces={**snippets, **facts}) for row in rows]
    return found


def base(target: Target) -> dict[str, bytes]:
    """The tree with the bug."""
    files = {path: (target.repository.root / path).read_bytes() for path in target.repository.files}
    files[target.module] = buggy(target).encode()
    return files


def buggy(target: Target) -> str:
    """The module with the bug."""
    return target.repository.read(target.module).replace(target.clean, target.buggy)


def pack(files: Mapping[str, bytes], case: Case, archive: Path) -> None:
    """A tar of a tree with a case laid over: its files, links and pipes."""
    whole: dict[str, bytes | None] = {**files, **case.files}
    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape") as packed:
        for path, content in whole.items():
            if content is not None and path not in case.links and path not in case.pipes:
                entry = tarfile.TarInfo(path)
                entry.size = len(content)
                packed.addfile(entry, io.BytesIO(content))
        for path in (*case.links, *case.pipes):
            entry = tarfile.TarInfo(path)
            entry.type = tarfile.SYMTYPE if path in case.links else tarfile.FIFOTYPE
            entry.linkname = case.links.get(path, "")
            packed.addfile(entry)


def _facts(target: Target) -> dict[str, str]:
    parent = PurePosixPath(target.test_file).parent
    folder = "" if str(parent) == "." else f"{parent}/"
    return {
        "module": target.module,
        "function": target.function,
        "special": target.special,
        "tests": json.dumps(target.tests),
        "test_file": target.test_file,
        "test_folder": folder,
        "up": "../" * folder.count("/"),
        # note: a Cyrillic letter that looks like the Latin one.
        "lookalike": target.test_file.replace("e", "\u0435"),
        "two_megabytes": "x" * (2 << 20),
    }


def _case(row: Mapping[str, Any], group: str, *, target: Target, pieces: Mapping[str, str]) -> Case:
    def filled(text: str) -> str:
        for _ in range(3):  # note: pieces hold pieces
            for name, piece in pieces.items():
                text = text.replace(f"@@{name}@@", piece)
        return text

    files: dict[str, bytes | None] = {
        filled(path): filled(text).removeprefix("\n").encode() for path, text in row.get("files", {}).items()
    }
    if "append" in row:
        files[target.module] = (buggy(target) + "\n\n" + filled(row["append"])).encode()
    files |= {filled(path): None for path in row.get("remove", [])}
    if row.get("empty_tests"):
        files[target.test_file] = _emptied(target)
    if "empty_tests_at" in row:
        files[filled(row["empty_tests_at"])] = _emptied(target)
    if row.get("clean_bytecode"):
        files[importlib.util.cache_from_source(target.module)] = _compiled(target)
    if row.get("odd_names"):
        files |= {"notes-\udcff\udcfe.txt": b"", "\udcff/test_odd.py": b"def test(): pass\n"}
    return Case(
        name=row["name"],
        does=row["does"],
        origin=row["origin"],
        group=group,
        files=files,
        links={filled(path): filled(to) for path, to in row.get("links", {}).items()},
        pipes=tuple(filled(path) for path in row.get("pipes", [])),
        slow=bool(row.get("slow")),
    )


def _emptied(target: Target) -> bytes:
    text = ""
    for test in target.tests:
        *outer, name = test.split("::")[1:]
        text += "".join(f"class {one}:\n" for one in outer)
        text += f"{'    ' * len(outer)}def {name}({'self' if outer else ''}): pass\n"
    return text.encode()


def _compiled(target: Target) -> bytes:
    """Bytecode of the clean module that Python does not check against the source (PEP 552)."""
    code = compile(target.repository.read(target.module), target.module, "exec")
    return importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + marshal.dumps(code)
