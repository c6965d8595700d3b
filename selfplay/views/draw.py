"""Curves of a run's steps in three places: an SVG file, a PNG file, the terminal.

The picture is `plots.draw`'s; a file stands alone, so colours are in it, for light and dark. PNG needs cairosvg, which
is no dependency: where it is missing that is said. In the terminal each metric is a row of blocks.

Not here: which metrics there are (`metrics`), the report's charts (`report_charts`).
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from xml.sax.saxutils import escape

from rich.console import Group, RenderableType
from rich.text import Text

from selfplay.errors import NotReady
from selfplay.ledger import Reader, StepRow
from selfplay.ledger.watching import Learnt
from selfplay.types import record
from selfplay.views.evaluation import recorded, summary
from selfplay.views.plots import HEIGHT, WIDTH, Chart, Series, draw
from selfplay.views.status import total
from selfplay.views.words import UNKNOWN, clean

BLOCKS = "▁▂▃▄▅▆▇█"
GAP = 24
"""Pixels between two charts of a file."""

STYLE = """
text { font: 11px system-ui, sans-serif; fill: #333 } .title { font-size: 13px; font-weight: 600 }
svg.chart { overflow: visible } .axis { stroke: #ddd } rect.page { fill: #fff }
polyline, line { fill: none; stroke-width: 1.6 } polygon { opacity: .15 }
.s0 { stroke: #0b62a4 } .s1 { stroke: #c1440e; stroke-dasharray: 6 3 } .s2 { stroke: #2a7a2a; stroke-dasharray: 2 3 }
.s3 { stroke: #7a3fa0 } .s4 { stroke: #8a6d00; stroke-dasharray: 6 3 } .s5 { stroke: #00767a; stroke-dasharray: 2 3 }
.f0, .b0 { fill: #0b62a4 } .f1, .b1 { fill: #c1440e } .f2, .b2 { fill: #2a7a2a }
.f3, .b3 { fill: #7a3fa0 } .f4, .b4 { fill: #8a6d00 } .f5, .b5 { fill: #00767a }
@media (prefers-color-scheme: dark) {
rect.page { fill: #16181c } text { fill: #d6d6d6 } .axis { stroke: #3a3d44 }
.s0 { stroke: #6cb2ff } .s1 { stroke: #ff9a6c } .s2 { stroke: #7fd07f } .f0, .b0 { fill: #6cb2ff }
.f1, .b1 { fill: #ff9a6c } .f2, .b2 { fill: #7fd07f } }
"""


@record
class Metric:
    """Something of each step that can be drawn."""

    name: str
    title: str
    percent: bool
    of: Callable[[StepRow, Learnt | None], float | None]


def _share(stage: str, name: str) -> Callable[[StepRow, Learnt | None], float | None]:
    def of(row: StepRow, learnt: Learnt | None) -> float | None:
        tally = total(row.tallies, stage)
        return getattr(tally, name) / tally.decided if tally.decided else None

    return of


def _reward(stage: str) -> Callable[[StepRow, Learnt | None], float | None]:
    def of(row: StepRow, learnt: Learnt | None) -> float | None:
        tally = total(row.tallies, stage)
        return tally.reward_sum / tally.rewarded if tally.rewarded else None

    return of


def _seconds(row: StepRow, learnt: Learnt | None) -> float | None:
    return sum(row.stage_seconds.values())


def _informative(row: StepRow, learnt: Learnt | None) -> float | None:
    groups = row.counts.get("groups", 0)
    return row.counts.get("informative", 0) / groups if groups else None


def _tasks(row: StepRow, learnt: Learnt | None) -> float | None:
    return row.counts.get("tasks")


def _loss(row: StepRow, learnt: Learnt | None) -> float | None:
    return learnt.loss if learnt is not None and learnt.skipped is None else None


def _norm(row: StepRow, learnt: Learnt | None) -> float | None:
    return learnt.grad_norm if learnt is not None and learnt.skipped is None else None


OWN: tuple[Metric, ...] = (
    Metric(name="valid", title="valid proposals", percent=True, of=_share("propose", "valid")),
    Metric(name="solved", title="solved attempts", percent=True, of=_share("attempt", "passed")),
    Metric(name="informative", title="groups that teach", percent=True, of=_informative),
    Metric(name="proposer_reward", title="proposer's mean reward", percent=False, of=_reward("propose")),
    Metric(name="solver_reward", title="solver's mean reward", percent=False, of=_reward("attempt")),
    Metric(name="tasks", title="accepted tasks", percent=False, of=_tasks),
    Metric(name="seconds", title="seconds of a step", percent=False, of=_seconds),
    Metric(name="loss", title="loss", percent=False, of=_loss),
    Metric(name="grad_norm", title="norm of the gradient", percent=False, of=_norm),
)
DEFAULT = ("valid", "solved", "informative", "proposer_reward", "solver_reward")
HELD_OUT = "held_out"


def metrics(learnt: Mapping[int, Learnt]) -> tuple[Metric, ...]:
    """What can be drawn of a run: the figures of its steps, and whatever its updates measured."""
    names = sorted({name for one in learnt.values() for name in one.metrics})
    return (*OWN, *(Metric(name=name, title=name, percent=False, of=_measured(name)) for name in names))


def _measured(name: str) -> Callable[[StepRow, Learnt | None], float | None]:
    return lambda row, learnt: learnt.metrics.get(name) if learnt is not None else None


def chart_of(metric: Metric, runs: Mapping[str, tuple[Sequence[StepRow], Mapping[int, Learnt]]]) -> Chart:
    """The metric's line of each run."""
    return Chart(
        ident=f"plot-{''.join(c if c.isalnum() else '-' for c in metric.name)}",
        title=metric.title,
        percent=metric.percent,
        series=tuple(
            Series(name=name, points=tuple((row.step, metric.of(row, learnt.get(row.step))) for row in rows))
            for name, (rows, learnt) in runs.items()
        ),
    )


def held_out_chart(readers: Mapping[str, Reader]) -> Chart:
    """pass@1 on held-out tasks over closed steps, with its interval."""
    series = []
    for name, reader in readers.items():
        config = reader.run_row().config
        every, tasks, attempts = (int(config.get(f"eval.{key}") or 0) for key in ("every", "tasks", "attempts"))
        points: list[tuple[float, float | None]] = []
        band: list[tuple[float, float, float]] = []
        for done in range(0, reader.last_closed_step() + 2, every) if every else ():
            plays = recorded(reader, done, tasks=tasks, attempts=attempts)
            found = summary(plays, ks=[1]).passes[1] if plays else None
            if found is not None and found.value is not None and found.low is not None and found.high is not None:
                points.append((done, found.value))
                band.append((done, found.low, found.high))
        series.append(Series(name=name, points=tuple(points), band=tuple(band), dots=True))
    return Chart(ident="plot-held-out", title="pass@1 on held-out tasks", series=tuple(series), x_name="closed steps")


def svg(charts: Sequence[Chart]) -> str:
    """One file of all charts, one below another; it needs nothing beside it."""
    drawn, y = [], GAP
    for chart in charts:
        height = HEIGHT + 16 * len(chart.series)
        drawn.append(f'<text class="title" x="4" y="{y - 6}">{escape(clean(chart.title))}</text>')
        placed = f'<svg x="0" y="{y}" width="{WIDTH}" height="{height}" '
        drawn.append(draw(chart).replace("<svg ", placed, 1))
        y += height + GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}">'
    page = f'<rect class="page" width="{WIDTH}" height="{y}"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", page, *drawn, "</svg>"]) + "\n"


def png(text: str) -> bytes:
    """The SVG `text` as a PNG, twice as large.

    Raises:
        NotReady: cairosvg is not installed.
    """
    if importlib.util.find_spec("cairosvg") is None:
        raise NotReady("PNG needs cairosvg, which is not installed", hint="pip install cairosvg; or --to FILE.svg")
    cairosvg = importlib.import_module("cairosvg")
    return bytes(cairosvg.svg2png(bytestring=text.encode(), scale=2.0))


def terminal(charts: Sequence[Chart], *, width: int) -> RenderableType:
    """Each line of each chart as a row of blocks, with its first and its newest value."""
    parts: list[RenderableType] = []
    for chart in charts:
        parts.append(Text(chart.title, style="bold"))
        wide = max((len(series.name) for series in chart.series), default=0)
        for series in chart.series:
            room = max(8, width - wide - 24)
            known = [y for _, y in series.points if y is not None]
            row = Text(f"  {series.name:<{wide}}  ")
            row.append(blocks([y for _, y in series.points], room, percent=chart.percent), style="cyan")
            row.append(f"  {_said(known, chart)}")
            parts.append(row)
    return Group(*parts)


def blocks(values: Sequence[float | None], room: int, *, percent: bool) -> str:
    """At most `room` characters; a stretch of steps is its mean, one without values a blank."""
    size = max(1, -(-len(values) // room))
    means = []
    for first in range(0, len(values), size):
        known = [value for value in values[first : first + size] if value is not None]
        means.append(sum(known) / len(known) if known else None)
    there = [value for value in means if value is not None]
    low, high = (0.0, 1.0) if percent else (min(there, default=0.0), max(there, default=1.0))
    span = (high - low) or 1.0
    return "".join(" " if value is None else BLOCKS[min(7, int(8 * (value - low) / span))] for value in means)


def _said(known: Sequence[float], chart: Chart) -> str:
    if not known:
        return UNKNOWN
    first, last = (f"{100 * y:.0f} %" if chart.percent else f"{y:.3g}" for y in (known[0], known[-1]))
    return f"{first} to {last}"
