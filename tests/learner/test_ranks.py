"""A learner of two processes against one: gradient and loss to 1e-6 in float32, the same save, one sentence at the end.

The second rank is a real process and lives for all tests of this file. Four ranks: `test_ranks_more.py`, slow.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from selfplay.errors import RunFailed, UserError
from selfplay.learner.options import Options
from selfplay.learner.ranks import Ranked, Ranks
from selfplay.learner.ranks_world import turns
from selfplay.learner.trainer import Trainer
from selfplay.learner.weights import read
from selfplay.types import Batch, Sample, Update

pytestmark = pytest.mark.xdist_group("ranks")

MakeModel = Callable[..., Any]
MakeSamples = Callable[..., tuple[Sample, ...]]

LAID_OUT = {
    "one part, so that a rank has none": {"token_budget": 4096},
    "many parts": {"token_budget": 64},
    "embedding and head apart": {"token_budget": 64, "tied": False},
    "adapters": {"token_budget": 64, "lora_rank": 1},
    "a reference": {"token_budget": 64, "kl_coef": 0.1},
    "adapters and a reference": {"token_budget": 64, "lora_rank": 4, "kl_coef": 0.1},
    "layers computed again": {"token_budget": 64, "memory_mb": 1.0},
}
WHOLE = {"lr": 1e-3, "warmup_lr": 1e-3, "dtype": "float32", "threads": 1, "max_grad_norm": 1e9}


class Shared:
    """Two ranks, started when they are first needed, and again after one was killed."""

    def __init__(self) -> None:
        self._ranks: Ranks | None = None

    def __call__(self) -> Ranks:
        if self._ranks is None:
            self._ranks = Ranks.here(2)
        return self._ranks

    def close(self) -> None:
        if self._ranks is not None:
            self._ranks.close()
        self._ranks = None


@pytest.fixture(name="two", scope="module")
def _two() -> Iterator[Shared]:
    shared = Shared()
    yield shared
    shared.close()


def build(tmp_path: Path, tiny_model: MakeModel, *, tied: bool = True, **options: Any) -> partial[Trainer]:
    folder = tmp_path / "model"
    tiny_model(tied=tied).save_pretrained(folder)
    return partial(Trainer.from_folder, folder, options=Options(**{**WHOLE, **options}))


def batch_of(samples: Sequence[Sample], step: int = 0) -> Batch:
    return Batch(step=step, phase="play", samples=tuple(samples), temperature=0.9)


def uneven(make_samples: MakeSamples) -> tuple[Sample, ...]:
    """Groups of both roles, of different sizes, and one that teaches nothing."""
    samples = make_samples(groups=5, roles=("proposer", "solver"))
    kept = [sample for at, sample in enumerate(samples) if at % 7 != 3]
    return tuple(replace(sample, advantage=0.0) if sample.group_id == "g3" else sample for sample in kept)


def whole(learner: Trainer | Ranked, folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    learner.save(folder, step=0)
    stored = read(folder)
    return dict(stored.tensors), dict(stored.moments)


def check_same(one: Update, two: Update) -> None:
    """What is recorded of an update, but for digest, fingerprint and time."""
    assert two.partition == one.partition
    assert two.tokens == one.tokens
    assert two.trajectory_ids == one.trajectory_ids
    assert two.loss == pytest.approx(one.loss, abs=1e-6)
    assert two.grad_norm == pytest.approx(one.grad_norm, rel=1e-6)
    assert two.metrics == pytest.approx(one.metrics, rel=1e-4, abs=1e-5)
    assert [list(values) for values in two.old_logprobs] == [
        pytest.approx(list(values), abs=1e-5) for values in one.old_logprobs
    ]


def check_two_updates(one: Trainer, many: Ranked, samples: Sequence[Sample], tmp_path: Path) -> None:
    """AdamW's first moment after its first update is a tenth of the gradient, nothing being clipped."""
    if one.options.kl_coef:
        assert many.pin_reference() == one.pin_reference()
    begun = many.weights_digest()
    assert begun == one.weights_digest()
    check_same(one.update(batch_of(samples)), many.update(batch_of(samples)))
    (tensors, moments), (ours, our_moments) = whole(one, tmp_path / "one"), whole(many, tmp_path / "many")
    assert ours.keys() == tensors.keys()
    assert our_moments.keys() == moments.keys()
    share = 1.0 - one.options.betas[0]
    gradients = [name for name in moments if name.startswith("exp_avg.")]
    assert max(moments[name].abs().max() for name in gradients) / share > 1e-3
    for name in gradients:
        torch.testing.assert_close(our_moments[name] / share, moments[name] / share, atol=1e-6, rtol=1e-5)
    assert many.weights_digest() != begun
    # note: from here on what was a last bit of a gradient near zero is a step of AdamW.
    check_same(one.update(batch_of(samples, 1)), many.update(batch_of(samples, 1)))


@pytest.mark.parametrize("options", LAID_OUT.values(), ids=list(LAID_OUT))
def test_two_ranks_learn_what_one_process_does(
    two: Shared, tmp_path: Path, tiny_model: MakeModel, make_samples: MakeSamples, options: dict[str, Any]
) -> None:
    made = build(tmp_path, tiny_model, **options)
    check_two_updates(made(), Ranked(two(), made), uneven(make_samples), tmp_path)


def test_in_bfloat16_gradients_are_added_up_in_float32_too(
    two: Shared, tmp_path: Path, tiny_model: MakeModel, make_samples: MakeSamples
) -> None:
    made = build(tmp_path, tiny_model, dtype="bfloat16", token_budget=64)
    one, many = made(), Ranked(two(), made)
    check_same(one.update(batch_of(uneven(make_samples))), many.update(batch_of(uneven(make_samples))))
    assert next(iter(many.compute.values())).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "apart"])
@pytest.mark.parametrize("roles", [("solver",), ("proposer", "solver")], ids=["one role", "two roles"])
def test_updates_of_one_part_a_role_give_the_same_bits(
    two: Shared,
    tmp_path: Path,
    tiny_model: MakeModel,
    make_samples: MakeSamples,
    roles: tuple[str, ...],
    tied: bool,
    dtype: str,
) -> None:
    made = build(tmp_path, tiny_model, tied=tied, dtype=dtype, max_grad_norm=0.1)
    one, many, samples = made(), Ranked(two(), made), make_samples(groups=4, roles=roles)
    for step in range(3):
        first, second = (learner.update(batch_of(samples, step)) for learner in (one, many))
        assert len(first.partition) == len(roles)
        assert first.grad_norm > 0.1, "clipped"
        assert second.loss == first.loss
        assert second.grad_norm == pytest.approx(first.grad_norm, rel=1e-14)
        assert second.weights_digest == first.weights_digest


def test_a_save_of_ranks_is_a_save_of_one_process_and_back(
    two: Shared, tmp_path: Path, tiny_model: MakeModel, make_samples: MakeSamples
) -> None:
    made = build(tmp_path, tiny_model, token_budget=64)
    many, batch = Ranked(two(), made), batch_of(uneven(make_samples))
    update = many.update(batch)
    saved = many.save(tmp_path / "runs" / "step", step=0)
    assert saved.weights_digest == update.weights_digest == many.weights_digest()
    assert [place.name for place in (tmp_path / "runs").iterdir()] == ["step"], "no shards are left"
    one = made()
    one.load(tmp_path / "runs" / "step", saved)
    again = one.save(tmp_path / "again", step=0)
    assert (again.weights_digest, again.state_digest) == (saved.weights_digest, saved.state_digest)
    many.update(batch)
    many.load(tmp_path / "again", again)
    assert many.weights_digest() == saved.weights_digest
    third = many.save(tmp_path / "third", step=0)
    assert (third.weights_digest, third.state_digest) == (saved.weights_digest, saved.state_digest)
    assert many.logprobs(batch.samples, temperature=0.9) == one.logprobs(batch.samples, temperature=0.9)


def test_a_recorded_update_is_applied_to_the_same_weights(
    two: Shared, tmp_path: Path, tiny_model: MakeModel, make_samples: MakeSamples
) -> None:
    made, batch = build(tmp_path, tiny_model, token_budget=64), batch_of(uneven(make_samples))
    first = Ranked(two(), made).update(batch)
    again = Ranked(two(), made).update(batch, recorded=first)
    assert again.weights_digest == first.weights_digest
    assert again.partition == first.partition


def test_what_fails_on_every_rank_changes_nothing_and_ends_nobody(
    two: Shared, tmp_path: Path, tiny_model: MakeModel, make_samples: MakeSamples
) -> None:
    made, batch = build(tmp_path, tiny_model, token_budget=64, max_grad_norm=1.0), batch_of(uneven(make_samples))
    many = Ranked(two(), made)
    before = many.weights_digest()
    huge = replace(batch, samples=tuple(replace(sample, advantage=1e38) for sample in batch.samples))
    with pytest.raises(RunFailed, match="not finite"):
        many.update(huge)
    assert many.weights_digest() == before
    check_same(made().update(batch), many.update(batch))
    with pytest.raises(RunFailed, match="cannot be read"):
        many.load(tmp_path / "nothing", many.save(tmp_path / "step", step=0))
    assert many.update(batch_of(batch.samples, 1)).policy_version == 2


def test_what_ranks_cannot_do_is_refused(two: Shared, tmp_path: Path, tiny_model: MakeModel) -> None:
    with pytest.raises(UserError, match="blocks of numbers"):
        Ranked(two(), build(tmp_path, tiny_model, optimizer="adamw8bit"))
    with pytest.raises(UserError, match="one update a step"):
        Ranked(two(), build(tmp_path, tiny_model, updates_per_step=2))


def test_a_rank_that_is_killed_ends_the_update_in_one_sentence(
    two: Shared, tmp_path: Path, tiny_model: MakeModel, make_samples: MakeSamples
) -> None:
    ranks, batch = two(), batch_of(uneven(make_samples))
    many = Ranked(ranks, build(tmp_path, tiny_model, token_budget=64))
    os.kill(ranks.pids[0], signal.SIGKILL)
    with pytest.raises(RunFailed, match=r"^rank 1 of the learner was killed by SIGKILL") as failed:
        many.update(batch)
    assert failed.value.hint is not None
    assert "type the same run command again" in failed.value.hint
    two.close()
    assert not Path(f"/proc/{ranks.pids[0]}").exists()


@pytest.mark.parametrize("size", [1, 2, 4, 7])
def test_every_part_is_taken_once_and_every_rank_takes_as_many_turns(make_samples: MakeSamples, size: int) -> None:
    samples = make_samples(groups=6, roles=("proposer", "solver"))
    members = list(range(len(samples)))
    random.Random(size).shuffle(members)
    proposers = [m for m in members if samples[m].role == "proposer"]
    solvers = [m for m in members if samples[m].role == "solver"]
    parts = [proposers[:3], proposers[3:8], proposers[8:], solvers[:11], solvers[11:]]
    found = [turns(samples, parts, rank=rank, size=size) for rank in range(size)]
    assert sorted(turn.part for own in found for turn in own if turn.counts) == list(range(len(parts)))
    assert len({len(own) for own in found}) == 1
    for own in found:
        ends = [turn.ends for turn in own]
        assert [end for end in ends if end is not None] == [2, 4], "the last of each role, once it is done"
        assert all(turn.part <= 2 for turn in own[: ends.index(2) + 1] if turn.counts)
