"""Whose save is it: what is damaged is told apart from what is whole and another's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from selfplay.errors import RunFailed, UserError
from selfplay.learner.fit import fingerprint, fitting, traits_of
from selfplay.learner.options import Options
from selfplay.learner.weights import Stored, tensors_digest, write
from selfplay.types import Save

OWN = {"a": torch.zeros(2, 3), "b": torch.zeros(4)}
TENSORS = {"a": torch.ones(2, 3), "b": torch.arange(4.0), "buffer": torch.ones(1)}
MOMENTS = {"exp_avg.a": torch.ones(2, 3)}


def written(folder: Path, *, tensors: dict[str, torch.Tensor] = TENSORS, **counters: str) -> Path:
    held = Stored(tensors=tensors, moments=MOMENTS, counters={"policy_version": "1", **counters})
    write(folder, held, config_json="{}", source=None)
    return folder


def options(**other: Any) -> Options:
    return Options(**{"lr": 1.0, "warmup_lr": 1.0, "threads": 1, **other})


def recorded(**other: Any) -> Save:
    own = {name: TENSORS[name] for name in OWN}
    digests = {
        "weights_digest": tensors_digest(own),
        "state_digest": tensors_digest(MOMENTS, extra={"policy_version": "1"}),
    }
    return Save(step=0, phase="play", policy_version=1, path="save", num_bytes=1, **{**digests, **other})


def test_the_learners_own_parameters_and_nothing_else(tmp_path: Path) -> None:
    found = fitting(written(tmp_path / "save"), OWN, traits={}, save=recorded())
    assert sorted(found.tensors) == ["a", "b"]
    assert torch.equal(found.tensors["b"], TENSORS["b"])


@pytest.mark.parametrize("digest", ["weights_digest", "state_digest"])
def test_what_is_not_as_recorded_is_damaged(tmp_path: Path, digest: str) -> None:
    with pytest.raises(RunFailed, match="is not what was recorded: its digest differs"):
        fitting(written(tmp_path / "save"), OWN, traits={}, save=recorded(**{digest: "x"}))


def test_a_missing_parameter_is_damage_and_another_shape_another_model(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="lacks 1 parameters, b among them"):
        fitting(written(tmp_path / "less", tensors={"a": TENSORS["a"]}), OWN, traits={})
    other = {**TENSORS, "a": torch.ones(())}
    with pytest.raises(UserError, match="of another model: `a` is one number there, 2 x 3 here"):
        fitting(written(tmp_path / "other", tensors=other), OWN, traits={})


@pytest.mark.parametrize(
    ("theirs", "ours", "message", "hint"),
    [
        ({"lora_rank": "4"}, {}, "holds adapters of rank 4, and this learner trains all weights", "lora_rank=4"),
        ({}, {"lora_rank": "8"}, "holds all weights, and this learner trains adapters of rank 8", "lora_rank=0"),
        (
            {"base": "aa"},
            {"base": "bb"},
            "belongs to another base: the digest of its weights begins aa",
            "policy.model",
        ),
        ({"optimizer": "adamw8bit"}, {}, "moments of `adamw8bit`, and this learner steps by `adamw`", "adamw8bit"),
    ],
)
def test_another_kind_is_named_with_the_way_to_use_it(
    tmp_path: Path, theirs: dict[str, str], ours: dict[str, str], message: str, hint: str
) -> None:
    with pytest.raises(UserError) as caught:
        fitting(written(tmp_path / "save", **theirs), OWN, traits=ours)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_traits_are_empty_for_the_plain_learner() -> None:
    assert traits_of(options(), None) == {}
    assert traits_of(options(optimizer="adamw8bit"), None) == {"optimizer": "adamw8bit"}


def test_what_decides_bits_is_in_the_fingerprint() -> None:
    plain = fingerprint(options())
    assert fingerprint(options(lr=2.0)) == plain, "the rate is in the record"
    assert "threads 2" in fingerprint(options(threads=2))
    assert f"torch {torch.__version__}" in plain
    others = [options(dtype="float32"), options(dtype="bfloat16")]
    assert len({fingerprint(other) for other in others}) == 2
