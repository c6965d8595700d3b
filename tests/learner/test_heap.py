"""What is free inside the heap is given back; where there is nothing to do, nothing happens."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from selfplay.learner import heap


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


@pytest.mark.skipif(heap._trim is None, reason="this C library cannot give memory back")
def test_gaps_between_blocks_are_given_back() -> None:
    library = ctypes.CDLL(None)
    library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    # Below the size from which a block is a mapping of its own, in pairs of which the second stays.
    blocks = [library.malloc(100_000) for _ in range(1000)]
    for block in blocks:
        ctypes.memset(block, 1, 100_000)
    for block in blocks[::2]:
        library.free(block)
    before = resident_mb()
    heap.give_back()
    assert before - resident_mb() > 30
    for block in blocks[1::2]:
        library.free(block)


def test_nothing_happens_without_such_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_trim", None)
    heap.give_back()
