"""Is a run as it was recorded: its ledger, its settings, the saves on disk, what else lies in its folder.

Reads only, loads no torch, and may be used while the run is played. What it names is a problem (something
recorded is not there, or is not what it was) or a note (worth knowing, nothing is lost).

Not here: the checks of the ledger itself (`ledger.check`), what can be saved of a damaged one (`salvage`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from selfplay import saves
from selfplay.errors import RunFailed
from selfplay.learner.stored import digests, policy_version
from selfplay.ledger import Reader, check, files
from selfplay.ledger.found import Checked, Found, timed
from selfplay.types import Save, digest

LEFTOVERS = (f"{files.NAME}.new*", "ledger.v*.new*", ".config-*", f"{saves.FOLDER}/.*")
"""What a killed process may leave; the next launch removes or replaces it."""


def audit(folder: Path) -> Iterator[Checked]:
    """Check the run in `folder`, one thing after another.

    Raises:
        NotFound, UserError, RunFailed: its ledger cannot be opened at all.
    """
    yield from check.checks(folder)
    with Reader(folder) as reader:
        yield timed("config", "settings: their digest", partial(_config, reader))
        yield timed("weights", "saves on disk: weights and state", partial(_weights, reader))
        yield timed("folder", "other files in the run's folder", partial(_folder, reader))


def _config(reader: Reader, found: Found) -> None:
    from selfplay.config.settings import affects_results, fields

    row = reader.run_row()
    found.count = len(row.config)
    if set(row.config) != {name for name, _ in fields()}:
        found.notes.append("the settings are of another version of selfplay: their digest was not computed again")
        return
    again = digest("config", {name: value for name, value in row.config.items() if affects_results(name)})
    found.unless(again == row.config_digest, "the settings do not have the digest that the ids were made with")


def _weights(reader: Reader, found: Found) -> None:
    recorded = reader.saves()
    there = []
    for save in saves.retained(reader, reader.folder):
        problem = _damage(reader.folder, save)
        if problem and not (reader.folder / save.path).is_dir():
            # note: a run that is being played prunes what is read here.
            continue
        there.append(save)
        found.count += 1
        if problem:
            found.problem(f"{save.path}: {problem}")
    gone = [save.path for save in recorded if save not in there]
    if gone:
        found.notes.append(f"pruned or gone, as any but one may be: {', '.join(gone[-3:])} ({len(gone)} in all)")
    if recorded and not there and not saves.retained(reader, reader.folder):
        if reader.parent_row() is not None:
            found.problem("the weights it was forked from are gone, and every later save: it cannot go on")
        else:
            updates = len(reader.updates())
            found.notes.append(f"no save is on disk: a resume applies all {updates} updates again, from the start")
    _strangers(reader, found)


def _damage(folder: Path, save: Save) -> str | None:
    """What is wrong with a save on disk; None where nothing is."""
    try:
        own = digests(folder / save.path)
    except RunFailed as error:
        return error.message
    if own.weights != save.weights_digest:
        return "its weights are not those that were recorded"
    if own.state != save.state_digest:
        return "its moments and counters are not those that were recorded"
    return None


def _strangers(reader: Reader, found: Found) -> None:
    """Folders under weights/ that no row knows."""
    places = sorted((reader.folder / saves.FOLDER).glob("[!.]*"))
    # note: after the folders, so that a run that is being played has written the rows of those that it saved meanwhile.
    rows = {reader.folder / save.path for save in reader.saves()}
    last, steps = reader.last_closed_step(), saves.of_steps(reader.folder)
    for place in places:
        name = f"{saves.FOLDER}/{place.name}"
        if place in rows:
            continue
        if place in steps and saves.step_of(place) > last and policy_version(place) is not None:
            found.problem(f"{name} was saved after the last step that the ledger has, {last}: its newest rows are lost")
        elif place.name.startswith("damaged_"):
            found.notes.append(f"{name} was found damaged and set aside; delete it when you like")
        elif saves.is_ours(place) and place.is_dir():
            found.notes.append(f"{name} has no row: a save that was interrupted; the next launch removes it")
        else:
            found.notes.append(f"{name} is no save of this run, and is left alone")


def _folder(reader: Reader, found: Found) -> None:
    folder = reader.folder
    found.count = sum(1 for path in folder.iterdir() if path.name not in (files.NAME, saves.FOLDER))
    left = sorted(str(path.relative_to(folder)) for pattern in LEFTOVERS for path in folder.glob(pattern))
    if left:
        found.notes.append(f"left by a process that was killed, or in use by one that runs: {', '.join(left)}")
    copies = sorted(path.name for path in folder.glob("ledger.v*.db"))
    if copies:
        found.notes.append(f"copies from before a migration: {', '.join(copies)}")
    parent = reader.parent_row()
    if parent is not None:
        older = reader.parent()
        if older is None:
            found.notes.append(f"forked from {parent.words}, which is not at {parent.path} any more")
        else:
            older.close()
