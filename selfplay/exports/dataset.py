"""A data set for Hugging Face: Parquet files by table and split, and a card from the ledger. Nothing is uploaded.

`datasets.load_dataset(FOLDER, "tasks")` opens it. What is held out becomes the split `test`, and only where it is asked
for; tasks of a warm-up's dev set are in neither.

Not here: columns (`tables`), the card (`card`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from selfplay.exports import card, tables
from selfplay.exports.licences import sources
from selfplay.exports.plays import plays
from selfplay.exports.seam import BOTH, Asked, Made, Out, Simple, needs, require_rows

SPLITS: Mapping[str, str] = {"train": "train", "held_out": "test"}
"""Split of a seed -> split of the data set."""


def _write(asked: Asked, out: Out) -> Made:
    require_rows(asked)
    needs("pyarrow", extra="hf")
    rates: list[float | None] = []
    counts: dict[str, dict[str, int]] = {"tasks": {}, "plays": {}}
    for split, name in SPLITS.items():
        if split == "train" or asked.held_out:
            found: Iterable[Mapping[str, Any]] = _told(tables.task_rows(asked), split, rates)
            counts["tasks"][name] = _write_table(out, "tasks", name, tables.TASKS, found)
            found = (row for row in map(tables.play_row, plays(asked)) if row["split"] == split)
            counts["plays"][name] = _write_table(out, "plays", name, tables.PLAYS, found)
    contents = card.Contents(
        splits={table: {name: count for name, count in rows.items() if count} for table, rows in counts.items()},
        rates=[rate for rate in rates if rate is not None],
        without=rates.count(None),
        sources=sources(asked),
        held_out=asked.held_out,
    )
    (out.folder / "README.md").write_text(card.text(asked, contents), encoding="utf-8")
    whole = sum(sum(rows.values()) for rows in counts.values())
    return Made(count=whole, next="python -c \"import datasets as d; print(d.load_dataset('{to}', 'tasks'))\"")


def _told(rows: Iterable[dict[str, Any]], split: str, rates: list[float | None]) -> Iterator[dict[str, Any]]:
    """The tasks of a split; their solve rates are added to `rates`."""
    for row in rows:
        # note: dev tasks are of step -1 and of train seeds.
        if row["split"] == split and (row["step"] >= 0 or split == "held_out"):
            rates.append(row["solve_rate"])
            yield row


def _write_table(out: Out, table: str, split: str, columns: tables.Columns, rows: Iterable[Mapping[str, Any]]) -> int:
    """How many rows it has; a table without rows leaves no file, which no reader could tell the split of."""
    file = out.folder / "data" / f"{table}-{split}.parquet"
    count = tables.write(file, columns, rows)
    if not count:
        file.unlink()
    return count


HF = Simple(
    about="a data set for Hugging Face, Parquet with a card",
    noun="row",
    shape="folder",
    takes=BOTH,
    writer=_write,
)
