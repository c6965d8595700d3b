"""What `selfplay eval --on QUESTIONS` prints: a column for each condition under which the questions were answered.

Not here: conditions (`evaluation.answering`), figures (`views.evaluation`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfplay.estimate import LEVEL, RESAMPLES
from selfplay.evaluation.measure import Ask, Measured, measure
from selfplay.views.evaluation import Summary, percent, summary, summary_data
from selfplay.views.words import duration, plural

if TYPE_CHECKING:
    from selfplay.evaluation.answering import Exam
    from selfplay.evaluation.targets import Target
    from selfplay.events import Observer
    from selfplay.project import Project

Found = Sequence[tuple["Target", dict[str, Summary], Sequence[Measured]]]
"""Target, condition -> figures, and the plays."""


def answered(
    exam: Exam, targets: Sequence[Target], ask: Ask, *, ks: Sequence[int], project: Project, observe: Observer
) -> Found:
    """Let every target answer the questions under every condition.

    Raises:
        UserError, NotFound, NotReady, RunFailed, Held: as `measure`.
    """
    made = [measure(targets, sitting.ground, ask, project=project, observe=observe) for sitting in exam.sittings]
    found = []
    for number, target in enumerate(targets):
        figures: dict[str, Summary] = {}
        for sitting, measured in zip(exam.sittings, made, strict=True):
            for name, tasks in sitting.conditions.items():
                plays = [play for play in measured[number].plays if play.subject_id in tasks]
                figures[name] = summary(plays, ks=ks)
        found.append((target, figures, [measured[number] for measured in made]))
    return found


def lines(found: Found, exam: Exam, path: Path, *, attempts: int) -> Iterator[str]:
    """What came out, for people."""
    left = f" ({exam.unanswerable} without an answer left out)" if exam.unanswerable else ""
    where = f"corpus {exam.corpus}" if exam.corpus else "no corpus to search: name one with --corpus"
    _, _, first = found[0]
    yield f"on        {path}: {plural(exam.questions, 'question')}{left}; {where}"
    yield f"samples   {attempts} a question; temperature {first[0].temperature:g}, seed {first[0].seed}"
    yield f"[..]      {100 * LEVEL:.0f} %, bootstrap over questions, {RESAMPLES:,} resamples"
    for target, figures, measured in found:
        yield f"\n{target.words}"
        yield _row("", list(figures))
        for k in next(iter(figures.values())).passes:
            yield _row(f"pass@{k}", [percent(one.passes[k]) for one in figures.values()])
        yield _row("questions", [str(one.tasks) for one in figures.values()])
        undecided = sum(one.undecided for one in figures.values())
        left = f", {undecided} undecided and left out" if undecided else ""
        count = sum(one.attempts for one in figures.values())
        yield f"  {plural(count, 'attempt')}{left}, {duration(sum(one.seconds for one in measured))}"


def _row(head: str, cells: Sequence[str]) -> str:
    return f"  {head:<10}" + "".join(f"{cell:<24}" for cell in cells).rstrip()


def data(found: Found, exam: Exam, path: Path, *, attempts: int) -> dict[str, Any]:
    """What came out, as JSON."""
    return {
        "on": str(path),
        "questions": exam.questions,
        "unanswerable": exam.unanswerable,
        "corpus": exam.corpus,
        "attempts": attempts,
        "seed": found[0][2][0].seed,
        "intervals": {"level": LEVEL, "resamples": RESAMPLES, "method": "percentile bootstrap over tasks"},
        "targets": [
            {
                "target": target.words,
                "policy_version": target.version,
                "temperature": measured[0].temperature,
                "conditions": {name: summary_data(one) for name, one in figures.items()},
                "seconds": sum(one.seconds for one in measured),
            }
            for target, figures, measured in found
        ],
    }
