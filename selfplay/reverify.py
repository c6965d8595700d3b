"""Stored attempts, judged again by today's verifier, without sampling: whose verdict is another one now?

Covered: every attempt of play that has a verdict, or the newest ones, of a mix each by its own game; and the bugs of
the game `code`, alone or mixed: the clean function must pass and the buggy one fail. Recorded verdicts are final, since
weights were learnt from them, so nothing is rewritten: what changed is returned, and one alarm says how much. The
writer's lock is held meanwhile.

Not here: proposals, attempts on the dev set, sampling again and the learner (`replay`), words (`cli.reverify`).
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from selfplay import origins, parts
from selfplay.config import Config, from_run
from selfplay.config.settings import affects_results
from selfplay.errors import NotReady, UserError
from selfplay.evaluation.tasks import source_in_words
from selfplay.events import Event
from selfplay.games import Game
from selfplay.games.mixed import MixedGame
from selfplay.ledger import Ledger, Reader
from selfplay.ledger.records import REVERIFIED
from selfplay.project import Project
from selfplay.types import Task, Trajectory, Verdict, record
from selfplay.views.words import plural

T = TypeVar("T")
Say = Callable[[str], None]
"""Where one-line words about the progress go."""


@record
class Changed:
    """One thing whose decision is another one now."""

    id: str
    """Of the attempt, or of the task."""
    task_id: str
    step: int
    old: str
    """The recorded decision: `passed (passed)`, `failed (tests_fail)`, `undecided (fault)`, `valid`."""
    new: str
    why: str
    """Today's sentence."""


@record
class Reverified:
    """What came out."""

    what: str
    """`attempts` or `tasks`."""
    total: int
    """Judged again."""
    identical: int
    """Of them, equal to the record in everything but times."""
    undecided: int
    """The machine failed: nothing was decided."""
    changed: tuple[Changed, ...]
    """By step and place."""

    @property
    def counted(self) -> str:
        """`1 task`, `40 attempts`."""
        return plural(self.total, self.what.removesuffix("s"))


def reverify(
    folder: Path,
    *,
    project: Project,
    sandbox: str | None = None,
    limit: int | None = None,
    tasks: bool = False,
    say: Say,
) -> Reverified:
    """Judge what the run in `folder` stored again: its attempts or, with `tasks`, its bugs; the newest `limit`.

    Raises:
        NotFound: there is no run.
        Held: another process holds it.
        UserError: `config.toml` or the source is not the run's any more; its game has no bugs to prove.
        NotReady: no sandbox works here, or the machine failed on everything.
    """
    sets = [f"sandbox.kind={sandbox}"] if sandbox else []
    config = from_run(folder, project=project, sets=sets, environ={})
    with Ledger.open(folder) as ledger:
        done, how = REVERIFIED
        try:
            _refuse_other(config, ledger)
            found = asyncio.run(_reverify(config, project, ledger, limit=limit, tasks=tasks, say=say))
            _record(ledger, found)
            how = done
        finally:
            ledger.end_launch(how)
    return found


def _refuse_other(config: Config, reader: Reader) -> None:
    """The run's settings must be those that were recorded; settings that are newer than the run have their defaults."""
    now, recorded = config.values(), reader.run_row().config
    other = [name for name in now if name in recorded and affects_results(name) and now[name] != recorded[name]]
    if other:
        raise UserError(
            f"{reader.folder / 'config.toml'} is not what the run was started with: {', '.join(other)}",
            hint=f"set it back: {other[0]} was {recorded[other[0]]!r}",
        )


def _record(ledger: Ledger, found: Reverified) -> None:
    text = f"{found.counted} judged again: {len(found.changed)} changed, {found.undecided} undecided"
    ledger.append_alarm(level="warning" if found.changed else "note", code="reverified", message=text)


async def _reverify(
    config: Config, project: Project, reader: Reader, *, limit: int | None, tasks: bool, say: Say
) -> Reverified:
    def observe(event: Event) -> None:
        words = event.data.get("text") or event.data.get("waits_for")
        if words:
            say(str(words))

    async with AsyncExitStack() as stack:
        game, _ = await parts.game(config, project, parts.roles(config, project), observe=observe, stack=stack)
        await asyncio.to_thread(origins.refuse_source, reader, config, project)
        workers = asyncio.Semaphore(config.sandbox.workers or os.cpu_count() or 1)
        try:
            if tasks:
                return await _tasks(game, reader, limit=limit, workers=workers, say=say)
            return await _attempts(game, reader, limit=limit, workers=workers, tries=config.play.tries, say=say)
        except ValueError as error:
            raise UserError(
                f"what run `{reader.folder.name}` recorded does not fit its source {source_in_words(config)}: {error}",
                hint="give the source back the content that it was played with",
            ) from error


async def _attempts(
    game: Game, reader: Reader, *, limit: int | None, workers: asyncio.Semaphore, tries: int, say: Say
) -> Reverified:
    stored = stored_attempts(reader, limit=limit)

    async def judged(attempt: Trajectory, task: Task) -> Verdict:
        for _ in range(tries):
            verdict = await game.judge(attempt, task)
            if verdict.fault is None:
                break
        return verdict

    jobs = [partial(judged, attempt, task) for attempt, task, _ in stored]
    again = await _all(jobs, workers=workers, say=say, what="attempts")
    pairs = [(attempt, old, new) for (attempt, _, old), new in zip(stored, again, strict=True)]
    decided = [(attempt, old, new) for attempt, old, new in pairs if new.fault is None]
    _refuse_silence(len(pairs), len(decided), [new.why for new in again])
    changed = [
        Changed(
            id=attempt.id,
            task_id=attempt.subject_id,
            step=attempt.step,
            old=_decision(old),
            new=_decision(new),
            why=new.why,
        )
        for attempt, old, new in decided
        if (old.valid, old.passed, old.reason) != (new.valid, new.passed, new.reason)
    ]
    return Reverified(
        what="attempts",
        total=len(pairs),
        identical=sum(_rows_equal(old, new) for _, old, new in decided),
        undecided=len(pairs) - len(decided),
        changed=tuple(changed),
    )


def stored_attempts(reader: Reader, *, limit: int | None = None) -> list[tuple[Trajectory, Task, Verdict]]:
    """Attempts of play that have a verdict, with their tasks, by step and place; the newest `limit`."""
    found: list[tuple[Trajectory, Task, Verdict]] = []
    for step in range(reader.open_step(), -1, -1):
        if limit is not None and len(found) >= limit:
            break
        verdicts = reader.verdicts(step, "attempt", "judge")
        here = []
        for attempt in reader.trajectories(step, "attempt"):
            task = reader.task(attempt.subject_id)
            if task is not None and attempt.id in verdicts:
                here.append((attempt, task, verdicts[attempt.id]))
        found = here + found
    return found if limit is None else found[len(found) - min(limit, len(found)) :]


async def _tasks(game: Game, reader: Reader, *, limit: int | None, workers: asyncio.Semaphore, say: Say) -> Reverified:
    played = game.games if isinstance(game, MixedGame) else (game,)
    code = next((one for one in played if one.name == "code"), None)
    if code is None:
        raise UserError(
            f"the game `{game.name}` has no bugs to prove again", hint=f"selfplay reverify {reader.folder.name}"
        )
    from selfplay.games.code import CodeGame, Repositories, TreeGame
    from selfplay.games.code.rejudge import Proof, proved
    from selfplay.sandbox import SandboxInfraError

    assert isinstance(code, CodeGame | TreeGame | Repositories)
    await code.seeds()
    # note: dev tasks are of step -1.
    steps = range(-1, reader.open_step() + 1)
    stored = [task for step in steps for task in reader.tasks(step) if task.game == code.name]
    stored = stored if limit is None else stored[len(stored) - min(limit, len(stored)) :]

    async def one(task: Task) -> Proof | SandboxInfraError:
        try:
            return await proved(code.of(task) if isinstance(code, Repositories) else code, task)
        except SandboxInfraError as error:
            return error

    proofs = await _all([partial(one, task) for task in stored], workers=workers, say=say, what="tasks")
    pairs = list(zip(stored, proofs, strict=True))
    decided = [(task, proof) for task, proof in pairs if isinstance(proof, Proof)]
    _refuse_silence(len(pairs), len(decided), [str(proof) for _, proof in pairs if not isinstance(proof, Proof)])
    return Reverified(
        what="tasks",
        total=len(pairs),
        identical=sum(proof.holds for _, proof in decided),
        undecided=len(pairs) - len(decided),
        changed=tuple(
            Changed(id=task.id, task_id=task.id, step=task.step, old="valid", new="no bug", why=proof.why)
            for task, proof in decided
            if not proof.holds
        ),
    )


async def _all(
    jobs: Sequence[Callable[[], Awaitable[T]]], *, workers: asyncio.Semaphore, say: Say, what: str
) -> list[T]:
    """The results of `jobs`, in their order; says every tenth of them how far it is."""
    done, every = 0, -(-len(jobs) // 10)

    async def one(job: Callable[[], Awaitable[T]]) -> T:
        nonlocal done
        async with workers:
            result = await job()
        done += 1
        if done % every == 0 and done < len(jobs):
            say(f"{done} of {len(jobs)} {what} judged again")
        return result

    return list(await asyncio.gather(*(one(job) for job in jobs)))


def _refuse_silence(total: int, decided: int, said: Sequence[str]) -> None:
    if total and not decided:
        raise NotReady(f"the machine failed on all of {total}: {said[0]}", hint="see what is wrong: selfplay doctor")


def _decision(verdict: Verdict) -> str:
    word = {True: "passed", False: "failed", None: "undecided"}[verdict.passed]
    return f"{word} ({verdict.reason})"


def _rows_equal(old: Verdict, new: Verdict) -> bool:
    """Equal in everything that a ledger's row holds but times."""
    return _row(old) == _row(new)


def _row(verdict: Verdict) -> str:
    # note: as JSON, since a mapping that was read has lists where the verifier's may have tuples.
    return json.dumps(asdict(replace(verdict, seconds=0.0)), sort_keys=True)
