"""Long things as bytes: token ids, log-probabilities, text. Standard library only, so readers stay light.

Numbers are little-endian: ids int32; floats float32 where that is exact (samplers and learners make
float32), else float64, so what comes out equals what went in, bit for bit. Ids and text are
deflated where it helps; floats are not, since it gains a tenth and costs more than all the rest.

Not here: where a blob is stored (`writer.py`) and whose it is (`rows.py`).
"""

from __future__ import annotations

import math
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable
from typing import Literal, NamedTuple

Dtype = Literal["int32", "float32", "float64", "utf8"]

_TYPECODES = {"int32": "i", "float32": "f", "float64": "d"}
_DEFLATED_FROM = 128
"""Bytes below which deflating gains nothing."""

_HEADS = 32
"""How many beginnings are kept: two a group (ids and text), some 150 kB each."""


class Blob(NamedTuple):
    """Unpacked bytes and what they are."""

    dtype: Dtype
    raw: bytes
    head: int = 0
    """How many bytes at its beginning siblings have too (a group shares its prompt); only packing cares."""


class Heads:
    """What lately packed blobs began with, deflated once: siblings go on from there."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[bytes, zlib._Compress]] = {}

    def deflate(self, blob: Blob) -> bytes:
        """The same bytes whatever was packed before."""
        head = blob.raw[: blob.head]
        known = self._known.pop(head, None) or self._begin(head)
        self._known[head] = known
        if len(self._known) > _HEADS:
            del self._known[next(iter(self._known))]
        begun, state = known
        packer = state.copy()
        return b"".join((begun, packer.compress(blob.raw[blob.head :]), packer.flush()))

    def _begin(self, head: bytes) -> tuple[bytes, zlib._Compress]:
        # note: a small state, since every sibling copies it.
        state = zlib.compressobj(1, memLevel=6)
        return state.compress(head) + state.flush(zlib.Z_SYNC_FLUSH), state


def of_ids(ids: Iterable[int], *, shared: int = 0) -> Blob:
    """Token ids or counts, the first `shared` of which siblings have too.

    Raises:
        ValueError: one does not fit 32 bits.
    """
    values = tuple(ids)
    try:
        # note: six times as fast as filling an array from an iterator.
        return Blob("int32", struct.pack(f"<{len(values)}i", *values), head=4 * shared)
    except struct.error as error:
        raise ValueError(f"not 32-bit integers: {error}") from error


def of_floats(values: Iterable[float]) -> Blob:
    """Floats, kept exactly.

    Raises:
        ValueError: one is not a number.
    """
    wide = tuple(values)
    try:
        narrow = struct.pack(f"<{len(wide)}f", *wide)
        if struct.unpack(f"<{len(wide)}f", narrow) == wide:
            return Blob("float32", narrow)
    except OverflowError:
        pass
    # note: what is not a number equals nothing, so it always comes here.
    if any(map(math.isnan, wide)):
        raise ValueError("NaN among the floats of a record")
    return Blob("float64", struct.pack(f"<{len(wide)}d", *wide))


def of_text(text: str, *, shared: str = "") -> Blob:
    """Text, which begins with what siblings have too; lone surrogates survive."""
    return Blob("utf8", text.encode("utf-8", "surrogatepass"), head=len(shared.encode("utf-8", "surrogatepass")))


def pack(blob: Blob, *, heads: Heads) -> tuple[Dtype, str, bytes]:
    """(dtype, codec, data), as stored."""
    if blob.dtype in ("int32", "utf8") and len(blob.raw) >= _DEFLATED_FROM:
        deflated = heads.deflate(blob) if blob.head >= _DEFLATED_FROM else zlib.compress(blob.raw, 1)
        if len(deflated) < len(blob.raw):
            return blob.dtype, "zlib", deflated
    return blob.dtype, "raw", blob.raw


def unpack(dtype: Dtype | None, codec: str, data: bytes | None) -> Blob:
    """The inverse of `pack`; pruned data is empty.

    Raises:
        zlib.error: the data is damaged.
        ValueError: the row that it should come from is not there, of which every column is None.
    """
    if dtype is None:
        raise ValueError("a blob is missing")
    if data is None:
        return Blob(dtype, b"")
    return Blob(dtype, zlib.decompress(data) if codec == "zlib" else data)


def ids_of(blob: Blob) -> list[int]:
    """Inverse of `of_ids`."""
    return _array("i", blob.raw).tolist()


def floats_of(blob: Blob) -> list[float]:
    """Inverse of `of_floats`."""
    return _array(_TYPECODES[blob.dtype], blob.raw).tolist()


def text_of(blob: Blob) -> str:
    """Inverse of `of_text`."""
    return blob.raw.decode("utf-8", "surrogatepass")


def _array(typecode: str, raw: bytes) -> array:  # type: ignore[type-arg]
    values = array(typecode)
    values.frombytes(raw)
    if sys.byteorder == "big":
        values.byteswap()
    return values
