"""Tasks of the code game as rows of SWE-bench, which its public harness can grade.

What is covered: the columns of the data set, the gold patch (buggy to clean), the tests that the weakening hides as
`test_patch`, and a script that runs the tests that decide, in the form that the harness (`swebench` 5) reads.
`base_commit` is a digest of the tree with the bug (`source.digest_of`): source archives have no commit, so that tree is
made of `source` and `bug_patch`, which both are columns. Where nothing was weakened, `test_patch` is empty.

What is not covered: images (`image` is empty: the harness wants one with the tree in `/testbed`), tests whose ids hold
white space, which the harness's log parser cuts (left out; a task whose failing tests all do gives no row).

Example:
    >>> [row["instance_id"] for row in rows(tasks, packed=packed)]  # doctest: +SKIP
    ['selfplay__toolz-1.2.0-5f0c1d3a9b7e']
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from selfplay.games.code.artifact import contents, diff_of
from selfplay.games.code.rejudge import made_of
from selfplay.games.code.source import Repository, digest_of
from selfplay.games.code.suite import suite_of
from selfplay.games.code.verify import variables
from selfplay.types import Task, record

TESTBED = "/testbed"
"""Where the harness has the tree."""


@record
class Packed:
    """What the rows of one run share."""

    repository: Repository
    """The clean tree."""
    requirements: tuple[str, ...]
    """`NAME==VERSION` of everything that its tests need."""
    created_at: str
    """ISO 8601."""


def rows(tasks: Sequence[Task], *, packed: Packed) -> Iterator[dict[str, Any]]:
    """A row a task, in order; tasks that the harness cannot grade are left out.

    Raises:
        ValueError: a task is not of this tree.
    """
    root = packed.repository.root
    hashes = {path: hashlib.sha256((root / path).read_bytes()).hexdigest() for path in packed.repository.files}
    for task in tasks:
        failing = [test for test, _ in task.payload["failing"] if gradable(test)]
        if failing:
            yield _row(task, failing, packed=packed, hashes=hashes)


def gradable(test: str) -> bool:
    """Can the harness's log parser read a test's id back?"""
    return not re.search(r"\s", test)


def _row(task: Task, failing: Sequence[str], *, packed: Packed, hashes: Mapping[str, str]) -> dict[str, Any]:
    payload, repository = task.payload, packed.repository
    made = made_of(task, repository=repository)
    clean = contents(repository, [*made.code, *made.tests])
    base = dict(hashes)
    for path, content in {**made.code, **made.tests}.items():
        base.pop(path, None)
        base |= {path: hashlib.sha256(content).hexdigest()} if content is not None else {}
    tests = [test for test in payload["tests"] if gradable(test)]
    name, _, version = repository.name.rpartition("-")
    return {
        "instance_id": f"selfplay__{repository.name}-{task.id[:12]}",
        "repo": f"selfplay/{name or version}",
        "version": version if name else "",
        "base_commit": digest_of(base),
        "environment_setup_commit": digest_of(base),
        "patch": diff_of(made.code, {path: clean[path] for path in made.code}),
        "test_patch": diff_of(made.tests, {path: clean[path] for path in made.tests}),
        "problem_statement": _statement(payload),
        "hints_text": "",
        "created_at": packed.created_at,
        "FAIL_TO_PASS": json.dumps(failing),
        "PASS_TO_PASS": json.dumps([test for test in tests if test not in failing]),
        "image": "",
        "eval_script": _script(repository, tests),
        "eval_type": "pass_and_fail",
        "log_parser": "parse_log_pytest",
        "source": repository.source,
        "source_tree": digest_of(hashes),
        "bug_patch": diff_of(clean, {**made.code, **made.tests}),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "requirements": list(packed.requirements),
        "environment": dict(variables()),
        "split": task.split,
        "task_id": task.id,
    }


def _statement(payload: Mapping[str, Any]) -> str:
    said = "\n".join(f"- {test}: {message}" for test, message in payload["failing"])
    # note: a bug that was planted with tools may be in several places, and tells them.
    [first, *others] = payload.get("touched") or [f"{payload['path']}::{payload['qualname']}"]
    path, _, name = first.partition("::")
    where = f"{path} and {len(others)} more" if others else path
    what = f"`{name}` in {where}" if name else where
    return f"{what} is broken. These tests fail:\n\n{said}\n"


def _script(repository: Repository, tests: Sequence[str]) -> str:
    """Runs whole files, as a missing id on the command line would end pytest before any test."""
    suite = suite_of(repository)
    roots = ":".join(f"{TESTBED}/{root}".rstrip("/") for root in suite.roots)
    files = sorted({test.partition("::")[0] for test in tests})
    words = ["python", "-s", "-P", "-B", "-m", "pytest", "-rA", "--tb=line", "-p", "no:cacheprovider"]
    # note: as the verifier: settings of the tree that a patch could change play no part.
    words += ["-c", "/dev/null", "--rootdir", TESTBED, *suite.options, *files]
    exports = [f"export {name}={shlex.quote(value)}" for name, value in variables().items()]
    return "\n".join(
        [
            "#!/bin/bash",
            "set -uxo pipefail",
            f"cd {TESTBED}",
            *exports,
            f"export PYTHONPATH={shlex.quote(roots)}",
            ": '>>>>> Start Test Output'",
            shlex.join(words),
            ": '>>>>> End Test Output'",
            "",
        ]
    )
