"""What is played next, chosen from the ledger.

A curriculum is a pure function of the ledger's closed steps: it keeps nothing, so resume needs no
state of its own. The loop commits its choices before they are played, and a recorded choice wins.

    choose(history, seeds, n, step, ...)  ->  Choices: propose on a seed, replay a task, mutate a task

    history.py      what may be asked of the past; read once for one choice, the ledger answers by index
    posterior.py    how likely a task is solved, what can be learnt from it, what a reward asks for
    pool.py         which known tasks are worth another play      where.py    where new ones are asked for
    presets.py      uniform, frontier       papers.py    ssr, ssp
    rungs.py        ladder                  arms.py      bandit     given.py   given
    needs.py        what a game must have for one      options.py   `curriculum.options`

Any dotted path to a callable of the shape `Curriculum` can stand in a preset's place. Terms that choices carry:
`strategy` (how to propose, or `second-order`), `attempt` (the failed trajectory that a child is made of), `hint` (true:
attempts on a known task see a hint), `turns` (an attempt's horizon); the loop adds `round` to those of a refill. Not
here: how a choice is played (`loop`, `games`), when two tasks are the same (`games.duplicates`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from selfplay.curriculum.arms import bandit
from selfplay.curriculum.given import given
from selfplay.curriculum.history import History
from selfplay.curriculum.needs import Needs, needs_of, refuse_missing
from selfplay.curriculum.options import configured
from selfplay.curriculum.papers import ssp, ssr
from selfplay.curriculum.presets import frontier, uniform
from selfplay.curriculum.rungs import ladder
from selfplay.types import Choice, Seed

__all__ = [
    "CURRICULA",
    "Curriculum",
    "History",
    "Needs",
    "bandit",
    "configured",
    "frontier",
    "given",
    "ladder",
    "needs_of",
    "refuse_missing",
    "ssp",
    "ssr",
    "uniform",
]


class Curriculum(Protocol):
    """Chooses `n` subjects for `step`, from what was closed before `step - staleness`.

    `first` is the index of the first choice; `taken` are the subjects of the step's earlier rounds. A refill round is
    told by `taken`, which is empty in the first round; `first` does not tell, since the games of a mix choose one after
    the other. Fewer choices than `n` are allowed; none in a refill round means that the step goes on with what it has.
    """

    def __call__(
        self,
        history: History,
        seeds: Sequence[Seed],
        *,
        n: int,
        step: int,
        seed: int,
        first: int,
        taken: Collection[str],
        staleness: int = 0,
    ) -> tuple[Choice, ...]: ...


CURRICULA: Mapping[str, Curriculum] = {
    "uniform": uniform,
    "frontier": frontier,
    "ssr": ssr,
    "ssp": ssp,
    "ladder": ladder,
    "bandit": bandit,
    "given": given,
}
"""Name -> function, as `curriculum.choose` takes them."""
