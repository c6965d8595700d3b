"""Free memory inside the C library's heap, given back to the system.

Tensors of some megabytes lie in the heap, which shrinks from its end only, and glibc before 2.38 hardly uses the gaps
between aligned blocks again: where one small tensor of each layer is kept, what the layers before it have freed stays
resident. Not here: when that matters (`forward`). Other C libraries are left alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable


def _found() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    return trim


_trim = _found()


def give_back() -> None:
    """Give the pages of every gap back; tens of milliseconds for a gigabyte."""
    if _trim is not None:
        _trim(0)
