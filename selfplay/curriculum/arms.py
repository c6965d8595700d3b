"""A bandit over modules: new tasks are asked for where the solver's success changes most.

Each module of the train seeds is an arm; its gain is the change of the solve rate at first attempts between the older
and the newer half of the window (learning progress), or the mean |advantage| of its groups, 2 s (1 - s), as in SEC.
Arms are drawn by exponential weights with a share of even draws, as Exp3; the weights rest on mean gains within the
window instead of importance-weighted sums, since those would have to be kept.

Not here: replay, strategies.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import exp, inf

from selfplay.curriculum import pool
from selfplay.curriculum.history import Candidate, History, Seen, look, module_of
from selfplay.curriculum.options import within
from selfplay.curriculum.presets import Pick, numbered
from selfplay.types import Choice, Seed, draw, record

GAINS = ("progress", "advantage")


@record
class Bandit:
    """Options of `bandit`."""

    gain: str = "progress"
    """What an arm is paid: `progress` or `advantage`."""
    rate: float = 10.0
    """Learning rate of the exponential weights: an arm whose gain is 0.1 higher is drawn e times as often at 10."""
    even: float = 0.2
    """Share of even draws: no arm gets less than this divided by the number of arms."""
    window: int = 64
    """Closed steps that are looked at."""
    patience: int = 50
    """Steps in a row without a change of the weights after which the run stops."""

    def __post_init__(self) -> None:
        if self.gain not in GAINS:
            raise ValueError(f"option `gain` is {self.gain!r}, expected one of {', '.join(GAINS)}")
        within(self, rate=(0.0, inf), even=(0.0, 1.0), window=(2, inf), patience=(1, inf))


BANDIT = Bandit()


def bandit(
    history: History,
    seeds: Sequence[Seed],
    *,
    n: int,
    step: int,
    seed: int,
    first: int = 0,
    taken: Collection[str] = (),
    staleness: int = 0,
    options: Bandit = BANDIT,
) -> tuple[Choice, ...]:
    """`n` draws of a module with repetition, each the module's least played seed that is left.

    Raises:
        UserError: there is no train seed.
        RunFailed: the last `patience` steps changed nothing.
    """
    key = (seed, step, "choose", first)
    seen = look(history, seeds, step=step, staleness=staleness, window=options.window, patience=options.patience)
    gains = gains_of(seen, options.gain)
    chances = chances_of(gains, options)
    queues = _queues(seen, taken=taken, key=key)
    picks = []
    for i in range(min(n, len(seen.train))):
        arm = pool.pick([(name, chances[name]) for name, queue in queues.items() if queue], 1, key=(*key, "arm", i))[0]
        why = (
            f"module {arm or '(all)'}: {options.gain} {gains[arm]:.3f}, chance {chances[arm]:.3f} among "
            f"{len(chances)} modules"
        )
        picks.append(Pick(mode="propose", subject_id=queues[arm].pop(0).id, score=chances[arm], why=why))
    return numbered(picks, step=step, first=first)


def gains_of(seen: Seen, gain: str) -> Mapping[str, float]:
    """Module -> its gain; modules without enough tasks get the highest there is, so that they are tried."""
    arms: dict[str, list[Candidate]] = {module_of(seed): [] for seed in seen.train}
    for one in seen.candidates:
        if one.plain and one.cell.module in arms:
            arms[one.cell.module].append(one)
    measure = _progress if gain == "progress" else _advantage
    known = {name: measure(ones) for name, ones in arms.items() if len(ones) > 1}
    most = max(known.values(), default=1.0)
    return {name: known.get(name, most) for name in arms}


def chances_of(gains: Mapping[str, float], options: Bandit) -> Mapping[str, float]:
    """P = (1 - even) exp(rate gain) / Z + even / K, for K arms."""
    most = max(gains.values())
    weights = {name: exp(options.rate * (gain - most)) for name, gain in gains.items()}
    total = sum(weights.values())
    return {name: (1.0 - options.even) * w / total + options.even / len(weights) for name, w in weights.items()}


def _progress(ones: Sequence[Candidate]) -> float:
    """|newer - older| solve rate at first attempts, the tasks halved by age."""
    plays = sorted((one.plain[0] for one in ones), key=lambda play: play.step)
    half = len(plays) // 2
    old, new = (
        sum(play.solved for play in part) / sum(play.decided for play in part) for part in (plays[:half], plays[half:])
    )
    return abs(new - old)


def _advantage(ones: Sequence[Candidate]) -> float:
    rates = [one.plain[0].solved / one.plain[0].decided for one in ones]
    return sum(2.0 * rate * (1.0 - rate) for rate in rates) / len(rates)


def _queues(seen: Seen, *, taken: Collection[str], key: tuple[object, ...]) -> dict[str, list[Seed]]:
    """Module -> its seeds, the least proposed first, those taken last."""
    order = sorted(
        seen.train, key=lambda seed: (seed.id in taken, seen.counts.get(seed.id, 0), draw(*key, seed.id), seed.id)
    )
    queues: dict[str, list[Seed]] = {}
    for seed in order:
        queues.setdefault(module_of(seed), []).append(seed)
    return queues
