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

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from selfplay.errors import RunFailed, UserError
from selfplay.learner import lora, weights
from selfplay.learner.bare import bare, skipped
from selfplay.learner.batch import Row, informative, num_trained, partition
from selfplay.learner.examples import demonstrations
from selfplay.learner.fit import fingerprint, fitting, traits_of
from selfplay.learner.forward import supported
from selfplay.learner.master import Master
from selfplay.learner.memory import room_of, setup_of, shape_of
from selfplay.learner.objective import Learnt, Played, Work, in_order, joined
from selfplay.learner.options import Options, correction_of, play_lr, rule_of, token_weights, warmup_lr
from selfplay.learner.passes import collect
from selfplay.learner.placing import enough, prepare
from selfplay.learner.ranks_shards import Sharded
from selfplay.learner.ranks_world import World
from selfplay.learner.reference import Reference
from selfplay.learner.refuse import refuse, refuse_ranks
from selfplay.learner.roles import partition_by_role
from selfplay.learner.scoring import logprobs_of
from selfplay.learner.tally import imitation_metrics, play_metrics
from selfplay.policy import Tokenizer
from selfplay.types import Batch, Example, Phase, Sample, Save, Update


class Trainer:
    """Owns the float32 parameters, the optimizer and their one compute copy; implements `learner.Learner`."""

    def __init__(
        self,
        model: nn.Module,
        *,
        options: Options,
        tokenizer: Tokenizer | None = None,
        source: Path | None = None,
        world: World | None = None,
    ) -> None:
        """Take over `model` (float32; it becomes the compute copy).

        Args:
            model: A causal language model of `transformers`.
            options: How to learn.
            tokenizer: For `imitate` only.
            source: The folder that `model` came from; its tokenizer's files go into every save.
            world: The ranks that learn together, this process among them, all of which make the same calls: rank 0
                has the whole compute copy and writes saves, the others `gather` for it. None: one process.

        Raises:
            UserError: the learner does not know this kind of model, an option names nothing, or adapters do not fit,
                or ranks cannot do what an option says.
            NotReady: the optimizer's library is not installed.
        """
        supported(model)
        self._rule, self._correction = rule_of(options), correction_of(options)
        torch.set_num_threads(options.threads)
        self.model = model.eval()
        self.options = options
        self._tokenizer = tokenizer
        self._source = source
        rank = options.lora_rank
        give = partial(lora.attach, model, rank=rank, seed=options.seed, source=source, roles=options.lora_roles)
        self._adapter = give() if rank else None
        self._traits = traits_of(options, self._adapter)
        self._world = world
        self._device = torch.device(options.device)
        prepare(self._device)
        with enough():
            # note: after adapters got their values, which are those of the processor's generator.
            model.to(self._device)
            self._master = _owner(model, options, adapter=self._adapter, world=world)
        shape = shape_of(cast(Any, model).config.to_dict())
        self._room = room_of(shape, setup_of(options), memory_mb=options.memory_mb)
        self._reference: Reference | None = None
        self._phase: Phase = "warmup"
        self._policy_version = 0
        self._phase_updates = 0

    @classmethod
    def from_folder(
        cls, folder: Path, *, options: Options, tokenizer: Tokenizer | None = None, world: World | None = None
    ) -> Trainer:
        """A trainer of the model in `folder` (Hugging Face layout); nothing is downloaded.

        Raises:
            NotFound: there is no model in `folder`.
        """
        return cls(weights.open_model(folder), options=options, tokenizer=tokenizer, source=folder, world=world)

    @property
    def policy_version(self) -> int:
        """How many updates the weights have seen in this run, warm-up included."""
        return self._policy_version

    @property
    def fingerprint(self) -> str:
        """What decides bits: versions, CPU capability, threads, dtype; equal ones re-apply to equal digests."""
        return fingerprint(self.options)

    @property
    def compute(self) -> Mapping[str, Tensor]:
        """What it computes with of what it trains, live, by the names that a save has; on the torch thread."""
        return self._master.compute

    @property
    def adapter_json(self) -> str | None:
        """Contents of `adapter_config.json`; None where all weights are trained."""
        return self._adapter.config_json if self._adapter else None

    def weights_digest(self) -> str:
        """Digest of the float32 parameters, in the order of their names."""
        return self._master.digest()

    def start_phase(self, phase: Phase) -> None:
        """Reset optimizer and schedule for `phase`; the weights stay."""
        self._master.reset_optimizer()
        self._phase = phase
        self._phase_updates = 0

    def pin_reference(self, folder: Path | None = None) -> str:
        """Take the save in `folder` (None: the current weights) as the KL reference; returns its digest."""
        own = self._master.parameters
        tensors = fitting(folder, own, traits=self._traits).tensors if folder else None
        self._reference = self._master.pinned(tensors)
        return self._reference.digest

    def logprobs(self, samples: Sequence[Sample], *, temperature: float) -> tuple[tuple[float, ...], ...]:
        """Of the trained tokens of each sample; see `learner.Learner.logprobs`."""
        parts = self._parts(samples)
        found = logprobs_of(self.model, samples, parts, temperature=temperature)
        return tuple(tuple(found[member].tolist()) for member in range(len(samples)))

    def update(self, batch: Batch, *, recorded: Update | None = None) -> Update:
        """Learn from one step's samples; see `learner.Learner.update`.

        Samples of groups without any advantage are left out: they count nowhere.

        Raises:
            RunFailed: a sample, the loss or the gradient is not finite; the weights are unchanged.
            UserError: `kl_coef` is set and no reference is pinned.
        """
        started = time.perf_counter()
        refuse(batch)
        members = informative(batch.samples)
        if recorded is not None and recorded.skipped is not None:
            return skipped(batch, why=recorded.skipped, of=self)
        if not members:
            return skipped(batch, why="no group has a sample to learn from", of=self)
        if self.options.kl_coef and self._reference is None:
            raise UserError("a divergence from a reference is weighed, and no reference is pinned")
        work, lr = self._play_work(batch, members, recorded)
        works = in_order(work, self.options.order)
        loss, norm, seen, norms = self._learn(works, lr=lr, times=self.options.updates_per_step)
        clip = {"clip_low": self.options.clip_low, "clip_high": self.options.clip_high}
        nothing = bare(batch.samples, step=batch.step, phase=batch.phase, of=self)
        return replace(
            nothing,
            partition=work.parts,
            old_logprobs=tuple(tuple(seen[m].old_T.tolist()) if m in seen else () for m in range(len(batch.samples))),
            lr=lr,
            reference_digest=self._reference.digest if self._reference and self.options.kl_coef else None,
            loss=loss,
            grad_norm=norm,
            tokens=sum(num_trained(batch.samples[member]) for member in members),
            metrics=play_metrics(batch.samples, seen, **clip) | norms,
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
        work = Work(
            samples=samples,
            parts=self._parts(samples),
            weights=dict.fromkeys(members, 1.0 / max(1, num_tokens)),
            temperature=1.0,
            objective=lambda row, tokens: -tokens.logprobs_BT,
            old=None,
        )
        lr = warmup_lr(self.options, index=index, total=total)
        loss, norm, seen, _ = self._learn((work,), lr=lr, times=1)
        return replace(
            bare(samples, step=index, phase="warmup", of=self),
            partition=work.parts,
            lr=lr,
            loss=loss,
            grad_norm=norm,
            tokens=num_tokens,
            metrics=imitation_metrics(samples, seen),
            seconds=time.perf_counter() - started,
        )

    def save(self, folder: Path, *, step: int) -> Save:
        """Write weights (Hugging Face layout; adapters: peft's), moments and counters into `folder`, or nothing.

        Raises:
            NotReady: the disk is full; nothing was written.
        """
        tensors, moments = self.gather(folder)
        stored = weights.Stored(
            tensors=tensors | ({} if self._adapter else weights.buffers(self.model)),
            moments=moments,
            counters={
                "phase": self._phase,
                "policy_version": str(self._policy_version),
                "phase_updates": str(self._phase_updates),
                **self._traits,
            },
            adapter=self._adapter is not None,
        )
        described = self._adapter.config_json if self._adapter else weights.config_json(self.model)
        num_bytes = weights.write(folder, stored, config_json=described, source=self._source)
        return Save(
            phase=self._phase,
            step=step,
            policy_version=self._policy_version,
            path=str(folder),
            weights_digest=self.weights_digest(),
            state_digest=weights.tensors_digest(stored.moments, extra=stored.counters),
            num_bytes=num_bytes,
        )

    def gather(self, folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Whole parameters and moments for a save in `folder`; ranks beside the first give their part, and get none."""
        return self._master.whole(folder)

    def load(self, folder: Path, save: Save) -> None:
        """Load what `save` describes.

        Raises:
            RunFailed: a file is missing, torn, or does not match its digest; the weights are unchanged.
            UserError: it is of another base, rank, optimizer or shape; the weights are unchanged.
        """
        stored = fitting(folder, self._master.parameters, traits=self._traits, save=save)
        self._master.restore(stored.tensors, stored.moments)
        self._phase = cast(Phase, stored.counters["phase"])
        self._policy_version = int(stored.counters["policy_version"])
        self._phase_updates = int(stored.counters["phase_updates"])

    def _play_work(self, batch: Batch, members: Sequence[int], recorded: Update | None) -> tuple[Work, float]:
        """What to do with `members`, and the learning rate: new, or as `recorded`."""
        options = self.options
        lr = play_lr(options, index=self._phase_updates)
        old: Mapping[int, Tensor] | None = None
        if recorded is not None:
            parts, lr = recorded.partition, recorded.lr
            old = {m: self._on_device(recorded.old_logprobs[m]) for m in members}
        else:
            parts = partition_by_role(batch.samples, members, token_budget=options.token_budget)
            if options.updates_per_step > 1 or options.order:
                old = logprobs_of(self.model, batch.samples, parts, temperature=batch.temperature)
        work = Work(
            samples=batch.samples,
            parts=parts,
            weights=token_weights(batch.samples, members, options=options),
            temperature=batch.temperature,
            objective=Played(
                samples=batch.samples,
                options=options,
                rule=self._rule,
                correction=self._correction,
                reference=partial(self._reference_logprobs, batch.temperature) if options.kl_coef else None,
            ),
            old=old,
        )
        return work, lr

    def _parts(self, samples: Sequence[Sample]) -> tuple[tuple[int, ...], ...]:
        """Micro-batches of all of them: of one role each, where roles have adapters of their own."""
        cut = partition_by_role if self.options.lora_roles else partition
        return cut(samples, range(len(samples)), token_budget=self.options.token_budget)

    def _on_device(self, values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=self._device)

    @torch.no_grad()
    def _reference_logprobs(self, temperature: float, row: Row) -> Tensor:
        assert self._reference is not None, "checked before the update began"
        with self._reference.model() as model:
            return self._master.reference_score(model, row, temperature=temperature).logprob_N

    def _learn(self, works: Sequence[Work], *, lr: float, times: int) -> Learnt:
        """Step `times` times on each of `works`: first passes' loss, gradient norm, what was seen, the roles' norms.

        Raises:
            RunFailed: the loss or the gradient is not finite; parameters and moments are as before.
        """
        before = self._master.snapshot() if times * len(works) > 1 and isinstance(self._master, Master) else None
        first: list[Learnt] = []
        for one in (one for _ in range(times) for one in works):
            try:
                with enough():
                    loss, seen, meter = collect(one, self._master, room=self._room, world=self._world)
                    norm = self._master.step(lr=lr, max_grad_norm=self.options.max_grad_norm)
            except RunFailed:
                if before is not None:
                    self._master.restore(*before)
                raise
            first += [(loss, norm, seen, meter.metrics(norm))] if len(first) < len(works) else []
        self._policy_version += 1
        self._phase_updates += 1
        return joined(first)


def _owner(
    model: nn.Module, options: Options, *, adapter: lora.Adapter | None, world: World | None
) -> Master | Sharded:
    """Who owns the parameters: this process, or all ranks together."""
    trained = adapter.parameters if adapter else None
    if world is None:
        return Master(
            model,
            dtype=options.dtype,
            betas=options.betas,
            weight_decay=options.weight_decay,
            kind=options.optimizer,
            trained=trained,
            groups=adapter.groups if adapter else (),
        )
    if options.lora_roles:
        raise UserError("ranks share one adapter", hint="-s learner.lora_per_role=false, or one process")
    refuse_ranks(optimizer=options.optimizer, in_turns=options.updates_per_step > 1 or bool(options.order))
    return Sharded(
        model,
        world=world,
        dtype=options.dtype,
        betas=options.betas,
        weight_decay=options.weight_decay,
        kind=options.optimizer,
        trained=trained,
        refers=options.kl_coef > 0.0,
    )
