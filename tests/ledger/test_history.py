"""What a role was paid earlier, newest last, and never of a step that is open."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from selfplay.ledger import history


def test_rewards_of_closed_steps_by_role_in_recorded_order(ledger, make):
    paid = {}
    for step in range(3):
        solvers = [make.play(step, "attempt", i, subject_id=subject) for subject in ("b", "a") for i in range(2)]
        proposers = [make.play(step, "propose", i) for i in range(2)]
        ledger.append(*solvers, *proposers)
        paid[step] = (step + 0.1, step + 0.2), (step + 0.3, step + 0.4)
        groups = [
            make.group(proposers, (9.0 + step, -9.0)),
            *(make.group(solvers[2 * i : 2 * i + 2], paid[step][i]) for i in range(2)),
        ]
        make.close(ledger, step, groups=groups)
    everything = tuple(reward for step in range(3) for group in paid[step] for reward in group)
    assert ledger.past_rewards(9, "solver", 99) == everything
    assert ledger.past_rewards(2, "solver", 99) == everything[:8]
    assert ledger.past_rewards(3, "solver", 5) == everything[-5:]
    assert ledger.past_rewards(3, "proposer", 3) == (-9.0, 11.0, -9.0)
    assert ledger.past_rewards(0, "solver", 99) == ledger.past_rewards(3, "nobody", 9) == ()


def test_it_is_read_off_an_index(ledger):
    with closing(sqlite3.connect(ledger.folder / "ledger.db")) as connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {history.REWARDS}", (9, "solver", 9))]
    assert len(plan) == 2, "nothing is sorted"
    assert all(line.startswith("SEARCH") for line in plan)
