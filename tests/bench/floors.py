"""The program that measures, inside a sandbox, what the parts of a repeat take; its text is given with `-c`.

Beside `sandbox.py`. It loads pytest as the fork server does (the text of `inside.py` is its first argument),
then answers each line with seconds: of a bare fork, exit and wait; of a pytest session on an empty test,
without reports or selection; and of the tests' own work without pytest (the test files, the second argument,
as pytest compiled them, loaded and called with what they import). Each is done in a child of its own; the
last two are clocked in the child.
"""

FOLDER = "an_empty_test"
FOLDER_TEST = "test_nothing.py"

FLOOR = (
    f"FOLDER = {FOLDER!r}\n"
    + r'''
import glob, json, marshal, os, sys, time, types

inside = types.ModuleType("inside")
exec(sys.argv[1], inside.__dict__)
tests = json.loads(sys.argv[2])
tree = os.getcwd()
sys.path.insert(0, tree)
inside.preload()
ours = os.fdopen(os.dup(1), "wb")
null = os.open(os.devnull, os.O_RDWR)
os.dup2(null, 1)
sys.dont_write_bytecode = True


def nothing():
    pass


def session():
    import pytest

    options = ["-c", os.devnull, f"--rootdir={tree}/{FOLDER}", "-q", "--no-header", "--no-summary"]
    assert pytest.main([*options, "-p", "no:cacheprovider", FOLDER]) == 0


def own():
    for path in sorted({test.partition("::")[0] for test in tests}):
        folder, name = os.path.split(path)
        (compiled,) = glob.glob(f"{folder}/__pycache__/{name[:-3]}.*-pytest-*.pyc")
        module = types.ModuleType(path[:-3].replace("/", "."))
        module.__package__ = folder.replace("/", ".")
        with open(compiled, "rb") as file:
            exec(marshal.loads(file.read()[16:]), module.__dict__)
        for test in tests:
            where, _, what = test.partition("::")
            if where == path:
                *classes, function = what.split("[")[0].split("::")
                owner = getattr(module, classes[0])() if classes else module
                getattr(owner, function)()


def timed(work):
    """(seconds in the parent, seconds in the child)"""
    read_end, write_end = os.pipe()
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            begun = time.perf_counter()
            work()
            if work is not nothing:
                os.write(write_end, str(time.perf_counter() - begun).encode())
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    whole = time.perf_counter() - start
    assert status == 0, status
    os.close(write_end)
    told = os.read(read_end, 64)
    os.close(read_end)
    return whole, float(told or 0)


for _ in sys.stdin.buffer:
    answer = {"fork, exit, wait": timed(nothing)[0]}
    answer["pytest session on an empty test"] = timed(session)[1]
    answer["the tests without pytest"] = timed(own)[1]
    ours.write(json.dumps(answer).encode() + b"\n")
    ours.flush()
'''
)
