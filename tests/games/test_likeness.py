"""Which proposals of a step are alike, and what is told to a reward."""

from __future__ import annotations

from dataclasses import replace

import pytest

from selfplay.games.likeness import LIMIT, beside, clusters, shares, text_of
from selfplay.games.rewards import Beside
from selfplay.types import Stop, Trajectory, Turn, Verdict

DIFF = "--- a/m.py\n+++ b/m.py\n@@ -1 +1 @@\n-    return a + b\n+    return a - b  # here\n"


def proposal(name: str, reply: str) -> Trajectory:
    turn = Turn(speaker="policy", token_ids=(1,), logprobs=(-1.0,), text=reply)
    return Trajectory(
        id=name,
        step=0,
        stage="propose",
        role="r",
        subject_id="s",
        index=0,
        turns=(turn,),
        stop=Stop.DONE,
        policy_version=(0, 0),
    )


def minted(name: str, *, task: str | None = "t", diff: str = "") -> Verdict:
    return Verdict(
        trajectory_id=name,
        stage="mint",
        valid=task is not None,
        passed=None,
        reward=None,
        reason="",
        why="",
        task_id=task,
        evidence={"diff": diff} if diff else {},
    )


def test_what_is_alike_shares_a_cluster() -> None:
    texts = {
        "a": "Who wrote the book about bees?",
        "b": "who wrote the book about bees",
        "c": "Who wrote the book about ants?",
        "d": "When was the tower built?",
    }
    assert shares(texts, of=8) == {"a": 3 / 8, "b": 3 / 8, "c": 3 / 8, "d": 1 / 8}
    assert shares({}, of=0) == {}
    assert shares({"a": "", "b": ""}, of=2) == {"a": 1.0, "b": 1.0}


def test_the_same_thing_said_twice_weighs_twice() -> None:
    """The pair is (0.3 + 0.72) / 2 from the third; with three copies of the first, (3 x 0.3 + 0.72) / 4."""
    chained = [[0.0, 0.2, 0.3], [0.2, 0.0, 0.72], [0.3, 0.72, 0.0]]
    assert clusters(chained, [1, 1, 1]) == [{0, 1}, {2}]
    assert clusters(chained, [3, 1, 1]) == [{0, 1, 2}]


def test_clusters_at_the_limit_stay_apart() -> None:
    assert clusters([[0.0, LIMIT], [LIMIT, 0.0]], [1, 1]) == [{0}, {1}]
    assert clusters([[0.0, LIMIT - 0.01], [LIMIT - 0.01, 0.0]], [1, 1]) == [{0, 1}]
    assert clusters([], []) == []
    assert clusters([[0.0]], [3]) == [{0}]


def test_changes_are_compared_where_there_are_any() -> None:
    assert text_of(proposal("a", "2|    return a - b"), minted("a", diff=DIFF)) == "+return a - b\n-return a + b"
    assert text_of(proposal("a", "ab"), minted("a")) == "ab"


@pytest.mark.parametrize("looks", [(), ("share",), ("hinted",)])
def test_a_reward_is_told_what_it_looks_at(looks: tuple[str, ...]) -> None:
    pairs = [
        (proposal("a", "one two"), minted("a", task="x")),
        (proposal("b", "one two"), minted("b", task="x")),
        (proposal("c", "three"), minted("c", task="y")),
        (proposal("d", "one two"), minted("d", task=None)),
    ]
    found = beside(pairs, {}, looks=looks)
    expected = {"a": 0.5, "b": 0.5, "c": 0.25, "d": 0.0} if looks == ("share",) else dict.fromkeys("abcd", 0.0)
    assert {name: one.share for name, one in found.items()} == expected


def test_attempts_with_a_hint_are_counted_where_they_were_decided() -> None:
    judged = [replace(minted("h"), stage="judge", passed=passed) for passed in (True, False, None)]
    found = beside(
        [(proposal("a", "x"), minted("a")), (proposal("b", "x"), minted("b", task="u"))], {"t": judged}, looks=()
    )
    assert found == {"a": Beside(hinted=(1, 2)), "b": Beside()}
    assert found["a"].words == ", 1 of 2 with a hint"
    assert found["a"].parts == {"hinted": 0.5}
    assert (Beside().words, Beside().parts) == ("", {})
    assert Beside(share=0.25).words == ", 25% of the step's proposals are like it"
