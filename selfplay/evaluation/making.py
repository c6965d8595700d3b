"""Makes the tasks of a study's endpoint: bugs by another mechanism, in packages that nothing is trained on.

Functions are drawn by name, kinds of bugs evenly (`mechanism`), and every bug is proved in the sandbox (`planted`).
Equal sources give equal files: all draws are keyed by what they are of. Functions whose program the warm-up could have
seen, those of the standard library, are left out, and so are functions that are the same in two packages.

Not here: the mechanism, the proof, who may look at the tasks (`study.opening`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from selfplay.errors import UserError
from selfplay.evaluation import planted
from selfplay.evaluation.mechanism import Slip, slips
from selfplay.evaluation.planted import Plant, Proved
from selfplay.events import Event, Observer
from selfplay.games.code import alike, edits
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


def make(
    sources: Sequence[str],
    *,
    folder: Path,
    bugs: int,
    functions: int,
    each: int,
    project: Project,
    observe: Observer,
    sandbox: str | None = None,
    stdlib: int = STDLIB,
) -> Made:
    """Make one file of tasks a source in `folder`; files that are there are not made again.

    Args:
        sources: Packages, each gives its share of the bugs.
        folder: Where the files lie.
        bugs: Wanted in all.
        functions: Fewest functions that they are to be in.
        each: Most bugs a function.
        project: Where roles and presets are looked up.
        observe: Is told how far it is.
        sandbox: In the place of `auto`.
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
        path = folder / f"{_name(source)}.jsonl"
        if not path.is_file():
            observe(Event(kind="note", data={"text": f"{source}: looking for {wanted} bugs"}))
            found = asyncio.run(_of(source, wanted, each, seen, path, project, observe, sandbox))
            observe(Event(kind="note", data={"text": f"{source}: {len(found.tasks)} bugs"}))
        rows.append(_row(source, path))
    total, places = sum(row["bugs"] for row in rows), sum(row["functions"] for row in rows)
    lines = [f"{row['source']:<36} {row['bugs']:>4} bugs in {row['functions']:>3} functions" for row in rows]
    lines.append(f"{'in all':<36} {total:>4} bugs in {places:>3} functions")
    if total < bugs or places < functions:
        raise UserError(
            f"{total} bugs in {places} functions, and {bugs} in {functions} are wanted\n" + "\n".join(lines),
            hint="name more sources under [making], or allow more bugs a function (each)",
        )
    return Made(lines=tuple(lines), data={"sources": rows, "bugs": total, "functions": places})


def _name(source: str) -> str:
    return source.rpartition(":")[2].rpartition("/")[2].replace("==", "-")


def _row(source: str, path: Path) -> dict[str, Any]:
    from selfplay.evaluation import tasks

    found = tasks.read(path).on.tasks
    return {"source": source, "bugs": len(found), "functions": len({task.seed_id for task in found})}


async def _of(
    source: str,
    wanted: int,
    each: int,
    seen: set[str],
    path: Path,
    project: Project,
    observe: Observer,
    sandbox: str | None,
) -> Proved:
    config = planted.config_of(source, project=project, sandbox=sandbox)
    kept: list[Proved] = []
    async with planted.opened(config, project=project, observe=observe) as game:
        seeds = sorted(await game.seeds(), key=lambda seed: draw("making", seed.id))
        new = _unlike(seeds, seen)
        while (num := sum(len(one.tasks) for one in kept)) < wanted and (some := list(islice(new, AT_ONCE))):
            observe(Event(kind="note", data={"text": f"{source}: {num} of {wanted} bugs"}))
            # note: all of them start from the same counts, so that who is done first decides nothing.
            kinds = Counter(kind for one in kept for kind in one.left_out.values())
            kept += await asyncio.gather(*(_in(game, seed, each, Counter(kinds)) for seed in some))
    tasks = [task for one in kept for task in one.tasks][:wanted]
    used = {task.seed_id for task in tasks}
    found = Proved(tasks=tuple(tasks), seeds=tuple(s for one in kept for s in one.seeds if s.id in used))
    planted.write(path, found, config=config, project=project)
    return found


def _unlike(seeds: Iterable[Seed], seen: set[str]) -> Iterator[Seed]:
    """Seeds whose program is in none of `seen`, to which it is added."""
    for seed in seeds:
        if (name := alike.key(seed.payload["source"])) not in seen:
            seen.add(name)
            yield seed


async def _in(game: Any, seed: Seed, each: int, kinds: Counter[str]) -> Proved:
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
