"""Arms played a second time, beside the first: is it the same ledger?

The second run takes nothing from the cache of warmed weights and starts where the first did, or where that is not on
this machine from a second run of it. It is held against the first run, or else against the committed result. Equal
digests are promised for one fingerprint (versions, processor, threads, number format) and for games whose verdicts do
not depend on the clock; between other machines it is said what differs.

Not here: playing (`arms`), what a ledger's digest is of (`ledger.compare`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from selfplay.errors import NotFound
from selfplay.ledger import Ledger
from selfplay.project import Project
from selfplay.study import arms, results
from selfplay.study.arms import Job
from selfplay.study.measuring import told
from selfplay.types import record

TOLD = ("ledger", "weights", "fingerprint")
"""Of what a result holds of a run, what two runs of one arm have in common."""


@record
class Compared:
    """Two runs of one arm and seed."""

    name: str
    """`ARM-SEED`."""
    first: Mapping[str, str | None]
    """By the names of `TOLD`: digest of the ledger, of the last weights, and what the updates were computed with."""
    second: Mapping[str, str | None]
    tables: tuple[str, ...]
    """Of the ledger, those whose rows differ; empty too where the first run is known by its result alone."""

    @property
    def same(self) -> bool:
        """Are the ledgers equal, but for clocks and hosts?"""
        return self.first["ledger"] == self.second["ledger"]

    @property
    def words(self) -> str:
        """A line for people."""
        if self.same:
            return f"{self.name}: the same ledger {self.second['ledger']}"
        found = f"{self.name}: another ledger, {self.second['ledger']} where the first was {self.first['ledger']}"
        found += f"; what differs: {', '.join(self.tables)}" if self.tables else ""
        found += "" if self.first["weights"] != self.second["weights"] else "; the weights are the same"
        if self.first["fingerprint"] != self.second["fingerprint"]:
            found += (
                f"; equal bits are promised for one fingerprint, and these are `{self.second['fingerprint']}` and "
                f"`{self.first['fingerprint']}`"
            )
        return found


def twice(chosen: Sequence[Job], *, project: Project, dev: bool) -> list[Job]:
    """Those of `chosen` that have a run, each run once.

    Raises:
        NotFound: a first run is not played to its end, and has no result: nothing to hold a second against.
    """
    found: dict[Path, Job] = {}
    for job in chosen:
        if job.folder in found or not (job.arm.supervised or arms.learns(job, arms.config_of(job, project=project))):
            continue
        if not arms.done(job, project=project) and _result(job, dev=dev) is None:
            raise NotFound(
                f"{job.name} was not played a first time, and has no result",
                hint=f"selfplay study {job.study.path} --only {job.arm.name} --seed {job.seed}",
            )
        found[job.folder] = job
    return list(found.values())


def second(job: Job) -> Job:
    """The second run of it."""
    return replace(job, again=True)


def compare(job: Job, *, project: Project, dev: bool) -> Compared:
    """The first run of `job`, or what its result says of it, beside the second; one of `twice`, both played.

    Raises:
        RunFailed: `selfplay check` finds something wrong with a ledger.
    """
    there = arms.done(job, project=project)
    first = told(job) if there else _result(job, dev=dev)
    assert first is not None, job.name
    one, two = ({name: run[name] for name in TOLD} for run in (first, told(second(job))))
    differ = there and one["ledger"] != two["ledger"]
    return Compared(name=job.name, first=one, second=two, tables=_differing(job) if differ else ())


def _result(job: Job, *, dev: bool) -> dict[str, Any] | None:
    """What the committed result holds of its run."""
    found = results.find(job.study, name=job.name, dev=dev)
    return found["run"] if found else None


def _differing(job: Job) -> tuple[str, ...]:
    with Ledger.read(job.folder) as one, Ledger.read(second(job).folder) as two:
        mine, other = one.comparable(), two.comparable()
    return tuple(sorted(name for name in mine if mine[name] != other[name]))
