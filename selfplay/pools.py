"""What the stages of a step share, and how one of their places is played.

A place in the sampler is held while tokens are sampled: for the whole of a single-turn play, and reply by reply where
a role has tools, so that a slow tool holds none. A play that ends in a fault of the machine is recorded and tried
again, as a row of its own.

Not here: which places are owed (`stages`), what a turn is (`rollout`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from selfplay.doors.harness import harnessed
from selfplay.errors import UserError
from selfplay.events import Event, Interrupt
from selfplay.flow import Interrupted as Interrupted
from selfplay.games import Cast, Game, GivesTools
from selfplay.ledger import Ledger
from selfplay.rollout import Play, Player, record_of, talk
from selfplay.tools import Toolbox
from selfplay.types import Role, Seed, Stop, Task, Trajectory
from selfplay.waits import DECISION_SECONDS, REPLY_SECONDS, TOKEN_SECONDS, Waits

OpenTools = Callable[[str], Awaitable[Toolbox]]
"""Subject id -> the tools of one play on it, made clean."""


@dataclass(slots=True)
class Clock:
    """Splits wall-clock time by what the run was doing; sampler before learner before verifier before tools."""

    seconds: dict[str, float] = field(default_factory=dict)
    _active: dict[str, int] = field(default_factory=dict)
    _since: float = field(default_factory=time.monotonic)

    _ORDER = ("sampling", "learning", "saving", "verification", "tools", "paused")

    def _settle(self) -> None:
        now = time.monotonic()
        doing = next((name for name in self._ORDER if self._active.get(name)), "other")
        self.seconds[doing] = self.seconds.get(doing, 0.0) + now - self._since
        self._since = now

    @contextmanager
    def doing(self, name: str) -> Iterator[None]:
        """Count the time inside as `name`."""
        self._settle()
        self._active[name] = self._active.get(name, 0) + 1
        try:
            yield
        finally:
            self._settle()
            self._active[name] -= 1

    def take(self) -> dict[str, float]:
        """Seconds by name since the last call."""
        self._settle()
        taken, self.seconds = self.seconds, {}
        return taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """What the stages share: where records go, who plays, and how much may be in flight."""

    ledger: Ledger
    player: Player
    observe: Callable[[Event], None]
    interrupt: Interrupt
    clock: Clock
    rows: asyncio.Semaphore
    """Replies being sampled."""
    workers: asyncio.Semaphore
    """Decisions being made."""
    retries: int
    """How often a play or a decision that ended in a fault is tried again."""
    waits: Waits = field(default_factory=Waits)
    """What is waited for, and how long."""
    decision_seconds: float = DECISION_SECONDS
    """Longest time in which no decision ends, while some are under way."""


def toolboxes(game: Game, cast: Cast, subjects: Mapping[str, Seed] | Mapping[str, Task]) -> OpenTools | None:
    """How the plays of one side get their tools; None where no role of it has any.

    Raises:
        UserError: one has, and the game gives none.
    """
    having = [role for role in cast.roles.values() if role.tools is not None]
    if not having:
        return None
    if not isinstance(game, GivesTools):
        raise UserError(
            f"role `{having[0].name}` has tools, and the game `{game.name}` gives none",
            hint=f"take the table [tools] out of {having[0].origin}/role.toml, or name another role",
        )
    return lambda subject: game.toolbox(cast.of(subjects[subject]), subjects[subject])


async def play_place(
    pools: Pools, play: Play, view: Mapping[str, object], *, open_tools: OpenTools | None
) -> Trajectory:
    """Play one place and record it; after a fault again, up to `Pools.retries` times. The last try is returned.

    `play.attempt` counts the tries that are recorded already.

    Raises:
        Interrupted: the run is to stop; what was played so far of this try is dropped.
    """
    for attempt in range(play.attempt, play.attempt + 1 + pools.retries):
        trajectory = await _once(pools, replace(play, attempt=attempt), view, open_tools)
        pools.ledger.append(trajectory)
        if trajectory.fault is None:
            break
        pools.ledger.append_fault(trajectory.fault, trajectory_id=trajectory.id, attempt=attempt)
    return trajectory


def unplayed(pools: Pools, play: Play, product: Mapping[str, Any]) -> Trajectory:
    """Record a place at which `product` is handed over and no model is asked: it has no turns."""
    made = record_of(
        play,
        pools.player.config_digest,
        turns=(),
        stop=Stop.DONE,
        policy_version=(0, 0),
        seconds=0.0,
        product=product,
    )
    pools.ledger.append(made)
    return made


async def _once(pools: Pools, play: Play, view: Mapping[str, object], open_tools: OpenTools | None) -> Trajectory:
    if open_tools is None or play.role.tools is None:
        async with _sampling(pools, play.role):
            return await pools.player.play(play, view)
    if pools.interrupt.level:
        raise Interrupted
    job = harnessed if play.role.tools.harness else talk
    return await job(
        pools.player,
        play,
        view,
        open_tools=partial(_opened, pools, play, open_tools),
        sampling=partial(_sampling, pools, play.role),
        calling=partial(_calling, pools, play.role),
    )


async def _opened(pools: Pools, play: Play, open_tools: OpenTools) -> Toolbox:
    """The tools of one play."""
    with pools.waits.on("tools to be made ready", seconds=REPLY_SECONDS + play.role.limits.seconds):
        return await open_tools(play.subject_id)


@contextmanager
def _calling(pools: Pools, role: Role) -> Iterator[None]:
    """A call of a tool."""
    seconds = REPLY_SECONDS + role.limits.seconds
    with pools.clock.doing("tools"), pools.waits.on(f"a tool of role `{role.name}`", seconds=seconds):
        yield


async def unpaused(pools: Pools) -> None:
    """Wait while the run is paused; a run that is to stop waits no longer."""
    if not pools.interrupt.paused:
        return
    with pools.clock.doing("paused"):
        while pools.interrupt.paused and not pools.interrupt.level:  # noqa: ASYNC110 (nobody has to be told)
            await asyncio.sleep(0.1)


@asynccontextmanager
async def _sampling(pools: Pools, role: Role) -> AsyncIterator[None]:
    """A place in the sampler, once the run is not paused."""
    async with pools.rows:
        await unpaused(pools)
        if pools.interrupt.level:
            raise Interrupted
        seconds = REPLY_SECONDS + TOKEN_SECONDS * role.sampling.max_tokens
        with pools.clock.doing("sampling"), pools.waits.on(f"a reply of role `{role.name}`", seconds=seconds):
            yield
