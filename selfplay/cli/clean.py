"""`selfplay clean`: what runs and the cache take on the disk, and what of it can go.

Covered: saves that nothing needs, damaged ones, older logs of runs; entries of the cache by age. Never touched: a
ledger or a copy of one, settings, a run that a process holds or whose ledger cannot be read, what a run of the project
goes on from, and whatever this version does not know.

Not here: sandboxes that were left behind (`selfplay sandbox reap`).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from selfplay.cli import runs
from selfplay.cli.session import Session, common, near
from selfplay.errors import NotReady, SelfplayError
from selfplay.types import record

DAYS = 30.0
"""Entries of the cache that were not touched for so long are old."""

WARM, CORPORA = "warm", "corpora"
"""Kinds in the cache of which something may not be made again."""
MADE = "python-docs"
"""The one corpus that is made where it is missing."""


@record
class Item:
    """Something on the disk."""

    where: str
    """A run's name, or `cache`."""
    kind: str
    path: Path
    num_bytes: int
    age: float
    """Seconds since anything in it was written."""
    why: str
    """Why it can go; empty where it stays."""
    stays: str = ""
    """Why it stays although it is old."""


@click.command("clean", short_help="What takes disk space, and what of it can go.")
@click.argument("names", nargs=-1, metavar="[RUN...]")
@click.option("--cache/--no-cache", default=None, help="The cache too [default: unless RUN is given].")
@click.option(
    "--days", type=click.FloatRange(min=0.0), default=DAYS, show_default=True, help="Age of old entries of it."
)
@click.option("--yes", is_flag=True, help="Remove what can go; without it nothing is removed.")
@common
def command(session: Session, names: tuple[str, ...], *, cache: bool | None, days: float, yes: bool) -> int:
    """Show what runs and the cache take by kind, and what can go: saves that nothing needs, old logs, old entries.

    Of a run's saves the newest and the best stay; a ledger is never removed, nor anything of a run that is being
    played or whose record of its saves cannot be read. What is taken from the cache is fetched or made again when it
    is needed. So corpora that were added stay, and warmed weights that a run of this project began with, as long as
    its folder is there; runs elsewhere are not looked at.

    \b
    Examples:
      selfplay clean
      selfplay clean quickstart --yes
      selfplay clean --cache --days 7 --yes
    """
    project = session.project
    folders = [runs.find_run(name, project=project) for name in names] if names else list(runs.all_runs(project))
    items, held, unreadable = [], [], []
    for folder in folders:
        try:
            found = _of_run(folder)
        except SelfplayError as error:
            unreadable.append({"name": folder.name, "kind": error.kind, "message": error.message})
            continue
        items += found if found is not None else []
        held += [folder.name] if found is None else []
    if cache if cache is not None else not names:
        items += _of_cache(days, dict.fromkeys((*folders, *runs.all_runs(project))))
    doomed = [item for item in items if item.why]
    removed = [item for folder in (*folders, None) for item in _removed(doomed, folder)] if yes else []
    if session.json:
        session.answer("clean", {**_data(items, removed, held), "unreadable": unreadable})
        return 0
    _print(session, items, held=held, removed=removed, yes=yes)
    for row in unreadable:
        session.say(f"{row['name']}: {row['message']}; it is left as it is")
    return 0


def _removed(doomed: Sequence[Item], folder: Path | None) -> list[Item]:
    """Remove what can go of a run, which is held meanwhile, or (None) of the cache; what was there."""
    from selfplay.ledger.lock import Lock

    mine = [item for item in doomed if item.where == (folder.name if folder is not None else "cache")]
    lock = Lock.take(folder) if folder is not None and mine else None
    try:
        return [item for item in mine if _remove(item)]
    finally:
        if lock is not None:
            lock.release()


def _of_run(folder: Path) -> list[Item] | None:
    """What a run holds beside its ledger; None where a process plays it."""
    from selfplay.ledger.lock import holder

    if holder(folder) is not None:
        return None
    now = time.time()
    found = [_item(folder.name, "saves", path, now, why) for path, why in _saves(folder)]
    logs = sorted((folder / "logs").glob("*"), key=lambda path: path.lstat().st_mtime)
    real = [path for path in logs if not path.is_symlink()]
    found += [_item(folder.name, "logs", path, now, "not of the newest launch") for path in real[:-1]]
    found += [_item(folder.name, "logs", path, now, "") for path in real[-1:]]
    evaluations = folder / "evals"
    found += [_item(folder.name, "evaluations", evaluations, now, "")] if evaluations.is_dir() else []
    ledger = sorted(folder.glob("ledger*"))
    size = sum(_size(path) for path in ledger)
    kept = Item(where=folder.name, kind="ledger", path=folder / runs.LEDGER, num_bytes=size, age=0.0, why="")
    return [kept, *found]


def _saves(folder: Path) -> Iterator[tuple[Path, str]]:
    """Each folder under weights/, and why it can go."""
    from selfplay import saves
    from selfplay.ledger import Ledger

    weights = folder / saves.FOLDER
    if not weights.is_dir():
        return
    steps = saves.of_steps(folder)
    with Ledger.read(folder) as reader:
        recorded = {folder / save.path for save in reader.saves()}
        best = saves.best(reader, steps)
    known = [path for path in steps if path in recorded]
    for path in sorted(path for path in weights.iterdir() if path.is_dir()):
        if path.name.startswith("damaged_"):
            yield path, "damaged"
        elif path.name.startswith("."):
            yield path, "half written or half removed"
        elif path in known[:-1] and path != best:
            yield path, "neither the newest nor the best"
        else:
            yield path, ""


def _of_cache(days: float, folders: Iterable[Path]) -> list[Item]:
    """Every entry of the cache, one below a kind's folder; what the runs in `folders` need of it stays."""
    from selfplay.cache import cache_folder

    begun, unread = _begun(folders)
    now, found = time.time(), []
    for kind in sorted(path for path in cache_folder().glob("*") if path.is_dir() and not path.is_symlink()):
        for path in sorted(kind.iterdir()):
            item = _item("cache", kind.name, path, now, "")
            if item.age > days * 86_400:
                stays = _stays(path, begun, unread)
                why = "" if stays else f"not touched for {days:g} days"
                item = replace(item, why=why, stays=stays)
            found.append(item)
    return found


def _begun(folders: Iterable[Path]) -> tuple[Mapping[Path, str], Sequence[str]]:
    """Save -> a run that recorded it, and the names of the runs whose ledgers cannot be read."""
    from selfplay.ledger import Ledger

    begun: dict[Path, str] = {}
    unread = []
    for folder in folders:
        try:
            with Ledger.read(folder) as reader:
                begun |= {(folder / save.path).resolve(): folder.name for save in reader.saves()}
        except SelfplayError:
            unread.append(folder.name)
    return begun, unread


def _stays(path: Path, begun: Mapping[Path, str], unread: Sequence[str]) -> str:
    """Why an old entry of the cache stays; empty where it can go."""
    # note: a folder there is an index of a corpus, which is made again from it.
    if path.parent.name == CORPORA and path.stem != MADE and not path.is_dir():
        return "it was added, and nothing makes it again"
    own = path.resolve()
    run = next((name for save, name in begun.items() if save.is_relative_to(own)), None)
    if run is not None:
        return f"run `{run}` began with it"
    if unread and path.parent.name == WARM:
        return f"run `{unread[0]}`, which cannot be read, may have begun with it"
    return ""


def _item(where: str, kind: str, path: Path, now: float, why: str) -> Item:
    size, newest = _size(path), _newest(path)
    return Item(where=where, kind=kind, path=path, num_bytes=size, age=max(0.0, now - newest), why=why)


def _files(path: Path) -> Iterator[os.stat_result]:
    if path.is_symlink() or not path.is_dir():
        yield path.lstat()
        return
    for folder, _, names in os.walk(path):
        yield Path(folder).lstat()
        for name in names:
            yield (Path(folder) / name).lstat()


def _size(path: Path) -> int:
    """Bytes on the disk."""
    return sum(512 * found.st_blocks for found in _files(path))


def _newest(path: Path) -> float:
    return max(max(found.st_mtime, found.st_atime) if not path.is_dir() else found.st_mtime for found in _files(path))


def _remove(item: Item) -> bool:
    """Take it away; renamed first, so that a kill in between leaves nothing that looks whole.

    Raises:
        NotReady: it cannot be removed.
    """
    aside = item.path.with_name(f".{item.path.name.lstrip('.')}.old")
    try:
        item.path.rename(aside)
        if aside.is_dir() and not aside.is_symlink():
            shutil.rmtree(aside)
        else:
            aside.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise NotReady(
            f"cannot remove {item.path}: {error.strerror}", hint=f"look: ls -ld {item.path.parent}"
        ) from error
    return True


def _data(items: Sequence[Item], removed: Sequence[Item], held: Sequence[str]) -> dict[str, Any]:
    return {
        "kinds": [
            {"where": where, "kind": kind, "count": count, "num_bytes": size, "can_go": gone}
            for (where, kind), (count, size, gone) in _kinds(items).items()
        ],
        "can_go": [
            {"where": one.where, "kind": one.kind, "path": str(one.path), "num_bytes": one.num_bytes, "why": one.why}
            for one in items
            if one.why
        ],
        "removed": [str(one.path) for one in removed],
        "num_bytes_removed": sum(one.num_bytes for one in removed),
        "held": list(held),
        "stay": [{"path": str(one.path), "why": one.stays} for one in items if one.stays],
    }


def _kinds(items: Sequence[Item]) -> dict[tuple[str, str], tuple[int, int, int]]:
    """(where, kind) -> how many, their bytes, those of what can go."""
    found: dict[tuple[str, str], tuple[int, int, int]] = {}
    for item in items:
        count, size, gone = found.get((item.where, item.kind), (0, 0, 0))
        more = item.num_bytes if item.why else 0
        found[item.where, item.kind] = (count + 1, size + item.num_bytes, gone + more)
    return found


def _print(session: Session, items: Sequence[Item], *, held: Sequence[str], removed: Sequence[Item], yes: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    from selfplay.views.words import duration, plural, size

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("where", "kind", "entries", "size", "can go"):
        table.add_column(title, justify="left" if title in ("where", "kind") else "right", no_wrap=True)
    for (where, kind), (count, num_bytes, gone) in _kinds(items).items():
        table.add_row(Text(where), kind, str(count), size(num_bytes), size(gone) if gone else "")
    console = session.console()
    console.print(table)
    doomed = [item for item in items if item.why]
    for item in doomed:
        console.print(Text(f"{size(item.num_bytes):>9}  {near(item.path)}  ({item.why}, {duration(item.age)} old)"))
    for name in held:
        session.say(f"{name}: it is being played, so it is left as it is")
    for item in items:
        if item.stays:
            session.say(f"{near(item.path)}: {item.stays}, so it stays")
    total = sum(item.num_bytes for item in doomed)
    if yes:
        session.say(f"removed {plural(len(removed), 'entry').replace('entrys', 'entries')}, {size(total)}")
    elif doomed:
        session.say(f"nothing was removed; {size(total)} can go: the same command with --yes")
    else:
        session.say("nothing can go")
