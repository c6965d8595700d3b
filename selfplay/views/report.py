"""What a report says of a run: gathered from the ledger into one record.

Figures are of every closed step. Texts are samples: the most instructive pairs of a proposal and its attempts, and the
first accepted and the first refused proposal of some steps, so that a report of any run stays small.

Not here: charts (`report_charts`), the page (`report_page`), the frontier (`cli.frontier`), configuration files
(`cli.report`).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from selfplay.ledger import Reader, StepRow, intervals, watching
from selfplay.ledger.intervals import Window
from selfplay.ledger.story import Story, story
from selfplay.ledger.watching import Learnt, Recent, Spent
from selfplay.types import Choice, Seed, Task, record
from selfplay.views.evaluation import Summary, recorded, summary
from selfplay.views.frontier import FrontierView
from selfplay.views.inspect import Play, Proposal, play_of, proposal_of
from selfplay.views.status import RunView
from selfplay.views.watch import Warned

SAMPLED_STEPS = 40
"""Closed steps whose plays are looked through for pairs and samples, spread evenly."""
PAIRS = 6
HISTORIES = 5
CHOICES = 30
EVALUATIONS = 200
"""Newest evaluations that are drawn."""
FAULTS = 2_000
"""Newest faults that are counted by where they happened."""


@record
class Setting:
    """One key of the configuration."""

    key: str
    value: str
    """As TOML; empty where it is unset."""
    origin: str
    """Where it came from; empty where that is not known."""


@record
class Pair:
    """A task, and what solvers did with it: one attempt that solved it and one that did not, where there are."""

    task: Task
    seed: Seed | None
    proposal: Play | None
    """The proposal, or the failed attempt, that it is made of; None for a given task."""
    solved: int
    decided: int
    repaired: Play | None
    failed: Play | None

    @property
    def change(self) -> str:
        """What the task changes, as a diff; empty where the game has no such thing."""
        decision = self.proposal.decision if self.proposal is not None and not self.child else None
        return _task_diff(self.task) or (diff_of(decision.evidence) if decision is not None else "")

    @property
    def child(self) -> bool:
        """Was the task made of a failed attempt?"""
        return self.proposal is not None and self.proposal.trajectory.stage == "attempt"


@record
class Told:
    """A task that was chosen again and again."""

    story: Story
    attempts: int


@record
class Sample:
    """Which proposals a report shows."""

    proposals: tuple[Proposal, ...]
    of: int
    """Proposals of the run's closed steps."""
    steps: tuple[int, ...]
    """The steps that were looked through."""


@record
class Report:
    """A run, as the page tells it."""

    run: RunView
    rows: tuple[StepRow, ...]
    """Every closed step."""
    learnt: Mapping[int, Learnt]
    spent: Mapping[int, Spent]
    frontier: FrontierView | None
    evaluations: tuple[tuple[int, Summary], ...]
    """(closed steps, figures), oldest first."""
    alarms: tuple[Warned, ...]
    faults: Mapping[str, int]
    """Where -> how many of the newest."""
    window: Window | None
    """The newest closed step, moment by moment; None where there is none."""
    choices: tuple[Choice, ...]
    """The newest first."""
    histories: tuple[Told, ...]
    pairs: tuple[Pair, ...]
    sample: Sample
    settings: tuple[Setting, ...]
    commands: tuple[tuple[str, str], ...]
    """(what it does, the command)."""


def gather(
    reader: Reader,
    run: RunView,
    *,
    frontier: FrontierView | None,
    fixes: Mapping[str, str],
    settings: Sequence[Setting],
    commands: Sequence[tuple[str, str]],
) -> Report:
    """Everything that the page shows. `fixes`: alarm's code -> what to do."""
    last = run.status.last_closed_step
    rows = reader.step_rows()
    steps = spread([row.step for row in rows], SAMPLED_STEPS)
    attempts = reader.ask(partial(watching.outcomes, stage="attempt", steps=steps))
    names = ("level", "code", "step", "at", "message")
    faults: dict[str, int] = {}
    for fault in reader.faults()[-FAULTS:] if run.status.num_faults else ():
        faults[fault.fault.where] = faults.get(fault.fault.where, 0) + 1
    return Report(
        run=run,
        rows=rows,
        learnt={one.step: one for one in reader.ask(partial(watching.learnt, after=-1))},
        spent=reader.ask(partial(watching.spent, since=0, before=last + 1)),
        frontier=frontier,
        evaluations=_evaluations(reader, last + 1),
        alarms=tuple(
            Warned(**{name: getattr(alarm, name) for name in names}, fix=fixes.get(alarm.code, ""))
            for alarm in reader.alarms()
        ),
        faults=dict(sorted(faults.items(), key=lambda pair: (-pair[1], pair[0]))),
        window=reader.ask(partial(intervals.of_step, step=rows[-1].step)) if rows else None,
        choices=reader.ask(partial(watching.newest_choices, limit=CHOICES)),
        histories=_histories(reader, attempts),
        pairs=_pairs(reader, attempts),
        sample=_sample(
            reader, steps, of=sum(t.played for place, t in run.status.closed.items() if "propose/" in place)
        ),
        settings=tuple(settings),
        commands=tuple(commands),
    )


def spread(steps: Sequence[int], most: int) -> tuple[int, ...]:
    """At most `most` of them, the first and the last among them, evenly apart."""
    if len(steps) <= most:
        return tuple(steps)
    return tuple(dict.fromkeys(steps[round(i * (len(steps) - 1) / (most - 1))] for i in range(most)))


def diff_of(evidence: Mapping[str, Any]) -> str:
    """The change that a verdict rests on; empty where there is none."""
    found = evidence.get("diff")
    return found if isinstance(found, str) else ""


def _task_diff(task: Task) -> str:
    """A task's bug as a diff, from its payload."""
    payload = task.payload
    artifact = payload.get("artifact")
    if isinstance(artifact, Mapping) and isinstance(artifact.get("bug"), str):
        return str(artifact["bug"])
    before, after = payload.get("source"), payload.get("buggy")
    if not isinstance(before, str) or not isinstance(after, str):
        return ""
    path = str(payload.get("path", ""))
    made = difflib.unified_diff(before.splitlines(), after.splitlines(), f"a/{path}", f"b/{path}", lineterm="")
    return "\n".join(made)


def _evaluations(reader: Reader, closed: int) -> tuple[tuple[int, Summary], ...]:
    config = reader.run_row().config
    every, tasks, attempts = (int(config.get(f"eval.{name}") or 0) for name in ("every", "tasks", "attempts"))
    if not every:
        return ()
    found = []
    for done in list(range(0, closed + 1, every))[-EVALUATIONS:]:
        plays = recorded(reader, done, tasks=tasks, attempts=attempts)
        if plays:
            found.append((done, summary(plays, ks=sorted({1, attempts}))))
    return tuple(found)


def _pairs(reader: Reader, attempts: Sequence[Recent]) -> tuple[Pair, ...]:
    """The tasks that some attempts solved and some did not, those solved about every other time first.

    One a seed, as long as there are enough; tasks that were always, or never, solved only where nothing else is.
    """
    tried = _by_task(attempts)

    def worth(plays: Sequence[Recent]) -> tuple[float, int]:
        rate = sum(bool(one.passed) for one in plays) / len(plays)
        return rate * (1.0 - rate), len(plays)

    ordered = sorted(tried, key=lambda task: (*(-part for part in worth(tried[task])), task))
    pairs: list[Pair] = []
    left: list[Pair] = []
    seeds: set[str] = set()
    for task_id in ordered[: 4 * PAIRS]:
        task = reader.task(task_id)
        if task is None or len(pairs) == PAIRS:
            continue
        pair = _pair(reader, task, tried[task_id])
        (left if task.seed_id in seeds else pairs).append(pair)
        seeds.add(task.seed_id)
    return tuple([*pairs, *left][:PAIRS])


def _by_task(attempts: Sequence[Recent]) -> dict[str, list[Recent]]:
    """Task id -> its decided attempts."""
    tried: dict[str, list[Recent]] = {}
    for one in attempts:
        if one.passed is not None:
            tried.setdefault(one.subject_id, []).append(one)
    return tried


def _pair(reader: Reader, task: Task, plays: Sequence[Recent]) -> Pair:
    def read(found: Recent | None) -> Play | None:
        return play_of(reader, reader.trajectory(found.id)) if found is not None else None

    passed = next((one for one in plays if one.passed), None)
    # note: a change that the tests refuse teaches more than a reply that is none.
    failed = sorted((one for one in plays if not one.passed), key=lambda one: not one.valid)
    proposal = reader.trajectory(task.parent_id) if task.parent_id is not None else None
    return Pair(
        task=task,
        seed=reader.seed(task.seed_id),
        proposal=play_of(reader, proposal) if proposal is not None else None,
        solved=sum(bool(one.passed) for one in plays),
        decided=len(plays),
        repaired=read(passed),
        failed=read(failed[0] if failed else None),
    )


def _histories(reader: Reader, attempts: Sequence[Recent]) -> tuple[Told, ...]:
    """The tasks that were replayed most; where none was, those that were attempted most in the steps looked through."""
    wanted = reader.ask(partial(watching.most_replayed, limit=HISTORIES))
    if not wanted:
        tried = _by_task(attempts)
        wanted = tuple(sorted(tried, key=lambda task: (-len(tried[task]), task))[:HISTORIES])
    told = [reader.ask(partial(story, task_id=task)) for task in wanted if reader.task(task) is not None]
    return tuple(Told(story=one, attempts=sum(found.decided for found in one.rounds)) for one in told)


def _sample(reader: Reader, steps: Sequence[int], *, of: int) -> Sample:
    proposals = reader.ask(partial(watching.outcomes, stage="propose", steps=steps))
    chosen: dict[tuple[int, bool], str] = {}
    for one in proposals:
        if one.valid is not None and not one.broken:
            chosen.setdefault((one.step, one.valid), one.id)
    found = [proposal_of(reader, reader.trajectory(id)) for _, id in sorted(chosen.items(), key=lambda p: -p[0][0])]
    return Sample(proposals=tuple(found), of=of, steps=tuple(steps))
