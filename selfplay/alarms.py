"""What is watched while a run plays: a table of alarms, each a pure function of the last closed steps.

An alarm looks at what closed steps left in the ledger and says a sentence about each role (or about the run), or
nothing. It begins at a step where it speaks and was silent in the `REST` steps before; only then is it told.

Numbers that are not finite end a run wherever they appear (`learner.trainer`, `probe`); they need no alarm.

Not here: telling, and ending the run (`watch`), where the figures come from (`measures`, `probe`, `learner.tally`).

Example:
    >>> sorted(ALARMS)[:3]
    ['agreement', 'entropy', 'gibberish']
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from selfplay.errors import NotFound
from selfplay.ledger import Tallies, Tally
from selfplay.ledger.records import Level
from selfplay.probe import of_metrics
from selfplay.project import did_you_mean
from selfplay.types import record

WINDOW = 5
"""Steps that shares are taken over."""
LOOKBACK = 100
"""Steps that are read: further back nothing is compared."""
REST = 5
"""An alarm that was silent for so many steps has ended."""
LEAST = 20
"""Replies, groups, decisions or places below which no share is taken."""
STREAK = 5
"""Steps with groups of a role, none of them informative."""
NO_VARIANCE = 0.95
"""Largest share of a role's groups without variance, over two windows."""
TRUNCATED = 0.5
"""Largest share of a role's replies that end at a limit."""
FAULTS = 0.2
"""Largest share of the places, of those that end decided or given up, that the machine fails."""
GIBBERISH = 0.25
"""Largest share of the replies that are gibberish."""
COLLAPSE = 0.5
"""The share of valid proposals stays above this times its earlier best."""
WORTH_KEEPING = 0.1
"""An earlier best below this is no loss."""
ENTROPY_STEPS = 3
"""Updates that a role's entropy is averaged over."""
EVALUATIONS = 2
"""The newest so many evaluations are held against as many before them."""
APART = 0.05
"""In-game and held-out rate move this far in opposite directions."""


@record
class Rate:
    """Passed of decided attempts."""

    passed: int = 0
    decided: int = 0

    @property
    def share(self) -> float:
        """0 of nothing."""
        return self.passed / max(1, self.decided)

    def plus(self, other: Rate) -> Rate:
        """Both together."""
        return Rate(passed=self.passed + other.passed, decided=self.decided + other.decided)


@record
class Point:
    """One closed step as the alarms see it."""

    step: int
    counts: Mapping[str, float] = field(default_factory=dict)
    """The loop's (`measures.counts_of`)."""
    tallies: Tallies = field(default_factory=dict)
    """The ledger's, by STAGE/ROLE."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Of its update."""
    held_out: Rate | None = None
    """Attempts on held-out tasks after it; None where nobody looked."""


History = Sequence[Point]
"""The last closed steps, oldest first, at most `LOOKBACK` of them."""


@record
class Watch:
    """The settings of the table `alarms`."""

    stop: tuple[str, ...] = ("agreement",)
    agreement: float = 0.25
    """Nats."""
    entropy_floor: float = 0.05
    """Nats."""


@record
class Alarm:
    """One thing that is watched."""

    about: str
    """What sounds it, with its threshold, in words."""
    fix: str
    """What to do."""
    says: Callable[[History, Watch], Mapping[str, str]]
    """Of a history that is not empty, at its newest step: role, or nothing for the run -> one sentence each."""
    level: Level = "warning"
    """Where it does not end the run."""


def began(alarm: Alarm, history: History, watch: Watch) -> str | None:
    """What begins at the newest step, in words; None where the alarm is silent, or has not ended since it began."""
    found = dict(alarm.says(history, watch)) if history else {}
    for back in range(1, min(REST + 1, len(history))):
        if not found:
            return None
        for role in alarm.says(history[:-back], watch):
            found.pop(role, None)
    return "; ".join(found.values()) or None


def known(names: Iterable[str]) -> tuple[str, ...]:
    """`names`, each of them an alarm's.

    Raises:
        NotFound: one is not; names the nearest.
    """
    found = tuple(names)
    for name in found:
        if name not in ALARMS:
            hint = f"{did_you_mean(name, ALARMS)}the alarms: {', '.join(sorted(ALARMS))}; more: selfplay ls alarms"
            raise NotFound(f"alarms.stop names `{name}`, and there is no such alarm", hint=hint)
    return found


def disagreement(history: History, watch: Watch) -> Mapping[str, str]:
    """Sampler and learner differ on the probe by more than `alarms.agreement`."""
    found = of_metrics(history[-1].metrics)
    if found is None or found.gap <= watch.agreement:
        return {}
    text = (
        "sampler and learner do not mean the same model: "
        f"on {found.tokens} tokens of the probe their log-probabilities differ by {found.gap:.3g} nats in the mean "
        f"(at most {watch.agreement:g} may be; the largest ratio is {found.ratio_max:.3g}); "
        f"the sampler says that it used weights v{found.sampler_version}, the learner has v{found.learner_version}"
    )
    return {"": text}


def no_variance(history: History, watch: Watch) -> Mapping[str, str]:
    """No informative group of a role in `STREAK` steps that had any, or too few in two windows."""
    found = {}
    for role in _roles([point.counts for point in history], ".groups"):
        steps = [point for point in history if point.counts.get(f"{role}.groups")]
        if not steps or steps[-1] is not history[-1]:
            continue
        streak, recent = steps[-STREAK:], steps[-2 * WINDOW :]
        groups = sum(point.counts[f"{role}.groups"] for point in recent)
        idle = groups - sum(point.counts[f"{role}.informative"] for point in recent)
        if len(streak) == STREAK and not any(point.counts[f"{role}.informative"] for point in streak):
            text = f"no group of `{role}` taught anything: the rewards inside each were equal"
            found[role] = f"{_span(streak)}: {text} ({_won(streak, role)})"
        elif groups >= LEAST and idle / groups > NO_VARIANCE:
            text = f"{idle / groups:.0%} of the groups of `{role}` taught nothing: the rewards inside each were equal"
            found[role] = f"{_span(recent)}: {text} ({_won(recent, role)})"
    return found


def truncation(history: History, watch: Watch) -> Mapping[str, str]:
    """Too many replies of a role end at a limit."""
    found, recent = {}, history[-WINDOW:]
    for role in sorted({place.split("/", 1)[1] for point in recent for place in point.tallies}):
        sums = _sum(recent, role=role)
        # note: a model that was never trained rambles at first, which passes.
        if len(recent) == WINDOW and sums.played >= LEAST and sums.truncated / sums.played > TRUNCATED:
            share = f"{sums.truncated / sums.played:.0%}"
            found[role] = f"{_span(recent)}: {share} of the replies of `{role}` reached a limit; they carry no loss"
    return found


def infrastructure(history: History, watch: Watch) -> Mapping[str, str]:
    """The machine fails too many places, each of which it tried several times."""
    recent = history[-WINDOW:]

    # note: the ledger's tallies count every try that failed; these are the loop's, of places.
    def num(*names: str) -> int:
        return int(sum(point.counts.get(name, 0) for point in recent for name in names))

    lost = num("faults")
    places = num("proposals", "mutated", "attempts") - num("left_out")
    if places < LEAST or lost / places <= FAULTS:
        return {}
    return {"": f"{_span(recent)}: {lost} of {places} places were given up after faults of the machine: no reward"}


def entropy(history: History, watch: Watch) -> Mapping[str, str]:
    """A role's mean entropy falls below `alarms.entropy_floor`."""
    found = {}
    for role in _roles([point.metrics for point in history], ".entropy"):
        seen = [point for point in history if f"{role}.entropy" in point.metrics][-ENTROPY_STEPS:]
        mean = sum(point.metrics[f"{role}.entropy"] for point in seen) / len(seen)
        if seen[-1] is history[-1] and len(seen) == ENTROPY_STEPS and mean < watch.entropy_floor:
            text = f"the mean entropy of `{role}` is {mean:.3g} nats, below {watch.entropy_floor:g}"
            found[role] = f"{_span(seen)}: {text}: its replies hardly vary any more"
    return found


def gibberish(history: History, watch: Watch) -> Mapping[str, str]:
    """Too many replies are no text, or the same few words over and over."""
    recent = [point for point in history[-WINDOW:] if "gibberish" in point.counts]
    replies = sum(point.counts["proposals"] + point.counts["attempts"] for point in recent)
    strange = sum(point.counts["gibberish"] for point in recent)
    if len(recent) < WINDOW or replies < LEAST or strange / replies <= GIBBERISH:
        return {}
    return {"": f"{_span(recent)}: {strange / replies:.0%} of the replies are no text, or repeat themselves"}


def proposals(history: History, watch: Watch) -> Mapping[str, str]:
    """The rolling share of valid proposals falls below `COLLAPSE` of its earlier best."""
    steps = [_sum([point], stage="propose") for point in history]
    shares = [_valid(steps[at : at + WINDOW]) for at in range(len(steps) - WINDOW + 1)]
    best = max((share for share in shares[:-WINDOW] if share is not None), default=0.0)
    now = shares[-1] if shares else None
    if now is None or best < WORTH_KEEPING or now >= COLLAPSE * best:
        return {}
    return {"": f"{_span(history[-WINDOW:])}: {now:.0%} of the proposals are valid, where {best:.0%} were before"}


def held_out(history: History, watch: Watch) -> Mapping[str, str]:
    """The in-game solve rate rises while the held-out one falls: the newest evaluations against those before."""
    looks = [at for at, point in enumerate(history) if point.held_out is not None]
    if len(looks) < 2 * EVALUATIONS or looks[-1] != len(history) - 1:
        return {}
    middle, last = looks[-EVALUATIONS - 1] + 1, looks[-1] + 1
    first = looks[-2 * EVALUATIONS - 1] + 1 if len(looks) > 2 * EVALUATIONS else 0
    early, late = history[first:middle], history[middle:last]
    outside = [_all(point.held_out or Rate() for point in part) for part in (early, late)]
    inside = [_all(_solved(point) for point in part) for part in (early, late)]
    fall, rise = outside[0].share - outside[1].share, inside[1].share - inside[0].share
    if rise <= APART or fall <= max(APART, 2.0 * _error(*outside)):
        return {}
    text = (
        f"the solve rate rose from {inside[0].share:.0%} to {inside[1].share:.0%} in the game and fell "
        f"from {outside[0].share:.0%} to {outside[1].share:.0%} on held-out tasks: what is learnt does not carry over"
    )
    return {"": f"{_span([*early, *late])}: {text}"}


def _error(early: Rate, late: Rate) -> float:
    """Standard error of the difference of two rates, attempts taken as independent."""
    return math.sqrt(sum(r.share * (1.0 - r.share) / max(1, r.decided) for r in (early, late)))


def _all(rates: Iterable[Rate]) -> Rate:
    total = Rate()
    for rate in rates:
        total = total.plus(rate)
    return total


def _solved(point: Point) -> Rate:
    sums = _sum([point], stage="attempt")
    return Rate(passed=sums.passed, decided=sums.decided)


def _valid(steps: Sequence[Tally]) -> float | None:
    """Share of valid proposals; None of too few."""
    decided = sum(step.decided for step in steps)
    return sum(step.valid for step in steps) / decided if decided >= LEAST else None


def _sum(points: History, *, stage: str = "", role: str = "") -> Tally:
    """Counts of `points` together: of one stage, of one role, or of all."""
    chosen = [
        tally
        for point in points
        for place, tally in point.tallies.items()
        if (not stage or place.startswith(f"{stage}/")) and (not role or place.endswith(f"/{role}"))
    ]
    names = ("played", "decided", "valid", "passed", "truncated")
    return Tally(**{name: sum(getattr(tally, name) for tally in chosen) for name in names})


def _roles(rows: Iterable[Mapping[str, float]], suffix: str) -> list[str]:
    """Roles that have a figure ROLE`suffix`."""
    return sorted({name.removesuffix(suffix) for row in rows for name in row if name.endswith(suffix)})


def _won(points: History, role: str) -> str:
    """What became of a role's plays, in words."""
    solved, made = (_sum(points, stage=stage, role=role) for stage in ("attempt", "propose"))
    if solved.decided:
        return f"{solved.passed / solved.decided:.0%} of its attempts passed"
    return f"{made.valid / made.decided:.0%} of its proposals were valid" if made.decided else "nothing was decided"


def _span(points: History) -> str:
    first, last = points[0].step, points[-1].step
    return f"step {first}" if first == last else f"steps {first} to {last}"


ALARMS: Mapping[str, Alarm] = {
    "agreement": Alarm(
        about="Sampler and learner differ on a fixed probe by more than `alarms.agreement` nats a token.",
        fix="the same command loads the last save again; if that does not help: a new run with learner.dtype=float32",
        says=disagreement,
        level="error",
    ),
    "entropy": Alarm(
        about=f"A role's mean entropy over {ENTROPY_STEPS} updates is below `alarms.entropy_floor` nats.",
        fix="fork from an earlier save with a higher play.temperature or a lower learner.lr",
        says=entropy,
    ),
    "gibberish": Alarm(
        about=f"More than {GIBBERISH:.0%} of the replies of {WINDOW} steps are no text or repeat themselves.",
        fix="look: selfplay inspect RUN; then fork from an earlier save with a lower learner.lr",
        says=gibberish,
    ),
    "held_out": Alarm(
        about=f"The solve rate rises in the game and falls on held-out tasks, by {APART:.0%} and two standard errors.",
        fix="the verifier may be gamed: selfplay inspect RUN; then fork from the save before",
        says=held_out,
    ),
    "infrastructure": Alarm(
        about=f"More than {FAULTS:.0%} of the places of {WINDOW} steps are given up after faults of the machine.",
        fix="selfplay doctor",
        says=infrastructure,
    ),
    "no_variance": Alarm(
        about=f"All groups of a role have equal rewards in {STREAK} steps, or {NO_VARIANCE:.0%} in {2 * WINDOW}.",
        fix="where all pass, harder tasks; where none does, a longer warm-up (warmup.steps) or more play.attempts",
        says=no_variance,
    ),
    "proposals": Alarm(
        about=f"The share of valid proposals over {WINDOW} steps falls below {COLLAPSE:.0%} of its earlier best.",
        fix="see the reasons: selfplay status RUN; then fork from an earlier save with a lower learner.lr",
        says=proposals,
    ),
    "truncation": Alarm(
        about=f"More than {TRUNCATED:.0%} of a role's replies of {WINDOW} steps reach a limit.",
        fix="raise the role's limits.tokens, or ask for shorter replies in its prompt.md",
        says=truncation,
    ),
}
"""Name -> alarm, by name."""
