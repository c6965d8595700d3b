"""A study of the toy game that takes seconds: a warm-up from half-right lessons, then arms that learn from rewards.

The toy game has no warm-up of its own, and from random weights it needs minutes; these lessons teach its form, and in
the solver's place a wrong word as often as the right one. The proposer is then left as it is: a study so small says
whether rewards are learnt from, and it would end where a proposer drifts away from words of the asked length.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from selfplay.games.echo import MARK, WORDS, EchoGame
from selfplay.rollout import render
from selfplay.types import Example, draw

TEXT = """
[study]
about = "The toy game, warmed up to half right."
preset = "demo"
seeds = [0]
budget = 8000
minutes = 1
start = "warmup"
[endpoint]
measure = "pass@1"
attempts = 16
tasks = "held_out"
secondary = 6
compare = [["warmup", "repair"], ["shuffled", "repair"]]
[settings]
"warmup.steps" = 300
"warmup.examples" = 8
"warmup.lr" = 2e-3
"play.proposals" = 4
"play.attempts" = 8
"play.refills" = 0
"curriculum.seeds" = 4
"run.save_every" = 1000
"learner.lr" = 5e-4
"roles.train" = ["solver"]
[arms.warmup]
steps = 0
[arms.repair]
settings = { "curriculum.options" = { patience = 49 } }
[arms.shuffled]
settings = { "learner.estimator" = "selfplay.study.shuffled:grpo" }
"""


def written(folder: Path) -> Path:
    """The study's file."""
    path = folder / "practice.toml"
    path.write_text(TEXT)
    return path


def lessons(self: EchoGame, *, seed: int, first: int, count: int) -> Sequence[Example]:
    """Warm-up examples of both roles, in turns; of the solver's replies every other one is another word."""
    made = []
    for index in range(first, first + count):
        word = WORDS[draw("word", seed, index) % len(WORDS)]
        alike = [other for other in WORDS if len(other) == len(word)]
        said = alike[draw("said", seed, index) % len(alike)]
        if index % 2:
            prompt, role = render(self.proposer, {"marks": MARK * len(word)}), self.proposer
        else:
            prompt, role = render(self.solver, {"word": word, "hint": ""}), self.solver
        reply = said if index % 4 else word
        made.append(Example(role=role.name, source=word, prompt=prompt, replies=(reply,)))
    return tuple(made)
