"""A learner on a card: nothing it computes with is left on the processor, and what it learns, saves and tells is the
same. The card is one that only refuses what a real one would (`tests.card`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from selfplay.errors import RunFailed
from selfplay.learner import placing
from selfplay.learner.trainer import Trainer
from selfplay.types import Batch, Example, Sample, Update
from tests.card import CARD, Card, Mixed

MakeTrainer = Callable[..., Trainer]
MakeBatch = Callable[..., Batch]
MakeSamples = Callable[..., tuple[Sample, ...]]

EXAMPLES = [Example(role="solver", source="test", prompt="abc", replies=("xyz", "xy"))]

KINDS: dict[str, dict[str, Any]] = {
    "bfloat16": {"dtype": "bfloat16", "kl_coef": 0.1, "correction": "token_truncated"},
    "adapters": {"dtype": "bfloat16", "lora_rank": 4, "kl_coef": 0.1, "memory_mb": 1.0},
    "adapters by role": {"lora_rank": 4, "lora_roles": ("solver", "proposer")},
    "8 bits": {"optimizer": "adamw8bit", "loss": "gspo", "correction": "icepop"},
    "in order": {"order": (("solver",), ("proposer",)), "updates_per_step": 2},
}


def played(trainer: Trainer, batches: Sequence[Batch]) -> list[Update]:
    """A warm-up, a reference, two updates, one of them applied as recorded."""
    done = [trainer.imitate(EXAMPLES, index=0, total=1)]
    trainer.start_phase("play")
    trainer.pin_reference()
    done += [trainer.update(batch) for batch in batches]
    trainer.logprobs(batches[0].samples, temperature=0.7)
    return [replace(one, seconds=0.0, fingerprint="") for one in done]


def batches_of(make_batch: MakeBatch, make_samples: MakeSamples) -> list[Batch]:
    samples = make_samples(groups=2, size=2, prompt=5, reply=4, roles=("solver", "proposer"))
    several = tuple(
        replace(one, advantage=0.0, token_advantages=tuple(0.1 * t for t in range(sum(one.trained)))) for one in samples
    )
    return [make_batch(samples), make_batch(several, temperature=0.8)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_learner_on_a_card_learns_the_same(
    kind: str, make_trainer: MakeTrainer, make_batch: MakeBatch, make_samples: MakeSamples
) -> None:
    if kind == "8 bits":
        pytest.importorskip("torchao")
    batches = batches_of(make_batch, make_samples)
    plain = make_trainer(**KINDS[kind])
    expected = played(plain, batches)
    with Card()() as card:
        trainer = make_trainer(device=str(CARD), **KINDS[kind])
        assert {parameter.device for parameter in trainer.model.parameters()} == {CARD}
        assert played(trainer, batches) == expected
        assert trainer.weights_digest() == plain.weights_digest()
    assert card.operations > 1000


@pytest.mark.parametrize("kind", ["bfloat16", "adapters", "8 bits"])
def test_a_save_belongs_to_no_device(
    kind: str, make_trainer: MakeTrainer, make_batch: MakeBatch, make_samples: MakeSamples, tmp_path: Path
) -> None:
    if kind == "8 bits":
        pytest.importorskip("torchao")
    first, second = batches_of(make_batch, make_samples)
    options = KINDS[kind] | {"kl_coef": 0.0}
    plain = make_trainer(**options)
    played(plain, [first])
    kept = plain.save(tmp_path / "plain", step=0)
    end = plain.update(second)
    with Card()():
        trainer = make_trainer(device=str(CARD), **options)
        played(trainer, [first])
        save = trainer.save(tmp_path / "card", step=0)
        assert (save.weights_digest, save.state_digest) == (kept.weights_digest, kept.state_digest)
        other = make_trainer(device=str(CARD), **options)
        other.load(tmp_path / "plain", kept)
        again = other.update(second, recorded=end)
        assert other.weights_digest() == plain.weights_digest() == again.weights_digest
    back = make_trainer(**options)
    back.load(tmp_path / "card", save)
    assert back.update(second).weights_digest == end.weights_digest


def test_what_is_left_on_the_processor_is_found() -> None:
    with Card()():
        weights = torch.ones(3).to(CARD)
        assert (weights * 2).device == CARD
        assert (weights + torch.tensor(1.0)).sum().item() == 6.0
        with pytest.raises(Mixed, match="add"):
            weights + torch.arange(3)
        with pytest.raises(Mixed, match="numpy"):
            weights.numpy()
        assert (weights + torch.arange(3, device=weights.device)).cpu().numpy().tolist() == [1.0, 2.0, 3.0]


def test_the_first_card_is_the_learners_unless_it_has_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert placing.device_for(ranks=1) == placing.CPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert (placing.device_for(ranks=1), placing.device_for(ranks=2)) == (placing.CARD, placing.CPU)


def test_a_card_is_named_in_the_fingerprint(make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    from selfplay.learner.fit import fingerprint

    trainer = make_trainer()
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Card A")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    found = fingerprint(replace(trainer.options, device=placing.CARD))
    assert found == f"{trainer.fingerprint}; Card A (capability 9.0, CUDA {torch.version.cuda})"


def test_a_cards_room_is_what_nobody_has_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10_000_000_000, 24_000_000_000))
    assert placing.room_mb(placing.CARD) == pytest.approx(9000.0)
    assert placing.room_mb(placing.CPU) is None


def test_a_card_without_room_is_one_sentence_and_forgets_the_half_gradient(
    make_trainer: MakeTrainer, make_batch: MakeBatch
) -> None:
    trainer, plain, batch = make_trainer(token_budget=24), make_trainer(token_budget=24), make_batch()
    calls: list[int] = []

    def full(*given: object) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has 1 MiB free.")

    hook = trainer.model.model.layers[0].register_forward_pre_hook(full)  # type: ignore[index,union-attr]
    with pytest.raises(RunFailed, match=r"card has no room left: CUDA out of memory\. Tried .* 1 MiB free\.$") as error:
        trainer.update(batch)
    assert "learner.token_budget" in error.value.hint
    hook.remove()
    assert trainer.update(batch).weights_digest == plain.update(batch).weights_digest
