"""The optimizers: AdamW with float32 moments, and AdamW whose moments are kept in 8 bits.

Both step float32 parameters whose `grad` is set, and give their whole state as plain tensors by name
(`MOMENT.PARAMETER`), so that a save is safetensors and its digest is that of ordinary tensors.

`adamw8bit` is torchao's: blocks of 256 numbers share a scale, and each number is one of 256 values of a
dynamic map (Dettmers et al. 2021, arXiv 2110.02861); parameters below 4096 numbers keep float32 moments.
It runs without `torch.compile`, so that no compiler is needed and the bits do not depend on one.

Not here: gradients and clipping (`master`), learning rates (`options`). Not covered: 8-bit moments on
several devices, paging to the host.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Mapping
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from selfplay.errors import NotReady

Kind = Literal["adamw", "adamw8bit"]
MOMENTS = ("exp_avg", "exp_avg_sq")
STEP = "step"

# note: transformers imports torchao wherever it is installed, and on import that warns of GPU kernels it cannot load.
for _chatty in ("torchao", "torch.utils._pytree"):
    logging.getLogger(_chatty).setLevel(logging.ERROR)


class Optimizer(Protocol):
    """Changes parameters by their gradients; its state is tensors with names."""

    def step(self, *, lr: float) -> None:
        """Change every parameter once."""
        ...

    def moments(self) -> dict[str, Tensor]:
        """The state; empty before the first step. The live tensors, not copies."""
        ...

    def restore(self, moments: Mapping[str, Tensor]) -> None:
        """Take over what `moments` of an optimizer of equal parameters gave, before the first step.

        Raises:
            KeyError: a moment is missing.
            RuntimeError: a shape differs.
        """
        ...


def make(
    kind: Kind, parameters: Mapping[str, nn.Parameter], *, betas: tuple[float, float], weight_decay: float
) -> Optimizer:
    """The optimizer `kind` of `parameters`.

    Raises:
        NotReady: its library is not installed.
    """
    if kind == "adamw":
        return AdamW(parameters, betas=betas, weight_decay=weight_decay)
    return AdamW8bit(parameters, betas=betas, weight_decay=weight_decay)


class AdamW:
    """Decoupled weight decay (Loshchilov & Hutter 2017, arXiv 1711.05101), float32 moments, torch's fused kernel."""

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], *, betas: tuple[float, float], weight_decay: float
    ) -> None:
        self._parameters = parameters
        self._torch = torch.optim.AdamW(parameters.values(), lr=0.0, betas=betas, weight_decay=weight_decay, fused=True)

    def step(self, *, lr: float) -> None:
        """Change every parameter once."""
        for group in self._torch.param_groups:
            group["lr"] = lr
        self._torch.step()

    def moments(self) -> dict[str, Tensor]:
        """`exp_avg`, `exp_avg_sq` and `step` of each parameter."""
        state = self._torch.state
        return {
            f"{moment}.{name}": state[parameter][moment]
            for name, parameter in self._parameters.items()
            if parameter in state
            for moment in (*MOMENTS, STEP)
        }

    def restore(self, moments: Mapping[str, Tensor]) -> None:
        """Take over copies of `moments`."""
        for name, parameter in self._parameters.items():
            self._torch.state[parameter] = {m: moments[f"{m}.{name}"].clone() for m in (*MOMENTS, STEP)}


class AdamW8bit:
    """AdamW of torchao with block-wise 8-bit moments."""

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], *, betas: tuple[float, float], weight_decay: float
    ) -> None:
        """Raises:
        NotReady: torchao is not installed.
        """
        if importlib.util.find_spec("torchao") is None:
            raise NotReady(
                "the optimizer `adamw8bit` needs torchao, which is not installed",
                hint="pip install torchao, or -s learner.optimizer=adamw",
            )
        from torchao.optim import AdamW8bit as Quantised

        self._parameters = parameters
        self._torch = Quantised(parameters.values(), lr=0.0, betas=betas, weight_decay=weight_decay)

    def step(self, *, lr: float) -> None:
        """Change every parameter once."""
        for group in self._torch.param_groups:
            group["lr"].fill_(lr)
        with torch.compiler.set_stance("force_eager"):
            self._torch.step()

    def moments(self) -> dict[str, Tensor]:
        """As of `AdamW`; a quantised moment is two tensors, `exp_avg_codes` and `exp_avg_scale`."""
        state = self._torch.state
        found: dict[str, Tensor] = {}
        for name, parameter in self._parameters.items():
            if parameter not in state:
                continue
            for moment in MOMENTS:
                held = state[parameter][moment]
                if isinstance(held, _blocks()):
                    found |= {f"{moment}_codes.{name}": held.codes, f"{moment}_scale.{name}": held.scale}
                else:
                    found[f"{moment}.{name}"] = held
            found[f"{STEP}.{name}"] = state[parameter][STEP]
        return found

    def restore(self, moments: Mapping[str, Tensor]) -> None:
        """Take over copies of `moments`."""
        for name, parameter in self._parameters.items():
            state = {moment: _moment(moments, moment, name, like=parameter) for moment in MOMENTS}
            self._torch.state[parameter] = state | {STEP: moments[f"{STEP}.{name}"].clone()}


def _blocks() -> Any:
    from torchao.optim.subclass_8bit import OptimState8bit

    return OptimState8bit


def _moment(moments: Mapping[str, Tensor], moment: str, name: str, *, like: Tensor) -> Tensor:
    """One moment of the parameter `like`, quantised if it was saved so."""
    if (whole := moments.get(f"{moment}.{name}")) is not None:
        return whole.clone()
    codes, scale = moments[f"{moment}_codes.{name}"], moments[f"{moment}_scale.{name}"]
    held: Any = _blocks().zeros(
        like.shape,
        signed=moment == MOMENTS[0],
        block_size=codes.numel() // scale.numel(),
        device=like.device,
        dtype=like.dtype,
    )
    held.codes.copy_(codes)
    held.scale.copy_(scale)
    return held  # type: ignore[no-any-return]
