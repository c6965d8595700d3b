"""A copy of the learner's model in another process, for the sampler `local` there: the same modules, given weights.

The copy is made of the model's class and configuration, with adapters where the learner has them, and every parameter
and buffer is then the learner's, bit by bit. So on processors of the same kind (`arithmetic`) it samples what the
learner's own process would.

Not here: how weights come (`policy.parcels`), the sampler (`policy.local`), cards: a copy is on the processor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from selfplay.learner import lora
from selfplay.learner.fit import ARITHMETIC
from selfplay.policy.handover import digest_of
from selfplay.types import record


@record
class Form:
    """What a model is without its weights; small, and can be sent."""

    kind: type[nn.Module]
    config: Any
    """Of `transformers`."""
    lora_rank: int = 0
    """Of its adapters; 0: it has none."""
    lora_roles: tuple[str, ...] = ()
    """See `learner.options.Options`."""

    @classmethod
    def of(cls, model: nn.Module, *, lora_rank: int, lora_roles: tuple[str, ...]) -> Form:
        """That of the learner's model."""
        return cls(kind=type(model), config=model.config, lora_rank=lora_rank, lora_roles=lora_roles)


def arithmetic() -> str:
    """What decides a sampler's bits beside weights, threads and types."""
    capability = torch.backends.cpu.get_cpu_capability()
    return f"torch {torch.__version__}, transformers {transformers.__version__}, arithmetic {ARITHMETIC}, {capability}"


def trained(model: nn.Module, *, lora_rank: int) -> dict[str, Tensor]:
    """What updates change of `model`, live, by its own names."""
    return {name: value for name, value in model.named_parameters() if not lora_rank or ".lora_" in name}


def fixed(model: nn.Module, *, lora_rank: int) -> dict[str, Tensor]:
    """What no update changes: buffers, and a base under adapters."""
    changed = trained(model, lora_rank=lora_rank)
    return {name: value for name, value in _live(model).items() if name not in changed}


class Copy:
    """The model of this process."""

    def __init__(self, form: Form, *, threads: int) -> None:
        """As the learner's, with other weights."""
        torch.set_num_threads(threads)
        with torch.random.fork_rng(devices=[]):
            self.model: nn.Module = form.kind(form.config).eval()
        if form.lora_rank:
            lora.attach(self.model, rank=form.lora_rank, seed=0, source=None, roles=form.lora_roles)

    @torch.no_grad()
    def adopt(self, tensors: Mapping[str, Tensor]) -> dict[str, str]:
        """Have these weights, by the model's own names, and their types; digest of each as the model then has it.

        Raises:
            KeyError: the model has no such parameter or buffer.
        """
        live = _live(self.model)
        for name, tensor in tensors.items():
            live[name].data = tensor.clone()
        return {name: digest_of(live[name]) for name in tensors}


def _live(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}
