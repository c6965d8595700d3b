"""The program that runs pytest inside a sandbox; its text is given to the sandbox's Python with `-c`.

Reads one JSON request from standard input, runs the chosen tests in this process, and leaves files: the report of
pytest-json-report and, where asked, which functions of the tree each test called and the test files as pytest compiled
them.

With the argument `serve` it stays: a fork server for repeats of one candidate. It imports pytest and its report plugin,
nothing of the tree, and then answers each line, a request with `seconds`, with a line: the child that was forked for it
ran the tests in a fresh `pytest.main`, and everything that descends from it is dead. An empty request is answered at
once, which tells that the server is up.

Tests run in a child of this process, which looks after it (`hanging`, whose text comes before this).

Repeats do not share a process, modules or compiled files. They do share the work tree and /tmp, so a test sees the
files that an earlier repeat left, and the layout of memory, so a test that depends on addresses does the same in each.

What is not here: any decision. The report is untrusted, since the code under test ran in the same process, and so is
the server, which shares its uid; both are read outside (`verify`, `repeats`, `survey`). Nothing but the standard
library and pytest is imported, and nothing of selfplay.

Example of a request:
    {"roots": [""], "paths": ["tests/test_a.py"], "wanted": ["tests/test_a.py::test_b"], "report": "/tmp/r.json",
     "calls": null, "compiled": null, "options": [], "cpu_seconds": 3, "stop_at_first": false,
     "ordered": false, "still_seconds": 15}
"""

import base64
import contextlib
import gc
import importlib
import json
import os
import resource
import signal
import stat
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from types import CodeType, FrameType, ModuleType
from typing import Any, NoReturn

from selfplay.games.code.hanging import descendants, ends, look_after

REQUEST: dict[str, Any] | None = None
if __name__ == "__main__" and sys.argv[1:] != ["serve"]:
    # note: before pytest is loaded, since what a process holds when it forks is copied as it changes.
    REQUEST = json.loads(sys.stdin.buffer.read())
    look_after(still=REQUEST["still_seconds"])

import pytest  # noqa: E402

MAX_REPORT = 16 << 20
"""Longest report that the server passes on, in bytes."""
SET_PDEATHSIG, SET_CHILD_SUBREAPER = 1, 36
"""Of prctl(2)."""
ENDING_SECONDS = 10.0
"""How long the server tries to kill what a candidate left, before it gives up and ends."""
VARIABLES = ("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "PYTHONUTF8")
"""What of Python's and pytest's own the tests get to see; the engine sets them."""
MEMORY_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")


class Select:
    """Deselects every test that is not wanted; an unknown name on pytest's command line would stop the whole run."""

    def __init__(self, wanted: Sequence[str], *, ordered: bool) -> None:
        self.wanted = {name: place for place, name in enumerate(wanted)}
        self.ordered = ordered

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept = [item for item in items if item.nodeid in self.wanted]
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in self.wanted])
        items[:] = sorted(kept, key=lambda item: self.wanted[item.nodeid]) if self.ordered else kept


class Calls:
    """Which functions of the tree each test calls, as (path, first line of the code object), and its CPU seconds."""

    def __init__(self, tree: str) -> None:
        self.tree = tree + os.sep
        self.tests: dict[str, object] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, None, None]:
        codes: dict[int, CodeType] = {}

        def profile(frame: FrameType, event: str, argument: object) -> None:
            if event == "call":
                codes[id(frame.f_code)] = frame.f_code

        started = time.process_time()
        threading.setprofile(profile)
        sys.setprofile(profile)
        yield
        sys.setprofile(None)
        threading.setprofile(None)
        called = {(c.co_filename[len(self.tree) :], c.co_firstlineno) for c in codes.values() if self.owns(c)}
        seconds = time.process_time() - started
        self.tests[item.nodeid] = {"seconds": seconds, "calls": sorted(called)}

    def owns(self, code: CodeType) -> bool:
        return code.co_filename.startswith(self.tree) and code.co_name[0] != "<"


def pack(tree: str, path: str) -> None:
    """Pack the compiled test files, and nothing that was compiled of the package: that would give its code away."""
    import tarfile  # note: only here, since it would slow every run

    with tarfile.open(path, "w") as packed:
        for folder, _, names in os.walk(tree):
            for name in names:
                if "-pytest-" in name and name.endswith(".pyc"):
                    packed.add(os.path.join(folder, name), os.path.relpath(os.path.join(folder, name), tree))


def preload() -> list[ModuleType]:
    """Import what every session imports by itself, and take it out of the garbage collector's way.

    The report plugins are given to pytest as modules: by name it would compile them anew, to rewrite their assertions.
    """
    from _pytest.config import default_plugins

    plugins = [importlib.import_module(name) for name in ("pytest_metadata.plugin", "pytest_jsonreport.plugin")]
    for name in default_plugins:
        importlib.import_module(f"_pytest.{name}")
    gc.freeze()
    gc.enable()
    return plugins


def run(request: dict[str, Any], preloaded: Sequence[ModuleType]) -> int:
    """One session in this process; pytest's exit code."""
    tree = os.path.realpath(os.getcwd())
    request |= {name: request[name] and os.path.abspath(request[name]) for name in ("report", "calls", "compiled")}
    sys.dont_write_bytecode = request["compiled"] is None
    sys.path[:0] = [os.path.join(tree, root).rstrip(os.sep) for root in request["roots"]]
    plugins: list[object] = [*preloaded]
    if request["wanted"] is not None:
        plugins.append(Select(request["wanted"], ordered=request["ordered"]))
    for name in [name for name in os.environ if name.startswith(("PYTEST", "PYTHON")) and name not in VARIABLES]:
        del os.environ[name]
    calls = Calls(tree) if request["calls"] else None
    arguments = ["-c", os.devnull, f"--rootdir={tree}", f"--confcutdir={tree}", "-q", "--no-header", "--no-summary"]
    # note: pytest's own tracebacks parse the source of each frame: most of the time of a run in which many tests fail,
    # and some recursions in changed tests do not survive it.
    arguments += ["--tb=native", "--color=no", "-p", "no:cacheprovider", "-p", "no:subtests", "-o", "addopts="]
    arguments += ["--json-report", f"--json-report-file={request['report']}", "--json-report-indent=0"]
    arguments += ["--json-report-omit", "log", "traceback", "streams", "warnings", "keywords"]
    arguments += [*request["options"], *(["--maxfail=1"] if request["stop_at_first"] else []), "--"]
    arguments += request["paths"]
    if request["cpu_seconds"] is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        most = hard - 1 if hard != resource.RLIM_INFINITY else sys.maxsize
        limit = min(int(time.process_time() + request["cpu_seconds"] + 0.999), most)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    code = pytest.main(arguments, plugins=[*plugins, calls] if calls else plugins)
    if calls:
        with open(request["calls"], "w") as file:
            json.dump(calls.tests, file)
    if request["compiled"]:
        pack(tree, request["compiled"])
    return int(code)


def finish(request: dict[str, Any], preloaded: Sequence[ModuleType]) -> NoReturn:
    """Run it and end this process, however it went."""
    code = 1
    try:
        code = run(request, preloaded)
    except BaseException:  # noqa: BLE001
        # Told as the interpreter would, whatever the code under test did to it.
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)  # note: threads or handlers that the code under test left behind must not keep us waiting


def serve(preloaded: Sequence[ModuleType]) -> None:
    """Answer requests, a line each, until there are no more."""
    # note: what was standard input and output is ours alone; the tests and whatever they start have the null device.
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(null, number)
    prctl(SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    for line in questions:
        request = json.loads(line)
        answer = repeat(request, preloaded, ours=(questions.fileno(), answers.fileno())) if request else {}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def repeat(request: dict[str, Any], preloaded: Sequence[ModuleType], *, ours: Sequence[int]) -> Mapping[str, object]:
    """Fork, run it in the child, end all that the child started, and tell how it went."""
    started, kills, server = time.monotonic(), memory_kills(), os.getpid()
    child = os.fork()
    if child == 0:
        prctl(SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == server:
            os.setsid()
            for number in ours:
                os.close(number)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            del sys.argv[1:]
            finish(request, preloaded)
        os._exit(1)
    ended = ends(child, by=started + request["seconds"], still=request["still_seconds"])
    code = bury(child)
    return {
        "exit_code": code if ended else None,
        "timed_out": not ended,
        "hung": ended is None,
        "oom_killed": code == 128 + signal.SIGKILL and bool(ended) and memory_kills() > kills,
        "seconds": time.monotonic() - started,
        "report": report_at(request["report"]) if ended else None,
    }


def prctl(option: int, value: int) -> None:
    """prctl(2), which the standard library lacks."""
    import ctypes  # note: only here, since it would slow every single run

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def bury(child: int) -> int:
    """Kill and wait for everything that descends from this process; the child's exit code as a shell reports it."""
    code, deadline = 0, time.monotonic() + ENDING_SECONDS
    os.kill(child, signal.SIGKILL)
    while time.monotonic() < deadline:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            code = 128 - code if code < 0 else code
        elif pid == 0:
            for left in descendants():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(left, signal.SIGKILL)
            signal.sigtimedwait({signal.SIGCHLD}, 0.01)
    sys.exit("what the candidate started cannot be ended")


def memory_kills() -> int:
    """How many processes the kernel has ended here for memory; 0 where nobody counts."""
    for path in MEMORY_COUNTERS:
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    return 0


def report_at(path: str) -> str | None:
    """The report in base64, and away with it; None where it is missing, no plain file, or too long."""
    with contextlib.suppress(OSError):
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(number, "rb") as file:
            os.unlink(path)
            found = os.fstat(number)
            if stat.S_ISREG(found.st_mode) and found.st_size <= MAX_REPORT:
                return base64.b64encode(file.read(MAX_REPORT)).decode()
    return None


def main() -> None:
    """Serve, or run the one request on standard input."""
    preloaded = preload()
    if sys.argv[1:] == ["serve"]:
        serve(preloaded)
    else:
        assert REQUEST is not None
        finish(REQUEST, preloaded)


if __name__ == "__main__":
    main()
