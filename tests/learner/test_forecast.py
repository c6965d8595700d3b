"""A run's memory before it begins: a full step, the longest sample, and what is refused."""

from __future__ import annotations

import pytest

from selfplay.errors import UserError
from selfplay.learner.forecast import Forecast, Groups, forecast
from selfplay.learner.memory import Setup, shape_of
from tests.learner.test_memory import SMOLLM2

GROUPS = (
    Groups(role="injector", number=2, size=4, reply_tokens=48),
    Groups(role="repairer", number=8, size=8, reply_tokens=48),
)


def of(*, limit_mb: float, groups: tuple[Groups, ...] = GROUPS, token_budget: int = 4096) -> Forecast:
    shape = shape_of(SMOLLM2)
    assert shape is not None
    setup = Setup(dtype="bfloat16", rows=4)
    return forecast(shape, setup, groups, token_budget=token_budget, limit_mb=limit_mb)


def test_micro_batches_are_counted_role_by_role() -> None:
    # 2 x (512 + 4 x 47) = 1400 tokens, and 8 x (512 + 8 x 47) = 7104: the last of a reply predicts nothing.
    assert of(limit_mb=1e6).micro_batches == 1 + 2
    assert of(limit_mb=1e6, token_budget=1000).micro_batches == 2 + 8


def test_less_memory_computes_layers_again_and_then_refuses() -> None:
    roomy = of(limit_mb=1e6)
    roomy.check()
    assert roomy.recomputed == 0
    tight = of(limit_mb=roomy.total_mb - 100)
    tight.check()
    assert 0 < tight.recomputed <= tight.micro_batches
    assert tight.total_mb < roomy.total_mb
    with pytest.raises(UserError, match="one sample of 8192 tokens") as caught:
        of(limit_mb=2000).check()
    assert "learner.memory_mb=" in str(caught.value.hint)


def test_nothing_to_learn_needs_nothing_more() -> None:
    idle = of(limit_mb=1e6, groups=())
    assert idle.update == {}
    assert idle.micro_batches == 0
