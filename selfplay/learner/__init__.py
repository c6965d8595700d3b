"""How verdicts become weights: `grpo` (pure maths), `batch` (ragged to tensors), `trainer` (weights).

The protocol below is all that the loop knows. Not here: rewards (`games`), grouping and advantages
of a step (`loop` calls `grpo.advantages`), sampling (`policy`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from selfplay.types import Batch, Example, Phase, Save, Update


class Learner(Protocol):
    """Owns the float32 parameters, the optimizer and their one compute copy."""

    @property
    def policy_version(self) -> int:
        """How many updates the weights have seen in this run, warm-up included; 0 for the pretrained ones."""
        ...

    @property
    def fingerprint(self) -> str:
        """Versions, CPU capability, threads and dtype; equal fingerprints re-apply to equal digests."""
        ...

    def weights_digest(self) -> str:
        """Digest of the float32 parameters, in the order of their names."""
        ...

    def update(self, batch: Batch, *, recorded: Update | None = None) -> Update:
        """Learn from one step's samples and return the record of it.

        With `recorded` the same update is applied again (resume): its partition, learning rate and old
        log-probabilities are used, and the returned record carries the digest that came out.

        Raises:
            RunFailed: the loss or the gradient is not finite; the weights are unchanged.
        """
        ...

    def imitate(self, examples: Sequence[Example], *, index: int, total: int) -> Update:
        """One supervised warm-up update (number `index` of `total`, for the schedule) on `examples`."""
        ...

    def start_phase(self, phase: Phase) -> None:
        """Reset optimizer and schedule for `phase`; the weights stay."""
        ...

    def pin_reference(self, folder: Path | None = None) -> str:
        """Take the save in `folder` (None: the current weights) as the KL reference; returns its digest."""
        ...

    def save(self, folder: Path, *, step: int) -> Save:
        """Write weights (Hugging Face layout), moments and counters into `folder`, whole or not at all."""
        ...

    def load(self, folder: Path, save: Save) -> None:
        """Load what `save` describes.

        Raises:
            RunFailed: a file is missing, torn, or does not match its digest.
        """
        ...
