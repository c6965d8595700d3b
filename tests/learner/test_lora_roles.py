"""An adapter for each role over one base: what one learns leaves the others' as they are, in memory and in saves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import peft
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import LlamaForCausalLM

from selfplay.errors import RunFailed, UserError
from selfplay.learner.lora import of_role, speak_as
from selfplay.learner.stored import digests
from selfplay.learner.trainer import Trainer
from selfplay.policy import Request
from selfplay.policy.by_role import ByRole
from selfplay.policy.local import LocalPolicy
from selfplay.policy.toy import toy_model
from selfplay.types import Batch, Example, Sample, Sampling
from tests.learner.conftest import make_batch, make_samples, make_trainer

ROLES = ("solver", "proposer")
MakeModel = Callable[..., LlamaForCausalLM]


def adapted(**options: object) -> Trainer:
    return make_trainer(**{"lora_rank": 4, "lora_roles": ROLES, **options})  # type: ignore[arg-type]


def of(trainer: Trainer, role: str) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in trainer._master.tensors().items() if f".{role}." in name}


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def batch_of(role: str, **more: int) -> Batch:
    return make_batch(make_samples(roles=(role,), **more))


@settings(max_examples=8)
@given(
    order=st.lists(st.sampled_from(ROLES), min_size=1, max_size=4), optimizer=st.sampled_from(["adamw", "adamw8bit"])
)
def test_what_a_role_learns_leaves_the_other_adapter_as_it_is(order: list[str], optimizer: str) -> None:
    """Whatever was learnt before: moments of earlier updates move nobody who is not there."""
    trainer = adapted(optimizer=optimizer, weight_decay=0.1)
    for role in order:
        (other,) = set(ROLES) - {role}
        before, own = of(trainer, other), of(trainer, role)
        moments = {name: one.clone() for name, one in trainer._master.moments().items() if f".{other}." in name}
        trainer.update(batch_of(role, groups=1, size=2))
        assert before
        assert same(before, of(trainer, other))
        assert same(moments, trainer._master.moments())
        assert not same(own, of(trainer, role))


def test_one_update_of_both_is_that_of_each_alone() -> None:
    """Norms are clipped apart, so that a loud role does not quieten the other."""
    both = make_samples(groups=4, roles=ROLES)
    together = adapted(max_grad_norm=0.1)
    update = together.update(make_batch(both))
    assert {f"{role}.grad_norm" for role in ROLES} <= update.metrics.keys()
    for role in ROLES:
        alone = adapted(max_grad_norm=0.1)
        alone.update(make_batch([sample for sample in both if sample.role == role]))
        found, expected = of(together, role), of(alone, role)
        assert all(torch.allclose(found[name], expected[name], atol=1e-6) for name in expected)


def test_each_role_is_scored_with_its_own_and_strangers_with_the_first() -> None:
    trainer, samples = adapted(), make_samples(groups=1)
    plain = make_trainer().logprobs(samples, temperature=1.0)

    def scores(role: str) -> tuple[tuple[float, ...], ...]:
        return trainer.logprobs([replace(sample, role=role) for sample in samples], temperature=1.0)

    assert scores("solver") == scores("proposer") == plain
    trainer.update(batch_of("solver"))
    assert scores("proposer") == plain
    assert scores("solver") == scores("judge") != plain
    mixed = [replace(sample, role=ROLES[at % 2]) for at, sample in enumerate(samples)]
    expected = [scores(sample.role)[at] for at, sample in enumerate(mixed)]
    found = trainer.logprobs(mixed, temperature=1.0)
    assert [pytest.approx(one, abs=1e-5) for one in expected] == list(found)


def test_the_warm_up_teaches_each_its_own() -> None:
    trainer = adapted()
    before = of(trainer, "proposer")
    shown = [Example(role="solver", source="s", prompt="ab", replies=("ba",))]
    trainer.imitate(shown, index=0, total=2)
    assert same(before, of(trainer, "proposer"))
    both = [*shown, Example(role="proposer", source="s", prompt="a", replies=("b",))]
    update = trainer.imitate(both, index=1, total=2)
    assert len(update.partition) == 2, "no micro-batch holds two roles"
    assert not same(before, of(trainer, "proposer"))


def test_saved_and_loaded_goes_on_to_equal_bits(tmp_path: Path) -> None:
    trainer = adapted()
    trainer.update(batch_of("solver"))
    save = trainer.save(tmp_path / "save", step=0)
    of_bytes = digests(tmp_path / "save")
    assert (of_bytes.weights, of_bytes.state) == (save.weights_digest, save.state_digest)
    other = adapted()
    other.load(tmp_path / "save", save)
    both = make_batch(make_samples(groups=4, roles=ROLES))
    expected, found = trainer.update(both), other.update(both)
    assert replace(found, seconds=0.0) == replace(expected, seconds=0.0)
    again = adapted()
    again.load(tmp_path / "save", save)
    assert again.update(both, recorded=expected).weights_digest == expected.weights_digest
    with pytest.raises(
        UserError, match="adapters of solver and of proposer, and this learner trains those of all roles"
    ):
        make_trainer(lora_rank=4).load(tmp_path / "save", save)
    assert "for solver, proposer" in trainer.fingerprint


@pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*")
def test_peft_opens_the_adapter_of_a_role(tiny_model: MakeModel, tmp_path: Path) -> None:
    trainer = adapted()
    trainer.update(batch_of("proposer"))
    trainer.save(tmp_path / "save", step=0)
    of_role(tmp_path / "save", "proposer", tmp_path / "proposer")
    opened = peft.PeftModel.from_pretrained(tiny_model(), tmp_path / "proposer")
    ids = torch.tensor([[5, 6, 7, 8]])
    speak_as(trainer.model, "proposer")
    with torch.no_grad():
        assert (opened(input_ids=ids).logits - trainer.model(input_ids=ids).logits).abs().max() < 1e-5
    with pytest.raises(UserError, match="no adapter of role `judge`"):
        of_role(tmp_path / "save", "judge", tmp_path / "judge")


def test_the_reference_of_each_role_is_its_own() -> None:
    trainer = adapted(kl_coef=0.5)
    trainer.pin_reference()
    trainer.update(batch_of("solver"))
    pulled = trainer.update(make_batch(make_samples(groups=4, roles=ROLES)))
    assert pulled.reference_digest == adapted().weights_digest()


def test_a_step_that_fails_changes_neither() -> None:
    trainer = adapted()
    trainer._master.gradients[next(name for name in trainer._master.gradients if ".solver." in name)].fill_(torch.nan)
    before = trainer.weights_digest()
    with pytest.raises(RunFailed, match="not finite"):
        trainer._master.step(lr=1.0, max_grad_norm=1.0)
    assert trainer.weights_digest() == before


def test_who_plays_is_sampled_with_the_own_adapter() -> None:
    """Both at once on one thread: what each says is what the learner says of it."""
    model, tokenizer = toy_model(0)
    trainer = Trainer(model, options=adapted().options, tokenizer=tokenizer)
    torch.manual_seed(0)
    for parameter in trainer._master.compute.values():
        parameter.data.normal_(std=0.1)
    requests = [
        Request(
            prompt_ids=tokenizer.encode("say " + "ab"[at % 2]),
            sampling=Sampling(max_tokens=6),
            seed=at,
            role=ROLES[at % 2],
        )
        for at in range(6)
    ]

    async def played() -> list[Sample]:
        with ThreadPoolExecutor(1) as thread:
            policy = ByRole(
                {
                    role: LocalPolicy(
                        model, tokenizer, version=lambda: 0, executor=thread, begin=partial(speak_as, model, role)
                    )
                    for role in ROLES
                }
            )
            replies = await asyncio.gather(*(policy.sample(request) for request in requests))
            await policy.aclose()
        return [
            Sample(
                trajectory_id=str(at),
                role=request.role,
                group_id=request.role,
                token_ids=request.prompt_ids + reply.token_ids,
                trained=(False,) * len(request.prompt_ids) + (True,) * len(reply.token_ids),
                sampler_logprobs=(0.0,) * len(request.prompt_ids) + reply.logprobs,
                advantage=1.0,
            )
            for at, (request, reply) in enumerate(zip(requests, replies, strict=True))
        ]

    samples = asyncio.run(played())
    for sample, found in zip(samples, trainer.logprobs(samples, temperature=1.0), strict=True):
        told = [lp for lp, trained in zip(sample.sampler_logprobs, sample.trained, strict=True) if trained]
        assert list(found) == pytest.approx(told, abs=1e-4)
