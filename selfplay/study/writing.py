"""Bugs that a model wrote as tasks of a study's endpoint: an arm's injector, in packages that nothing is trained on.

The arm that `[making]` names as writer plays the code game on the source, as an ordinary run beside the study's, in
which nothing is learnt; what its proposals became is kept in its ledger. No arm trains on them. A writer that was
warmed up with procedural bugs mostly writes such ones; those that are none are told apart when they are measured
(`unlike`).

Not here: what a proposal is checked for (the game), which functions count (`evaluation.making`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from selfplay.config import Config
from selfplay.evaluation import planted
from selfplay.evaluation.making import Find, in_turn, name_of, quick
from selfplay.evaluation.planted import Proved
from selfplay.events import Event, Interrupt, Observer
from selfplay.games.code import edits
from selfplay.games.code.mutate import mutations
from selfplay.ledger import Ledger
from selfplay.project import Project
from selfplay.stages import Interrupted
from selfplay.study import arms
from selfplay.study.arms import Job
from selfplay.study.spec import Arm, Study
from selfplay.types import Seed, Task, draw

PART = 4
"""Steps that are played before it is looked whether there are enough."""
PARTS = 12
"""Most of those; a source that gives fewer is told as it is."""
SETTINGS: Mapping[str, Any] = {
    "game.held_out": 0.0,
    "game.options": {},
    "roles.train": [],
    "curriculum.choose": "uniform",
    "curriculum.options": {},
    "curriculum.seeds": 8,
    "play.proposals": 8,
    "play.attempts": 1,
    "play.min_viable": 1,
    "play.refills": 0,
    "run.save_every": 1_000_000,
    "sandbox.kind": "auto",
    "warmup.steps": 0,
}
"""Of the writer's runs, over the study's: many proposals, nothing held back, nothing learnt, so that no example of a
warm-up is rehearsed in the source; in the sandbox that hides most, since this machine may have the source as well."""


def written(study: Study, *, root: Path, project: Project, observe: Observer, interrupt: Interrupt) -> Find:
    """Finds bugs that the study's writer plants; its runs lie in `root`, and are not played again.

    Finding raises `Interrupted` where one of them was asked to stop.
    """

    def find(source: str, *, wanted: int, each: int, seen: frozenset[str], path: Path) -> None:
        first = _job(study, study.arm(study.making.writer), root=root)
        _play(first, project=project, observe=observe, interrupt=interrupt)
        seeds: list[Seed] | None = None
        for part in range(1, PARTS + 1):
            job = _job(study, _arm(study, source, steps=part * PART), root=root)
            _play(job, project=project, observe=observe, interrupt=interrupt)
            config = arms.config_of(job, project=project)
            seeds = seeds or asyncio.run(_seeds(config, project=project, observe=observe))
            found = chosen(_tasks(job), list(in_turn(seeds, seen)), wanted=wanted, each=each)
            observe(Event(kind="note", data={"text": f"{source}: {len(found.tasks)} of {wanted} bugs"}))
            if len(found.tasks) == wanted:
                break
        planted.write(path, found, config=config, project=project)

    return find


def _job(study: Study, arm: Arm, *, root: Path) -> Job:
    seed = study.start_seed if study.start_seed is not None else study.seeds[0]
    return Job(study=study, arm=arm, seed=seed, root=root)


def _arm(study: Study, source: str, *, steps: int) -> Arm:
    return Arm(
        name=f"written-{name_of(source)}",
        about=f"Bugs of {study.making.writer} in {source}: nothing is learnt.",
        start=study.making.writer,
        upon=(study.making.writer,),
        steps=steps,
        supervised=False,
        measured=False,
        factors=None,
        settings={**SETTINGS, "game.source": source},
    )


def _play(job: Job, *, project: Project, observe: Observer, interrupt: Interrupt) -> None:
    if not arms.play(job, project=project, observe=observe, interrupt=interrupt):
        raise Interrupted


async def _seeds(config: Config, *, project: Project, observe: Observer) -> list[Seed]:
    async with planted.opened(config, project=project, observe=observe) as game:
        return await quick(game)


def _tasks(job: Job) -> list[Task]:
    """Every task that its run has."""
    with Ledger.read(job.folder) as reader:
        return [task for step in range(reader.last_closed_step() + 1) for task in reader.tasks(step)]


def chosen(every: Sequence[Task], seeds: Sequence[Seed], *, wanted: int, each: int) -> Proved:
    """The first `wanted` tasks, up to `each` of a seed, in the order of the seeds."""
    kept: list[Task] = []
    for seed in seeds:
        own = sorted((task for task in every if task.seed_id == seed.id), key=lambda task: draw("written", task.key))
        kept += own[:each]
    kept = kept[:wanted]
    used = {task.seed_id for task in kept}
    return Proved(tasks=tuple(kept), seeds=tuple(seed for seed in seeds if seed.id in used))


def unlike(task: Task) -> bool:
    """Is it a bug that no warm-up example can have had: is the function with it none of its procedural mutations?"""
    source, buggy = task.payload["source"], task.payload["buggy"]
    return all(edits.apply(source, mutation.edit) != buggy for mutation in mutations(source))
