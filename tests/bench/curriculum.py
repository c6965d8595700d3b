"""Which curriculum reaches a skill with the fewest attempts? Synthetic learners whose skill and tasks are known.

    python tests/bench/curriculum.py [--presets a,b] [--laws a,b] [--worlds a,b] [--seeds 10] [--first-seed 0]
                                      [--steps 600] [--rate 0.004] [--jobs 1]

The curricula are the real ones; what the ledger answers comes from memory here (`curriculum_memory`). A learner has
one skill a module, a task one difficulty, and an attempt succeeds with the item-response chance
1 / (1 + exp(difficulty - skill)). Some tasks cannot be solved, some are decided by a coin, the verifier errs, and the
proposer moves towards what SSR's reward pays it.

Reported: attempts and steps until the mean solve rate on a fixed exam reaches `GOAL`, the share of the
attempts after warm-up that went to tasks nobody can solve or that a coin decides, and modules left alone for
`STARVED` steps. Intervals are 95 % (Student's t over seeds); ratios are against `uniform` with the same seed.

Oracles say what steering could win at most: they know every skill, difficulty and kind, and take what the law rewards
most, times what the exam gains by skill in that module. `oracle` may replay and choose where new tasks are asked for,
`oracle-where` only the latter; `oracle-half` takes 4 p (1 - p) for the law, as one must who does not know it.

The laws of learning below were written before any curriculum was run on them and are not tuned: which of them a real
model follows is not known, so a curriculum is only as good as its row under the law that suits it least.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from math import exp, sqrt

from curriculum_memory import Memory

from selfplay import curriculum
from selfplay.curriculum.history import Played
from selfplay.types import Choice, Seed, record

# What an attempt on a solvable task teaches, by the chance p that it succeeds; G attempts a group.

LAWS: Mapping[str, Callable[[float], float]] = {
    # A group's reward variance: what GRPO's advantages are made of. Rewards p(1-p), as the curricula assume.
    "variance": lambda p: 4.0 * p * (1.0 - p),
    # Only successes teach (rejection sampling): easy tasks are best. Does not reward p(1-p).
    "success": lambda p: p,
    # Practice: every attempt at something solvable teaches the same. Does not reward p(1-p).
    "constant": lambda p: 0.5,
    # A failure teaches where somebody in the group succeeded: hard tasks are best. Does not peak at one half.
    "hard": lambda p: (1.0 - p) * (1.0 - (1.0 - p) ** ATTEMPTS),
}

RATE = 0.004
"""Skill gained in a module by one attempt that teaches 1; `--rate` asks for a slower or faster learner."""
TRANSFER = 0.1
"""Share of it that every other module gains."""
REPEATED = 0.8
"""Each further play of one task teaches this much of the one before (it is remembered, not learnt from)."""
FAMILIAR = 0.3
"""Skill on a task itself gained by each play of it."""

# The world.

MODULES, SEEDS_A_MODULE = 8, 20
CHOICES, PROPOSALS, ATTEMPTS = 8, 2, 8
VALID = (0.35, 0.85)
"""Lowest and highest share of valid proposals of a seed."""
START = (-1.5, 0.8)
"""Mean and deviation of the first skills."""
SPREADS = {"task": (1.5, 1.5, 2.0), "place": (2.0, 2.0, 0.8)}
"""Deviations of difficulty between modules, seeds of one and tasks of one seed: is it the task that is hard, or the
place? First solve rates are U-shaped in both: about half of the groups are all or nothing, as real runs report them."""
SHARP = {"sharp task": 2.0, "sharp place": 2.0}
"""Worlds whose chances are steeper in difficulty (1 elsewhere), so that most groups are all or nothing.

Source: arXiv 2506.02177 needs up to 2.4 times fewer rollouts once it skips prompts whose groups agree, so that up to
1 - 1/2.4 = 58 % of them did, at least. 2 is the smallest whole number that gives as many: 62 to 67 % of first groups on
solvable tasks, at skills of -1.5 to 1.8 (1.5 gives 54 to 59 %, 1 gives 41 to 46 %), by integration.
"""
BAD_SEEDS, BAD_SHARE = 0.1, 0.6
"""Share of seeds on which tasks tend to be unsolvable or flaky, and how many of theirs are."""
INTENTS = {"honest": 0.7, "hard": 0.1, "easy": 0.1, "unsolvable": 0.06, "flaky": 0.04}
"""What the proposer tries at first."""
GREED = 0.002
"""How fast it moves towards what pays (exponentiated gradient, a step)."""
SHIFT = 1.5
"""By how much its hard tasks are harder and its easy ones easier."""
FALSE_FAIL, FALSE_PASS = 0.02, 0.005

GOAL = 0.7
WARM = 20
"""Steps after which shares are counted."""
STARVED = 40

# Without `ssr`, `ssp` and `ladder`: children, refill rounds and strategies are not simulated.
PRESETS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "uniform": ("uniform", {}),
    "frontier": ("frontier", {}),
    "probation": ("frontier", {"probation": 0.1}),
    "plr": (
        "frontier",
        {
            **{"replay": 0.9, "anneal": True, "temperature": 0.1, "explore": 1.0},
            **{"fade": 1.0, "only_better": False, "max_replays": 0, "retire": 1.0, "give_up": 0},
        },
    ),
    "bandit": ("bandit", {}),
}
ORACLES: Mapping[str, tuple[bool, str]] = {
    "oracle": (True, ""),
    "oracle-where": (False, ""),
    "oracle-half": (True, "variance"),
}
"""Name -> (may it replay?, the law it goes by where that is not the world's)."""
NODES = [(gauss / 2.0, exp(-(gauss**2) / 8.0)) for gauss in range(-6, 7)]
"""Points and weights for the mean over a standard normal, every half deviation to three."""


@record
class Task:
    """What the simulator knows of a task and the curriculum does not."""

    module: int
    seed: int
    difficulty: float
    kind: str


class World:
    """A learner, its tasks and its proposer."""

    def __init__(self, seed: int, law: str, world: str, rate: float) -> None:
        self.draw = random.Random(seed)
        self.law = LAWS[law]
        self.spread, self.rate = SPREADS[world.removeprefix("sharp ")], rate
        self.sharp = SHARP.get(world, 1.0)
        self.skill = [self.draw.gauss(*START) for _ in range(MODULES)]
        hard = [self.draw.gauss(0.0, self.spread[0]) for _ in range(MODULES)]
        self.base = [
            hard[s // SEEDS_A_MODULE] + self.draw.gauss(0.0, self.spread[1]) for s in range(MODULES * SEEDS_A_MODULE)
        ]
        self.bad = [self.draw.random() < BAD_SEEDS for _ in self.base]
        self.valid = [self.draw.uniform(*VALID) for _ in self.base]
        self.mix = dict(INTENTS)
        self.tasks: dict[str, Task] = {}
        self.seeds = [
            Seed(
                id=f"s{s:03d}",
                game="bench",
                source=f"s{s}",
                payload={"path": f"m{s // SEEDS_A_MODULE}.py"},
                split="train",
            )
            for s in range(len(self.base))
        ]

    def exam(self) -> float:
        """Mean solve rate on one honest task of middling difficulty a seed."""
        return statistics.fmean(self.exam_rates())

    def exam_rates(self) -> list[float]:
        """Solve rate of that task, a seed."""
        return [self.chance(self.skill[s // SEEDS_A_MODULE] - base) for s, base in enumerate(self.base)]

    def chance(self, advantage: float) -> float:
        """That an attempt succeeds, by how far the skill is above the difficulty."""
        return 1.0 / (1.0 + exp(-self.sharp * advantage))

    def slopes(self) -> list[float]:
        """What the exam gains by an attempt that teaches 1, a module."""
        own = [0.0] * MODULES
        for s, p in enumerate(self.exam_rates()):
            own[s // SEEDS_A_MODULE] += p * (1.0 - p)
        return [(1.0 - TRANSFER) * one + TRANSFER * sum(own) for one in own]

    def promised(self, seed: int, law: Callable[[float], float]) -> float:
        """What an attempt at the next task of a seed teaches at the mean."""
        total = 0.0
        for intent, shift in (("honest", 0.0), ("hard", SHIFT), ("easy", -SHIFT)):
            at = self.skill[seed // SEEDS_A_MODULE] - self.base[seed] - shift
            taught = sum(weight * law(self.chance(at + node * self.spread[2])) for node, weight in NODES)
            total += self.mix[intent] * taught / sum(weight for _, weight in NODES)
        return total * (1.0 - BAD_SHARE * self.bad[seed])

    def propose(self, seed: int, step: int, index: int) -> tuple[str, str] | None:
        """(task, intent) of a proposal on a seed; None where it is not valid."""
        if self.draw.random() > self.valid[seed]:
            return None
        intent = self.draw.choices(list(self.mix), list(self.mix.values()))[0]
        kind = intent
        if self.bad[seed] and self.draw.random() < BAD_SHARE:
            kind = self.draw.choice(("unsolvable", "flaky"))
        shift = {"hard": SHIFT, "easy": -SHIFT}.get(intent, 0.0)
        difficulty = self.base[seed] + shift + self.draw.gauss(0.0, self.spread[2])
        name = f"{step:04d}-{seed:03d}-{index}"
        self.tasks[name] = Task(module=seed // SEEDS_A_MODULE, seed=seed, difficulty=difficulty, kind=kind)
        return name, intent

    def attempt(self, name: str, plays: int, *, hinted: bool) -> tuple[int, float]:
        """(solved of a group as the verifier sees it, what the group teaches)."""
        task = self.tasks[name]
        # note: a hint is worth one unit of skill, and none of a task that cannot be solved.
        p = self.chance(self.skill[task.module] + FAMILIAR * plays + hinted - task.difficulty)
        if task.kind in ("unsolvable", "flaky"):
            p = 0.0 if task.kind == "unsolvable" else 0.5
        seen = p * (1.0 - FALSE_FAIL) + (1.0 - p) * FALSE_PASS
        solved = sum(self.draw.random() < seen for _ in range(ATTEMPTS))
        teaches = 0.0 if task.kind in ("unsolvable", "flaky") else ATTEMPTS * self.law(p) * REPEATED**plays
        return solved, teaches

    def learn(self, taught: Sequence[tuple[int, float]], paid: Sequence[tuple[str, float]]) -> None:
        """The solver gains skill, the proposer moves towards what paid (SSR's reward)."""
        for module, amount in taught:
            for other in range(MODULES):
                self.skill[other] += self.rate * amount * (1.0 if other == module else TRANSFER)
        for intent, reward in paid:
            self.mix[intent] *= exp(GREED * reward)
        total = sum(self.mix.values())
        self.mix = {intent: max(0.01, share / total) for intent, share in self.mix.items()}


@record
class Outcome:
    """One learner under one curriculum."""

    reached: bool
    steps: int
    attempts: int
    unsolvable: float
    """Share of the attempts after warm-up."""
    flaky: float
    starved: int
    """Modules without an attempt in some stretch of `STARVED` steps."""


def simulate(name: str, law: str, world: str, seed: int, *, steps: int, rate: float = RATE) -> Outcome:
    """Play until the exam's goal is reached, or `steps` are over."""
    learner, memory = World(seed, law, world, rate), Memory()
    choose: Callable[..., Sequence[Choice]]
    if name in ORACLES:
        choose = partial(oracle, learner, replays=ORACLES[name][0], law=LAWS[ORACLES[name][1] or law])
    else:
        function, options = PRESETS[name]
        choose = curriculum.configured(getattr(curriculum, function), options)
    wasted, total, after = {"unsolvable": 0, "flaky": 0}, 0, 0
    last, starved = [0] * MODULES, set()
    for step in range(steps):
        chosen = choose(memory, learner.seeds, n=CHOICES, step=step, seed=seed, first=0, taken=())
        played = play(learner, memory, chosen, step)
        total += ATTEMPTS * len(played)
        for task in played:
            last[task.module] = step
            if step >= WARM:
                after += ATTEMPTS
                if task.kind in wasted:
                    wasted[task.kind] += ATTEMPTS
        starved |= {module for module in range(MODULES) if step - last[module] >= STARVED}
        if learner.exam() >= GOAL:
            break
    return Outcome(
        reached=learner.exam() >= GOAL,
        steps=step + 1,
        attempts=total,
        unsolvable=wasted["unsolvable"] / max(1, after),
        flaky=wasted["flaky"] / max(1, after),
        starved=len(starved),
    )


def oracle(
    world: World,
    memory: Memory,
    seeds: Sequence[Seed],
    *,
    replays: bool,
    law: Callable[[float], float],
    n: int,
    step: int,
    **_: object,
) -> tuple[Choice, ...]:
    """The `n` subjects whose attempts raise the exam most."""
    slopes = world.slopes()
    worth = [(world.promised(s, law) * slopes[s // SEEDS_A_MODULE], "propose", seed.id) for s, seed in enumerate(seeds)]
    for name, known in memory.known.items() if replays else ():
        task, plays = world.tasks[name], len(known.plays)
        if task.kind not in ("unsolvable", "flaky"):
            p = world.chance(world.skill[task.module] + FAMILIAR * plays - task.difficulty)
            worth.append((law(p) * REPEATED**plays * slopes[task.module], "replay", name))
    best = sorted(worth, key=lambda one: (-one[0], one[2]))[:n]
    return tuple(
        Choice(step=step, index=i, mode=mode, subject_id=subject, score=value, why="it knows")  # type: ignore[arg-type]
        for i, (value, mode, subject) in enumerate(best)
    )


def play(world: World, memory: Memory, chosen: Sequence[Choice], step: int) -> list[Task]:
    """One step: propose, attempt, pay, learn, record; the tasks that were attempted."""
    asked, subjects, intents = [], [], {}
    for choice in chosen:
        if choice.mode == "propose":
            seed = int(choice.subject_id[1:])
            made = [one for i in range(PROPOSALS) if (one := world.propose(seed, step, i)) is not None]
            asked.append((choice.subject_id, PROPOSALS, len(made)))
            subjects += [(name, False) for name, _ in made]
            intents |= dict(made)
        else:
            subjects.append((choice.subject_id, bool(choice.terms.get("hint"))))
    plays, taught, paid = [], [], []
    for name, hinted in subjects:
        task, before = world.tasks[name], memory.known.get(name)
        solved, teaches = world.attempt(name, len(before.plays) if before else 0, hinted=hinted)
        taught.append((task.module, teaches))
        if name in intents:
            paid.append((intents[name], -0.8 if solved in (0, ATTEMPTS) else 1.0 - 1.8 * solved / ATTEMPTS))
        play_ = Played(step=step, decided=ATTEMPTS, solved=solved, hinted=hinted)
        plays.append((name, f"s{task.seed:03d}", play_))
    memory.record(asked=asked, plays=plays)
    world.learn(taught, paid)
    return [world.tasks[name] for name, _ in subjects]


T95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""Student's t for that many seeds."""


def interval(values: Sequence[float], form: str = "{:,.0f}") -> str:
    """Mean and half width of the 95 % interval."""
    if len(values) < 2:
        return form.format(values[0])
    half = T95.get(len(values), 2.0) * statistics.stdev(values) / sqrt(len(values))
    return f"{form.format(statistics.fmean(values))} ± {form.format(half)}"


def row(name: str, law: str, world: str, found: Sequence[Outcome], uniform: Sequence[Outcome]) -> str:
    """A line of the table."""
    ratios = [one.attempts / other.attempts for one, other in zip(found, uniform, strict=True)]
    cells = (
        *(world, law, name, f"{sum(one.reached for one in found)}/{len(found)}"),
        *(interval([one.attempts for one in found]), interval([one.steps for one in found])),
        interval(ratios, "{:.2f}"),
        *(f"{statistics.fmean(getattr(one, kind) for one in found):.1%}" for kind in ("unsolvable", "flaky")),
        str(max(one.starved for one in found)),
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", default=",".join((*PRESETS, *ORACLES)))
    parser.add_argument("--laws", default=",".join(LAWS))
    parser.add_argument("--worlds", default=",".join((*SPREADS, *SHARP)))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    head = ("difficulty is of the", "law", "preset", "reached", "attempts", "steps", "attempts / uniform's")
    print(f"| {' | '.join((*head, 'unsolvable', 'flaky', 'starved modules'))} |\n|---|---|---|{'--:|' * 7}")
    with ProcessPoolExecutor(asked.jobs) as pool:
        for world, law in product(asked.worlds.split(","), asked.laws.split(",")):
            uniform: list[Outcome] = []
            for name in dict.fromkeys(["uniform", *asked.presets.split(",")]):
                job = partial(simulate, name, law, world, steps=asked.steps, rate=asked.rate)
                found = list(pool.map(job, range(asked.first_seed, asked.first_seed + asked.seeds)))
                uniform = uniform or found
                print(row(name, law, world, found, uniform), flush=True)


if __name__ == "__main__":
    main()
