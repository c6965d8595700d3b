"""What an arm is played with, and playing it until its budget is spent; the same call again goes on where it stopped.

Every arm and seed is a run of its own, an ordinary one: `selfplay status`, `inspect` and `check` read it. Those that
start from another arm are forks of its run of the same seed, so equal seeds start from equal weights.

Not here: the order of the arms (`spec`), looking at the weights (`measuring`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from selfplay import build, fork
from selfplay.config import Config, diff, from_run, load
from selfplay.config.settings import toml_value
from selfplay.errors import NotFound, NotReady, UserError
from selfplay.events import Interrupt, Observer
from selfplay.learner.heap import give_back
from selfplay.ledger import Ledger, Reader, StepRow, files, watching
from selfplay.project import Project
from selfplay.study import results
from selfplay.study.spec import SEED, Arm, Study
from selfplay.types import record

MOST = 1_000_000
"""Steps of an arm that plays until its budget is spent."""
STAGES = ("propose", "attempt")


@record
class Job:
    """One arm with one seed."""

    study: Study
    arm: Arm
    seed: int
    root: Path
    """Folder of the study's runs."""
    again: bool = False
    """A second run, beside the first (`again`). It starts where the first did; where that start is not on this machine,
    from a second run of it."""

    @property
    def name(self) -> str:
        """`ARM-SEED`."""
        return f"{self.arm.name}-{self.seed}"

    @property
    def run_seed(self) -> int:
        """Of its run: one for all of a warm-up where every seed starts from the same weights."""
        common = self.study.start_seed
        warmed = self.arm.name == self.study.start or self.arm.supervised
        return common if common is not None and warmed else self.seed

    @property
    def folder(self) -> Path:
        """Of its run."""
        return self.root / f"{self.arm.name}-{self.run_seed}{'-again' if self.again else ''}"

    @property
    def start(self) -> Job | None:
        """What it starts from; None where that is the preset's own weights."""
        if not self.arm.start:
            return None
        first = self._of(self.arm.start)
        return replace(first, again=True) if self.again and not (first.folder / files.NAME).exists() else first

    @property
    def upon(self) -> tuple[Job, ...]:
        """Those whose runs it needs, its start among them."""
        start = self.start
        others = tuple(self._of(name) for name in self.arm.upon if name != self.arm.start)
        return others if start is None else (start, *others)

    def _of(self, arm: str) -> Job:
        return Job(study=self.study, arm=self.study.arm(arm), seed=self.seed, root=self.root)


def root_of(study: Study, *, project: Project) -> Path:
    """Folder of the study's runs."""
    return project.runs / "studies" / study.name


def jobs(study: Study, *, project: Project, dev: bool) -> list[Job]:
    """Every arm with every seed, a seed at a time, starts first."""
    root = root_of(study, project=project)
    seeds, root = (study.dev_seeds, root / "dev") if dev else (study.seeds, root)
    return [Job(study=study, arm=arm, seed=seed, root=root) for seed in seeds for arm in study.arms]


def measured(job: Job, *, project: Project, dev: bool) -> bool:
    """Has it a result, with the arm and the settings that it has now? That may come from another machine.

    The arm's digest knows the preset's name alone, the run's configuration all that it says.
    """
    found = results.find(job.study, name=job.name, dev=dev)
    if found is None or not found["run"]:
        return found is not None
    try:
        return bool(found["run"]["config"] == config_of(job, project=project).digest)
    except NotFound:
        return True  # note: how long it learns depends on the run of its start, which is not here.


def owed(chosen: Sequence[Job], *, project: Project, dev: bool) -> list[Job]:
    """Those of `chosen` whose result is owed, and what they build upon."""
    needed = _built([job for job in chosen if job.arm.measured and not measured(job, project=project, dev=dev)])
    return [job for job in chosen if job.folder in needed]


def before(jobs: Sequence[Job], chosen: Sequence[Job]) -> list[Job]:
    """`jobs` and all that they build upon, in the order of `chosen`: first runs and second ones."""
    needed = _built(list(jobs))
    both = (one for job in chosen for one in (job, replace(job, again=True)))
    return list({one.folder: one for one in both if one.folder in needed}.values())


def _built(ahead: list[Job]) -> set[Path]:
    """The folders of these, and of all that they build upon."""
    needed: set[Path] = set()
    while ahead:
        job = ahead.pop()
        if job.folder not in needed:
            needed.add(job.folder)
            ahead += job.upon
    return needed


class Meter:
    """Counts the tokens of a run that it generated and trained on in play; each step once."""

    def __init__(self) -> None:
        self.generated = 0
        self.trained = 0
        self.last = 0
        """Of the last step that was looked at."""
        self._seen = -1

    def look(self, reader: Reader) -> int:
        """All tokens so far."""
        rows = reader.step_rows(after=self._seen)
        learnt = reader.ask(partial(watching.learnt, after=self._seen))
        generated = {row.step: _generated(row) for row in rows}
        self.generated += sum(generated.values())
        self.trained += sum(one.tokens for one in learnt)
        if rows:
            self._seen = max(generated)
            self.last = generated[self._seen] + sum(one.tokens for one in learnt if one.step == self._seen)
        return self.generated + self.trained


def _generated(row: StepRow) -> int:
    return sum(tally.tokens for place, tally in row.tallies.items() if place.partition("/")[0] in STAGES)


def config_of(job: Job, *, project: Project) -> Config:
    """The settings of its run.

    Raises:
        NotFound, UserError: there is no such preset, or a setting does not fit.
    """
    given = {**job.study.settings, **job.arm.settings}
    sets = [f"{key}={toml_value(value)}".replace(SEED, str(job.run_seed)) for key, value in given.items()]
    steps = 0 if job.arm.supervised else job.arm.steps
    sets += [f"run.seed={job.run_seed}", f"run.steps={MOST if steps is None else steps}"]
    if job.arm.supervised:
        sets += [f"warmup.steps={_supervised(job)}", "warmup.check_every=0"]
    if job.again:
        sets.append("warmup.cache=false")
    return load(job.study.preset, project=project, sets=sets, environ={})


def learns(job: Job, config: Config) -> bool:
    """Has it weights of its own, or are they the model's as it comes?"""
    return bool(config.run.steps or config.warmup.steps or _forked(job))


def play(job: Job, *, project: Project, observe: Observer, interrupt: Interrupt) -> bool:
    """Play what is owed of it; True where it is done.

    Raises:
        UserError: its run was played with other settings, a larger budget, or from other weights.
        NotFound, NotReady, RunFailed, Held: as the parts say.
    """
    config = config_of(job, project=project)
    if _done(job, config):
        return True
    for one in job.upon:
        if not done(one, project=project):
            raise NotReady(f"{job.name} needs the run {one.name}, which is not played to its end", hint="play it first")
    if _forked(job) is not None and not (job.folder / files.NAME).exists():
        _fork(job, config, project=project)
    budget = job.study.budget if job.arm.steps is None and not job.arm.supervised else None
    meter = Meter()

    def enough(reader: Reader) -> bool:
        return budget is not None and meter.look(reader) >= budget

    try:
        outcome = build.execute(
            config, project=project, folder=job.folder, observe=observe, interrupt=interrupt, enough=enough
        )
    finally:
        give_back()  # what one arm leaves in the heap would be kept beside the next one's.
    return outcome.stop == "done"


def done(job: Job, *, project: Project) -> bool:
    """Is nothing left to be played of it?

    Raises:
        UserError: its run was played with a larger budget, or from other weights than its start has.
    """
    return all(done(one, project=project) for one in job.upon) and _done(job, config_of(job, project=project))


def _done(job: Job, config: Config) -> bool:
    """Are its weights there, and everything that it may spend spent? Of one that learns nothing they always are."""
    if not learns(job, config):
        return True
    try:
        with Ledger.read(job.folder) as reader:
            if reader.run_row().config_digest != config.digest:
                return False  # note: playing it says what differs.
            _refuse_strange(job, reader)
            saves = {save.policy_version for save in reader.saves()}
            saved = reader.status().policy_version in saves
            if job.arm.steps is not None or job.arm.supervised:
                return saved and reader.last_closed_step() + 1 >= config.run.steps
            meter = Meter()
            spent = meter.look(reader)
            if spent - meter.last >= job.study.budget:
                raise _other(job, f"was played for {spent:,} tokens, and the study's budget is {job.study.budget:,}")
            return saved and spent >= job.study.budget
    except NotFound:
        return False


def _refuse_strange(job: Job, reader: Reader) -> None:
    """Refuse a fork of other weights than its start's last ones: that one was played on, or made anew."""
    start, row = _forked(job), reader.parent_row()
    if start is None or row is None or not (start.folder / files.NAME).exists():
        return
    with Ledger.read(start.folder) as parent:
        last = max(parent.saves(), key=lambda save: (save.policy_version, save.step), default=None)
    if last is not None and last.weights_digest != row.weights_digest:
        raise _other(job, f"went on from other weights than `{start.name}` has now")


def _other(job: Job, what: str) -> UserError:
    return UserError(f"the run {job.name} {what}", hint=f"play it anew: remove {job.folder}")


def _forked(job: Job) -> Job | None:
    """The job whose run it is a fork of."""
    return None if job.arm.supervised else job.start


def _fork(job: Job, config: Config, *, project: Project) -> None:
    start = job.start
    assert start is not None
    changed = diff(from_run(start.folder, project=project, environ={}), config)
    if not changed:
        raise UserError(
            f"arm `{job.arm.name}` has the settings of `{start.arm.name}`, which it starts from",
            hint="let that one play longer (steps), or change a setting that affects results",
        )
    fork.make(config, fork.find(start.folder, changed), folder=job.folder)


def _supervised(job: Job) -> int:
    """Updates of its warm-up: the start's, and as many more as the budget pays for."""
    start = job.start
    if start is None:
        raise UserError(f"arm `{job.arm.name}` is supervised and has no start", hint="name one: start = 'warmup'")
    with Ledger.read(start.folder) as reader:
        tokens = [update.tokens for update in reader.updates("warmup")]
    if not tokens:
        raise UserError(
            f"arm `{start.arm.name}` has no warm-up for `{job.arm.name}` to be longer than", hint="set warmup.steps"
        )
    return len(tokens) + job.study.budget * len(tokens) // max(1, sum(tokens))


def machine() -> Iterator[tuple[str, str]]:
    """What it was measured on, without names."""
    import platform
    from importlib import metadata

    yield "processor", platform.machine()
    yield "cores", str(os.cpu_count() or 1)
    yield "python", platform.python_version()
    for package in ("torch", "transformers"):
        try:
            yield package, metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
