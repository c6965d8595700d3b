"""Runs a repository's suite on the clean tree and finds what can be played: functions that stable tests reach.

It is the stage DISCOVER of Self-play SWE-RL (arXiv 2512.18552), without a model: how the tests are started is read from
the repository's settings (`suite`), their results are read by our own program (`inside`, `report`), and what is found
(tests, who calls what, what was left out) is kept, so that it is done once for a repository. Proposers are told it.

What is covered: two runs of the whole suite (a test is stable when it passes in both; of a suite that does not end
within its time, a half, a quarter or an eighth of its files, drawn by name), tests that fail for want of a network,
which do not count against the suite, which functions of the package each stable test calls, and the functions that are
short and plain enough to be shown to a player, each with at most `MOST_TESTS` of its tests; and an archive of the tree
with compiled test files, which makes each later run faster. Kept in the cache by digest of the tree, the machine's
Python, the rules, and limits of its sandboxes that are not the usual ones.

What is not covered: tests that pass only together with others, which the first look at each function finds (`bugs`);
calls made in other processes.

Example:
    >>> (await survey(verifier, rules=Rules(), cache=cache)).functions[0].name  # doctest: +SKIP
    'toolz/dicttoolz.py::merge'
"""

from __future__ import annotations

import ast
import functools
import io
import json
import os
import re
import sys
import tarfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

from selfplay.errors import UserError
from selfplay.games.code import edits
from selfplay.games.code.report import Report, parse
from selfplay.games.code.source import Repository, is_test
from selfplay.games.code.verify import OUT_OF_CPU, Budget, Verifier
from selfplay.sandbox.recipe import limits_of
from selfplay.types import digest, draw, record

HALVINGS = 3
"""How often a suite that does not end in time is cut in half."""
MOST_TESTS = 500
"""Tests of one function; of more, so many are drawn by name, or each candidate would take as long as the suite."""
_NETWORK = re.compile(
    r"name resolution|Name or service not known|nodename nor servname|Network is unreachable|No route to host|gaierror"
    r"|ConnectionPool\(|Max retries exceeded|urlopen error|Cannot connect to host"
)
_NAMED = re.compile(r"(^|/)(test_[^/]*|[^/]*_test)\.py$")
_FORMAT = 3
"""Changes whenever equal input would be surveyed differently."""


@record
class Rules:
    """What makes a function a seed, and a suite playable."""

    min_lines: int = 2
    max_lines: int = 30
    """Longest function, in lines as shown (of a docstring only the first words count)."""
    max_chars: int = 1200
    """Longest function, in characters as shown."""
    min_tests: int = 1
    """Fewest stable tests that reach it."""
    max_failing: float = 0.2
    """Largest share of the suite that may fail on the clean tree; those tests are left out."""
    seconds: float = 600.0
    """For one run of the whole suite."""


@record
class Function:
    """One function or method that stable tests reach."""

    path: str
    qualname: str
    line: int
    """Its first line in the file, decorators included."""
    source: str
    """Its lines as in the file."""
    doc: str
    """First line of its docstring, or empty."""
    tests: tuple[str, ...]
    """Ids of the stable tests that call it, in the suite's order."""

    @property
    def name(self) -> str:
        """For people: `toolz/itertoolz.py::groupby`."""
        return f"{self.path}::{self.qualname}"


@record
class Survey:
    """What there is to play."""

    functions: tuple[Function, ...]
    seconds: Mapping[str, float]
    """Processor seconds of each stable test, under the tracer."""
    left_out: Mapping[str, str]
    """Tests that are not stable -> why; and files that were not run."""
    sampled: str = ""
    """Which part of the suite was run, in words; empty where all of it was."""

    @property
    def network(self) -> tuple[str, ...]:
        """Tests that were left out for want of a network."""
        return tuple(test for test, said in self.left_out.items() if needs_network(said))


class _TooSlow(UserError):
    """The suite did not end within its time."""


def needs_network(said: str) -> bool:
    """True where a test's message is that of a machine without a network."""
    return _NETWORK.search(said) is not None


async def survey(verifier: Verifier, *, rules: Rules, cache: Path) -> Survey:
    """The survey of the verifier's repository, from the cache where it is there.

    Raises:
        UserError: no test, none that passes, too many that fail, or no function that is reached and short enough.
        SandboxInfraError: the machine failed.
    """
    versions = [sys.version, metadata.version("pytest"), verifier.provider.name]
    limits = [limits_of(verifier.spec)] if limits_of(verifier.spec) else []
    key = digest("survey", _FORMAT, verifier.repository.digest, asdict(rules), versions, *limits)
    path = cache / "surveys" / f"{key}.json"
    archive = path.with_suffix(".tar")
    found = _kept(path)
    if found is None or not archive.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        found = await _look(verifier, rules, archive=archive)
        aside = path.with_suffix(f".{os.getpid()}")
        aside.write_text(json.dumps(asdict(found)))
        aside.replace(path)
    verifier.archive = archive
    return found


async def _look(verifier: Verifier, rules: Rules, *, archive: Path) -> Survey:
    """The survey of the whole suite, or of as large a part of it as ends in time."""
    slow: _TooSlow | None = None
    seen: set[tuple[str, ...]] = set()
    for halvings in range(1 + HALVINGS):
        paths, skipped = _part(verifier, halvings)
        if paths not in seen:
            seen.add(paths)
            try:
                return await _look_at(verifier, rules, archive=archive, paths=paths, skipped=skipped)
            except _TooSlow as error:
                slow = error
    assert slow is not None, "every part was looked at"
    raise slow


async def _look_at(
    verifier: Verifier, rules: Rules, *, archive: Path, paths: Sequence[str], skipped: Sequence[str]
) -> Survey:
    first, calls, compiled = await _run(verifier, rules, traced=True, paths=paths)
    _pack(verifier.repository.archive, compiled, archive)
    second, _, _ = await _run(verifier, rules, traced=False, paths=paths)
    stable = [test for test in first.passed if test in second.passed and test in calls]
    whole = len(paths) + len(skipped)
    words = f"{len(paths)} of {whole} test files, since all of them do not end within {rules.seconds:g} s"
    left_out = dict.fromkeys(skipped, f"it was not run: the survey looked at {words}")
    left_out |= {**second.others, **first.others, **second.broken, **first.broken, **second.failed, **first.failed}
    _playable(verifier.repository, stable=stable, reports=(first, second), rules=rules)
    reached: dict[tuple[str, int], list[str]] = {}
    for test in stable:
        for place in {(str(path), int(line)) for path, line in calls[test]["calls"]}:
            reached.setdefault(place, []).append(test)
    functions = list(_functions(verifier.repository, reached, rules))
    if not functions:
        raise UserError(
            f"no function of `{verifier.repository.name}` is both reached by a passing test and at most "
            f"{rules.max_lines} lines long",
            hint="let functions be longer: -s game.max_lines=60",
        )
    seconds = {test: float(calls[test]["seconds"]) for test in stable}
    return Survey(functions=tuple(functions), seconds=seconds, left_out=left_out, sampled=words if skipped else "")


def _part(verifier: Verifier, halvings: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What pytest is given to collect from, and the test files that are left out: none at first."""
    if not halvings:
        return verifier.suite.paths, ()
    homes = tuple(f"{path.rstrip('/')}/" for path in verifier.suite.paths) or ("",)
    tests = [p for p in verifier.repository.files if _NAMED.search(p) and p.startswith(homes)]
    drawn = sorted(tests, key=lambda path: draw("survey", path))
    kept = max(1, len(drawn) >> halvings)
    return tuple(sorted(drawn[:kept])), tuple(sorted(drawn[kept:]))


def _pack(tree: Path, compiled: bytes, archive: Path) -> None:
    """The tree's archive with compiled test files added, which saves every run compiling them.

    They are those of the clean tree, and only of test files: a compiled module of the package would be an answer key.
    """
    aside = archive.with_suffix(f".{os.getpid()}")
    with tarfile.open(tree) as files, tarfile.open(aside, "w", format=tarfile.PAX_FORMAT) as packed:
        for entry in files:
            packed.addfile(entry, files.extractfile(entry))
        with tarfile.open(fileobj=io.BytesIO(compiled)) as extra:
            for entry in sorted((e for e in extra if e.isreg()), key=lambda e: e.name):
                path = PurePosixPath(entry.name)
                source = (path.parent.parent / f"{path.name.partition('.')[0]}.py").as_posix()
                # note: pytest also compiles modules that are no tests, whose bytecode would give their code away.
                ours = path.parent.name == "__pycache__" and "-pytest-" in path.name and ".." not in path.parts
                if ours and is_test(source):
                    plain = tarfile.TarInfo(entry.name)
                    plain.size, plain.mode = entry.size, 0o644
                    packed.addfile(plain, extra.extractfile(entry))
    aside.replace(archive)


async def _run(
    verifier: Verifier, rules: Rules, *, traced: bool, paths: Sequence[str]
) -> tuple[Report, Mapping[str, Mapping[str, Any]], bytes]:
    """One run of the suite on the clean tree: its report and, where traced, calls and compiled test files."""
    suite = verifier.suite
    options = [*suite.options, "--continue-on-collection-errors"]
    request = {"wanted": None, "paths": list(paths), "options": options}
    budget = Budget(cpu_seconds=rules.seconds, seconds=rules.seconds)
    # note: not out of the pool, since only these two runs want this archive.
    done = await verifier.execute(request, budget=budget, traced=traced, pooled=False)
    name = verifier.repository.name
    if done.result.timed_out or done.result.exit_code in OUT_OF_CPU:
        raise _TooSlow(
            f"the tests of `{name}` did not end within {rules.seconds:g} s, nor did a part of its files",
            hint="choose a repository whose suite is quick: the tests that reach a bug are run for every candidate",
        )
    if done.report is None:
        said = (done.result.stderr.strip() or done.result.stdout.strip()).splitlines()
        raise UserError(
            f"the tests of `{name}` cannot be run: pytest left no report and ended with {done.result.exit_code}, its "
            f"last words: {said[-1] if said else 'none'}",
            hint="137 says that memory was short, here or in the sandbox; look at the suite by itself: pytest",
        )
    try:
        report = parse(done.report)
        calls = json.loads(done.calls) if done.calls else {}
    except ValueError as error:
        raise UserError(f"the tests of `{name}` cannot be run: {error}") from error
    return report, calls, done.compiled or b""


def _playable(repository: Repository, *, stable: Sequence[str], reports: tuple[Report, Report], rules: Rules) -> None:
    """Refuse a suite from which nothing could be concluded."""
    told = {name: said for report in reports for name, said in {**report.broken, **report.failed}.items()}
    failing = {name: said for name, said in told.items() if not needs_network(said)}
    name = f"`{repository.name}`"
    if not stable and not told:
        raise UserError(f"pytest finds no test that passes in {name}", hint="choose a repository with a pytest suite")
    some = "; ".join(f"{test}: {said}" for test, said in list((failing or told).items())[:3])
    if not stable:
        raise UserError(
            f"no test of {name} passes on the clean tree ({some})",
            hint="name what its tests require: -s 'game.requirements=[\"NAME\"]'",
        )
    share = len(failing) / (len(failing) + len(stable))
    if share > rules.max_failing:
        raise UserError(
            f"{len(failing)} of {len(failing) + len(stable)} tests of {name} fail on the clean tree ({some})",
            hint="mend the suite, or give a copy without those tests: -s game.source=PATH",
        )


def _functions(
    repository: Repository, reached: Mapping[tuple[str, int], Sequence[str]], rules: Rules
) -> Iterator[Function]:
    """The playable functions among those reached, by path and line."""
    for path in sorted({path for path, _ in reached}):
        if path not in repository.files or is_test(path) or PurePosixPath(path).suffix != ".py":
            continue
        try:
            text = repository.read(path)
        except UnicodeDecodeError:
            continue
        for function in functions_of(text, path=path):
            tests = reached.get((path, function.line), ())
            if len(tests) >= rules.min_tests and _is_shown(function.source, rules):
                yield Function(**{**asdict(function), "tests": _drawn(tests)})


def _drawn(tests: Sequence[str]) -> tuple[str, ...]:
    """The tests, or some of them, in their order."""
    if len(tests) <= MOST_TESTS:
        return tuple(tests)
    kept = frozenset(sorted(tests, key=lambda test: draw("survey", test))[:MOST_TESTS])
    return tuple(test for test in tests if test in kept)


@functools.lru_cache(maxsize=256)
def functions_of(text: str, *, path: str) -> tuple[Function, ...]:
    """Functions of a module and methods of its classes, outermost only, without those whose name is defined twice."""
    if "\r" in text or "\f" in text:
        return ()  # note: lines are counted by newlines here and differently by the parser.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    lines = text.split("\n")
    found: dict[str, Function] = {}
    twice: set[str] = set()
    for qualname, node in _definitions(module):
        line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        source = "\n".join(lines[line - 1 : node.end_lineno]) + "\n"
        if qualname in found:
            twice.add(qualname)
        elif edits.definition(source) is not None:
            doc = (ast.get_docstring(node) or "").strip().partition("\n")[0]
            found[qualname] = Function(path=path, qualname=qualname, line=line, source=source, doc=doc, tests=())
    return tuple(function for qualname, function in found.items() if qualname not in twice)


def _definitions(module: ast.Module) -> Iterator[tuple[str, edits.Definition]]:
    for node in module.body:
        if isinstance(node, edits.Definition):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{m.name}", m) for m in node.body if isinstance(m, edits.Definition))


def _is_shown(source: str, rules: Rules) -> bool:
    """True where a function is short enough to be shown, and does something."""
    view = edits.number(source)
    function = edits.definition(source)
    assert function is not None
    body = function.body[1:] if edits.docstring(function) else function.body
    does = any(not isinstance(statement, ast.Pass) for statement in body)
    num_lines = view.count("\n") + 1
    return does and rules.min_lines <= num_lines <= rules.max_lines and len(view) <= rules.max_chars


def _kept(path: Path) -> Survey | None:
    try:
        known = json.loads(path.read_text())
        functions = [Function(**{**f, "tests": tuple(f["tests"])}) for f in known.pop("functions")]
        return Survey(functions=tuple(functions), **known)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
