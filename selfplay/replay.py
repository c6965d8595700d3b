"""A closed step of self-play, done again from its records: the same tokens? the same weights?

The weights before the step come from the nearest retained save at or before it; recorded updates that
lie between are applied again. Then the sampler half asks the policy for every reply of the step once
more, and the learner half applies the step's update once more; both are compared with the records, bit
by bit. The run is only read, so that another process may hold it. A backend that is not deterministic (`policy.backend`
other than `local`) is not asked again: there the weights alone are compared.

Not here: verdicts (`reverify`), updates of the warm-up, replies with tool turns (counted as not covered).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from selfplay import parts, resume
from selfplay import saves as kept
from selfplay.build import settings_of
from selfplay.cluster.again import until_lost
from selfplay.config import Config, from_run
from selfplay.errors import NotFound, RunFailed, UserError
from selfplay.learner import Learner
from selfplay.ledger import Ledger, Reader
from selfplay.loop import Settings
from selfplay.policy import Completion, Policy
from selfplay.project import Project
from selfplay.rollout import Play, request_of
from selfplay.types import Role, Save, Trajectory, Update, record

T = TypeVar("T")

Say = Callable[[str], None]
"""Where one-line words about the progress go."""


@record
class Difference:
    """The first place where a reply differs from the recorded one."""

    trajectory_id: str
    at: int
    """Position in the reply, 0-based."""
    what: str
    """One sentence part: `token 17 where 5 was recorded`."""


@record
class SamplerHalf:
    """The step's replies, sampled again."""

    total: int
    """Replies sampled again."""
    equal: int
    """Of them, equal in every token and, unless pruned, every log-probability."""
    uncovered: int
    """Replies with tool turns, or sampled under other weights: not sampled again."""
    logprobs: bool
    """Were log-probabilities compared? False where they are pruned."""
    first: Difference | None
    """In submission order; None where all are equal."""
    tokens: int
    seconds: float


@record
class LearnerHalf:
    """The step's update, applied again."""

    recorded: str
    """Digest of the weights after the step, as recorded."""
    again: str
    """The same, now."""
    drift: str | None
    """How they differ, in one sentence; None where they are equal."""
    skipped: str | None
    """Why the step did not change the weights; None where it did."""
    tokens: int
    """Trained tokens."""
    seconds: float


@record
class Replayed:
    """What came out."""

    step: int
    save: str | None
    """Path of the save it started from; None: the weights that the run began with."""
    applied: int
    """Recorded updates applied again between the save and the step."""
    same_fingerprint: bool
    """Is this the software and the kind of processor that the step was recorded with?"""
    sampler: SamplerHalf | None
    learner: LearnerHalf | None

    @property
    def equal(self) -> bool:
        """Is all that was compared equal?"""
        return (self.sampler is None or self.sampler.first is None) and (
            self.learner is None or self.learner.drift is None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a replay works with: a `resume.Site` that only reads, and a policy."""

    settings: Settings
    folder: Path
    ledger: Reader
    learner: Learner
    policy: Policy
    roles: Mapping[str, Role]
    torch_thread: Executor

    async def on_torch(self, job: Callable[[], T]) -> T:
        """Run `job` on the torch thread."""
        return await asyncio.get_running_loop().run_in_executor(self.torch_thread, job)


def replay(
    folder: Path, step: int, *, project: Project, sampler: bool = True, learner: bool = True, say: Say
) -> Replayed:
    """Do `step` of the run in `folder` again and compare; writes nothing.

    Raises:
        NotFound: the step is not closed, or cannot be reached; the nearest that can is named.
        UserError: `config.toml` is not the run's any more.
        RunFailed: every save in reach is damaged, or an update on the way gives other weights.
    """
    config = from_run(folder, project=project, environ={})
    if sampler and config.policy.backend != "local":
        text = f"the replies of policy.backend `{config.policy.backend}` cannot be had again, bit by bit"
        if not learner:
            raise UserError(text, hint=f"the weights can: selfplay replay {folder.name} {step} --without-sampler")
        say(f"{text}: the weights alone are compared")
        sampler = False
    with Ledger.read(folder) as reader:
        if reader.run_row().config_digest != config.digest:
            raise UserError(f"{folder / 'config.toml'} is not what the run was started with", hint="restore it")
        update = reader.update(step)
        if step > reader.last_closed_step() or update is None:
            newest = f"the newest is {reader.last_closed_step()}" if reader.last_closed_step() >= 0 else "none is"
            raise NotFound(
                f"step {step} of run `{folder.name}` is not closed: {newest}",
                hint=f"steps count from 0: selfplay status {folder.name}",
            )
        saves = starts(reader, folder, step, learner=learner)
        return until_lost(lambda: _replay(config, project, folder, reader, update, saves, sampler, learner, say))


def starts(reader: Reader, folder: Path, step: int, *, learner: bool) -> list[Save | None]:
    """Where the weights before `step` can be reached from, the nearest first; None: what the run began with.

    Raises:
        NotFound: from nowhere.
    """
    pruned = reader.last_pruned_step()
    # note: the weights before the first step are a save's where there was a warm-up, or where the run is a fork.
    bases: dict[int, Save | None] = {} if reader.num_updates("warmup") or reader.parent_row() else {-1: None}
    bases |= {save.step: save for save in kept.retained(reader, folder) if save.phase == "play"}
    # note: what is pruned cannot be applied again, so no update between the save and the step may be.
    found = sorted((base for base in bases if min(pruned, step - 1) <= base < step), reverse=True)
    if found and not (learner and step <= pruned):
        return [bases[base] for base in found]
    last, whole = reader.last_closed_step(), [base for base in bases if base >= pruned]
    reach = set(range(min(whole) + 1, last + 1)) if whole else set()
    if not learner:
        reach |= {base + 1 for base in bases if base + 1 <= last}
    raise _unreachable(folder.name, step, reach, half=bool(found))


def _unreachable(run: str, step: int, reach: set[int], *, half: bool) -> NotFound:
    why = "its log-probabilities are pruned" if half else "no save at or before it is left from which it can be played"
    text = f"step {step} of run `{run}` cannot be replayed: {why}"
    hints = []
    if reach:
        nearest = min(reach, key=lambda other: (abs(other - step), other))
        text += f"; the nearest step that can is {nearest}"
        hints.append(f"selfplay replay {run} {nearest}")
    if half:
        hints.append(f"its replies alone: selfplay replay {run} {step} --without-learner")
    return NotFound(text, hint="; ".join(hints) or "keep more saves: -s run.keep_saves=N")


async def _replay(
    config: Config,
    project: Project,
    folder: Path,
    reader: Reader,
    update: Update,
    saves: Sequence[Save | None],
    sampler: bool,
    learner: bool,
    say: Say,
) -> Replayed:
    async with AsyncExitStack() as stack:
        bench = await _bench(config, project, folder, reader, say, stack)
        save, applied = await _restore(bench, update, saves, say)
        return Replayed(
            step=update.step,
            save=save.path if save else None,
            applied=applied,
            same_fingerprint=bench.learner.fingerprint == update.fingerprint,
            sampler=await _sample_again(bench, update.step) if sampler else None,
            learner=await _learn_again(bench, update) if learner else None,
        )


async def _bench(
    config: Config, project: Project, folder: Path, reader: Reader, say: Say, stack: AsyncExitStack
) -> Bench:
    torch_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torch")
    stack.callback(torch_thread.shutdown, wait=False, cancel_futures=True)
    players = parts.roles(config, project)
    job = partial(parts.learner, config, players)
    model = await asyncio.get_running_loop().run_in_executor(torch_thread, job)
    stack.callback(model.close)
    policy = parts.policy(config, model, torch_thread, say=say, alarm=say)
    stack.push_async_callback(policy.aclose)
    return Bench(
        settings=settings_of(config, players),
        folder=folder,
        ledger=reader,
        learner=model.trainer,
        policy=policy,
        roles={role.name: role for role in players.everybody},
        torch_thread=torch_thread,
    )


async def _restore(bench: Bench, update: Update, saves: Sequence[Save | None], say: Say) -> tuple[Save | None, int]:
    """Bring the weights to before `update`: the save it started from, and how many updates were applied again."""
    save = await _load_first(bench, saves, say)
    await resume.pin_first(bench)
    updates = bench.ledger.updates("play", after=save.step if save else -1)
    pending = [u for u in updates if u.step < update.step and u.skipped is None]
    for number, earlier in enumerate(pending):
        say(f"applying recorded update {number + 1} of {len(pending)} again (step {earlier.step})")
        again = await resume.play_again(bench, earlier)
        if sentence := resume.drift(bench, earlier, again):
            raise RunFailed(sentence, hint=f"replay it by itself: selfplay replay {bench.folder.name} {earlier.step}")
    return save, len(pending)


async def _load_first(bench: Bench, saves: Sequence[Save | None], say: Say) -> Save | None:
    """Load the first save that is whole; a damaged one is named and passed over."""
    damaged: RunFailed | None = None
    for save in saves:
        if save is None:
            await bench.on_torch(lambda: bench.learner.start_phase("play"))
            return None
        try:
            await bench.on_torch(partial(bench.learner.load, bench.folder / save.path, save))
            return save
        except RunFailed as error:
            say(f"{error.message}; trying an earlier one")
            damaged = damaged or error
    assert damaged is not None, "there is a start"
    raise damaged


async def _learn_again(bench: Bench, update: Update) -> LearnerHalf:
    began = time.monotonic()
    again = await resume.play_again(bench, update)
    return LearnerHalf(
        recorded=update.weights_digest,
        again=again.weights_digest,
        drift=resume.drift(bench, update, again),
        skipped=update.skipped,
        tokens=update.tokens,
        seconds=time.monotonic() - began,
    )


async def _sample_again(bench: Bench, step: int) -> SamplerHalf:
    version = bench.learner.policy_version
    recorded = [*bench.ledger.trajectories(step, "propose"), *bench.ledger.trajectories(step, "attempt")]
    covered = [t for t in recorded if _is_covered(t, version=version)]
    began = time.monotonic()
    replies = await asyncio.gather(*(_ask(bench, trajectory) for trajectory in covered))
    seconds = time.monotonic() - began
    found = [_difference(trajectory, reply) for trajectory, reply in zip(covered, replies, strict=True)]
    return SamplerHalf(
        total=len(covered),
        equal=found.count(None),
        uncovered=len(recorded) - len(covered),
        logprobs=not any(_is_pruned(trajectory) for trajectory in covered),
        first=next(filter(None, found), None),
        tokens=sum(len(reply.token_ids) for reply in replies),
        seconds=seconds,
    )


def _is_covered(trajectory: Trajectory, *, version: int) -> bool:
    speakers = [turn.speaker for turn in trajectory.turns]
    return speakers == ["prompt", "policy"] and trajectory.policy_version == (version, version)


def _is_pruned(trajectory: Trajectory) -> bool:
    reply = trajectory.turns[-1]
    return bool(reply.token_ids) and not reply.logprobs


async def _ask(bench: Bench, trajectory: Trajectory) -> Completion:
    """The recorded request once more; its prompt is the recorded ids, so that the game is not needed."""
    play = Play(
        role=bench.roles[trajectory.role],
        stage=trajectory.stage,
        step=trajectory.step,
        subject_id=trajectory.subject_id,
        index=trajectory.index,
        attempt=trajectory.attempt,
    )
    return await bench.policy.sample(request_of(play, trajectory.turns[0].token_ids, seed=bench.settings.seed))


def _difference(recorded: Trajectory, again: Completion) -> Difference | None:
    reply = recorded.turns[-1]
    pairs = zip(again.token_ids, reply.token_ids, strict=False)
    at = next((i for i, (new, old) in enumerate(pairs) if new != old), None)
    if at is not None:
        what = f"token {again.token_ids[at]} where {reply.token_ids[at]} was recorded"
    elif len(again.token_ids) != len(reply.token_ids):
        at = min(len(again.token_ids), len(reply.token_ids))
        what = f"{len(again.token_ids)} tokens where {len(reply.token_ids)} were recorded"
    elif _is_pruned(recorded) or again.logprobs == reply.logprobs:
        return None
    else:
        at = next(i for i, (new, old) in enumerate(zip(again.logprobs, reply.logprobs, strict=True)) if new != old)
        what = f"log-probability {again.logprobs[at]!r} where {reply.logprobs[at]!r} was recorded"
    return Difference(trajectory_id=recorded.id, at=at, what=what)
