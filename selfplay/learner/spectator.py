"""In the learner's place where nothing is learnt: a run that only collects from an endpoint.

Every update is skipped, with the reason; a save holds no weight and marks how far the run has come. Not here: a run
with weights whose roles do not learn (`trainer.Trainer` with an empty batch).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from selfplay.errors import UserError
from selfplay.learner import weights
from selfplay.learner.bare import bare
from selfplay.types import Batch, Example, Phase, Sample, Save, Update

SKIPPED = "nobody learns: the replies are an endpoint's"
_COUNTERS = {"phase": "play", "policy_version": "0", "phase_updates": "0"}


class Spectator:
    """Implements `learner.Learner` without a model."""

    @property
    def policy_version(self) -> int:
        """Always 0: nothing changes here."""
        return 0

    @property
    def fingerprint(self) -> str:
        """Says that there is nothing to re-apply."""
        return "no learner"

    def weights_digest(self) -> str:
        """Of no tensor."""
        return weights.tensors_digest({})

    def update(self, batch: Batch, *, recorded: Update | None = None) -> Update:
        """The record of an update that did nothing.

        Raises:
            UserError: something is to be learnt.
        """
        if batch.samples:
            raise UserError(f"{len(batch.samples)} samples are to be learnt from, and there is no learner")
        return replace(bare((), step=batch.step, phase=batch.phase, of=self), skipped=SKIPPED)

    def logprobs(self, samples: Sequence[Sample], *, temperature: float) -> tuple[tuple[float, ...], ...]:
        """Always refused.

        Raises:
            UserError: always.
        """
        raise UserError("log-probabilities are asked of a learner that is not there")

    def imitate(self, examples: Sequence[Example], *, index: int, total: int) -> Update:
        """Always refused.

        Raises:
            UserError: always.
        """
        raise UserError("there is no learner to warm up", hint="-s warmup.steps=0")

    def start_phase(self, phase: Phase) -> None:
        """Nothing to reset."""

    def pin_reference(self, folder: Path | None = None) -> str:
        """Always refused.

        Raises:
            UserError: always.
        """
        raise UserError("there are no weights to diverge from", hint="-s learner.kl=0")

    def save(self, folder: Path, *, step: int) -> Save:
        """Mark how far the run is: counters, and no weight."""
        stored = weights.Stored(tensors={}, moments={}, counters=_COUNTERS)
        num_bytes = weights.write(folder, stored, config_json="{}\n", source=None)
        return Save(
            phase="play",
            step=step,
            policy_version=0,
            path=str(folder),
            weights_digest=self.weights_digest(),
            state_digest=weights.tensors_digest({}, extra=_COUNTERS),
            num_bytes=num_bytes,
        )

    def load(self, folder: Path, save: Save) -> None:
        """Nothing to load.

        Raises:
            RunFailed: a file is missing or torn.
        """
        weights.read(folder)
