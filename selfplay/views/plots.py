"""Charts as SVG text that stands in an HTML page: lines with intervals, stacked bars, a line of a task's solve rates.

Colours are classes (`s0` to `s5`, `axis`, `words`), so that the page's style sheet can serve light and dark; series
also differ by dashes and have their name beside them. Every chart says in words what it shows. No dependency.

Not here: which figures (`report_charts`), the frontier's picture (`frontier`).

Example:
    >>> chart = Chart(ident="a", title="solve rate", series=(Series(name="solver", points=((0, 0.25), (1, 0.5))),))
    >>> draw(chart).startswith('<svg id="a" class="chart"')
    True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, log10
from xml.sax.saxutils import escape

from selfplay.types import record
from selfplay.views.words import clean

WIDTH, HEIGHT = 460, 220
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 10, 40
BAND = 44
"""Height of a band, its label included."""
COLOURS = 6
"""Classes of series; a seventh series looks like the first."""
MOST = 120
"""Points of a line; more steps are taken together."""


@record
class Series:
    """One line. Points without a value are gaps."""

    name: str
    points: tuple[tuple[float, float | None], ...]
    """(x, y), by x."""
    band: tuple[tuple[float, float, float], ...] = ()
    """(x, low, high): an interval around the line."""
    dots: bool = False
    """Mark every point: few, and far apart."""


@record
class Chart:
    """A figure of lines."""

    ident: str
    """Its anchor."""
    title: str
    series: tuple[Series, ...]
    percent: bool = True
    """From 0 to 100 %; otherwise the range of the points."""
    unit: str = ""
    x_name: str = "step"


@record
class Band:
    """A row of a picture over time."""

    label: str
    values: tuple[float, ...]
    """How many at each moment, as a mean over it."""
    most: int
    """How many at once: more than any mean, where a moment is longer than the work."""


def draw(chart: Chart) -> str:
    """The chart as SVG."""
    low, high = _range(chart)
    xs = [x for series in chart.series for x, _ in series.points]
    first, last = (min(xs), max(xs)) if xs else (0.0, 1.0)
    scale = _Scale(first=first, last=last, low=low, high=high)
    body = [*_grid(chart, scale)]
    for at, series in enumerate(chart.series):
        body += _line(series, scale, at % COLOURS)
    said = "; ".join(_said(series, chart) for series in chart.series)
    height = HEIGHT + 16 * len(chart.series)
    return _svg(chart.ident, chart.title, said, [*body, *_legend([series.name for series in chart.series])], height)


def bars(ident: str, title: str, rows: Sequence[tuple[str, Mapping[str, float]]], *, unit: str) -> str:
    """Stacked columns: (label, part -> amount) each; parts keep their order and their colour."""
    names = list(dict.fromkeys(name for _, parts in rows for name in parts))
    most = max((sum(parts.values()) for _, parts in rows), default=0.0)
    high = _ceiling(most)
    scale = _Scale(first=0, last=max(1, len(rows)), low=0.0, high=high)
    body: list[str] = []
    for value in (0.0, high / 2, high):
        body += _tick(scale.y(value), f"{value:g} {unit}".strip())
    wide = (WIDTH - LEFT - RIGHT) / max(1, len(rows))
    for at, (label, parts) in enumerate(rows):
        total, told = 0.0, ", ".join(f"{name} {value:.3g}" for name, value in parts.items() if value)
        body.append(f"<g><title>{_text(f'{label}: {told} {unit}')}</title>")
        for name, value in parts.items():
            top, bottom = scale.y(total + value), scale.y(total)
            total += value
            if bottom - top > 0.05:
                place = f'x="{LEFT + at * wide:.1f}" y="{top:.1f}" width="{max(0.6, wide - 1):.1f}"'
                body.append(f'<rect class="f{names.index(name) % COLOURS}" {place} height="{bottom - top:.1f}"/>')
        body.append("</g>")
    ends = [(LEFT, rows[0][0], "start"), (WIDTH - RIGHT, rows[-1][0], "end")] if rows else []
    body += [_words(x, HEIGHT - BOTTOM + 16, label, anchor=anchor) for x, label, anchor in ends]
    sums = {name: sum(parts.get(name, 0.0) for _, parts in rows) for name in names}
    whole = sum(sums.values()) or 1.0
    said = ", ".join(f"{name} {100 * value / whole:.0f} %" for name, value in sums.items())
    height = HEIGHT + 16 * len(names)
    return _svg(ident, title, said, [*body, *_legend(names, filled=True)], height)


def bands(ident: str, title: str, rows: Sequence[Band], *, ends: tuple[str, str]) -> str:
    """One band a row, each with a scale of its own; `ends` name the time axis."""
    body: list[str] = []
    for at, row in enumerate(rows):
        values = row.values
        floor, most = TOP + BAND * (at + 1), max(values, default=0.0) or 1.0
        wide = (WIDTH - LEFT - RIGHT) / max(1, len(values))
        body.append(_words(LEFT, floor - BAND + 12, f"{row.label}: at most {row.most} at the same time"))
        for i, value in enumerate(values):
            if value > 0:
                tall = (BAND - 20) * value / most
                place = f'x="{LEFT + i * wide:.1f}" y="{floor - tall:.1f}" width="{wide + 0.1:.1f}"'
                body.append(f'<rect class="f{at % COLOURS}" {place} height="{tall:.1f}"/>')
        body.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{floor}" y2="{floor}"/>')
    height = TOP + BAND * len(rows) + 20
    sides = ((LEFT, ends[0], "start"), (WIDTH - RIGHT, ends[1], "end"))
    body += [_words(x, height - 6, text, anchor=anchor) for x, text, anchor in sides]
    said = ", ".join(f"{row.label} busy {_share(row.values):.0%} of the time" for row in rows)
    return _svg(ident, title, said, body, height)


def _share(values: Sequence[float]) -> float:
    """Of the moments, those with anything going on."""
    return sum(value > 0 for value in values) / max(1, len(values))


def spark(values: Sequence[float | None], said: str) -> str:
    """A small line of shares, 0 to 1, in the run of a sentence."""
    wide, tall = max(40, 8 * len(values)), 22
    at = [(4 + 8 * i, tall - 3 - value * (tall - 6)) for i, value in enumerate(values) if value is not None]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
    dots = "".join(f'<circle class="f0" cx="{x:.1f}" cy="{y:.1f}" r="2"/>' for x, y in at)
    return (
        f'<svg class="spark" viewBox="0 0 {wide} {tall}" width="{wide}" height="{tall}" role="img" '
        f'aria-label="{_attribute(said)}"><polyline class="s0" points="{path}"/>{dots}</svg>'
    )


def thinned(points: Sequence[tuple[float, float, float]]) -> tuple[tuple[float, float | None], ...]:
    """(x, amount, of how much) -> at most `MOST` points (x, share), each of a stretch of neighbours taken together."""
    size = max(1, -(-len(points) // MOST))
    found: list[tuple[float, float | None]] = []
    for first in range(0, len(points), size):
        part = points[first : first + size]
        whole = sum(of for _, _, of in part)
        found.append((part[-1][0], sum(amount for _, amount, _ in part) / whole if whole else None))
    return tuple(found)


@record
class _Scale:
    """Where a value lies in the picture."""

    first: float
    last: float
    low: float
    high: float

    def x(self, value: float) -> float:
        """Pixels from the left."""
        span = (self.last - self.first) or 1.0
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - self.first) / span

    def y(self, value: float) -> float:
        """Pixels from the top."""
        span = (self.high - self.low) or 1.0
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - self.low) / span


def _range(chart: Chart) -> tuple[float, float]:
    if chart.percent:
        return 0.0, 1.0
    ys = [y for series in chart.series for _, y in series.points if y is not None]
    ys += [y for series in chart.series for _, *ends in series.band for y in ends]
    if not ys:
        return 0.0, 1.0
    low, high = min(0.0, *ys), max(0.0, *ys)
    return (-_ceiling(-low) if low < 0 else 0.0), (_ceiling(high) if high > 0 else (0.0 if low < 0 else 1.0))


def _ceiling(value: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return float(next(step * power for step in (1.0, 2.0, 2.5, 5.0, 10.0) if step * power >= value * 0.999999))


def _grid(chart: Chart, scale: _Scale) -> list[str]:
    drawn = []
    middle = (scale.low + scale.high) / 2
    taken: list[float] = []
    for value in (middle if scale.low == 0 else 0.0, scale.low, scale.high):
        y = scale.y(value)
        # note: two numbers on top of each other could not be read.
        if all(abs(y - other) > 14 for other in taken):
            drawn += _tick(y, f"{100 * value:.0f} %" if chart.percent else f"{value:g}{chart.unit}")
            taken.append(y)
    drawn.append(_words(LEFT, HEIGHT - BOTTOM + 16, f"{chart.x_name} {scale.first:g}"))
    if scale.last != scale.first:
        drawn.append(_words(WIDTH - RIGHT, HEIGHT - BOTTOM + 16, f"{scale.last:g}", anchor="end"))
    return drawn


def _tick(y: float, label: str) -> list[str]:
    return [
        f'<line class="axis" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>',
        _words(LEFT - 6, y + 4, label, anchor="end"),
    ]


def _line(series: Series, scale: _Scale, colour: int) -> list[str]:
    drawn = []
    if series.band:
        there = [f"{scale.x(x):.1f},{scale.y(high):.1f}" for x, _, high in series.band]
        back = [f"{scale.x(x):.1f},{scale.y(low):.1f}" for x, low, _ in reversed(series.band)]
        drawn.append(f'<polygon class="b{colour}" points="{" ".join([*there, *back])}"/>')
        drawn += [
            f'<line class="s{colour}" x1="{scale.x(x):.1f}" y1="{scale.y(low):.1f}" x2="{scale.x(x):.1f}" '
            f'y2="{scale.y(high):.1f}"/>'
            for x, low, high in series.band[: 1 if len(series.band) == 1 else 0]
        ]
    stretch: list[str] = []
    for x, y in (*series.points, (0.0, None)):
        if y is not None:
            stretch.append(f"{scale.x(x):.1f},{scale.y(y):.1f}")
            if series.dots:
                drawn.append(f'<circle class="f{colour}" cx="{scale.x(x):.1f}" cy="{scale.y(y):.1f}" r="3"/>')
        elif stretch:
            drawn.append(f'<polyline class="s{colour}" points="{" ".join(stretch)}"/>')
            if len(stretch) == 1:
                cx, cy = stretch[0].split(",")
                drawn.append(f'<circle class="f{colour}" cx="{cx}" cy="{cy}" r="2.5"/>')
            stretch = []
    return drawn


def _legend(names: Sequence[str], *, filled: bool = False) -> list[str]:
    drawn = []
    for at, name in enumerate(names):
        y, colour = HEIGHT - BOTTOM + 38 + 16 * at, at % COLOURS
        if filled:
            drawn.append(f'<rect class="f{colour}" x="{LEFT}" y="{y - 9}" width="22" height="9"/>')
        else:
            drawn.append(f'<line class="s{colour}" x1="{LEFT}" y1="{y - 4}" x2="{LEFT + 26}" y2="{y - 4}"/>')
        drawn.append(_words(LEFT + 32, y, name))
    return drawn


def _said(series: Series, chart: Chart) -> str:
    known = [(x, y) for x, y in series.points if y is not None]
    if not known:
        return f"{series.name}: nothing known"

    def value(y: float) -> str:
        return f"{100 * y:.0f} %" if chart.percent else f"{y:.3g}{chart.unit}"

    (first, begin), (last, end) = known[0], known[-1]
    return f"{series.name}: {value(begin)} at {chart.x_name} {first:g}, {value(end)} at {chart.x_name} {last:g}"


def _svg(ident: str, title: str, said: str, body: Sequence[str], height: int) -> str:
    head = (
        f'<svg id="{ident}" class="chart" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-labelledby="{ident}-title {ident}-said">'
    )
    words = f'<title id="{ident}-title">{_text(title)}</title><desc id="{ident}-said">{_text(said)}</desc>'
    return "\n".join([head, words, *body, "</svg>"])


def _words(x: float, y: float, text: str, *, anchor: str = "start") -> str:
    return f'<text class="words" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{_text(text)}</text>'


def _text(text: str) -> str:
    return escape(clean(text))


def _attribute(text: str) -> str:
    return escape(clean(text), {'"': "&quot;"})
