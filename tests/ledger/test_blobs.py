"""Bytes and back."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfplay.ledger import blobs

FLOATS = st.floats(allow_nan=False)


def through(blob: blobs.Blob) -> blobs.Blob:
    return blobs.unpack(*blobs.pack(blob, heads=blobs.Heads()))


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_ids(ids):
    assert blobs.ids_of(through(blobs.of_ids(ids))) == ids


@given(st.lists(FLOATS))
def test_floats_are_exact(values):
    assert blobs.floats_of(through(blobs.of_floats(values))) == values


@given(st.lists(st.floats(width=32, allow_nan=False)))
def test_float32_stays_small(values):
    assert len(blobs.of_floats(values).raw) == 4 * len(values)


@given(st.text(st.characters(exclude_categories=()), max_size=300))
def test_text(text):
    assert blobs.text_of(through(blobs.of_text(text))) == text


def test_bytes_are_little_endian_on_every_machine():
    assert blobs.of_ids([1, -2]).raw == struct.pack("<2i", 1, -2)
    assert blobs.of_floats([0.5]).raw == struct.pack("<f", 0.5)
    assert blobs.of_floats([0.1]).raw == struct.pack("<d", 0.1)
    assert blobs.of_floats([-math.inf]).raw == struct.pack("<f", -math.inf)


def test_what_repeats_is_deflated_and_floats_are_not():
    assert blobs.pack(blobs.of_ids([7] * 1000), heads=blobs.Heads())[1] == "zlib"
    assert blobs.pack(blobs.of_text("ab" * 500), heads=blobs.Heads())[1] == "zlib"
    assert blobs.pack(blobs.of_floats([-0.5] * 1000), heads=blobs.Heads())[1] == "raw"
    assert blobs.pack(blobs.of_ids([7]), heads=blobs.Heads())[1] == "raw"


def test_pruned_data_is_empty():
    assert blobs.floats_of(blobs.unpack("float32", "raw", None)) == []


@pytest.mark.parametrize("ids", [[2**31], [-(2**31) - 1], [0.5]])
def test_ids_beyond_32_bits_are_refused(ids):
    with pytest.raises(ValueError, match="32-bit"):
        blobs.of_ids(ids)


def test_nan_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        blobs.of_floats([0.0, math.nan])


def test_what_siblings_share_is_deflated_once_and_each_is_whole() -> None:
    heads = blobs.Heads()
    prompts = [[7 * i + n for i in range(300)] for n in range(40)]
    for ids in (*prompts, *prompts):
        for reply in ([], [5], list(range(200))):
            blob = blobs.of_ids([*ids, *reply], shared=len(ids))
            packed = blobs.pack(blob, heads=heads)
            assert packed == blobs.pack(blob, heads=blobs.Heads()), "whatever was packed before"
            assert packed[1] == "zlib"
            assert blobs.ids_of(blobs.unpack(*packed)) == [*ids, *reply]
    text = "def f(x):\n    return x\ud800\n" * 40
    blob = blobs.of_text(text + "é", shared=text)
    assert blobs.text_of(blobs.unpack(*blobs.pack(blob, heads=heads))) == text + "é"
