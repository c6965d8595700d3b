"""What a backend that calls itself isolated must keep away from what runs in it, and what it must bear of it.

Not covered: kernel exploits, side channels, and what a backend's threat model leaves out (`sandboxes/README.md`).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from selfplay.sandbox import ChannelLost, Sandbox, SandboxInfraError, SandboxProvider
from selfplay.sandbox.probes import SECONDS, Check, assert_raises, run_python, sandbox_of, sh


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


async def temporary_folders_are_limited(provider: SandboxProvider) -> None:
    """Filling /tmp and shared memory stops too, and leaves the sandbox usable."""
    script = "for d in /tmp /dev/shm; do for i in 1 2 3 4 5 6 7 8 9; do head -c 9000000 /dev/zero > $d/f$i; done; done"
    async with sandbox_of(provider, tmpfs_mb=16, memory_mb=256) as sandbox, _bounded(sandbox):
        result = await sh(
            sandbox, f"({script}) 2>/dev/null; cat /tmp/f* | wc -c; cat /dev/shm/f* | wc -c; rm /dev/shm/f*"
        )
        temporary, shared = (int(word) for word in result.stdout.split())
        assert temporary <= 16 << 20, result
        assert shared < 81_000_000, result


async def fork_bomb_is_self_inflicted(provider: SandboxProvider) -> None:
    """It ends with its deadline, or by its own confusion."""
    async with sandbox_of(provider, pids=50) as sandbox, _bounded(sandbox):
        await sandbox.exec(["sh", "-c", "bomb() { bomb | bomb & }; bomb; sleep 100"], timeout_seconds=1.0)


async def flood_of_output_is_cut(provider: SandboxProvider) -> None:
    """A hundred megabytes are counted, not kept; endless output ends with the deadline."""
    async with sandbox_of(provider) as sandbox, _bounded(sandbox):
        result = await sandbox.exec(
            ["head", "-c", "100000000", "/dev/zero"], timeout_seconds=SECONDS, output_limit=10_000
        )
        assert (result.exit_code, result.stdout_dropped) == (0, 100_000_000 - 10_000), result.exit_code
        endless = await sandbox.exec(["yes"], timeout_seconds=0.5, output_limit=1000)
        assert endless.timed_out, endless
        assert endless.stdout_dropped > 0, endless


async def ten_thousand_files_are_listed(provider: SandboxProvider) -> None:
    """They can be made, compared and left behind."""
    script = "for n in range(10_000): open(f'f{n}', 'w').write(str(n))"
    async with sandbox_of(provider) as sandbox, _bounded(sandbox):
        result = await run_python(sandbox, provider, script)
        assert result.exit_code == 0, result
        told = await sandbox.diff()
        assert len(told.changed) == 10_000, (len(told.changed), told.dropped)


async def pipe_for_a_file_is_refused(provider: SandboxProvider) -> None:
    """Nobody waits for its other end: it is refused when read, dropped when compared, replaced when written."""
    async with sandbox_of(provider) as sandbox, _bounded(sandbox):
        assert (await sh(sandbox, "mkfifo report.json && mkdir d && mkfifo d/x")).exit_code == 0
        await assert_raises(PermissionError, sandbox.get("report.json", max_bytes=100))
        assert dict((await sandbox.diff()).dropped) == {"d/x": "a pipe", "report.json": "a pipe"}
        waiting = await sandbox.exec(["cat", "report.json"], timeout_seconds=0.5)
        assert waiting.timed_out, waiting
        await sandbox.put({"report.json": b"{}"})
        assert await sandbox.get("report.json", max_bytes=100) == b"{}"


async def stopping_everything_is_self_inflicted(provider: SandboxProvider) -> None:
    """What the candidate stops and kills is its own; the command ends in time whatever stands still."""
    async with sandbox_of(provider) as sandbox, _bounded(sandbox):
        await sandbox.exec(["sh", "-c", "kill -STOP -1; exit 3"], timeout_seconds=1.0)
    async with sandbox_of(provider) as sandbox, _bounded(sandbox):
        await sandbox.exec(["sh", "-c", "kill -STOP $PPID; kill -STOP $$; exit 3"], timeout_seconds=1.0)
    async with sandbox_of(provider) as sandbox, _bounded(sandbox):
        await sandbox.exec(["sh", "-c", "kill -9 $PPID; sleep 100"], timeout_seconds=1.0)


async def served_process_that_kills_everything_is_lost(provider: SandboxProvider) -> None:
    """`kill -9 -1` of a served process is the candidate's doing, and costs the sandbox no more than the process."""
    async with sandbox_of(provider) as sandbox:
        script = "import os, sys; sys.stdin.readline(); os.kill(-1, 9); os.kill(os.getpid(), 9)"
        served = await sandbox.serve([provider.python, "-I", "-c", script])
        async with _bounded(sandbox):
            await assert_raises(ChannelLost, served.ask(b"go", timeout_seconds=SECONDS))
            await served.close()


@asynccontextmanager
async def _bounded(sandbox: Sandbox) -> AsyncIterator[None]:
    """What happens inside ends in time; after it the sandbox answers, or says itself that it is dead."""
    async with asyncio.timeout(2 * SECONDS):
        yield
        try:
            result = await sh(sandbox, "echo on")
        except SandboxInfraError:
            assert not await sandbox.alive(), "it calls itself alive, and does not answer"
            return
        assert result.stdout == "on\n", result


ISOLATION: tuple[Check, ...] = (
    network_is_unreachable,
    no_privilege_is_left,
    writes_outside_are_refused,
    host_is_out_of_sight,
    full_disk_is_self_inflicted,
    processes_are_limited,
    memory_is_limited,
    temporary_folders_are_limited,
    fork_bomb_is_self_inflicted,
    flood_of_output_is_cut,
    ten_thousand_files_are_listed,
    pipe_for_a_file_is_refused,
    stopping_everything_is_self_inflicted,
    served_process_that_kills_everything_is_lost,
)
