"""How verdicts become weights: `grpo` (pure maths), `batch` (ragged to tensors), `trainer` (weights).

The protocol below is all that the loop knows of it, and `estimators`: rewards to advantages. Not here: rewards
(`games`), which of them form a group (`batches`), sampling (`policy`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from selfplay.types import Batch, Example, Phase, Sample, Save, Update


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

    def logprobs(self, samples: Sequence[Sample], *, temperature: float) -> tuple[tuple[float, ...], ...]:
        """Log-probabilities of each sample's trained tokens under `temperature`, by the weights as they are.

        Natural log, one a trained token, in their order; nothing is learnt.

        Raises:
            UserError: a sample has no trained token behind a prompt.
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
