"""Counts by stage and role."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from selfplay.ledger import Tally, rows, tally
from selfplay.types import Fault, Stop

COUNTS = st.integers(0, 100)
TALLIES = st.dictionaries(
    st.sampled_from(("propose/a", "attempt/b")),
    st.builds(
        Tally,
        played=COUNTS,
        tokens=COUNTS,
        reward_sum=st.integers(-9, 9).map(float),
        reasons=st.dictionaries(st.sampled_from("xyz"), COUNTS),
    ),
)


@given(TALLIES, TALLIES, TALLIES)
def test_sums_do_not_depend_on_where_they_are_cut(a, b, c):
    assert tally.add(tally.add(a, b), c) == tally.add(a, tally.add(b, c))
    assert tally.add(a, {}) == a
    assert tally.load(rows.dump(tally.dump(a))) == a


def test_everything_is_counted_once(ledger, make):
    fault = Fault(culprit="machine", where="sampler", message="broke")
    proposals = [make.play(index=i) for i in range(4)]
    cut = make.play(index=4, stop=Stop.TOKENS)
    broken = make.play(index=5, stop=Stop.FAULT, fault=fault)
    ledger.append(*proposals, cut, broken)
    ledger.append(
        make.verdict(proposals[0], "mint", reason="ok"),
        make.verdict(proposals[1], "mint", reason="ok"),
        make.verdict(proposals[2], "mint", valid=False, reason="parse"),
        make.verdict(cut, "mint", valid=False, reason="parse"),
        make.verdict(proposals[3], "mint", valid=False, reason="infra", fault=fault),
        make.verdict(proposals[0], "grade", reward=0.1),
        make.verdict(proposals[1], "grade", reward=0.2, valid=False, reason="other"),
        make.verdict(proposals[2], "grade", reward=-1.0),
    )
    attempts = [make.play(stage="attempt", index=i) for i in range(4)]
    ledger.append(*attempts)
    ledger.append(
        make.verdict(attempts[0], passed=True, reward=1.0, reason="solved"),
        make.verdict(attempts[1], passed=False, reward=-1.0, reason="wrong"),
        make.verdict(attempts[2], passed=None, reward=None, reason="odd"),
    )
    looked = make.play(stage="evaluate")
    ledger.append(looked, make.verdict(looked, passed=True))
    expected = {
        "propose/proposer": Tally(
            played=5,
            faults=2,
            decided=4,
            valid=2,
            truncated=1,
            tokens=18,
            rewarded=3,
            reward_sum=0.1 + 0.2 - 1.0,
            reasons={"ok": 2, "parse": 2},
        ),
        "attempt/solver": Tally(
            played=4,
            decided=2,
            left_out=1,
            valid=2,
            passed=1,
            tokens=12,
            rewarded=2,
            reasons={"solved": 1, "wrong": 1, "odd": 1},
        ),
    }
    assert ledger.status().open == expected
    make.close(ledger, 0)
    assert ledger.status().open == {}
    assert ledger.status().closed == ledger.step_rows()[0].tallies == expected


def test_totals_are_the_sum_of_the_steps(ledger, make):
    total: dict[str, Tally] = {}
    for step in range(4):
        make.step(ledger, step)
        total = tally.add(total, ledger.step_rows()[step].tallies)
        assert ledger.status().closed == total
