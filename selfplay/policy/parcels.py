"""Tensors on their way to another machine: one run of bytes, cut into pieces of which each fits anywhere.

`Parcel.of` copies the tensors as they are at that moment, so that whatever changes them later changes nothing that is
sent; `Arriving` puts the pieces together again. The digest of each tensor is made on both sides, of its bytes there.

Not here: who carries the pieces (`cluster.policies`), weights on the same machine (`handover`).

Example:
    >>> import torch
    >>> parcel = Parcel.of({"w": torch.ones(2, 3)})
    >>> there = Arriving()
    >>> for start, piece in parcel.pieces():
    ...     there.take(start, piece, size=parcel.size)
    >>> there.tensors(parcel.entries)["w"].shape
    torch.Size([2, 3])
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from selfplay.policy.handover import digest_of
from selfplay.types import record

PIECE = 16 << 20
"""Bytes of a piece, at most."""
_ALIGNED = 64
"""A tensor begins at a multiple of so many bytes, as torch's own do."""


@record
class Entry:
    """Where a tensor lies among the bytes, and what it is."""

    name: str
    dtype: str
    """As torch names it, `bfloat16`."""
    shape: tuple[int, ...]
    start: int
    stop: int


@record
class Parcel:
    """Copies of tensors."""

    entries: tuple[Entry, ...]
    digests: Mapping[str, str]
    """Name -> SHA-256 of its bytes."""
    data: torch.Tensor
    """All bytes, one after the other."""

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.data)

    @classmethod
    def of(cls, tensors: Mapping[str, torch.Tensor]) -> Parcel:
        """Copies of `tensors`, wherever they are; on the thread that changes them.

        Raises:
            MemoryError: there is no room for them.
        """
        entries, end = [], 0
        for name, tensor in tensors.items():
            stop = end + tensor.numel() * tensor.element_size()
            kind = str(tensor.dtype).removeprefix("torch.")
            entries.append(Entry(name=name, dtype=kind, shape=tuple(tensor.shape), start=end, stop=stop))
            end = -(-stop // _ALIGNED) * _ALIGNED
        try:
            data = torch.zeros(end, dtype=torch.uint8)
        except RuntimeError as error:
            # note: what torch raises where the machine gives it no memory.
            raise MemoryError(f"there is no room for a copy of {end / 1e6:.0f} MB of weights") from error
        for entry, tensor in zip(entries, tensors.values(), strict=True):
            data[entry.start : entry.stop].copy_(tensor.detach().contiguous().reshape(-1).view(torch.uint8))
        digests = {entry.name: digest_of(data[entry.start : entry.stop]) for entry in entries}
        return cls(entries=tuple(entries), digests=digests, data=data)

    def pieces(self) -> Iterator[tuple[int, Any]]:
        """Where each begins, and its bytes as an array of numpy; nothing is copied."""
        for start in itertools.takewhile(lambda at: at < self.size, itertools.count(0, PIECE)):
            yield start, self.data[start : start + PIECE].numpy()


class Arriving:
    """The bytes of one parcel at a time, as they come."""

    def __init__(self) -> None:
        self._data = torch.empty(0, dtype=torch.uint8)

    def take(self, start: int, piece: Any, *, size: int) -> None:
        """A piece of a parcel of `size` bytes; the first of them comes first."""
        if start == 0:
            self._data = torch.empty(size, dtype=torch.uint8)
        self._data.numpy()[start : start + len(piece)] = piece

    def tensors(self, entries: Sequence[Entry]) -> dict[str, torch.Tensor]:
        """What arrived, by name; views of one memory, which is given to the caller."""
        data, self._data = self._data, torch.empty(0, dtype=torch.uint8)
        return {
            entry.name: data[entry.start : entry.stop].view(getattr(torch, entry.dtype)).reshape(entry.shape)
            for entry in entries
        }
