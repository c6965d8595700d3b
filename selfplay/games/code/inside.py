"""The program that runs pytest inside a sandbox; its text is given to the sandbox's Python with `-c`.

Reads one JSON request from standard input, runs the chosen tests in this process, and leaves files: the report of
pytest-json-report and, where asked, which functions of the tree each test called and the test files as pytest compiled
them.

What is not here: any decision. The report is untrusted, since the code under test ran in the same process; it is read
outside (`verify`, `survey`). Nothing but the standard library and pytest is imported, and nothing of selfplay.

Example of a request:
    {"roots": [""], "paths": ["tests/test_a.py"], "wanted": ["tests/test_a.py::test_b"], "report": "/tmp/r.json",
     "calls": null, "compiled": null, "options": [], "cpu_seconds": 3, "stop_at_first": false}
"""

import json
import os
import resource
import sys
import threading
import time
from collections.abc import Generator, Sequence
from types import CodeType, FrameType

import pytest


class Select:
    """Deselects every test that is not wanted; an unknown name on pytest's command line would stop the whole run."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self.wanted = frozenset(wanted)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept = [item for item in items if item.nodeid in self.wanted]
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in self.wanted])
        items[:] = kept


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


def main() -> None:
    request = json.loads(sys.stdin.buffer.read())
    tree = os.path.realpath(os.getcwd())
    request |= {name: request[name] and os.path.abspath(request[name]) for name in ("report", "calls", "compiled")}
    sys.dont_write_bytecode = request["compiled"] is None
    sys.path[:0] = [os.path.join(tree, root).rstrip(os.sep) for root in request["roots"]]
    plugins: list[object] = [Select(request["wanted"])] if request["wanted"] is not None else []
    calls = Calls(tree) if request["calls"] else None
    arguments = ["-c", os.devnull, f"--rootdir={tree}", f"--confcutdir={tree}", "-q", "--no-header", "--no-summary"]
    arguments += ["--tb=short", "--color=no", "-p", "no:cacheprovider", "-p", "no:subtests", "-o", "addopts="]
    arguments += ["-p", "pytest_metadata.plugin", "-p", "pytest_jsonreport.plugin", "--json-report"]
    arguments += [f"--json-report-file={request['report']}", "--json-report-indent=0"]
    arguments += ["--json-report-omit", "log", "traceback", "streams", "warnings", "keywords", "--"]
    arguments[-1:] = [*request["options"], *(["--maxfail=1"] if request["stop_at_first"] else []), "--"]
    arguments += request["paths"]
    if request["cpu_seconds"] is not None:
        limit = int(time.process_time() + request["cpu_seconds"] + 0.999)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    code = pytest.main(arguments, plugins=[*plugins, calls] if calls else plugins)
    if calls:
        with open(request["calls"], "w") as file:
            json.dump(calls.tests, file)
    if request["compiled"]:
        pack(tree, request["compiled"])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(code))  # note: threads or handlers that the code under test left behind must not keep us waiting


if __name__ == "__main__":
    main()
