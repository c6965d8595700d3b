"""A new run of what is whole of a damaged one: its ledger up to the last whole step, and the saves that fit it.

The damaged run is only read. The new one has the same settings and therefore the same ids; resumed, it plays
what is missing again.

Not here: which rows are whole (`ledger.rescue`), finding the damage (`audit`).
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from selfplay.errors import NotReady
from selfplay.fork import link
from selfplay.ledger import files, rescue
from selfplay.ledger.lock import Lock
from selfplay.ledger.rescue import Rescued

CONFIG = "config.toml"


def salvage(folder: Path, target: Path) -> Rescued:
    """Make the run `target` of what is whole of the run in `folder`; whole or not at all.

    Raises:
        RunFailed: nothing can be saved.
        NotReady: the disk is full, or `target` cannot be written.
        Held: another process makes it.
    """
    lock = Lock.take(target)
    aside = target / f"{files.NAME}.new"
    try:
        files.remove(aside)
        with files.translated(target / files.NAME):
            found = rescue.rescue(folder, aside)
        linked = tuple(path for path in found.saves if _take(folder / path, target / path))
        if (folder / CONFIG).is_file():
            shutil.copyfile(folder / CONFIG, target / CONFIG)
        files.sync(aside)
        aside.rename(target / files.NAME)
        files.sync(target)
    except BaseException as error:
        shutil.rmtree(target, ignore_errors=True)
        if isinstance(error, OSError):
            raise NotReady(f"cannot write {target}: {error.strerror}", hint="see what is full: df -h") from error
        raise
    finally:
        lock.release()
    return replace(found, saves=linked)


def _take(source: Path, target: Path) -> bool:
    """Bring a save along; False where it is gone. One outside the run's folder, in the cache, stays there."""
    if not source.is_dir():
        return False
    if source != target:
        link(source, target)
    return True
