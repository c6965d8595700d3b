"""Files of questions as tasks of the search game, answered under several conditions beside each other.

    search | found   as the solver plays: it searches the corpus, or is given what a search for the question finds
    closed book      a single turn without any passage: what the weights know by heart
    oracle           a single turn with the passages that the answer follows from: how well they read

The last two are the baselines: search is worth what lies between them. The oracle's passages are those that the file
names; else those that a search of the corpus for the question with its answer finds, where they hold the answer. A
question that has none is not asked there. Without a corpus there are only the baselines.

A solver with tools is asked in a single turn with the prompts of the game's reader (`games.search.reading`); a solver
without them with its own prompt.

Not here: reading files (`questions`), playing and figures (`measure`, `views.evaluation`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from selfplay import parts
from selfplay.config import Config, load
from selfplay.errors import UserError
from selfplay.evaluation.grounds import Ground
from selfplay.evaluation.questions import Asked, read
from selfplay.evaluation.stints import HeldOut
from selfplay.games.search.filters import stands_in
from selfplay.games.search.reading import source
from selfplay.mix import alone
from selfplay.project import Project
from selfplay.retrieval import Passage
from selfplay.retrieval.choosing import retriever_of
from selfplay.types import Limits, Role, Sampling, Seed, Task, digest, record, task_id

GAME = "search"
PRESET = "search-quickstart"
"""Whose roles a model plays that is no run's."""
TOKENS = 256
"""Sampled tokens of a single turn of a solver that has tools otherwise."""
ORACLE = 10
"""Passages that are looked through for the oracle's."""
_AT_ONCE = 8

Name = Literal["search", "found", "closed book", "oracle"]


@record
class Sitting:
    """Conditions whose solver is the same, so that they are played together."""

    ground: Ground
    conditions: Mapping[Name, frozenset[str]]
    """Condition -> ids of its tasks."""


@record
class Exam:
    """A file of questions, made ready."""

    sittings: tuple[Sitting, ...]
    questions: int
    unanswerable: int
    """Rows that say of themselves that they have no answer; left out."""
    corpus: str | None


def exam(
    path: Path, *, run: Config | None, corpus: str | None, count: int | None, sandbox: str | None, project: Project
) -> Exam:
    """The questions in `path`, at most `count`, as they are to be answered.

    Args:
        path: The file.
        run: Settings of the run whose weights are evaluated; None: those of the preset `PRESET`.
        corpus: Searched in the place of the run's.
        count: The first so many questions.
        sandbox: Must not be named: nothing runs in one.

    Raises:
        NotFound, NotReady, UserError: as `questions.read`; there is no such corpus; the run plays another game.
    """
    if sandbox is not None:
        raise UserError("answers to questions need no sandbox", hint="leave --sandbox away")
    if run is not None:
        # note: of a mix of games the one that answers questions.
        run = next((single for single in alone(run) if single.run.game == GAME), run)
    if run is not None and run.run.game != GAME:
        raise UserError(
            f"the run plays `{run.run.game}`, and {path} holds questions", hint="evaluate a run of the game `search`"
        )
    found = read(path)
    asked = found.asked[:count]
    config, named = _config(run, corpus=corpus, project=project)
    solver = parts.roles(config, project).solver
    passages = asyncio.run(_passages(asked, config=config, corpus=named, searches=solver.tools is not None))
    return Exam(
        sittings=tuple(_sittings(path, asked, passages, config=config, corpus=named, solver=solver)),
        questions=len(asked),
        unanswerable=found.unanswerable,
        corpus=named,
    )


def _config(run: Config | None, *, corpus: str | None, project: Project) -> tuple[Config, str | None]:
    """The settings, and the corpus that is searched, if any is."""
    if run is None:
        sets = [f"game.corpus={corpus}"] if corpus else []
        return load(PRESET, project=project, sets=sets, environ={}), corpus
    if corpus is not None:
        run = run.model_copy(update={"game": run.game.model_copy(update={"corpus": corpus})})
    return run, run.game.corpus


def single_turn(solver: Role) -> Role:
    """The solver in one turn, with passages given or without any: itself where it plays so."""
    if solver.tools is None:
        return solver
    prompt = "{% if passages %}" + source("read") + "{% else %}" + source("recall") + "{% endif %}"
    return replace(
        solver,
        name=f"{solver.name}_single",
        prompt=prompt,
        tools=None,
        limits=Limits(turns=1, tokens=TOKENS),
        sampling=Sampling(temperature=solver.sampling.temperature, max_tokens=TOKENS),
    )


@record
class _Seen:
    """What is shown with a question."""

    found: tuple[Passage, ...]
    oracle: tuple[Passage, ...]


async def _passages(
    asked: Sequence[Asked], *, config: Config, corpus: str | None, searches: bool
) -> Mapping[str, _Seen]:
    """Question's id -> what is shown with it.

    Raises:
        NotFound, UserError, NotReady, RunFailed, RetrievalFailed: the corpus cannot be searched.
    """
    if corpus is None:
        return {one.id: _Seen(found=(), oracle=one.support) for one in asked}
    options = parts.search_options(config)
    retriever = await retriever_of(options.retriever, corpus=corpus, seconds=options.timeout)
    room = asyncio.Semaphore(_AT_ONCE)

    async def look(one: Asked) -> _Seen:
        async with room:
            hits = [] if searches else await retriever.search(one.question, k=options.top_k)
            near = [] if one.support else await retriever.search(f"{one.question} {one.answers[0]}", k=ORACLE)
        holding = [hit.passage for hit in near if any(stands_in(hit.passage.text, answer) for answer in one.answers)]
        oracle = one.support or tuple(holding[: options.top_k])
        return _Seen(found=tuple(hit.passage for hit in hits), oracle=oracle)

    try:
        return dict(zip([one.id for one in asked], await asyncio.gather(*map(look, asked)), strict=True))
    finally:
        await retriever.aclose()


def _sittings(
    path: Path, asked: Sequence[Asked], seen: Mapping[str, _Seen], *, config: Config, corpus: str | None, solver: Role
) -> list[Sitting]:
    single = single_turn(solver)
    conditions: dict[Name, dict[str, Sequence[Passage] | None]] = {}
    if corpus is not None:
        own: Name = "found" if solver.tools is None else "search"
        conditions[own] = {one.id: None if solver.tools else seen[one.id].found for one in asked}
    conditions["closed book"] = {one.id: () for one in asked}
    conditions["oracle"] = {one.id: seen[one.id].oracle for one in asked if seen[one.id].oracle}
    seeds = {one.id: _seed(path, one) for one in asked}
    sittings = []
    for searches in dict.fromkeys(["search" in conditions, False]):
        names = [name for name in conditions if (name == "search") is searches and conditions[name]]
        tasks = {
            name: [
                _task(one, seeds[one.id], config=config, condition=name, given=conditions[name][one.id])
                for one in asked
                if one.id in conditions[name]
            ]
            for name in names
        }
        every = tuple(task for made in tasks.values() for task in made)
        on = HeldOut(seeds=(), tasks=every, others=tuple(seeds.values()))
        ground = Ground(
            words=str(path),
            config=config,
            config_digest=config.digest,
            folder=None,
            on=on,
            count=len(every),
            solver=solver if searches else single,
            seeded=False,
        )
        ids: dict[Name, frozenset[str]] = {name: frozenset(task.id for task in made) for name, made in tasks.items()}
        sittings.append(Sitting(ground=ground, conditions=ids))
    return sittings


def _seed(path: Path, asked: Asked) -> Seed:
    payload = {"question": asked.question, "answers": list(asked.answers)}
    return Seed(
        id=digest("seed", "question", asked.id, payload),
        game=GAME,
        source=f"{path.name}:{asked.id}",
        payload=payload,
        split="held_out",
    )


def _task(asked: Asked, seed: Seed, *, config: Config, condition: Name, given: Sequence[Passage] | None) -> Task:
    """A question under a condition; `given` are the passages shown, None where the solver searches."""
    payload: dict[str, Any] = {
        "question": asked.question,
        "answer": asked.answers[0],
        "aliases": list(asked.answers[1:]),
        "kind": "",
        "hop": 1,
        "document": "",
        "title": "",
        "evidence": [],
        "quote": "",
    }
    if given is not None:
        payload["passages"] = [asdict(one) for one in given]
    key = f"question:{digest(condition, seed.id, payload)}"
    return Task(
        id=task_id(config.digest, game=GAME, key=key),
        game=GAME,
        seed_id=seed.id,
        key=key,
        payload=payload,
        split="held_out",
        step=-1,
    )
