"""An engine that stops, stalls, fails, loses its image or fills its disk: each for real, on an engine of its own.

The engine has its own socket, folders and a small loop-mounted disk, so that the system's is left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import docker.errors
import pytest

from selfplay.errors import NotReady
from selfplay.sandbox import SandboxInfraError, SandboxSpec
from selfplay.sandbox import engine as calls
from selfplay.sandbox.docker import DockerProvider
from selfplay.sandbox.hardening import OWNER
from selfplay.sandbox.image import reach
from selfplay.sandbox.process import Owner

pytestmark = [
    pytest.mark.docker,
    # The client library leaves its socket open where an engine goes away between two requests.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

IMAGE = "selfplay-tiny:1"
SPEC = SandboxSpec(name="python", tmpfs_mb=16, memory_mb=256)
HOLDER = """
import asyncio
from selfplay.sandbox import SandboxSpec
from selfplay.sandbox.docker import DockerProvider
async def main():
    provider = DockerProvider(image="selfplay-tiny:1")
    spec = SandboxSpec(name="python", tmpfs_mb=16)
    sandboxes = await asyncio.gather(*(provider.create(spec) for _ in range(20)))
    running = [asyncio.create_task(one.exec(["sleep", "1000"], timeout_seconds=2000.0)) for one in sandboxes]
    await asyncio.sleep(0.5)
    print(*(sandbox.id for sandbox in sandboxes), flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""
TOOLS = ("sh", "sleep", "grep", "cat", "true", "tar", "chmod", "ls")
PYTHON_FILES = """
import os, select, time, _ctypes, _signal, encodings.utf_8, encodings.ascii, encodings.latin_1, sys
print(*{os.path.realpath(m.__file__) for m in sys.modules.values() if getattr(m, "__file__", None)}, os.__file__)
"""


class PrivateEngine:
    """A dockerd with nothing in common with the system's but its program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "docker.sock"
        self.data = folder / "data"
        self._process: subprocess.Popen[bytes] | None = None

    def mount(self) -> None:
        disk = self.folder / "disk"
        with disk.open("wb") as file:
            file.truncate(400 << 20)
        self.data.mkdir()
        run(["mkfs.ext4", "-q", "-F", str(disk)])
        run(["mount", "-o", "loop", str(disk), str(self.data)])

    def start(self) -> None:
        # note: on a busy machine its containerd may need longer than the engine waits for it.
        if not any(self._started() for _ in range(3)):
            raise RuntimeError((self.folder / "log").read_text()[-1000:])

    def _started(self) -> bool:
        options = {"--host": f"unix://{self.socket}", "--exec-root": str(self.folder / "exec")}
        options |= {"--pidfile": str(self.folder / "pid"), "--data-root": str(self.data)}
        words = [word for pair in options.items() for word in pair]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["dockerd", *words, "--bridge=none", "--iptables=false", "--shutdown-timeout=2"],
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        while self._process.poll() is None:
            with contextlib.suppress(docker.errors.DockerException, OSError, NotReady):
                reach(f"unix://{self.socket}", timeout_seconds=5.0)
                with self.api() as api:
                    api.ping()
                return True
            time.sleep(0.1)
        return False

    @contextlib.contextmanager
    def api(self) -> Iterator[Any]:
        client = docker.APIClient(base_url=f"unix://{self.socket}", version="1.40", timeout=30)
        try:
            yield client
        finally:
            client.close()

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self.send(signal.SIGCONT)
            self.send(number)
            self._process.wait(timeout=60)
            self._process = None

    def unmount(self) -> None:
        self.stop()
        with contextlib.suppress(OSError, ValueError):
            # The engine's own containerd outlives an engine that was killed.
            os.kill(int((self.folder / "exec" / "containerd" / "containerd.pid").read_text()), signal.SIGTERM)
            time.sleep(0.5)
        subprocess.run(["umount", "--lazy", str(self.data)], check=False)
        for place in Path("/proc/self/mounts").read_text().splitlines():
            if str(self.folder) in place:
                subprocess.run(["umount", "--lazy", place.split()[1]], check=False)

    def names(self) -> set[str]:
        with self.api() as api:
            return {str(found["Names"][0]).lstrip("/") for found in api.containers(all=True, filters={"label": OWNER})}

    def volumes(self) -> int:
        with self.api() as api:
            return len(api.volumes()["Volumes"] or [])


def run(argv: list[str]) -> None:
    subprocess.run(argv, check=True, capture_output=True)


def tiny_image() -> bytes:
    """A root file system with this Python and some tools, and the libraries that they name."""
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    said = subprocess.run([python, "-I", "-S", "-c", PYTHON_FILES], capture_output=True, text=True, check=True).stdout
    files = {python, *said.split()}
    tools = {f"/bin/{name}": os.path.realpath(str(shutil.which(name))) for name in TOOLS}
    binaries = [*tools.values(), *(file for file in files if not file.endswith((".py", ".pyc")))]
    libraries = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout.split()
    content = {word: os.path.realpath(word) for word in libraries if word.startswith("/") and not word.endswith(":")}
    content |= {file: file for file in files} | tools
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, source in content.items():
            tar.add(source, arcname=name.lstrip("/"))
        link = tarfile.TarInfo("opt/selfplay/env/bin/python")
        link.type, link.linkname = tarfile.SYMTYPE, python
        tar.addfile(link)
        for name in ("tmp", "workspace", "proc", "sys", "dev"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def private() -> Iterator[PrivateEngine]:
    missing = [name for name in ("dockerd", "mkfs.ext4", "mount", "ldd") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        sentence = f"a private engine needs root and {', '.join(missing) or 'nothing else'}"
        if os.environ.get("SELFPLAY_REQUIRE_DOCKER") == "1":
            pytest.fail(sentence)
        pytest.skip(sentence)
    engine = PrivateEngine(Path(tempfile.mkdtemp(prefix="selfplay-engine-")))
    try:
        engine.mount()
        engine.start()
        with engine.api() as api:
            # note: the volume, so that its removal can be seen.
            api.import_image_from_data(
                tiny_image(), repository=IMAGE.partition(":")[0], tag="1", changes=["VOLUME /data"]
            )
        yield engine
    finally:
        engine.unmount()
        shutil.rmtree(engine.folder, ignore_errors=True)


@pytest.fixture
def engine(private: PrivateEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivateEngine]:
    """The private engine, running and empty before, and, after `reap`, afterwards."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{private.socket}")
    monkeypatch.setattr(calls, "BREAK_SECONDS", 1.0)
    if not private.socket.exists():
        private.start()
    yield private
    private.stop()
    private.start()

    async def reap(provider: DockerProvider) -> None:
        await provider.reap()

    with_docker(reap)
    gc.collect()
    left = private.names()
    with private.api() as api:
        for name in left:
            # So that the next test does not pay for this one.
            api.remove_container(name, force=True, v=True)
    assert left == set()
    assert private.volumes() == 0


def with_docker(check: Callable[[DockerProvider], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        provider = DockerProvider(**{"image": IMAGE, **settings})
        try:
            await check(provider)
        finally:
            with contextlib.suppress(SandboxInfraError):
                await provider.aclose()

    asyncio.run(main())


async def says_on(provider: DockerProvider) -> None:
    """A sandbox can be made, and runs a command."""
    sandbox = await provider.create(SPEC)
    try:
        result = await sandbox.exec(["sh", "-c", "echo on"], timeout_seconds=30.0)
        assert (result.exit_code, result.stdout) == (0, "on\n"), result
    finally:
        await sandbox.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_engine_stopped_in_the_middle_of_a_command(engine: PrivateEngine, number: signal.Signals) -> None:
    async def check(provider: DockerProvider) -> None:
        sandbox = await provider.create(SPEC)
        command = asyncio.create_task(sandbox.exec(["sleep", "100"], timeout_seconds=200.0))
        await asyncio.sleep(0.3)
        await asyncio.to_thread(engine.stop, number)
        with pytest.raises(SandboxInfraError):
            print(await command)
        with pytest.raises(SandboxInfraError) as caught:
            await provider.create(SPEC)
        assert caught.value.hint
        await asyncio.to_thread(engine.start)
        with pytest.raises(SandboxInfraError):
            await sandbox.exec(["true"], timeout_seconds=5.0)
        await asyncio.sleep(provider.engine.rests)
        await says_on(provider)

    with_docker(check)


def test_engine_that_stalls_is_waited_for(engine: PrivateEngine) -> None:
    async def check(provider: DockerProvider) -> None:
        await says_on(provider)
        sandbox = await provider.create(SPEC)
        engine.send(signal.SIGSTOP)
        try:
            command = asyncio.create_task(sandbox.exec(["sh", "-c", "echo late"], timeout_seconds=30.0))
            making = asyncio.create_task(provider.create(SPEC))
            await asyncio.sleep(2.5)
        finally:
            engine.send(signal.SIGCONT)
        assert (await command).stdout == "late\n"
        await (await making).close()

    with_docker(check, call_seconds=2.0)


def test_engine_that_does_not_come_back_is_a_sentence(engine: PrivateEngine) -> None:
    async def check(provider: DockerProvider) -> None:
        await says_on(provider)
        engine.send(signal.SIGSTOP)
        try:
            with pytest.raises(SandboxInfraError) as caught:
                await provider.create(SPEC)
        finally:
            engine.send(signal.SIGCONT)
        assert "unix://" in caught.value.message or "no Docker engine answers" in caught.value.message
        assert caught.value.hint

    with_docker(check, call_seconds=0.5)


class Failing:
    """A socket in front of the engine's that answers some requests with an error, and passes on the others."""

    def __init__(self, folder: Path, behind: Path) -> None:
        self.path = folder / "failing.sock"
        self.path.unlink(missing_ok=True)
        self.asked = 0
        self.status = "500 Oh"
        self.fail: Callable[[str], bool] = lambda line: False
        self._behind = behind
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(str(self.path))
        self._server.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as engine, contextlib.suppress(OSError):
            engine.connect(str(self._behind))
            back = threading.Thread(target=self._copy, args=(engine, client), daemon=True)
            back.start()
            while chunk := client.recv(1 << 16):
                line = chunk.split(b"\r\n", 1)[0].decode(errors="replace")
                if line.endswith("HTTP/1.1") and self.fail(line):
                    self.asked += 1
                    head, _, sent = chunk.partition(b"\r\n\r\n")
                    length = next((int(one[16:]) for one in head.split(b"\r\n") if one[:16] == b"Content-Length: "), 0)
                    while len(sent) < length:
                        sent += client.recv(1 << 16)
                    body = b'{"message": "injected"}'
                    answer = f"{self.status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                    client.sendall(b"HTTP/1.1 " + answer.encode() + body)
                else:
                    engine.sendall(chunk)
            engine.shutdown(socket.SHUT_WR)
            back.join()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(1 << 16):
                target.sendall(chunk)
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


@pytest.fixture
def failing(engine: PrivateEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Failing]:
    proxy = Failing(engine.folder, engine.socket)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{proxy.path}")
    yield proxy
    monkeypatch.setenv("DOCKER_HOST", f"unix://{engine.socket}")
    proxy.close()


def test_errors_of_the_engine_are_outlasted(failing: Failing, engine: PrivateEngine) -> None:
    seen: set[str] = set()

    def once(line: str) -> bool:
        kind = next((word for word in ("/create", "/start", "DELETE") if word in line), "")
        fails = bool(kind) and kind not in seen
        seen.add(kind)
        return fails

    async def check(provider: DockerProvider) -> None:
        failing.fail = once
        await says_on(provider)
        assert failing.asked == 3
        assert engine.names() == set()

    with_docker(check)


def test_name_that_is_taken_by_a_container_that_never_came(failing: Failing, engine: PrivateEngine) -> None:
    """As an engine does whose making of an earlier try is under way, or was broken off."""

    async def check(provider: DockerProvider) -> None:
        failing.status = "409 Conflict"
        failing.fail = lambda line: "/containers/create" in line and failing.asked < 3
        await says_on(provider)
        assert failing.asked == 3
        assert engine.names() == set()

    with_docker(check)


def test_engine_that_only_fails_is_left_alone(failing: Failing, engine: PrivateEngine) -> None:
    async def check(provider: DockerProvider) -> None:
        failing.fail = lambda line: "/containers/create" in line
        for _ in range(2):
            with pytest.raises(SandboxInfraError, match="injected"):
                await provider.create(SPEC)
        failing.fail = lambda line: True
        while provider.engine.failures < calls.BREAK_AFTER:
            with pytest.raises(SandboxInfraError):
                await provider.create(SPEC)
        asked = failing.asked
        with pytest.raises(SandboxInfraError, match=r"at unix://.* failed \d+ times in a row"):
            await provider.create(SPEC)
        assert failing.asked == asked
        failing.fail = lambda line: False
        await asyncio.sleep(provider.engine.rests)
        await says_on(provider)

    with_docker(check)


def test_image_deleted_under_a_run(engine: PrivateEngine) -> None:
    async def check(provider: DockerProvider) -> None:
        sandbox = await provider.create(SPEC)
        with engine.api() as api:
            api.remove_image("selfplay-gone:1", force=True)
        assert (await sandbox.exec(["sh", "-c", "echo on"], timeout_seconds=30.0)).stdout == "on\n"
        with pytest.raises(SandboxInfraError, match="no image `selfplay-gone:1`") as caught:
            await provider.create(SPEC)
        assert "doctor --fix" in caught.value.hint

    with engine.api() as api:
        api.tag(IMAGE, "selfplay-gone", "1")
    with_docker(check, image="selfplay-gone:1")


def test_disk_of_the_engine_is_full(engine: PrivateEngine) -> None:
    async def check(provider: DockerProvider) -> None:
        ballast = engine.data / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(bytes(1 << 20)):
                pass
        with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
            while file.write(bytes(512)):
                pass
        try:
            with pytest.raises(SandboxInfraError, match="no space left") as caught:
                await provider.create(SPEC)
            assert "prune" in caught.value.hint
        finally:
            ballast.unlink()
        await says_on(provider)

    with_docker(check)
    assert engine.names() == set()


def test_killed_holder_of_twenty_sandboxes(engine: PrivateEngine) -> None:
    others = {"selfplay-foreign": {}, "selfplay-living": {OWNER: str(Owner.here())}}
    with engine.api() as api:
        for name, labels in others.items():
            api.create_container(IMAGE, ["sleep", "100"], name=name, labels=labels)
            api.start(name)
    try:
        with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            ids = set(holder.stdout.readline().split())
            holder.send_signal(signal.SIGKILL)
        assert len(ids) == 20
        assert ids | {"selfplay-living"} == engine.names()
        assert engine.volumes() == 22

        async def check(provider: DockerProvider) -> None:
            assert {left.id for left in await provider.listed() if left.dead} == ids
            assert await provider.reap(older_than_seconds=3600.0) == ()
            assert set(await provider.reap()) == ids

        with_docker(check)
        assert engine.names() == {"selfplay-living"}
        assert engine.volumes() == 2
        assert processes_of(engine) == 2
    finally:
        with engine.api() as api:
            for name in others:
                assert api.inspect_container(name)["State"]["Running"]
                api.remove_container(name, force=True, v=True)


def processes_of(engine: PrivateEngine) -> int:
    """How many containers of this engine still have a process on the host: each has one shim."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes()
            found += b"containerd-shim" in words and str(engine.folder).encode() in words
    return found
