"""A number that is not finite, or a list that does not fit, is named with its trajectory before anything is learnt."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from selfplay.errors import RunFailed
from selfplay.learner.refuse import refuse
from selfplay.learner.trainer import Trainer
from selfplay.types import Batch, Sample

MakeSamples = Callable[..., tuple[Sample, ...]]
MakeBatch = Callable[..., Batch]


def with_logprob(sample: Sample, at: int, value: float) -> Sample:
    values = list(sample.sampler_logprobs)
    values[at] = value
    return replace(sample, sampler_logprobs=tuple(values))


def test_what_is_whole_passes(make_batch: MakeBatch) -> None:
    refuse(make_batch())
    refuse(make_batch(()))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_named(make_samples: MakeSamples, make_batch: MakeBatch, bad: float) -> None:
    first, second, *rest = make_samples()
    with pytest.raises(RunFailed, match=rf"trajectory t0\.1 \(step 0, solver\) .* its advantage is {bad}"):
        refuse(make_batch([first, replace(second, advantage=bad), *rest]))
    at = len(second.token_ids) - 1
    with pytest.raises(RunFailed, match=rf"trajectory t0\.1 .* log-probability of its token {at} is {bad}"):
        refuse(make_batch([first, with_logprob(second, at, bad), *rest]))


def test_lists_that_do_not_fit_are_named(make_samples: MakeSamples, make_batch: MakeBatch) -> None:
    pruned = replace(make_samples()[0], sampler_logprobs=())
    with pytest.raises(RunFailed, match=r"trajectory t0\.0 .* and 0 log-probabilities"):
        refuse(make_batch([pruned]))


def test_the_learner_refuses_and_is_as_before(
    make_trainer: Callable[..., Trainer], make_samples: MakeSamples, make_batch: MakeBatch
) -> None:
    trainer, healthy = make_trainer(), make_trainer()
    first, *rest = make_samples()
    for broken in (replace(first, advantage=math.nan), with_logprob(first, -1, -math.inf)):
        with pytest.raises(RunFailed, match=r"trajectory t0\.0"):
            trainer.update(make_batch([broken, *rest]))
    assert trainer.policy_version == 0
    assert trainer.update(make_batch()).weights_digest == healthy.update(make_batch()).weights_digest


def test_samples_without_a_trained_token_are_counted(
    make_trainer: Callable[..., Trainer], make_samples: MakeSamples, make_batch: MakeBatch
) -> None:
    samples = make_samples()
    mute = replace(samples[0], trained=(False,) * len(samples[0].token_ids))
    update = make_trainer().update(make_batch([mute, *samples[1:]]))
    assert (update.metrics["zero_variance"], update.metrics["untrained"]) == (0.0, 1.0)
    assert update.old_logprobs[0] == ()
    alone = make_trainer().update(make_batch([mute]))
    assert alone.skipped == "no group has a sample to learn from"
    assert (alone.metrics["zero_variance"], alone.metrics["untrained"]) == (0.0, 1.0)
    same = make_trainer().update(make_batch([replace(sample, advantage=0.0) for sample in samples]))
    assert (same.metrics["zero_variance"], same.metrics["untrained"]) == (float(len(samples)), 0.0)
