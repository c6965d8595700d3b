"""The card of a data set, from the ledger: where it comes from, how it was checked, how hard it is, what its flaws are.

Every figure is counted from the run; nothing is copied from another card. The header is what the Hub reads (licence,
tags, sizes, which files are which split).

Not here: the files (`dataset`), licences (`licences`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from selfplay import __version__
from selfplay.exports.licences import Source, header_of
from selfplay.exports.seam import Asked
from selfplay.games import MIXED
from selfplay.ledger import StepRow
from selfplay.types import record

BINS = 10
"""Of the histogram of solve rates, each a tenth wide; the last holds 1 as well."""
WIDTH = 30
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


@record
class Contents:
    """What the files hold."""

    splits: Mapping[str, Mapping[str, int]]
    """Table -> split (`train`, `test`) -> rows."""
    rates: Sequence[float]
    """Of the tasks whose attempts were decided."""
    without: int
    """Tasks of which no attempt was decided."""
    sources: tuple[Source, ...]
    held_out: bool


def text(asked: Asked, contents: Contents) -> str:
    """The card."""
    row = asked.reader.run_row()
    parts = [
        _header(asked, contents),
        f"# {asked.name}\n\nTasks and plays of a selfplay run: one language model made the tasks, and tried to solve "
        f"them; a verifier decided. Game `{row.game}`, model `{row.config.get('policy.model')}`, "
        f"{len(asked.steps)} closed steps. No human labels.\n",
        _sources(contents.sources),
        _checks(asked.reader.step_rows()),
        _rates(contents),
        _flaws(asked, contents),
        _made(asked, contents),
    ]
    return "\n".join(parts)


def _games(asked: Asked) -> list[str]:
    """The games that were played; several in a mix."""
    return [name.strip() for name in asked.reader.run_row().game.split(MIXED)]


def _header(asked: Asked, contents: Contents) -> str:
    whole = sum(sum(splits.values()) for splits in contents.splits.values())
    size = next((name for most, name in SIZES if whole < most), "1M<n<10M")
    lines = ["---", f"license: {header_of(contents.sources)}", f"pretty_name: {json.dumps(asked.name)}"]
    lines += ["tags:", "- selfplay", "- synthetic", *(f"- {json.dumps(name)}" for name in _games(asked))]
    lines += ["size_categories:", f"- {size}"]
    lines += ["configs:"] if any(contents.splits.values()) else []
    for table, splits in contents.splits.items():
        if not splits:
            continue
        lines += [f"- config_name: {table}", "  data_files:"]
        for split in splits:
            lines += [f"  - split: {split}", f"    path: data/{table}-{split}.parquet"]
    return "\n".join([*lines, "---", ""])


def _sources(found: Sequence[Source]) -> str:
    lines = [
        "## Where it comes from\n",
        "| source | licence, as it says itself | digest of its files |",
        "|---|---|---|",
    ]
    for source in found:
        licence = f"{source.licence} ({source.note})" if source.note else source.licence
        lines.append(f"| {_cell(source.name)} | {_cell(licence)} | `{source.digest or 'none'}` |")
    return "\n".join([*lines, "", "What a model wrote is derived from these, and so may stand under their licences.\n"])


def _checks(rows: Sequence[StepRow]) -> str:
    """Why proposals were taken or refused: each reason is a check of the game's."""
    reasons: Counter[str] = Counter()
    valid = decided = 0
    for row in rows:
        for place, tally in row.tallies.items():
            if place.startswith("propose/"):
                reasons.update(tally.reasons)
                valid, decided = valid + tally.valid, decided + tally.decided
    lines = [
        "## How it was checked\n",
        f"Of {decided} proposals that were decided, {valid} became tasks. By reason code:\n",
    ]
    lines += ["| reason | proposals |", "|---|--:|"]
    lines += [
        f"| `{_cell(reason)}` | {count} |"
        for reason, count in sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
    ]
    return "\n".join([*lines, "", "Every play has its verdict's `reason` and a sentence, `why`.\n"])


def _rates(contents: Contents) -> str:
    counts = histogram(contents.rates)
    most = max(counts, default=0)
    lines = ["## How hard it is\n", "Share of decided attempts that solved a task, tasks by share:\n", "```"]
    for number, count in enumerate(counts):
        bar = "#" * round(WIDTH * count / most) if most else ""
        lines.append(f"{number / BINS:.1f}-{(number + 1) / BINS:.1f} {count:6} {bar}".rstrip())
    lines += ["```", "", f"{contents.without} tasks without a decided attempt are not in it."]
    return "\n".join(
        [*lines, "The solver was the model itself at that step: rates of different steps do not compare.\n"]
    )


def histogram(rates: Sequence[float]) -> list[int]:
    """How many rates lie in each tenth."""
    counts = [0] * BINS
    for rate in rates:
        counts[min(BINS - 1, int(rate * BINS))] += 1
    return counts


def _flaws(asked: Asked, contents: Contents) -> str:
    never, always = sum(rate == 0 for rate in contents.rates), sum(rate == 1 for rate in contents.rates)
    faults, alarms = len(asked.reader.faults()), asked.reader.alarms()
    lines = ["## Known flaws\n"]
    lines.append(f"- {never} tasks were never solved: some of them may be broken rather than hard.")
    lines.append(f"- {always} tasks were always solved, and teach that solver nothing.")
    lines.append(f"- {faults} times something broke and decided nothing; those tries are not in the files.")
    if "code" in _games(asked):
        lines.append("- Code under test shares its process with the tests, so that not every cheat can be refused.")
        lines.append("- Bugs are planted by a model or a program, and need not look like those of people.")
    if "search" in _games(asked):
        lines.append("- A question may have a right answer that no check found: whoever gives it is told to be wrong.")
    if not contents.held_out:
        lines.append("- Held-out tasks are left out, so that who trains on this can still be measured on them.")
    for alarm in alarms:
        where = f"step {alarm.step}: " if alarm.step is not None else ""
        lines.append(f"- The run raised an alarm, `{alarm.code}` ({alarm.level}): {where}{_cell(alarm.message)}")
    return "\n".join([*lines, ""])


def _made(asked: Asked, contents: Contents) -> str:
    row = asked.reader.run_row()
    tables = "\n".join(
        f"| `{table}` | {split} | {count} |"
        for table, splits in contents.splits.items()
        for split, count in splits.items()
    )
    words = f"selfplay export {asked.name} --format hf" + (" --held-out" if contents.held_out else "")
    words += f" --step {asked.step}" if asked.step is not None else ""
    return (
        f"## How it was made\n\n| table | split | rows |\n|---|---|--:|\n{tables}\n\n"
        f"`{words}`, selfplay {__version__}; the run was made by {row.engine_version}, seed {row.seed}, configuration "
        f"`{row.config_digest}`. What each column means: selfplay/exports/README.md of that version.\n"
    )


def _cell(value: Any) -> str:
    """Text that cannot leave its cell or its line, nor be read as markup."""
    kept = "".join(character if character.isprintable() else " " for character in str(value))
    return kept.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
