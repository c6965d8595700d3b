"""The repository that both forms of the code game play on, from the name of its source to its survey.

What is covered: fetching, the survey, the look for copies that players could read, the warm-up's rehearsal. What is
not: each of those (`source`, `survey`, `clean`, `opened`).

Example:
    >>> opening = Opening("pypi:toolz==1.2.0", cache=cache, provider=BubblewrapProvider())  # doctest: +SKIP
    >>> opened = await opening.opened()  # doctest: +SKIP
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from selfplay.games.code import clean
from selfplay.games.code.needs import played_with
from selfplay.games.code.opened import Opened, Settings
from selfplay.games.code.slots import Slots
from selfplay.games.code.source import fetch
from selfplay.games.code.survey import survey
from selfplay.games.code.verify import Verifier
from selfplay.sandbox import SandboxProvider, SandboxSpec
from selfplay.sandbox.wheels import Wheel


class Room:
    """How much runs at once, of one repository or of several together."""

    def __init__(self, workers: int) -> None:
        """`workers`: runs of tests, and beside them plays with tools."""
        self.runs = Slots(workers)
        self.plays = asyncio.Semaphore(max(1, workers))


class Opening:
    """A repository, surveyed when it is first asked for, once."""

    def __init__(
        self,
        source: str,
        *,
        cache: Path,
        provider: SandboxProvider,
        wheels: Sequence[Wheel] = (),
        settings: Settings | None = None,
        spec: SandboxSpec | None = None,
        room: Room | None = None,
    ) -> None:
        """`spec` is the project's recipe's; None: the limits of every sandbox. `room` is shared with other
        repositories; None: `settings.workers` for this one alone.
        """
        self.cache = cache
        self.provider = provider
        self.settings = settings or Settings()
        self.room = room or Room(self.settings.workers)
        self._source = source
        self._wheels = tuple(wheels)
        self._spec = spec
        self._lock = asyncio.Lock()
        self._opened: Opened | None = None

    @property
    def surveyed(self) -> Opened:
        """The repository, which `opened` gave before."""
        assert self._opened is not None, "seeds() comes first"
        return self._opened

    async def opened(self) -> Opened:
        """The repository, surveyed.

        Raises:
            UserError: it cannot be played (no such package, no tests, failing suite).
            NotReady: no network, no git, no space, or a clean copy that solvers could read.
            SandboxInfraError: no sandbox could be made.
        """
        async with self._lock:
            if self._opened is None:
                self._opened = await self._survey()
            return self._opened

    async def _survey(self) -> Opened:
        repository = played_with(await asyncio.to_thread(fetch, self._source, cache=self.cache), self._wheels)
        verifier = Verifier(
            repository,
            provider=self.provider,
            workers=self.settings.workers,
            spec=self._spec,
            slots=self.room.runs,
        )
        found = await survey(verifier, rules=self.settings.rules, cache=self.cache)
        await clean.check(
            self.provider,
            spec=verifier.spec,
            archive=verifier.archive,
            repository=repository,
            roots=verifier.suite.roots,
        )
        opened = Opened(found, verifier=verifier, source=self._source, settings=self.settings)
        await opened.rehearse(cache=self.cache, indices=range(self.settings.rehearsed))
        return opened

    async def aclose(self) -> None:
        """Close every sandbox made here."""
        if self._opened is not None:
            await self._opened.verifier.aclose()
        await self.provider.aclose()
