"""How many rows a decoding step may have for a row's bits not to depend on the other rows: measured, not known.

A library chooses the kernel of a product by its sizes, and kernels add up in different orders. Which sizes agree
differs from processor to processor: in bfloat16 from 4 rows on with AVX-512 and from 40 with AMX, in float32 from 4 or
from 16. So every product of the model's linear layers is tried once, at every number of rows, on sums that cancel: what
is left of them is nothing but rounding, and tells in which order was added.

Not here: attention, whose products over one row's keys do not change with the number of rows (`attention`).

Shapes: B rows, K inputs and N outputs of a layer.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from functools import lru_cache

import torch
from torch import nn

ROW_TILE = 4
"""A step has a multiple of so many rows: elementwise functions give the numbers left over from their vectors other last
bits."""
_WIDTHS = 48
"""Tiles of 4, 6, 8, 12, 16 and 24 rows, as kernels have them, all end at a multiple of this."""
_BLOCK = 256
"""Outputs of a layer that are drawn; the others are copies of them."""

Shape = tuple[int, int, torch.dtype, bool]
"""N, K, type and whether there is a bias, of a linear layer."""


def counts(model: nn.Module, *, most: int) -> tuple[int, ...]:
    """Numbers of rows, ascending, between which a row's bits do not change in any linear layer of `model`, on its
    processor with as many threads as now. The last is at least `most`; none where no such numbers are found, or
    elsewhere than on a processor.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    if any(layer.weight.device.type != "cpu" for layer in layers):
        return ()
    shapes = {(*layer.weight.shape, layer.weight.dtype, layer.bias is not None) for layer in layers}
    return _agreeing(frozenset(shapes), most, torch.get_num_threads())


@lru_cache(maxsize=64)
def _agreeing(shapes: frozenset[Shape], most: int, threads: int) -> tuple[int, ...]:
    """The largest set of numbers of rows at which all of `shapes` give one row the same bits, at every place."""
    left = list(range(ROW_TILE, -(-most // _WIDTHS) * _WIDTHS + 1, ROW_TILE))
    found: dict[int, tuple[bytes, ...]] = dict.fromkeys(left, ())
    for shape in sorted(shapes, key=str):
        bits = _bits(shape, tuple(found))
        found = {rows: (*before, bits[rows]) for rows, before in found.items() if rows in bits}
    alike: defaultdict[tuple[bytes, ...], list[int]] = defaultdict(list)
    for rows, signature in found.items():
        alike[signature].append(rows)
    enough = [tuple(group) for group in alike.values() if group[-1] >= most]
    return max(enough, key=lambda group: (len(group), group), default=())


@torch.inference_mode()
def _bits(shape: Shape, numbers: tuple[int, ...]) -> dict[int, bytes]:
    """Number of rows -> digest of a row of the product; without those at which equal rows differ."""
    outputs, inputs, dtype, biased = shape
    drawn = torch.Generator().manual_seed(0)
    half, block = -(-inputs // 2), min(outputs, _BLOCK)
    order = torch.randperm(2 * half, generator=drawn)[:inputs]
    row, weight = torch.randn(half, generator=drawn), torch.randn(block, half, generator=drawn)
    row_K = torch.cat([row, row])[order].to(dtype)
    block_NK = torch.cat([weight, -weight], dim=1)[:, order].to(dtype)
    weight_NK = block_NK.repeat(-(-outputs // block), 1)[:outputs].contiguous()
    bias_N = torch.zeros(outputs, dtype=dtype) if biased else None
    found = {}
    for rows in numbers:
        product_BN = nn.functional.linear(row_K.repeat(rows, 1)[:, None], weight_NK, bias_N)[:, 0]
        if torch.equal(product_BN, product_BN[:1].expand_as(product_BN)):
            found[rows] = hashlib.sha256(product_BN[0].float().numpy().tobytes()).digest()
    return found
