"""Bugs as tasks of Harbor, so that any of its agents can be run on them: one folder a task.

    task.toml            name, time limits, where the bug comes from
    instruction.md       what is broken, as the solver was told
    environment/         a Dockerfile, and the tree with the bug in repo/
    tests/               the tests as they were before they were weakened, and a script that writes reward 1 or 0
    solution/            the files of the clean tree, for the oracle

Source: harbor 0.22's `TaskPaths` and `TaskConfig` (schema 1.4). Reward 1: every test that the bug broke passes, and
every other that is known to reach the code. The run's own verdict looks at more (canaries, controls, a second run).

Not here: images; trajectories (`atif`).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfplay.exports.seam import BOTH, Asked, Made, Out, Simple
from selfplay.exports.tasks import bugs_of, packed_of, swebench_rows
from selfplay.types import Task

if TYPE_CHECKING:
    from selfplay.games.code.rejudge import Made as Bug
    from selfplay.games.code.swebench import Packed

AGENT_SECONDS, TEST_SECONDS = 1800.0, 600.0

_GRADE = '''"""Runs the tests in tests.json and writes 1 where all of them pass, else 0."""

import json
import sys
from pathlib import Path

import pytest

told = json.loads((Path(__file__).parent / "tests.json").read_text(encoding="utf-8"))


class Seen:
    def __init__(self):
        self.passed, self.failed = set(), set()

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)


seen = Seen()
pytest.main([*told["arguments"], "--rootdir", str(Path.cwd()), *told["files"]], plugins=[seen])
lacking = sorted(set(told["tests"]) - (seen.passed - seen.failed))
print("did not pass:", lacking)
Path(sys.argv[1]).write_text("0" if lacking else "1", encoding="utf-8")
'''

_TEST = """#!/bin/bash
# Harbor runs it in the container, where the tree is /testbed.
here="$(cd "$(dirname "$0")" && pwd)"
logs="${LOGS_DIR:-/logs/verifier}"
mkdir -p "$logs"
echo 0 > "$logs/reward.txt"
cd "${TESTBED:-/testbed}" || exit 1
if [ -d "$here/files" ]; then cp -R "$here/files/." .; fi
%(exports)s
export PYTHONPATH="%(paths)s"
python -s -P -B "$here/grade.py" "$logs/reward.txt"
"""

_SOLVE = """#!/bin/bash
here="$(cd "$(dirname "$0")" && pwd)"
cd "${TESTBED:-/testbed}" || exit 1
if [ -d "$here/files" ]; then cp -R "$here/files/." .; fi
%(removals)s
"""


def write_task(folder: Path, task: Task, row: Mapping[str, Any], *, packed: Packed) -> None:
    """One task; `row` is the task as SWE-bench has it.

    Raises:
        ValueError: the task is not of this tree.
    """
    from selfplay.games.code.artifact import contents
    from selfplay.games.code.rejudge import made_of

    made, repository = made_of(task, repository=packed.repository), packed.repository
    _tree(folder / "environment" / "repo", packed, made)
    clean = contents(repository, [*made.code, *made.tests])
    _texts(folder / "tests", _tests(row, packed))
    _texts(folder, {"task.toml": _toml(row), "instruction.md": _instruction(row)})
    _texts(folder / "environment", {"Dockerfile": _dockerfile(row)})
    gone = " ".join(shlex.quote(path) for path in made.code if clean[path] is None)
    _texts(folder / "solution", {"solve.sh": _SOLVE % {"removals": f"rm -f {gone}" if gone else ""}})
    _contents(folder / "tests" / "files", {path: clean[path] for path in made.tests})
    _contents(folder / "solution" / "files", {path: clean[path] for path in made.code})
    for script in (folder / "tests" / "test.sh", folder / "solution" / "solve.sh"):
        script.chmod(0o755)


def _tree(folder: Path, packed: Packed, made: Bug) -> None:
    """The tree with the bug, its tests as weakened."""
    repository = packed.repository
    found: dict[str, bytes | None] = {path: (repository.root / path).read_bytes() for path in repository.files}
    _contents(folder, {**found, **made.code, **made.tests})


def _tests(row: Mapping[str, Any], packed: Packed) -> dict[str, str]:
    from selfplay.games.code.suite import suite_of
    from selfplay.games.code.verify import variables

    suite = suite_of(packed.repository)
    tests = [*json.loads(row["FAIL_TO_PASS"]), *json.loads(row["PASS_TO_PASS"])]
    told = {
        "arguments": ["-rA", "--tb=line", "-p", "no:cacheprovider", "-c", "/dev/null", *suite.options],
        "files": sorted({test.partition("::")[0] for test in tests}),
        "tests": tests,
    }
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables().items())
    paths = ":".join(f"$PWD/{root}".rstrip("/") for root in suite.roots)
    return {
        "tests.json": json.dumps(told, indent=1) + "\n",
        "grade.py": _GRADE,
        "test.sh": _TEST % {"exports": exports, "paths": paths},
    }


def _toml(row: Mapping[str, Any]) -> str:
    text = _string
    kept = ("source", "source_tree", "base_commit", "created_at", "split", "task_id", "instance_id")
    return "\n".join(
        [
            'schema_version = "1.4"',
            "",
            "[task]",
            f"name = {text('selfplay/' + row['instance_id'])}",
            f"description = {text(row['problem_statement'].partition(chr(10))[0])}",
            'keywords = ["selfplay", "python", "bug"]',
            "",
            "[metadata]",
            *(f"{name} = {text(str(row[name]))}" for name in kept),
            "",
            "[agent]",
            f"timeout_sec = {AGENT_SECONDS}",
            "",
            "[verifier]",
            f"timeout_sec = {TEST_SECONDS}",
            "",
            "[environment]",
            "cpus = 1",
            "memory_mb = 2048",
            "",
        ]
    )


def _string(value: str) -> str:
    """A basic string of TOML: JSON's escapes are the same, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _instruction(row: Mapping[str, Any]) -> str:
    return (
        f"The repository in /testbed is broken. {row['problem_statement']}\n"
        "Repair the code so that these tests pass and the others still do. Do not change tests.\n"
    )


def _dockerfile(row: Mapping[str, Any]) -> str:
    needed = " ".join(shlex.quote(one) for one in row["requirements"])
    return "\n".join(
        [
            f"FROM python:{row['python']}-slim",
            f"RUN python -m pip install --no-cache-dir {needed}",
            "COPY repo /testbed",
            "WORKDIR /testbed",
            "",
        ]
    )


def _texts(folder: Path, files: Mapping[str, str]) -> None:
    _contents(folder, {path: text.encode() for path, text in files.items()})


def _contents(folder: Path, files: Mapping[str, bytes | None]) -> None:
    for path, content in files.items():
        if content is not None:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)


def _write(asked: Asked, out: Out) -> Made:
    tasks = {task.id: task for task in bugs_of(asked, what="tasks of Harbor")}
    packed = packed_of(asked)
    count = 0
    for row in swebench_rows(asked, list(tasks.values()), packed):
        task = tasks[row["task_id"]]
        write_task(out.folder / row["instance_id"], task, row, packed=packed[task.seed_id])
        count += 1
    return Made(count=count, left_out=len(tasks) - count, next="harbor run -p {to} -a oracle")


HARBOR = Simple(
    about="tasks that any agent of Harbor can be run on", noun="task", shape="folder", takes=BOTH, writer=_write
)
