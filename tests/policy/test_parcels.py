"""Tensors in pieces: what arrives is what was there when it was packed."""

from __future__ import annotations

import pytest
import torch

from selfplay.policy import parcels
from selfplay.policy.handover import digest_of
from selfplay.policy.parcels import Arriving, Parcel

TENSORS = {
    "wide": torch.arange(300, dtype=torch.float32).reshape(20, 15),
    "low": torch.randn(7, 3, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16),
    "number": torch.tensor(5, dtype=torch.int64),
    "turned": torch.arange(12.0).reshape(3, 4).T,
    "none": torch.zeros(0, 4),
}


def test_what_arrives_is_what_was_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcels, "PIECE", 100)
    live = {name: tensor.clone() for name, tensor in TENSORS.items()}
    parcel = Parcel.of(live)
    for tensor in live.values():
        tensor.zero_()
    pieces = list(parcel.pieces())
    assert len(pieces) > 10
    assert max(len(piece) for _, piece in pieces) == 100
    there = Arriving()
    for _ in range(2):
        for start, piece in pieces:
            there.take(start, piece, size=parcel.size)
        found = there.tensors(parcel.entries)
        assert list(found) == list(TENSORS)
        for name, tensor in TENSORS.items():
            assert torch.equal(found[name], tensor)
            assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
            assert parcel.digests[name] == digest_of(found[name]) == digest_of(tensor)


def test_what_is_changed_on_the_way_has_another_digest() -> None:
    parcel = Parcel.of(TENSORS)
    there = Arriving()
    for start, piece in parcel.pieces():
        changed = piece.copy()
        changed[4] ^= 1
        there.take(start, changed, size=parcel.size)
    found = there.tensors(parcel.entries)
    assert [name for name in TENSORS if digest_of(found[name]) != parcel.digests[name]] == ["wide"]


def test_nothing_is_no_piece() -> None:
    assert list(Parcel.of({}).pieces()) == []


def test_what_does_not_fit_into_memory_is_said_with_its_size() -> None:
    with pytest.raises(MemoryError, match=r"a copy of 45035\d+ MB of weights"):
        Parcel.of({"wide": torch.zeros(1).expand(1 << 50)})
