"""What a run tells whoever watches it, and how a watcher asks it to stop.

`Event` is what the loop hands to its observer: a bar, a log line or a JSON line each time. `Interrupt` is
the only thing that flows the other way.

Not here: drawing (`views.progress`), signal handlers (`cli.signals`). Nothing is decided by an event: a run
whose observer does nothing is the same run.

Example:
    >>> Event(kind="tick", step=3, stage="attempt", data={"done": 12, "total": 64}).data["done"]
    12
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Literal

from selfplay.types import record

Kind = Literal["launch", "note", "stage", "tick", "update", "step", "save", "alarm", "end"]


@record
class Event:
    """Something happened in a run. Keys of `data`, by kind (a missing key is shown as unknown, never as 0):

    * `launch`: `run`, `folder`, `game`, `model`, `steps` (planned), `done` (closed before this launch),
      `warmup` (planned warm-up updates), `sandbox` (backend in words)
    * `note`: `text`, one line for people; of an evaluation on held-out tasks also `evaluation`, its figures; of
      `selfplay set RUN run.steps=N` also `steps` (planned from now on)
    * `stage`: a stage starts; `waits_for` (words: what it waits for), `total` (things to do, or None)
    * `tick`: how far the stage is; `done`, `total`, and where they make sense `valid` (proposals that became
      tasks), `solved` (attempts that passed), `tokens_per_second`, `waits_for`
    * `update`: the weights changed; `phase` (`warmup` or `play`), `index` (0-based), `total`, `loss`,
      `version`, `tokens`, `tokens_per_second`, `seconds`, `lr`
    * `step`: a step closed; the counts `proposals`, `decided_proposals` (those that were not given up), `valid`,
      `tasks`, `attempts`, `decided`, `left_out` (attempts that are suspicious: no reward), `solved`, `faults`,
      `truncated`, `gibberish`, `stale` (sampled by weights too old to learn from), `groups`, `informative` (both of
      each role as well: `ROLE.groups`), `tokens` (sampled); the means `proposer_reward`, `solver_reward`;
      `refused` (reason code -> count); `seconds`, `stage_seconds` (what the run did -> seconds),
      `tokens_per_second` (while sampling); `loss`, `grad_norm`, `version`, `skipped` (why no update, or None)
    * `save`: `path`, `phase`, `num_bytes`
    * `alarm`: `level` (`warning` or `error`), `text` (what is wrong), `fix` (what to do), `name` (where it is
      one of `selfplay ls alarms`)
    * `end`: `stop` (`done`, `interrupted`, `stopped` or `failed`), `steps` (closed in all), `seconds` (of this
      launch)
    """

    kind: Kind
    step: int | None = None
    """The step it belongs to, 0-based; None outside the steps (warm-up, launch, end)."""
    stage: str | None = None
    """`seeds`, `model`, `warmup`, `propose`, `mint`, `attempt`, `judge`, `update`, ...: one word."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """JSON. Numbers, names and reason codes; model text never."""


Observer = Callable[[Event], None]
"""Called on the thread of the event loop; it returns at once and raises nothing."""


def ignore(event: Event) -> None:
    """The observer that does nothing."""


class Interrupt:
    """How urgently the run is asked to stop. The loop reads `level`; signal handlers call `press`.

    0: go on. 1: start nothing new, finish the turns in flight, close the books. 2: drop the turns in
    flight too; they stay owed.
    """

    def __init__(self) -> None:
        self.level = 0
        self.signal: int | None = None
        """Number of the first signal that asked; None where none did."""
        self.paused = False
        """Begin no reply until it is False again; a press ends the pause."""
        self._listeners: list[Callable[[int], None]] = []

    def press(self, *, signal: int | None = None) -> None:
        """Ask once more, by `signal` where one asked; 2 is the most."""
        self.level = min(self.level + 1, 2)
        if self.signal is None:
            self.signal = signal
        for listener in self._listeners:
            listener(self.level)

    def subscribe(self, listener: Callable[[int], None]) -> None:
        """Call `listener(level)` at each press. It may run inside a signal handler: hand over and return."""
        self._listeners.append(listener)
