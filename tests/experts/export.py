"""Exported rows, tried: the columns that the public harness needs, and patches that git applies from tree to tree.

Not here: the rows (`games.code.swebench`), running a row's script (`tests/games/code/test_swebench.py`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from selfplay.games.code.source import Repository, digest_of
from selfplay.games.code.swebench import Packed, rows
from selfplay.types import Task

COLUMNS = (
    *("instance_id", "repo", "version", "base_commit", "environment_setup_commit", "patch", "test_patch"),
    *("problem_statement", "hints_text", "created_at", "FAIL_TO_PASS", "PASS_TO_PASS"),
)
"""Of the public data set."""


def wrong_rows(tasks: Sequence[Task], *, packed: Packed) -> tuple[int, tuple[str, ...]]:
    """How many rows there are, and what is wrong with them, in sentences; the harness reads them where it is there."""
    found = list(rows(tasks, packed=packed))
    wrong = [f"row {row['instance_id']}: {why}" for row in found for why in why_wrong(row, packed.repository)]
    if len({row["instance_id"] for row in found}) < len(found):
        wrong.append("two rows have one name")
    if importlib.util.find_spec("swebench") is not None:
        from swebench.harness.utils import make_test_spec

        names = [make_test_spec(row).instance_id for row in found]
        wrong += [] if names == [row["instance_id"] for row in found] else ["the harness reads other names"]
    return len(found), tuple(wrong)


def why_wrong(row: dict[str, Any], repository: Repository) -> list[str]:
    """What is wrong with one row."""
    wrong = [f"column {name} is no text" for name in COLUMNS if not isinstance(row.get(name), str)]
    wrong += [f"{name} is empty" for name in ("patch", "test_patch", "problem_statement") if not row.get(name)]
    failing, passing = json.loads(row["FAIL_TO_PASS"]), json.loads(row["PASS_TO_PASS"])
    wrong += [] if failing and not {*failing} & {*passing} else ["its lists of tests are empty, or share some"]
    with tempfile.TemporaryDirectory() as made:
        folder = written(repository, Path(made))
        for patches, tree in (([row["bug_patch"]], "base_commit"), ([row["patch"], row["test_patch"]], "source_tree")):
            for patch in patches:
                done = subprocess.run(
                    ["git", "apply", "-"], cwd=folder, input=patch, text=True, capture_output=True, check=False
                )
                wrong += [f"git does not apply a patch: {done.stderr.strip()}"] if done.returncode else []
            wrong += [] if digest(folder) == row[tree] else [f"its patches do not lead to {tree}"]
    return wrong


def written(repository: Repository, folder: Path) -> Path:
    """The clean tree, in `folder`."""
    for path in repository.files:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes((repository.root / path).read_bytes())
    return folder


def digest(folder: Path) -> str:
    """Of what lies in it."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return digest_of({str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files})
