"""One learner of several ranks: speaks for all of them, notices when one dies; starts them on this machine.

`Ranked` is a `learner.Learner` whose process is rank 0: it has the ledger, the loop, the sampler and the whole compute
copy. Every other rank is a process (`ranks_worker`) that holds its part of the weights and does nothing but what it is
told: the same call of the same `Trainer` at the same time. A rank that ends makes the learner `LearnerLost`, in one
sentence; it ends by itself where this process does.

Equal records give equal weights up to the order in which float32 gradients are added up; the digest therefore is that
of a number of ranks, and the fingerprint names it. Not here: what ranks hold and say (`ranks_shards`, `ranks_world`),
ranks on other machines (`cluster.ranks`, another `Rank`; or `World.of_torchrun` in a script of one's own).

Example:
    >>> build = partial(Trainer.from_folder, folder, options=options)  # doctest: +SKIP
    >>> learner = Ranked.start(build, ranks=Ranks.here(2))  # doctest: +SKIP
    >>> learner.update(batch)  # doctest: +SKIP
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from selfplay.errors import RunFailed
from selfplay.learner.ranks_world import Apart, World
from selfplay.types import Batch, Example, Phase, Sample, Save, Update

if TYPE_CHECKING:
    from torch import Tensor, nn

    from selfplay.learner.trainer import Trainer

MEET_SECONDS = 600.0
"""Longest that a rank may take to load torch and to report."""
ANSWER_SECONDS = 600.0
"""Longest that a rank may work on after rank 0 has done the same call."""
END_SECONDS = 10.0
"""After which a rank that was asked to end is killed."""
NOTICE_SECONDS = 60.0
"""In which a rank that broke a connection is seen to have ended; a cluster takes a while to tell."""
TAIL = 8
"""Lines of a rank's standard error that a message carries, at most."""
HINT = "what is recorded is kept: look at the machine (selfplay doctor), then type the same run command again"

Build = Callable[..., "Trainer"]
"""`(*, world: World) -> Trainer`, the same on every rank; it is pickled."""


class LearnerLost(RunFailed):
    """A rank ended: the weights that it held are gone, and are to be had again from the last save and the ledger."""


class Rank(Protocol):
    """One rank beside the first, wherever it is."""

    @property
    def number(self) -> int:
        """From 1."""
        ...

    @property
    def pid(self) -> int:
        """Of its process, on its machine."""
        ...

    def send(self, name: str, words: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Have it begin a call; `answer` says how that ended.

        Raises:
            LearnerLost: it has ended.
        """
        ...

    def answer(self, seconds: float) -> str | None:
        """What it says of the last call: None where it did it, else why not.

        Raises:
            LearnerLost: it ended, or said nothing in `seconds`.
        """
        ...

    def ended(self) -> bool:
        """Is it known to have ended?"""
        ...

    def lost(self) -> LearnerLost:
        """How it ended, in one sentence."""
        ...

    def close(self, *, soon: bool = False) -> None:
        """End it; idempotent. `soon`: only ask it to, `close` follows."""
        ...


class _Child:
    """A rank in a child process."""

    def __init__(self, number: int, size: int, meeting: Path) -> None:
        ours, theirs = socket.socketpair()
        self.number = number
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        words = [str(theirs.fileno()), str(number), str(size), str(meeting)]
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "selfplay.learner.ranks_worker", *words],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self.pid = self.process.pid
        self._line = Connection(ours.detach())

    def send(self, name: str, words: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """See `Rank`."""
        try:
            self._line.send((name, words, named))
        except OSError:
            raise self.lost() from None

    def answer(self, seconds: float) -> str | None:
        """See `Rank`."""
        try:
            if not self._line.poll(seconds):
                raise LearnerLost(f"rank {self.number} of the learner gave no answer in {seconds:g} s", hint=HINT)
            found: str | None = self._line.recv()
        except (EOFError, OSError):
            raise self.lost() from None
        return found

    def ended(self) -> bool:
        """See `Rank`."""
        return self.process.poll() is not None

    def lost(self) -> LearnerLost:
        """See `Rank`; with the end of its standard error."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(NOTICE_SECONDS)
        code = self.process.poll()
        if code is None:
            how = "closed its socket and did not end"
        else:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return LearnerLost(f"rank {self.number} of the learner {how}{self._tail()}", hint=HINT)

    def close(self, *, soon: bool = False) -> None:
        """See `Rank`."""
        self._line.close()
        if soon:
            return
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(END_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()

    def _tail(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 8192))
        lines = self._log.read().decode(errors="replace").splitlines()
        kept = [line.rstrip()[:300] for line in lines if line.strip()][-TAIL:]
        return "".join(["; the end of its standard error:", *(f"\n    {line}" for line in kept)]) if kept else ""


class Ranks:
    """The ranks from 1 up; this process is rank 0 as long as they live."""

    def __init__(self, ranks: Sequence[Rank], *, meet: Callable[[], World], leave: Callable[[], None]) -> None:
        """Take over ranks that are starting, wait for them, and meet; `leave` is called once all have ended.

        Raises:
            LearnerLost: one ended, or they did not meet in time.
        """
        self._ranks = ranks
        self._end = weakref.finalize(self, _end, ranks, leave)
        try:
            for rank in ranks:
                self._done(rank.answer(MEET_SECONDS), rank)
            with self._noticing():
                self.world = meet()
        except BaseException:
            self.close()
            raise

    @classmethod
    def here(cls, size: int) -> Ranks:
        """Start `size` - 1 processes on this machine.

        Raises:
            LearnerLost: one ended, or they did not meet in time.
        """
        folder = tempfile.TemporaryDirectory(prefix="selfplay-ranks-")
        meeting = Path(folder.name) / "meeting"
        children = [_Child(number, size, meeting) for number in range(1, size)]
        return cls(children, meet=partial(World.meet, meeting, rank=0, size=size), leave=folder.cleanup)

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the processes, in the order of their ranks."""
        return tuple(rank.pid for rank in self._ranks)

    def close(self) -> None:
        """End them; idempotent."""
        self._end()

    @contextmanager
    def together(self, name: str, *words: Any, **named: Any) -> Iterator[None]:
        """All other ranks call `name` while inside; left once they have done so, or have failed.

        Raises:
            LearnerLost: a rank ended.
            RunFailed: a rank failed where this one did not.
        """
        for rank in self._ranks:
            rank.send(name, words, named)
        with self._noticing():
            yield
        for rank in self._ranks:
            self._done(rank.answer(ANSWER_SECONDS), rank)

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        """What breaks inside because a rank ended is said so.

        Raises:
            LearnerLost: a rank ended.
        """
        try:
            yield
        except (Apart, RuntimeError) as error:
            cause = error.__cause__ if isinstance(error, Apart) else error
            if isinstance(cause, RuntimeError):
                self._name_the_lost()
            raise (cause or error) from None
        except Exception:
            # note: what fails on every rank alike (a damaged save, a loss that is not finite) is answered by each.
            for rank in self._ranks:
                rank.answer(ANSWER_SECONDS)
            raise

    def _name_the_lost(self) -> None:
        """A broken connection is noticed before the process that broke it has ended.

        Raises:
            LearnerLost: a rank ended; the first to be seen is named.
        """
        until = time.monotonic() + NOTICE_SECONDS
        while time.monotonic() < until:
            for rank in self._ranks:
                if rank.ended():
                    raise rank.lost()
            time.sleep(0.05)

    def _done(self, why: str | None, rank: Rank) -> None:
        if why is not None:
            raise RunFailed(f"rank {rank.number} of the learner failed, and rank 0 did not: {why}", hint=HINT)


def _end(ranks: Sequence[Rank], leave: Callable[[], None]) -> None:
    for rank in ranks:
        rank.close(soon=True)
    for rank in ranks:
        rank.close()
    World.part()
    leave()


class Ranked:
    """Implements `learner.Learner` by a `Trainer` on each rank."""

    def __init__(self, ranks: Ranks, build: Build) -> None:
        """Build the trainer on every rank; the `ranks` are closed with this.

        Raises:
            as the trainer does.
        """
        self._ranks = ranks
        with ranks.together("build", build):
            self._trainer = build(world=ranks.world)

    @classmethod
    def start(cls, build: Build, *, ranks: Ranks) -> Ranked:
        """Build on `ranks`, which are closed where that fails.

        Raises:
            as the trainer does.
        """
        try:
            return cls(ranks, build)
        except BaseException:
            ranks.close()
            raise

    def close(self) -> None:
        """End the other ranks; idempotent."""
        self._ranks.close()

    @property
    def model(self) -> nn.Module:
        """Rank 0's whole compute copy, for the sampler."""
        return self._trainer.model

    @property
    def compute(self) -> Mapping[str, Tensor]:
        """As of `Trainer`."""
        return self._trainer.compute

    @property
    def adapter_json(self) -> str | None:
        """As of `Trainer`."""
        return self._trainer.adapter_json

    @property
    def policy_version(self) -> int:
        """See `learner.Learner`."""
        return self._trainer.policy_version

    @property
    def fingerprint(self) -> str:
        """See `learner.Learner`; it names the number of ranks."""
        return self._trainer.fingerprint

    def weights_digest(self) -> str:
        """See `learner.Learner`; of the whole."""
        return self._trainer.weights_digest()

    def logprobs(self, samples: Sequence[Sample], *, temperature: float) -> tuple[tuple[float, ...], ...]:
        """See `learner.Learner`; by rank 0's copy alone."""
        return self._trainer.logprobs(samples, temperature=temperature)

    def update(self, batch: Batch, *, recorded: Update | None = None) -> Update:
        """See `learner.Learner`."""
        with self._ranks.together("update", batch, recorded=recorded):
            return self._trainer.update(batch, recorded=recorded)

    def imitate(self, examples: Sequence[Example], *, index: int, total: int) -> Update:
        """See `learner.Learner`."""
        with self._ranks.together("imitate", examples, index=index, total=total):
            return self._trainer.imitate(examples, index=index, total=total)

    def start_phase(self, phase: Phase) -> None:
        """See `learner.Learner`."""
        with self._ranks.together("start_phase", phase):
            self._trainer.start_phase(phase)

    def pin_reference(self, folder: Path | None = None) -> str:
        """See `learner.Learner`."""
        with self._ranks.together("pin_reference", folder):
            return self._trainer.pin_reference(folder)

    def save(self, folder: Path, *, step: int) -> Save:
        """See `learner.Learner`; the save is that of a learner of one process."""
        with self._ranks.together("gather", folder):
            return self._trainer.save(folder, step=step)

    def load(self, folder: Path, save: Save) -> None:
        """See `learner.Learner`; saves of any number of ranks fit."""
        with self._ranks.together("load", folder, save):
            self._trainer.load(folder, save)
