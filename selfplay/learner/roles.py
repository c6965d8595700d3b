"""Roles inside one update: micro-batches role by role, and how large a gradient each role brings.

The gradient of an update grows micro-batch by micro-batch in one buffer. Where the micro-batches of a role follow
each other, its gradient is what the buffer grew by meanwhile. A second buffer of the model's size would hold that
exactly; here a seventeenth of each large parameter is looked at, and small ones whole, so that a norm costs
neither memory nor time worth counting, and is right to a fraction of a percent.

Not here: the update (`trainer`), the layout of a micro-batch (`batch`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from selfplay.learner.batch import partition
from selfplay.types import Sample

WHOLE = 1 << 16
"""Parameters of at most so many entries are looked at whole."""

RUN = 64
"""Of a larger parameter runs of 64 entries are, since single ones are copied many times slower: """

STRIDE = 17
"""... each 17th run: prime, so that a matrix of 64 n columns shows all of them as often."""


def partition_by_role(
    samples: Sequence[Sample], members: Sequence[int], *, token_budget: int
) -> tuple[tuple[int, ...], ...]:
    """`batch.partition` of each role by itself, roles in order of first appearance."""
    roles = dict.fromkeys(samples[member].role for member in members)
    return tuple(
        part
        for role in roles
        for part in partition(samples, [m for m in members if samples[m].role == role], token_budget=token_budget)
    )


def last_parts(samples: Sequence[Sample], parts: Sequence[Sequence[int]]) -> dict[int, str]:
    """Position of the last micro-batch of each role -> the role; empty where roles mix, or come back."""
    roles = [{samples[member].role for member in part} for part in parts]
    if any(len(found) != 1 for found in roles):
        return {}
    names = [found.pop() for found in roles]
    ends = [i for i, name in enumerate(names) if i + 1 == len(names) or names[i + 1] != name]
    return {i: names[i] for i in ends} if len(ends) == len(set(names)) else {}


class Meter:
    """Watches a gradient grow, and knows the norm of each role's part of it."""

    def __init__(
        self,
        gradients: Mapping[str, Tensor],
        *,
        samples: Sequence[Sample],
        parts: Sequence[Sequence[int]],
        total: Callable[[float], float] | None = None,
    ) -> None:
        """Begin before the first micro-batch; `gradients` are the live buffers, all zero.

        `total` sums over ranks that have a part of each gradient; None: there is one process.
        """
        self._gradients = gradients
        self._total = total
        self._ends = last_parts(samples, parts)
        self._before: dict[str, Tensor] = {}
        self._norms: dict[str, float] = {}

    def after(self, index: int) -> None:
        """Look, where micro-batch number `index` was the last of a role; call it after each."""
        if len(self._ends) < 2 or index not in self._ends:
            return
        now = {name: _looked_at(gradient) for name, gradient in self._gradients.items()}
        squares = [
            self._gradients[name].numel() / max(1, values.numel()) * _square(values, self._before.get(name))
            for name, values in now.items()
        ]
        square = math.fsum(squares)
        self._norms[self._ends[index]] = math.sqrt(self._total(square) if self._total else square)
        self._before = {} if index == max(self._ends) else now

    def metrics(self, total: float) -> dict[str, float]:
        """`ROLE.grad_norm` of each role, before clipping; `total`, the norm of the sum, is a lone role's own."""
        norms = self._norms if len(self._ends) > 1 else dict.fromkeys(self._ends.values(), total)
        return {f"{role}.grad_norm": norm for role, norm in norms.items()}


def _looked_at(gradient: Tensor) -> Tensor:
    """A copy of the entries that stand for all."""
    flat = gradient.view(-1)
    if flat.numel() <= WHOLE:
        return flat.clone()
    whole_runs = flat.numel() - flat.numel() % (STRIDE * RUN)
    return flat[:whole_runs].view(-1, STRIDE, RUN)[:, 0].clone()


def _square(now: Tensor, before: Tensor | None) -> float:
    grown = now if before is None else now - before
    return float(torch.linalg.vector_norm(grown)) ** 2
