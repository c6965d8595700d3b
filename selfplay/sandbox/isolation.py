"""What a backend that calls itself isolated must keep away from what runs in it: the second half of `conformance`.

Not covered: kernel exploits, side channels, and what a backend's threat model leaves out (`sandboxes/README.md`).
"""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

from selfplay.sandbox import SandboxProvider
from selfplay.sandbox.probes import SECONDS, Check, run_python, sandbox_of, sh


async def network_is_unreachable(provider: SandboxProvider) -> None:
    """Only the loopback interface is there, and nothing beyond it answers."""
    script = """
import socket
print(sorted(name for _, name in socket.if_nameindex()))
for family, address in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
    try:
        socket.socket(family, socket.SOCK_DGRAM).connect((address, 53))
    except OSError:
        continue
    print("reached", address)
"""
    async with sandbox_of(provider) as sandbox:
        result = await run_python(sandbox, provider, script)
        assert result.stdout == "['lo']\n", result


async def no_privilege_is_left(provider: SandboxProvider) -> None:
    """No capability, none to be gained, no host secret to be read, not root."""
    script = """
import os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
assert all(int(status[name], 16) == 0 for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")), status
assert status["NoNewPrivs"].strip() == "1"
assert os.getuid() != 0 and os.geteuid() != 0 and os.getgid() != 0
for path in ("/etc/shadow", "/etc/sudoers", "/proc/kcore", "/dev/mem", "/dev/sda", "/dev/vda"):
    try:
        open(path, "rb").read(1)
    except OSError:
        continue
    raise SystemExit(f"{path} can be read")
"""
    async with sandbox_of(provider) as sandbox:
        result = await run_python(sandbox, provider, script)
        assert result.exit_code == 0, result
        nested = await sandbox.exec(["unshare", "--user", "--map-root-user", "true"], timeout_seconds=SECONDS)
        assert nested.exit_code != 0, "it can make itself root of a new user namespace"


async def writes_outside_are_refused(provider: SandboxProvider) -> None:
    """Only the work tree, the temporary folder and shared memory are writable."""
    places = "/ /usr /usr/bin /etc /opt /opt/selfplay/env /dev /proc /root /home /var /srv"
    script = f'for p in {places}; do touch "$p/selfplay-was-here" 2>/dev/null && echo "$p"; done; exit 0'
    async with sandbox_of(provider) as sandbox:
        result = await sh(sandbox, script)
        assert result.stdout == "", result
        python = await sh(sandbox, f"echo '#' >> {provider.python}; echo '#' >> /usr/bin/env")
        assert python.exit_code != 0, python


async def host_is_out_of_sight(provider: SandboxProvider) -> None:
    """No process and no home folder of the host, nor of another sandbox, is seen."""
    token = secrets.token_hex(16)
    async with sandbox_of(provider) as one, sandbox_of(provider) as other:
        running = asyncio.create_task(one.exec(["sh", "-c", "sleep 100; :", token], timeout_seconds=100.0))
        await asyncio.sleep(0.3)
        result = await sh(other, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; ls -d /proc/[0-9]* | wc -l")
        assert token not in result.stdout, result
        assert int(result.stdout.split()[-1]) < 12, result
        # The folder of this very file, on the host.
        hidden = await sh(other, f"ls '{Path(__file__).parent}'")
        assert hidden.exit_code != 0, hidden
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def full_disk_is_self_inflicted(provider: SandboxProvider) -> None:
    """Filling the work tree stops at its size and leaves the sandbox usable."""
    async with sandbox_of(provider, tmpfs_mb=8) as sandbox:
        result = await sh(
            sandbox, "for i in 1 2 3 4 5; do head -c 3000000 /dev/zero > f$i || break; done; cat f* | wc -c"
        )
        assert int(result.stdout.split()[-1]) <= 8 << 20, result
        assert (await sh(sandbox, "rm f*; echo on > f && cat f")).stdout == "on\n"


async def processes_are_limited(provider: SandboxProvider) -> None:
    """A fork bomb runs into the limit, and only itself."""
    script = """
import os, time
made = 0
try:
    while made < 500:
        if os.fork() == 0:
            time.sleep(100)
        made += 1
except OSError:
    pass
print(made)
"""
    async with sandbox_of(provider, pids=40) as sandbox, sandbox_of(provider, pids=40) as other:
        result = await run_python(sandbox, provider, script)
        assert 0 < int(result.stdout.split()[0]) < 40, result
        assert (await sh(other, "echo on")).stdout == "on\n"
        assert (await sh(sandbox, "echo on")).stdout == "on\n"


async def memory_is_limited(provider: SandboxProvider) -> None:
    """A process that takes too much ends, by error or by signal; the sandbox goes on."""
    async with sandbox_of(provider, memory_mb=128) as sandbox:
        result = await run_python(sandbox, provider, "b = bytearray(1_000_000_000); print('has it')")
        assert result.exit_code != 0, result
        assert "has it" not in result.stdout, result
        if provider.capabilities.limits == "hard":
            assert result.oom_killed, result
        assert (await sh(sandbox, "echo on")).stdout == "on\n"


ISOLATION: tuple[Check, ...] = (
    network_is_unreachable,
    no_privilege_is_left,
    writes_outside_are_refused,
    host_is_out_of_sight,
    full_disk_is_self_inflicted,
    processes_are_limited,
    memory_is_limited,
)
