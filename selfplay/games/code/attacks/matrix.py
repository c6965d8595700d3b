"""Puts every case before a judge on every package: a row a case, a cell a package.

What is covered: choosing packages and cases, trying one case on all packages at the same time, and telling what must
not be: an attack that is accepted or, unless it is suspicious, not decided; an honest repair that is not accepted.

What is not covered: printing (`cli.verify`), what the judges do (`judges`).

Example:
    >>> async with opened(["toy"], provider=provider, cache=cache, folder=folder) as table:  # doctest: +SKIP
    ...     rows = [row async for row in table.rows()]
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from selfplay.errors import NotFound
from selfplay.games.code.attacks.corpus import Case, Target, cases, known, targets
from selfplay.games.code.attacks.judges import CANARIES, JUDGES, Bench, Ruling, prepared
from selfplay.sandbox import SandboxProvider
from selfplay.types import record

Word = Literal["accepted", "refused", "suspicious", "no sample"]


@record
class Cell:
    """One case on one package."""

    word: Word
    wrong: bool
    """It must not be so."""
    why: str
    """The judge's sentence."""


@record
class Row:
    """One case on every package that has it."""

    name: str
    group: str
    """`honest`, or the file of the attack."""
    does: str
    cells: Mapping[str, Cell]
    """Package -> what came out; a package without this case is not there."""


class Table:
    """Packages and their cases, before one judge."""

    def __init__(self, benches: Sequence[Bench], *, judge: str) -> None:
        self._benches = benches
        self._judge = judge
        self._free = asyncio.Semaphore(os.cpu_count() or 1)
        self.packages = tuple(bench.target.name for bench in benches)

    async def rows(self, *, quick: bool = False, only: Sequence[str] = ()) -> AsyncIterator[Row]:
        """A row as soon as it is decided, honest repairs first; `quick` leaves out cases that wait for a limit.

        `only`: cases with one of these words in their name.
        """
        offered: dict[tuple[str, str], dict[str, Case]] = {}
        for bench in self._benches:
            for case in cases(bench.target):
                if not (quick and case.slow) and (not only or any(word in case.name for word in only)):
                    offered.setdefault((case.group, case.name), {})[bench.target.name] = case
        for (group, name), chosen in sorted(offered.items(), key=lambda item: item[0][0] != "honest"):
            benches = [bench for bench in self._benches if bench.target.name in chosen]
            told = await asyncio.gather(*(self._cell(chosen[bench.target.name], bench) for bench in benches))
            cells = {bench.target.name: cell for bench, cell in zip(benches, told, strict=True)}
            yield Row(name=name, group=group, does=next(iter(chosen.values())).does, cells=cells)

    async def _cell(self, case: Case, bench: Bench) -> Cell:
        async with self._free:
            ruling = await JUDGES[self._judge](case, bench)
        return Cell(word=_word(ruling), wrong=not _as_it_must_be(case, ruling), why=ruling.why)


def checked(names: Sequence[str], *, judge: str) -> None:
    """Do the packages and the judge exist?

    Raises:
        NotFound: one does not.
    """
    for name in names:
        if name not in known():
            raise NotFound(f"no package `{name}` among those of the attacks", hint=f"one of: {', '.join(known())}")
    if judge not in JUDGES:
        raise NotFound(f"no judge `{judge}`", hint=f"one of: {', '.join(JUDGES)}")


@contextlib.asynccontextmanager
async def opened(
    names: Sequence[str], *, provider: SandboxProvider, cache: Path, folder: Path, judge: str = "verifier"
) -> AsyncIterator[Table]:
    """The packages `names` (all, where empty) ready for `judge`; `provider` is closed afterwards.

    Raises:
        NotFound: there is no such package or judge.
        NotReady: a package is not in the cache, and the index cannot be reached.
        RunFailed: the clean tree of one does not pass.
        SandboxInfraError: the machine failed.
    """
    checked(names, judge=judge)
    try:
        found: Sequence[Target] = await asyncio.to_thread(targets, names, cache=cache, folder=folder)
        benches = [Bench(target=target, provider=provider, folder=folder) for target in found]
        if judge in CANARIES:
            benches = [await prepared(bench) for bench in benches]
        yield Table(benches, judge=judge)
    finally:
        await provider.aclose()


def _as_it_must_be(case: Case, ruling: Ruling) -> bool:
    return ruling.accepted is case.honest or (ruling.suspicious and not case.honest)


def _word(ruling: Ruling) -> Word:
    if ruling.suspicious:
        return "suspicious"
    return {True: "accepted", False: "refused", None: "no sample"}[ruling.accepted]  # type: ignore[return-value]
