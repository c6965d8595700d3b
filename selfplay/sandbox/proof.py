"""Proves isolation by trying: inside one small sandbox it reaches out, forks, fills, reads and climbs, and says what
stopped it.

Covered: network, processes, memory, disk, size of a file, secrets of the host, privileges. Nothing is tried outside of
the sandbox, and its limits are small, so that a backend that does not hold them does little harm.

Not covered: exploits of the kernel, what a backend's threat model leaves out (`sandboxes/README.md`), printing.

Example:
    >>> [attempt.what for attempt in await prove(provider)][0]  # doctest: +SKIP
    'no route (network is unreachable): a network namespace of its own with lo only'
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from selfplay.sandbox import Sandbox, SandboxProvider, SandboxSpec
from selfplay.types import Result, record

SPEC = SandboxSpec(name="python", memory_mb=128, pids=64, tmpfs_mb=32, file_mb=8, ttl_seconds=120.0)
SECONDS = 20.0
"""For one attempt; each takes a fraction of it."""
_PROGRAM = Path(__file__).with_name("attempts.py")
Told = Mapping[str, Any]


@record
class Attempt:
    """One try, and what came of it."""

    name: str
    """What was tried, in one or two words."""
    stopped: bool
    what: str
    """What stopped it; or, where nothing did, what was reached."""


async def prove(provider: SandboxProvider) -> tuple[Attempt, ...]:
    """Every attempt in one sandbox of the backend, in a fixed order.

    Raises:
        SandboxInfraError, PolicyUnsupported: the backend failed, or gives no such sandbox.
    """
    sandbox = await provider.create(SPEC)
    try:
        return tuple([await _try(sandbox, provider, name) for name in JUDGES])
    finally:
        await sandbox.close()


async def _try(sandbox: Sandbox, provider: SandboxProvider, name: str) -> Attempt:
    limit = {"processes": SPEC.pids, "memory": SPEC.memory_mb, "disk": SPEC.tmpfs_mb, "file": SPEC.file_mb}.get(name, 0)
    argv = [provider.python, "-I", "-c", _PROGRAM.read_text(encoding="utf-8"), name, str(limit)]
    result = await sandbox.exec(argv, timeout_seconds=SECONDS)
    told = _last(result)
    if told is None:
        said = result.stderr.strip()[-200:] or f"exit code {result.exit_code}"
        return Attempt(name=name, stopped=False, what=f"the attempt ended without an answer: {said}")
    hard = provider.capabilities.limits == "hard"
    try:
        stopped, what = JUDGES[name](told, result, hard)
    except (KeyError, TypeError) as error:
        return Attempt(name=name, stopped=False, what=f"the attempt gave no proper answer: {error!r}")
    return Attempt(name=name, stopped=stopped, what=what)


def _last(result: Result) -> Told | None:
    """The last JSON object that was printed."""
    for line in reversed(result.stdout.splitlines()):
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if isinstance(told, dict):
            return told
    return None


def _network(told: Told, result: Result, hard: bool) -> tuple[bool, str]:
    others = [name for name in told["interfaces"] if name != "lo"]
    if told["reached"] or others:
        reached = f"it reaches {', '.join(told['reached'])}" if told["reached"] else "it reached nobody"
        return False, f"{reached}, by the interfaces {', '.join(told['interfaces'])}"
    return True, f"no route ({told['refused']}), no name resolved: a network namespace of its own with lo only"


def _processes(told: Told, result: Result, hard: bool) -> tuple[bool, str]:
    if not told["refused"]:
        return False, f"it forked {told['made']} times, and the limit is {SPEC.pids}"
    by = "the control group's limit of processes" if hard else "the limit of processes of its uid"
    return True, f"stopped after {told['made']} forks by {by} ({SPEC.pids})"


def _memory(told: Told, result: Result, hard: bool) -> tuple[bool, str]:
    taken = f"{told['megabytes']} MB"
    if told["refused"]:
        return True, f"stopped at {taken} by the limit of each process ({SPEC.memory_mb} MB)"
    if result.oom_killed or result.exit_code == 137:
        return True, f"stopped at {taken} by the kernel's out-of-memory killer (limit {SPEC.memory_mb} MB)"
    return False, f"it took {taken}, and the limit is {SPEC.memory_mb} MB"


def _disk(told: Told, result: Result, hard: bool) -> tuple[bool, str]:
    if told["refused"] and told["megabytes"] <= SPEC.tmpfs_mb:
        return True, f"stopped at {told['megabytes']} MB by the size of the tmpfs ({told['refused']})"
    return False, f"it wrote {told['megabytes']} MB into the work tree, whose size is {SPEC.tmpfs_mb} MB"


def _file(told: Told, result: Result, hard: bool) -> tuple[bool, str]:
    if told["refused"] and told["megabytes"] <= SPEC.file_mb:
        return True, f"stopped at {told['megabytes']} MB by the limit of a file ({told['refused']})"
    return False, f"it wrote a file of {told['megabytes']} MB, and the limit is {SPEC.file_mb} MB"


def _secrets(told: Told, result: Result, hard: bool) -> tuple[bool, str]:
    if told["read"]:
        return False, f"it reads {', '.join(told['read'])}"
    return True, f"/etc/shadow ({told['refused']}) and three more cannot be read"


def _privileges(told: Told, result: Result, hard: bool) -> tuple[bool, str]:
    if told["gained"] or told["new_privileges"]:
        gained = list(told["gained"]) + (["programs that raise privileges"] if told["new_privileges"] else [])
        return False, f"it gains {', '.join(gained)}"
    return True, f"no capability in any set, no root, no user namespace ({told['refused']})"


JUDGES: Mapping[str, Callable[[Told, Result, bool], tuple[bool, str]]] = {
    "network": _network,
    "processes": _processes,
    "memory": _memory,
    "disk": _disk,
    "file": _file,
    "secrets": _secrets,
    "privileges": _privileges,
}
"""What was tried -> how its answer is read."""
