"""The program as a fork server, spoken to over pipes, without a sandbox around it."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from selfplay.games.code import inside
from selfplay.games.code.hanging import HUNG
from selfplay.games.code.report import Report, parse
from selfplay.games.code.verify import program

TESTS = """
import os, random, subprocess, sys, threading, time
import pytest

NUMBERS = []
DAEMON = (
    "import os, sys, time\\n"
    "if os.fork() == 0:\\n"
    "    os.setsid()\\n"
    "    open(sys.argv[1], 'w').write(str(os.getpid()))\\n"
    "    time.sleep(600)\\n"
)


def test_good():
    NUMBERS.append(1)
    assert NUMBERS == [1]


def test_bad():
    print("noise on standard output")
    assert sys.argv == []


def test_sleeps():
    time.sleep(600)


def test_works():
    while True:
        pass


def test_waits_for_itself():
    lock = threading.Lock()
    with lock, lock:
        pass


def test_looks_again_and_again():
    while True:
        time.sleep(0.01)


def test_waits_for_who_works():
    subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 2: pass"], check=True)


def test_waits_for_a_thread_that_works():
    def work():
        while time.process_time() < 2:
            pass

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_dies():
    os.kill(os.getpid(), 9)


def test_leaves_a_daemon():
    subprocess.run([sys.executable, "-c", DAEMON, "daemon"], check=True)
    while not (os.path.exists("daemon") and os.path.getsize("daemon")):
        time.sleep(0.01)


def test_says_something_random():
    assert random.random() == repr(object())


def test_writes_on_every_descriptor():
    for number in range(3, 64):
        try:
            os.write(number, b"{}\\n")
        except OSError:
            pass
"""


def request_of(
    *names: str, seconds: float = 60.0, cpu_seconds: float = 60.0, still_seconds: float = 60.0
) -> dict[str, Any]:
    return {
        "roots": [""],
        "paths": ["test_a.py"],
        "wanted": [f"test_a.py::{name}" for name in names],
        "report": ".report",
        "calls": None,
        "compiled": None,
        "options": [],
        "stop_at_first": False,
        "ordered": False,
        "cpu_seconds": cpu_seconds,
        "seconds": seconds,
        "still_seconds": still_seconds,
    }


class Server:
    """The program, and what it says."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        argv = [sys.executable, "-s", "-P", "-B", "-c", program(), "serve"]
        env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONHASHSEED": "0", "PATH": os.environ["PATH"]}
        # note: with this no test would run; the program takes away what is not its own.
        env["PYTEST_ADDOPTS"] = "--collect-only"
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(argv, cwd=tree, env=env, stdin=pipe, stdout=pipe)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """One line for one line."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert isinstance(answer, dict)
        return answer

    def run(self, *names: str, seconds: float = 60.0, cpu_seconds: float = 60.0) -> dict[str, Any]:
        """What it says of these tests."""
        return self.ask(request_of(*names, seconds=seconds, cpu_seconds=cpu_seconds))

    def close(self) -> None:
        """It ends by itself when there are no more questions."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        assert self.process.wait(30) == 0
        assert self.process.stdout.read() == b""
        self.process.stdout.close()


def report_of(answer: dict[str, Any]) -> Report:
    return parse(base64.b64decode(answer["report"]))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server in a folder with those tests."""
    (tmp_path / "test_a.py").write_text(TESTS)
    made = Server(tmp_path)
    assert made.ask({}) == {}
    yield made
    made.close()


def test_each_repeat_is_a_process_of_its_own_with_a_report_of_its_own(server: Server) -> None:
    for _ in range(3):
        answer = server.run("test_good", "test_bad")
        assert (answer["exit_code"], answer["timed_out"], answer["oom_killed"]) == (1, False, False)
        report = report_of(answer)
        assert report.passed == ("test_a.py::test_good",)
        assert list(report.failed) == ["test_a.py::test_bad"]
    assert not list(server.tree.glob("**/*.pyc"))
    assert not (server.tree / ".report").exists()


def test_tests_run_in_the_order_asked_for_where_that_is_asked_for(server: Server) -> None:
    names = ("test_good", "test_says_something_random", "test_bad")
    for ordered, expected in ((False, sorted(names, key=TESTS.index)), (True, list(names))):
        answer = server.ask({**request_of(*names), "ordered": ordered})
        told = json.loads(base64.b64decode(answer["report"]))["tests"]
        assert [test["nodeid"].partition("::")[2] for test in told] == expected


def test_a_run_that_is_late_is_ended_and_the_next_is_not_disturbed(server: Server) -> None:
    answer = server.run("test_sleeps", seconds=1.0)
    assert (answer["exit_code"], answer["timed_out"], answer["report"]) == (None, True, None)
    assert report_of(server.run("test_good")).passed == ("test_a.py::test_good",)


def test_one_that_hangs_is_ended_long_before_it_is_late(server: Server) -> None:
    answer = server.ask(request_of("test_waits_for_itself", still_seconds=1.0))
    assert (answer["exit_code"], answer["timed_out"], answer["hung"], answer["report"]) == (None, True, True, None)
    assert 1.0 <= answer["seconds"] < 30.0
    assert report_of(server.run("test_good")).passed == ("test_a.py::test_good",)


@pytest.mark.parametrize("name", ["test_waits_for_who_works", "test_waits_for_a_thread_that_works"])
def test_one_that_waits_for_what_works_does_not_hang(server: Server, name: str) -> None:
    answer = server.ask(request_of(name, still_seconds=0.5))
    assert (answer["exit_code"], answer["timed_out"], answer["hung"]) == (0, False, False)


def test_one_that_looks_again_and_again_is_late_and_does_not_hang(server: Server) -> None:
    answer = server.ask(request_of("test_looks_again_and_again", seconds=3.0, still_seconds=0.5))
    assert (answer["exit_code"], answer["timed_out"], answer["hung"]) == (None, True, False)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("test_good", 0),
        ("test_bad", 1),
        ("test_dies", 128 + signal.SIGKILL),
        ("test_works", 128 + signal.SIGXCPU),
        ("test_waits_for_itself", HUNG),
        ("test_waits_for_who_works", 0),
    ],
)
def test_a_single_run_ends_as_its_tests_do(tmp_path: Path, name: str, code: int) -> None:
    (tmp_path / "test_a.py").write_text(TESTS)
    argv = [sys.executable, "-s", "-P", "-B", "-c", program()]
    request = request_of(name, still_seconds=1.0, cpu_seconds=1.0 if name == "test_works" else 60.0)
    env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": os.environ["PATH"]}
    line = json.dumps(request).encode()
    done = subprocess.run(argv, cwd=tmp_path, env=env, input=line, capture_output=True, check=False)
    assert done.returncode == code, done.stderr.decode()
    assert (tmp_path / ".report").exists() == (code in (0, 1))


def test_a_signal_is_told_as_a_shell_tells_it(server: Server) -> None:
    answer = server.run("test_dies")
    assert (answer["exit_code"], answer["timed_out"], answer["report"]) == (128 + signal.SIGKILL, False, None)


def test_the_limit_of_processor_seconds_is_each_repeats_own(server: Server) -> None:
    answer = server.run("test_works", cpu_seconds=0.1)
    assert answer["exit_code"] == 128 + signal.SIGXCPU
    assert server.run("test_good", cpu_seconds=1.0)["exit_code"] == 0


def test_what_outlives_the_tests_is_dead_before_the_answer(server: Server) -> None:
    answer = server.run("test_leaves_a_daemon")
    assert answer["exit_code"] == 0
    daemon = int((server.tree / "daemon").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(daemon, 0)


def test_repeats_draw_their_own_random_numbers(server: Server) -> None:
    said = {str(report_of(server.run("test_says_something_random")).failed) for _ in range(3)}
    assert len(said) == 3


def test_tests_cannot_write_into_the_answers(server: Server) -> None:
    assert server.run("test_writes_on_every_descriptor")["exit_code"] == 0
    assert server.run("test_good")["exit_code"] == 0


def test_a_report_that_is_no_plain_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("{}")
    (tmp_path / "link").symlink_to("there")
    os.mkfifo(tmp_path / "pipe")
    assert [inside.report_at(str(tmp_path / name)) for name in ("link", "pipe", "absent")] == [None] * 3
    assert base64.b64decode(inside.report_at(str(tmp_path / "there")) or "") == b"{}"


def test_a_run_ends_with_its_server(server: Server) -> None:
    assert server.process.stdin is not None
    other = Server(server.tree)
    other.ask({})
    assert other.process.stdin is not None
    other.process.stdin.write(json.dumps(request_of("test_sleeps", seconds=600.0)).encode() + b"\n")
    other.process.stdin.flush()
    children = Path(f"/proc/{other.process.pid}/task/{other.process.pid}/children")
    until = time.monotonic() + 30
    while not (found := children.read_text().split()) and time.monotonic() < until:
        time.sleep(0.01)
    other.process.kill()
    other.process.communicate()
    while Path(f"/proc/{found[0]}").exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert not Path(f"/proc/{found[0]}").exists()
