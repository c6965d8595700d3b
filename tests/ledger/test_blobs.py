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
    return blobs.unpack(*blobs.pack(blob))


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
    assert blobs.pack(blobs.of_ids([7] * 1000))[1] == "zlib"
    assert blobs.pack(blobs.of_text("ab" * 500))[1] == "zlib"
    assert blobs.pack(blobs.of_floats([-0.5] * 1000))[1] == "raw"
    assert blobs.pack(blobs.of_ids([7]))[1] == "raw"


def test_pruned_data_is_empty():
    assert blobs.floats_of(blobs.unpack("float32", "raw", None)) == []


@pytest.mark.parametrize("ids", [[2**31], [-(2**31) - 1], [0.5]])
def test_ids_beyond_32_bits_are_refused(ids):
    with pytest.raises(ValueError, match="32-bit"):
        blobs.of_ids(ids)


def test_nan_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        blobs.of_floats([0.0, math.nan])
