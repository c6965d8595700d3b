"""A fork: a new run with other settings that starts from the weights of another run's save.

The parent is only read, so it may be running. Its records stay with it: the new ledger has a row in
`parents` that names run, step, save and the settings that differ, and `Reader.parent()` follows it. The
weights, the optimizer's moments and the place in the learning-rate schedule are taken over; they are
hard-linked into the new run's own `weights/start` (copied across file systems), so that pruning or
deleting the parent cannot hurt. There is no warm-up. Steps count from 0, weights go on from the parent's
version, ids follow from the new configuration's digest.

Not here: playing it (`build.execute`, which finds an ordinary run), which run a person means (`cli`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from selfplay.config import Config, Difference
from selfplay.errors import NotFound, NotReady, UserError
from selfplay.ledger import Ledger, ParentRow, Reader, files, rows
from selfplay.ledger.lock import Lock
from selfplay.types import Save, record

START = "weights/start"
"""Where a fork's first weights lie, in its own folder."""

FIXED = {
    "policy.model": "weights of",
    "learner.lora_rank": "weights of learner.lora_rank",
    "learner.lora_per_role": "weights of learner.lora_per_role",
    "learner.optimizer": "moments of",
}
"""Settings that a save cannot be carried across, and what it holds: the model, and with it the tokenizer; whether all
of it is trained or adapters of some rank; the form of the moments."""


@record
class Source:
    """What a fork starts from."""

    parent: Path
    """The other run's folder."""
    save: Save
    """As its ledger has it."""
    config_digest: str
    changed: tuple[Difference, ...]
    """The settings that differ."""
    any_step: bool
    """No step was asked for: `save` is the newest."""

    @property
    def words(self) -> str:
        """`NAME@STEP`."""
        return f"{self.parent.name}@{self.save.step}"


def find(parent: Path, changed: Sequence[Difference], *, step: int | None = None) -> Source:
    """What a fork of the run `parent` starts from: its save after `step` (None: its newest). Reads only.

    `changed` is what differs from its settings, as `config.diff` says.

    Raises:
        UserError: nothing differs, or what a save cannot be carried across does.
        NotFound: there is no run in `parent`, or no such save; the message names the nearest.
    """
    with Ledger.read(parent) as reader:
        _refuse(changed, parent)
        save, digest = _save_of(reader, step), reader.run_row().config_digest
    return Source(parent=parent, save=save, config_digest=digest, changed=tuple(changed), any_step=step is None)


def make(config: Config, source: Source, *, folder: Path) -> ParentRow:
    """Make the run `folder` with `config` from `source`.

    A fork that is there already (`made`) is left as it is; one that was killed while it was made is made again.

    Raises:
        UserError: `folder` holds another run.
        RunFailed: it holds the remains of one.
        Held: another process is making or holding it.
        NotReady: the disk is full, or the folder cannot be written.
    """
    save = source.save
    if there := made(config, source.parent, folder=folder, step=None if source.any_step else save.step):
        return there
    row = ParentRow(
        path=os.path.relpath(source.parent.resolve(), folder.resolve()),
        config_digest=source.config_digest,
        step=save.step,
        policy_version=save.policy_version,
        weights_digest=save.weights_digest,
        save_path=save.path,
        changed={d.key: (d.old, d.new) for d in source.changed},
    )
    # note: what a killed fork left may be replaced, what a lost ledger left may not.
    if kept := files.remains(folder, besides=(Path(START).name,)):
        raise files.lost(folder, kept)
    lock = Lock.take(folder)
    try:
        link(source.parent / save.path, folder / START)
        config.write(folder)
        start = replace(save, step=-1, path=START)
        files.create(
            folder,
            config_digest=config.digest,
            config=config.values(),
            seed=config.run.seed,
            game=config.run.game,
            born=[rows.parent(row), *rows.of(start)],
        )
    finally:
        lock.release()
    return row


def _refuse(changed: Sequence[Difference], parent: Path) -> None:
    if not changed:
        raise UserError(
            f"nothing differs from the settings of run `{parent.name}`: the fork's records would have its ids",
            hint=f"change a setting, e.g. -s run.seed=N, or go on with it: selfplay run --name {parent.name}",
        )
    for difference in changed:
        if difference.key in FIXED:
            raise UserError(
                f"run `{parent.name}` has {FIXED[difference.key]} `{difference.old}`, "
                f"which `{difference.new}` cannot take over",
                hint=f"keep the setting, -s {difference.key}={difference.old}, or start another run without --fork",
            )


def _save_of(reader: Reader, step: int | None) -> Save:
    """The save after `step`, or the newest; one that is still on disk."""
    name = reader.folder.name
    there = [save for save in reader.saves() if (reader.folder / save.path).is_dir()]
    if not there:
        raise NotFound(
            f"run `{name}` has no weights on disk to fork from", hint=f"resume it once: selfplay run --name {name}"
        )
    if step is None:
        return max(there, key=lambda save: (save.policy_version, save.step))
    found = [save for save in there if save.step == step]
    if not found:
        near = min(there, key=lambda save: (abs(save.step - step), -save.step))
        steps = ", ".join(str(number) for number in sorted({save.step for save in there}))
        raise NotFound(
            f"run `{name}` has no save after step {step}; on disk are those after {steps}",
            hint=f"the nearest: --fork {name}@{near.step}",
        )
    return found[-1]


def made(config: Config, parent: Path, *, folder: Path, step: int | None = None) -> ParentRow | None:
    """The fork with `config` of the run `parent` after `step` (None: any) that is in `folder`; None: no run is there.

    Of the parent nothing is read: its save may be pruned, and all of it deleted.

    Raises:
        UserError: `folder` holds another run.
    """
    if not (folder / files.NAME).exists():
        return None
    with Ledger.read(folder) as reader:
        row, digest = reader.parent_row(), reader.run_row().config_digest
    same = row is not None and parent_of(folder, row) == parent.resolve() and digest == config.digest
    if row is not None and same and step in (None, row.step):
        return row
    what = "no fork" if row is None else f"a fork of {row.words}"
    raise UserError(
        f"there is a run `{folder.name}` already, and it is {what}",
        hint=f"go on with it: selfplay run --name {folder.name}; or choose another --name",
    )


def parent_of(folder: Path, row: ParentRow) -> Path:
    """Where the run lies, or lay, that the one in `folder` was forked from."""
    return (folder.resolve() / row.path).resolve()


def link(source: Path, target: Path) -> None:
    """Make `target` the same files as `source`, whole or not at all."""
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
        for file in sorted(source.iterdir()):
            _one(file, aside / file.name)
        shutil.rmtree(target, ignore_errors=True)
        files.sync(aside)
        aside.rename(target)
        files.sync(target.parent)
    except FileNotFoundError as error:
        raise NotFound(f"the save {source} went away while it was linked", hint="type the command again") from error
    except OSError as error:
        raise NotReady(f"cannot write {target}: {error.strerror}", hint="see what is full: df -h") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _one(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except FileNotFoundError:
        raise
    except OSError:
        # note: another file system, one without links, or another owner's file.
        shutil.copyfile(file, target)
        files.sync(target)
