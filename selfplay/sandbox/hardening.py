"""How a container is locked down, labelled and given its environment; and how its labels are read again.

The settings are one function each of the spec, so that they can be read, and checked, in one place.

Not covered: making the container (`docker`), the user it runs as (`channel`).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Any

from selfplay.sandbox import Left, SandboxSpec
from selfplay.sandbox.environment import INSIDE
from selfplay.sandbox.process import Owner

_PREFIX = "selfplay."
OWNER, EXPIRES = f"{_PREFIX}owner", f"{_PREFIX}expires"
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
    labels = {f"{_PREFIX}{key}": value for key, value in spec.labels.items()}
    now = time.time()
    return labels | {
        OWNER: str(Owner.here()),
        f"{_PREFIX}created": f"{now:.0f}",
        EXPIRES: f"{now + spec.ttl_seconds:.0f}",
    }


def environment_of(spec: SandboxSpec) -> dict[str, str]:
    """The variables that every command of the container has."""
    path = f"{INSIDE}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": path, "HOME": "/tmp", "LANG": "C.UTF-8", **spec.env}


ERRORS: Mapping[int, type[Exception]] = {44: FileNotFoundError, 45: PermissionError, 46: ValueError}
"""What the agent's numbers stand for; any other is the machine's fault."""


def left_of(found: Mapping[str, Any], *, backend: str, now: float) -> Left:
    """A container of the engine's list, as the reaper sees it.

    An owner on this host is asked for, whatever the clock says; of any other, the time to live decides.
    """
    labels: dict[str, str] = dict(found["Labels"])
    owner = Owner.parse(labels.get(OWNER, ""))
    expires = labels.get(EXPIRES, "")
    late = expires.isdecimal() and int(expires) < now
    here = owner is not None and owner.host == socket.gethostname()
    own = {key.removeprefix(_PREFIX): value for key, value in labels.items() if key.startswith(_PREFIX)}
    return Left(
        id=str(found["Names"][0]).lstrip("/") if found.get("Names") else str(found["Id"]),
        backend=backend,
        owner=own.pop("owner", ""),
        dead=owner.dead() if owner is not None and here else late,
        state=str(found["State"]),
        age_seconds=max(0.0, now - float(found["Created"])),
        labels={key: value for key, value in own.items() if key not in ("created", "expires")},
    )
