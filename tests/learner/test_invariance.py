"""What an update does must not depend on how its batch is cut, ordered, padded or spread; in float32, to 1e-6.

Seeded loops over random batches: roles, group sizes, lengths, turns and advantages differ from one to the next.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from selfplay.learner import grpo
from selfplay.learner.batch import informative, num_trained
from selfplay.learner.options import token_weights
from selfplay.learner.passes import collect
from selfplay.learner.roles import partition_by_role
from selfplay.learner.trainer import Trainer
from selfplay.types import Batch, Sample

MakeTrainer = Callable[..., Trainer]

LOSSES = [{"loss": name} for name in grpo.LOSSES if name != "cispo"] + [{"loss": "cispo", "clip_high": 5.0}]
EXTRAS = [
    {"role_weights": "pooled"},
    {"role_weights": {"proposer": 0.2, "solver": 0.8}},
    *({"correction": name} for name in grpo.CORRECTIONS),
    *({"kl_coef": 0.1, "kl_estimator": name} for name in grpo.KLS),
]


def random_samples(seed: int) -> tuple[Sample, ...]:
    """Groups of both roles; prompts, replies and numbers of turns differ, and so do sampler and learner."""
    chance = random.Random(seed)
    samples: list[Sample] = []
    for g in range(chance.randint(2, 4)):
        prompt = [chance.randrange(2, 64) for _ in range(chance.randint(1, 12))]
        size = chance.randint(2, 4)
        for i in range(size):
            ids, trained = list(prompt), [False] * len(prompt)
            for turn in range(chance.randint(1, 3)):
                said, told = chance.randint(1, 9), chance.randint(1, 4) if turn else 0
                ids += [chance.randrange(2, 64) for _ in range(told + said)]
                trained += [False] * told + [True] * said
            samples.append(
                Sample(
                    trajectory_id=f"t{g}.{i}",
                    role=("proposer", "solver")[g % 2],
                    group_id=f"g{g}",
                    token_ids=tuple(ids),
                    trained=tuple(trained),
                    sampler_logprobs=tuple(-chance.uniform(3.0, 6.0) if t else 0.0 for t in trained),
                    advantage=chance.choice((-1.5, -0.5, 0.5, 1.0)) if i < size - 1 else 0.25,
                )
            )
    return tuple(samples)


def gradient(
    trainer: Trainer, samples: Sequence[Sample], *, members: Sequence[int] | None = None, cut: int | None = None
) -> tuple[Tensor, float]:
    """Gradient and loss of `members` (None: all), weighed as in the whole batch; the weights stay.

    Old log-probabilities are a little off the current ones, so that clips and ratios matter.
    """
    chosen = list(range(len(samples))) if members is None else members
    exact = trainer.logprobs(samples, temperature=0.9)
    old = [_beside(values, name=sample.trajectory_id) for sample, values in zip(samples, exact, strict=True)]
    sampled = tuple(_sampled(sample, values) for sample, values in zip(samples, old, strict=True))
    batch = Batch(step=0, phase="play", samples=sampled, temperature=0.9)
    work, _ = trainer._play_work(batch, informative(samples), None)
    parts = partition_by_role(samples, chosen, token_budget=cut or trainer.options.token_budget)
    work = replace(work, parts=parts, old={member: torch.tensor(old[member]) for member in chosen})
    loss, _, _ = collect(work, trainer._master, room=trainer._room)
    found = torch.cat([tensor.flatten().clone() for tensor in trainer._master.gradients.values()])
    trainer._master.zero_gradients()
    return found, loss


def _beside(values: Sequence[float], *, name: str) -> list[float]:
    chance = random.Random(name)
    return [value + chance.uniform(-0.4, 0.4) for value in values]


def _sampled(sample: Sample, old: Sequence[float]) -> Sample:
    """The sampler's log-probabilities are a little off the old ones."""
    values = iter(_beside(old, name=f"sampler {sample.trajectory_id}"))
    return replace(sample, sampler_logprobs=tuple(next(values) if trained else 0.0 for trained in sample.trained))


def same(found: tuple[Tensor, float], expected: tuple[Tensor, float]) -> None:
    torch.testing.assert_close(found[0], expected[0], atol=1e-6, rtol=1e-5)
    assert found[1] == pytest.approx(expected[1], abs=1e-6)


def check_cut_and_order(trainer: Trainer, samples: Sequence[Sample], whole: tuple[Tensor, float]) -> None:
    for cut in (1, 40):
        same(gradient(trainer, samples, cut=cut), whole)
    same(gradient(trainer, random.Random(0).sample(samples, len(samples))), whole)


def check_world(trainer: Trainer, samples: Sequence[Sample], whole: tuple[Tensor, float]) -> None:
    """Ranks have a part of the samples each, and the weights of the whole batch: their gradients add up."""
    for world in (2, 4):
        shares = [gradient(trainer, samples, members=range(rank, len(samples), world)) for rank in range(world)]
        same((torch.stack([share[0] for share in shares]).sum(0), sum(share[1] for share in shares)), whole)


def check_roles(trainer: Trainer, samples: Sequence[Sample], whole: tuple[Tensor, float]) -> None:
    """Each role has its own mean: learnt jointly or alone, it brings the same gradient."""
    proposer, solver = (gradient(trainer, [s for s in samples if s.role == role]) for role in ("proposer", "solver"))
    same((proposer[0] + solver[0], proposer[1] + solver[1]), whole)


@pytest.mark.parametrize("options", LOSSES, ids=lambda options: str(options["loss"]))
def test_losses_do_not_depend_on_cut_order_world_size_or_the_other_role(
    make_trainer: MakeTrainer, options: dict[str, object]
) -> None:
    trainer, samples = make_trainer(horizon=16, **options), random_samples(0)
    whole = gradient(trainer, samples)
    assert whole[0].abs().max() > 1e-3
    check_cut_and_order(trainer, samples, whole)
    check_world(trainer, samples, whole)
    check_roles(trainer, samples, whole)


@pytest.mark.parametrize("options", EXTRAS, ids=lambda options: "-".join(map(str, options.values())))
def test_nor_do_corrections_divergences_and_weights_of_roles(
    make_trainer: MakeTrainer, options: dict[str, object]
) -> None:
    trainer, samples = make_trainer(**options), random_samples(1)
    trainer.pin_reference()
    trainer.update(Batch(step=0, phase="play", samples=random_samples(3), temperature=1.0))
    whole = gradient(trainer, samples)
    assert whole[0].abs().max() > 1e-3
    check_world(trainer, samples, whole)
    if options.get("role_weights") != "pooled":
        check_roles(trainer, samples, whole)


@pytest.mark.parametrize("options", LOSSES, ids=lambda options: str(options["loss"]))
def test_a_positive_advantage_raises_the_log_probability(make_trainer: MakeTrainer, options: dict[str, object]) -> None:
    for sign in (1.0, -1.0):
        trainer = make_trainer(horizon=16, lr=1e-4, **options)
        batch = Batch(step=0, phase="play", samples=(replace(random_samples(2)[0], advantage=sign),), temperature=1.0)
        (before,) = trainer.logprobs(batch.samples, temperature=1.0)
        trainer.update(batch)
        (after,) = trainer.logprobs(batch.samples, temperature=1.0)
        assert (sum(after) - sum(before)) * sign > 0.0


@pytest.mark.parametrize("loss", list(grpo.LOSSES))
def test_padding_changes_neither_loss_nor_gradient(loss: str) -> None:
    torch.manual_seed(0)
    lengths = torch.tensor([3, 1, 5])
    logprobs_BT, old_BT = -torch.rand(3, 5), -torch.rand(3, 5)
    advantage_B = torch.tensor([1.0, -0.5, 0.25])

    def run(width: int, filler: float) -> tuple[Tensor, Tensor]:
        wide = torch.full((3, width), filler)
        wide[:, :5] = logprobs_BT
        wide.requires_grad_(True)
        mask_BT = torch.arange(width)[None, :] < lengths[:, None]
        old = torch.nn.functional.pad(old_BT, (0, width - 5), value=filler)
        tokens = grpo.Tokens(logprobs_BT=wide, old_BT=old, mask_BT=mask_BT, advantage_B=advantage_B)
        clip = {"clip_high": 5.0} if loss == "cispo" else {}
        loss_BT = grpo.LOSSES[loss].token_loss(tokens, **clip)
        total = grpo.total(loss_BT, mask_BT=mask_BT, weight_B=grpo.token_mean(lengths))
        (found,) = torch.autograd.grad(total, wide)
        return total.detach(), found

    plain, padded = run(5, 0.0), run(9, -7.0)
    torch.testing.assert_close(padded[0], plain[0], atol=1e-6, rtol=0)
    torch.testing.assert_close(padded[1][:, :5], plain[1], atol=1e-6, rtol=0)
    assert not padded[1][:, 5:].any()


def test_a_token_s_weight_does_not_depend_on_the_order_of_samples(make_trainer: MakeTrainer) -> None:
    samples = random_samples(5)
    turned = samples[::-1]
    for loss in ("token_mean", "sequence_mean", "dr_grpo"):
        options = make_trainer(loss=loss, horizon=8).options
        weights = token_weights(samples, range(len(samples)), options=options)
        again = token_weights(turned, range(len(samples)), options=options)
        assert [again[len(samples) - 1 - m] for m in range(len(samples))] == pytest.approx(
            [weights[m] for m in range(len(samples))], rel=1e-12
        )
        mass = sum(weight * num_trained(samples[m]) for m, weight in weights.items())
        assert loss == "dr_grpo" or mass == pytest.approx(1.0)
