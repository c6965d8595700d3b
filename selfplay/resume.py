"""How a run comes back: load the last save, re-apply the recorded updates, go on with what is owed.

The ledger is a redo log: an Update records everything that its re-application needs, so saves may
be rare. If a re-applied update does not give the recorded digest, the run stops and says so.

Not here: what is owed inside a step (each stage asks the ledger itself).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from selfplay import credit, origins, saves
from selfplay.batches import batch_again
from selfplay.errors import RunFailed
from selfplay.events import Event
from selfplay.saves import retained
from selfplay.types import Save, Seed, Update
from selfplay.warmup import warm_step

if TYPE_CHECKING:
    from selfplay.loop import Run

T = TypeVar("T")


class Site(credit.Site, Protocol):
    """Where recorded updates are applied again: a run, or a replay, which only reads."""

    @property
    def folder(self) -> Path: ...


async def seeds(run: Run) -> Sequence[Seed]:
    """The seeds, recorded at the first launch and compared at every other, as is what they are made of.

    Raises:
        UserError: the source or a role is another than when the run was started.
        RunFailed: the source gives other seeds than the run was started with.
    """
    run.observe(Event(kind="stage", stage="seeds", data={"waits_for": "the game's seeds", "total": None}))
    found = tuple(await run.game.seeds())
    await origins.hold(run)
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
    """Bring the learner to the last recorded update, from the newest save that is whole.

    Raises:
        RunFailed: a re-applied update gives other weights than the recorded ones, or a fork's start is gone.
    """
    save = await _load(run)
    if save is None and (source := run.ledger.parent_row()) is not None:
        raise RunFailed(
            f"the weights that this run was forked from are gone: {run.folder / 'weights' / 'start'}",
            hint=f"copy {source.save_path} of run `{source.words}` there, or fork again under another name",
        )
    phase = save.phase if save else "warmup"
    if phase == "play":
        await pin_first(run)
    updates = (*run.ledger.updates("warmup"), *run.ledger.updates("play"))
    pending = [u for u in updates if u.skipped is None and u.policy_version > run.learner.policy_version]
    for number, update in enumerate(pending):
        text = f"re-applying recorded update {number + 1} of {len(pending)} ({update.phase} {update.step})"
        run.observe(Event(kind="note", data={"text": text}))
        if update.phase != phase:
            phase = update.phase
            await _begin_play(run)
        await _reapply(run, update)
    if phase != "play" and (run.ledger.saves() or not run.settings.warmup.steps):
        await _begin_play(run)
    await saves.catch_up(run, steps=run.settings.save_every)


async def _begin_play(run: Run) -> None:
    await run.on_torch(lambda: run.learner.start_phase("play"))
    await pin_first(run)


async def _load(run: Run) -> Save | None:
    """Load the newest save; a damaged one is named and set aside, and the one before it is tried."""
    for save in sorted(retained(run.ledger, run.folder), key=lambda save: save.policy_version, reverse=True):
        folder = run.folder / save.path
        run.observe(Event(kind="stage", stage="model", data={"waits_for": f"the weights in {folder}", "total": None}))
        try:
            await run.on_torch(partial(run.learner.load, folder, save))
        except RunFailed as error:
            _say_damaged(run, error.message, at=saves.set_aside(save, run_folder=run.folder), was=folder)
            continue
        return save
    return None


def _say_damaged(run: Run, message: str, *, at: Path, was: Path) -> None:
    text = f"{message}; it is kept as {at.name}, and the recorded updates are applied again from the save before it"
    run.ledger.append_alarm(level="warning", code="damaged_save", message=text)
    fix = f"nothing is lost; delete {at} when you like"
    run.observe(Event(kind="alarm", data={"level": "warning", "text": text, "fix": fix}))


async def pin_reference(run: Run) -> None:
    """Pin the weights that self-play started from, where the loss has a KL term.

    Raises:
        RunFailed: they are not there any more.
    """
    if not run.settings.kl:
        return
    if not any(save.step < 0 for save in run.ledger.saves()):
        await saves.write(run, step=-1)
    await pin_first(run)


async def pin_first(site: Site) -> None:
    """Pin the first save, which self-play started from, where the loss has a KL term.

    Raises:
        RunFailed: it is not there any more, or is not what was recorded.
    """
    first = next((save for save in site.ledger.saves() if save.step < 0), None)
    if not site.settings.kl or first is None:
        return
    folder = site.folder / first.path
    in_memory = site.learner.policy_version == first.policy_version
    if not in_memory and not folder.is_dir():
        raise RunFailed(f"the KL reference is gone: {folder}", hint="start another run: selfplay run --new")
    found = await site.on_torch(lambda: site.learner.pin_reference(None if in_memory else folder))
    if found != first.weights_digest:
        raise RunFailed(
            f"the KL reference in {folder} is not what was recorded: its digest differs",
            hint="restore a copy of it, or start another: selfplay run --new",
        )


async def _reapply(run: Run, update: Update) -> None:
    warm = update.phase == "warmup"
    if not warm and update.step <= run.ledger.last_pruned_step():
        raise RunFailed(
            f"update {update.step} cannot be applied again: its log-probabilities are pruned, and every later save "
            "is gone or damaged",
            hint=f"put a save back under {run.folder / 'weights'}, or start another run: selfplay run --new",
        )
    again = await warm_step(run, update.step) if warm else await play_again(run, update)
    if sentence := drift(run, update, again):
        raise RunFailed(sentence, hint="resume it where it was recorded, or start another run: selfplay run --new")


async def play_again(site: Site, update: Update) -> Update:
    """Apply a recorded update of self-play to the weights before it; its log-probabilities must not be pruned."""
    trajectories = site.ledger.trajectories_by_id(update.trajectory_ids)
    groups = site.ledger.groups(update.step)
    batch = batch_again(update, trajectories, groups, temperature=site.settings.temperature)
    batch = await credit.credited(site, batch, groups)
    return await site.on_torch(lambda: site.learner.update(batch, recorded=update))


def drift(site: Site, update: Update, again: Update) -> str | None:
    """How `again` differs from the recorded `update`, in one sentence; None where the weights are equal."""
    if again.weights_digest == update.weights_digest:
        return None
    same = site.learner.fingerprint == update.fingerprint
    cause = "the same software on this machine" if same else "other software or another kind of processor"
    return f"update {update.step} of phase {update.phase} gives other weights than the recorded ones, with {cause}"
