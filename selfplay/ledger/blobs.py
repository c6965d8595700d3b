"""Long things as bytes: token ids, log-probabilities, text. Standard library only, so readers stay light.

Numbers are little-endian: ids int32; floats float32 where that is exact (samplers and learners make
float32), else float64, so what comes out equals what went in, bit for bit. Ids and text are
deflated where it helps; floats are not, since it gains a tenth and costs more than all the rest.

Not here: where a blob is stored (`writer.py`) and whose it is (`rows.py`).
"""

from __future__ import annotations

import math
import sys
import zlib
from array import array
from collections.abc import Iterable
from typing import Literal, NamedTuple

Dtype = Literal["int32", "float32", "float64", "utf8"]

_TYPECODES = {"int32": "i", "float32": "f", "float64": "d"}
_DEFLATED_FROM = 128
"""Bytes below which deflating gains nothing."""


class Blob(NamedTuple):
    """Unpacked bytes and what they are."""

    dtype: Dtype
    raw: bytes


def of_ids(ids: Iterable[int]) -> Blob:
    """Token ids or counts.

    Raises:
        ValueError: one does not fit 32 bits.
    """
    try:
        return Blob("int32", _bytes(array("i", ids)))
    except (OverflowError, TypeError) as error:
        raise ValueError(f"not 32-bit integers: {error}") from error


def of_floats(values: Iterable[float]) -> Blob:
    """Floats, kept exactly.

    Raises:
        ValueError: one is not a number.
    """
    wide = array("d", values)
    if any(map(math.isnan, wide)):
        raise ValueError("NaN among the floats of a record")
    try:
        narrow = array("f", wide)
    except OverflowError:
        return Blob("float64", _bytes(wide))
    return Blob("float32", _bytes(narrow)) if array("d", narrow) == wide else Blob("float64", _bytes(wide))


def of_text(text: str) -> Blob:
    """Text; lone surrogates survive."""
    return Blob("utf8", text.encode("utf-8", "surrogatepass"))


def pack(blob: Blob) -> tuple[Dtype, str, bytes]:
    """(dtype, codec, data), as stored."""
    if blob.dtype in ("int32", "utf8") and len(blob.raw) >= _DEFLATED_FROM:
        deflated = zlib.compress(blob.raw, 1)
        if len(deflated) < len(blob.raw):
            return blob.dtype, "zlib", deflated
    return blob.dtype, "raw", blob.raw


def unpack(dtype: Dtype, codec: str, data: bytes | None) -> Blob:
    """The inverse of `pack`; pruned data is empty.

    Raises:
        zlib.error: the data is damaged.
    """
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


def _bytes(values: array[int] | array[float]) -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def _array(typecode: str, raw: bytes) -> array:  # type: ignore[type-arg]
    values = array(typecode)
    values.frombytes(raw)
    if sys.byteorder == "big":
        values.byteswap()
    return values
