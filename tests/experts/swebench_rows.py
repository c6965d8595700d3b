"""Exported rows, opened by the public harness: its loader takes the file, its specifications and its grading each row.

    selfplay export RUN --format swebench --to rows.jsonl
    python -m venv harness && harness/bin/pip install swebench==5.0.2
    harness/bin/python tests/experts/swebench_rows.py rows.jsonl

Needs the package `swebench` and nothing of this project, so it runs in an environment of the harness's own. Of each row
three logs are graded, written as pytest would print them: all tests pass (solved), those that failed fail still, one
that passed fails (not solved). Fails where the harness does not read a row as it was written. Not here: running a row's
script (`tests/games/code/test_swebench.py`), its patches (`tests.experts.export`).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

START, END = ">>>>> Start Test Output", ">>>>> End Test Output"


def log(passed: Sequence[str], failed: Sequence[str]) -> str:
    """What a row's script prints."""
    lines = [*(f"PASSED {test}" for test in passed), *(f"FAILED {test} - it fails" for test in failed)]
    return "\n".join([f"+ : '{START}'", *lines, f"+ : '{END}'", ""])


def wrong_in(row: Mapping[str, Any], gold: Mapping[str, str], folder: Path) -> Iterator[str]:
    """What the harness makes of a row that is not what the row says, in sentences."""
    from swebench.harness.grading import get_eval_report
    from swebench.harness.utils import make_test_spec

    spec = make_test_spec(dict(row))
    failing, passing = (json.loads(row[name]) for name in ("FAIL_TO_PASS", "PASS_TO_PASS"))
    if (spec.instance_id, spec.FAIL_TO_PASS, spec.PASS_TO_PASS) != (row["instance_id"], failing, passing):
        yield "its specification has another name or other tests"
    if not set(row["eval_script"].splitlines()) <= set(spec.eval_script.splitlines()):
        yield "its script lost a line"
    if gold["model_patch"] != row["patch"] or not row["problem_statement"]:
        yield "its gold patch is another, or nothing is said of the problem"
    logs = {"solved": (log([*failing, *passing], []), True), "untouched": (log(passing, failing), False)}
    if passing:
        logs["broken"] = (log([*failing, *passing[1:]], passing[:1]), False)
    for name, (text, solved) in logs.items():
        path = folder / f"{name}.log"
        path.write_text(text)
        report = get_eval_report(spec, dict(gold), str(path), True)[spec.instance_id]
        if not report["patch_successfully_applied"] or report["resolved"] is not solved:
            yield f"it is graded as {report['resolved']} where it is {name}"


def main(path: Path) -> int:
    """Open the file, and print what is wrong."""
    from swebench.harness.utils import get_predictions_from_file, load_swebench_dataset

    rows = load_swebench_dataset(str(path), "test")
    names = [row["instance_id"] for row in rows]
    again = load_swebench_dataset(str(path), "test", names[:1])
    wrong = [] if len(set(names)) == len(names) and [row["instance_id"] for row in again] == names[:1] else ["names"]
    golds = {one["instance_id"]: one for one in get_predictions_from_file("gold", str(path), "test")}
    with tempfile.TemporaryDirectory() as folder:
        for row in rows:
            found = wrong_in(row, golds[row["instance_id"]], Path(folder))
            wrong += [f"{row['instance_id']}: {why}" for why in found]
    print(f"{path}: {len(rows)} rows, {len(wrong)} things are wrong", *wrong, sep="\n  ")
    return 0 if rows and not wrong else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
