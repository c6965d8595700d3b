"""`python -c CODE WORDS...` as a fork of a process that has imported what a run imports: seconds less for each.

A fork is a process of its own, in a session of its own; what it prints, what ends it and what it leaves are as for any
other. What differs: its imports are done. So a kill inside them is not here, nor a test of what is imported.

Example:
    >>> run("import sys; sys.exit(len(sys.argv))", ["a"]).code  # doctest: +SKIP
    2
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NoReturn

PACKAGES = ("selfplay.cli.run", "selfplay.build", "selfplay.learner.trainer", "selfplay.policy.local")
"""What every run imports; importing them starts no thread and draws no number."""
_MESSAGE = 1 << 17
"""Most bytes of a request: the words and the environment."""
_idle: list[_Server] = []


class Forked:
    """A process, with what the tests ask of `subprocess.Popen`."""

    def __init__(
        self,
        code: str,
        words: Sequence[str],
        *,
        stderr: IO[bytes],
        stdout: IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        asked = {"code": code, "words": list(words), "env": dict(env or os.environ), "cwd": str(cwd or Path.cwd())}
        read_end, write_end = os.pipe()
        self.stdout = os.fdopen(read_end, "rb")
        """What it prints, where that does not go into a file."""
        self._server = _idle.pop() if _idle else _Server()
        self._code: int | None = None
        self.pid = self._server.start(asked, (stdout.fileno() if stdout else write_end, stderr.fileno()))
        os.close(write_end)

    def send_signal(self, number: int) -> None:
        """To the process, not to what it started."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float) -> int:
        """The exit code; minus the signal that ended it.

        Raises:
            subprocess.TimeoutExpired: it is still there.
        """
        if self._code is None:
            self._code = self._server.ended(timeout)
            _idle.append(self._server)
        return self._code


def run(
    code: str, words: Sequence[str], *, env: Mapping[str, str] | None = None, timeout: float = 300.0
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` of it, with its output as text."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = Forked(code, words, stdout=out, stderr=err, env=env)
        process.stdout.close()
        try:
            exit_code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait(timeout)
            raise
        texts = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode() for file in (out, err)]
        return subprocess.CompletedProcess(list(words), exit_code, *texts)


class _Server:
    """The process that forks, one fork at a time; it ends when its socket is closed."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # note: -P, since what lies beside this file has names of its own; the variable, as a run sets it before torch.
        argv = [sys.executable, "-P", __file__, str(theirs.fileno())]
        env = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
        self._process = subprocess.Popen(
            argv, pass_fds=[theirs.fileno()], env=env, stdin=subprocess.DEVNULL, start_new_session=True
        )
        theirs.close()

    def start(self, asked: Mapping[str, object], files: Sequence[int]) -> int:
        """Fork with these files as standard output and error; the number of the process."""
        socket.send_fds(self._socket, [json.dumps(asked).encode()], list(files))
        return int(self._socket.recv(_MESSAGE))

    def ended(self, timeout: float) -> int:
        """Wait for it."""
        if not select.select([self._socket], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("a fork", timeout)
        return int(self._socket.recv(_MESSAGE))

    def close(self) -> None:
        """End it."""
        self._socket.close()
        self._process.wait()


def close() -> None:
    """End the processes that wait for requests."""
    while _idle:
        _idle.pop().close()


def _serve(connection: socket.socket) -> None:
    for name in PACKAGES:
        importlib.import_module(name)
    while True:
        message, files, _, _ = socket.recv_fds(connection, _MESSAGE, 2)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            connection.close()
            _become(files, **json.loads(message))
        for file in files:
            os.close(file)
        connection.send(str(pid).encode())
        connection.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


def _become(files: Sequence[int], *, code: str, words: Sequence[str], env: Mapping[str, str], cwd: str) -> NoReturn:
    """Be that process, in this fork."""
    os.setsid()
    for number, file in enumerate(files, start=1):
        os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["-c", *words]
    exit_code = 1
    try:
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        exit_code = 0
    except SystemExit as ended:
        exit_code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001
        # Told as the interpreter would.
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
