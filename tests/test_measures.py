"""Numbers of a step: counted, and unknown rather than zero where there is nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from selfplay.measures import LEAST_NGRAMS, NGRAM, counts_of, gibberish, mean, no_text, repetition, shown
from selfplay.stages import Played
from selfplay.types import Fault, Group, Stage, Stop, Trajectory, Turn, Update, Verdict


def played(name: str, stage: Stage, *, valid: bool = True, passed: bool | None = None, reward: float | None) -> Played:
    fault = None if reward is not None or stage == "propose" else Fault(culprit="sandbox", where="w", message="m")
    return Played(
        trajectory=Trajectory(
            id=name,
            step=0,
            stage=stage,
            role="r",
            subject_id="s",
            index=0,
            turns=(Turn(speaker="policy", token_ids=(1, 2), logprobs=(-1.0, -1.0)),),
            stop=Stop.DONE,
            policy_version=(0, 0),
        ),
        verdict=Verdict(
            trajectory_id=name,
            stage="mint" if stage == "propose" else "judge",
            valid=valid,
            passed=passed,
            reward=reward,
            reason="valid" if valid else "no_change",
            why="w",
            fault=fault,
        ),
    )


UPDATE = Update(
    step=0,
    phase="play",
    policy_version=3,
    trajectory_ids=(),
    advantages=(),
    partition=(),
    old_logprobs=(),
    lr=0.1,
    weights_digest="",
    reference_digest=None,
    fingerprint="",
    loss=0.5,
    grad_norm=2.0,
    tokens=4,
    seconds=1.0,
)

PLAYS = [
    played("a", "propose", reward=None),
    played("b", "propose", valid=False, reward=None),
    played("c", "attempt", passed=True, reward=1.0),
    played("d", "attempt", passed=False, reward=-1.0),
    played("e", "attempt", passed=None, reward=None),
]


def test_counts() -> None:
    counts = counts_of(PLAYS, ())
    assert (counts["proposals"], counts["valid"]) == (2, 1)
    assert (counts["attempts"], counts["decided"], counts["solved"], counts["faults"]) == (3, 2, 1, 1)
    assert counts["left_out"] == 0
    assert counts["tokens"] == 10
    suspicious = replace(PLAYS[4], verdict=replace(PLAYS[4].verdict, fault=None))
    counts = counts_of([suspicious, *PLAYS], ())
    assert (counts["attempts"], counts["decided"], counts["left_out"], counts["faults"]) == (4, 2, 1, 1)


def test_the_screen_sees_reasons_and_means_of_what_was_decided() -> None:
    grades = {"a": PLAYS[2].verdict, "b": PLAYS[3].verdict}
    data = shown(counts_of(PLAYS, ()), PLAYS, grades, update=UPDATE, seconds={"sampling": 2.0, "other": 1.0})
    assert data["refused"] == {"no_change": 1}
    assert data["solver_reward"] == 0.0
    assert data["proposer_reward"] == 0.0
    assert data["tokens_per_second"] == 5.0
    assert data["seconds"] == 3.0


def test_a_proposal_that_was_given_up_is_not_decided() -> None:
    fault = Fault(culprit="sandbox", where="w", message="m")
    given_up = replace(PLAYS[1], verdict=replace(PLAYS[1].verdict, fault=fault))
    counts = counts_of([*PLAYS, given_up], ())
    data = shown(counts, [*PLAYS, given_up], {}, update=UPDATE, seconds={})
    assert (data["proposals"], data["decided_proposals"], data["valid"]) == (3, 2, 1)
    assert "decided_proposals" not in counts, "the ledger keeps it in its tallies"


def test_nothing_is_unknown_not_zero() -> None:
    data = shown(counts_of([], ()), [], {}, update=UPDATE, seconds={})
    assert data["solver_reward"] is None
    assert data["tokens_per_second"] is None
    assert mean([]) is None


def group(name: str, role: str, *, informative: bool) -> Group:
    return Group(
        id=name,
        step=0,
        role=role,
        subject_id="s",
        trajectory_ids=(),
        rewards=(),
        advantages=(),
        informative=informative,
    )


def test_groups_are_counted_of_each_role() -> None:
    groups = [group("a", "p", informative=True), group("b", "s", informative=False), group("c", "s", informative=True)]
    counts = counts_of([], groups)
    assert (counts["groups"], counts["informative"]) == (3, 2)
    assert (counts["p.groups"], counts["p.informative"]) == (1, 1)
    assert (counts["s.groups"], counts["s.informative"]) == (2, 1)


def wrote(text: str, token_ids: tuple[int, ...] = ()) -> Trajectory:
    before = Turn(speaker="prompt", token_ids=(1,), text="\x00" * 9)
    turn = Turn(speaker="policy", token_ids=token_ids, logprobs=(-1.0,) * len(token_ids), text=text)
    return replace(PLAYS[0].trajectory, turns=(before, turn))


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("", 0.0),
        ("x = 1\n\ty = 'ä', 'π', '漢', '🙂'\r\n", 0.0),
        ("ab\ufffd\ufffd", 0.5),
        ("a\x00\x1b\x7f", 0.75),
        ("\ue000\U000e0fff", 1.0),
    ],
)
def test_what_is_no_text(text: str, share: float) -> None:
    assert no_text(text) == share


def test_repetition_is_the_share_of_ngrams_that_were_there_before() -> None:
    assert repetition(()) == repetition((1, 2, 3)) == 0.0
    assert repetition(range(30)) == 0.0
    assert repetition((7,) * 13) == pytest.approx(0.9)
    assert repetition((1, 2, 1, 2, 1, 2), n=2) == pytest.approx(0.6)


def test_gibberish_is_no_text_or_the_same_over_and_over() -> None:
    assert not gibberish(wrote("return total", tuple(range(40))))
    assert not gibberish(wrote("abcdefghi\ufffd")), "a tenth is not more than a tenth"
    assert gibberish(wrote("abcdefgh\ufffd"))
    long = LEAST_NGRAMS + NGRAM - 1
    assert gibberish(wrote("the the the", (3, 4) * long))
    assert gibberish(wrote("the the the", (3,) * long))
    assert not gibberish(wrote("the the the", (3,) * (long - 1))), "too short to say"
    half = tuple(range(100)) + tuple(range(90))
    assert not gibberish(wrote("a paragraph written twice, nearly", half))
    assert counts_of([replace(PLAYS[0], trajectory=wrote("\ufffd")), *PLAYS], ())["gibberish"] == 1
