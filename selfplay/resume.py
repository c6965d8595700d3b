"""How a run comes back: load the last save, re-apply the recorded updates, go on with what is owed.

The ledger is a redo log: an Update records everything that its re-application needs, so saves may
be rare. If a re-applied update does not give the recorded digest, the run stops and says so.

Not here: what is owed inside a step (each stage asks the ledger itself).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from selfplay.batches import batch_again
from selfplay.errors import RunFailed
from selfplay.events import Event
from selfplay.types import Save, Seed, Update
from selfplay.warmup import warm_step

if TYPE_CHECKING:
    from selfplay.loop import Run


async def seeds(run: Run) -> Sequence[Seed]:
    """The seeds, recorded at the first launch and compared at every other.

    Raises:
        RunFailed: the source gives other seeds than the run was started with.
    """
    run.observe(Event(kind="stage", stage="seeds", data={"waits_for": "the game's seeds", "total": None}))
    found = tuple(await run.game.seeds())
    recorded = run.ledger.seeds()
    if recorded and {s.id for s in recorded} != {s.id for s in found}:
        raise RunFailed(
            f"the source has changed: {len(recorded)} seeds were recorded and {len(found)} others are found now",
            hint="start another run: selfplay run --new",
        )
    if not recorded:
        run.ledger.append(*found)
    return found


async def restore(run: Run) -> None:
    """Bring the learner to the last recorded update.

    Raises:
        RunFailed: a re-applied update gives other weights than the recorded ones.
    """
    save = newest_save(run)
    if save is not None:
        folder = run.folder / save.path
        run.observe(Event(kind="stage", stage="model", data={"waits_for": f"the weights in {folder}", "total": None}))
        await run.on_torch(lambda: run.learner.load(folder, save))
    updates = (*run.ledger.updates("warmup"), *run.ledger.updates("play"))
    phase = save.phase if save else "warmup"
    pending = [u for u in updates if u.skipped is None and u.policy_version > run.learner.policy_version]
    for number, update in enumerate(pending):
        text = f"re-applying recorded update {number + 1} of {len(pending)} ({update.phase} {update.step})"
        run.observe(Event(kind="note", data={"text": text}))
        if update.phase != phase:
            phase = update.phase
            await run.on_torch(lambda: run.learner.start_phase("play"))
        await _reapply(run, update)
    if phase != "play" and (run.ledger.saves() or not run.settings.warmup.steps):
        await run.on_torch(lambda: run.learner.start_phase("play"))


async def pin_reference(run: Run) -> None:
    """Pin the weights that self-play started from, where the loss has a KL term.

    Raises:
        RunFailed: they are not there any more.
    """
    if not run.settings.kl:
        return
    first = next((save for save in run.ledger.saves() if save.step < 0), None)
    if first is None:
        await save(run, step=-1)
        first = next(save for save in run.ledger.saves() if save.step < 0)
    folder = run.folder / first.path
    if not folder.is_dir():
        raise RunFailed(f"the KL reference is gone: {folder}", hint="start another run: selfplay run --new")
    await run.on_torch(lambda: run.learner.pin_reference(folder))


async def _reapply(run: Run, update: Update) -> None:
    if update.phase == "warmup":
        again = await warm_step(run, update.step)
    else:
        trajectories = run.ledger.trajectories_by_id(update.trajectory_ids)
        batch = batch_again(update, trajectories, temperature=run.settings.temperature)
        again = await run.on_torch(lambda: run.learner.update(batch, recorded=update))
    if again.weights_digest != update.weights_digest:
        same = run.learner.fingerprint == update.fingerprint
        cause = "the same software on this machine" if same else "other software or another kind of processor"
        raise RunFailed(
            f"update {update.step} of phase {update.phase} gives other weights than the recorded ones, with {cause}",
            hint="resume it where it was recorded, or start another run: selfplay run --new",
        )


def newest_save(run: Run) -> Save | None:
    """The save with the highest policy version whose folder is still there; None where there is none."""
    there = [save for save in run.ledger.saves() if (run.folder / save.path).is_dir()]
    return max(there, key=lambda save: save.policy_version, default=None)


async def save(run: Run, *, step: int) -> None:
    """Write weights and moments after `step`, record it, and drop saves beyond `keep_saves`."""
    folder = run.folder / "weights" / (f"step_{step:06d}" if step >= 0 else "start")
    if folder.is_dir():
        return
    run.observe(Event(kind="stage", step=step, stage="save", data={"waits_for": "the disk", "total": None}))
    with run.pools.clock.doing("saving"):
        written = await run.on_torch(lambda: run.learner.save(folder, step=step))
    run.ledger.append_save(relative(written, folder, run.folder))
    data = {"path": str(folder), "phase": "play", "num_bytes": written.num_bytes}
    run.observe(Event(kind="save", step=step, data=data))
    _prune(run)


async def save_if_behind(run: Run) -> None:
    """Save where closed steps have changed the weights since the last save, so that resume is quick."""
    newest = newest_save(run)
    step = run.ledger.last_closed_step()
    if step >= 0 and (newest is None or newest.policy_version < run.learner.policy_version):
        await save(run, step=step)


def relative(save: Save, folder: Path, run_folder: Path) -> Save:
    """`save` with its path relative to the run's folder, so that the folder can be moved."""
    return replace(save, path=str(folder.relative_to(run_folder)))


def _prune(run: Run) -> None:
    """Remove the oldest step saves; the warm-up's is not a step's and stays."""
    folders = sorted((run.folder / "weights").glob("step_*"))
    for folder in folders[: -run.settings.keep_saves]:
        shutil.rmtree(folder)
