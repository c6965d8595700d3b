"""What a run plays with beside its settings: the files or the corpus of its source, and its roles.

Settings name them, and what they hold may change between two launches. Then tasks that were proved on one tree would be
judged on another, and half of the run would be asked by another prompt. So digests are recorded at the first launch and
compared at every other, and where the run is evaluated or judged again.

Not here: a package's version and a model, whose names say what they hold, and the engine's own version (`launches`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from selfplay.config import Config
from selfplay.errors import NotFound, UserError
from selfplay.evaluation.tasks import digest_of
from selfplay.ledger import Reader
from selfplay.players import Players
from selfplay.project import Project
from selfplay.types import digest

if TYPE_CHECKING:
    from selfplay.loop import Run

SOURCE = "source"


def of(config: Config, project: Project, players: Players) -> dict[str, str]:
    """Name -> digest, as it is now.

    Raises:
        NotFound, UserError, NotReady: the source cannot be read.
    """
    source = digest_of(config, project)
    found = {SOURCE: source} if source is not None else {}
    roles = {f"role {role.name}": replace(role, origin="") for role in players.everybody}
    return found | {name: digest("role", asdict(role)) for name, role in roles.items()}


async def hold(run: Run) -> None:
    """Record them at the first launch, compare them at every other.

    Raises:
        UserError: one is not what it was.
    """
    found, known = await asyncio.to_thread(run.origins), run.ledger.origins()
    refuse(known, found, name=run.folder.name)
    if new := {name: one for name, one in found.items() if name not in known}:
        run.ledger.append_origins(new)


def refuse_source(reader: Reader, config: Config, project: Project) -> None:
    """Compare the source alone, for whoever judges what the run in `reader` recorded.

    Raises:
        UserError: it is not what it was.
        NotReady: it cannot be read.
    """
    known = reader.origins()
    if SOURCE not in known:
        return
    try:
        now = digest_of(config, project)
    except NotFound:
        return  # note: whoever opens it makes it, or says that it is missing.
    refuse(known, {SOURCE: str(now)}, name=reader.folder.name)


def refuse(known: Mapping[str, str], found: Mapping[str, str], *, name: str) -> None:
    """Say what of `found` differs from what is `known` of the run `name`.

    Raises:
        UserError: something does.
    """
    other = [one for one, value in found.items() if known.get(one, value) != value]
    if not other:
        return
    what = f"roles/{other[0].removeprefix('role ')}" if other[0] != SOURCE else "the source"
    raise UserError(
        f"{what} has changed since run `{name}` was started: digest {known[other[0]][:12]}, now {found[other[0]][:12]}",
        hint=f"give it back what it held, or start another run: selfplay run --new\n      "
        f"or take the weights along: selfplay run --fork {name} --name NAME",
    )
