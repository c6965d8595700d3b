"""Float32 parameters, gradients and an optimizer behind a model that computes in another type.

The model given becomes the compute copy: its parameters are cast in place and refreshed after each
step, so whoever shares the module (the sampler) sees new weights without a transfer. RL-sized steps
vanish in bfloat16 parameters; that is why the float32 ones exist. With float32 compute both are the
same memory. Parameters that are not trained, a base under adapters, exist in the compute type only.

Not here: the optimizers (`optimizer`), losses, learning-rate schedules, files.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from selfplay.errors import RunFailed
from selfplay.learner import clipping, optimizer
from selfplay.learner.batch import Row
from selfplay.learner.forward import Scores, score
from selfplay.learner.head import Sinks, add_in_place
from selfplay.learner.lora import speak_as
from selfplay.learner.reference import Reference, pinned
from selfplay.learner.weights import tensors_digest

DType = Literal["bfloat16", "float32"]
TORCH_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


class Master:
    """The float32 truth about a model, and its optimizer."""

    def __init__(
        self,
        model: nn.Module,
        *,
        dtype: DType,
        betas: tuple[float, float],
        weight_decay: float,
        kind: optimizer.Kind = "adamw",
        trained: Mapping[str, nn.Parameter] | None = None,
        groups: Sequence[Collection[str]] = (),
    ) -> None:
        """Take over `model`, whose parameters are float32: cast it to `dtype` and collect its gradients.

        `trained` names the parameters of `model` that learn (None: all, under their own names); the others are frozen.
        `groups` of them, by name, are clipped and stepped apart, and one without a gradient stays as it is; none: all
        are one.

        Raises:
            NotReady: the optimizer's library is not installed.
        """
        self._model = model
        self._kind = kind
        self._betas = betas
        self._weight_decay = weight_decay
        self.compute = dict(sorted((dict(model.named_parameters()) if trained is None else trained).items()))
        """What the model computes with, by the names that saves have."""
        self.parameters = {name: nn.Parameter(parameter.data.float()) for name, parameter in self.compute.items()}
        self.gradients = {name: torch.zeros_like(master.data) for name, master in self.parameters.items()}
        self._groups = [
            {name: parameter for name, parameter in self.parameters.items() if not groups or name in own}
            for own in groups or (frozenset[str](),)
        ]
        self.sinks: Sinks = {self.compute[name]: gradient for name, gradient in self.gradients.items()}
        self.reset_optimizer()
        for parameter in model.parameters():
            # note: parameters only; casting the module would also round the rotary frequencies.
            parameter.data = parameter.data.to(TORCH_DTYPES[dtype])
            parameter.requires_grad_(parameter in self.sinks)
        for parameter, sink in self.sinks.items():
            parameter.register_post_accumulate_grad_hook(partial(_collect, sink))  # type: ignore[no-untyped-call]

    def speak_as(self, role: str) -> None:
        """What follows is of this role, where roles have adapters of their own."""
        if len(self._groups) > 1:
            speak_as(self._model, role)

    def score(self, row: Row, *, temperature: float, recompute: bool = False) -> Scores:
        """Log-probabilities and entropies of the row's trained tokens; `backward` collects their gradient."""
        return score(self._model, row, temperature=temperature, sinks=self.sinks, recompute=recompute)

    def reset_optimizer(self) -> None:
        """Forget the moments."""
        for name, parameter in self.parameters.items():
            parameter.grad = self.gradients[name]
        self._optimizers = [
            optimizer.make(self._kind, group, betas=self._betas, weight_decay=self._weight_decay)
            for group in self._groups
        ]

    def zero_gradients(self) -> None:
        """Forget the gradients collected so far."""
        for gradient in self.gradients.values():
            gradient.zero_()

    def step(self, *, lr: float, max_grad_norm: float) -> float:
        """Clip the collected gradient by its global norm, step, refresh the compute copy, forget the gradient.

        Returns:
            The gradient's norm before clipping.

        Raises:
            RunFailed: the gradient is not finite; nothing has changed.
        """
        collected = [[self.gradients[name] for name in group] for group in self._groups]
        squares = [clipping.square_of(own) for own in collected]
        whole = math.sqrt(sum(squares))
        if not math.isfinite(whole):
            self.zero_gradients()
            raise RunFailed(f"the gradient is not finite (norm {whole}); the weights are unchanged")
        for gradients, square, own in zip(collected, squares, self._optimizers, strict=True):
            if len(squares) > 1 and not square:
                # note: moments of earlier steps would move it, though it was not there to learn.
                continue
            clipping.clip(gradients, norm=math.sqrt(square), most=max_grad_norm)
            own.step(lr=lr)
        self.refresh()
        self.zero_gradients()
        return whole

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the float32 parameters into the compute copy."""
        for name, parameter in self.compute.items():
            if parameter.data_ptr() != self.parameters[name].data_ptr():
                parameter.copy_(self.parameters[name])

    def tensors(self) -> dict[str, Tensor]:
        """The float32 parameters by name; the live ones, not copies."""
        return {name: parameter.data for name, parameter in self.parameters.items()}

    def digest(self) -> str:
        """Of the float32 parameters, in the order of their names."""
        return tensors_digest(self.tensors())

    def whole(self, folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Parameters and moments for a save in `folder`; the live ones, not copies."""
        del folder
        return self.tensors(), self.moments()

    def pinned(self, tensors: Mapping[str, Tensor] | None) -> Reference:
        """A frozen model with the parameters `tensors`; None: those of now."""
        adapters = len(self.compute) < sum(1 for _ in self._model.parameters())
        return pinned(self._model, tensors or self.tensors(), compute=self.compute, adapters=adapters)

    @torch.no_grad()
    def reference_score(self, model: nn.Module, row: Row, *, temperature: float) -> Scores:
        """By the `model` of a reference."""
        return score(model, row, temperature=temperature, sinks={})

    def moments(self) -> dict[str, Tensor]:
        """The optimizer's state as `MOMENT.PARAMETER`; empty before the first step. The live tensors, not copies."""
        return {name: moment for own in self._optimizers for name, moment in own.moments().items()}

    def snapshot(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Copies of `tensors` and `moments`, for `restore`."""
        return (
            {name: tensor.clone() for name, tensor in self.tensors().items()},
            {name: tensor.clone() for name, tensor in self.moments().items()},
        )

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor], moments: Mapping[str, Tensor]) -> None:
        """Take over parameters and moments that `tensors` and `moments` of an equal model gave.

        Raises:
            KeyError: a parameter or a moment is missing.
            RuntimeError: a shape differs.
        """
        for name, parameter in self.parameters.items():
            parameter.copy_(tensors[name])
        self.reset_optimizer()
        stepped = {name.partition(".")[2] for name in moments}
        for group, own in zip(self._groups, self._optimizers, strict=True):
            if moments and (len(self._groups) == 1 or stepped & group.keys()):
                own.restore(moments)
        self.zero_gradients()
        self.refresh()


def _collect(sink: Tensor, parameter: Tensor) -> None:
    """Move a gradient into its sink.

    It knows the sink alone: torch holds hooks where Python's collector does not look, and one that knew the master
    would keep its model for as long as the process lives.
    """
    # Embedding and head have put theirs into the sink already.
    if parameter.grad is not None:
        add_in_place(sink, parameter.grad)
        parameter.grad = None
