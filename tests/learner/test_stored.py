"""A save's digests without torch are the ones that torch takes; what is torn is one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from selfplay.errors import RunFailed
from selfplay.learner import stored, weights
from selfplay.learner.stored import ADAPTER, MODEL, STATE, digests, model_file, policy_version

DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.bool,
    torch.uint8,
)


@pytest.fixture
def save(tmp_path: Path) -> Path:
    """A parameter of every type, one without moments, and counters."""
    tensors = {f"p{i}": torch.arange(6).reshape(2, 3).to(dtype) for i, dtype in enumerate(DTYPES)}
    moments = {f"exp_avg.p{i}": torch.full((2, 3), float(i)) for i in range(len(DTYPES))}
    held = weights.Stored(tensors=tensors, moments=moments, counters={"policy_version": "7", "steps": "9"})
    weights.write(tmp_path / "save", held, config_json="{}", source=None)
    return tmp_path / "save"


@pytest.mark.parametrize("piece", [1, 5, 8 << 20])
def test_the_digests_are_torchs_whatever_the_pieces(save: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(stored, "_PIECE_BYTES", piece)
    held, found = weights.read(save), digests(save)
    assert found.weights == weights.tensors_digest(held.tensors)
    assert found.state == weights.tensors_digest(held.moments, extra=held.counters)
    assert (found.policy_version, policy_version(save)) == (7, 7)
    assert found.num_bytes == (save / MODEL).stat().st_size + (save / STATE).stat().st_size


def test_an_adapter_lies_in_the_models_place(save: Path) -> None:
    before = digests(save)
    assert model_file(save) == MODEL
    (save / MODEL).rename(save / ADAPTER)
    assert model_file(save) == ADAPTER
    assert digests(save) == before


def test_what_is_torn_is_one_sentence(save: Path) -> None:
    whole = (save / STATE).read_bytes()
    header = int.from_bytes(whole[:8], "little")
    no_version = json.dumps({"__metadata__": {"steps": "9"}}).encode()
    for torn in (
        b"",
        whole[:5],
        (1 << 40).to_bytes(8, "little") + whole[8:],
        whole[: 8 + header // 2],
        (2).to_bytes(8, "little") + b"[]",
        len(no_version).to_bytes(8, "little") + no_version,
    ):
        (save / STATE).write_bytes(torn)
        with pytest.raises(RunFailed, match=r"the save in .* cannot be read"):
            digests(save)
        assert policy_version(save) is None
    (save / STATE).write_bytes(whole[:-1])
    with pytest.raises(RunFailed, match="ends inside exp_avg"):
        digests(save)
    assert policy_version(save) == 7, "the counters are whole"
    (save / STATE).unlink()
    with pytest.raises(RunFailed, match="cannot be read"):
        digests(save)
    assert policy_version(save) is None
