"""Places played with tools: recorded, tried again after a fault, and the same after an interruption."""

from __future__ import annotations

import asyncio
import string
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from selfplay.batches import sample_of
from selfplay.errors import NotReady, UserError
from selfplay.events import Interrupt, ignore
from selfplay.games.echo import EchoGame
from selfplay.learner.batch import pack
from selfplay.ledger import Ledger
from selfplay.measures import counts_of
from selfplay.policy import Policy
from selfplay.policy.local import LocalPolicy
from selfplay.policy.toy import toy_model
from selfplay.pools import Clock, Interrupted, Pools
from selfplay.rollout import Player
from selfplay.sandbox import SandboxInfraError
from selfplay.stages import Played, attempt
from selfplay.tools import Call
from selfplay.types import Role, Seed, Stop, Task, Trajectory, Verdict
from tests.rollout.counter import Counter, role, scripted, written

CONFIG = "c0"


class Counting(EchoGame):
    """The toy game whose solver counts with tools; what it hands over is right where the total is 2."""

    def __init__(self, solver: Role, *, before: Callable[[Call], Any] | None = None) -> None:
        super().__init__(proposer=solver, solver=solver, proposer_reward=lambda *_: 0.0, config_digest=CONFIG)
        self.before = before
        self.opened: list[Counter] = []

    def solver_view(self, task: Task, **_: Any) -> dict[str, object]:
        return {"goal": task.payload["word"]}

    async def toolbox(self, role: Role, subject: Seed | Task) -> Counter:
        self.opened.append(Counter(before=self.before))
        return self.opened[-1]

    async def judge(self, attempt: Trajectory, task: Task) -> Verdict:
        passed = attempt.product.get("total") == 2
        return Verdict(
            trajectory_id=attempt.id,
            stage="judge",
            valid=True,
            passed=passed,
            reward=float(passed),
            reason="passed" if passed else "wrong",
            why="it counted",
        )


class Plain(EchoGame):
    """The toy game, which gives no tools."""


def counts(prompt: str) -> str:
    """Counts to two and hands it over."""
    return written("fenced", "add", by=1) if prompt.count("the total is") < 2 else written("fenced", "submit")


TASKS = [
    Task(id=f"t{i}", game="echo", seed_id="s0", key=f"{i}", payload={"word": "two"}, split="train", step=0)
    for i in range(2)
]


def ledger_in(folder: Path) -> Ledger:
    if (folder / "ledger.db").exists():
        return Ledger.open(folder)
    ledger = Ledger.create(folder, config_digest=CONFIG, config={}, seed=0, game="echo")
    ledger.append(Seed(id="s0", game="echo", source="echo:s0", payload={"length": 1}, split="train"), *TASKS)
    return ledger


def pools(ledger: Ledger, policy: Policy, interrupt: Interrupt | None = None, *, retries: int = 2) -> Pools:
    return Pools(
        ledger=ledger,
        player=Player(policy=policy, config_digest=CONFIG, seed=7),
        observe=ignore,
        interrupt=interrupt or Interrupt(),
        clock=Clock(),
        rows=asyncio.Semaphore(2),
        workers=asyncio.Semaphore(2),
        retries=retries,
    )


def play(folder: Path, game: EchoGame, policy: Policy, interrupt: Interrupt | None = None) -> Sequence[Played]:
    async def main(ledger: Ledger) -> Sequence[Played]:
        return await attempt(pools(ledger, policy, interrupt), game, TASKS, step=0, count=3)

    with ledger_in(folder) as ledger:
        return asyncio.run(main(ledger))


def test_products_and_calls_are_recorded(tmp_path: Path) -> None:
    game = Counting(role())
    found = play(tmp_path, game, scripted(counts))
    assert [one.verdict.passed for one in found] == [True] * 6
    assert [toolbox.closed for toolbox in game.opened] == [1] * 6
    with Ledger.read(tmp_path) as ledger:
        assert ledger.check() == ()
        recorded = ledger.trajectories(0, "attempt")
        assert [t.product for t in recorded] == [{"total": 2}] * 6
        assert recorded == tuple(one.trajectory for one in found)
        assert [call.name for turn in recorded[0].turns for call in turn.calls] == ["add", "add", "submit"]
    again = Counting(role())
    assert play(tmp_path, again, scripted([])) == found
    assert again.opened == []


def test_a_fault_is_a_row_of_its_own_and_the_place_is_tried_again(tmp_path: Path) -> None:
    fails = iter([True, False, True, True, *[False] * 99])

    async def broken(call: Call) -> None:
        if call.name == "submit" and next(fails):
            raise SandboxInfraError("the engine does not answer")

    found = play(tmp_path, Counting(role(), before=broken), scripted(counts))
    assert [one.verdict.passed for one in found] == [True] * 6
    with Ledger.read(tmp_path) as ledger:
        faulty = ledger.trajectories(0, "attempt", faulty=True)
        assert len(faulty) == len(ledger.faults()) == 3
        assert {t.stop for t in faulty} == {Stop.FAULT}
        tries = {(t.subject_id, t.index): t.attempt for t in faulty}
        assert {(t.subject_id, t.index): t.attempt for t in ledger.trajectories(0, "attempt") if t.attempt} == {
            where: attempt + 1 for where, attempt in tries.items()
        }
        assert ledger.check() == ()


def test_a_place_whose_tools_never_come_has_no_reward_and_stays_so(tmp_path: Path) -> None:
    class Shy(Counting):
        asked = 0

        async def toolbox(self, role: Role, subject: Seed | Task) -> Counter:
            self.asked += 1
            if self.asked <= 3:
                raise SandboxInfraError("no room")
            return await super().toolbox(role, subject)

    found = play(tmp_path, Shy(role()), scripted(counts))
    lost = [one for one in found if one.verdict.fault is not None]
    assert [(one.verdict.reward, one.verdict.reason, one.trajectory.turns) for one in lost] == [(None, "fault", ())]
    assert len(found) == 6
    again = play(tmp_path, Counting(role()), scripted([]))
    assert again == found
    with Ledger.read(tmp_path) as ledger:
        (tally,) = ledger.status().open.values()
    assert tally.faults == 4, "three tries and the verdict"
    assert counts_of(found, ())["faults"] == 1, "one place, which is what the alarm goes by"


def test_a_machine_that_fails_most_plays_stops_the_run(tmp_path: Path) -> None:
    async def broken(call: Call) -> None:
        raise SandboxInfraError("the engine does not answer")

    with pytest.raises(NotReady, match="the engine does not answer"):
        play(tmp_path, Counting(role(), before=broken), scripted(counts))
    found = play(tmp_path, Counting(role()), scripted(counts))
    assert [one.verdict.passed for one in found] == [True] * 6
    assert {one.trajectory.attempt for one in found} == {3}


def test_a_game_without_tools_is_named(tmp_path: Path) -> None:
    plain = Plain(proposer=role(), solver=role(), proposer_reward=lambda *_: 0.0, config_digest=CONFIG)
    with pytest.raises(UserError, match="role `counter` has tools, and the game `echo` gives none"):
        play(tmp_path, plain, scripted([]))


@pytest.fixture(scope="module")
def toy() -> Iterator[tuple[Any, Policy, ThreadPoolExecutor]]:
    """A random model that writes anything printable, and a sampler of it."""
    model, tokenizer = toy_model(0, context=4096, alphabet=string.printable)
    with ThreadPoolExecutor(1) as torch_thread:
        policy = LocalPolicy(model, tokenizer, version=lambda: 0, executor=torch_thread)
        yield model, policy, torch_thread
        asyncio.run(policy.aclose())


def noisy() -> Role:
    """A role whose replies end at the first vowel or digit, so that a random model plays on."""
    own = role(max_tokens=200, turns=4)
    return replace(own, sampling=replace(own.sampling, stop=tuple("aeiou0123456789")))


def test_an_interrupted_play_is_played_again_to_the_same_ledger(tmp_path: Path, toy: Any) -> None:
    _, policy, _ = toy
    whole = play(tmp_path / "whole", Counting(noisy()), policy)
    assert {one.trajectory.stop for one in whole} <= {Stop.MALFORMED, Stop.TURNS, Stop.TOKENS}
    interrupt = Interrupt()

    class Pressing(Counting):
        async def judge(self, attempt: Trajectory, task: Task) -> Verdict:
            interrupt.press()
            return await super().judge(attempt, task)

    with pytest.raises(Interrupted):
        play(tmp_path / "cut", Pressing(noisy()), policy, interrupt)
    with Ledger.read(tmp_path / "cut") as ledger:
        answered = len(ledger.trajectories(0, "attempt"))
    assert 0 < answered < 6
    again = play(tmp_path / "cut", Counting(noisy()), policy)
    assert [one.trajectory.token_ids for one in again] == [one.trajectory.token_ids for one in whole]
    with Ledger.read(tmp_path / "whole") as one, Ledger.read(tmp_path / "cut") as other:
        assert one.comparable() == other.comparable()


def test_the_learner_sees_what_the_sampler_saw(tmp_path: Path, toy: Any) -> None:
    """Log-probabilities of all replies of a play in one forward are those under which each was sampled."""
    model, policy, torch_thread = toy
    found = play(tmp_path, Counting(noisy()), policy)
    samples = [sample_of(one.trajectory, advantage=1.0, group_id="g") for one in found]
    assert max(sum(turn.sampled for turn in one.trajectory.turns) for one in found) > 1
    for sample in samples:
        row = pack([sample], [0])
        ids_1T = torch.tensor([row.token_ids])
        logits_TV = torch_thread.submit(lambda ids=ids_1T: model(ids).logits[0].detach()).result()
        logprobs_TV = logits_TV.log_softmax(-1)
        scored = [float(logprobs_TV[at, token]) for at, token in zip(row.sources, row.targets, strict=True)]
        sampled = [p for p, trained in zip(sample.sampler_logprobs, sample.trained, strict=True) if trained]
        assert scored == pytest.approx(sampled, abs=1e-3)
    shared = [one.trajectory.turns[0].token_ids for one in found[:3]]
    assert len(set(shared)) == 1
    together = pack(samples[:3], range(3))
    alone = sum(len(pack([sample], [0]).token_ids) for sample in samples[:3])
    assert len(together.token_ids) == alone - 2 * len(shared[0])
