from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Typed = tuple[int, str, str]


@pytest.mark.bubblewrap
def test_rows_go_to_stdout_or_into_a_file(here: Path, code_run: Path, typed: Callable[..., Typed]) -> None:
    code, out, err = typed("export", "code", "--format", "swebench")
    assert code == 0
    assert err == "code: 2 tasks\n"
    rows = [json.loads(line) for line in out.splitlines()]
    assert {row["repo"] for row in rows} == {"selfplay/pkg"}
    code, nothing, err = typed("export", "code", "--to", "tasks.jsonl")
    assert (code, nothing, err) == (0, "", "code: 2 tasks, in tasks.jsonl\n")
    assert (here / "tasks.jsonl").read_text() == out
    assert [path.name for path in here.glob(".tasks*")] == []


@pytest.mark.bubblewrap
def test_the_data(here: Path, code_run: Path, answered: Callable[..., Any], typed: Callable[..., Typed]) -> None:
    data = answered("export", "code", "--held-out")
    assert (data["format"], data["file"], data["count"], data["left_out"]) == ("swebench", None, 2, 0)
    code, _, err = typed("export", "code", "--to", "no/such/folder.jsonl")
    assert code == 3
    assert err.startswith("error: cannot write no/such/folder.jsonl: ")


def test_bad_input(with_run: Path, typed: Callable[..., Typed]) -> None:
    code, out, err = typed("export", "toy")
    assert (code, out) == (2, "")
    assert err.startswith("error: run `toy` plays `echo`, and SWE-bench rows are bugs in code\n\nhint: ")


@pytest.mark.parametrize("form", ["sft", "dpo"])
def test_plays_as_rows(
    with_replays: Path, typed: Callable[..., Typed], answered: Callable[..., Any], form: str
) -> None:
    code, out, err = typed("export", "again", "--format", form)
    assert code == 0
    rows = [json.loads(row) for row in out.splitlines()]
    assert rows
    assert f"again: {len(rows)} row" in err
    assert answered("export", "again", "--format", form)["rows"] == rows
    assert typed("export", "again", "--format", form, "--to", "rows.jsonl")[0] == 0
    assert (with_replays / "rows.jsonl").read_text() == out
    assert typed("export", "again", "--format", form, "--to", "none/rows.jsonl")[0] == 3
    assert "--held-out is for tasks" in typed("export", "again", "--format", form, "--held-out")[2]
