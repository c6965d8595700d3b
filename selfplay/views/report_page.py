"""A report as one HTML page that needs nothing beside it: no network, no script.

Whatever a model, a repository or a program wrote is data. Every text that reaches the page goes through `clean`
(control characters, escape sequences and bidirectional marks become visible) and is escaped; the page holds no script,
and its content security policy forbids scripts and requests.

Not here: what the page says (`report`), charts (`report_charts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from selfplay.ledger.story import Round
from selfplay.types import record
from selfplay.views import report_charts as charts
from selfplay.views.envelope import now
from selfplay.views.frontier import frontier_svg
from selfplay.views.inspect import ID_DIGITS, Play
from selfplay.views.plots import spark
from selfplay.views.report import Report, Told, diff_of
from selfplay.views.words import clean, duration, number, plural, share, size

LINES = 60
"""Longest text that is shown whole; the middle of a longer one is left out."""
CHARACTERS = 300
"""Longest line."""
LISTED = 16
"""Choices and rounds of a task's history: the first and the newest ones."""


@record
class Fact:
    """A name and what stands beside it."""

    name: str
    text: str


@record
class PlayBlock:
    """One trajectory as the page shows it."""

    id: str
    head: str
    turns: tuple[Fact, ...]
    verdicts: tuple[Fact, ...]
    failing: tuple[Fact, ...]
    """Failing test and what it said."""
    diff: tuple[tuple[str, str], ...]
    worth: str


def page(report: Report) -> str:
    """The whole file."""
    frontier = frontier_svg(report.frontier) if report.frontier is not None else ""
    return _template().render(
        report=report,
        run=report.run,
        status=report.run.status,
        made=now(),
        style=Markup(_file("report.css")),
        facts=charts.summary_rows(report),
        curves=charts.curves(report),
        costs=charts.costs(report),
        cost_rows=charts.cost_rows(report),
        time_rows=charts.time_rows(report),
        refusals=charts.refusals(report),
        step_titles=charts.STEP_TITLES,
        step_lines=charts.step_lines(report),
        evaluation_rows=charts.evaluation_rows(report),
        most=max((k for _, found in report.evaluations for k in found.passes), default=1),
        frontier=Markup(frontier),
        fingerprints=sorted({one.fingerprint for one in report.learnt.values()}),
        digits=ID_DIGITS,
        sampled={one.play.trajectory.id for one in report.sample.proposals},
    )


@cache
def _template() -> Template:
    # note: finalize sees every value before it is escaped, so that no text reaches the page as it came.
    environment = Environment(autoescape=True, undefined=StrictUndefined, finalize=_visible, trim_blocks=True)
    environment.lstrip_blocks = True
    environment.filters |= {
        "block": block,
        "diff": diff_lines,
        "play": play_block,
        "svg": Markup,
        "number": number,
        "duration": duration,
        "plural": plural,
        "size": size,
        "share": share,
        "ends": ends,
        "history": history,
    }
    return environment.from_string(_file("report.html"))


def _file(name: str) -> str:
    return files("selfplay.views").joinpath(name).read_text(encoding="utf-8")


def _visible(value: Any) -> Any:
    if isinstance(value, Markup):
        return value
    return clean(value) if isinstance(value, str) else value


def block(text: str) -> str:
    """A text of a model or a repository, its middle left out where it is long."""
    return "\n".join(_cut(text.rstrip("\n").split("\n")))


def diff_lines(text: str) -> list[tuple[str, str]]:
    """(class, line) of a diff."""
    classes = {"+": "added", "-": "removed", "@": "place"}
    return [
        ("file" if line.startswith(("+++", "---", "diff ")) else classes.get(line[:1], "same"), line)
        for line in _cut(text.rstrip("\n").split("\n"))
    ]


def play_block(play: Play) -> PlayBlock:
    """What was played, what was decided about it, and what it was worth."""
    trajectory, decision = play.trajectory, play.decision
    low, high = trajectory.policy_version
    version = f"v{low}" if low == high else f"v{low}-{high}"
    head = (
        f"step {trajectory.step} · {trajectory.role} · {version} · {trajectory.num_sampled} tokens, {trajectory.stop}"
    )
    names = {"prompt": "prompt", "policy": "reply", "tool": "tool"}
    failing = decision.evidence.get("failing") if decision is not None else None
    return PlayBlock(
        id=trajectory.id,
        head=head,
        turns=tuple(Fact(name=names[turn.speaker], text=turn.text) for turn in trajectory.turns),
        verdicts=tuple(_verdicts(play)),
        failing=tuple(_failing(failing) if isinstance(failing, list | tuple) else ()),
        diff=tuple(diff_lines(found)) if decision is not None and (found := diff_of(decision.evidence)) else (),
        worth=_worth(play),
    )


def history(told: Told) -> Markup:
    """A task's solve rates as a small line."""
    rounds = told.story.rounds
    said = ", ".join(f"step {one.step}: {one.solved} of {one.decided}" for one in ends(rounds))
    return Markup(spark([_rate(one) for one in rounds[-40:]], f"solved, {said}"))


def ends(rows: Sequence[Any]) -> Sequence[Any]:
    """At most `LISTED` of them: the first, and the newest."""
    return rows if len(rows) <= LISTED else [rows[0], *rows[len(rows) + 1 - LISTED :]]


def _rate(one: Round) -> float | None:
    return one.solved / one.decided if one.decided else None


def _verdicts(play: Play) -> Iterable[Fact]:
    for verdict in play.verdicts:
        word = {"mint": "valid", "judge": "passed", "grade": "graded"}[verdict.stage]
        good = bool(verdict.passed) if verdict.stage == "judge" else verdict.valid
        outcome = word if good or verdict.stage == "grade" else f"not {word}"
        if verdict.fault is not None:
            outcome = f"not decided: {verdict.fault.message}"
        yield Fact(name=outcome if outcome == verdict.reason else f"{outcome} ({verdict.reason})", text=verdict.why)


def _failing(rows: Sequence[Any]) -> Iterable[Fact]:
    for row in rows[:5]:
        test, said = row if isinstance(row, list | tuple) and len(row) == 2 else (row, "")
        yield Fact(name=str(test)[:CHARACTERS], text=str(said)[:CHARACTERS])
    if len(rows) > 5:
        yield Fact(name=f"and {len(rows) - 5} more", text="")


def _worth(play: Play) -> str:
    words = [f"reward {number(play.reward, signed=True)}", f"advantage {number(play.advantage, digits=3, signed=True)}"]
    if play.informative is False:
        words.append("its group has no variance and teaches nothing")
    if play.trained is not None:
        words.append("learnt from" if play.trained else "not learnt from")
    return " · ".join(words)


def _cut(lines: Sequence[str]) -> list[str]:
    short = [line if len(line) <= CHARACTERS else f"{line[:CHARACTERS]} …" for line in lines]
    if len(short) <= LINES:
        return short
    half = LINES // 2
    return [*short[:half], f"... {len(short) - LINES} lines left out ...", *short[-half:]]
