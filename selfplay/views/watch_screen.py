"""The watching screen: a run at one moment, in as many rows as there are, 80 columns or more.

The screen is a list of blocks. Each has a smallest and a largest height; what a terminal leaves over goes to the
frontier, the newest plays, the choices, and where there is too little the last blocks are left out. Every row is one
line, so that a terminal of any size shows whole rows. Words accompany every colour.

Not here: what is known (`watch`), which page is shown (`watch_browser`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from selfplay.ledger import StepRow
from selfplay.ledger.watching import Recent
from selfplay.types import record
from selfplay.views.cost import stage_seconds
from selfplay.views.evaluation import line as evaluation_line
from selfplay.views.frontier import BINS, FrontierView
from selfplay.views.inspect import ID_DIGITS
from selfplay.views.status import STAGES, total
from selfplay.views.watch import (
    WINDOW,
    Watched,
    cost,
    places,
    rates,
    refused,
    seconds_left,
    tally_of,
)
from selfplay.views.words import UNKNOWN, clean, duration, number, plural, share

WIDTH = 80
"""Where the output is no terminal."""
LEVELS = " ▁▂▃▄▅▆▇█"
KEYS = "↑↓ enter: read a play · f frontier · p pause · ? help · q quit (it goes on)"
ROLE = 14
"""Characters of a role's name."""
TITLE = 10
"""Characters in front of every row."""

Lines = list[Text]


@record
class Block:
    """Some rows of the screen."""

    draw: Callable[[int], Lines]
    """Given how many rows it may take."""
    least: int
    most: int
    rank: int
    """Where there is too little room the highest goes first; 0 stays."""


def screen(
    watched: Watched, *, now: float, width: int = WIDTH, height: int | None = None, selected: int | None = None
) -> RenderableType:
    """The whole screen. `now` is Unix seconds; `selected` an index of `watched.plays`, None where nobody chooses.

    `height` is the terminal's, None where there is no limit.
    """
    return Group(*lines(watched, now=now, width=width, height=height, selected=selected))


def lines(watched: Watched, *, now: float, width: int, height: int | None, selected: int | None) -> Lines:
    """The rows of the screen, each at most `width` wide."""
    footer = [Text(f" {KEYS}", style="dim")] if selected is not None else []
    blocks = [
        Block(draw=lambda rows: _head(watched, now=now, width=width), least=2, most=2, rank=0),
        _roles(watched),
        _frontier(watched.frontier, watched.drawing, width=width),
        _facts(watched),
        _alarms(watched, width=width),
        _evaluations(watched, width=width),
        _choices(watched, width=width),
        _plays(watched.plays, selected),
    ]
    drawn = fit(blocks, None if height is None else height - len(footer))
    whole = [*drawn, *footer]
    for row in whole:
        row.no_wrap, row.overflow = True, "ellipsis"
        row.truncate(width, overflow="ellipsis")
    return whole


def fit(blocks: Sequence[Block], height: int | None) -> Lines:
    """The rows of the blocks that have room, in their order; never more than `height`."""
    if height is None:
        return [row for block in blocks for row in block.draw(block.most)]
    kept = [block for block in blocks if block.most]
    while len(kept) > 1 and sum(block.least for block in kept) > height:
        worst = max(block.rank for block in kept)
        kept = [block for block in kept if block.rank != worst or not worst]
        if not worst:
            break
    sizes = [block.least for block in kept]
    room = height - sum(sizes)
    while room > 0 and any(size < block.most for size, block in zip(sizes, kept, strict=True)):
        for at, block in enumerate(kept):
            if room > 0 and sizes[at] < block.most:
                sizes[at], room = sizes[at] + 1, room - 1
    return [row for size, block in zip(sizes, kept, strict=True) for row in block.draw(size)][:height]


def _head(watched: Watched, *, now: float, width: int) -> Lines:
    run, status = watched.run, watched.run.status
    head = Text(" ")
    head.append(run.name, style="bold")
    held = f" ({run.holder})" if run.holder is not None else ""
    head.append(f" · {status.run.game} · {run.shown}{held} · weights v{status.policy_version}")
    left = seconds_left(watched)
    ending = f" · about {duration(left)} left" if left is not None else ""
    ago = f"written {duration(max(0.0, now - status.last_seen))} ago"
    words = f"  {run.closed}/{run.steps} steps{ending} · {ago}"
    bar = max(8, min(30, width - len(words) - 2))
    filled = min(bar, int(bar * run.closed / run.steps)) if run.steps else 0
    progress = Text.assemble(" ", ("█" * filled, "cyan"), ("░" * (bar - filled), "dim"), words)
    return [head, progress]


def _roles(watched: Watched) -> Block:
    found = places(watched)
    played = [place for place in found if place[0] in STAGES]
    titles = (
        f"{'last step':>13} {f'{min(WINDOW, len(watched.steps))} steps':>9}  {'all':>5}  {'reward':>6}  teach  trend"
    )
    title = Text(f" {'':<{ROLE}} {'':<6} {titles}", style="dim")

    def draw(rows: int) -> Lines:
        return [Text(), title, *(_role(watched, stage, role) for stage, role in played)] if played else []

    size = len(played) + 2 if played else 0
    return Block(draw=draw, least=size, most=size, rank=0)


def _role(watched: Watched, stage: str, role: str) -> Text:
    last, recent = rates(watched.steps[-1:], stage, role), rates(watched.window, stage, role)
    whole = watched.run.status.closed.get(f"{stage}/{role}")
    every = (whole.passed if stage == "attempt" else whole.valid) / whole.decided if whole and whole.decided else None
    name = role if len(role) <= ROLE else role[: ROLE - 1] + "…"
    newest = f"{_percent(last['good'])} of {last['decided']:.0f}"
    row = Text(f" {name:<{ROLE}} ")
    row.append(f"{'valid' if stage == 'propose' else 'solved':<6}", style="dim")
    row.append(f" {newest:>13} {_percent(recent['good']):>9}  {_percent(every):>5}  ")
    row.append(f"{number(recent['mean_reward'], signed=True):>6}  {_percent(recent['informative']):>5}  ")
    row.append(trend(watched.steps, stage, role), style="cyan")
    return row


def trend(steps: Sequence[StepRow], stage: str, role: str) -> str:
    """A character a closed step, from 0 to 1; a blank where nothing was decided."""
    shown = []
    for row in steps[-WINDOW:]:
        tally = tally_of([row], stage, role)
        good = tally.passed if stage == "attempt" else tally.valid
        shown.append(LEVELS[1 + round(7 * good / tally.decided)] if tally.decided else " ")
    return "".join(shown)


def _frontier(view: FrontierView | None, drawing: bool, *, width: int) -> Block:
    if view is None:
        why = "is being worked out" if drawing else "no task was played in a closed step yet"
        said = [Text(), _titled("frontier", why)]
        return Block(draw=lambda rows: said, least=2, most=2, rank=1)
    newest = view.shots[-1]
    before = view.shots[0] if len(view.shots) > 1 else None
    column = max(5, min(9, (width - TITLE - 2) // BINS))
    head = f"{plural(newest.tasks, 'task')} by expected solve rate, step {newest.step}"
    head += f" · near {view.target:.2f}: {share(newest.near, newest.tasks)}"
    if before is not None:
        head += f", was {share(before.near, before.tasks)}"

    def draw(rows: int) -> Lines:
        # note: title, numbers and labels stay; then come the changes, the rest is height of the bars.
        changes = before is not None and rows >= 8
        bars = _bars(newest.bins, rows - 4 - changes, column)
        counts = [_row("", [str(count) if count else "·" for count in newest.bins], column)]
        if changes and before is not None:
            moved = [new - old for new, old in zip(newest.bins, before.bins, strict=True)]
            texts = [f"{change:+d}" if change else "" for change in moved]
            counts.append(_row(f"since {before.step}", texts, column, style="dim"))
        return [Text(), _titled("frontier", head), *bars, *counts, _labels(view, column)]

    return Block(draw=draw, least=6, most=11, rank=1)


def _bars(bins: Sequence[int], rows: int, column: int) -> Lines:
    most = max(bins, default=0) or 1
    eighths = [
        round(8 * rows * count / most) if not count else max(1, round(8 * rows * count / most)) for count in bins
    ]
    shown = []
    for row in range(rows - 1, -1, -1):
        cells = [LEVELS[max(0, min(8, tall - 8 * row))] * (column - 1) for tall in eighths]
        shown.append(_row("", cells, column, style="cyan"))
    return shown


def _labels(view: FrontierView, column: int) -> Text:
    low, high = view.band
    row = Text(" " * (TITLE + 1))
    for at in range(BINS):
        near = at / BINS < high and (at + 1) / BINS > low
        label = f"{100 * at // BINS}–{100 * (at + 1) // BINS}"
        row.append(f"{label:^{column - 1}} ", style="bold green" if near else "dim")
    return row


def _row(title: str, cells: Sequence[str], column: int, *, style: str = "") -> Text:
    row = Text(f" {title:<{TITLE}}", style="dim")
    for cell in cells:
        row.append(f"{cell:^{column - 1}} ", style=style or "not dim")
    return row


def _facts(watched: Watched) -> Block:
    facts: Lines = [Text()]
    reasons = refused(watched)
    if reasons:
        proposals = sum(total(row.tallies, "propose").decided for row in watched.window)
        words = ", ".join(f"{reason} {count}" for reason, count in list(reasons.items())[:4])
        more = f" and {len(reasons) - 4} more" if len(reasons) > 4 else ""
        facts.append(_titled("refused", f"{words}{more} (of {proposals} in {plural(len(watched.window), 'step')})"))
    if not watched.ended:
        facts.append(_titled("open step", _open(watched)))
    seconds = stage_seconds(watched.window)
    whole = sum(seconds.values())
    if whole:
        shares = " · ".join(f"{name} {100 * value / whole:.0f} %" for name, value in seconds.items())
        facts.append(_titled("time", f"{duration(whole / len(watched.window))} a step: {shares}"))
    spent = cost(watched)
    if spent is not None:
        price = [f"{spent['tokens']:,.0f} tokens", f"{duration(spent['verification_seconds'])} verifying"]
        price += [f"{duration(spent['tool_seconds'])} in tools"] if spent["tool_seconds"] else []
        facts.append(
            _titled("a task", " · ".join([*price, f"{duration(spent['seconds'])} in all (each accepted one)"]))
        )
    if watched.run.status.num_faults:
        faults = plural(watched.run.status.num_faults, "fault")
        facts.append(_titled("machine", f"{faults} in all, retried: they decide nothing"))
    return Block(draw=lambda rows: facts[:rows], least=min(3, len(facts)), most=len(facts), rank=3)


def _open(watched: Watched) -> str:
    status, config = watched.run.status, watched.run.status.run.config
    words = []
    planned = {
        "propose": watched.asked.proposals * int(config.get("play.proposals") or 0),
        "attempt": (watched.asked.tasks + watched.asked.replays) * int(config.get("play.attempts") or 0),
    }
    for stage, noun in STAGES.items():
        tally = total(status.open, stage)
        of = f"/{planned[stage]}" if planned[stage] >= tally.played > 0 or (planned[stage] and not tally.played) else ""
        waiting = tally.played - tally.decided - tally.left_out
        words.append(f"{noun} {tally.played}{of} sampled" + (f", {waiting} not decided" if waiting > 0 else ""))
    return f"{status.last_closed_step + 1}: " + " · ".join(words)


def _alarms(watched: Watched, *, width: int) -> Block:
    rows: Lines = []
    for alarm in reversed(watched.alarms):
        style = "bold red" if alarm.level == "error" else "yellow"
        rows += _wrapped(alarm.level, alarm.message, width=width, most=2, style=style)
        rows += _wrapped("", f"do: {alarm.fix}", width=width, most=2) if alarm.fix else []
    return Block(draw=lambda size: rows[:size], least=min(2, len(rows)), most=len(rows), rank=0)


def _evaluations(watched: Watched, *, width: int) -> Block:
    rows: Lines = []
    for done, found in reversed(watched.evaluations):
        said = f"after {plural(done, 'step')}: {evaluation_line(found)}"
        rows += _wrapped("" if rows else "held-out", said, width=width, most=2)
    return Block(draw=lambda size: rows[:size], least=min(1, len(rows)), most=len(rows), rank=4)


def _choices(watched: Watched, *, width: int) -> Block:
    rows: Lines = []
    for one in watched.choices:
        words = f"step {one.step} {one.mode} {one.subject_id[:8]}: {one.why}"
        rows += _wrapped("" if rows else "chosen", words, width=width, most=3)
    return Block(draw=lambda size: rows[:size], least=min(2, len(rows)), most=min(12, len(rows)), rank=5)


def _plays(plays: Sequence[Recent], selected: int | None) -> Block:
    def draw(size: int) -> Lines:
        count = size - 1
        at = selected or 0
        first = max(0, min(at - count // 2, len(plays) - count))
        return [Text(), *(_play(plays[i], i == selected) for i in range(first, min(len(plays), first + count)))]

    most = min(len(plays), 12 if selected is not None else 6)
    return Block(draw=draw, least=min(3, most + 1) if most else 0, most=most + 1 if most else 0, rank=2)


def _play(one: Recent, chosen: bool) -> Text:
    mark = "›" if chosen else " "
    row = Text(f"{mark}{one.id[:ID_DIGITS]} step {one.step} {one.role} ", style="reverse" if chosen else "")
    row.append(outcome(one), style={"accepted": "green", "solved": "green", "fault": "red"}.get(outcome(one), ""))
    if one.reason is not None:
        row.append(f" ({one.reason}): {clean(one.why)}".replace("\n", " "), style="dim")
    return row


def outcome(one: Recent) -> str:
    """What became of a trajectory, in a word or two."""
    if one.broken:
        return "fault"
    if one.valid is None:
        return "not decided"
    if one.stage == "attempt" or one.passed is not None:
        return "left out" if one.passed is None else ("solved" if one.passed else "not solved")
    return "accepted" if one.valid else "refused"


def _wrapped(title: str, text: str, *, width: int, most: int, style: str = "") -> Lines:
    """A text over at most so many rows."""
    room = max(20, width - TITLE - 2)
    parts = textwrap.wrap(" ".join(clean(text).split()), room, max_lines=most, placeholder=" …")
    return [_titled(title if at == 0 else "", part, style=style) for at, part in enumerate(parts)]


def _titled(title: str, text: str, *, style: str = "") -> Text:
    row = Text(f" {title:<{TITLE}}", style=style or "dim")
    row.append(text.replace("\n", " "), style=style or "not dim")
    return row


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{100 * value:.0f} %"
