"""How a container is locked down, labelled and given its environment; and the scripts by which files go in and out.

The settings are one function each of the spec, so that they can be read, and checked, in one place.

Not covered: making the container (`docker`), the user it runs as (`channel`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from selfplay.sandbox import SandboxSpec
from selfplay.sandbox.environment import INSIDE
from selfplay.sandbox.process import Owner

OWNER, EXPIRES = "selfplay.owner", "selfplay.expires"
"""Labels by which the reaper knows its own."""


def host_config(api: Any, spec: SandboxSpec) -> dict[str, Any]:
    """No network, no capability, no new privilege, read-only root, hard limits; seccomp stays the engine's default."""
    tmpfs = f"rw,exec,nosuid,nodev,size={spec.tmpfs_mb}m"
    config: dict[str, Any] = api.create_host_config(
        network_mode="none",
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        read_only=True,
        ipc_mode="private",
        tmpfs={"/tmp": f"{tmpfs},mode=1777", spec.workdir: f"{tmpfs},mode=0755,uid=10001,gid=10001"},
        mem_limit=spec.memory_mb << 20,
        memswap_limit=spec.memory_mb << 20,
        pids_limit=spec.pids,
        nano_cpus=int(spec.cpus * 1e9),
        init=True,
        log_config={"Type": "none"},
        ulimits=[
            {"Name": "nofile", "Soft": 1024, "Hard": 1024},
            {"Name": "core", "Soft": 0, "Hard": 0},
            {"Name": "fsize", "Soft": spec.file_mb << 20, "Hard": spec.file_mb << 20},
        ],
    )
    return config


def labels_of(spec: SandboxSpec) -> dict[str, str]:
    """The spec's labels, and who made the container and when it may be removed in any case."""
    labels = {f"selfplay.{key}": value for key, value in spec.labels.items()}
    now = time.time()
    return labels | {
        OWNER: str(Owner.here()),
        "selfplay.created": f"{now:.0f}",
        EXPIRES: f"{now + spec.ttl_seconds:.0f}",
    }


def environment_of(spec: SandboxSpec) -> dict[str, str]:
    """The variables that every command of the container has."""
    path = f"{INSIDE}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": path, "HOME": "/tmp", "LANG": "C.UTF-8", **spec.env}


ERRORS: Mapping[int, type[Exception]] = {44: FileNotFoundError, 45: PermissionError, 46: ValueError}
_HEAD = """
import json, sys

def answer(do):
    try:
        do(os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY))
    except (FileNotFoundError, PermissionError, ValueError) as error:
        print(error, file=sys.stderr)
        sys.exit(44 if isinstance(error, FileNotFoundError) else 45 if isinstance(error, PermissionError) else 46)
"""
GET = (
    _HEAD
    + """
def get(root):
    path, max_bytes = json.load(sys.stdin)
    sys.stdout.buffer.write(read_file(root, path, max_bytes=max_bytes))

answer(get)
"""
)
PUT = (
    _HEAD
    + """
def put(root):
    while line := sys.stdin.buffer.readline():
        path, size = json.loads(line)
        write_files(root, {path: sys.stdin.buffer.read(size)})

answer(put)
"""
)
