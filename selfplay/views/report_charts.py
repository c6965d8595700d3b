"""The charts and tables of figures of a report, from its record.

Not here: how a chart is drawn (`plots`), the page around them (`report_page`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from selfplay.ledger import StepRow
from selfplay.ledger.intervals import Busy, Window
from selfplay.types import record
from selfplay.views.cost import cost_of, stage_seconds
from selfplay.views.evaluation import percent
from selfplay.views.plots import MOST, Band, Chart, Series, bands, bars, draw, thinned
from selfplay.views.report import Report
from selfplay.views.status import STAGES, total
from selfplay.views.watch import tally_of
from selfplay.views.words import duration, number, share

STEPS = 200
"""Rows of the table of steps; of more steps some are taken together."""
MOMENTS = 200
"""Columns of the picture of one step."""


@record
class Figure:
    """One chart of the page."""

    svg: str
    title: str
    caption: str


@record
class StepLine:
    """A row of the table of steps: one step, or some in a row."""

    first: int
    last: int
    cells: tuple[str, ...]


STEP_TITLES = ("proposals", "valid", "tasks", "attempts", "solved", "teach", "reward p / s", "entropy", "time")


def curves(report: Report) -> list[Figure]:
    """Valid share and solve rate, held-out evaluation, rewards, entropy, groups that teach."""
    rows = report.rows
    if not rows:
        return []
    found = [
        _figure(
            report,
            Chart(ident="curve-rates", title="Valid proposals and solved attempts", series=tuple(_rates(rows))),
            "Of what was decided in a step: proposals that became tasks, attempts that solved theirs.",
        )
    ]
    if report.evaluations:
        words = "Held-out tasks that the run never learns from; shaded: 95 % intervals, resampled over tasks."
        chart = Chart(
            ident="curve-held-out", title="Held-out evaluation", series=_held_out(report), x_name="after step"
        )
        found.append(Figure(svg=draw(chart), title=chart.title, caption=words))
    rewards = [_mean(rows, stage, role) for stage, role in _roles(rows)]
    entropy = [_metric(report, role) for _, role in _roles(rows)]
    teach = [_teach(rows, role) for _, role in _roles(rows)]
    found.append(
        _figure(
            report,
            Chart(ident="curve-reward", title="Mean reward", series=tuple(rewards), percent=False),
            "Decided plays only. The two roles are paid by different rules: compare each with itself.",
        )
    )
    if any(series.points for series in entropy):
        words = "Of the policy's choice of a token, at the tokens it learnt from. Near 0 its replies hardly vary."
        chart = Chart(ident="curve-entropy", title="Entropy", series=tuple(entropy), percent=False, unit=" nats")
        found.append(_figure(report, chart, words))
    if any(value is not None for series in teach for _, value in series.points):
        words = "Groups whose rewards differ; the others move no weight."
        chart = Chart(ident="curve-teach", title="Groups that teach", series=tuple(teach))
        found.append(_figure(report, chart, words))
    return found


def costs(report: Report) -> list[Figure]:
    """What accepted tasks cost, and where the time of the steps went."""
    stretches = _stretches(report.rows)
    if not stretches:
        return []
    found = []
    priced = [(part, cost_of(part, report.spent)) for part in stretches]
    points = tuple((float(part[-1].step), price["tokens"] if price else None) for part, price in priced)
    if any(value is not None for _, value in points):
        chart = Chart(
            ident="cost-tokens",
            title="Tokens per accepted task",
            series=(Series(name="sampled by both roles", points=points),),
            percent=False,
        )
        found.append(_figure(report, chart, "A gap: no task was accepted."))
    names = list(stage_seconds(report.rows))
    labelled = [
        (f"step {part[-1].step}", {name: stage_seconds(part).get(name, 0.0) / len(part) for name in names})
        for part in stretches
    ]
    if any(sum(parts.values()) for _, parts in labelled):
        svg = bars("time-line", "Seconds of a step, by what the run did", labelled, unit="s")
        words = "Wall clock; what overlaps counts once, for what the run could not go on without."
        found.append(Figure(svg=svg, title="Time line", caption=words + _together(report)))
    return [*found, *timeline(report.window)]


def timeline(window: Window | None) -> list[Figure]:
    """Who was busy with what during one step."""
    if window is None or not window.busy:
        return []
    whole = max(1e-9, window.closed - window.opened)
    work: dict[str, list[Busy]] = {}
    for one in sorted(window.busy, key=lambda one: (not one.what.startswith("plays"), one.what)):
        work.setdefault(one.what, []).append(one)
    rows = []
    for what, busy in work.items():
        moments = [0.0] * MOMENTS
        for one in busy:
            begin, end = ((at - window.opened) / whole * MOMENTS for at in (one.begin, one.end))
            for at in range(max(0, int(begin)), min(MOMENTS, int(end) + 1)):
                moments[at] += max(0.0, min(end, at + 1) - max(begin, at))
        rows.append(Band(label=what, values=tuple(moments), most=_at_once(busy, window)))
    ends = ("the step opens", f"closes {duration(whole)} later")
    title = f"Step {window.step}, moment by moment"
    svg = bands("moments", title, rows, ends=ends)
    words = "How many plays, decisions and updates were under way; what belongs to other steps counts as well."
    return [Figure(svg=svg, title=title, caption=words)]


def _at_once(busy: Sequence[Busy], window: Window) -> int:
    """The most of them that were under way together inside the window."""
    found = most = 0
    begins = ((max(one.begin, window.opened), 1) for one in busy)
    ends = ((min(one.end, window.closed), -1) for one in busy)
    # note: by time, at the same time ends before begins: what follows at once is not beside.
    for _, change in sorted((*begins, *ends)):
        found += change
        most = max(most, found)
    return most


def cost_rows(report: Report) -> list[tuple[str, str]]:
    """(what, amount) per accepted task, over the whole run."""
    price = cost_of(report.rows, report.spent)
    if price is None:
        return []
    return [
        ("calls of the model", number(price["replies"], digits=1)),
        ("tokens sampled, by both roles", f"{price['tokens']:,.0f}"),
        ("calls of tools inside plays", number(price["calls"], digits=1)),
        ("seconds in those, added up", duration(price["tool_seconds"])),
        ("decisions of verifiers, added up", duration(price["deciding_seconds"])),
        ("both: seconds in sandboxes", duration(price["sandbox_seconds"])),
        ("wall clock in which the run did nothing but verify", duration(price["verification_seconds"])),
        ("wall clock in all", duration(price["seconds"])),
    ]


def refusals(report: Report) -> list[tuple[str, int, float]]:
    """(reason code, proposals, share of the refused) of the whole run, the most frequent first."""
    counts: dict[str, int] = {}
    for spent in report.spent.values():
        for reason, count in spent.refused.items():
            counts[reason] = counts.get(reason, 0) + count
    whole = sum(counts.values())
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [(reason, count, count / whole) for reason, count in ordered]


def time_rows(report: Report) -> list[tuple[str, str, str]]:
    """(what the run did, how long, share) over all closed steps."""
    seconds = stage_seconds(report.rows)
    whole = sum(seconds.values())
    return [(name, duration(value), share(value, whole)) for name, value in seconds.items()]


def step_lines(report: Report) -> list[StepLine]:
    """The table of steps, the newest first."""
    size = max(1, -(-len(report.rows) // STEPS))
    parts = [report.rows[at : at + size] for at in range(0, len(report.rows), size)]
    return [_step_line(report, part) for part in reversed(parts)]


def evaluation_rows(report: Report) -> list[tuple[str, ...]]:
    """(closed steps, pass@1, pass@k, valid, tasks) of each evaluation, the newest first."""
    found: list[tuple[str, ...]] = []
    for done, figures in reversed(report.evaluations):
        passes = [percent(figures.passes[k]) for k in sorted(figures.passes)]
        best = passes[-1] if len(passes) > 1 else ""
        found.append((str(done), passes[0], best, percent(figures.valid), str(figures.tasks)))
    return found


def _step_line(report: Report, part: Sequence[StepRow]) -> StepLine:
    tallies = {stage: [total(row.tallies, stage) for row in part] for stage in STAGES}
    proposed, tried = (
        {name: sum(getattr(t, name) for t in tallies[stage]) for name in ("played", "decided", "valid", "passed")}
        for stage in STAGES
    )
    paid = []
    for stage in STAGES:
        rewarded = sum(tally.rewarded for tally in tallies[stage])
        mean = sum(tally.reward_sum for tally in tallies[stage]) / rewarded if rewarded else None
        paid.append(number(mean, signed=True))
    groups, informative = (sum(row.counts.get(name, 0) for row in part) for name in ("groups", "informative"))
    entropies = [
        report.learnt[row.step].metrics["entropy"]
        for row in part
        if row.step in report.learnt and "entropy" in report.learnt[row.step].metrics
    ]
    return StepLine(
        first=part[0].step,
        last=part[-1].step,
        cells=(
            str(proposed["played"]),
            share(proposed["valid"], proposed["decided"]),
            str(sum(report.spent[row.step].tasks for row in part if row.step in report.spent)),
            str(tried["played"]),
            share(tried["passed"], tried["decided"]),
            share(informative, groups),
            " / ".join(paid),
            number(sum(entropies) / len(entropies) if entropies else None),
            duration(sum(sum(row.stage_seconds.values()) for row in part)),
        ),
    )


def _roles(rows: Sequence[StepRow]) -> list[tuple[str, str]]:
    found = {tuple(place.split("/", 1)) for row in rows for place in row.tallies}
    return sorted(
        ((stage, role) for stage, role in found if stage in STAGES), key=lambda pair: (pair[0] != "propose", pair)
    )


def _rates(rows: Sequence[StepRow]) -> Iterable[Series]:
    for stage, role in _roles(rows):
        points = []
        for row in rows:
            tally = tally_of([row], stage, role)
            points.append(
                (float(row.step), float(tally.passed if stage == "attempt" else tally.valid), float(tally.decided))
            )
        verb = "valid" if stage == "propose" else "solved"
        yield Series(name=f"{role}: {verb}", points=thinned(points))


def _mean(rows: Sequence[StepRow], stage: str, role: str) -> Series:
    points = []
    for row in rows:
        tally = tally_of([row], stage, role)
        points.append((float(row.step), tally.reward_sum, float(tally.rewarded)))
    return Series(name=role, points=thinned(points))


def _metric(report: Report, role: str) -> Series:
    name = f"{role}.entropy"
    known = [(step, one.metrics[name]) for step, one in sorted(report.learnt.items()) if name in one.metrics]
    return Series(name=role, points=thinned([(float(step), value, 1.0) for step, value in known]))


def _teach(rows: Sequence[StepRow], role: str) -> Series:
    points = [
        (float(row.step), row.counts.get(f"{role}.informative", 0.0), row.counts.get(f"{role}.groups", 0.0))
        for row in rows
    ]
    return Series(name=role, points=thinned(points))


def _held_out(report: Report) -> tuple[Series, ...]:
    series = []
    for k in sorted({k for _, found in report.evaluations for k in found.passes}):
        known = [(float(done), found.passes[k]) for done, found in report.evaluations if k in found.passes]
        series.append(
            Series(
                name=f"pass@{k}",
                points=tuple((x, estimate.value) for x, estimate in known),
                band=tuple((x, e.low, e.high) for x, e in known if e.low is not None and e.high is not None),
                dots=True,
            )
        )
    return tuple(series)


def _stretches(rows: Sequence[StepRow]) -> list[Sequence[StepRow]]:
    size = max(1, -(-len(rows) // MOST))
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def _figure(report: Report, chart: Chart, words: str) -> Figure:
    return Figure(svg=draw(chart), title=chart.title, caption=words + _together(report))


def _together(report: Report) -> str:
    size = max(1, -(-len(report.rows) // MOST))
    return f" Each point takes {size} steps together." if size > 1 else ""


def summary_rows(report: Report) -> list[tuple[str, str]]:
    """(what, figure) of the run in one look."""
    run, status = report.run, report.run.status
    proposals, attempts = (total(status.closed, stage) for stage in STAGES)
    counts: Mapping[str, float] = {
        name: sum(row.counts.get(name, 0) for row in report.rows) for name in ("groups", "informative")
    }
    rows = [
        ("state", run.state),
        ("steps closed", f"{run.closed} of {run.steps}"),
        ("tasks accepted", f"{status.num_tasks:,}"),
        ("proposals valid", f"{share(proposals.valid, proposals.decided)} of {proposals.decided:,}"),
        ("attempts solved", f"{share(attempts.passed, attempts.decided)} of {attempts.decided:,}"),
        ("groups that teach", f"{share(counts['informative'], counts['groups'])} of {counts['groups']:,.0f}"),
        ("tokens sampled", f"{proposals.tokens + attempts.tokens:,}"),
        ("time in steps", duration(sum(sum(row.stage_seconds.values()) for row in report.rows))),
    ]
    if report.evaluations:
        done, found = report.evaluations[-1]
        rows.append((f"held-out pass@1 after {done} steps", percent(found.passes[1])))
    return rows
