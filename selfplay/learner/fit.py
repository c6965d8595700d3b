"""What decides a learner's bits, and whether a save is one of its own.

Is a save as it was recorded, and does it belong to this learner: the same base, rank, optimizer and shapes?

What is damaged is told apart from what is whole and another's: only the first may be passed over for an
earlier save.

Not here: how files are read and digests made (`weights`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import torch
import transformers
from torch import Tensor

from selfplay.errors import RunFailed, UserError
from selfplay.learner.lora import Adapter
from selfplay.learner.options import Options
from selfplay.learner.placing import CPU, described
from selfplay.learner.weights import Stored, read, tensors_digest
from selfplay.types import Save

ARITHMETIC = 4
"""Rises where the same update gives other bits than in an earlier release of this package. 2: sums along the layers are
float32 under bfloat16 parameters, micro-batches hold one role, padding has no embedding gradient. 3: the head's
log-probabilities come from its probabilities, and attention's float32 scores from another kernel. 4: the gradient's
norm is summed in float64."""


def fitting(folder: Path, own: Mapping[str, Tensor], *, traits: Mapping[str, str], save: Save | None = None) -> Stored:
    """The save in `folder`, its tensors those that `own` names, once it is known to fit.

    Args:
        folder: Where it lies.
        own: The learner's parameters by name.
        traits: Counters that the learner's saves have beside those that count.
        save: What was recorded of it; None: its digests are the caller's to compare.

    Raises:
        RunFailed: a file is missing or torn, it is not what was recorded, or it lacks a parameter.
        UserError: it is whole, and of another base, rank, optimizer or shape.
    """
    stored = read(folder)
    if save is not None and tensors_digest(stored.moments, extra=stored.counters) != save.state_digest:
        raise _damaged(folder)
    _refuse_other_kind(stored.counters, traits, folder=folder)
    if missing := own.keys() - stored.tensors.keys():
        raise RunFailed(f"the save in {folder} lacks {len(missing)} parameters, {min(missing)} among them")
    tensors = {name: stored.tensors[name] for name in own}
    if save is not None and tensors_digest(tensors) != save.weights_digest:
        raise _damaged(folder)
    for name, tensor in own.items():
        if tensors[name].shape != tensor.shape:
            raise UserError(
                f"the save in {folder} is of another model: `{name}` is {_shape(tensors[name])} there, "
                f"{_shape(tensor)} here",
                hint="name the model it was trained from: -s policy.model=...",
            )
    return replace(stored, tensors=tensors)


def traits_of(options: Options, adapter: Adapter | None) -> dict[str, str]:
    """What a learner's saves must agree in, as counters; empty for all weights and AdamW."""
    optimizer = {} if options.optimizer == "adamw" else {"optimizer": options.optimizer}
    return {**optimizer, **(adapter.traits if adapter else {})}


def fingerprint(options: Options) -> str:
    """Versions, arithmetic, CPU capability, threads, dtype; optimizer, card, ranks, adapters where not plain."""
    words = [
        f"torch {torch.__version__}",
        f"transformers {transformers.__version__}",
        f"arithmetic {ARITHMETIC}",
        _instructions(),
        f"threads {options.threads}",
        options.dtype,
    ]
    if options.optimizer != "adamw":
        words.append(f"{options.optimizer} (torchao {version('torchao')})")
    if options.device != CPU:
        words.append(described(options.device))
    if options.ranks > 1:
        words.append(f"{options.ranks} ranks")
    if options.lora_rank:
        words.append(f"adapters of rank {options.lora_rank}{_own(options)} (peft {version('peft')})")
    return "; ".join(words)


def _instructions() -> str:
    """What decides which kernels are taken; tiles (AMX) are told apart, torch's own name for it leaves them out."""
    known: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # note: not in every torch that works.
    return torch.backends.cpu.get_cpu_capability() + (" AMX" if known.get("amx_tile") else "")


def _own(options: Options) -> str:
    return f" for {', '.join(options.lora_roles)}" if options.lora_roles else ""


def _damaged(folder: Path) -> RunFailed:
    return RunFailed(f"the save in {folder} is not what was recorded: its digest differs")


def _refuse_other_kind(counters: Mapping[str, str], traits: Mapping[str, str], *, folder: Path) -> None:
    theirs, ours = counters.get("lora_rank", "0"), traits.get("lora_rank", "0")
    if theirs != ours:
        raise UserError(
            f"the save in {folder} holds {_kind(theirs)}, and this learner trains {_kind(ours)}",
            hint=f"-s learner.lora_rank={theirs}",
        )
    theirs, ours = counters.get("lora_roles", ""), traits.get("lora_roles", "")
    if theirs != ours:
        raise UserError(
            f"the save in {folder} holds adapters of {_whose(theirs)}, and this learner trains those of {_whose(ours)}",
            hint=f"-s learner.lora_per_role={str(bool(theirs)).lower()}",
        )
    theirs, ours = counters.get("base", ""), traits.get("base", "")
    if theirs != ours:
        raise UserError(
            f"the adapter in {folder} belongs to another base: the digest of its weights begins {theirs[:12]}, "
            f"that of this one's {ours[:12]}",
            hint="name the model it was trained on: -s policy.model=...",
        )
    theirs, ours = counters.get("optimizer", "adamw"), traits.get("optimizer", "adamw")
    if theirs != ours:
        raise UserError(
            f"the save in {folder} holds moments of `{theirs}`, and this learner steps by `{ours}`",
            hint=f"-s learner.optimizer={theirs}",
        )


def _kind(rank: str) -> str:
    return "all weights" if rank == "0" else f"adapters of rank {rank}"


def _whose(roles: str) -> str:
    return roles.replace(",", " and of ") or "all roles together"


def _shape(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "one number"
