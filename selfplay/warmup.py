"""The warm-up: a small model learns the reply format before self-play.

Supervised updates on procedurally made examples of the train seeds: no labels, no held-out seed.
Each is recorded as an update of phase `warmup`. It ends when, on a fixed dev set, at least
`min_valid` of the proposals are valid and the solve rate lies in `solve_rate`, or after `steps`
updates, with a warning where the dev set says it was too short.

The warmed weights are kept in the user's cache by a digest of everything they depend on, together
with the records of their updates, so that the next run with the same settings starts at once. The
looks at the dev set are not kept: their ids are of the run that made them.

Not here: what the examples are (`Game.examples`), what the dev set is (`Game.dev`), the optimizer
(`learner`).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfplay.errors import RunFailed
from selfplay.events import Event
from selfplay.games import Game, cast
from selfplay.pools import unpaused
from selfplay.stages import Interrupted, Played, attempt, propose
from selfplay.types import Save, Update, digest, record

if TYPE_CHECKING:
    from selfplay.loop import Run

RECORDS = "records.json"
"""Beside cached weights: their Save and their Updates. Written last, so that its presence means whole."""


@record
class WarmUp:
    """How long the warm-up is and when it may end early."""

    steps: int
    """Updates at most; 0 for no warm-up."""
    examples: int
    """Prompts an update."""
    check_every: int
    """Updates between two looks at the dev set; 0: only at the end."""
    proposals: int = 2
    """Dev proposals a seed."""
    attempts: int = 4
    """Dev attempts a task."""
    min_valid: float = 0.3
    """Least share of valid dev proposals (DESIGN, Learning, exactly)."""
    solve_rate: tuple[float, float] = (0.1, 0.6)
    """The dev solve rate lies between these."""


async def warm_up(run: Run) -> None:
    """Bring the learner to the end of the warm-up: from the ledger, from the cache, or by doing it.

    Raises:
        Interrupted: asked to stop; the updates recorded so far are re-applied next time.
    """
    plan = run.settings.warmup
    if not plan.steps or run.ledger.saves() or run.ledger.last_closed_step() >= 0:
        return
    if not run.ledger.updates("warmup") and await _adopt(run):
        return
    done = len(run.ledger.updates("warmup"))
    for index in range(done, plan.steps):
        if plan.check_every and index and index % plan.check_every == 0 and await _ready(run, index):
            break
        await unpaused(run.pools)
        if run.pools.interrupt.level:
            raise Interrupted
        with run.pools.clock.doing("learning"):
            update = await warm_step(run, index)
        run.ledger.record_update(update)
        run.observe(Event(kind="update", step=index, stage="warmup", data=_shown(update, plan.steps)))
    else:
        if not await _ready(run, plan.steps):
            text = f"the warm-up ended at its limit of {plan.steps} updates before the dev set was in range"
            run.observe(Event(kind="alarm", data={"level": "warning", "text": text, "fix": "-s warmup.steps=N"}))
    await _finish(run)


async def warm_step(run: Run, index: int) -> Update:
    """Update number `index`: a pure function of the weights before it, the seed and `index`."""
    plan = run.settings.warmup
    first = index * plan.examples
    ask = partial(run.game.examples, seed=run.settings.seed, first=first, count=plan.examples)
    examples = await asyncio.to_thread(ask)
    return await run.on_torch(lambda: run.learner.imitate(examples, index=index, total=plan.steps))


def _shown(update: Update, total: int) -> dict[str, Any]:
    return {
        "phase": "warmup",
        "index": update.step,
        "total": total,
        "loss": update.loss,
        "version": update.policy_version,
        "tokens": update.tokens,
        "tokens_per_second": update.tokens / update.seconds if update.seconds else None,
        "seconds": update.seconds,
        "lr": update.lr,
    }


async def _ready(run: Run, index: int) -> bool:
    """Is the dev set in range after `index` updates? Its plays are recorded, so a resumed run sees the same."""
    plan, game = run.settings.warmup, run.game
    seeds, tasks = await game.dev()
    if not seeds or not tasks:
        return False
    if fresh := [task for task in tasks if run.ledger.task(task.id) is None]:
        run.ledger.append(*fresh)
    proposals = await propose(run.pools, game, seeds, step=index, count=plan.proposals, stage="evaluate")
    attempts = await attempt(run.pools, game, tasks, step=index, count=plan.attempts, stage="evaluate")
    return _in_range(run, index, proposals, attempts)


def _in_range(run: Run, index: int, proposals: Sequence[Played], attempts: Sequence[Played]) -> bool:
    plan = run.settings.warmup
    decided = [p.verdict.passed for p in attempts if p.verdict.passed is not None]
    valid = sum(p.verdict.valid for p in proposals) / max(1, len(proposals))
    solved = sum(decided) / max(1, len(decided))
    low, high = plan.solve_rate
    ready = valid >= plan.min_valid and low <= solved <= high
    text = f"after {index} warm-up updates: {valid:.0%} of dev proposals valid, {solved:.0%} of dev attempts solved"
    run.observe(Event(kind="note", data={"text": text, "valid": valid, "solved": solved, "ready": ready}))
    return ready


async def _finish(run: Run) -> None:
    """Start the play phase, keep the weights, and make their row the sign that the warm-up is over."""
    updates = run.ledger.updates("warmup")
    await run.on_torch(lambda: run.learner.start_phase("play"))
    cache = folder = _cache(run)
    if folder is None or (folder / RECORDS).exists():
        folder = run.folder / "weights" / "warmup"
    save = await run.on_torch(lambda: run.learner.save(folder, step=-1))
    if folder == cache:
        _write_records(folder, save, updates)
    save = replace(save, path=str(folder if folder == cache else folder.relative_to(run.folder)))
    run.ledger.append_save(save)
    run.observe(Event(kind="save", data={"path": save.path, "phase": "warmup", "num_bytes": save.num_bytes}))


def _cache(run: Run) -> Path | None:
    """Where warmed weights lie of these settings, this source and these roles; None where no cache is wanted."""
    place = run.warm_cache
    # note: of a chat alone, so that what else was warmed is found again. Before it was told apart, prompts of such a
    # role were taught as plain text, which is never played.
    known = [one for one in (run.ledger.origins(), _in_chat(run.game)) if one]
    return place.with_name(digest("warm", place.name, *known)) if place and known else place


def _in_chat(game: Game) -> bool:
    """Is a role of it asked in the model's chat template?"""
    roles = (*cast(game, "proposer").roles.values(), *cast(game, "solver").roles.values())
    return any(role.template == "chat" for role in roles)


def _write_records(folder: Path, save: Save, updates: Sequence[Update]) -> None:
    records = {"save": asdict(save), "updates": [asdict(update) for update in updates]}
    aside = folder / f"{RECORDS}.part"
    with aside.open("w", encoding="utf-8") as file:
        json.dump(records, file)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(folder / RECORDS)


async def _adopt(run: Run) -> bool:
    """Take warmed weights and their records from the cache, all or nothing; False where there are none."""
    folder = _cache(run)
    if folder is None or not (folder / RECORDS).exists():
        return False
    try:
        save, updates = _read_records(folder)
        await run.on_torch(lambda: run.learner.load(folder, save))
    except RunFailed as error:
        # note: a cache may be deleted at any time; the weights in memory are as they were.
        shutil.rmtree(folder)
        run.observe(Event(kind="note", data={"text": f"{error.message}; it was dropped, the warm-up is done again"}))
        return False
    run.ledger.append_save(save, warmup=updates)
    text = f"warm-up of {len(updates)} updates taken from the cache: {folder}"
    run.observe(Event(kind="note", data={"text": text}))
    return True


def _read_records(folder: Path) -> tuple[Save, list[Update]]:
    try:
        records = json.loads((folder / RECORDS).read_text(encoding="utf-8"))
        save = Save(**{**records["save"], "path": str(folder)})
        return save, [_update_from(row) for row in records["updates"]]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RunFailed(f"the records of the warmed weights in {folder} cannot be read: {error}") from error


def _update_from(row: dict[str, Any]) -> Update:
    """An Update from its JSON: lists become tuples again."""
    return Update(
        **{
            **row,
            "trajectory_ids": tuple(row["trajectory_ids"]),
            "advantages": tuple(row["advantages"]),
            "partition": tuple(tuple(part) for part in row["partition"]),
            "old_logprobs": tuple(tuple(part) for part in row["old_logprobs"]),
        }
    )


def cached(folder: Path | None) -> bool:
    """Does the cache hold the warmed weights of these settings?"""
    return folder is not None and (folder / RECORDS).exists()
