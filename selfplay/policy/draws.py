"""How one token is drawn: keyed uniform numbers and the inverse of the cumulative distribution.

A draw depends on its own row of logits and on its own key only, never on a generator's state or on
the other rows, so that a reply is the same whatever else is sampled beside it. Not here: where the
logits come from (`engine`) and when a reply ends (`local`'s stop rules).

Shapes: N rows, V vocabulary, C cells of W weights (C * W >= V).

Example:
    >>> uniforms(7, 3).tolist() == uniforms(7, 100)[:3].tolist()
    True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from selfplay.errors import RunFailed
from selfplay.types import record

if TYPE_CHECKING:
    import torch

_WIDTH = 256
"""Weights summed to one cell; the search goes over cells, then inside one, instead of over the vocabulary."""


@record
class Drawn:
    """One token for each of N rows."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Natural log, float32 values; at temperature 0 they are those of temperature 1."""


def uniforms(seed: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """`count` numbers in [0, 1): number t is a pure function of (seed, t).

    Philox4x64 (Salmon et al., 2011) is counter-based and its raw stream is part of numpy's promise of stability,
    which that of `Generator` is not. The upper 53 bits make the double.
    """
    raw = np.random.Philox(key=seed % 2**128).random_raw(count)
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


class Drawer:
    """Draws from rows of logits; keeps one float32 buffer between steps."""

    def __init__(self, vocabulary: int, *, device: torch.device) -> None:
        import torch

        self._vocabulary = vocabulary
        self._cells = -(-vocabulary // _WIDTH)
        self._buffer_NV = torch.empty(0, self._cells * _WIDTH, device=device)

    def draw(self, logits_NV: torch.Tensor, *, temperatures: Sequence[float], uniforms: Sequence[float]) -> Drawn:
        """One token a row, from softmax(logits / temperature) in float32; temperature 0 takes the largest logit.

        Raises:
            RunFailed: a row holds NaN or infinity where a probability should come from.
        """
        import torch

        rows = logits_NV.shape[0]
        heat = [t if t > 0 else 1.0 for t in temperatures]
        weights_NV, top_N = self._weights(logits_NV, heat=heat)
        cells_NC = weights_NV.view(rows, self._cells, _WIDTH).sum(-1).cpu().numpy().astype(np.float64)
        edges_NC = cells_NC.cumsum(-1)
        total_N = edges_NC[:, -1]
        goal_N = np.asarray(uniforms) * total_N
        cell_N = np.minimum((edges_NC <= goal_N[:, None]).sum(-1), self._cells - 1)
        every = np.arange(rows)
        device = logits_NV.device
        every_N = torch.from_numpy(every).to(device)
        within_N = (goal_N - (edges_NC[every, cell_N] - cells_NC[every, cell_N])) / cells_NC[every, cell_N]
        picked_NW = weights_NV.view(rows, self._cells, _WIDTH)[every_N, torch.from_numpy(cell_N).to(device)]
        ids_N = cell_N * _WIDTH + _pick(picked_NW.cpu().numpy().astype(np.float64), within_N)
        if min(temperatures) <= 0:
            largest_N = logits_NV.argmax(-1).cpu().numpy()
            ids_N = np.where(np.asarray(temperatures) > 0, ids_N, largest_N)
        chosen_N = logits_NV[every_N, torch.from_numpy(ids_N).to(device)].float().cpu().numpy()
        scaled_N = chosen_N / np.asarray(heat, dtype=np.float32)
        logprobs_N = (scaled_N.astype(np.float64) - top_N - np.log(total_N)).astype(np.float32)
        return Drawn(ids=tuple(ids_N.tolist()), logprobs=tuple(np.minimum(logprobs_N, 0.0).tolist()))

    def _weights(
        self, logits_NV: torch.Tensor, *, heat: Sequence[float]
    ) -> tuple[torch.Tensor, np.ndarray[tuple[int], np.dtype[np.float64]]]:
        """exp(logits / heat - largest) in the buffer, and the largest scaled logit of each row."""
        import torch

        rows = logits_NV.shape[0]
        if self._buffer_NV.shape[0] < rows:
            size = (rows, self._cells * _WIDTH)
            self._buffer_NV = torch.full(size, -torch.inf, device=self._buffer_NV.device)
        buffer_NV = self._buffer_NV[:rows]
        scaled_NV = buffer_NV[:, : self._vocabulary]
        scaled_NV.copy_(logits_NV)
        if any(t != 1.0 for t in heat):
            scaled_NV.div_(torch.tensor(heat, device=logits_NV.device).unsqueeze(-1))
        top_N1 = scaled_NV.amax(-1, keepdim=True)
        top_N = top_N1.squeeze(-1).cpu().numpy().astype(np.float64)
        if not np.isfinite(top_N).all():
            raise RunFailed(
                "the model's logits are not finite",
                hint="the weights are damaged; resume from an earlier save, with a lower learner.lr",
            )
        buffer_NV[:, self._vocabulary :] = -torch.inf
        return buffer_NV.sub_(top_N1).exp_(), top_N


def _pick(
    weights_NW: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    fraction_N: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The index in each row where the running sum passes `fraction` of its total; always one with a positive weight."""
    edges_NW = weights_NW.cumsum(-1)
    # note: a fraction that rounding pushed to 1 would pass the last edge
    goal_N = np.clip(fraction_N, 0.0, 1.0 - 2.0**-52) * edges_NW[:, -1]
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = (edges_NW <= goal_N[:, None]).sum(-1)
    return found
