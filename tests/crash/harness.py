"""Runs the real command in real processes, kills it, and starts it again until it is done.

A `Played` is one configuration played without interruption: the measure. A `Chain` is the same configuration
played through any number of kills.

Not here: which kills (`test_*.py`, `long.py`), crashes from within (`child.py`), comparing (`compared.py`).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from selfplay.ledger import Ledger
from tests.forked import Forked

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent
CHILD = f"import sys; sys.path.insert(0, {str(HERE)!r}); import child; sys.exit(child.main(sys.argv[1:]))"
"""`child.py` in a fork."""

TINY = ("play.proposals=4", "play.attempts=4", "play.min_viable=2", "curriculum.seeds=2", "run.save_every=3")
DEADLINE_SECONDS = 900.0
"""No launch takes longer, however loaded the machine is."""

Event = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is run: the words behind `selfplay run`, and where its sandboxes are."""

    words: tuple[str, ...]
    scripted: bool = False
    """The code game with replies from a table (`child.py`)."""
    sandbox: str | None = None

    @staticmethod
    def toy(*sets: str, steps: int = 12, seed: int = 0) -> Setup:
        """The toy game, a step in a tenth of a second."""
        return Setup(words=("demo", "--steps", str(steps), *_sets(*TINY, f"run.seed={seed}", *sets)))

    @staticmethod
    def code(package: Path, *sets: str, sandbox: str, steps: int = 3) -> Setup:
        """The code game on `package` with a toy model and replies from a table, warm-up included."""
        own = (
            f"game.source={package}",
            *("run.game=code", "roles.proposer=injector", "roles.solver=repairer", "game.held_out=0.0"),
            *(
                "policy.model=toy",
                "play.temperature=1.0",
                "warmup.steps=4",
                "warmup.examples=2",
                "warmup.check_every=2",
            ),
            *("warmup.cache=false", "sandbox.workers=2", "play.attempts=2", "run.save_every=2"),
            # note: replies from a table are not the learner's, and the probe tells.
            "alarms.stop=[]",
        )
        words = ("demo", "--steps", str(steps), "--sandbox", sandbox, *_sets(*TINY[:-1], *own, *sets))
        return Setup(words=words, scripted=True, sandbox=sandbox)


def _sets(*sets: str) -> Iterator[str]:
    for text in sets:
        yield from ("-s", text)


@dataclass(frozen=True, kw_only=True)
class Crash:
    """An end from within: `module:Class.name`, before or after its n-th call (`child.py`)."""

    at: str
    when: str = "before"
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.when} {self.at.removeprefix('selfplay.')} #{self.nth}"


class Launch:
    """One process of the command; its events are read as they come."""

    def __init__(self, words: Sequence[str], *, forked: bool, env: Mapping[str, str], log: Path) -> None:
        self.log = log
        self.events: list[Event] = []
        self.began = time.monotonic()
        self.launched: float | None = None
        """Seconds from the start to the event `launch`."""
        self._news = threading.Condition()
        self._ended = False
        with log.open("ab") as stderr:
            if forked:
                self.process: Forked | subprocess.Popen[bytes] = Forked(
                    CHILD, words, stderr=stderr, env=env, cwd=PROJECT
                )
            else:
                argv = [sys.executable, *words]
                self.process = subprocess.Popen(
                    argv, env=dict(env), cwd=PROJECT, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True
                )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # note: a killed process leaves half a line.
            with contextlib.suppress(json.JSONDecodeError):
                message = json.loads(line)
                with self._news:
                    event = message.get("data") or message
                    self.events.append(event)
                    if event.get("kind") == "launch":
                        self.launched = time.monotonic() - self.began
                    self._news.notify_all()
        self.process.stdout.close()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def wait_for(self, wanted: Callable[[Event], bool], *, after: int = 0) -> bool:
        """Wait until an event behind the first `after` is `wanted`; False where the process ended before."""
        with self._news:
            return self._news.wait_for(
                lambda: any(wanted(event) for event in self.events[after:]) or self._ended, DEADLINE_SECONDS
            ) and any(wanted(event) for event in self.events[after:])

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send `number` to the process alone, not to its children."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """The exit code, once every event is read."""
        code = self.process.wait(DEADLINE_SECONDS)
        self._reader.join(DEADLINE_SECONDS)
        return code

    @property
    def where(self) -> str:
        """What the newest events say the run was doing."""
        for event in reversed(self.events):
            match event.get("kind"), event.get("stage"):
                case "note", _ if "re-applying" in str(event["data"].get("text")):
                    return "re-applying"
                case "step", _:
                    return "between steps"
                case "save", _:
                    return "after a save"
                case "update", _:
                    return "warm-up"
                case "launch", _:
                    return "launch"
                case (("stage" | "tick"), str(stage)):
                    return stage
        return "start-up"

    @property
    def said(self) -> str:
        """What stderr holds, of all launches of the chain."""
        return self.log.read_text(errors="replace")


@dataclass(kw_only=True)
class Chain:
    """One run in `folder`, launched again and again."""

    setup: Setup
    runs: Path
    """`SELFPLAY_RUNS`."""
    name: str
    cache: Path | None = None
    """`SELFPLAY_CACHE`; the user's own where None."""
    log_folder: Path | None = None
    """Where stderr goes; `runs` where None."""
    pids: list[int] = field(default_factory=list)
    killed: Counter[str] = field(default_factory=Counter)
    """What the run was doing -> kills."""

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.runs / self.name

    def launch(self, *words: str, crash: Crash | None = None) -> Launch:
        """Start the command; it resumes where the run was begun before."""
        start = ["-m", "selfplay"]
        if crash or self.setup.scripted:
            # note: what ends inside a function of the command needs no imports of its own.
            start = [] if crash else [str(HERE / "child.py")]
            start += ["--at", crash.at, "--when", crash.when, "--nth", str(crash.nth)] if crash else []
            start += ["--scripted"] if self.setup.scripted else []
            start += ["--"]
        logs = self.log_folder or self.runs
        logs.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, "SELFPLAY_RUNS": str(self.runs)}
        if self.cache is not None:
            env["SELFPLAY_CACHE"] = str(self.cache)
        own = ("run", *self.setup.words, "--name", self.name, "--json", *words)
        launch = Launch([*start, *own], forked=crash is not None, env=env, log=logs / f"{self.name}.log")
        self.pids.append(launch.process.pid)
        return launch

    def crash(self, crash: Crash) -> None:
        """One launch that ends itself at `crash`.

        Raises:
            AssertionError: it never came there.
        """
        launch = self.launch(crash=crash)
        code = launch.wait()
        assert code == -signal.SIGKILL, f"{crash}: exit {code}, never reached\n{launch.said[-2000:]}"
        self.killed[launch.where] += 1

    def finish(self) -> Launch:
        """One launch to the end.

        Raises:
            AssertionError: it does not end well.
        """
        launch = self.launch()
        code = launch.wait()
        assert code == 0, f"exit {code}\n{launch.said[-2000:]}"
        return launch

    def closed(self) -> int:
        """How many steps are closed."""
        if not (self.folder / "ledger.db").is_file():
            return 0
        with Ledger.read(self.folder) as ledger:
            return ledger.last_closed_step() + 1 + ledger.num_updates("warmup")


@dataclass(frozen=True, kw_only=True)
class Played:
    """A run without interruption."""

    folder: Path
    startup: float
    """Seconds to the event `launch`."""
    seconds: float
    """Seconds after it."""

    @staticmethod
    def by(setup: Setup, runs: Path, *, name: str = "whole", cache: Path | None = None) -> Played:
        """Play it now."""
        chain = Chain(setup=setup, runs=runs, name=name, cache=cache)
        launch = chain.finish()
        assert launch.launched is not None
        return Played(
            folder=chain.folder, startup=launch.launched, seconds=time.monotonic() - launch.began - launch.launched
        )


STARTUP_SHARE = 0.15
"""Of the random kills, those that hit the imports and the opening of the run."""


def kill_at_random(chain: Chain, whole: Played, *, rng: random.Random, window: float, most: int = 10_000) -> int:
    """Kill `chain` at random moments until it is done; how many kills that took.

    A moment is uniform over the start-up, or over the next `window` seconds of play; the window grows while nothing
    is closed, so that every chain ends. The moment is drawn before the launch: what the run does there is chance.
    """
    kills = stuck = 0
    before = chain.closed()
    while True:
        launch = chain.launch()
        early = rng.random() < STARTUP_SHARE
        delay = rng.uniform(0, whole.startup) if early else rng.uniform(0, window * 2 ** max(0, stuck - 2))
        if kills >= most:
            early, delay = True, DEADLINE_SECONDS
        if not early:
            launch.wait_for(lambda event: event.get("kind") == "launch")
        with contextlib.suppress(subprocess.TimeoutExpired):
            launch.process.wait(delay)
        launch.kill()
        code = launch.wait()
        if code == 0:
            return kills
        assert code == -signal.SIGKILL, f"exit {code}\n{launch.said[-2000:]}"
        kills += 1
        chain.killed[launch.where] += 1
        after = chain.closed()
        stuck = stuck + 1 if after == before else 0
        before = after


PACKAGE = {
    "tiny/__init__.py": "from tiny.core import *\n",
    "tiny/core.py": '''\
def add(a, b):
    """The sum."""
    total = a + b
    return total


def count(n):
    """Up to n."""
    i = 0
    while i < n:
        i += 1
    return i


def largest(xs):
    """The greatest of them."""
    best = xs[0]
    for x in xs:
        if x > best:
            best = x
    return best
''',
    "tests/test_core.py": """\
from tiny import core


def test_add():
    assert core.add(1, 2) == 3
    assert core.add(2, 0) == 2


def test_count():
    assert core.count(3) == 3


def test_largest():
    assert core.largest([1, 3, 2]) == 3
""",
}
"""Three functions that stable tests reach; `child.SCRIPT` holds edits of them."""


def write_package(folder: Path) -> Path:
    """The small package, in `folder`."""
    for path, text in PACKAGE.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return folder
