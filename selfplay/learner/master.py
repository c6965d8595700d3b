"""Float32 parameters, gradients and AdamW moments behind a model that computes in another type.

The model given becomes the compute copy: its parameters are cast in place and refreshed after each
step, so whoever shares the module (the sampler) sees new weights without a transfer. RL-sized steps
vanish in bfloat16 parameters; that is why the float32 ones exist. With float32 compute both are the
same memory.

Not here: losses, learning-rate schedules, files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from selfplay.errors import RunFailed
from selfplay.learner.forward import Sinks, add_in_place

DType = Literal["bfloat16", "float32"]
TORCH_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class Master:
    """The float32 truth about a model, and its optimizer."""

    def __init__(self, model: nn.Module, *, dtype: DType, betas: tuple[float, float], weight_decay: float) -> None:
        """Take over `model`, whose parameters are float32: cast it to `dtype` and collect its gradients."""
        self.model = model
        self._betas = betas
        self._weight_decay = weight_decay
        self.parameters: dict[str, nn.Parameter] = {}
        compute: dict[str, nn.Parameter] = {}
        for name, parameter in sorted(model.named_parameters()):
            self.parameters[name] = nn.Parameter(parameter.data.float())
            # note: parameters only; casting the module would also round the rotary frequencies.
            parameter.data = self.parameters[name].data.to(TORCH_DTYPES[dtype])
            parameter.requires_grad_(True)
            compute[name] = parameter
        self._compute = compute
        self.gradients = {name: torch.zeros_like(master.data) for name, master in self.parameters.items()}
        self.sinks: Sinks = {compute[name]: gradient for name, gradient in self.gradients.items()}
        for parameter in compute.values():
            parameter.register_post_accumulate_grad_hook(self._collect)  # type: ignore[no-untyped-call]
        self.reset_optimizer()

    def _collect(self, parameter: Tensor) -> None:
        assert isinstance(parameter, nn.Parameter)
        # Embedding and head have put theirs into the sink already.
        if parameter.grad is not None:
            add_in_place(self.sinks[parameter], parameter.grad)
            parameter.grad = None

    def reset_optimizer(self) -> None:
        """Forget the moments."""
        for name, parameter in self.parameters.items():
            parameter.grad = self.gradients[name]
        self._optimizer = torch.optim.AdamW(
            self.parameters.values(), lr=0.0, betas=self._betas, weight_decay=self._weight_decay, fused=True
        )

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
        norm = torch.nn.utils.get_total_norm(self.gradients.values())
        if not torch.isfinite(norm):
            self.zero_gradients()
            raise RunFailed(f"the gradient is not finite (norm {norm.item()}); the weights are unchanged")
        torch.nn.utils.clip_grads_with_norm_(self.parameters.values(), max_grad_norm, norm)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()
        self.refresh()
        self.zero_gradients()
        return float(norm)

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the float32 parameters into the compute copy."""
        for name, parameter in self._compute.items():
            if parameter.data_ptr() != self.parameters[name].data_ptr():
                parameter.copy_(self.parameters[name])

    def tensors(self) -> dict[str, Tensor]:
        """The float32 parameters by name; the live ones, not copies."""
        return {name: parameter.data for name, parameter in self.parameters.items()}

    def moments(self) -> dict[str, Tensor]:
        """AdamW's state as `MOMENT.PARAMETER`; empty before the first step. The live tensors, not copies."""
        state = self._optimizer.state
        return {
            f"{moment}.{name}": state[parameter][moment]
            for name, parameter in self.parameters.items()
            if parameter in state
            for moment in MOMENTS
        }

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
        if moments:
            for name, parameter in self.parameters.items():
                self._optimizer.state[parameter] = {m: moments[f"{m}.{name}"].clone() for m in MOMENTS}
        self.zero_gradients()
        self.refresh()
