"""The command lines that make a bubblewrap sandbox: pure functions of spec and host, nothing is started here.

Three of them: the *holder* (a mount namespace with the sandbox's folders in it), the way *in* (from the host,
as a nobody, into fresh namespaces), and the *inside* (the sandbox's own root, environment and limits).

Not covered: running them (`bubblewrap`).
"""

from __future__ import annotations

import contextlib
import functools
import glob
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from selfplay.sandbox import SandboxInfraError, SandboxSpec
from selfplay.sandbox.environment import EMPTY, INSIDE
from selfplay.sandbox.process import Owner, limit_argv
from selfplay.types import record

SANDBOX_UID = 61111
"""The host uid that sandboxes of a root engine run under: in no range that Debian, systemd or Docker hands out."""
INSIDE_UID = 1000
TOOLS = ("bwrap", "cat", "nsenter", "prlimit", "tar")
WORK, SCRATCH = "/tmp/work", "/tmp/scratch"
"""Where the holder's mount namespace has what the sandbox sees as its work tree and its /tmp."""
OWNER_MARK, ID_MARK, LABELS_MARK = "SELFPLAY_OWNER", "SELFPLAY_SANDBOX", "SELFPLAY_LABELS"
"""Variables that our bubblewrap processes carry among their arguments, by which they are found again."""
_PREFIX, _ENVIRONMENT = "/tmp/prefix", "/tmp/environment"
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_LOADER_CACHE = "/etc/ld.so.cache"
_SMALL_BYTES = 1 << 20
_SHARED_BYTES = 64 << 20


def tool(name: str) -> str:
    """The path of a host program.

    Raises:
        SandboxInfraError: it is not installed.
    """
    path = shutil.which(name)
    if path is None:
        raise SandboxInfraError(f"sandbox `bubblewrap` needs `{name}`", hint="apt-get install -y bubblewrap util-linux")
    return path


def holder_argv(spec: SandboxSpec, *, sandbox_id: str, environment: Path, root: bool, info_fd: int) -> list[str]:
    """A process that keeps a mount namespace with the work tree, /tmp, the interpreter and the tools in it.

    It is made by whoever runs the engine, so it reaches folders that the nobody of a sandbox could not. Of the host it
    has what the way in needs and no more: /usr and the loader's links, /proc and /dev; no /etc, no home, no /var.
    """
    size = str(spec.tmpfs_mb << 20)
    argv = [tool("bwrap"), "--die-with-parent", "--info-fd", str(info_fd)]
    argv += [*_marks(sandbox_id), "--setenv", LABELS_MARK, json.dumps(dict(spec.labels))]
    if not root:
        argv.append("--unshare-user")
    argv += [*_usr(), "--dev-bind", "/dev", "/dev", "--dev-bind", "/proc", "/proc"]
    for path in sorted({os.path.realpath(tool(name)) for name in TOOLS}):
        if not path.startswith(("/usr/", *(f"/{name}/" for name in _LINKS))):
            argv += ["--ro-bind", path, path]
    if os.path.exists(_LOADER_CACHE):
        argv += ["--perms", "0755", "--dir", "/etc", "--ro-bind", _LOADER_CACHE, _LOADER_CACHE]
    argv += ["--perms", "0755", "--size", str(_SMALL_BYTES), "--tmpfs", "/tmp"]
    argv += ["--perms", "0755", "--size", size, "--tmpfs", WORK]
    argv += ["--perms", "1777", "--size", size, "--tmpfs", SCRATCH]
    argv += ["--ro-bind", str(environment), _ENVIRONMENT]
    prefix = _prefix()
    if prefix is not None:
        argv += ["--ro-bind", prefix, _PREFIX]
    return [*argv, "--remount-ro", "/", "--", tool("cat")]


def enter_argv(sandbox_id: str, *, mount_fd: int, user_fd: int | None, status_fd: int) -> list[str]:
    """From the host into the holder's mount namespace and on into fresh namespaces; `inside_argv` follows.

    `user_fd` is the holder's user namespace; None for a root engine, which has none and drops its uid instead.
    """
    # note: by way of our own /proc entry, so that the command inherits no descriptor of a namespace.
    ours = f"/proc/{os.getpid()}/fd"
    argv = [tool("nsenter"), f"--mount={ours}/{mount_fd}"]
    if user_fd is None:
        # note: nsenter drops the supplementary groups with these; `setpriv` would be another program to start.
        argv += [f"--setuid={SANDBOX_UID}", f"--setgid={SANDBOX_UID}"]
    else:
        argv += [f"--user={ours}/{user_fd}", "--preserve-credentials"]
    argv += ["--", tool("bwrap"), "--json-status-fd", str(status_fd), "--die-with-parent", "--new-session"]
    argv += ["--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL"]
    # note: the marks are for the reaper, which reads arguments; `--clearenv` takes them from the command.
    argv += [*_marks(sandbox_id), "--clearenv"]
    return [*argv, "--uid", str(INSIDE_UID), "--gid", str(INSIDE_UID), "--hostname", "sandbox"]


def inside_argv(
    spec: SandboxSpec, argv: Sequence[str], *, timeout_seconds: float, cwd: str | None, env: Mapping[str, str]
) -> list[str]:
    """The sandbox's own root, environment and limits, then the command.

    Raises:
        ValueError: there is no command.
    """
    if not argv:
        raise ValueError("no command")
    command = [*_usr(), "--ro-bind", _ENVIRONMENT, INSIDE, "--ro-bind", f"{_ENVIRONMENT}/etc", "/etc"]
    if os.path.exists(_LOADER_CACHE):
        command += ["--ro-bind", _LOADER_CACHE, _LOADER_CACHE]
    prefix = _prefix()
    if prefix is not None:
        command += ["--ro-bind", _PREFIX, prefix]
    for folder in _installed():
        command += ["--ro-bind", f"{_ENVIRONMENT}/{EMPTY}", folder]
    command += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
    command += ["--perms", "1777", "--size", str(_SHARED_BYTES), "--tmpfs", "/dev/shm"]
    command += ["--bind", SCRATCH, "/tmp", "--bind", WORK, spec.workdir, "--remount-ro", "/", "--chdir", spec.workdir]
    base = {"PATH": f"{INSIDE}/bin:/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}
    for key, value in {**base, **spec.env, **env}.items():
        command += ["--setenv", key, value]
    # note: no `timeout` behind it, as `local` has: it would cost 1.3 ms a command. One that lost its parent-death
    # signal, because the engine was killed in the millisecond before bubblewrap asked for it, burns processor time up
    # to its limit, and sleeps no longer than until the next engine starts, which finds it by its marks.
    command += ["--", *limit_argv(spec, timeout_seconds=timeout_seconds, processes=True)]
    if cwd is not None:
        # note: not `--chdir`, whose failure would read as bubblewrap's although the candidate removed the folder.
        command += ["env", f"--chdir={cwd}", "--"]
    return [*command, *argv]


def told(status: bytes, name: str) -> int | None:
    """A number out of bubblewrap's status lines; None where it was not told.

    `child-pid` is the host's number of the first process inside, `exit-code` the command's own: without one
    bubblewrap failed or was killed.
    """
    for line in status.splitlines():
        with contextlib.suppress(ValueError, AttributeError):
            value = json.loads(line).get(name)
            if value is not None:
                return int(value)
    return None


@record
class Marks:
    """What a bubblewrap process of ours carries in its arguments."""

    owner: Owner
    id: str
    labels: Mapping[str, str]
    """Empty but for a holder."""


def marks_of(argv: Sequence[str]) -> Marks | None:
    """The marks among the arguments of a process; None where it is none of ours."""
    if not (argv and argv[0].endswith("bwrap") and OWNER_MARK in argv and ID_MARK in argv):
        return None
    owner = Owner.parse(argv[argv.index(OWNER_MARK) + 1])
    labels = json.loads(argv[argv.index(LABELS_MARK) + 1]) if LABELS_MARK in argv else {}
    return None if owner is None else Marks(owner=owner, id=argv[argv.index(ID_MARK) + 1], labels=labels)


def _marks(sandbox_id: str) -> list[str]:
    return ["--setenv", OWNER_MARK, str(Owner.here()), "--setenv", ID_MARK, sandbox_id]


def _prefix() -> str | None:
    """Where the interpreter lies, if not in /usr, which is there anyway."""
    prefix = os.path.realpath(sys.base_prefix)
    return None if prefix == "/usr" or prefix.startswith("/usr/") else prefix


@functools.cache
def _installed() -> tuple[str, ...]:
    """Where the host keeps what was installed for Python: covered, for the repository under play may be there."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    patterns = [f"{root}/lib/python3*/{kind}-packages" for root in ("/usr", "/usr/local") for kind in ("dist", "site")]
    prefix = _prefix()
    if prefix is not None:
        patterns.append(f"{prefix}/lib/{version}/site-packages")
    return tuple(sorted({path for pattern in patterns for path in glob.glob(pattern) if os.path.isdir(path)}))


def _usr() -> list[str]:
    """`/usr`, and the top-level names by which programs and their loader reach into it."""
    argv = ["--ro-bind", "/usr", "/usr"]
    for name in _LINKS:
        path = f"/{name}"
        if os.path.islink(path):
            argv += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            argv += ["--ro-bind", path, path]
    return argv
