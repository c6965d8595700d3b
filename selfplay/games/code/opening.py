"""From the name of a source to a surveyed repository, which both forms of the code game play on.

What is covered: fetching, the survey, the look for copies that players could read, the warm-up's rehearsal. What is
not: each of those (`source`, `survey`, `clean`, `opened`).

Example:
    >>> opened = await opened_at("pypi:toolz==1.2.0", cache=cache, provider=provider, ...)  # doctest: +SKIP
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from selfplay.games.code import clean
from selfplay.games.code.needs import played_with
from selfplay.games.code.opened import Opened, Settings
from selfplay.games.code.source import fetch
from selfplay.games.code.survey import survey
from selfplay.games.code.verify import Verifier
from selfplay.sandbox import SandboxProvider
from selfplay.sandbox.wheels import Wheel


async def opened_at(
    source: str, *, cache: Path, provider: SandboxProvider, wheels: Sequence[Wheel], settings: Settings
) -> Opened:
    """The repository at `source`, surveyed.

    Raises:
        UserError: it cannot be played (no such package, no tests, failing suite).
        NotReady: no network, no git, no space, or a clean copy that solvers could read.
        SandboxInfraError: no sandbox could be made.
    """
    repository = await asyncio.to_thread(fetch, source, cache=cache)
    repository = played_with(repository, wheels)
    verifier = Verifier(repository, provider=provider, workers=settings.workers)
    found = await survey(verifier, rules=settings.rules, cache=cache)
    await clean.check(provider, archive=verifier.archive, repository=repository, roots=verifier.suite.roots)
    opened = Opened(found, verifier=verifier, source=source, settings=settings)
    await opened.rehearse(cache=cache)
    return opened
