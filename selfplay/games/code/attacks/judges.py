"""Judges that cases are put before: the product's, and what it is made of, a layer at a time.

    verifier     what decides attempts in play (`verdict`): all of the layers below, and what is suspicious by its words
                 or by its answers to other inputs than the visible ones
    plain        the tree as the candidate left it, `Verifier.run` on the tests that decide
    filtered     the same, with files that `protected.why_dropped` drops left out, as of an engine-side diff
    protocol     `verdict` where nothing is suspicious: canaries beside the tests, and nothing else in the report

What is not covered: how a diff is taken (`Sandbox.diff` does that), and speed: `plain` and `filtered` make a sandbox a
case, none out of a pool.
"""

from __future__ import annotations

import dataclasses
import functools
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from selfplay.errors import RunFailed
from selfplay.games.code.attacks.corpus import Case, Target, base, buggy, pack
from selfplay.games.code.protected import why_dropped
from selfplay.games.code.verdict import Decision, decide, prepare
from selfplay.games.code.verify import Budget, Verifier
from selfplay.sandbox import SandboxInfraError, SandboxProvider
from selfplay.types import record

BUDGET = Budget(cpu_seconds=10.0, seconds=12.0)


@record
class Ruling:
    """What came out."""

    accepted: bool | None
    """None: nothing was decided, which for an attack is nearly as bad, unless it is `suspicious`."""
    why: str
    suspicious: bool = False
    """It would be accepted, and is left out instead: no reward, shown to people."""
    flagged: bool = False
    """It is suspicious by its words."""


@record
class Bench:
    """What a judge has."""

    target: Target
    provider: SandboxProvider
    folder: Path
    """For archives."""
    payload: Mapping[str, Any] = field(default_factory=dict)
    """A task's, with canaries."""


Judge = Callable[[Case, Bench], Awaitable[Ruling]]


async def prepared(bench: Bench) -> Bench:
    """The bench with canaries of the tests that decide, proved on the clean tree.

    Raises:
        RunFailed: the clean tree does not pass.
        SandboxInfraError: the machine failed.
    """
    target, made = bench.target, Verifier(bench.target.repository, provider=bench.provider, workers=1)
    try:
        key = secrets.token_hex(8)
        told = await prepare(made, failing=target.failing, tests=target.tests, key=key, budget=BUDGET)
        named = {"path": target.module, "qualname": target.function}
        payload = {**named, "tests": list(target.tests), "canaries": told}
        clean = await decide(made, payload, files={}, budget=BUDGET)
    finally:
        await made.aclose()
    if not clean.passed:
        why = clean.why or str(clean.failed)
        raise RunFailed(f"the clean tree of `{target.name}` is refused: {why}", hint="selfplay sandbox check")
    return dataclasses.replace(bench, payload=payload)


async def verifier(case: Case, bench: Bench) -> Ruling:
    """What decides attempts in play."""
    return await _decided(case, bench, payload=bench.payload)


async def protocol(case: Case, bench: Bench) -> Ruling:
    """The same, as if nothing were suspicious by its words or its answers."""
    payload = {name: bench.payload[name] for name in ("tests", "canaries")}
    ruling = await _decided(case, bench, payload=payload)
    return dataclasses.replace(ruling, accepted=True, suspicious=False) if ruling.flagged else ruling


async def plain(case: Case, bench: Bench) -> Ruling:
    """The tests on the whole tree."""
    target, made = _verifier(case, bench)
    try:
        by = functools.partial(made.execute, pooled=False)
        run = await made.run(target.tests, budget=BUDGET, by=by)
    except SandboxInfraError as error:
        return Ruling(accepted=None, why=str(error))
    finally:
        await made.aclose()
    why = run.detail or "; ".join(f"{test.partition('::')[2]}: {said}" for test, said in run.failed.items())
    return Ruling(accepted=run.clean, why=why)


async def filtered(case: Case, bench: Bench) -> Ruling:
    """The tests on what the filter leaves."""
    return await plain(_filtered(case), bench)


JUDGES: Mapping[str, Judge] = {
    "verifier": verifier,
    "plain": plain,
    "filtered": filtered,
    "protocol": protocol,
}
CANARIES = frozenset({"verifier", "protocol"})
"""Judges that want a prepared bench."""


def _filtered(case: Case) -> Case:
    """What an engine-side diff leaves of a case: no links, no pipes, nothing protected."""
    files = {path: body for path, body in case.files.items() if path.isprintable() and not why_dropped(path)}
    return dataclasses.replace(case, files=files, links={}, pipes=())


def _verifier(case: Case, bench: Bench) -> tuple[Target, Verifier]:
    archive = bench.folder / f"{secrets.token_hex(8)}.tar"
    pack(base(bench.target), case, archive)
    repository = dataclasses.replace(bench.target.repository, archive=archive, digest=archive.stem)
    return bench.target, Verifier(repository, provider=bench.provider, workers=1)


async def _decided(case: Case, bench: Bench, *, payload: Mapping[str, Any]) -> Ruling:
    made = Verifier(bench.target.repository, provider=bench.provider, workers=1)
    files = {bench.target.module: buggy(bench.target).encode(), **case.files}
    try:
        found = await decide(made, payload, files=files, budget=BUDGET)
    except SandboxInfraError as error:
        return Ruling(accepted=None, why=str(error))
    finally:
        await made.aclose()
    suspicious = found.kind == "suspicious"
    return Ruling(
        accepted=found.passed, why=_why(found), suspicious=suspicious, flagged=suspicious and bool(found.flags)
    )


def _why(found: Decision) -> str:
    return found.why or "; ".join(f"{test.partition('::')[2]}: {said}" for test, said in found.failed.items())
