"""`Trainer`: one policy's weights, and the updates that change them.

`update` learns from played samples by group-relative policy optimisation, `imitate` from supervised
examples; both return the record that their re-application needs. Equal records on equal weights give
bitwise equal weights where the fingerprint is equal: micro-batches run in the recorded order on a fixed
number of threads, and nothing is random (dropout is 0).

Not here: formulas (`grpo`), options and schedules (`options`), layout of micro-batches (`batch`), the
model's forward (`forward`), the optimizer (`master`), files (`weights`), groups and advantages (the loop).

Example:
    >>> trainer = Trainer.from_folder(folder, options=Options(lr=1e-6, warmup_lr=1e-4))

Shapes: B samples of a micro-batch, T trained tokens of the longest, N trained tokens of all.
"""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from selfplay.errors import RunFailed, UserError
from selfplay.learner import grpo, weights
from selfplay.learner.batch import Row, informative, num_trained, pack, partition
from selfplay.learner.examples import demonstrations
from selfplay.learner.forward import score, supported
from selfplay.learner.master import TORCH_DTYPES, Master
from selfplay.learner.options import Options, correction_of, play_lr, rule_of, token_weights, warmup_lr
from selfplay.learner.tally import Seen, imitation_metrics, play_metrics, trained_values
from selfplay.policy import Tokenizer
from selfplay.types import Batch, Example, Phase, Sample, Save, Update, record

Objective = Callable[[Row, grpo.Tokens], Tensor]
"""Token losses of one micro-batch, (B, T)."""


@record
class _Work:
    """What one pass over a batch needs."""

    samples: Sequence[Sample]
    parts: tuple[tuple[int, ...], ...]
    weights: Mapping[int, float]
    temperature: float
    objective: Objective
    old: Mapping[int, Tensor] | None
    """Log-probabilities before the step, a member each; None: those of this very pass."""


class Trainer:
    """Owns the float32 parameters, the optimizer and their one compute copy; implements `learner.Learner`."""

    def __init__(
        self, model: nn.Module, *, options: Options, tokenizer: Tokenizer | None = None, source: Path | None = None
    ) -> None:
        """Take over `model` (float32; it becomes the compute copy).

        Args:
            model: A causal language model of `transformers`.
            options: How to learn.
            tokenizer: For `imitate` only.
            source: The folder that `model` came from; its tokenizer's files go into every save.

        Raises:
            UserError: the learner does not know this kind of model, or an option names nothing.
        """
        supported(model)
        self._rule, self._correction = rule_of(options), correction_of(options)
        torch.set_num_threads(options.threads)
        self.model = model.eval()
        self.options = options
        self._tokenizer = tokenizer
        self._source = source
        self._master = Master(model, dtype=options.dtype, betas=options.betas, weight_decay=options.weight_decay)
        self._reference: nn.Module | None = None
        self._reference_digest: str | None = None
        self._phase: Phase = "warmup"
        self._policy_version = 0
        self._phase_updates = 0

    @classmethod
    def from_folder(cls, folder: Path, *, options: Options, tokenizer: Tokenizer | None = None) -> Trainer:
        """A trainer of the model in `folder` (Hugging Face layout); nothing is downloaded.

        Raises:
            NotFound: there is no model in `folder`.
        """
        return cls(weights.open_model(folder), options=options, tokenizer=tokenizer, source=folder)

    @property
    def policy_version(self) -> int:
        """How many updates the weights have seen in this run, warm-up included."""
        return self._policy_version

    @property
    def fingerprint(self) -> str:
        """Versions, CPU capability, threads and dtype; equal fingerprints re-apply to equal digests."""
        capability = torch.backends.cpu.get_cpu_capability()
        return (
            f"torch {torch.__version__}; transformers {transformers.__version__}; {capability}; "
            f"threads {self.options.threads}; {self.options.dtype}"
        )

    def weights_digest(self) -> str:
        """Digest of the float32 parameters, in the order of their names."""
        return weights.tensors_digest(self._master.tensors())

    def start_phase(self, phase: Phase) -> None:
        """Reset optimizer and schedule for `phase`; the weights stay."""
        self._master.reset_optimizer()
        self._phase = phase
        self._phase_updates = 0

    def pin_reference(self, folder: Path | None = None) -> str:
        """Take the save in `folder` (None: the current weights) as the KL reference; returns its digest."""
        tensors = weights.read(folder).tensors if folder else self._master.tensors()
        reference = copy.deepcopy(self.model).requires_grad_(False)
        for name, parameter in reference.named_parameters():
            parameter.data = tensors[name].to(TORCH_DTYPES[self.options.dtype], copy=True)
        self._reference = reference
        self._reference_digest = weights.tensors_digest({name: tensors[name] for name in self._master.tensors()})
        return self._reference_digest

    def update(self, batch: Batch, *, recorded: Update | None = None) -> Update:
        """Learn from one step's samples; see `learner.Learner.update`.

        Samples of groups without any advantage are left out: they count nowhere.

        Raises:
            RunFailed: the loss or the gradient is not finite; the weights are unchanged.
            UserError: `kl_coef` is set and no reference is pinned.
        """
        started = time.perf_counter()
        members = informative(batch.samples)
        if recorded is not None and recorded.skipped is not None:
            return self._skipped(batch, why=recorded.skipped)
        if not members:
            return self._skipped(batch, why="no group has a sample to learn from")
        if self.options.kl_coef and self._reference is None:
            raise UserError("a divergence from a reference is weighed, and no reference is pinned")
        work, lr = self._play_work(batch, members, recorded)
        loss, norm, seen = self._learn(work, lr=lr, times=self.options.updates_per_step)
        clip = {"clip_low": self.options.clip_low, "clip_high": self.options.clip_high}
        bare = self._bare(batch.samples, step=batch.step, phase=batch.phase)
        return replace(
            bare,
            partition=work.parts,
            old_logprobs=tuple(tuple(seen[m].old_T.tolist()) if m in seen else () for m in range(len(batch.samples))),
            lr=lr,
            reference_digest=self._reference_digest if self.options.kl_coef else None,
            loss=loss,
            grad_norm=norm,
            tokens=sum(num_trained(batch.samples[member]) for member in members),
            metrics=play_metrics(batch.samples, seen, **clip),
            seconds=time.perf_counter() - started,
        )

    def imitate(self, examples: Sequence[Example], *, index: int, total: int) -> Update:
        """One supervised update: mean cross-entropy of all reply tokens and the end-of-sequence id after each.

        Raises:
            UserError: there is no tokenizer, no example, or an empty prompt.
            RunFailed: the loss or the gradient is not finite; the weights are unchanged.
        """
        started = time.perf_counter()
        if self._tokenizer is None:
            raise UserError("imitation needs a tokenizer, and the learner was built without one")
        end = cast(Any, self.model).config.eos_token_id
        samples = demonstrations(examples, tokenizer=self._tokenizer, end=end)
        num_tokens = sum(num_trained(sample) for sample in samples)
        members = range(len(samples))
        work = _Work(
            samples=samples,
            parts=partition(samples, members, token_budget=self.options.token_budget),
            weights=dict.fromkeys(members, 1.0 / max(1, num_tokens)),
            temperature=1.0,
            objective=lambda row, tokens: -tokens.logprobs_BT,
            old=None,
        )
        lr = warmup_lr(self.options, index=index, total=total)
        loss, norm, seen = self._learn(work, lr=lr, times=1)
        return replace(
            self._bare(samples, step=index, phase="warmup"),
            partition=work.parts,
            lr=lr,
            loss=loss,
            grad_norm=norm,
            tokens=num_tokens,
            metrics=imitation_metrics(samples, seen),
            seconds=time.perf_counter() - started,
        )

    def save(self, folder: Path, *, step: int) -> Save:
        """Write weights (Hugging Face layout), moments and counters into `folder`, whole or not at all.

        Raises:
            NotReady: the disk is full; nothing was written.
        """
        stored = weights.Stored(
            tensors=self._master.tensors() | self._buffers(),
            moments=self._master.moments(),
            counters={
                "phase": self._phase,
                "policy_version": str(self._policy_version),
                "phase_updates": str(self._phase_updates),
            },
        )
        num_bytes = weights.write(folder, stored, config_json=self._config_json(), source=self._source)
        return Save(
            phase=self._phase,
            step=step,
            policy_version=self._policy_version,
            path=str(folder),
            weights_digest=self.weights_digest(),
            state_digest=weights.tensors_digest(stored.moments, extra=stored.counters),
            num_bytes=num_bytes,
        )

    def load(self, folder: Path, save: Save) -> None:
        """Load what `save` describes.

        Raises:
            RunFailed: a file is missing, torn, or does not match its digest; the weights are unchanged.
        """
        stored = weights.read(folder)
        missing = self._master.tensors().keys() - stored.tensors.keys()
        if missing:
            raise RunFailed(f"the save in {folder} lacks {len(missing)} parameters, {min(missing)} among them")
        tensors = {name: stored.tensors[name] for name in self._master.tensors()}
        found = weights.tensors_digest(tensors), weights.tensors_digest(stored.moments, extra=stored.counters)
        if found != (save.weights_digest, save.state_digest):
            raise RunFailed(f"the save in {folder} is not what was recorded: its digest differs")
        self._master.restore(tensors, stored.moments)
        self._phase = cast(Phase, stored.counters["phase"])
        self._policy_version = int(stored.counters["policy_version"])
        self._phase_updates = int(stored.counters["phase_updates"])

    def _config_json(self) -> str:
        # What is saved is float32, whatever the weights were converted from.
        config = json.loads(cast(Any, self.model).config.to_json_string())
        config.pop("quantization_config", None)
        return json.dumps(config | {"dtype": "float32"}, indent=2, sort_keys=True) + "\n"

    def _buffers(self) -> dict[str, Tensor]:
        kept = self.model.state_dict().keys()
        return {name: buffer for name, buffer in self.model.named_buffers() if name in kept}

    def _play_work(self, batch: Batch, members: Sequence[int], recorded: Update | None) -> tuple[_Work, float]:
        """What to do with `members`, and the learning rate: new, or as `recorded`."""
        options = self.options
        lr = play_lr(options, index=self._phase_updates)
        old: Mapping[int, Tensor] | None = None
        if recorded is not None:
            parts, lr = recorded.partition, recorded.lr
            old = {m: torch.tensor(recorded.old_logprobs[m], dtype=torch.float32) for m in members}
        else:
            parts = partition(batch.samples, members, token_budget=options.token_budget)
            if options.updates_per_step > 1:
                old = self._old_logprobs(batch, parts)
        work = _Work(
            samples=batch.samples,
            parts=parts,
            weights=token_weights(batch.samples, members, options=options),
            temperature=batch.temperature,
            objective=lambda row, tokens: self._objective(batch, row, tokens),
            old=old,
        )
        return work, lr

    def _objective(self, batch: Batch, row: Row, tokens: grpo.Tokens) -> Tensor:
        """Token losses of played samples: the rule's, corrected, plus the weighed divergence."""
        options = self.options
        loss_BT = self._rule.token_loss(tokens, clip_low=options.clip_low, clip_high=options.clip_high)
        if self._correction is not None:
            sampler = [torch.tensor(trained_values(batch.samples[member])) for member in row.members]
            sampler_BT = pad_sequence(sampler, batch_first=True)
            loss_BT = loss_BT * self._correction(tokens.old_BT, sampler_BT=sampler_BT, mask_BT=tokens.mask_BT)
        if options.kl_coef and self._reference is not None:
            with torch.no_grad():
                reference = score(self._reference, row, temperature=batch.temperature, sinks={})
            reference_BT = pad_sequence(_split(reference.logprob_N, row), batch_first=True)
            loss_BT = loss_BT + options.kl_coef * grpo.k3(tokens.logprobs_BT, reference_BT)
        return loss_BT

    @torch.no_grad()
    def _old_logprobs(self, batch: Batch, parts: Sequence[Sequence[int]]) -> dict[int, Tensor]:
        old: dict[int, Tensor] = {}
        for part in parts:
            row = pack(batch.samples, part)
            scores = score(self.model, row, temperature=batch.temperature, sinks={})
            old |= zip(row.members, _split(scores.logprob_N, row), strict=True)
        return old

    def _learn(self, work: _Work, *, lr: float, times: int) -> tuple[float, float, dict[int, Seen]]:
        """Step `times` times on `work`: the first pass's loss, gradient norm and what was seen.

        Raises:
            RunFailed: the loss or the gradient is not finite; parameters and moments are as before.
        """
        before = self._master.snapshot() if times > 1 else None
        first: tuple[float, float, dict[int, Seen]] | None = None
        for _ in range(times):
            try:
                loss, seen = self._pass(work)
                norm = self._master.step(lr=lr, max_grad_norm=self.options.max_grad_norm)
            except RunFailed:
                if before is not None:
                    self._master.restore(*before)
                raise
            first = first or (loss, norm, seen)
        assert first is not None
        self._policy_version += 1
        self._phase_updates += 1
        return first

    def _pass(self, work: _Work) -> tuple[float, dict[int, Seen]]:
        """Collect the gradient of `work`, micro-batch by micro-batch."""
        losses: list[float] = []
        seen: dict[int, Seen] = {}
        try:
            for part in work.parts:
                loss, found = self._micro_batch(work, pack(work.samples, part))
                losses.append(loss)
                seen |= found
        except BaseException:
            # An interrupt or a failure between two micro-batches must not leave half a gradient behind.
            self._master.zero_gradients()
            raise
        return math.fsum(losses), seen

    def _micro_batch(self, work: _Work, row: Row) -> tuple[float, dict[int, Seen]]:
        scores = score(self.model, row, temperature=work.temperature, sinks=self._master.sinks)
        logprobs = _split(scores.logprob_N, row)
        old = [lp.detach() for lp in logprobs] if work.old is None else [work.old[m] for m in row.members]
        length_B = torch.tensor(row.lengths)
        tokens = grpo.Tokens(
            logprobs_BT=pad_sequence(logprobs, batch_first=True),
            old_BT=pad_sequence(old, batch_first=True),
            mask_BT=torch.arange(max(row.lengths))[None, :] < length_B[:, None],
            advantage_B=torch.tensor([work.samples[member].advantage for member in row.members]),
        )
        loss_BT = work.objective(row, tokens)
        weight_B = torch.tensor([work.weights[member] for member in row.members])
        loss = grpo.total(loss_BT, mask_BT=tokens.mask_BT, weight_B=weight_B)
        if not torch.isfinite(loss):
            raise RunFailed(f"the loss is not finite ({loss.item()}); the weights are unchanged")
        loss.backward()  # type: ignore[no-untyped-call]
        entropies = _split(scores.entropy_N, row)
        seen = {
            member: Seen(
                logprob_T=logprobs[i].detach(),
                old_T=old[i],
                entropy_T=entropies[i],
                loss_T=loss_BT[i, : row.lengths[i]].detach(),
            )
            for i, member in enumerate(row.members)
        }
        return loss.item(), seen

    def _bare(self, samples: Sequence[Sample], *, step: int, phase: Phase) -> Update:
        """The record of an update that did nothing: what every update has."""
        return Update(
            step=step,
            phase=phase,
            policy_version=self._policy_version,
            trajectory_ids=tuple(sample.trajectory_id for sample in samples),
            advantages=tuple(sample.advantage for sample in samples),
            partition=(),
            old_logprobs=(),
            lr=0.0,
            weights_digest=self.weights_digest(),
            reference_digest=None,
            fingerprint=self.fingerprint,
            loss=0.0,
            grad_norm=0.0,
            tokens=0,
            seconds=0.0,
        )

    def _skipped(self, batch: Batch, *, why: str) -> Update:
        bare = self._bare(batch.samples, step=batch.step, phase=batch.phase)
        return replace(bare, skipped=why, metrics={"zero_variance": float(len(batch.samples))})


def _split(values_N: Tensor, row: Row) -> list[Tensor]:
    """The values of each member of `row`."""
    return list(values_N.split_with_sizes(list(row.lengths)))
