"""Rates, rules and token weights follow from the options."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from selfplay.errors import UserError
from selfplay.learner import grpo
from selfplay.learner.batch import num_trained
from selfplay.learner.options import Options, correction_of, play_lr, rule_of, token_weights, warmup_lr
from selfplay.types import Sample


def options(**values: object) -> Options:
    return Options(**({"lr": 2.0, "warmup_lr": 1.0} | values))  # type: ignore[arg-type]


def test_the_play_rate_rises_and_stays() -> None:
    assert [play_lr(options(ramp=4), index=i) for i in range(6)] == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]
    assert play_lr(options(), index=0) == 2.0


@pytest.mark.parametrize("total", [1, 2, 7, 100])
def test_the_warm_up_rate_rises_to_its_peak_and_falls_to_a_tenth(total: int) -> None:
    rates = [warmup_lr(options(), index=i, total=total) for i in range(total)]
    ramp = max(1, -(-total // 10))
    assert rates[:ramp] == pytest.approx([(i + 1) / ramp for i in range(ramp)])
    assert rates[ramp - 1 :] == sorted(rates[ramp - 1 :], reverse=True)
    if total > 1:
        assert rates[-1] == pytest.approx(0.1)


def test_names_that_mean_nothing_are_refused() -> None:
    with pytest.raises(UserError, match="no loss `ppo`"):
        rule_of(options(loss="ppo"))
    with pytest.raises(UserError, match="no loss `nowhere:f`"):
        rule_of(options(loss="nowhere:f"))
    with pytest.raises(UserError, match="none is given"):
        rule_of(options(loss="dr_grpo"))
    with pytest.raises(UserError, match="no sampler correction"):
        correction_of(options(correction="tis"))
    assert rule_of(options(loss="selfplay.learner.grpo:dual_clipped")).token_loss is grpo.dual_clipped


@pytest.mark.parametrize("loss", ["token_mean", "sequence_mean"])
def test_each_role_has_its_weight_however_many_tokens_it_has(
    make_samples: Callable[..., tuple[Sample, ...]], loss: str
) -> None:
    samples = make_samples(groups=3, roles=("proposer", "solver", "solver"))
    weights = token_weights(samples, range(12), options=options(role_weights={"proposer": 0.2}, loss=loss))
    mass = {"proposer": 0.0, "solver": 0.0}
    for member, weight in weights.items():
        mass[samples[member].role] += weight * num_trained(samples[member])
    assert mass == pytest.approx({"proposer": 0.2, "solver": 0.5})
    pooled = token_weights(samples, range(12), options=options(role_weights="pooled", loss=loss))
    assert sum(w * num_trained(samples[m]) for m, w in pooled.items()) == pytest.approx(1.0)
