"""What every sandbox backend must do, as checks that a plug-in can run against its own provider.

Each check takes a provider, makes its own sandboxes, closes them, and raises AssertionError where the backend
breaks the contract. `lifecycle` holds the checks of what lasts (served processes, differences, the pool),
`isolation` what only a backend that calls itself isolated must do.

Not covered: speed, what happens when the engine dies (that needs a process to kill: the backends' own tests).

Example:
    >>> @pytest.mark.parametrize("check", checks_for(provider), ids=lambda check: check.__name__)
    ... async def test_contract(check):
    ...     await check(provider)
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import secrets
import tarfile
import tempfile
from pathlib import Path

from selfplay.sandbox import PolicyUnsupported, SandboxInfraError, SandboxProvider, SandboxSpec
from selfplay.sandbox.isolation import ISOLATION
from selfplay.sandbox.lifecycle import LIFECYCLE
from selfplay.sandbox.probes import (
    BEAT,
    SECONDS,
    Check,
    assert_gone,
    assert_raises,
    assert_still,
    run_python,
    sandbox_of,
    sh,
)


def checks_for(provider: SandboxProvider) -> tuple[Check, ...]:
    """The checks that apply to a backend of these capabilities."""
    return CONTRACT + ISOLATION if provider.capabilities.isolated else CONTRACT


async def command_is_reported(provider: SandboxProvider) -> None:
    """Exit code, both streams and the time come back."""
    async with sandbox_of(provider) as sandbox:
        result = await sh(sandbox, "echo out; echo err >&2; exit 3")
        assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n"), result
        assert not result.timed_out, result
        assert 0 < result.seconds < SECONDS, result


async def missing_command_is_a_result(provider: SandboxProvider) -> None:
    """A command or folder that does not exist is the candidate's doing, not the machine's."""
    async with sandbox_of(provider) as sandbox:
        assert (await sandbox.exec(["no-such-command"], timeout_seconds=SECONDS)).exit_code in (126, 127)
        result = await sandbox.exec(["true"], timeout_seconds=SECONDS, cwd="no/such/folder")
        assert result.exit_code not in (0, None), result


async def timeout_kills_children(provider: SandboxProvider) -> None:
    """After the deadline nothing of the command runs."""
    async with sandbox_of(provider) as sandbox:
        result = await sandbox.exec(["sh", "-c", f"({BEAT}) & wait"], timeout_seconds=1.0)
        assert result.timed_out, result
        assert result.exit_code is None, result
        assert 1.0 <= result.seconds < 10.0, result
        await assert_still(sandbox)


async def daemon_ends_with_its_command(provider: SandboxProvider) -> None:
    """A process that left the session does not outlive the command that started it."""
    async with sandbox_of(provider) as sandbox:
        result = await sh(sandbox, f"setsid sh -c '{BEAT}' >/dev/null 2>&1 & until test -s beat; do sleep 0.02; done")
        assert result.exit_code == 0, result
        await assert_still(sandbox)


async def daemon_does_not_survive_close(provider: SandboxProvider) -> None:
    """After `close` no process of the sandbox is left on the host, whatever it did to hide."""
    token = secrets.token_hex(16)
    async with sandbox_of(provider) as sandbox:
        # Where that is a process inside, the parent is killed too: a backend's wrapper may be it.
        victims = "$PPID $$" if provider.capabilities.isolated else "$$"
        daemon = f"setsid sh -c 'trap : TERM HUP; while :; do sleep 1; done' {token}"
        result = await sh(sandbox, f"{daemon} & sleep 0.3; kill -9 {victims}")
        assert (result.exit_code, result.timed_out) == (137, False), result
    await assert_gone(token)


async def output_is_cut_in_the_middle(provider: SandboxProvider) -> None:
    """Head and tail stay, the bytes between are counted."""
    async with sandbox_of(provider) as sandbox:
        script = "import sys; print('first'); sys.stdout.write('x' * 3_000_000); print('last')"
        result = await run_python(sandbox, provider, script, output_limit=10_000)
        assert result.stdout.startswith("first\n"), result.stdout[:50]
        assert result.stdout.endswith("last\n"), result.stdout[-50:]
        assert result.stdout_dropped == 3_000_011 - 10_000, result.stdout_dropped
        assert len(result.stdout) < 10_200, len(result.stdout)
        assert result.stderr_dropped == 0, result.stderr_dropped


async def signal_death_is_no_timeout(provider: SandboxProvider) -> None:
    """A command that kills itself ended by itself."""
    async with sandbox_of(provider) as sandbox:
        result = await sh(sandbox, "kill -9 $$")
        assert (result.exit_code, result.timed_out) == (137, False), result


async def killing_everything_is_self_inflicted(provider: SandboxProvider) -> None:
    """`kill -9 -1` is a result, and the sandbox goes on."""
    if not provider.capabilities.isolated:
        return
    async with sandbox_of(provider) as sandbox:
        result = await sh(sandbox, "(sleep 100 & sleep 100) & kill -9 -1; exit 5")
        assert not result.timed_out, result
        assert (await sh(sandbox, "echo on")).stdout == "on\n"


async def big_stdin_arrives_whole(provider: SandboxProvider) -> None:
    """Megabytes arrive; a command that does not read them is not harmed."""
    payload = os.urandom(5_000_000)
    async with sandbox_of(provider) as sandbox:
        script = "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
        result = await run_python(sandbox, provider, script, stdin=payload)
        assert result.stdout.strip() == hashlib.sha256(payload).hexdigest(), result
        ignored = await sandbox.exec(["true"], timeout_seconds=SECONDS, stdin=payload)
        assert ignored.exit_code == 0, ignored
        assert (await sandbox.exec(["cat"], timeout_seconds=SECONDS)).stdout == "", "stdin is not empty"


async def bytes_that_are_no_text(provider: SandboxProvider) -> None:
    """Output that is not UTF-8 is replaced, and file names that are not are kept."""
    async with sandbox_of(provider) as sandbox:
        result = await sh(sandbox, r"printf 'a\377b'")
        assert result.stdout == "a\ufffdb", result
        name = os.fsdecode(b"n\xff.txt")
        await sandbox.put({name: b"\x00\xff"})
        assert await sandbox.get(name, max_bytes=10) == b"\x00\xff"


async def files_go_in_and_out(provider: SandboxProvider) -> None:
    """Parents are made, files are replaced, limits hold, absence is told."""
    async with sandbox_of(provider) as sandbox:
        await sandbox.put({"a/b/c.bin": bytes(range(256)), "d.txt": b"one"})
        await sandbox.put({"d.txt": b"two"})
        assert await sandbox.get("a/b/c.bin", max_bytes=256) == bytes(range(256))
        assert await sandbox.get("/workspace/d.txt", max_bytes=3) == b"two"
        assert (await sh(sandbox, "cat d.txt && echo more >> d.txt && rm a/b/c.bin")).exit_code == 0
        await assert_raises(ValueError, sandbox.get("d.txt", max_bytes=3))
        await assert_raises(FileNotFoundError, sandbox.get("a/b/c.bin", max_bytes=3))
        await assert_raises(FileNotFoundError, sandbox.get("no/where", max_bytes=3))


async def odd_files_are_refused(provider: SandboxProvider) -> None:
    """No link, pipe, folder or climbing path is read or written through."""
    async with sandbox_of(provider) as sandbox:
        script = "echo x > real; mkdir folder; ln -s real link; ln -s folder linked; echo y > folder/file; mkfifo pipe"
        assert (await sh(sandbox, f"{script}; ln -s /etc/passwd out; ln -s /dev/zero device")).exit_code == 0
        for path in ("link", "linked/file", "pipe", "folder", "out", "device", "../workspace/real", "/dev/zero"):
            await assert_raises(PermissionError, sandbox.get(path, max_bytes=1000))
        for path in ("linked/new", "folder", "../up", "/absolute"):
            await assert_raises(PermissionError, sandbox.put({path: b"z"}))
        await sandbox.put({"link": b"no longer a link", "pipe": b"no longer a pipe"})
        assert await sandbox.get("real", max_bytes=10) == b"x\n"
        assert await sandbox.get("pipe", max_bytes=100) == b"no longer a pipe"


async def environment_is_clean(provider: SandboxProvider) -> None:
    """Nothing of the host's environment is seen; the spec's and the command's variables are."""
    secret = secrets.token_hex(8)
    os.environ["SELFPLAY_CONFORMANCE_SECRET"] = secret
    try:
        async with sandbox_of(provider, env={"OF_SPEC": "1", "BOTH": "spec"}) as sandbox:
            result = await sandbox.exec(["env"], timeout_seconds=SECONDS, env={"OF_EXEC": "2", "BOTH": "exec"})
    finally:
        del os.environ["SELFPLAY_CONFORMANCE_SECRET"]
    assert secret not in result.stdout, result.stdout
    lines = result.stdout.splitlines()
    assert {"OF_SPEC=1", "OF_EXEC=2", "BOTH=exec"} <= set(lines), lines


async def state_lasts_from_command_to_command(provider: SandboxProvider) -> None:
    """Work tree and temporary files stay until `close`; a relative `cwd` is below the work tree."""
    async with sandbox_of(provider) as sandbox:
        assert (await sh(sandbox, 'mkdir sub && echo 1 > sub/file && echo 2 > "${TMPDIR:-/tmp}/kept"')).exit_code == 0
        result = await sandbox.exec(["sh", "-c", 'cat file "${TMPDIR:-/tmp}/kept"'], timeout_seconds=SECONDS, cwd="sub")
        assert result.stdout == "1\n2\n", result


async def archive_is_unpacked(provider: SandboxProvider) -> None:
    """The work tree holds the archive, ready to be written."""
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "tree.tar"
        with tarfile.open(archive, "w") as tar:
            member = tarfile.TarInfo("package/module.py")
            member.size = 6
            tar.addfile(member, io.BytesIO(b"X = 1\n"))
        async with sandbox_of(provider, archive=str(archive)) as sandbox:
            result = await sh(sandbox, "cat package/module.py && echo more >> package/module.py && ls")
            assert (result.exit_code, result.stdout) == (0, "X = 1\npackage\n"), result
        archive.write_bytes(b"this is not a tar file" * 100)
        await assert_raises(SandboxInfraError, provider.create(SandboxSpec(name="python", archive=str(archive))))
        await assert_raises(
            SandboxInfraError, provider.create(SandboxSpec(name="python", archive=f"{folder}/none.tar"))
        )


async def tests_are_run_and_reported(provider: SandboxProvider) -> None:
    """The interpreter has pytest with its JSON report."""
    async with sandbox_of(provider) as sandbox:
        await sandbox.put({"test_it.py": b"def test_good(): pass\ndef test_bad(): assert 1 == 2\n"})
        argv = [provider.python, "-I", "-m", "pytest", "-q", "--json-report", "--json-report-file=report.json"]
        result = await sandbox.exec(argv, timeout_seconds=60.0)
        assert result.exit_code == 1, result
        report = json.loads(await sandbox.get("report.json", max_bytes=1 << 20))
        outcomes = {test["nodeid"]: test["outcome"] for test in report["tests"]}
        assert outcomes == {"test_it.py::test_good": "passed", "test_it.py::test_bad": "failed"}, outcomes


async def close_is_final(provider: SandboxProvider) -> None:
    """Closing twice is nothing; using a closed sandbox is an error of ours; a running command ends."""
    sandbox = await provider.create(SandboxSpec(name="python"))
    running = asyncio.create_task(sandbox.exec(["sleep", "100"], timeout_seconds=200.0))
    await asyncio.sleep(0.3)
    await sandbox.close()
    await sandbox.close()
    async with asyncio.timeout(20.0):
        await assert_raises(SandboxInfraError, running)
    await assert_raises(SandboxInfraError, sandbox.exec(["true"], timeout_seconds=1.0))
    await assert_raises(SandboxInfraError, sandbox.put({"a": b""}))
    await assert_raises(SandboxInfraError, sandbox.get("a", max_bytes=1))


async def cancelled_command_ends(provider: SandboxProvider) -> None:
    """A command whose awaiting task is cancelled does not go on once the sandbox is closed."""
    token = secrets.token_hex(16)
    async with sandbox_of(provider) as sandbox:
        running = asyncio.create_task(
            sandbox.exec(["sh", "-c", "while :; do sleep 1; done", token], timeout_seconds=100.0)
        )
        await asyncio.sleep(0.3)
        running.cancel()
        await assert_raises(asyncio.CancelledError, running)
    await assert_gone(token)


async def two_sandboxes_are_apart(provider: SandboxProvider) -> None:
    """Neither sees the other's work tree."""
    async with sandbox_of(provider) as one, sandbox_of(provider) as other:
        assert one.id != other.id
        await one.put({"mine": b"1"})
        await sh(one, 'echo 1 > "${TMPDIR:-/tmp}/mine"')
        result = await sh(other, 'ls; ls "${TMPDIR:-/tmp}"')
        assert "mine" not in result.stdout, result


async def large_file_is_refused(provider: SandboxProvider) -> None:
    """No file grows beyond the spec's limit."""
    async with sandbox_of(provider, file_mb=2) as sandbox:
        result = await sh(sandbox, "head -c 9000000 /dev/zero > big; wc -c < big")
        assert int(result.stdout) <= 2 << 20, result


async def policy_is_kept_or_refused(provider: SandboxProvider) -> None:
    """A network that cannot be given is refused before anything is made."""
    try:
        sandbox = await provider.create(SandboxSpec(name="python", network="public"))
    except PolicyUnsupported:
        return
    await sandbox.close()


CONTRACT: tuple[Check, ...] = (
    command_is_reported,
    missing_command_is_a_result,
    timeout_kills_children,
    daemon_ends_with_its_command,
    daemon_does_not_survive_close,
    output_is_cut_in_the_middle,
    signal_death_is_no_timeout,
    killing_everything_is_self_inflicted,
    big_stdin_arrives_whole,
    bytes_that_are_no_text,
    files_go_in_and_out,
    odd_files_are_refused,
    environment_is_clean,
    state_lasts_from_command_to_command,
    archive_is_unpacked,
    tests_are_run_and_reported,
    close_is_final,
    cancelled_command_ends,
    two_sandboxes_are_apart,
    large_file_is_refused,
    policy_is_kept_or_refused,
    *LIFECYCLE,
)
