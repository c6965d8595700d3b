"""A server of Tinker's API (Thinking Machines') as the learner and the policy of a run.

    export TINKER_API_KEY=tml-...
    selfplay run quickstart -s policy.backend=tinker -s policy.model=Qwen/Qwen3-8B -s learner.lora_rank=32
        -s 'policy.options={url = "https://HOST"}'

Weights, optimizer and sampler are the server's; ledger, games, verdicts and the loss are ours. An update is a forward
pass, which gives the log-probabilities before it; the loss and its gradient by those, computed here by the formulas of
every other learner (`learner.grpo`); and a pass that goes down that gradient: `cross_entropy` with the gradient as its
weights, as the API's own custom losses do, then `optim_step`. So every loss and correction is had, for the price of one
more pass.

A save is an address (`tinker://...`) in a folder like every other save. What it calls the weights' digest is that of
how they came about (base, adapters, and each update's tokens, advantages and rate), for the numbers are not here. Every
launch starts from the last save and applies later updates again, in a run of its own at the server: what an earlier
launch sent and got no answer to is never built on, so nothing is learnt twice. Where the log-probabilities before an
update that is applied again are others than the recorded ones, the digest is another too, and the run stops.

Not here: the operations and what they fail with (`tinker_client`), sampling (`tinker_policy`). Not covered: a
divergence from a reference (`learner.kl`), a temperature other than 1 (the server's losses know none), adapters for
each role, ranks, orders; removal of states at the server that no save names any more.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from selfplay.config import Config
from selfplay.doors.tinker_client import Service, Training, given_of, installed
from selfplay.doors.tinker_update import finite, mean_gap, objective, seen_of, spread, trained
from selfplay.errors import RunFailed, UserError
from selfplay.learner import weights
from selfplay.learner.bare import bare, skipped
from selfplay.learner.batch import advantages_of, informative, num_context, num_trained
from selfplay.learner.examples import demonstrations
from selfplay.learner.optimizer import EPS
from selfplay.learner.options import Options, play_lr, warmup_lr
from selfplay.learner.refuse import refuse
from selfplay.learner.tally import imitation_metrics, play_metrics
from selfplay.policy import Tokenizer
from selfplay.samplers import tokenizer_of
from selfplay.types import Batch, Example, Phase, Sample, Save, Update, digest

LINEAGE = "tinker.lineage"
"""The one tensor of a save: 16 bytes that say how the weights came about."""
GAP = 0.05
"""Nats a token, on average, that log-probabilities before an update that is applied again may be off: a server that
computes in bfloat16, with other batches, is expected to be off by about a hundredth."""


def learner(config: Config, options: Options, *, temperature: float) -> tuple[TinkerLearner, Tokenizer]:
    """The learner of a run that samples at `temperature`, and the base's tokenizer, here.

    Raises:
        UserError: the server refuses the key, trains no such model, or the temperature is not 1.
        NotReady: it is not reached.
    """
    if temperature != 1.0:
        raise UserError(
            f"roles sample at temperature {temperature:g}, and a Tinker server learns at 1 alone",
            hint="-s play.temperature=1.0",
        )
    given = given_of(config)
    tokenizer = tokenizer_of(config.policy.model)
    service = Service(given.url, seconds=given.seconds)
    service.context(given.model)
    return TinkerLearner(service, base=given.model, options=options, tokenizer=tokenizer), tokenizer


class TinkerLearner:
    """Implements `learner.Learner`; on one thread, but for `sampling`."""

    def __init__(self, service: Service, *, base: str, options: Options, tokenizer: Tokenizer) -> None:
        self._service = service
        self._base = base
        self._options = options
        self._tokenizer = tokenizer
        self._lineage = digest("tinker", base, options.lora_rank, options.seed)
        self._made: Training | None = None
        self._phase: Phase = "warmup"
        self._policy_version = 0
        self._phase_updates = 0
        self._resets = 0
        self.sampling: tuple[int, Any] | None = None
        """A version of the weights and the SDK's client that samples from it; None before the first."""

    @property
    def service(self) -> Service:
        """Its session."""
        return self._service

    @property
    def policy_version(self) -> int:
        """How many updates the weights have seen in this run, warm-up included."""
        return self._policy_version

    @property
    def fingerprint(self) -> str:
        """SDK, server, base and adapters; what the server computes with, nobody says."""
        options = self._options
        where = f"{self._base} at {self._service.url}"
        return f"tinker {installed()}, {where}, rank {options.lora_rank}, seed {options.seed}"

    def weights_digest(self) -> str:
        """Digest of how the weights came about."""
        return weights.tensors_digest(self._tensors())

    def start_phase(self, phase: Phase) -> None:
        """Reset optimizer and schedule for `phase`; the weights stay."""
        if self._phase_updates:
            self._resets += 1
            path = self._training().save(f"reset_{self._resets}")
            self._made = self._service.from_state(path, moments=False)
        self._phase = phase
        self._phase_updates = 0

    def pin_reference(self, folder: Path | None = None) -> str:
        """Always refused.

        Raises:
            UserError: always.
        """
        raise UserError("a Tinker server keeps no reference for this learner", hint="-s learner.kl=0")

    def logprobs(self, samples: Sequence[Sample], *, temperature: float) -> tuple[tuple[float, ...], ...]:
        """Of the trained tokens of each sample; see `learner.Learner.logprobs`."""
        if temperature != 1.0:
            raise UserError(f"a Tinker server has no log-probabilities at temperature {temperature:g}")
        if not samples:
            return ()
        for sample in samples:
            num_context(sample)
        return tuple(map(tuple, trained(samples, self._training().logprobs(samples))))

    def update(self, batch: Batch, *, recorded: Update | None = None) -> Update:
        """Learn from one step's samples; see `learner.Learner.update`.

        `entropy` among its metrics is the mean of -log pi of what was sampled, whose expectation the entropy is.

        Raises:
            RunFailed: a sample, the loss or the gradient is not finite; the weights are unchanged.
            NotReady: the server did not answer in time: nobody knows whether the weights changed, and no save has them.
        """
        started = time.perf_counter()
        refuse(batch)
        members = informative(batch.samples)
        if recorded is not None and recorded.skipped is not None:
            return skipped(batch, why=recorded.skipped, of=self)
        if not members:
            return skipped(batch, why="no group has a sample to learn from", of=self)
        samples = [batch.samples[member] for member in members]
        lr = play_lr(self._options, index=self._phase_updates) if recorded is None else recorded.lr
        now = finite(trained(samples, self._training().logprobs(samples)))
        old = now if recorded is None else [recorded.old_logprobs[member] for member in members]
        loss, seen, gradients = objective(batch.samples, members, now=now, old=old, options=self._options)
        norm, _ = self._step(samples, gradients, lr=lr)
        moved = [(one.token_ids, list(advantages_of(one))) for one in samples]
        self._came("play", lr, moved, *(["other weights"] if mean_gap(now, old) > GAP else []))
        if recorded is None:
            self.renew()
        clip = {"clip_low": self._options.clip_low, "clip_high": self._options.clip_high}
        each = dict(zip(members, old, strict=True))
        return replace(
            bare(batch.samples, step=batch.step, phase=batch.phase, of=self),
            partition=(tuple(members),),
            old_logprobs=tuple(tuple(each.get(member, ())) for member in range(len(batch.samples))),
            lr=lr,
            loss=loss,
            grad_norm=norm,
            tokens=sum(map(num_trained, samples)),
            metrics=play_metrics(batch.samples, seen, **clip),
            seconds=time.perf_counter() - started,
        )

    def imitate(self, examples: Sequence[Example], *, index: int, total: int) -> Update:
        """One supervised update: mean cross-entropy of all reply tokens and the end-of-sequence id after each."""
        started = time.perf_counter()
        samples = demonstrations(examples, tokenizer=self._tokenizer, end=None)
        num_tokens = sum(map(num_trained, samples))
        lr = warmup_lr(self._options, index=index, total=total)
        norm, found = self._step(samples, [[-1.0 / num_tokens] * num_trained(one) for one in samples], lr=lr)
        seen = {
            member: seen_of(torch.tensor(one), loss_T=-torch.tensor(one)) for member, one in enumerate(finite(found))
        }
        self._came("warmup", lr, [one.token_ids for one in samples])
        return replace(
            bare(samples, step=index, phase="warmup", of=self),
            partition=(tuple(range(len(samples))),),
            lr=lr,
            loss=math.fsum(-value for one in found for value in one) / num_tokens,
            grad_norm=norm,
            tokens=num_tokens,
            metrics=imitation_metrics(samples, seen),
            seconds=time.perf_counter() - started,
        )

    def save(self, folder: Path, *, step: int) -> Save:
        """Save at the server, and its address in `folder`, or nothing.

        Raises:
            NotReady: the server did not answer, or the disk is full; nothing was recorded.
        """
        path = self._training().save(f"{folder.name}_{self._policy_version}")
        counters = {
            "phase": self._phase,
            "policy_version": str(self._policy_version),
            "phase_updates": str(self._phase_updates),
            "tinker": path,
            **self._traits(),
        }
        stored = weights.Stored(tensors=self._tensors(), moments={}, counters=counters)
        said = json.dumps({"tinker": path, **self._traits()}, indent=2) + "\n"
        num_bytes = weights.write(folder, stored, config_json=said, source=None)
        return Save(
            phase=self._phase,
            step=step,
            policy_version=self._policy_version,
            path=str(folder),
            weights_digest=self.weights_digest(),
            state_digest=weights.tensors_digest({}, extra=counters),
            num_bytes=num_bytes,
        )

    def load(self, folder: Path, save: Save) -> None:
        """Load what `save` describes, in a new run at the server.

        Raises:
            RunFailed: a file is missing or torn, does not match its digest, or the server has the state no more.
            UserError: it is another learner's, or of another base or rank.
        """
        stored = weights.read(folder)
        counters = stored.counters
        whole = weights.tensors_digest(stored.moments, extra=counters) == save.state_digest
        if not whole or weights.tensors_digest(stored.tensors) != save.weights_digest:
            raise RunFailed(f"the save in {folder} is damaged: its digest is not the recorded one")
        known = {name: counters.get(name, "") for name in self._traits()}
        if "tinker" not in counters or known != self._traits():
            raise UserError(
                f"the save in {folder} is of another learner ({_words(known)}; here {_words(self._traits())})",
                hint="name the base and the rank that it was trained with: -s policy.model=M -s learner.lora_rank=R",
            )
        self._made = self._service.from_state(counters["tinker"], moments=True)
        self._lineage = bytes(stored.tensors[LINEAGE].tolist()).hex()
        self._phase = cast(Phase, counters["phase"])
        self._policy_version = int(counters["policy_version"])
        self._phase_updates = int(counters["phase_updates"])
        self.sampling = None

    def renew(self) -> tuple[int, Any]:
        """The version of the weights as they are, and a client that samples from it."""
        if self.sampling is None or self.sampling[0] != self._policy_version:
            self.sampling = (self._policy_version, self._training().sampler())
        return self.sampling

    def close(self) -> None:
        """End the session; idempotent."""
        self._service.close()

    def _training(self) -> Training:
        if self._made is None:
            options = self._options
            self._made = self._service.fresh(self._base, rank=options.lora_rank, seed=options.seed)
        return self._made

    def _step(
        self, samples: Sequence[Sample], gradients: Sequence[Sequence[float]], *, lr: float
    ) -> tuple[float, list[list[float]]]:
        """Go down a gradient by the trained tokens' log-probabilities: its norm as the server says it (0: it does
        not), and those log-probabilities before the step."""
        options = self._options
        spread_out = [spread(sample, gradient) for sample, gradient in zip(samples, gradients, strict=True)]
        adam = {
            "learning_rate": lr,
            "beta1": options.betas[0],
            "beta2": options.betas[1],
            "eps": EPS,
            "weight_decay": options.weight_decay,
            "grad_clip_norm": options.max_grad_norm,
        }
        found, told = self._training().learn(samples, spread_out, adam=adam)
        self._policy_version += 1
        self._phase_updates += 1
        norms = (value for name, value in told.items() if "grad" in name and ("norm" in name or "l2" in name))
        return next(norms, 0.0), trained(samples, found)

    def _came(self, *how: object) -> None:
        self._lineage = digest(self._lineage, *how)

    def _tensors(self) -> dict[str, Tensor]:
        return {LINEAGE: torch.tensor(list(bytes.fromhex(self._lineage)), dtype=torch.uint8)}

    def _traits(self) -> dict[str, str]:
        """What a save must agree in."""
        return {"base": self._base, "lora_rank": str(self._options.lora_rank)}


def _words(traits: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value or 'none'}" for name, value in traits.items())
