"""One JSON file an arm and seed under `curricula/results/STUDY/`, and one that says what the study is.

Written whole or not at all, keys in a fixed order, so that a second run of an arm changes nothing but the clock.

Not here: what is in them (`measuring`), the page made of them (`page`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from selfplay.errors import UserError
from selfplay.study.spec import Arm, Study

ABOUT = "study.json"
OTHERS = ("study.json", "opened.json")
UNLIKE = "_unlike"
"""At the end of a name in a result's `looked`: of those tasks the bugs that are no procedural mutation."""


def path_of(study: Study, *, name: str, dev: bool) -> Path:
    """Where the result of `ARM-SEED` lies."""
    return (study.results / "dev" if dev else study.results) / f"{name}.json"


def put(path: Path, found: Mapping[str, Any]) -> None:
    """Write one."""
    whole(path, json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def whole(path: Path, text: str) -> None:
    """Write a file, so that nobody ever sees a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


def describe(study: Study) -> None:
    """Write what the page needs to know of the study."""
    point = study.endpoint
    put(
        study.results / ABOUT,
        {
            "about": study.about,
            "file": f"curricula/studies/{study.path.name}",
            "digest": study.digest,
            "budget": study.budget,
            "measure": f"pass@{point.k}",
            "attempts": point.attempts,
            "temperature": point.temperature,
            "tasks": point.tasks,
            "tasks_digest": point.digest,
            "compare": [list(pair) for pair in point.compare],
            "start": study.start,
            "start_seed": study.start_seed,
            **({"factors": {one.name: one.about for one in study.factors}} if study.factors else {}),
            "arms": [_described(arm, study) for arm in study.arms if arm.measured],
        },
    )


def _described(arm: Arm, study: Study) -> dict[str, Any]:
    found = {"name": arm.name, "about": arm.about, "start": arm.start, "digest": study.arm_digests[arm.name]}
    return found if arm.factors is None else {**found, "factors": list(arm.factors)}


def read(folder: Path) -> list[dict[str, Any]]:
    """All results in a folder, by name.

    Raises:
        UserError: a file is none.
    """
    found = []
    for path in sorted(folder.glob("*.json")):
        if path.name in OTHERS:
            continue
        try:
            row = json.loads(path.read_text(encoding="utf-8"))
            if row["schema"] != "selfplay.study/1":
                raise ValueError(f"its schema is {row['schema']}")
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} is no result of a study: {error}", hint="measure that arm again") from error
        found.append(row)
    return found


def find(study: Study, *, name: str, dev: bool) -> dict[str, Any] | None:
    """The result of `ARM-SEED`, where there is one that was measured with that arm as it is now."""
    try:
        found = json.loads(path_of(study, name=name, dev=dev).read_text(encoding="utf-8"))
        return dict(found) if found["arm_digest"] == study.arm_digests[found["arm"]] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
