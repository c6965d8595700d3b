"""Simulated work for `pipeline.py`: a learner that burns, a policy and a game that sleep.

Not here: what is measured.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from selfplay.games import NO_TERMS, Minted, Terms
from selfplay.games.rewards import ALONE, Beside
from selfplay.policy import Completion, PolicyCapabilities, Request
from selfplay.policy.toy import CharTokenizer
from selfplay.probe import TOKENS as PROBE_TOKENS
from selfplay.types import (
    Batch,
    Example,
    Fault,
    Phase,
    Role,
    Sample,
    Sampling,
    Save,
    Seed,
    Stop,
    Task,
    Trajectory,
    Update,
    Verdict,
    draw,
    record,
    task_id,
)


@record
class Mix:
    """Seconds of one unit of work, before they are drawn."""

    reply: float
    decision: float
    update: float
    spread: float = 0.3
    """Standard deviation of the logarithm."""
    faults: float = 0.0
    """Share of decisions that fail at their first try."""
    refused: float = 0.25
    """Share of proposals that become no task."""


@dataclass(slots=True)
class Spent:
    """Seconds by (step, what), as measured, and by trajectory for the chains."""

    by_step: dict[tuple[int, str], float] = field(default_factory=lambda: defaultdict(float))
    by_place: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def on(self, step: int, what: str, *, place: str = "") -> Iterator[None]:
        """Measure the time inside."""
        began = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - began
            self.by_step[step, what] += seconds
            self.by_place[place] += seconds


def drawn(mean: float, spread: float, *key: object) -> float:
    """A log-normal number of that mean, keyed; at most eight times the mean."""
    one, two = ((draw("bench", *key, i) + 1) / (1 << 63) for i in (1, 2))
    normal = math.sqrt(-2.0 * math.log(one)) * math.cos(2.0 * math.pi * two)
    return min(8.0 * mean, mean * math.exp(spread * normal - 0.5 * spread**2))


def share(*key: object) -> float:
    """A number between 0 and 1, keyed."""
    return draw("bench", *key) / (1 << 63)


class Learner:
    """Burns processor time; its weights are a counter."""

    fingerprint = "simulated"

    def __init__(self, mix: Mix, spent: Spent) -> None:
        self._mix, self._spent = mix, spent
        self.policy_version = 0

    def weights_digest(self) -> str:
        return str(self.policy_version)

    def update(self, batch: Batch, *, recorded: Update | None = None) -> Update:
        with self._spent.on(batch.step, "update"):
            burn(drawn(self._mix.update, 0.1, "update", batch.step))
        self.policy_version += 1
        return Update(
            step=batch.step,
            phase="play",
            policy_version=self.policy_version,
            trajectory_ids=tuple(sample.trajectory_id for sample in batch.samples),
            advantages=tuple(sample.advantage for sample in batch.samples),
            partition=(tuple(range(len(batch.samples))),),
            old_logprobs=tuple((-1.0,) * sum(sample.trained) for sample in batch.samples),
            lr=0.0,
            weights_digest=self.weights_digest(),
            reference_digest=None,
            fingerprint=self.fingerprint,
            loss=0.0,
            grad_norm=0.0,
            tokens=sum(sum(sample.trained) for sample in batch.samples),
            seconds=0.0,
        )

    def logprobs(self, samples: Sequence[Sample], *, temperature: float) -> tuple[tuple[float, ...], ...]:
        return tuple((-1.0,) * sum(sample.trained) for sample in samples)

    def imitate(self, examples: Sequence[Example], *, index: int, total: int) -> Update:
        raise NotImplementedError

    def start_phase(self, phase: Phase) -> None:
        pass

    def pin_reference(self, folder: Path | None = None) -> str:
        return ""

    def save(self, folder: Path, *, step: int) -> Save:
        folder.mkdir(parents=True)
        return Save(
            phase="play",
            step=step,
            policy_version=self.policy_version,
            path=str(folder),
            weights_digest=self.weights_digest(),
            state_digest="",
            num_bytes=0,
        )

    def load(self, folder: Path, save: Save) -> None:
        self.policy_version = save.policy_version


BLOCK = bytes(1 << 20)


def burn(seconds: float) -> None:
    """Use so much processor time of this thread; hashing lets other threads run."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        hashlib.sha256(BLOCK)


class Policy:
    """Sleeps as long as a reply takes; the loop bounds how many at the same time."""

    capabilities = PolicyCapabilities(trains=True, shares_weights=False, deterministic=True, max_context=1024)
    tokenizer = CharTokenizer()

    def __init__(self, mix: Mix, learner: Learner) -> None:
        self._mix, self._learner = mix, learner

    async def sample(self, request: Request) -> Completion:
        version = self._learner.policy_version
        if request.sampling.max_tokens != PROBE_TOKENS:
            await asyncio.sleep(drawn(self._mix.reply, self._mix.spread, "reply", request.seed))
        return Completion(
            token_ids=(5, 6, 7, 1),
            logprobs=(-1.0,) * 4,
            stop=Stop.DONE,
            policy_version=(version, self._learner.policy_version),
            seconds=0.0,
        )

    async def aclose(self) -> None:
        pass


class Game:
    """Three quarters of the proposals are tasks, half of the attempts right; deciding sleeps."""

    name = "simulated"
    proposer = Role(name="proposer", game=name, side="proposer", prompt="{{ text }}", sampling=Sampling(max_tokens=64))
    solver = Role(name="solver", game=name, side="solver", prompt="{{ text }}", sampling=Sampling(max_tokens=64))

    def __init__(self, mix: Mix, spent: Spent) -> None:
        self._mix, self._spent = mix, spent
        self._tried: set[str] = set()

    async def seeds(self) -> Sequence[Seed]:
        return [Seed(id=f"{i:032x}", game=self.name, source=f"{i}", payload={}, split="train") for i in range(64)]

    def proposer_view(self, seed: Seed, *, terms: Terms = NO_TERMS) -> Mapping[str, object]:
        return {"text": "propose"}

    def solver_view(self, task: Task, *, terms: Terms = NO_TERMS) -> Mapping[str, object]:
        return {"text": "attempt"}

    async def mint(self, proposal: Trajectory, seed: Seed) -> Minted:
        fault = await self._decide(proposal)
        valid = share("valid", proposal.id) >= self._mix.refused
        verdict = _verdict(proposal, stage="mint", valid=valid, passed=None, reward=None, fault=fault)
        if fault is not None or not valid:
            return Minted(verdict=verdict, task=None)
        task = Task(
            id=task_id("bench", game=self.name, key=proposal.id),
            game=self.name,
            seed_id=seed.id,
            key=proposal.id,
            payload={},
            split="train",
            step=proposal.step,
            parent_id=proposal.id,
        )
        return Minted(verdict=replace(verdict, task_id=task.id), task=task)

    async def mutate(self, parent: Task, attempt: Trajectory, *, step: int) -> Minted:
        raise NotImplementedError

    async def judge(self, attempt: Trajectory, task: Task) -> Verdict:
        fault = await self._decide(attempt)
        passed = None if fault else share("passed", attempt.id) < 0.5
        reward = None if fault else float(bool(passed))
        return _verdict(attempt, stage="judge", valid=True, passed=passed, reward=reward, fault=fault)

    async def _decide(self, trajectory: Trajectory) -> Fault | None:
        with self._spent.on(trajectory.step, "decision", place=trajectory.id):
            await asyncio.sleep(drawn(self._mix.decision, self._mix.spread, "decide", trajectory.id))
        if trajectory.id in self._tried or share("fault", trajectory.id) >= self._mix.faults:
            return None
        self._tried.add(trajectory.id)
        return Fault(culprit="sandbox", where="bench", message="it failed")

    def grade(
        self, proposal: Trajectory, minted: Verdict, judged: Sequence[Verdict], *, beside: Beside = ALONE
    ) -> Verdict:
        decided = [v.passed for v in judged if v.passed is not None]
        reward = 1.0 - sum(decided) / len(decided) if decided else -1.0
        return _verdict(proposal, stage="grade", valid=minted.valid, passed=None, reward=reward, fault=None)

    def examples(self, *, seed: int, first: int, count: int) -> Sequence[Example]:
        return ()

    async def dev(self) -> tuple[Sequence[Seed], Sequence[Task]]:
        return (), ()

    async def held_out(self, count: int) -> tuple[Sequence[Seed], Sequence[Task]]:
        return (), ()

    async def aclose(self) -> None:
        pass


def _verdict(trajectory: Trajectory, **fields: Any) -> Verdict:
    return Verdict(trajectory_id=trajectory.id, reason="simulated", why="it was drawn", **fields)
