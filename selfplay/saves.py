"""The saves of a run: when one is owed, which are kept, and what a killed launch left half done.

A save is a folder under `weights/` and a row of the ledger; the row comes last and makes it valid. A folder
without a row is what a launch left that was killed in between: it is removed, the updates are recorded.

Not here: what is in a folder (`learner.weights`), coming back from one (`resume`).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from selfplay.events import Event
from selfplay.types import Save

if TYPE_CHECKING:
    from selfplay.ledger import Reader
    from selfplay.loop import Run

FOLDER = "weights"
_STEP = re.compile(r"step_([0-9]{6,})")
_OURS = re.compile(r"step_[0-9]{6,}|warmup|start")


def retained(ledger: Reader, folder: Path) -> list[Save]:
    """The recorded saves of the run in `folder` that are still there, oldest first."""
    return [save for save in ledger.saves() if (folder / save.path).is_dir()]


def newest(run: Run) -> Save | None:
    """The save with the highest policy version whose folder is still there; None where there is none."""
    return max(retained(run.ledger, run.folder), key=lambda save: save.policy_version, default=None)


def tidy(ledger: Reader, run_folder: Path) -> None:
    """Remove what earlier launches left half written, half removed, or without its row; the run is held.

    What somebody laid beside the saves, under a name that no launch gives, stays.
    """
    folder = run_folder / FOLDER
    if not folder.is_dir():
        return
    rows = {run_folder / save.path for save in ledger.saves()}
    for place in sorted(folder.iterdir()):
        unknown = is_ours(place) and place not in rows
        if place.is_dir() and (place.name.startswith(".") or unknown):
            shutil.rmtree(place)


async def write(run: Run, *, step: int) -> None:
    """Save weights and moments after `step`, record them, and drop saves beyond `keep_saves`.

    Raises:
        NotReady: the disk is full; nothing was changed.
    """
    folder = run.folder / FOLDER / (f"step_{step:06d}" if step >= 0 else "start")
    if any(run.folder / save.path == folder for save in retained(run.ledger, run.folder)):
        return
    run.observe(Event(kind="stage", step=step, stage="save", data={"waits_for": "the disk", "total": None}))
    with run.pools.clock.doing("saving"):
        written = await run.on_torch(lambda: run.learner.save(folder, step=step))
    # note: before the row, without which the next launch comes here again: a recorded save has been pruned for.
    if (oldest := needed_from(step, every=run.settings.save_every, keep=run.settings.keep_saves)) > 0:
        run.ledger.prune_logprobs(before=oldest)
    run.ledger.append_save(replace(written, path=str(folder.relative_to(run.folder))))
    data = {"path": str(folder), "phase": "play", "num_bytes": written.num_bytes}
    run.observe(Event(kind="save", step=step, data=data))
    _prune(run)


async def catch_up(run: Run, *, steps: int = 1) -> None:
    """Save where `steps` closed steps or more, and any change of the weights, came after the last save."""
    last, closed = newest(run), run.ledger.last_closed_step()
    version, step = (last.policy_version, last.step) if last else (-1, -1)
    if closed >= 0 and closed - step >= steps and version < run.learner.policy_version:
        await write(run, step=closed)


def set_aside(save: Save, *, run_folder: Path) -> Path:
    """Take a damaged save out of the way, under a name that nothing reads; where it lies now.

    A save outside the run's folder, in the user's cache, stays: others may read it.
    """
    folder = run_folder / save.path
    if not folder.is_relative_to(run_folder):
        return folder
    aside = folder.with_name(f"damaged_{folder.name}")
    if aside.exists():
        shutil.rmtree(aside)
    return folder.rename(aside)


def needed_from(step: int, *, every: int, keep: int) -> int:
    """The first step whose update may have to be applied again once the save after `step` is written.

    It follows the oldest of the `keep` saves that regularly lie before that one, whatever else was saved when a launch
    ended; so what is pruned depends on the step alone, and an interrupted run ends with the same ledger.
    """
    return max(0, every * (step // every - keep + 1))


def best(ledger: Reader, folders: Sequence[Path]) -> Path | None:
    """Of the step saves `folders`, that whose weights solved most in the step that was played with them.

    Weights after step N play step N + 1; of equals the newest counts. None where no such step has a decided attempt.
    """
    rates: dict[int, float] = {}
    for row in ledger.step_rows():
        tallies = [tally for place, tally in row.tallies.items() if place.startswith("attempt/")]
        if decided := sum(tally.decided for tally in tallies):
            rates[row.step - 1] = sum(tally.passed for tally in tallies) / decided
    known = [folder for folder in folders if step_of(folder) in rates]
    return max(known, key=lambda folder: (rates[step_of(folder)], step_of(folder)), default=None)


def is_ours(place: Path) -> bool:
    """Has it a name that a launch gives to a save?"""
    return _OURS.fullmatch(place.name) is not None


def of_steps(run_folder: Path) -> list[Path]:
    """The saves after steps that are on disk, by step; not what lies beside them, such as a copy or an archive."""
    there = (run_folder / FOLDER).glob("step_*")
    return sorted((place for place in there if _STEP.fullmatch(place.name) and place.is_dir()), key=step_of)


def step_of(folder: Path) -> int:
    """The step after which the save `step_N` was written; of those that `of_steps` gives."""
    return int(folder.name.removeprefix("step_"))


def _prune(run: Run) -> None:
    """Remove the oldest step saves but for the best; the warm-up's is not a step's and stays."""
    folders = of_steps(run.folder)
    kept = best(run.ledger, folders)
    for folder in folders[: -run.settings.keep_saves]:
        if folder == kept:
            continue
        # note: renamed first, so that a kill in between leaves no folder that looks like a save.
        shutil.rmtree(folder.rename(folder.with_name(f".{folder.name}.old")))
