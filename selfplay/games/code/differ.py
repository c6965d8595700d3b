"""The program that calls one function on many inputs inside a sandbox; its text is given to Python with `-c`.

`record`: runs tests on the clean tree, notes the arguments that they call the function with, varies them, and says what
the function gives for each. `answer`: says what the function gives for inputs that it is handed. What it gives is never
in the sandbox of a candidate, so a candidate can only find it out by computing it.

Covered: plain functions of modules; arguments that can be pickled; results of numbers, text, containers and iterators
of them, compared by value (equal numbers are equal, whatever their type; sums may differ in the last digits). Not
covered, and left out: inputs on which the function changes its arguments, gives two answers, is slow, or raises where
no test made it raise, and results of other classes.

Nothing depends on how busy the machine is: limits count processor time, and what is recorded is far below that of an
answer, by a count of the lines that run. Inputs are drawn by a seed, and so is what tests draw of `random`; tests that
draw by themselves (hypothesis) give other inputs each time.

Nothing but the standard library and pytest is imported, and nothing of selfplay. Decides nothing (`differential`).
"""

import base64
import contextlib
import hashlib
import importlib
import io
import itertools
import json
import os
import pickle
import random
import re
import resource
import signal
import sys
import types
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

Request = Mapping[str, Any]
SECONDS = 1.0
"""Processor seconds that one call may take; a call that is recorded, a tenth of it."""
MOST_LINES = 10_000
"""Lines of Python that a recorded call may run, a few milliseconds: what takes longer is left out."""
ENDLESS = 5
"""Calls that do not end, from which on no more are tried."""
LONGEST = 300
"""Characters of an answer that are told as they are; of a longer one, the first, and a digest."""
HARD_SECONDS = 60
"""Processor seconds after which the program is killed when it answers, whatever runs then."""
DEEPEST = 12
WIDEST = 200
"""Elements that are looked at."""
_ENDLESS = "does not end"


class Unknown(Exception):
    """A value that cannot be told in words."""


class TooLong(BaseException):
    """A call did not end in time."""


def told(value: object, depth: int = 0) -> str:
    """A value in words that are equal for equal values."""
    if depth > DEEPEST:
        raise Unknown
    if value is None or isinstance(value, str | bytes):
        # note: where an object lies is another place in each process.
        return re.sub(r" at 0x[0-9a-f]+", " at 0x", f"{type(value).__name__}:{value!r}")
    if isinstance(value, int | float | complex):
        return told_number(value)
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return f"{type(value).__name__}({', '.join(told(one, depth + 1) for one in value[:WIDEST])})"
    if isinstance(value, set | frozenset):
        return "set(" + ", ".join(sorted(told(one, depth + 1) for one in value)) + ")"
    if isinstance(value, dict):
        pairs = (f"{told(key, depth + 1)}: {told(one, depth + 1)}" for key, one in value.items())
        return "dict(" + ", ".join(sorted(pairs)) + ")"
    if isinstance(value, range) or (hasattr(value, "__next__") and hasattr(value, "__iter__")):
        return f"iterator({', '.join(told(one, depth + 1) for one in itertools.islice(value, WIDEST))})"
    raise Unknown


def told_number(value: int | float | complex) -> str:
    """Equal numbers are told alike, and sums in another order nearly always."""
    if isinstance(value, complex):
        return f"complex({told_number(value.real)}, {told_number(value.imag)})"
    if isinstance(value, float):
        return f"number:{int(value)}" if value.is_integer() and abs(value) < 1e15 else f"number:{value:.10g}"
    return f"number:{int(value)}" if abs(value) < 10**300 else "number:huge"


def late(number: int, frame: object) -> None:
    """The timer's handler."""
    raise TooLong


class Lines:
    """Counts the lines that run below a call, and ends it after so many."""

    def __init__(self, most: int) -> None:
        self.left = most

    def trace(self, frame: types.FrameType, event: str, argument: object) -> Any:
        """The interpreter's hook; it does not look into this program."""
        if frame.f_globals.get("__name__") == __name__:
            return None
        if event == "line":
            self.left -= 1
            if self.left < 0:
                raise TooLong
        return self.trace


def outcome(
    call: Callable[..., object], packed: bytes, *, seconds: float, lines: int | None = None
) -> tuple[str, bool]:
    """What a call gives, and whether it left its arguments as they were."""
    positional, named = pickle.loads(packed)
    before = told([positional, named])
    if lines is not None:
        sys.settrace(Lines(lines).trace)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        gives = brief(told(call(*positional, **named)))
    except (Unknown, TooLong, KeyboardInterrupt):
        raise
    except BaseException:  # noqa: BLE001 (whatever it raises is what it does)
        gives = "raises"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        if lines is not None:
            sys.settrace(None)
    return gives, told([positional, named]) == before


def brief(text: str) -> str:
    """The text, or the beginning of a long one with a digest of it all."""
    if len(text) <= LONGEST:
        return text
    whole = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
    return f"{text[:LONGEST]}... {whole[:16]}"


def varied(value: Any, rng: random.Random) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool) or value is None:
        return rng.choice((True, False)) if value is not None else None
    if isinstance(value, int):
        return rng.choice((0, 1, -1, value + 1, value - 1, -value, 2 * value, rng.randrange(-9, 10)))
    if isinstance(value, float):
        return rng.choice((0.0, 1.0, value + 0.5, value - 0.5, -value, value * 2))
    if isinstance(value, str | bytes | list | tuple) and type(value) in (str, bytes, list, tuple):
        return varied_sequence(value, rng)
    if isinstance(value, range):
        return range(value.start, varied(value.stop, rng), value.step)
    if type(value) is dict and value:
        chosen = rng.choice(list(value))
        return {key: varied(one, rng) if key == chosen else one for key, one in value.items()}
    if type(value) is set and value:
        return set(rng.sample(sorted(value, key=repr), rng.randrange(len(value))))
    return value


def varied_sequence(value: Any, rng: random.Random) -> Any:
    """A sequence with its order, length or one element changed."""
    if value in ("", b""):
        return "a" if value == "" else b"a"
    at = rng.randrange(len(value)) if len(value) else 0
    others = [value[::-1], value + value, value[:at] + value[at + 1 :], value[:at] + value[at : at + 1] + value[at:]]
    if type(value) in (list, tuple) and len(value):
        others += 2 * [value[:at] + type(value)([varied(value[at], rng)]) + value[at + 1 :]]
    return rng.choice(others)


class Note:
    """Arguments of every call of one piece of code while tests run, and only the tests that are wanted."""

    def __init__(self, code: types.CodeType, wanted: list[str], most: int) -> None:
        self.code, self.wanted, self.most = code, frozenset(wanted), most
        self.seen: dict[bytes, None] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep those that are wanted."""
        items[:] = [item for item in items if item.nodeid in self.wanted]

    def profile(self, frame: types.FrameType, event: str, argument: object) -> None:
        """The interpreter's hook."""
        if event == "call" and frame.f_code is self.code and len(self.seen) < self.most:
            # note: what cannot be copied (a generator, a function made in a test) is left out.
            with contextlib.suppress(Exception):
                self.seen[pickle.dumps(arguments(frame))] = None


def arguments(frame: types.FrameType) -> tuple[list[object], dict[str, object]]:
    """Positional and named arguments of a call that is about to begin."""
    code, values = frame.f_code, frame.f_locals
    names = code.co_varnames
    positional = [values[name] for name in names[: code.co_argcount]]
    last = code.co_argcount + code.co_kwonlyargcount
    named = {name: values[name] for name in names[code.co_argcount : last]}
    if code.co_flags & 0x04:
        positional += values[names[last]]
        last += 1
    if code.co_flags & 0x08:
        named |= values[names[last]]
    return positional, named


def function_of(request: Request) -> Any:
    """The function, imported; None where it is not a plain one."""
    found = getattr(importlib.import_module(request["module"]), request["qualname"], None)
    plain = isinstance(found, types.FunctionType) and not hasattr(found, "__wrapped__")
    return found if plain and not found.__code__.co_flags & 0x280 else None  # type: ignore[union-attr]


def record(request: Request) -> dict[str, Any]:
    """Inputs with what the clean function gives, or why there are none."""
    import pytest

    function = function_of(request)
    if function is None:
        return {"why_not": "it is no plain function of a module"}
    note = Note(function.__code__, request["tests"], request["most"])
    words = ["-c", "/dev/null", "--rootdir", os.getcwd(), "-q", "--tb=no", "-p", "no:cacheprovider"]
    random.seed(request["seed"])
    with contextlib.redirect_stdout(io.StringIO()):
        sys.setprofile(note.profile)
        try:
            pytest.main([*words, *request["options"], *request["paths"]], plugins=[note])
        finally:
            sys.setprofile(None)
    rng = random.Random(request["seed"])
    cases = list(known(function, inputs(list(note.seen), rng), most=request["most"]))
    return {"cases": cases} if cases else {"why_not": "no call by a test can be repeated"}


def inputs(seen: list[bytes], rng: random.Random) -> Iterator[tuple[bytes, bool]]:
    """Inputs that tests use, then others like them; with each, whether a test uses it."""
    done = set(seen)
    yield from ((packed, True) for packed in seen)
    for _ in range(20 * WIDEST if seen else 0):
        with contextlib.suppress(Exception):
            positional, named = pickle.loads(rng.choice(seen))
            for _ in range(rng.choice((1, 1, 2))):
                at = rng.randrange(len(positional) + len(named))
                if at < len(positional):
                    positional[at] = varied(positional[at], rng)
                else:
                    name = sorted(named)[at - len(positional)]
                    named[name] = varied(named[name], rng)
            packed = pickle.dumps((positional, named))
            if packed not in done and len(packed) < 1 << 14:
                done.add(packed)
                yield packed, False


def known(function: Any, offered: Iterator[tuple[bytes, bool]], *, most: int) -> Generator[dict[str, str], None, None]:
    """Inputs on which the function gives one answer and leaves its arguments alone."""
    for packed, tested in itertools.islice(offered, 4 * most):
        try:
            first, kept = outcome(function, packed, seconds=SECONDS / 10, lines=MOST_LINES)
            again, _ = outcome(function, packed, seconds=SECONDS / 10)
        except (Exception, TooLong):  # noqa: BLE001 (an input that cannot be told is none)
            continue
        if kept and first == again and (tested or first != "raises"):
            yield {"input": base64.b64encode(packed).decode(), "shown": shown(packed), "gives": first}
            most -= 1
        if most <= 0:
            return


def shown(packed: bytes) -> str:
    """An input for people."""
    positional, named = pickle.loads(packed)
    words = [repr(one) for one in positional] + [f"{name}={one!r}" for name, one in named.items()]
    return re.sub(r" at 0x[0-9a-f]+", "", ", ".join(words))[:100]


def answer(request: Request) -> dict[str, Any]:
    """What the function gives for each input; a candidate's need not be a plain one."""
    resource.setrlimit(resource.RLIMIT_CPU, (HARD_SECONDS, HARD_SECONDS))
    function = getattr(importlib.import_module(request["module"]), request["qualname"], None)
    if not callable(function):
        return {"why_not": "the module has no such function any more"}
    answers: list[str] = []
    for case in request["inputs"]:
        if answers.count(_ENDLESS) >= ENDLESS:
            answers.append(_ENDLESS)
            continue
        try:
            answers.append(outcome(function, base64.b64decode(case), seconds=SECONDS)[0])
        except TooLong:
            answers.append(_ENDLESS)
        except Exception:  # noqa: BLE001 (a class of the candidate's own)
            answers.append("gives what cannot be compared")
    return {"answers": answers}


def main() -> None:
    """Read the request, do it, leave the answer where it says."""
    request = json.loads(sys.stdin.buffer.read())
    sys.path[:0] = [os.path.join(os.getcwd(), root) for root in request["roots"]]
    signal.signal(signal.SIGPROF, late)
    try:
        found = record(request) if request["mode"] == "record" else answer(request)
    except Exception as error:  # noqa: BLE001 (told, not decided)
        found = {"why_not": f"{type(error).__name__}: {error}"[:200]}
    with open(request["to"], "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
