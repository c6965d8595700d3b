"""Makes the tasks of a study's endpoint: bugs by another mechanism, in packages that nothing is trained on.

Functions are drawn by name, and every bug is proved in the sandbox. `slipped` plants the bugs of `mechanism`, kinds
evenly (`planted`); what else plants bugs has the same shape (`Find`). Equal sources give equal files: all draws are
keyed by what they are of. Functions whose program the warm-up could have seen, those of the standard library, are left
out, and so are functions that are the same in two packages, and those whose tests take long: every look at an endpoint
runs them hundreds of times, and a bug that never ends takes all that they are given.

Not here: the mechanism, the proof, bugs that a model writes (`study.writing`), who may look at the tasks
(`study.opening`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from selfplay.errors import UserError
from selfplay.evaluation import planted, tasks
from selfplay.evaluation.mechanism import Slip, slips
from selfplay.evaluation.planted import Plant, Proved
from selfplay.events import Event, Observer
from selfplay.games.code import alike, edits
from selfplay.games.code.game import CodeGame
from selfplay.games.code.warmup import functions_of_stdlib
from selfplay.project import Project
from selfplay.types import Seed, Task, draw, record

TRIES = 6
"""Bugs of a function that are tried for each that is wanted."""
AT_ONCE = 4
"""Functions whose bugs are proved side by side."""
STDLIB = 1500
"""Functions of the standard library that a warm-up draws from (`opened.Settings.stdlib`)."""


@record
class Made:
    """What was made, for people and as JSON."""

    lines: tuple[str, ...]
    data: dict[str, Any]


class Find(Protocol):
    """Finds bugs in a source and writes them as a file of tasks."""

    def __call__(self, source: str, *, wanted: int, each: int, seen: frozenset[str], path: Path) -> None:
        """Write up to `wanted` bugs to `path`, at most `each` a function, in no function that is like one of `seen`."""
        ...


def make(
    sources: Sequence[str],
    *,
    folder: Path,
    bugs: int,
    functions: int,
    each: int,
    find: Find,
    observe: Observer,
    stdlib: int = STDLIB,
) -> Made:
    """Make one file of tasks a source in `folder`; files that are there are not made again.

    Args:
        sources: Packages, each gives its share of the bugs.
        folder: Where the files lie.
        bugs: Wanted in all.
        functions: Fewest functions that they are to be in.
        each: Most bugs a function.
        find: Makes the file of a source.
        observe: Is told how far it is.
        stdlib: Functions of the standard library that a warm-up draws from; their like is left out.

    Raises:
        UserError: the sources do not give as many.
        NotFound, NotReady: as the parts say.
    """
    seen = {alike.key(function.source) for function in functions_of_stdlib(limit=stdlib)} if stdlib else set()
    rows: list[dict[str, Any]] = []
    for number, source in enumerate(sources):
        left = bugs - sum(row["bugs"] for row in rows)
        wanted = -(-max(0, left) // (len(sources) - number))
        path = folder / f"{name_of(source)}.jsonl"
        if not path.is_file():
            observe(Event(kind="note", data={"text": f"{source}: looking for {wanted} bugs"}))
            find(source, wanted=wanted, each=each, seen=frozenset(seen), path=path)
        held = tasks.read(path).on
        observe(Event(kind="note", data={"text": f"{source}: {len(held.tasks)} bugs"}))
        # note: what is kept of a source, not what was tried, so that a file that was there already leaves the same.
        seen |= {alike.key(seed.payload["source"]) for seed in held.seeds}
        rows.append({"source": source, "bugs": len(held.tasks), "functions": len(held.seeds)})
    total, places = sum(row["bugs"] for row in rows), sum(row["functions"] for row in rows)
    lines = [f"{row['source']:<36} {row['bugs']:>4} bugs in {row['functions']:>3} functions" for row in rows]
    lines.append(f"{'in all':<36} {total:>4} bugs in {places:>3} functions")
    if total < bugs or places < functions:
        raise UserError(
            f"{total} bugs in {places} functions, and {bugs} in {functions} are wanted\n" + "\n".join(lines),
            hint="name more sources under [making], or allow more bugs a function (each) and remove the files of those "
            f"that gave too few: they are not made again while they are in {folder}",
        )
    return Made(lines=tuple(lines), data={"sources": rows, "bugs": total, "functions": places})


def slipped(*, project: Project, observe: Observer, sandbox: str | None = None) -> Find:
    """Finds slips of a person (`mechanism`); `sandbox` is in the place of `auto`."""

    def find(source: str, *, wanted: int, each: int, seen: frozenset[str], path: Path) -> None:
        asyncio.run(_of(source, wanted, each, seen, path, project, observe, sandbox))

    return find


def name_of(source: str) -> str:
    """A source as the name of a file or an arm."""
    return source.rpartition(":")[2].rpartition("/")[2].replace("==", "-")


async def _of(
    source: str,
    wanted: int,
    each: int,
    seen: frozenset[str],
    path: Path,
    project: Project,
    observe: Observer,
    sandbox: str | None,
) -> None:
    config = planted.config_of(source, project=project, sandbox=sandbox)
    kept: list[Proved] = []
    async with planted.opened(config, project=project, observe=observe) as game:
        new = in_turn(await quick(game), seen)
        while (num := sum(len(one.tasks) for one in kept)) < wanted and (drawn := list(islice(new, AT_ONCE))):
            observe(Event(kind="note", data={"text": f"{source}: {num} of {wanted} bugs"}))
            # note: all of them start from the same counts, so that who is done first decides nothing.
            kinds = Counter(kind for one in kept for kind in one.left_out.values())
            kept += await asyncio.gather(*(_in(game, seed, each, Counter(kinds)) for seed in drawn))
    some = [task for one in kept for task in one.tasks][:wanted]
    used = {task.seed_id for task in some}
    found = Proved(tasks=tuple(some), seeds=tuple(s for one in kept for s in one.seeds if s.id in used))
    planted.write(path, found, config=config, project=project)


async def quick(game: CodeGame) -> list[Seed]:
    """Seeds whose tests get no longer than any others."""
    opened = await game.opened()
    least = opened.budget(()).seconds
    return [seed for seed in await game.seeds() if opened.budget(seed.payload["tests"]).seconds <= least]


def in_turn(seeds: Iterable[Seed], seen: frozenset[str]) -> Iterator[Seed]:
    """The seeds in a drawn order: the first of those that share a program, where it is none of `seen`."""
    known = set(seen)
    for seed in sorted(seeds, key=lambda seed: draw("making", seed.id)):
        if (name := alike.key(seed.payload["source"])) not in known:
            known.add(name)
            yield seed


async def _in(game: CodeGame, seed: Seed, each: int, kinds: Counter[str]) -> Proved:
    """Up to `each` bugs of one function, of kinds that were seldom used; `left_out` says which were used."""
    source = seed.payload["source"]
    left = list(slips(source))
    tasks: list[Task] = []
    used: dict[str, str] = {}
    for _ in range(TRIES * each):
        if len(tasks) == each or not left:
            break
        slip = _next(left, kinds, seed, source)
        left.remove(slip)
        place = seed.payload["path"], seed.payload["qualname"]
        broken = edits.apply(source, slip.edit)
        plant = Plant(name=slip.text, path=place[0], qualname=place[1], source=broken)
        found = await planted.prove(game, [plant])
        if found.tasks:
            tasks += found.tasks
            kinds[slip.kind] += 1
            used[found.tasks[0].id] = slip.kind
            left = [one for one in left if one.kind != slip.kind] or left
    return Proved(tasks=tuple(tasks), seeds=(seed,) if tasks else (), left_out=used)


def _next(left: Sequence[Slip], kinds: Counter[str], seed: Seed, source: str) -> Slip:
    """The bug to try: of the kind that was used least, drawn by what it is."""
    return min(left, key=lambda slip: (kinds[slip.kind], draw("slip", seed.id, source, slip.kind, slip.text)))
