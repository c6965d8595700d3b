"""Which tests are stable on the clean tree: three runs, shared by all proposals that ask for the same tests.

What is covered: two runs by one fork server, then one in a new sandbox with the tests in another order and under
another hash seed; the environment is the verifier's fixed one in all (variables, time zone, locale, no network).

What is not covered: a clock that stands still: a test that fails at some hours of the day is found only when a run
meets them.

Example:
    >>> await stable(verifier, ("a.py::test_one",), budget=budget)  # doctest: +SKIP
    ('a.py::test_one',)
"""

from __future__ import annotations

from collections.abc import Sequence

from selfplay.games.code.repeats import repeats
from selfplay.games.code.verify import Budget, Ended, Run, Verifier
from selfplay.types import draw

CLEAN_RUNS = 3


async def stable(verifier: Verifier, tests: Sequence[str], *, budget: Budget) -> tuple[str, ...]:
    """Those of `tests` that pass in all of three runs of the clean tree; none where a run does not complete.

    Raises:
        SandboxInfraError: the machine failed; nothing was decided.
    """
    passed = set(tests)
    async with repeats(verifier) as server:
        for again in range(CLEAN_RUNS - 1):
            passed &= _passed(await server.run(tests, budget=budget, again=again))
            if not passed:
                return ()
    last = await verifier.run(
        in_drawn_order(tests),
        budget=budget,
        again=CLEAN_RUNS - 1,
        hash_seed=other_hash_seed(verifier.repository.digest, *sorted(tests)),
        ordered=True,
    )
    passed &= _passed(last)
    return tuple(test for test in tests if test in passed)


def other_hash_seed(*key: str) -> int:
    """A hash seed that is not 0, keyed by what is run."""
    return 1 + draw("hash seed", *key) % (2**32 - 2)


def in_drawn_order(tests: Sequence[str]) -> list[str]:
    """The tests in another order, those of a file and of a class together, so that their fixtures are made once."""
    return sorted(tests, key=_drawn)


def _drawn(test: str) -> list[int]:
    function, bracket, parameters = test.partition("[")
    parts = [*function.split("::"), bracket + parameters]
    return [draw("order", *parts[: end + 1]) for end in range(len(parts))]


def _passed(run: Run) -> set[str]:
    return set(run.passed) if run.ended is Ended.COMPLETED else set()
