"""The toy game: the proposer writes a word of a given length, the solver repeats it.

It exists so that the whole engine (loop, ledger, learner) learns something in under a minute on a
CPU, in tests and in `selfplay demo`. A seed is a length, drawn as that many question marks; a
proposal is valid when it is a word of exactly that length over `ALPHABET`; an attempt passes when it
equals the word.

Not here: sandboxes, files, time. Every verdict is decided at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from selfplay.games import NO_TERMS, Minted, Terms, kept_back
from selfplay.games.grading import graded
from selfplay.games.rewards import ALONE, Beside, ProposerReward
from selfplay.types import Example, Role, Seed, Split, Task, Trajectory, Verdict, digest, draw, task_id

ALPHABET = "ab"
MARK = "?"
CHARACTERS = f"{MARK}>{ALPHABET}"
"""All that prompts and replies of the game are made of."""
LONGEST = 2
WORDS = tuple("".join(letters) for length in range(1, LONGEST + 1) for letters in product(ALPHABET, repeat=length))
"""Every word there is: a held-out seed each."""


class EchoGame:
    """Implements `Game` without a verifier of its own."""

    name = "echo"

    def __init__(
        self, *, proposer: Role, solver: Role, proposer_reward: ProposerReward, config_digest: str, num_seeds: int = 4
    ) -> None:
        self.proposer = proposer
        self.solver = solver
        self._reward = proposer_reward
        self._config_digest = config_digest
        self._num_seeds = num_seeds

    async def seeds(self) -> Sequence[Seed]:
        """`num_seeds` train seeds, their lengths going round from 1 to `LONGEST`, and a held-out one a word.

        There are too few words to keep one from the players, so held-out figures here are of what was practised.
        """
        train = [
            Seed(
                id=digest("seed", "echo", index),
                game="echo",
                source=f"echo:{index}",
                payload={"length": 1 + index % LONGEST},
                split="train",
            )
            for index in range(self._num_seeds)
        ]
        held_out = [
            Seed(
                id=digest("seed", "echo", "held_out", word),
                game="echo",
                source=f"echo:{word}",
                payload={"length": len(word), "word": word},
                split="held_out",
            )
            for word in WORDS
        ]
        return [*train, *held_out]

    def proposer_view(self, seed: Seed, *, terms: Terms = NO_TERMS) -> Mapping[str, object]:
        """`marks`: one question mark a letter that is wanted."""
        return {"marks": MARK * int(seed.payload["length"])}

    def solver_view(self, task: Task, *, terms: Terms = NO_TERMS) -> Mapping[str, object]:
        """`word`: what to repeat; `hint`: its first letter, or empty."""
        word = str(task.payload["word"])
        return {"word": word, "hint": word[:1] if terms.get("hint") else ""}

    async def mint(self, proposal: Trajectory, seed: Seed) -> Minted:
        """Valid when the reply is a word of the wanted length over the alphabet, and ended by itself."""
        word, wanted = proposal.reply, int(seed.payload["length"])
        reason, why = "valid", f"{word!r} is a word of {wanted} letters"
        if proposal.stop.truncated:
            reason, why = "truncated", "the reply did not end"
        elif len(word) != wanted:
            reason, why = "wrong_length", f"{len(word)} characters where {wanted} letters were wanted"
        elif not set(word) <= set(ALPHABET):
            reason, why = "not_letters", f"{word!r} holds characters outside {ALPHABET}"
        # note: the step is part of the key, or the few words there are would soon all be duplicates.
        task = self._task(word, f"{proposal.step}:{word}", of=seed.id, split=seed.split, made_by=proposal)
        return _minted(proposal, task, reason=reason, why=why)

    async def mutate(self, parent: Task, attempt: Trajectory, *, step: int) -> Minted:
        """The word that a failed attempt wrote in its place, where it is a word."""
        word = attempt.reply
        reason, why = "valid", f"{word!r} was written where {parent.payload['word']!r} was wanted"
        if attempt.stop.truncated:
            reason, why = "truncated", "the reply did not end"
        elif not 1 <= len(word) <= LONGEST:
            reason, why = "wrong_length", f"{len(word)} characters where 1 to {LONGEST} letters make a word"
        elif not set(word) <= set(ALPHABET):
            reason, why = "not_letters", f"{word!r} holds characters outside {ALPHABET}"
        elif word == parent.payload["word"]:
            reason, why = "same_as_parent", f"{word!r} is the word that was wanted"
        # note: children have keys of their own, or each word would be the task of a proposal of its step.
        key = f"{step}:child:{word}"
        task = self._task(word, key, of=parent.seed_id, split=parent.split, made_by=attempt, step=step)
        return _minted(attempt, task, reason=reason, why=why)

    def _task(
        self, word: str, key: str, *, of: str, split: Split, made_by: Trajectory, step: int | None = None
    ) -> Task:
        return Task(
            id=task_id(self._config_digest, game="echo", key=key),
            game="echo",
            seed_id=of,
            key=key,
            payload={"word": word},
            split=split,
            step=made_by.step if step is None else step,
            parent_id=made_by.id,
        )

    async def judge(self, attempt: Trajectory, task: Task) -> Verdict:
        """Passed when the reply equals the word; the reward, -1 to +1, is the share of right letters and end."""
        word, reply = str(task.payload["word"]), attempt.reply
        ended = not attempt.stop.truncated
        right = sum(a == b for a, b in zip(word, reply, strict=False)) + (ended and len(reply) == len(word))
        share = right / (len(word) + 1)
        passed = ended and reply == word
        return Verdict(
            trajectory_id=attempt.id,
            stage="judge",
            valid=True,
            passed=passed,
            reward=2.0 * share - 1.0,
            reason="passed" if passed else "wrong",
            why=f"{reply!r} where {word!r} was wanted",
            parts={"share": share},
        )

    def grade(
        self, proposal: Trajectory, minted: Verdict, judged: Sequence[Verdict], *, beside: Beside = ALONE
    ) -> Verdict:
        """The proposer's reward from its task's solve rate; a reply that did not end cannot be read."""
        unreadable = ("truncated",)
        return graded(proposal, minted, judged, worth=self._reward, beside=beside, unreadable=unreadable)

    def examples(self, *, seed: int, first: int, count: int) -> Sequence[Example]:
        """None: the toy learns from nothing but its own play."""
        return ()

    async def dev(self) -> tuple[Sequence[Seed], Sequence[Task]]:
        """Empty: there is no warm-up."""
        return (), ()

    async def held_out(self, count: int) -> tuple[Sequence[Seed], Sequence[Task]]:
        """Held-out seeds, and the word of each to repeat."""
        seeds = kept_back(await self.seeds())[:count]
        tasks = []
        for seed in seeds:
            key = f"held_out:{seed.payload['word']}"
            tasks.append(
                Task(
                    id=task_id(self._config_digest, game="echo", key=key),
                    game="echo",
                    seed_id=seed.id,
                    key=key,
                    payload={"word": seed.payload["word"]},
                    split="held_out",
                    step=-1,
                )
            )
        return seeds, tasks

    async def given(self, seed: Seed) -> Task | None:
        """A word of the length that the seed asks for."""
        words = [word for word in WORDS if len(word) == int(seed.payload["length"])]
        word = words[draw("given", seed.id) % len(words)]
        key = f"given:{word}"
        return Task(
            id=task_id(self._config_digest, game="echo", key=key),
            game="echo",
            seed_id=seed.id,
            key=key,
            payload={"word": word},
            split=seed.split,
            step=-1,
        )

    async def aclose(self) -> None:
        """Nothing to free."""


def _minted(made_by: Trajectory, task: Task, *, reason: str, why: str) -> Minted:
    """The verdict, and the task where it is valid."""
    valid = reason == "valid"
    verdict = Verdict(
        trajectory_id=made_by.id,
        stage="mint",
        valid=valid,
        passed=None,
        reward=None,
        reason=reason,
        why=why,
        task_id=task.id if valid else None,
    )
    return Minted(verdict=verdict, task=task if valid else None)
