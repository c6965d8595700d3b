"""How hard a run's tasks are for its solver: a histogram by expected solve rate, after some steps of the run.

Each column holds the tasks that were played in the curriculum's window before that step, each counted at the mean of
its posterior. Numbers stand beside it: never and always solved as measured, the target band, the cells' priors.

Not here: the posterior (`curriculum.posterior`), which steps are shown (`cli.frontier`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any
from xml.sax.saxutils import escape

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from selfplay.types import record
from selfplay.views.words import UNKNOWN, clean, number, plural, share

BINS = 10
BAND = 0.15
"""How far from the target a solve rate may lie to count as near it."""
BAR = 9
"""Characters of the longest bar on a terminal."""
CELLS = 8
"""Cells that the screen lists, those with most tasks."""
BLOCKS = " ▏▎▍▌▋▊▉█"


@record
class Rate:
    """One task as a column counts it."""

    mean: float
    """Of its posterior."""
    decided: int
    """Attempts without a hint that were decided."""
    solved: int
    helped: int = 0
    """Attempts with a hint that were decided; they are not in the mean."""
    helped_solved: int = 0


@record
class Shot:
    """One column: the tasks as they were believed to be once `step` was closed."""

    step: int
    bins: tuple[int, ...]
    """Tasks by expected solve rate, tenths, the hardest first."""
    tasks: int
    never: int
    """Tried, and solved by no attempt."""
    always: int
    """Tried, and solved by every attempt."""
    near: int
    """Expected within the target band."""
    mean: float | None
    """Of the expected solve rates; None without tasks."""
    helped: int = 0
    """Tried with a hint."""
    opened: int = 0
    """Of them, solved by an attempt with one: hard rather than wrong."""


@record
class CellRow:
    """Tasks that are alike before anybody has tried them, and what is expected of a new one."""

    name: str
    tasks: int
    mean: float
    deviation: float
    strength: float
    """Attempts that the prior counts for."""


@record
class FrontierView:
    """The frontier of a run."""

    name: str
    curriculum: str
    window: int
    half_life: float
    target: float
    aim: str
    """Where the target is from, in words."""
    reward: str
    paid: float | None
    """The solve rate at which the proposer's reward pays most, where that is known."""
    shots: tuple[Shot, ...]
    """The newest last."""
    cells: tuple[CellRow, ...]
    """Of the newest column, those with most tasks first."""

    @property
    def band(self) -> tuple[float, float]:
        """Solve rates that count as near the target."""
        return band_of(self.target)


def band_of(target: float) -> tuple[float, float]:
    """Solve rates that count as near a target, as (low, high)."""
    return max(0.0, target - BAND), min(1.0, target + BAND)


def shot(step: int, rates: Sequence[Rate], *, band: tuple[float, float]) -> Shot:
    """The column of these tasks."""
    bins = [0] * BINS
    for rate in rates:
        bins[bin_of(rate.mean)] += 1
    return Shot(
        step=step,
        bins=tuple(bins),
        tasks=len(rates),
        never=sum(rate.decided > 0 and rate.solved == 0 for rate in rates),
        always=sum(0 < rate.decided == rate.solved for rate in rates),
        near=sum(band[0] <= rate.mean <= band[1] for rate in rates),
        mean=sum(rate.mean for rate in rates) / len(rates) if rates else None,
        helped=sum(rate.helped > 0 for rate in rates),
        opened=sum(rate.helped_solved > 0 for rate in rates),
    )


def bin_of(rate: float) -> int:
    """The bin of a solve rate; 1 belongs to the last."""
    return min(BINS - 1, int(rate * BINS))


def frontier_data(view: FrontierView) -> dict[str, Any]:
    """The view as JSON."""
    low, high = view.band
    return {
        "curriculum": view.curriculum,
        "window": view.window,
        "half_life": view.half_life if isfinite(view.half_life) else None,
        "target": {"rate": view.target, "low": low, "high": high, "from": view.aim},
        "reward": {"name": view.reward, "pays_most_at": view.paid},
        "edges": [i / BINS for i in range(BINS + 1)],
        "steps": [
            {
                "step": one.step,
                "tasks": one.tasks,
                "bins": list(one.bins),
                "never_solved": one.never,
                "always_solved": one.always,
                "near_target": one.near,
                "mean": one.mean,
                "tried_with_hint": one.helped,
                "solved_with_hint": one.opened,
            }
            for one in view.shots
        ],
        "cells": [
            {
                "cell": cell.name,
                "tasks": cell.tasks,
                "mean": cell.mean,
                "deviation": cell.deviation,
                "strength": cell.strength,
            }
            for cell in view.cells
        ],
    }


def frontier_screen(view: FrontierView) -> RenderableType:
    """One screen: the histogram, numbers under it, the cells."""
    head = Text(f"{view.name} · frontier · {view.curriculum} · after step {view.shots[-1].step}", style="bold")
    forgets = f"; half-life {view.half_life:g} updates" if isfinite(view.half_life) else ""
    head.append(f"\nexpected solve rates of tasks of the last {plural(view.window, 'step')}{forgets}", style="dim")
    parts: list[RenderableType] = [head, Text(), _histogram(view), Text(), *(Text(line) for line in aims(view))]
    if view.cells:
        parts += [Text(), _cells(view.cells)]
    if len(view.cells) > CELLS:
        parts.append(Text(f"and {len(view.cells) - CELLS} more cells: --json", style="dim"))
    return Group(*parts)


def aims(view: FrontierView) -> tuple[str, ...]:
    """Which solve rates are aimed at, a line each."""
    low, high = view.band
    marks = [f"› target {view.target:.2f} ({view.aim}); near it: {low:.2f} to {high:.2f}"]
    if view.paid is not None:
        marks.append(f"$ reward {view.reward} pays a proposal most at a solve rate of {view.paid:.2f}")
    return tuple(marks)


def _histogram(view: FrontierView) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("solve rate", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for one in view.shots:
        table.add_column(f"after step {one.step}", no_wrap=True, min_width=BAR + 5)
    most = max((count for one in view.shots for count in one.bins), default=0)
    for i in range(BINS):
        label = f"{100 * i // BINS}–{100 * (i + 1) // BINS} %"
        table.add_row(label, _marks(view, i), *(_bar(one.bins[i], most) for one in view.shots))
    table.add_row()
    for name, values in _figures(view.shots):
        table.add_row(Text(name, style="dim"), "", *values)
    return table


def _figures(shots: Sequence[Shot]) -> list[tuple[str, list[str]]]:
    def part(count: int, one: Shot) -> str:
        return f"{count} ({share(count, one.tasks)})" if one.tasks else UNKNOWN

    return [
        ("tasks", [str(one.tasks) for one in shots]),
        ("never solved", [part(one.never, one) for one in shots]),
        ("always solved", [part(one.always, one) for one in shots]),
        ("near target", [part(one.near, one) for one in shots]),
        ("mean", [number(one.mean) for one in shots]),
        *(
            [("with a hint", [f"{one.opened} of {one.helped}" for one in shots])]
            if any(s.helped for s in shots)
            else []
        ),
    ]


def _marks(view: FrontierView, i: int) -> Text:
    text = Text("›" if bin_of(view.target) == i else " ", style="green")
    text.append("$" if view.paid is not None and bin_of(view.paid) == i else " ", style="yellow")
    return text


def _bar(count: int, most: int) -> Text:
    eighths = max(1, round(8 * BAR * count / most)) if count else 0
    bar = BLOCKS[8] * (eighths // 8) + (BLOCKS[eighths % 8] if eighths % 8 else "")
    text = Text(bar, style="cyan")
    return text.append(f" {count}" if count else "·", style="" if count else "dim")


def _cells(cells: Sequence[CellRow]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("cell (role/strategy/module)", overflow="fold")
    for title in ("tasks", "a new one", "worth"):
        table.add_column(title, justify="right", no_wrap=True)
    for cell in cells[:CELLS]:
        expected = f"{cell.mean:.2f} ± {cell.deviation:.2f}"
        table.add_row(Text(clean(cell.name)), str(cell.tasks), expected, f"{cell.strength:.1f} attempts")
    return table


# The picture: a panel a column, a bar a bin, with the numbers as text.

PANEL, WIDTH, HEIGHT, TOP, LEFT, LINE = 190, 150, 200, 60, 50, 16


def frontier_svg(view: FrontierView) -> str:
    """The histogram as an SVG that needs nothing beside it."""
    lines = [f"frontier of {view.name}", *aims(view)]
    bottom = TOP + HEIGHT
    # note: a character is about half as wide as its font is high.
    width = max(LEFT + PANEL * len(view.shots) + 10, LEFT + 9 * max(len(line) for line in lines))
    height = bottom + LINE * 8 + LINE * len(lines)
    most = max((count for one in view.shots for count in one.bins), default=0)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f"<title>{_escaped(lines[0])}</title>",
        f'<rect class="ground" width="{width}" height="{height}" fill="white"/>',
        _words(LEFT, 22, f"{lines[0]} · {view.curriculum}", size=15),
    ]
    for at, one in enumerate(view.shots):
        drawn += _panel(view, one, left=LEFT + PANEL * at, most=most)
    below = bottom + LINE * 8
    drawn += [_words(LEFT, below + LINE * i, line) for i, line in enumerate(lines[1:])]
    return "\n".join([*drawn, "</svg>", ""])


def _panel(view: FrontierView, one: Shot, *, left: int, most: int) -> list[str]:
    bottom, step = TOP + HEIGHT, WIDTH / BINS
    low, high = view.band
    drawn = [
        f'<rect class="band" x="{left + low * WIDTH:.1f}" y="{TOP}" width="{(high - low) * WIDTH:.1f}" '
        f'height="{HEIGHT}" fill="#e5f2e5"/>',
        _words(left, TOP - 8, f"after step {one.step}"),
    ]
    for i, count in enumerate(one.bins):
        tall = HEIGHT * 0.92 * count / most if most else 0.0
        x, middle = left + step * i, left + step * (i + 0.5)
        label = f"{100 * i // BINS} to {100 * (i + 1) // BINS} %: {plural(count, 'task')}"
        drawn.append(
            f'<rect class="bar" x="{x + 1:.1f}" y="{bottom - tall:.1f}" width="{step - 2:.1f}" height="{tall:.1f}" '
            f'fill="#3a7ca5"><title>{label}</title></rect>'
        )
        drawn += [_words(middle, bottom - tall - 3, str(count), size=9, anchor="middle")] if count else []
    for rate, colour in ((view.target, "#2e7d32"), (view.paid, "#c77700")):
        if rate is not None:
            x = left + rate * WIDTH
            drawn.append(
                f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="{colour}" stroke-dasharray="3 3"/>'
            )
    drawn.append(f'<line x1="{left}" y1="{bottom}" x2="{left + WIDTH}" y2="{bottom}" stroke="#555"/>')
    drawn += [_words(left + WIDTH * p / 100, bottom + 12, f"{p} %", size=9, anchor="middle") for p in (0, 50, 100)]
    figures = [f"{name} {values[0]}" for name, values in _figures([one])]
    return [*drawn, *(_words(left, bottom + 30 + LINE * i, figure) for i, figure in enumerate(figures))]


def _words(x: float, y: float, text: str, *, size: int = 11, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{_escaped(text)}</text>'


def _escaped(text: str) -> str:
    return escape(clean(text))
