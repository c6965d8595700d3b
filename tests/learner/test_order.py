"""Sides that learn one after the other: two optimizer steps, one version, ratios against the policy before both."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from selfplay.learner.objective import Work, in_order, joined
from selfplay.types import Example, Sample
from tests.learner.conftest import make_batch, make_samples, make_trainer

ROLES = ("proposer", "solver")
ORDERS = [(("solver",), ("proposer",)), (("proposer",), ("solver",))]


def of_role(role: str) -> list[Sample]:
    return [sample for sample in make_samples(groups=4, roles=ROLES) if sample.role == role]


@pytest.mark.parametrize("order", ORDERS)
def test_sides_learn_one_after_the_other(order: tuple[tuple[str], ...]) -> None:
    (first,), (second,) = order
    batch = make_batch(make_samples(groups=4, roles=ROLES))
    trainer = make_trainer(order=order)
    update = trainer.update(batch)
    alone = make_trainer()
    before = alone.update(make_batch(of_role(first)))
    assert trainer.policy_version == 1, "a step is one version"
    assert update.metrics[f"{first}.grad_norm"] == pytest.approx(before.grad_norm)
    assert update.grad_norm == pytest.approx(math.hypot(*(update.metrics[f"{role}.grad_norm"] for role in ROLES)))
    # note: the second side's ratios are against the policy before both, whatever the first one changed.
    untouched = make_trainer().logprobs(of_role(second), temperature=1.0)
    recorded = [old for s, old in zip(batch.samples, update.old_logprobs, strict=True) if s.role == second]
    assert [value for one in recorded for value in one] == pytest.approx(
        [v for one in untouched for v in one], abs=1e-5
    )
    again = make_trainer(order=order).update(batch, recorded=update)
    assert replace(again, seconds=0.0) == replace(update, seconds=0.0)
    assert make_trainer().update(batch).weights_digest != update.weights_digest


def test_both_orders_differ() -> None:
    batch = make_batch(make_samples(groups=4, roles=ROLES))
    one, other = (make_trainer(order=order).update(batch).weights_digest for order in ORDERS)
    assert one != other


def test_a_side_without_replies_is_left_out() -> None:
    update = make_trainer(order=ORDERS[0]).update(make_batch(of_role("solver")))
    assert update.skipped is None
    assert update.weights_digest == make_trainer(order=ORDERS[1]).update(make_batch(of_role("solver"))).weights_digest


def test_the_warm_up_knows_no_order() -> None:
    examples = [Example(role=role, source="", prompt="say a", replies=("a",)) for role in ROLES]
    digests = []
    for trainer in (make_trainer(), make_trainer(order=ORDERS[0])):
        trainer.imitate(examples, index=0, total=1)
        digests.append(trainer.weights_digest())
    assert digests[0] == digests[1]


def test_work_is_cut_by_role_and_what_was_found_is_joined() -> None:
    samples = make_samples(groups=4, roles=ROLES)
    work = Work(
        samples=samples,
        parts=((0, 1), (4, 5), (8,)),
        weights={},
        temperature=1.0,
        objective=lambda row, tokens: tokens.logprobs_BT,
        old=None,
    )
    assert in_order(work, ()) == (work,)
    assert [one.parts for one in in_order(work, ORDERS[0])] == [((4, 5),), ((0, 1), (8,))]
    assert joined([(1.0, 3.0, {}, {"a": 3.0}), (0.5, 4.0, {}, {"b": 4.0})]) == (1.5, 5.0, {}, {"a": 3.0, "b": 4.0})
