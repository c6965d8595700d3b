"""Updates do what their records say, the same way every time, and leave nothing behind when they fail."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from selfplay.errors import NotFound, RunFailed, UserError
from selfplay.learner import Learner, grpo
from selfplay.learner.options import Options
from selfplay.learner.trainer import Trainer
from selfplay.types import Batch, Example, Sample, Update
from tests import forked

MakeTrainer = Callable[..., Trainer]
MakeBatch = Callable[..., Batch]
MakeSamples = Callable[..., tuple[Sample, ...]]
MakeModel = Callable[..., LlamaForCausalLM]

EXAMPLES = (
    Example(role="solver", source="a.py", prompt="say a", replies=("a", "aa")),
    Example(role="proposer", source="b.py", prompt="say b", replies=("b",)),
)


def parameters(trainer: Trainer) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}


def logprobs(trainer: Trainer, batch: Batch) -> tuple[tuple[float, ...], ...]:
    """Of the trained tokens under the present weights: those that the next update would record."""
    twin = Trainer(LlamaForCausalLM(trainer.model.config), options=replace(trainer.options, lr=0.0), tokenizer=None)
    twin.model.load_state_dict(trainer.model.state_dict())
    return twin.update(batch).old_logprobs


def test_a_trainer_is_a_learner(make_trainer: MakeTrainer) -> None:
    learner: Learner = make_trainer()
    assert learner.policy_version == 0
    assert torch.__version__ in learner.fingerprint


def test_an_update_raises_what_was_good_and_lowers_what_was_bad(
    make_trainer: MakeTrainer, make_batch: MakeBatch
) -> None:
    trainer, batch = make_trainer(lr=1e-4), make_batch()
    update = trainer.update(batch)
    after = logprobs(trainer, batch)
    for sample, old, new in zip(batch.samples, update.old_logprobs, after, strict=True):
        assert (math.fsum(new) > math.fsum(old)) == (sample.advantage > 0)
    assert (update.policy_version, update.skipped) == (1, None)
    assert update.tokens == sum(sum(sample.trained) for sample in batch.samples)


def test_the_loss_and_gradient_are_the_formula_s(
    make_trainer: MakeTrainer, make_samples: MakeSamples, tiny_model: MakeModel
) -> None:
    """Against transformers' own forward of each sample alone, and the design's formula written out."""
    samples = make_samples(groups=4, roles=("proposer", "solver"))
    weights = {"proposer": 0.3, "solver": 0.7}
    model = tiny_model()
    num_tokens = {role: sum(sum(s.trained) for s in samples if s.role == role) for role in weights}
    loss = torch.zeros(())
    for sample in samples:
        logits = model(input_ids=torch.tensor([sample.token_ids])).logits[0]
        for t, trained in enumerate(sample.trained):
            if trained:
                logprob = torch.log_softmax(logits[t - 1] / 0.8, dim=-1)[sample.token_ids[t]]
                ratio = (logprob - logprob.detach()).exp()
                loss = loss - weights[sample.role] * sample.advantage * ratio / num_tokens[sample.role]
    loss.backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]).item()

    trainer = make_trainer(role_weights=weights)
    update = trainer.update(Batch(step=3, phase="play", samples=samples, temperature=0.8))
    assert update.loss == pytest.approx(loss.item(), abs=1e-6)
    assert update.grad_norm == pytest.approx(norm, rel=1e-5)
    assert update.step == 3


def gradient_direction(trainer: Trainer, batch: Batch) -> Tensor:
    """What a plain gradient step changes: found with the first moments that the update leaves."""
    trainer.update(batch)
    moments = trainer._master.moments()
    return torch.cat([moments[f"exp_avg.{name}"].flatten() for name in trainer._master.tensors()])


@pytest.mark.parametrize("loss", ["token_mean", "sequence_mean", "dr_grpo", "dual_clip", "gspo"])
def test_cutting_and_ordering_do_not_change_the_gradient(
    make_trainer: MakeTrainer, make_batch: MakeBatch, make_samples: MakeSamples, loss: str
) -> None:
    samples = make_samples(groups=4, roles=("proposer", "solver"))
    options = {"loss": loss, "horizon": 16, "max_grad_norm": 1e9}
    whole = gradient_direction(make_trainer(**options), make_batch(samples))
    shuffled = [samples[i] for i in (7, 3, 15, 0, 9, 1, 12, 4, 2, 14, 6, 5, 13, 8, 11, 10)]
    for budget in (1, 24, 60):
        cut = gradient_direction(make_trainer(token_budget=budget, **options), make_batch(shuffled))
        torch.testing.assert_close(cut, whole, atol=1e-6 * whole.abs().max().item(), rtol=1e-5)


def test_a_group_without_advantage_counts_nowhere(
    make_trainer: MakeTrainer, make_batch: MakeBatch, make_samples: MakeSamples
) -> None:
    samples = make_samples(groups=3)
    idle = tuple(replace(s, advantage=0.0) if s.group_id == "g1" else s for s in samples)
    busy = tuple(s for s in samples if s.group_id != "g1")
    with_idle, without = make_trainer(), make_trainer()
    update = with_idle.update(make_batch(idle))
    assert update.weights_digest == without.update(make_batch(busy)).weights_digest
    assert update.metrics["zero_variance"] == 4
    assert update.old_logprobs[4:8] == ((),) * 4
    assert update.trajectory_ids == tuple(s.trajectory_id for s in samples)


@pytest.mark.parametrize("case", ["all zero", "empty"])
def test_nothing_to_learn_closes_without_a_change(
    make_trainer: MakeTrainer, make_batch: MakeBatch, make_samples: MakeSamples, case: str
) -> None:
    samples = tuple(replace(s, advantage=0.0) for s in make_samples()) if case == "all zero" else ()
    trainer = make_trainer()
    before = trainer.weights_digest()
    update = trainer.update(make_batch(samples))
    assert update.skipped == "no group has a sample to learn from"
    assert (update.weights_digest, trainer.weights_digest(), update.policy_version) == (before, before, 0)
    assert trainer.update(make_batch(samples), recorded=update).skipped == update.skipped


def test_truncated_samples_without_trained_tokens_are_left_out(
    make_trainer: MakeTrainer, make_batch: MakeBatch, make_samples: MakeSamples
) -> None:
    samples = make_samples()
    masked = replace(samples[0], trained=(False,) * len(samples[0].trained))
    update = make_trainer().update(make_batch((masked, *samples[1:])))
    assert 0 not in {member for part in update.partition for member in part}
    assert update.skipped is None


TWO_UPDATES = """
import sys
sys.path.insert(0, sys.argv[1])
from conftest import make_batch, make_trainer
for dtype in ("float32", "bfloat16"):
    trainer = make_trainer(dtype=dtype, token_budget=60, threads=2)
    for _ in range(2):
        update = trainer.update(make_batch())
    print(update.weights_digest)
"""


def test_the_same_records_give_the_same_bits_in_another_process(
    make_trainer: MakeTrainer, make_batch: MakeBatch
) -> None:
    there = forked.run(TWO_UPDATES, [str(Path(__file__).parent)]).stdout.split()
    here: list[str] = []
    for dtype in ("float32", "bfloat16"):
        trainer = make_trainer(dtype=dtype, token_budget=60, threads=2)
        updates = [trainer.update(make_batch()) for _ in range(2)]
        here.append(updates[-1].weights_digest)
    assert here == there


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_recorded_update_is_applied_again_to_the_bit(
    make_trainer: MakeTrainer, make_batch: MakeBatch, dtype: str, times: int
) -> None:
    first = make_trainer(dtype=dtype, token_budget=60, ramp=4, updates_per_step=times)
    records = [first.update(make_batch()) for _ in range(3)]
    # Another budget and rate: the record's hold.
    again = make_trainer(dtype=dtype, token_budget=1000, lr=7.0, updates_per_step=times)
    for record in records:
        found = again.update(make_batch(), recorded=record)
        assert replace(found, seconds=0.0) == replace(record, seconds=0.0)


def test_the_compute_copy_is_the_rounded_master(make_trainer: MakeTrainer, make_batch: MakeBatch) -> None:
    trainer = make_trainer(dtype="bfloat16", lr=1e-6)
    model = trainer.model
    before = trainer.weights_digest()
    trainer.update(make_batch())
    assert trainer.model is model
    assert trainer.weights_digest() != before, "a step too small for bfloat16 is kept in float32"
    for name, parameter in model.named_parameters():
        assert parameter.dtype == torch.bfloat16
        assert torch.equal(parameter, trainer._master.tensors()[name].bfloat16())
    assert all(buffer.dtype == torch.float32 for buffer in model.buffers()), "rotary frequencies stay exact"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_saved_and_loaded_goes_on_as_if_nothing_had_happened(
    make_trainer: MakeTrainer, make_batch: MakeBatch, tmp_path: Path, dtype: str
) -> None:
    trainer = make_trainer(dtype=dtype, ramp=5)
    trainer.start_phase("play")
    trainer.update(make_batch())
    save = trainer.save(tmp_path / "save", step=0)
    other = make_trainer(seed=9, dtype=dtype, ramp=5)
    other.load(tmp_path / "save", save)
    assert (other.policy_version, other.weights_digest()) == (1, save.weights_digest)
    expected, found = trainer.update(make_batch()), other.update(make_batch())
    assert replace(found, seconds=0.0) == replace(expected, seconds=0.0)
    assert other.save(tmp_path / "b", step=1).state_digest == trainer.save(tmp_path / "a", step=1).state_digest


def test_a_save_before_the_first_update_loads(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    trainer = make_trainer()
    save = trainer.save(tmp_path / "save", step=-1)
    other = make_trainer(seed=9)
    other.load(tmp_path / "save", save)
    assert (save.policy_version, save.step, other.weights_digest()) == (0, -1, trainer.weights_digest())


def test_transformers_opens_a_save(make_trainer: MakeTrainer, make_batch: MakeBatch, tmp_path: Path) -> None:
    trainer = make_trainer(tied=False, dtype="bfloat16")
    trainer.update(make_batch())
    trainer.save(tmp_path / "save", step=0)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "save")
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, trainer._master.tensors()[name])
    assert json.loads((tmp_path / "save" / "config.json").read_text())["dtype"] == "float32"
    again = Trainer.from_folder(tmp_path / "save", options=trainer.options)
    assert again.weights_digest() == trainer.weights_digest()


def test_a_damaged_save_is_refused_and_changes_nothing(
    make_trainer: MakeTrainer, make_batch: MakeBatch, tmp_path: Path
) -> None:
    trainer = make_trainer()
    trainer.update(make_batch())
    folder = tmp_path / "save"
    save = trainer.save(folder, step=0)
    before = trainer.update(make_batch()).weights_digest
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    for damaged in (whole[:-64], whole[:-1] + bytes([whole[-1] ^ 1]), b""):
        file.write_bytes(damaged)
        with pytest.raises(RunFailed, match="the save in"):
            trainer.load(folder, save)
        assert trainer.weights_digest() == before
    file.unlink()
    with pytest.raises(RunFailed, match="cannot be read"):
        trainer.load(folder, save)


@pytest.mark.parametrize("times", [1, 2])
def test_a_loss_that_is_not_finite_changes_nothing(
    make_trainer: MakeTrainer, make_batch: MakeBatch, make_samples: MakeSamples, times: int, tmp_path: Path
) -> None:
    options = {"updates_per_step": times, "loss": "test_trainer_losses:broken"}
    trainer, healthy = make_trainer(**options), make_trainer(**options)
    samples = make_samples()
    broken = (*samples[:-1], replace(samples[-1], advantage=99.0))
    with pytest.raises(RunFailed, match="the loss is not finite"):
        trainer.update(make_batch(broken))
    assert (trainer.weights_digest(), trainer.policy_version) == (healthy.weights_digest(), 0)
    assert trainer.update(make_batch()).weights_digest == healthy.update(make_batch()).weights_digest


def test_a_gradient_that_is_not_finite_changes_nothing(make_trainer: MakeTrainer, make_batch: MakeBatch) -> None:
    trainer = make_trainer(loss="test_trainer_losses:exploding")
    before = trainer.weights_digest()
    with pytest.raises(RunFailed, match="the gradient is not finite"):
        trainer.update(make_batch())
    assert (trainer.weights_digest(), trainer.policy_version) == (before, 0)


@pytest.fixture(autouse=True)
def _losses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A module of losses that a configuration names by its dotted path."""
    (tmp_path / "test_trainer_losses.py").write_text(
        "from selfplay.learner import grpo\n"
        "def exploding(tokens, *, clip_low, clip_high):\n"
        "    return (tokens.logprobs_BT - tokens.logprobs_BT.detach()).abs().sqrt()\n"
        "def broken(tokens, *, clip_low, clip_high):\n"
        "    loss = grpo.clipped(tokens)\n"
        "    return loss.masked_fill(tokens.advantage_B[:, None] == 99, float('nan'))\n"
        "def same(tokens, *, clip_low, clip_high):\n"
        "    return grpo.clipped(tokens, clip_low=clip_low, clip_high=clip_high)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


def test_a_loss_by_dotted_path(make_trainer: MakeTrainer, make_batch: MakeBatch) -> None:
    own, named = make_trainer(loss="test_trainer_losses:same"), make_trainer()
    assert own.update(make_batch()).weights_digest == named.update(make_batch()).weights_digest


def test_a_second_step_on_a_batch_is_off_policy_and_clipped(make_trainer: MakeTrainer, make_batch: MakeBatch) -> None:
    once = make_trainer(lr=3e-2).update(make_batch())
    twice = make_trainer(lr=3e-2, updates_per_step=2)
    update = twice.update(make_batch())
    assert update.old_logprobs == once.old_logprobs
    assert (update.loss, update.policy_version) == (once.loss, 1)
    later = twice.update(make_batch(), recorded=replace(update, weights_digest=""))
    assert later.metrics["clip_fraction"] > 0


def test_the_sampler_correction_weighs_tokens(
    make_trainer: MakeTrainer, make_batch: MakeBatch, make_samples: MakeSamples
) -> None:
    exact = make_trainer().update(make_batch()).old_logprobs
    samples = []
    for sample, old in zip(make_samples(), exact, strict=True):
        values = iter(old)
        sampled = tuple(next(values) - 1.0 if trained else 0.0 for trained in sample.trained)
        samples.append(replace(sample, sampler_logprobs=sampled))
    plain = make_trainer().update(make_batch(samples))
    corrected = make_trainer(correction="token_truncated").update(make_batch(samples))
    assert plain.metrics["sampler_gap"] == pytest.approx(1.0, abs=1e-5)
    assert plain.metrics["sampler_ratio_max"] == pytest.approx(math.e, abs=1e-4)
    assert corrected.loss == pytest.approx(2.0 * plain.loss, rel=1e-5)
    masked = make_trainer(correction="icepop").update(make_batch(samples))
    assert (masked.loss, masked.grad_norm) == (0.0, 0.0)


def test_the_divergence_pulls_back_to_the_pinned_reference(
    make_trainer: MakeTrainer, make_batch: MakeBatch, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="no reference is pinned"):
        make_trainer(kl_coef=0.1).update(make_batch())
    trainer, free = make_trainer(kl_coef=10.0), make_trainer()
    save = trainer.save(tmp_path / "save", step=-1)
    assert trainer.pin_reference(tmp_path / "save") == trainer.pin_reference() == save.weights_digest
    first, plain = trainer.update(make_batch()), free.update(make_batch())
    assert first.weights_digest == plain.weights_digest, "at the reference the divergence is flat"
    assert (first.reference_digest, plain.reference_digest) == (save.weights_digest, None)
    assert trainer.update(make_batch()).loss > free.update(make_batch()).loss + 1e-3


def test_imitation_learns_the_replies_and_their_end(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer()
    updates = [trainer.imitate(EXAMPLES, index=i, total=40) for i in range(40)]
    first, last = updates[0], updates[-1]
    assert first.tokens == 2 + 3 + 2
    assert last.loss < 0.3 < 3.0 < first.loss
    assert last.metrics["solver.loss"] < first.metrics["solver.loss"]
    assert (first.phase, first.step, last.step, last.policy_version) == ("warmup", 0, 39, 40)
    assert len(first.trajectory_ids) == len(set(first.trajectory_ids)) == 3
    assert first.old_logprobs == ()
    assert updates[3].lr == pytest.approx(1e-2)
    assert last.lr == pytest.approx(1e-3)


def test_imitation_is_the_mean_cross_entropy(make_trainer: MakeTrainer, tiny_model: MakeModel) -> None:
    encode = make_trainer()._tokenizer.encode  # type: ignore[union-attr]
    model, losses = tiny_model(), []
    for prompt, reply in (("say a", "a"), ("say a", "aa"), ("say b", "b")):
        ids = (*encode(prompt), *encode(reply), 1)
        logits = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0], dim=-1)
        losses += [-logits[t - 1, ids[t]].item() for t in range(len(prompt), len(ids))]
    update = make_trainer().imitate(EXAMPLES, index=0, total=1)
    assert update.loss == pytest.approx(math.fsum(losses) / len(losses), abs=1e-5)


def test_a_new_phase_forgets_moments_but_not_weights(make_trainer: MakeTrainer, make_batch: MakeBatch) -> None:
    trainer = make_trainer()
    trainer.imitate(EXAMPLES, index=0, total=10)
    digest = trainer.weights_digest()
    trainer.start_phase("play")
    assert trainer.weights_digest() == digest
    assert trainer._master.moments() == {}
    assert trainer.update(make_batch()).policy_version == 2


def test_what_is_missing_is_said(make_trainer: MakeTrainer, tmp_path: Path, tiny_model: MakeModel) -> None:
    with pytest.raises(NotFound, match="no model in"):
        Trainer.from_folder(tmp_path, options=Options(lr=0.1, warmup_lr=0.1))
    bare = Trainer(tiny_model(), options=Options(lr=0.1, warmup_lr=0.1))
    with pytest.raises(UserError, match="needs a tokenizer"):
        bare.imitate(EXAMPLES, index=0, total=1)
    with pytest.raises(UserError, match="no example to imitate"):
        make_trainer().imitate((), index=0, total=1)


def test_every_named_loss_learns(make_trainer: MakeTrainer, make_batch: MakeBatch) -> None:
    for name in grpo.LOSSES:
        clip = {"clip_high": 5.0} if name == "cispo" else {}
        update: Update = make_trainer(loss=name, horizon=8, **clip).update(make_batch())
        assert update.grad_norm > 0, name
