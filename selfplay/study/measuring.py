"""An arm's weights on the endpoint and on held-out seeds of what it trained on, and what the arm cost.

Not here: playing held-out tasks (`evaluation.measure`), figures over seeds (`statistics`, `page`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from selfplay.config import Config
from selfplay.errors import NotReady, RunFailed
from selfplay.evaluation.grounds import Ground, on_file, on_run
from selfplay.evaluation.measure import Ask, Measured, measure
from selfplay.evaluation.targets import Target, of_run
from selfplay.events import Observer
from selfplay.ledger import Ledger, StepRow, files, watching
from selfplay.project import Project
from selfplay.study import arms
from selfplay.study.arms import Job, Meter
from selfplay.study.results import UNLIKE
from selfplay.study.spec import HELD_OUT
from selfplay.study.writing import unlike
from selfplay.types import Task, digest, record

PART = 4
"""The first and the last 1 / PART of the steps are told apart."""


@record
class Looked:
    """What one target did on some tasks."""

    counts: dict[str, dict[str, list[int]]]
    """Function -> bug -> [decided attempts, passed ones]."""
    valid: list[int]
    """[Decided proposals on the tasks' seeds, valid ones]."""
    seconds: float


def result(job: Job, *, test: Sequence[Path], tested: bool, project: Project, observe: Observer) -> dict[str, Any]:
    """What is committed of an arm and a seed; `tested`: with the endpoint, else with held-out seeds alone.

    Raises:
        RunFailed: `selfplay check` finds something wrong with its ledger.
        NotFound, NotReady, UserError: as the parts say.
    """
    config = arms.config_of(job, project=project)
    own = arms.learns(job, config)
    target = of_run(job.folder, None, project=project) if own else _untrained(config)
    endpoint = job.study.endpoint
    wanted = endpoint.secondary or (0 if tested and endpoint.tasks != HELD_OUT else config.eval.tasks)
    looked: dict[str, Looked] = {}
    if tested and endpoint.tasks != HELD_OUT:
        found = [on_file(path, run=None, count=None, sandbox=None, project=project) for path in test]
        if not endpoint.proposals:
            found = [_unproposed(ground) for ground in found]
        looked |= _look(job, target, found, name="endpoint", project=project, observe=observe)
    if wanted:
        ground = partial(on_run, _ground_of(job, own), count=wanted, sandbox=None, project=project)
        name = "endpoint" if tested and endpoint.tasks == HELD_OUT else "held_out"
        looked |= _look(job, target, [ground()], name=name, project=project, observe=observe, again=ground)
    return {
        "schema": "selfplay.study/1",
        "study": job.study.name,
        "arm": job.arm.name,
        "arm_digest": job.study.arm_digests[job.arm.name],
        "about": job.arm.about,
        "start": job.arm.start,
        "seed": job.seed,
        "model": config.policy.model,
        "k": endpoint.k,
        "attempts": endpoint.attempts,
        "temperature": endpoint.temperature,
        "looked": {
            name: {"counts": one.counts, "valid": one.valid, "seconds": round(one.seconds, 1)}
            for name, one in looked.items()
        },
        "run": told(job) if own else None,
        "budget": job.study.budget,
        "machine": dict(arms.machine()),
    }


def _unproposed(ground: Ground) -> Ground:
    """The same tasks, and nobody proposes on their seeds."""
    on = ground.on
    assert on is not None
    return replace(ground, on=replace(on, seeds=(), others=(*on.seeds, *on.others)))


def _untrained(config: Config) -> Target:
    return Target(words=config.policy.model, kind="model", name=config.policy.model)


def _ground_of(job: Job, own: bool) -> Path:
    """A run whose held-out tasks are asked: its own, else that of the first arm that has one, with the same seed."""
    if own:
        return job.folder
    others = [replace(job, arm=arm) for arm in job.study.arms if arm.name != job.arm.name]
    found = next((other.folder for other in others if (other.folder / files.NAME).exists()), None)
    if found is None:
        raise NotReady(
            f"no run of study `{job.study.name}` with seed {job.seed} is here, whose held-out tasks `{job.arm.name}` "
            "could be asked",
            hint=f"play one: selfplay study {job.study.path} --only ARM --seed {job.seed}",
        )
    return found


def _look(
    job: Job,
    target: Target,
    grounds: Sequence[Ground],
    *,
    name: str,
    project: Project,
    observe: Observer,
    again: Any = None,
) -> dict[str, Looked]:
    """What it did, and beside it (`UNLIKE`) what it did on the bugs that no warm-up example can have had, if some."""
    endpoint = job.study.endpoint
    ask = Ask(attempts=endpoint.attempts, temperature=endpoint.temperature, seed=job.seed)
    whole, apart = (Looked(counts={}, valid=[0, 0], seconds=0.0) for _ in range(2))
    for ground in grounds:
        [found] = measure([target], ground, ask, project=project, observe=observe)
        on = ground.on if ground.on is not None else again().on
        assert on is not None
        tasks = {task.id: task for task in on.tasks}
        whole = _and(whole, found, tasks, source=ground.words)
        apart = _and(apart, found, {name: task for name, task in tasks.items() if _unlike(task)}, source=ground.words)
    return {name: whole, **({name + UNLIKE: apart} if 0 < _bugs(apart) < _bugs(whole) else {})}


def _and(before: Looked, found: Measured, tasks: Mapping[str, Task], *, source: str) -> Looked:
    """`before`, and what was found on `tasks`."""
    counts = {name: {bug: list(both) for bug, both in bugs.items()} for name, bugs in before.counts.items()}
    valid = list(before.valid)
    for play in found.plays:
        if play.side == "proposer":
            valid[0] += play.valid is not None
            valid[1] += bool(play.valid)
        elif (task := tasks.get(play.subject_id)) is not None:
            bugs = counts.setdefault(function_of(task, source=source), {})
            # note: a task has another id in a run of other settings; its key and its seed are the same.
            both = bugs.setdefault(digest("bug", task.seed_id, task.key)[:12], [0, 0])
            both[0] += play.passed is not None
            both[1] += bool(play.passed)
    ordered = {name: counts[name] for name in sorted(counts)}
    return Looked(counts=ordered, valid=valid, seconds=before.seconds + found.seconds)


def _unlike(task: Task) -> bool:
    return "buggy" in task.payload and unlike(task)


def _bugs(looked: Looked) -> int:
    return sum(map(len, looked.counts.values()))


def function_of(task: Task, *, source: str) -> str:
    """What a task's siblings share: the function that is broken; of another game the seed."""
    if "qualname" in task.payload:
        package = Path(source).stem if source.endswith(".jsonl") else ""
        return f"{package}:{task.payload['path']}::{task.payload['qualname']}".removeprefix(":")
    return task.seed_id[:12]


def told(job: Job) -> dict[str, Any]:
    """What its ledger says.

    Raises:
        RunFailed: `selfplay check` finds something wrong with it.
    """
    with Ledger.read(job.folder) as reader:
        if problems := reader.check():
            raise RunFailed(f"the ledger of {job.name} is not as it was written: {problems[0]}")
        meter = Meter()
        meter.look(reader)
        rows = reader.step_rows()
        spent = reader.ask(partial(watching.spent, since=0, before=len(rows)))
        warm, learnt = reader.updates("warmup"), reader.updates("play")
        return {
            "ledger": digest("ledger", sorted(reader.comparable().items())),
            "check": "accepted",
            "config": reader.run_row().config_digest,
            "fingerprint": [*warm, *learnt][-1].fingerprint if warm or learnt else None,
            "steps": len(rows),
            "weights": reader.saves()[-1].weights_digest if reader.saves() else None,
            "generated": meter.generated,
            "trained": meter.trained,
            "warmup_updates": len(warm),
            "warmup_tokens": sum(update.tokens for update in warm),
            "warmup_seconds": round(sum(update.seconds for update in warm), 1),
            "verifications": sum(_of(rows, "decided").values()),
            "seconds": round(sum(sum(row.stage_seconds.values()) for row in rows), 1),
            "sandbox_seconds": round(sum(one.deciding + one.tools for one in spent.values()), 1),
            "played": {name: _played(part) for name, part in _parts(rows).items()},
        }


def _parts(rows: Sequence[StepRow]) -> dict[str, Sequence[StepRow]]:
    width = max(1, len(rows) // PART)
    return {"first": rows[:width], "last": rows[-width:]} if rows else {}


def _of(rows: Sequence[StepRow], name: str) -> dict[str, int]:
    """Stage -> the tallies' sum."""
    found = dict.fromkeys(arms.STAGES, 0)
    for row in rows:
        for place, tally in row.tallies.items():
            stage = place.partition("/")[0]
            if stage in found:
                found[stage] += getattr(tally, name)
    return found


def _played(rows: Sequence[StepRow]) -> dict[str, float]:
    """What a part of the steps brought: proposals and attempts, and groups that teach."""
    decided, valid, passed = (_of(rows, name) for name in ("decided", "valid", "passed"))
    return {
        "proposals": decided["propose"],
        "valid": valid["propose"],
        "attempts": decided["attempt"],
        "passed": passed["attempt"],
        **{name: int(sum(row.counts.get(name, 0) for row in rows)) for name in ("groups", "informative", "tasks")},
    }
