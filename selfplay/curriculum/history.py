"""What a curriculum may ask of the past, and all of it read once for one choice.

`History` is a small protocol: the ledger serves it with indexed queries, a simulator from memory. Every answer is about
closed steps below `before`; a choice for `step` asks below `step - staleness`, so what is chosen does not depend on
what is still being played. `look` turns the answers into `Seen`: seeds, what became of them, tasks and their posterior.

Not here: the queries (`ledger.curricula`), the posterior's formulas (`posterior`), choosing (`presets`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple, Protocol

from selfplay.curriculum import posterior
from selfplay.curriculum.posterior import Beta
from selfplay.errors import RunFailed, UserError
from selfplay.ledger.curricula import KnownTask, Played, Proposed
from selfplay.types import Seed, record

__all__ = ["Candidate", "Cell", "History", "KnownTask", "Played", "Proposed", "Seen", "look", "train_of"]


class History(Protocol):
    """What a curriculum may ask; closed steps only."""

    def played_seeds(self, *, before: int) -> Mapping[str, int]:
        """How often each seed was chosen for a proposal below `before`, in all."""
        ...

    def known_tasks(self, *, since: int, before: int) -> Sequence[KnownTask]:
        """Train tasks that were attempted in steps `since` to below `before`, with all their plays below `before`."""
        ...

    def proposals(self, *, since: int, before: int) -> Mapping[str, Proposed]:
        """What became of the proposals of those steps, by subject."""
        ...

    def movement(self, *, since: int, before: int) -> Mapping[int, float]:
        """Step -> how far its update moved the policy; the ledger counts updates: 1, or 0 where nothing changed.

        Another unit is as good, if `half_life` of the options is in it.
        """
        ...

    def failed_attempts(self, task_id: str, *, before: int) -> Sequence[str]:
        """Ids of the attempts on a task that failed inside the rules and limits and have no child, newest first."""
        ...


class Cell(NamedTuple):
    """Tasks that are alike before anybody has tried them."""

    role: str
    strategy: str
    module: str
    """The file, document or topic of the seed; empty where the game has none."""

    def __str__(self) -> str:
        return "/".join(part for part in self if part)


@record
class Candidate:
    """A known task, and what is believed about it."""

    task: KnownTask
    cell: Cell
    rate: Beta
    """Posterior of its solve rate without a hint."""
    hinted: Beta | None
    """The same with a hint; None where no attempt with one was decided."""
    idle: int
    """Steps since it was last played."""

    @property
    def replays(self) -> int:
        """How often it was played after the first time."""
        return len(self.task.plays) - 1

    @property
    def plain(self) -> tuple[Played, ...]:
        """Its decided plays without a hint."""
        return tuple(play for play in self.task.plays if play.decided and not play.hinted)

    @property
    def regret(self) -> float | None:
        """R(hint) - R(no hint), in solve rates as measured; None before both are known.

        What SPADE (arXiv 2608.19197) pays its designer: a task that a hint makes solvable is hard, one that it does not
        is more likely wrong.
        """
        hinted = [play for play in self.task.plays if play.decided and play.hinted]
        if not hinted or not self.plain:
            return None
        return _share(hinted) - _share(self.plain)


@record
class Seen:
    """All that one choice rests on."""

    before: int
    """Steps below it count."""
    window: int
    """How many of them were read."""
    train: tuple[Seed, ...]
    counts: Mapping[str, int]
    """Seed id -> times it was proposed from, in all."""
    proposed: Mapping[str, Proposed]
    """Subject -> what became of the proposals on it in the window."""
    candidates: tuple[Candidate, ...]
    priors: Mapping[Cell, Beta]
    moved: Mapping[int, float]
    distance: Mapping[int, float]
    """Step -> how far the policy has moved since it was played."""

    def moved_since(self, step: int) -> float:
        """How far the policy has moved; a step from before the movement is known counts as its beginning."""
        return self.distance[step] if step in self.distance else max(self.distance.values(), default=0.0)

    @property
    def tasks_a_seed(self) -> float:
        """Tasks that a choice to propose gave in the window, at the mean; 1 before there was any."""
        chosen = sum(one.choices for one in self.proposed.values())
        return max(1.0, sum(one.valid for one in self.proposed.values()) / chosen) if chosen else 1.0


def module_of(seed: Seed) -> str:
    """The seed's neighbourhood: the path of code (of several repositories: which, too), the document of a question."""
    place = next((str(seed.payload[key]) for key in ("path", "document", "topic") if seed.payload.get(key)), "")
    return f"{seed.payload['repository']}:{place}" if "repository" in seed.payload else place


def train_of(seeds: Sequence[Seed]) -> tuple[Seed, ...]:
    """The seeds that may be trained on.

    Raises:
        UserError: there is none.
    """
    train = tuple(seed for seed in seeds if seed.split == "train")
    if not train:
        raise UserError("no seed is left to train on: every one is held out", hint="lower game.held_out")
    return train


def look(
    history: History,
    seeds: Sequence[Seed],
    *,
    step: int,
    staleness: int,
    window: int,
    patience: int,
    half_life: float = inf,
) -> Seen:
    """Read the last `window` closed steps below `step - staleness`, and fit what is believed about every task in them.

    Without a `half_life` old attempts count as much as new ones.

    Raises:
        UserError: there is no train seed.
        RunFailed: the last `patience` steps changed nothing (see `refuse_standstill`).
    """
    train = train_of(seeds)
    before = max(0, step - staleness)
    since = max(0, before - window)
    moved = history.movement(since=max(0, before - max(window, patience)), before=before)
    proposed = history.proposals(since=since, before=before)
    tasks = history.known_tasks(since=since, before=before)
    refuse_standstill(moved, proposed, tasks, patience=patience)
    modules = {seed.id: module_of(seed) for seed in train}
    placed = [(task, Cell(task.role, task.strategy, modules.get(task.seed_id, ""))) for task in tasks]
    priors = _priors(placed)
    distance = _distance(moved, before)
    most = max(distance.values(), default=0.0)
    return Seen(
        before=before,
        window=window,
        train=train,
        counts=history.played_seeds(before=before),
        proposed=proposed,
        candidates=tuple(
            _candidate(task, cell, prior=priors[cell], distance=distance, most=most, before=before, half_life=half_life)
            for task, cell in placed
        ),
        priors=priors,
        moved=moved,
        distance=distance,
    )


def refuse_standstill(
    moved: Mapping[int, float], proposed: Mapping[str, Proposed], tasks: Sequence[KnownTask], *, patience: int
) -> None:
    """A run whose last `patience` steps left the weights as they were would go on for nothing.

    Raises:
        RunFailed: they did; the message says what the steps were spent on.
    """
    last = [moved[step] for step in sorted(moved)][-patience:]
    if len(last) < patience or any(last):
        return
    reasons = sum((Counter(one.reasons) for one in proposed.values()), Counter())
    decided, solved = _totals(tasks)
    valid = sum(one.valid for one in proposed.values())
    if not valid:
        common = f", most often `{reasons.most_common(1)[0][0]}`" if reasons else ""
        why, hint = (
            f"no proposal became a task{common}",
            "make proposing easier: warmup.steps, another model, another game",
        )
    elif decided and solved == decided:
        why, hint = (
            f"all {decided} attempts solved their task",
            "ask for harder tasks: another strategy, source or ladder",
        )
    elif decided and not solved:
        why, hint = f"none of {decided} attempts solved a task", "make solving easier: warmup.steps, a stronger model"
    else:
        why, hint = (
            f"{solved} of {decided} attempts solved their task, and no group taught anything",
            "raise play.attempts",
        )
    raise RunFailed(
        f"{patience} steps in a row changed nothing: {why}",
        hint=f"{hint}\n      or go on regardless: -s 'curriculum.options={{patience={2 * patience}}}' in another run",
    )


def _totals(tasks: Sequence[KnownTask]) -> tuple[int, int]:
    plays = [play for task in tasks for play in task.plays]
    return sum(play.decided for play in plays), sum(play.solved for play in plays)


def _share(plays: Sequence[Played]) -> float:
    return sum(play.solved for play in plays) / sum(play.decided for play in plays)


def _priors(placed: Sequence[tuple[KnownTask, Cell]]) -> dict[Cell, Beta]:
    """Cell -> its prior: fitted from first attempts, shrunk towards its role's fit, that towards a uniform one."""
    first: dict[Cell, list[tuple[int, int]]] = {cell: [] for _, cell in placed}
    roles: dict[str, list[tuple[int, int]]] = {cell.role: [] for cell in first}
    for task, cell in placed:
        play = next((play for play in task.plays if play.decided and not play.hinted), None)
        if play is not None:
            first[cell].append((play.decided, play.solved))
            roles[cell.role].append((play.decided, play.solved))
    whole = {role: posterior.fit(results) for role, results in roles.items()}
    return {cell: posterior.fit(results, towards=whole[cell.role]) for cell, results in first.items()}


def _distance(moved: Mapping[int, float], before: int) -> Mapping[int, float]:
    """Step -> how far the policy has moved since it was played; its own update counts."""
    distance, total = {}, 0.0
    for step in range(before - 1, min(moved, default=before) - 1, -1):
        total += moved.get(step, 0.0)
        distance[step] = total
    return distance


def _candidate(
    task: KnownTask,
    cell: Cell,
    *,
    prior: Beta,
    distance: Mapping[int, float],
    most: float,
    before: int,
    half_life: float,
) -> Candidate:
    def believed(hinted: bool) -> Beta:
        # note: what was played before the movement is known counts as played when it begins, `most` ago.
        return posterior.decayed(
            (
                (distance.get(play.step, most), play.decided, play.solved)
                for play in task.plays
                if play.hinted is hinted
            ),
            prior=prior,
            half_life=half_life,
        )

    return Candidate(
        task=task,
        cell=cell,
        rate=believed(False),
        hinted=believed(True) if any(play.hinted and play.decided for play in task.plays) else None,
        idle=before - task.plays[-1].step,
    )
