"""Makes canaries of a trusted test file: tests under random names whose outcomes are known beforehand.

A report that is forged by the code under test says that tests passed. So a verdict rests on tests which a forger
cannot tell apart: for each chosen test an intact copy that must pass, copies that expect something else and must fail,
and one test that must fail with a nonce in its message (research note `sandboxes.md` §5.3, protocol C).

What is covered: functions, methods of plain and unittest classes (nested and inherited inside the file), fixtures,
parameters (one set is kept), decorators. The module that is written holds the whole file, so imports and helpers are
as they were, and belongs beside it, so that relative imports and conftest files are too. Names are made of the suite's
own words. All drawn from `rng`: equal draws give equal modules.

What is not covered: doctests, tests that a file imports or makes at run time (named in `left_out`), tests that look at
their own name or file (their copies fail on the clean tree, and `proved` takes them out), running anything.

Example:
    >>> source = "def test_one():\\n    assert 1 + 1 == 2\\n"
    >>> made = canaries_of(source, ["test_one"], path="tests/test_a.py", nonce="k7", rng=random.Random(0))
    >>> [(one.kind, one.expect) for one in made.canaries][-1]
    ('nonce', 'failed')
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import random
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Literal

from selfplay.games.code.expectations import HELPER, Changed, Test, changed
from selfplay.types import record

MUTANTS = 3
"""Changed copies of one test."""
_FILLERS = (
    "small",
    "empty",
    "order",
    "value",
    "nested",
    "result",
    "items",
    "basic",
    "range",
    "single",
    "mixed",
    "plain",
)
_Blocks = (ast.If, ast.Try, ast.With)


@record
class Canary:
    """One test whose outcome is known."""

    node: str
    """Its id for pytest."""
    of: str
    """The test that it is made of, as it was named; empty for the nonce's."""
    kind: Literal["clone", "mutant", "nonce"]
    expect: Literal["passed", "failed"]
    what: str = ""
    """What a mutant expects instead, for people."""
    sure: bool = True
    """Nothing that is honest and passes the test does otherwise; False where other arguments are given."""


@record
class Canaries:
    """A module of them."""

    of: str
    """The file that it is made of."""
    path: str
    """Where it belongs: beside the file that it is made of."""
    text: str
    nonce: str
    canaries: tuple[Canary, ...]
    left_out: Mapping[str, str]
    """Names that nothing was made of -> why."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The exact set of ids that a report must hold, in the module's order."""
        return tuple(canary.node for canary in self.canaries)


def canaries_of(
    source: str,
    names: Sequence[str],
    *,
    path: str,
    nonce: str,
    rng: random.Random,
    most: int = MUTANTS,
    taken: Collection[str] = (),
) -> Canaries:
    """Canaries of the tests `names` (ids without the file) of the test file `source` at `path`.

    The module has none of the names of the files `taken`.

    Raises:
        ValueError: the file cannot be parsed or written again.
    """
    tree = _parsed(source)
    namer = _Namer(tree, rng)
    helper = namer.like("check_value")
    left_out: dict[str, str] = {}
    made: list[tuple[Canary, Test]] = []
    places: list[tuple[list[ast.stmt], Test, list[Test]]] = []
    file = PurePosixPath(path)
    place = str(file.with_name(namer.like_module(file.stem, taken={PurePosixPath(one).name for one in taken})))
    for function, chosen in _grouped(names, rng).items():
        found = _found(tree.body, function.split("::"), tree.body)
        if found is None:
            left_out |= dict.fromkeys(chosen, "it is not defined as a function in the file")
            continue
        body, test = found
        copies = _copies(test, chosen[0], function=function, namer=namer, helper=helper, most=most)
        rng.shuffle(copies)
        prefix = "::".join([place, *function.split("::")[:-1]])
        parameters = chosen[0][len(function) :]
        made += [(_at(canary, f"{prefix}::{twin.name}{parameters}"), twin) for canary, twin in copies]
        places.append((body, test, [twin for _, twin in copies]))
    for body, test, twins in places:
        at = next(index for index, node in enumerate(body) if node is test)
        body[at + 1 : at + 1] = twins
    _trim(tree.body, kept={id(twin) for _, _, twins in places for twin in twins}, used=_used(tree))
    failing = _raising(namer.like("test_value"), nonce)
    tree.body.append(failing)
    helped = HELPER.format(name=helper, number=rng.randrange(3, 98), word=rng.choice("abcdefghkmnoprstuvw"))
    tree.body += ast.parse(helped).body
    last = Canary(node=f"{place}::{failing.name}", of="", kind="nonce", expect="failed")
    canaries = (*(canary for canary, _ in made), last)
    return Canaries(of=path, path=place, text=_written(tree), nonce=nonce, canaries=canaries, left_out=left_out)


def proved(made: Canaries, *, passed: Collection[str], failed: Mapping[str, str]) -> Canaries:
    """Those that did on the clean tree what they must, and whose clone did; `failed` is id -> message.

    A test without a clone that passes and a mutant that fails is in `left_out` afterwards. The module stays as it is.
    """
    good = {canary.node for canary in made.canaries if not _wrong(canary, made.nonce, passed=passed, failed=failed)}
    cloned = {canary.of for canary in made.canaries if canary.kind == "clone" and canary.node in good}
    kept = tuple(c for c in made.canaries if c.node in good and (c.kind == "nonce" or c.of in cloned))
    mutated = {canary.of for canary in kept if canary.kind == "mutant"}
    left_out = dict(made.left_out)
    for canary in made.canaries:
        if canary.kind == "clone" and canary.of not in cloned:
            left_out[canary.of] = "its copy does not pass on the clean tree"
        elif canary.kind == "clone" and canary.of not in mutated:
            left_out[canary.of] = "no changed copy of it fails on the clean tree"
    return dataclasses.replace(made, canaries=kept, left_out=left_out)


def why_forged(made: Canaries, *, passed: Collection[str], failed: Mapping[str, str]) -> str:
    """The first canary that did not do what it must, in one sentence; empty where all did.

    To be asked where the tests themselves passed: code that is wrong and honest may make a changed copy pass. A clone
    that fails is no forgery either: the candidate is wrong, and its test says so.
    """
    for canary in made.canaries:
        said = _wrong(canary, made.nonce, passed=passed, failed=failed)
        if said and canary.kind != "clone" and (canary.sure or canary.node not in passed):
            return said
    return ""


def why_odd(made: Canaries, *, passed: Collection[str]) -> str:
    """The first changed copy that passed though the original makes it fail, where that is no proof of a forgery."""
    for canary in made.canaries:
        if canary.kind == "mutant" and not canary.sure and canary.node in passed:
            return f"a copy of {canary.of} with other arguments passed, and the original fails it ({canary.what})"
    return ""


def _wrong(canary: Canary, nonce: str, *, passed: Collection[str], failed: Mapping[str, str]) -> str:
    what = {"clone": "a copy", "mutant": "a changed copy", "nonce": "the nonce's test"}[canary.kind]
    of = f" of {canary.of}" if canary.of else ""
    if canary.node not in passed and canary.node not in failed:
        return f"{what}{of} did not run"
    if (canary.node in passed) != (canary.expect == "passed"):
        return f"{what}{of} {'passed' if canary.node in passed else 'failed'}, and must not ({canary.what or 'intact'})"
    if canary.kind == "nonce" and nonce not in failed[canary.node]:
        return f"{what} failed with other words than its own"
    return ""


class _Namer:
    """Makes names of the words of a file."""

    def __init__(self, tree: ast.Module, rng: random.Random) -> None:
        self.rng = rng
        named = [n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)]
        self.taken = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | set(named)
        self.taken |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        words = {word.lower() for name in named for word in re.findall(r"[A-Z]?[a-z]{2,}", name)}
        words = {word for word in words if word not in ("test", "tests", "self", "setup", "teardown", "init")}
        self.words = sorted(words | set(_FILLERS if len(words) < 12 else ()))

    def like(self, name: str) -> str:
        """A new name with the first part of `name`, in its manner."""
        while True:
            words = self.rng.sample(self.words, self.rng.choice((2, 2, 3)))
            head = re.match(r"[a-z]+", name)
            if "_" not in name and head is not None and head[0] != name:
                found = head[0] + "".join(word.capitalize() for word in words)
            else:
                found = "_".join([name.partition("_")[0] if "_" in name else "test", *words])
            if found not in self.taken:
                self.taken.add(found)
                return found

    def like_module(self, stem: str, *, taken: Collection[str]) -> str:
        """A new name for a file in the manner of `stem`."""
        while True:
            words = "_".join(self.rng.sample(self.words, 2))
            found = f"test_{words}" if stem.startswith("test") else f"{stem}_{words}"
            found = f"{words}_test" if stem.endswith("_test") else found
            if f"{found}.py" not in taken:
                return f"{found}.py"


def _copies(
    test: Test, name: str, *, function: str, namer: _Namer, helper: str, most: int
) -> list[tuple[Canary, Test]]:
    """The clone and the mutants of one test, under new names; ids come later."""
    twins: list[tuple[Canary, Test]] = []
    chosen = _mixed(changed(test, helper=helper, rng=namer.rng), most)
    for found in (None, *chosen):
        twin = copy.deepcopy(test if found is None else found.test)
        twin.name = namer.like(test.name)
        kind: Literal["clone", "mutant"] = "clone" if found is None else "mutant"
        expect: Literal["passed", "failed"] = "passed" if found is None else "failed"
        sure = found is None or found.kind != "argument"
        what = found.what if found else ""
        twins.append((Canary(node="", of=name, kind=kind, expect=expect, what=what, sure=sure), twin))
    return twins


def _mixed(found: Sequence[Changed], most: int) -> list[Changed]:
    """The first ones, which are the strongest, and at least one of the opposite kind where there is one."""
    chosen = list(found[:most])
    opposite = next((one for one in found[most:] if one.kind == "opposite"), None)
    if opposite is not None and most > 1 and not any(one.kind == "opposite" for one in chosen):
        chosen[-1] = opposite
    return chosen


def _at(canary: Canary, node: str) -> Canary:
    return dataclasses.replace(canary, node=node)


def _grouped(names: Sequence[str], rng: random.Random) -> dict[str, list[str]]:
    """Function -> its names, the one set of parameters that is kept first."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.partition("[")[0], []).append(name)
    for group in groups.values():
        rng.shuffle(group)
    return groups


def _found(body: list[ast.stmt], parts: Sequence[str], top: list[ast.stmt]) -> tuple[list[ast.stmt], Test] | None:
    """The list that holds a test, and the test; the last definition of a name counts, as for Python."""
    for block, node in reversed(list(_statements(body))):
        if len(parts) == 1 and isinstance(node, Test) and node.name == parts[0]:
            return block, node
        if len(parts) > 1 and isinstance(node, ast.ClassDef) and node.name == parts[0]:
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            inherited = (_found(top, [base, *parts[1:]], top) for base in bases if base != node.name)
            return _found(node.body, parts[1:], top) or next((found for found in inherited if found), None)
    return None


def _statements(body: list[ast.stmt]) -> Iterator[tuple[list[ast.stmt], ast.stmt]]:
    """Every statement with the list that it is in, those in blocks at the same level included."""
    for node in body:
        yield body, node
        if isinstance(node, _Blocks):
            for part in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, part, []))
            for handler in getattr(node, "handlers", []):
                yield from _statements(handler.body)


def _used(tree: ast.Module) -> set[str]:
    """Every name and word that the file uses somewhere."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            used |= set(re.findall(r"\w+", node.value))
    return used


def _trim(body: list[ast.stmt], *, kept: Collection[int], used: Collection[str]) -> None:
    """Take out the tests that are not asked for, so that a module is compiled sooner; fixtures and helpers stay."""
    for node in list(body):
        if isinstance(node, ast.ClassDef):
            _trim(node.body, kept=kept, used=used)
            if not node.body:
                node.body.append(ast.Pass())
        elif isinstance(node, Test) and node.name.startswith("test") and not (id(node) in kept or node.name in used):
            body.remove(node)


def _raising(name: str, nonce: str) -> ast.FunctionDef:
    [made] = ast.parse(f"def {name}():\n    raise AssertionError({nonce!r})\n").body
    assert isinstance(made, ast.FunctionDef)
    return made


def _parsed(source: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"the test file cannot be parsed: {error}") from error


def _written(tree: ast.Module) -> str:
    try:
        return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    except RecursionError as error:
        raise ValueError("the test file cannot be written again: it is nested too deep") from error
