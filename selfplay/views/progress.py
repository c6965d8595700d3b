"""The screen of a running run: what its events add up to, and how that is drawn.

`Progress` takes events and keeps the little that a screen needs; `screen` draws it for a terminal and `line`
turns one event into one plain line. Both are pure: the clock is handed in.

Not here: terminals, threads and JSON (`observers`), finished runs (`status`).

Example:
    >>> progress = Progress(run="demo")
    >>> progress.take(Event(kind="stage", step=0, stage="propose", data={"total": 8}), now=0.0)
    >>> progress.stages["propose"].total
    8
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from selfplay.events import Event
from selfplay.views.words import UNKNOWN, duration, number, plural, share, shorten

RECENT = 5
"""Steps whose mean duration gives the estimate of what is left."""

WAITS: Mapping[str, str] = {
    "seeds": "the game's seeds",
    "model": "the model's weights",
    "warmup": "the learner",
    "propose": "replies and verdicts",
    "mutate": "verdicts",
    "attempt": "replies and verdicts",
    "update": "the learner",
}
"""What a stage waits for where its event does not say."""

TOLD: Mapping[str, str] = {"propose": "valid", "mutate": "valid", "attempt": "solved"}
"""The one count of a stage that its line shows."""

PLAYED = frozenset({*TOLD, "attempt with a hint"})
"""Stages of a step that may be played ahead of its turn."""

LAST = ("valid", "decided_proposals"), ("solved", "decided"), ("informative", "groups")


@dataclass(slots=True, kw_only=True)
class StageLine:
    """How far one stage is."""

    name: str
    done: int = 0
    total: int | None = None
    waits_for: str = ""
    counts: dict[str, float] = field(default_factory=dict)
    """`valid`, `solved`, `tokens_per_second`, where they were given."""
    finished: bool = False


@dataclass(slots=True, kw_only=True)
class Progress:
    """What the events of one launch add up to. Times are seconds of one monotonic clock."""

    run: str
    facts: dict[str, Any] = field(default_factory=dict)
    """Of the `launch` event."""
    began: float | None = None
    step: int | None = None
    """The step that is played."""
    closed: int = 0
    """Steps closed in all."""
    stages: dict[str, StageLine] = field(default_factory=dict)
    """Of the current step, in the order they began."""
    warmup: dict[str, Any] = field(default_factory=dict)
    """The newest warm-up update."""
    last: dict[str, Any] = field(default_factory=dict)
    """The newest closed step."""
    totals: dict[str, float] = field(default_factory=dict)
    """Sums over the steps closed in this launch: of counts, and of means."""
    known: dict[str, int] = field(default_factory=dict)
    """Over how many steps each sum goes: those whose value is not None."""
    durations: list[float] = field(default_factory=list)
    """Seconds of each step closed in this launch."""
    opened: float | None = None
    alarms: list[str] = field(default_factory=list)
    note: str = ""
    version: int | None = None
    ended: str | None = None

    def take(self, event: Event, *, now: float) -> None:
        """Add one event."""
        if self.began is None:
            self.began = now
        data = event.data
        if event.stage in PLAYED and event.kind in ("stage", "tick") and self._is_ahead(event.step):
            return
        if event.step is not None and event.step != self.step and event.kind in ("stage", "tick"):
            self.step, self.opened = event.step, now
            self.stages.clear()
        if event.kind == "launch":
            self.facts.update(data)
            self.run = str(data.get("run", self.run))
            self.closed = int(data.get("done") or 0)
        elif event.kind in ("stage", "tick"):
            self._take_stage(event)
        elif event.kind == "update":
            self._take_update(data)
        elif event.kind == "step":
            self._take_step(event, now)
        elif event.kind == "note":
            self.note = str(data.get("text", ""))
            self.facts.update({"steps": data["steps"]} if "steps" in data else {})
        elif event.kind == "alarm":
            fix = f" – {data['fix']}" if data.get("fix") else ""
            self.alarms.append(f"{data.get('level', 'warning')}: {data.get('text', '')}{fix}")
        elif event.kind == "end":
            self.ended = str(data.get("stop", "done"))

    def _is_ahead(self, step: int | None) -> bool:
        """Is it played ahead of the step that is shown, which is not closed yet?"""
        return step is not None and self.step is not None and step > self.step >= self.closed

    def seconds_left(self, *, now: float) -> float | None:
        """Seconds until the last step closes, from this launch's own rates; None while there is none to go by."""
        steps = self.facts.get("steps")
        if steps is None or not self.durations:
            return None
        recent = self.durations[-RECENT:]
        gone = now - self.opened if self.opened is not None else 0.0
        return max(0.0, sum(recent) / len(recent) * (int(steps) - self.closed) - gone)

    def tokens_per_second(self) -> float | None:
        """The sampler's newest rate: of the stage under way, else of the last closed step."""
        for stage in reversed(self.stages.values()):
            if not stage.finished and stage.counts.get("tokens_per_second"):
                return stage.counts["tokens_per_second"]
        rate = self.last.get("tokens_per_second")
        return float(rate) if rate is not None else None

    def _take_stage(self, event: Event) -> None:
        name, data = event.stage or "", event.data
        if event.kind == "stage" and name != "warmup":
            for other in self.stages.values():
                other.finished = True
        stage = self.stages.setdefault(name, StageLine(name=name))
        stage.finished = False
        if event.kind == "stage":
            stage.done = 0
        stage.done = int(data.get("done", stage.done))
        stage.total = data.get("total", stage.total)
        stage.waits_for = str(data.get("waits_for") or WAITS.get(name, ""))
        for key in ("valid", "solved", "tokens_per_second"):
            if data.get(key) is not None:
                stage.counts[key] = data[key]
        if stage.total is not None and stage.done >= stage.total > 0:
            stage.finished = True

    def _take_update(self, data: Mapping[str, Any]) -> None:
        self.version = data.get("version", self.version)
        if data.get("phase") == "warmup":
            self.warmup = dict(data)
            for other in self.stages.values():
                other.finished = True
            line = self.stages.setdefault("warmup", StageLine(name="warmup", waits_for=WAITS["warmup"]))
            line.done, line.total = int(data["index"]) + 1, data.get("total")
            line.finished = line.done == line.total

    def _take_step(self, event: Event, now: float) -> None:
        self.last = dict(event.data)
        self.version = event.data.get("version", self.version)
        self.closed = (event.step + 1) if event.step is not None else self.closed + 1
        if self.opened is not None:
            self.durations.append(now - self.opened)
        self.opened = None
        for stage in self.stages.values():
            stage.finished = True
        for key, value in event.data.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                self.totals[key] = self.totals.get(key, 0) + value
                self.known[key] = self.known.get(key, 0) + 1


def screen(progress: Progress, *, now: float) -> RenderableType:
    """The whole screen, 80 columns wide or more."""
    parts: list[Text] = [_head(progress, now=now), _run_bar(progress), Text()]
    if progress.stages:
        parts += [*(_stage(stage, progress) for stage in progress.stages.values()), Text()]
    if progress.last:
        parts += [*_rates(progress), Text()]
    parts += [Text(f" {text}", style="yellow") for text in progress.alarms[-3:]]
    if progress.note:
        parts.append(Text(f" {shorten(progress.note, 78)}", style="dim"))
    parts.append(Text(" Ctrl-C stops after the turns in flight; the same command resumes", style="dim"))
    return Group(*parts)


def line(event: Event, progress: Progress) -> str | None:
    """One plain line for an event that `progress` has taken; None where it deserves none."""
    data = event.data
    if event.kind == "step":
        return "step=" + " ".join(_step_words(event.step, data, progress))
    if event.kind == "update" and data.get("phase") == "warmup":
        words = f"warmup={data['index'] + 1}/{data.get('total', '?')} loss={number(data.get('loss'), digits=3)}"
        return (
            f"{words} v={data.get('version', '?')} tokens_per_second={number(data.get('tokens_per_second'), digits=0)}"
        )
    if event.kind == "launch":
        keys = ("run", "game", "model", "sandbox", "done", "steps", "folder")
        return "launch " + " ".join(f"{key}={data[key]}" for key in keys if data.get(key) is not None)
    if event.kind == "stage" and event.step is None:
        return f"{event.stage}: waiting for {data.get('waits_for') or WAITS.get(event.stage or '', 'it')}"
    if event.kind == "tick" and event.step is None and (total := data.get("total")):
        done = int(data.get("done", 0))
        return f"{event.stage}: {done} of {total}" if done % max(1, total // 10) == 0 else None
    if event.kind == "note":
        return f"note: {data.get('text', '')}"
    if event.kind == "alarm":
        return progress.alarms[-1]
    if event.kind == "end":
        return f"end stop={data.get('stop')} steps={data.get('steps')} sec={number(data.get('seconds'), digits=0)}"
    return None


def _step_words(step: int | None, data: Mapping[str, Any], progress: Progress) -> list[str]:
    def ratio(top: str, bottom: str) -> str:
        return number(data[top] / data[bottom]) if data.get(bottom) and data.get(top) is not None else "?"

    words = [
        f"{UNKNOWN if step is None else step}",
        f"closed={progress.closed}/{progress.facts.get('steps', '?')}",
        f"v={data.get('version', '?')}",
        f"proposals={data.get('proposals', '?')}",
        f"valid={ratio('valid', 'decided_proposals')}",
        f"tasks={data.get('tasks', '?')}",
        *([f"children={data['children']}/{data['mutated']}"] if data.get("mutated") else []),
        f"attempts={data.get('attempts', '?')}",
        f"solved={ratio('solved', 'decided')}",
        f"learnable={ratio('informative', 'groups')}",
    ]
    rewards = [f"{side}_reward" for side in ("proposer", "solver")]
    words += [f"{key}={number(data[key], signed=True)}" for key in rewards if data.get(key) is not None]
    words += [f"left_out={ratio('left_out', 'attempts')}"] if data.get("left_out") else []
    rate = data.get("tokens_per_second")
    words += [f"loss={number(data.get('loss'), digits=4)}"]
    words += [f"tokens_per_second={rate:.0f}"] if rate is not None else []
    words += [f"sec={number(data.get('seconds'), digits=1)}"]
    return words + (["update=skipped"] if data.get("skipped") else [])


def _head(progress: Progress, *, now: float) -> Text:
    facts = progress.facts
    head = Text(" ")
    head.append(progress.run, style="bold")
    for key in ("game", "model", "sandbox"):
        if facts.get(key):
            head.append(f" · {facts[key]}")
    head.append(f" · {progress.closed}/{facts.get('steps', '?')} steps")
    gone = now - progress.began if progress.began is not None else 0.0
    left = progress.seconds_left(now=now)
    ending = "time left not yet known" if left is None else f"about {duration(left)} left"
    words = [f"{duration(gone)} gone", progress.ended or ending]
    if progress.version is not None:
        words.append(f"weights v{progress.version}")
    rate = progress.tokens_per_second()
    if rate is not None:
        words.append(f"{rate:.0f} tokens/s")
    head.append("\n " + " · ".join(words), style="dim")
    return head


def _bar(done: float, total: float, *, width: int) -> Text:
    filled = min(width, int(width * done / total)) if total else 0
    shown = Text("█" * filled, style="cyan")
    shown.append("░" * (width - filled), style="dim")
    return shown


def _run_bar(progress: Progress) -> Text:
    total = progress.facts.get("steps") or 0
    return Text.assemble(" ", _bar(progress.closed, total, width=70), f"  {share(progress.closed, total)}")


def _stage(stage: StageLine, progress: Progress) -> Text:
    shown = Text(f" {stage.name:<11} ")
    if stage.total is None:
        shown.append(" " * 27)
    else:
        shown.append_text(_bar(stage.done, stage.total, width=18))
        shown.append(f"{f'{stage.done}/{stage.total}':>9}")
    shown.append(f" {shorten(_stage_words(stage, progress), 38)}")
    return shown


def _stage_words(stage: StageLine, progress: Progress) -> str:
    told = TOLD.get(stage.name.split()[-1] if stage.name else "", "")
    words = [f"{told} {share(stage.counts[told], stage.done)}"] if told in stage.counts else []
    if stage.name == "warmup" and progress.warmup:
        words.append(f"loss {number(progress.warmup.get('loss'), digits=3)}")
        words.append(f"{number(progress.warmup.get('tokens_per_second'), digits=0)} tokens/s")
    elif not stage.finished and stage.waits_for:
        words.append(f"waits for {stage.waits_for}")
    return " · ".join(words) if words else "done"


def _rates(progress: Progress) -> list[Text]:
    titles = ("valid", "solved", "teach", "reward proposer / solver")
    lines = [Text(f" {'':<12}" + "".join(f"{title:<13}" for title in titles).rstrip(), style="dim")]
    steps = len(progress.durations)
    rows: list[tuple[str, dict[str, Any]]] = [("last step", progress.last)]
    if steps > 1:
        keys = ("proposer_reward", "solver_reward")
        means = {key: progress.totals[key] / progress.known[key] for key in keys if key in progress.known}
        rows.append((plural(steps, "step"), {**progress.totals, **means}))
    for name, data in rows:
        cells = [f"{share(data.get(top), data.get(bottom))} of {data.get(bottom, 0):.0f}" for top, bottom in LAST]
        rewards = " / ".join(number(data.get(f"{side}_reward"), signed=True) for side in ("proposer", "solver"))
        lines.append(Text(f" {name:<12}" + "".join(f"{cell:<13}" for cell in cells) + rewards))
    if left_out := progress.totals.get("left_out"):
        of = f"of {plural(int(progress.totals.get('attempts', 0)), 'attempt')}"
        words = f" {share(left_out, progress.totals.get('attempts'))} {of} left out: suspicious"
        lines.append(Text(words, style="yellow"))
    return lines
