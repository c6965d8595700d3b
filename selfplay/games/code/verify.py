"""Runs tests on one candidate in a fresh sandbox and reads what became of each.

What is covered: changed files on the clean tree, the tests that are asked for and no others, one sandbox a run, and a
verdict for each test from pytest-json-report: passed only with setup, call and teardown passed, missing is failed. The
report has a random name and is read once, after everything that the candidate started is dead. Processor time is
limited, which does not depend on what else the machine does; a limit of wall-clock seconds counts against a candidate
only after a second try alone with twice the budget, or where it hangs: its threads wait for each other, and none of
them for the processor. Equal runs share one result, by content.

What is not covered: which files a candidate may bring and whether to believe a report (`verdict`), since the code under
test shares its process with it; other programs than tests (`differential`); repeats without a new sandbox for each
(`repeats`).

Example:
    >>> run = await verifier.run(("a.py::test_one",), change=Change(path="pkg/a.py", text="..."))  # doctest: +SKIP
    >>> run.failed  # doctest: +SKIP
    {'a.py::test_one': 'assert 3 == 4'}
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import json
import secrets
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from selfplay.games.code.hanging import HUNG
from selfplay.games.code.once import Once
from selfplay.games.code.report import Report, parse
from selfplay.games.code.slots import Slots
from selfplay.games.code.source import Repository
from selfplay.games.code.suite import Suite, suite_of
from selfplay.sandbox import Sandbox, SandboxInfraError, SandboxProvider, SandboxSpec
from selfplay.types import Result, digest, record

MAX_REPORT = 16 << 20
MAX_SURVEY = 256 << 20
"""The same of a whole suite on the clean tree."""
"""Largest report that is read, in bytes."""
_MEMO = 4096
"""Runs kept in memory."""
_MEMO_ANSWERS = 256
"""Answers of other programs kept in memory, which are larger."""
STILL = 0.75
"""Share of the wall-clock seconds for which nothing may move, unless a budget says how long."""
_PARTS = ("hanging.py", "inside.py")
# note: pytest is imported without looking for garbage, which takes 8 ms of 130; the program turns it on again.
_HEAD = "import gc\ngc.disable()\n"
_REMOVE = "import os, sys; [os.path.lexists(path) and os.remove(path) for path in sys.argv[1:]]"
OUT_OF_CPU = (128 + signal.SIGXCPU, -signal.SIGXCPU)
"""Exit codes of what reached its limit of processor seconds."""
_ENV = {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUTF8": "1",
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8",
}


class Ended(StrEnum):
    """How a run of tests ended."""

    COMPLETED = "completed"
    """pytest ended by itself and left a report."""
    COLLECTION = "collection_error"
    """A test module could not be imported, so nothing ran."""
    TIMEOUT = "timeout"
    """Wall-clock limit, twice, the second time alone with twice the budget; or everything waited for something else."""
    CPU = "cpu_limit"
    """The limit of processor seconds."""
    MEMORY = "out_of_memory"
    CRASHED = "crashed"
    """The process ended without a report that can be read."""


@record
class Change:
    """A file of the tree with another text."""

    path: str
    text: str


Candidate = Change | Mapping[str, bytes | None]
"""What differs from the clean tree: one file, or path -> content, None where it is removed."""


@record
class Budget:
    """What one run may use."""

    cpu_seconds: float
    """Processor seconds beyond the start of Python and pytest."""
    seconds: float
    """Wall-clock seconds in all."""
    still: float | None = None
    """Seconds for which nothing may move, which a busy machine does not prolong; None: three quarters of them all."""

    def times(self, factor: float) -> Budget:
        """A larger or smaller budget."""
        return replace(self, cpu_seconds=self.cpu_seconds * factor, seconds=self.seconds * factor)


@record
class Run:
    """What became of the tests of one candidate."""

    key: str
    """Digest of tree, change, tests and rules: equal keys are one run."""
    ended: Ended
    passed: tuple[str, ...]
    """Ids of tests that passed in all three stages, in the order asked."""
    failed: Mapping[str, str]
    """Id -> first line of the message, for every other test that was asked for."""
    detail: str = ""
    """What the process or the collection said, where it did not complete."""
    blamed: tuple[str, ...] = ()
    """Files named in the trace of a collection error."""
    odd: str = ""
    """Why a session that completed is not one that pytest ends by itself; empty where it is."""

    @property
    def clean(self) -> bool:
        """True where every test passed."""
        return self.ended is Ended.COMPLETED and not self.failed


@record
class Executed:
    """What came out of the sandbox, unread."""

    result: Result
    report: bytes | None
    """None where there is none that may be read: missing, a link, too long."""
    calls: bytes | None = None
    """Which functions each test called, where that was asked for."""
    compiled: bytes | None = None
    """A tar of the test files as pytest compiled them, where that was asked for."""
    lost: str = ""
    """What became of the server where a repeat got no answer from it."""
    hung: bool = False
    """Timed out, and a machine with nothing else to do would have changed nothing."""


class Execute(Protocol):
    """Runs a request somewhere: in a sandbox of its own, or as a repeat."""

    async def __call__(self, request: Mapping[str, object], *, budget: Budget) -> Executed:
        """Raises `SandboxInfraError` where the machine failed."""
        ...


class Verifier:
    """Runs candidates of one repository."""

    def __init__(
        self,
        repository: Repository,
        *,
        provider: SandboxProvider,
        workers: int,
        spec: SandboxSpec | None = None,
        slots: Slots | None = None,
    ) -> None:
        """`spec` is a recipe's, whose limits every sandbox of this repository gets; `slots` are those that it shares
        with other repositories.
        """
        self.repository = repository
        self.suite: Suite = suite_of(repository)
        self.archive = repository.archive
        """The tree as sandboxes get it; `survey` puts one with compiled test files here."""
        self.provider = provider
        self.spec = spec or SandboxSpec(name="python")
        self._workers = max(1, workers)
        self._slots = slots or Slots(workers)
        self._program = program()
        self._closing: set[asyncio.Task[None]] = set()
        self._runs: Once[Run] = Once(most=_MEMO)
        self.answers: Once[Mapping[str, Any]] = Once(most=_MEMO_ANSWERS)
        """What other programs than tests left (`differential`), by content."""

    async def run(
        self,
        tests: Sequence[str],
        *,
        budget: Budget,
        change: Candidate | None = None,
        again: int = 0,
        first: bool = False,
        hash_seed: int = 0,
        ordered: bool = False,
        by: Execute | None = None,
    ) -> Run:
        """What becomes of `tests` with `change` made; with `first` it stops at the first test that fails.

        They run as pytest finds them, or with `ordered` as they are given. Runs that differ in `again` are separate, so
        that a result can be asked for twice. `by` is who runs it, for this change and hash seed; a sandbox of its own
        by default.

        Raises:
            SandboxInfraError: the machine failed; nothing was decided.
        """
        # note: not the budget, which rests on measured seconds: the key is part of the record, and must not vary.
        names = list(tests) if ordered else sorted(tests)
        seeded = [*([hash_seed] if hash_seed else []), *(["ordered"] if ordered else [])]
        key = digest("run", self.repository.digest, place_of(change), names, first, again, *seeded)
        by = by or functools.partial(self.execute, change=change, hash_seed=hash_seed)

        async def made() -> Run:
            request = self._request(tests, first=first, ordered=ordered)
            return read(await self.tried(request, budget=budget, by=by), key=key, tests=tests, first=first)

        return await self._runs.get(key, made)

    def _request(self, tests: Sequence[str], *, first: bool, ordered: bool) -> Mapping[str, object]:
        paths = sorted({test.partition("::")[0] for test in tests})
        options = list(self.suite.options)
        return {"wanted": list(tests), "paths": paths, "options": options, "stop_at_first": first, "ordered": ordered}

    async def tried(self, request: Mapping[str, object], *, budget: Budget, by: Execute) -> Executed:
        """What comes of a request, once more, alone and with twice the budget, where it did not end in time.

        Unless it hung: it was waiting, and not for the processor.
        """
        async with self._slots.shared():
            done = await by(request, budget=budget)
        if done.result.timed_out and not done.hung:
            async with self._slots.alone():
                done = await by(request, budget=budget.times(2))
        return done

    async def execute(
        self,
        request: Mapping[str, object],
        *,
        budget: Budget,
        change: Candidate | None = None,
        hash_seed: int = 0,
        traced: bool = False,
        pooled: bool = True,
    ) -> Executed:
        """Run the program of `inside.py` on `request` in a sandbox of its own; `traced` asks for calls and compiled.

        Raises:
            SandboxInfraError: the machine failed.
        """
        whole, name = self.whole(request, budget=budget)
        whole |= {kind: f"{name}.{kind}" if traced else None for kind in ("calls", "compiled")}
        async with self.sandbox(change=change, pooled=pooled) as sandbox:
            result = await sandbox.exec(
                self.argv(),
                timeout_seconds=budget.seconds,
                env=variables(hash_seed),
                stdin=json.dumps(whole).encode(),
                output_limit=1 << 16,
            )
            # note: what outlives pytest could still write.
            await sandbox.sweep()
            if result.exit_code == HUNG:
                return Executed(result=replace(result, exit_code=None, timed_out=True), report=None, hung=True)
            try:
                most = MAX_REPORT if pooled else MAX_SURVEY
                report = await sandbox.get(f"{name}.json", max_bytes=most)
                calls = await sandbox.get(f"{name}.calls", max_bytes=MAX_SURVEY) if traced else None
                compiled = await sandbox.get(f"{name}.compiled", max_bytes=MAX_SURVEY) if traced else None
            except (FileNotFoundError, PermissionError, ValueError):
                return Executed(result=result, report=None)
            return Executed(result=result, report=report, calls=calls, compiled=compiled)

    def argv(self, *arguments: str) -> list[str]:
        """What starts the program of `inside.py`."""
        # note: not `-I`, which ignores the fixed hash seed; the variables are ours, and -P and -s do the rest. Bytecode
        # that names its source by hash, and says that it need not be looked at, is looked at.
        options = ["-s", "-P", "-B", "--check-hash-based-pycs", "always"]
        return [self.provider.python, *options, "-c", self._program, *arguments]

    def whole(self, request: Mapping[str, object], *, budget: Budget) -> tuple[dict[str, object], str]:
        """The request as the program wants it, with a new name for the report; that name without its ending."""
        # note: outside the tree, but where nothing is isolated /tmp is the host's, and the work tree is what goes away.
        name = ("/tmp/" if self.provider.capabilities.isolated else ".") + secrets.token_hex(16)
        whole = {"roots": list(self.suite.roots), "stop_at_first": False, "ordered": False, **request}
        whole = {"calls": None, "compiled": None, **whole}
        still = STILL * budget.seconds if budget.still is None else budget.still
        limits = {"cpu_seconds": budget.cpu_seconds, "still_seconds": still}
        return {**whole, "report": f"{name}.json", **limits}, name

    @contextlib.asynccontextmanager
    async def sandbox(self, *, change: Candidate | None, pooled: bool = True) -> AsyncIterator[Sandbox]:
        """A clean sandbox with `change` made, closed in the background; `pooled` where equal ones will be wanted.

        Raises:
            SandboxInfraError: the machine failed.
        """
        while len(self._closing) > self._workers:
            await asyncio.wait(self._closing, return_when=asyncio.FIRST_COMPLETED)
        spec = replace(self.spec, archive=str(self.archive), env=variables())
        made = await (self.provider.acquire(spec) if pooled else self.provider.create(spec))
        try:
            await self._lay(made, files_of(change))
            yield made
        finally:
            closing = asyncio.get_running_loop().create_task(made.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closed)

    async def _lay(self, made: Sandbox, files: Mapping[str, bytes | None]) -> None:
        """Write and remove files, in the order given."""
        put = {path: content for path, content in files.items() if content is not None}
        removed = [path for path, content in files.items() if content is None]
        if put:
            await made.put(put)
        if removed:
            done = await made.exec([self.provider.python, "-I", "-c", _REMOVE, *removed], timeout_seconds=60.0)
            if done.exit_code != 0:
                raise SandboxInfraError(f"files could not be removed in the sandbox: {done.stderr.strip()[-200:]}")

    def _closed(self, closing: asyncio.Task[None]) -> None:
        self._closing.discard(closing)
        if not closing.cancelled():
            # note: read, so that asyncio does not warn of it; what was not removed is its provider's to remove.
            closing.exception()

    async def aclose(self) -> None:
        """Wait for the sandboxes that are being closed; before the provider is."""
        await asyncio.gather(*self._closing, return_exceptions=True)


def program() -> str:
    """What runs in a sandbox: the parts as one text."""
    lines = "".join(Path(__file__).with_name(part).read_text(encoding="utf-8") for part in _PARTS).splitlines()
    return _HEAD + "\n".join(line for line in lines if not line.startswith("from selfplay."))


def files_of(change: Candidate | None) -> Mapping[str, bytes | None]:
    """Path -> content of what differs from the clean tree, None where it is removed."""
    if isinstance(change, Change):
        return {change.path: change.text.encode()}
    return change or {}


def place_of(change: Candidate | None) -> object:
    """What a candidate is in the key of what it did."""
    files = files_of(change)
    known = [[path, hashlib.sha256(body).hexdigest() if body is not None else None] for path, body in files.items()]
    return known[0] if isinstance(change, Change) else sorted(known, key=str) or None


def variables(hash_seed: int = 0) -> Mapping[str, str]:
    """The environment that tests run in."""
    return {**_ENV, "PYTHONHASHSEED": str(hash_seed)}


def read(done: Executed, *, key: str, tests: Sequence[str], first: bool = False) -> Run:
    """The verdict on `tests` from what came out of the sandbox; anything that is not a proper report fails them all.

    With `first` the run was to stop at the first failure, so tests that did not run are not named.
    """
    ended, detail, report = _ending(done)
    if report is None or ended is not Ended.COMPLETED:
        blamed = report.files if report else ()
        failed = dict.fromkeys(tests, detail)
        return Run(key=key, ended=ended, passed=(), failed=failed, detail=detail, blamed=blamed)
    known = {**report.others, **report.failed}
    passed = tuple(test for test in tests if test in report.passed)
    failed = {test: known.get(test, "it did not run") for test in tests if test not in report.passed}
    if first and report.failed:
        failed = {test: said for test, said in failed.items() if test in known}
    if not failed and done.result.exit_code != 0:
        detail = f"all tests passed, and yet pytest ended with exit code {done.result.exit_code}"
        return Run(key=key, ended=Ended.CRASHED, passed=(), failed=dict.fromkeys(tests, detail), detail=detail)
    return Run(key=key, ended=Ended.COMPLETED, passed=passed, failed=failed, odd=_odd(done, report, tests))


def _odd(done: Executed, report: Report, tests: Sequence[str]) -> str:
    """Why the session is not one that pytest ends by itself after all tests that were asked for, and no others."""
    held = {*report.passed, *report.failed, *report.others}
    asked = set(tests)
    if held != asked:
        return f"the report holds {len(held & asked)} of {len(asked)} tests, and {len(held - asked)} others"
    code, expected = done.result.exit_code, 1 if report.failed else 0
    if code != expected:
        return f"pytest ended with exit code {code} in place of {expected}"
    return "" if report.exit_code == code else f"the report tells of exit code {report.exit_code}, and it was {code}"


def _ending(done: Executed) -> tuple[Ended, str, Report | None]:
    """How the process ended, in words, and its report where there is one."""
    result = done.result
    if result.timed_out:
        return Ended.TIMEOUT, "the tests did not end within the time limit", None
    if result.oom_killed:
        return Ended.MEMORY, "the tests used more memory than allowed", None
    if result.exit_code in OUT_OF_CPU:
        return Ended.CPU, "the tests used more processor time than allowed", None
    if done.lost:
        return Ended.CRASHED, done.lost, None
    if done.report is None:
        return Ended.CRASHED, f"the test process left no report (exit code {result.exit_code})", None
    try:
        report = parse(done.report)
    except ValueError:
        return Ended.CRASHED, f"the test report cannot be read (exit code {result.exit_code})", None
    if report.broken:
        where, said = next(iter(report.broken.items()))
        return Ended.COLLECTION, f"{where} could not be imported: {said}", report
    return Ended.COMPLETED, "", report
