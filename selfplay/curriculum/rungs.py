"""A ladder: the next rung is unlocked by success on the last, and episodes may grow longer.

A rung is the name of a strategy that the game knows, such as a way to plant a bug; or, with the option `level`, the
seeds of which that key of the payload has the same value, the least first: hops of a question, letters of a word. How
high the ladder has been climbed is read off the tasks in the window, so nothing is kept: the highest rung with a known
task counts as reached. The horizon grows in stages as in ScalingInter-RL (AgentGym-RL); its turns are ours.

Not here: what a strategy is (the game), replay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from math import inf

from selfplay.curriculum import pool
from selfplay.curriculum.history import Candidate, History, Seen, look
from selfplay.curriculum.needs import Needs
from selfplay.curriculum.options import listed, within
from selfplay.curriculum.presets import Uniform, uniform
from selfplay.errors import UserError
from selfplay.types import Choice, Seed, record


@record
class Ladder:
    """Options of `ladder`."""

    strategies: str = "direct"
    """The rungs, lowest first, by comma; none where `level` is given."""
    level: str = ""
    """A key of the seeds' payload, e.g. `hop`: its values are the rungs, and no strategy is asked for."""
    unlock: float = 0.6
    """Solve rate on a rung, at first attempts, that unlocks the next."""
    enough: int = 32
    """Decided first attempts on a rung before that counts."""
    review: float = 0.2
    """Share of the choices for lower rungs."""
    turns: int = 0
    """Turns an attempt has at first; 0: the role's own limit."""
    longer: int = 0
    """Turns that are added at a stage."""
    every: int = 50
    """Steps a stage."""
    most: int = 0
    """Most turns; 0: no bound."""
    window: int = 64
    """Closed steps that are looked at."""
    patience: int = 50
    """Steps in a row without a change of the weights after which the run stops."""

    def __post_init__(self) -> None:
        if not self.asks and not self.level:
            raise ValueError("option `strategies` names no rung")
        within(self, unlock=(0.0, 1.0), review=(0.0, 1.0), enough=(1, inf), every=(1, inf))
        within(self, turns=(0, inf), longer=(0, inf), most=(0, inf), window=(1, inf), patience=(1, inf))

    @property
    def asks(self) -> tuple[str, ...]:
        """Strategies that the game must have."""
        return () if self.level else listed(self.strategies)

    @property
    def needs(self) -> Needs:
        """All that the game must have."""
        return Needs(strategies=self.asks, terms=("turns",) if self.turns else ())


LADDER = Ladder()


def ladder(
    history: History,
    seeds: Sequence[Seed],
    *,
    n: int,
    step: int,
    seed: int,
    first: int = 0,
    taken: Collection[str] = (),
    staleness: int = 0,
    options: Ladder = LADDER,
) -> tuple[Choice, ...]:
    """New tasks on the highest unlocked rung, and some on lower ones.

    Raises:
        UserError: there is no train seed, or one without a value of `level`.
        RunFailed: the last `patience` steps changed nothing.
    """
    seen = look(history, seeds, step=step, staleness=staleness, window=options.window, patience=options.patience)
    rungs = _by_level(seen, options.level) if options.level else _by_strategy(seen, options.asks)
    reached, said = climbed(rungs, options)
    turns = horizon(step, options)
    wanted = Counter(_place(reached, options, key=(seed, step, "choose", first + i, "rung")) for i in range(n))
    choices: list[Choice] = []

    def ask(at: int, count: int) -> None:
        chosen = {choice.subject_id for choice in choices}
        own = [one for one in rungs[at].seeds if one.id not in chosen]
        if not own or not count:
            return
        fresh = uniform(
            history,
            own,
            n=count,
            step=step,
            seed=seed,
            taken=taken,
            staleness=staleness,
            options=Uniform(patience=options.patience),
        )
        terms = {**({} if options.level else {"strategy": rungs[at].name}), **({"turns": turns} if turns else {})}
        why = f"{'review of ' if at < reached else ''}rung {at + 1} of {len(rungs)}, `{rungs[at].name}`: {said}; "
        choices.extend(replace(one, terms=terms, why=why + one.why) for one in fresh)

    down = range(reached, -1, -1)
    for at in down:
        ask(at, wanted[at])
    for at in down:
        # note: where the rungs have too few seeds, those below make up for them.
        ask(at, n - len(choices))
    return tuple(replace(choice, index=first + i) for i, choice in enumerate(choices))


@record
class Rung:
    """A step of the ladder."""

    name: str
    seeds: Sequence[Seed]
    """What may be proposed from on it."""
    known: Sequence[Candidate]
    """Its tasks in the window."""


def _by_strategy(seen: Seen, names: Sequence[str]) -> list[Rung]:
    return [
        Rung(name=name, seeds=seen.train, known=[one for one in seen.candidates if one.task.strategy == name])
        for name in names
    ]


def _by_level(seen: Seen, key: str) -> list[Rung]:
    """A rung for each value of the payload's `key`.

    Raises:
        UserError: a seed has no such value.
    """
    lacks = next((seed for seed in seen.train if not isinstance(seed.payload.get(key), int | float | str)), None)
    if lacks is not None:
        words = sorted(name for name, value in lacks.payload.items() if isinstance(value, int | float | str))
        raise UserError(
            f"option `level` of curriculum `ladder` is `{key}`, and seeds of game `{lacks.game}` have no such value",
            hint=f"they have: {', '.join(words) or 'none'}",
        )
    values = {seed.id: seed.payload[key] for seed in seen.train}
    return [
        Rung(
            name=f"{key} {value}",
            seeds=[seed for seed in seen.train if values[seed.id] == value],
            known=[one for one in seen.candidates if values.get(one.task.seed_id) == value],
        )
        for value in sorted(set(values.values()), key=lambda value: (isinstance(value, str), value))
    ]


def _place(reached: int, options: Ladder, *, key: tuple[object, ...]) -> int:
    """The rung of one choice: the one that is reached, or for a share of them one below."""
    lower = reached > 0 and pool.fraction(*key) < options.review
    return int(pool.fraction(*key, "lower") * reached) if lower else reached


def climbed(rungs: Sequence[Rung], options: Ladder) -> tuple[int, str]:
    """The highest unlocked rung, and why, in words."""
    reached = max((i for i, rung in enumerate(rungs) if rung.known), default=0)
    firsts = [one.plain[0] for one in rungs[reached].known if one.plain]
    decided, solved = sum(play.decided for play in firsts), sum(play.solved for play in firsts)
    said = f"{solved} of {decided} first attempts solved on `{rungs[reached].name}`"
    if reached + 1 < len(rungs) and decided >= options.enough and solved >= options.unlock * decided:
        return reached + 1, f"{said}, at least {options.unlock:g} unlock the next"
    return reached, f"{said}, {options.unlock:g} of at least {options.enough} unlock the next"


def horizon(step: int, options: Ladder) -> int:
    """Turns that an attempt has in `step`; 0 leaves it to the role."""
    if not options.turns:
        return 0
    turns = options.turns + options.longer * (step // options.every)
    return min(turns, options.most) if options.most else turns
