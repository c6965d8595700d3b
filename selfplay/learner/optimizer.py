"""The optimizers: AdamW with float32 moments, and AdamW whose moments are kept in 8 bits.

Both step float32 parameters whose `grad` is set, and give their whole state as plain tensors by name
(`MOMENT.PARAMETER`), so that a save is safetensors and its digest is that of ordinary tensors.

`adamw8bit` keeps moments as torchao does: blocks of 256 numbers share a scale, and each number is one of 256 values
of a dynamic map (Dettmers et al. 2021, arXiv 2110.02861); parameters below 4096 numbers keep float32 moments.
It runs without `torch.compile`, so that no compiler is needed and the bits do not depend on one.

Not here: gradients and clipping (`master`), learning rates (`options`). Not covered: 8-bit moments on
several devices, paging to the host.
"""

from __future__ import annotations

import importlib.util
import logging
import math
from collections.abc import Mapping
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from selfplay.errors import NotReady

Kind = Literal["adamw", "adamw8bit"]
MOMENTS = ("exp_avg", "exp_avg_sq")
STEP = "step"
EPS = 1e-8
BLOCK = 256
"""Numbers of a moment that share a scale."""
SMALL = 4096
"""Parameters of fewer numbers keep float32 moments."""
PIECE = 1 << 19
"""Numbers that are changed at once, so that the passes over them stay in the processor's cache; whole blocks."""
HALF = 1 << 15
"""Half the values of 16 bits."""

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
            # note: the fused kernel wants all of it, the count too, where the parameter is.
            own = {m: moments[f"{m}.{name}"].to(parameter.device, copy=True) for m in (*MOMENTS, STEP)}
            self._torch.state[parameter] = own


class AdamW8bit:
    """As `AdamW`, with moments of one byte a number; parameters that are no whole blocks keep float32 moments.

    torchao's own step needs a compiler: without one it takes half a minute for 134 million parameters on two cores.
    This one goes over two thousand blocks at a time and gives the same codes.
    """

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
        self._parameters = parameters
        self._betas = betas
        self._weight_decay = weight_decay
        device = next(iter(parameters.values())).device
        self._codecs = {moment: Codec(signed=moment == MOMENTS[0], device=device) for moment in MOMENTS}
        self._state: dict[str, Tensor] = {}

    @torch.no_grad()
    def step(self, *, lr: float) -> None:
        """Change every parameter once."""
        for name, parameter in self._parameters.items():
            if f"{STEP}.{name}" not in self._state:
                self._state |= self._fresh(name, parameter)
            self._state[f"{STEP}.{name}"] += 1
            assert parameter.grad is not None
            values, gradient = parameter.view(-1), parameter.grad.view(-1)
            for start in range(0, len(values), PIECE):
                piece = slice(start, start + PIECE)
                self._change(name, values[piece], gradient[piece], piece=piece, lr=lr)

    def moments(self) -> dict[str, Tensor]:
        """As of `AdamW`; a quantised moment is two tensors, `exp_avg_codes` and `exp_avg_scale`."""
        return dict(self._state)

    def restore(self, moments: Mapping[str, Tensor]) -> None:
        """Take over copies of `moments`."""
        for name, parameter in self._parameters.items():
            fresh = self._fresh(name, parameter)
            self._state |= {key: moments[key].to(own.device, copy=True) for key, own in fresh.items()}

    def _fresh(self, name: str, parameter: Tensor) -> dict[str, Tensor]:
        """The state before the first step; steps are counted on the processor, wherever the parameter is."""
        found = {f"{STEP}.{name}": torch.tensor(0.0)}
        for moment in MOMENTS:
            if parameter.numel() < SMALL or parameter.numel() % BLOCK:
                found[f"{moment}.{name}"] = torch.zeros_like(parameter.data)
            else:
                found[f"{moment}_codes.{name}"] = torch.zeros_like(parameter.data, dtype=torch.uint8)
                found[f"{moment}_scale.{name}"] = parameter.data.new_zeros(parameter.numel() // BLOCK)
        return found

    def _change(self, name: str, values: Tensor, gradient: Tensor, *, piece: slice, lr: float) -> None:
        """Some numbers of one parameter, and their moments."""
        (beta1, beta2), count = self._betas, float(self._state[f"{STEP}.{name}"])
        mean, square = (self._read(moment, name, piece) for moment in MOMENTS)
        mean.lerp_(gradient, 1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        for moment, found in zip(MOMENTS, (mean, square), strict=True):
            self._write(moment, name, piece, found)
        below = square.sqrt_().div_(math.sqrt(1 - beta2**count)).add_(EPS)
        values.mul_(1 - lr * self._weight_decay).addcdiv_(mean, below, value=-lr / (1 - beta1**count))

    def _read(self, moment: str, name: str, piece: slice) -> Tensor:
        """A copy of some numbers of a moment, in float32."""
        if (whole := self._state.get(f"{moment}.{name}")) is not None:
            return whole.view(-1)[piece].clone()
        codes = self._state[f"{moment}_codes.{name}"].view(-1)[piece]
        return self._codecs[moment].decode(codes, self._state[f"{moment}_scale.{name}"][_blocks(piece)])

    def _write(self, moment: str, name: str, piece: slice, found: Tensor) -> None:
        if (whole := self._state.get(f"{moment}.{name}")) is not None:
            whole.view(-1)[piece] = found
            return
        codes, scale = self._codecs[moment].encode(found)
        self._state[f"{moment}_codes.{name}"].view(-1)[piece] = codes
        self._state[f"{moment}_scale.{name}"][_blocks(piece)] = scale


class Codec:
    """Blocks of numbers as a scale, their largest magnitude, and a byte each: the nearest value of a dynamic map.

    The upper 16 bits of a float32 number leave two codes at most, one above the other, to choose from: a table gives
    the lower one, and one comparison decides.
    """

    def __init__(self, *, signed: bool, device: torch.device) -> None:
        from torchao.optim.quant_utils import create_dynamic_map

        values = torch.tensor(create_dynamic_map(signed=signed), dtype=torch.float32)
        middles = (values[:-1] + values[1:]) / 2
        upper = torch.arange(-HALF, HALF, dtype=torch.int32) << 16
        ends = [torch.bucketize(bits.view(torch.float32), middles, right=True) for bits in (upper, upper | 0xFFFF)]
        self._values = values.to(device)
        self._lower = torch.minimum(*ends).to(torch.uint8).to(device)
        self._middles = torch.cat([middles, torch.tensor([torch.inf])]).to(device)

    def encode(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """(a code for each number, a scale for each block)."""
        blocks = numbers.view(-1, BLOCK)
        scale = blocks.abs().amax(-1).clip_(1e-12)
        scaled = (blocks / scale.unsqueeze(1)).view(-1)
        codes = self._lower.index_select(0, (scaled.view(torch.int32) >> 16).add_(HALF))
        codes += scaled >= self._middles.index_select(0, codes.int())
        return codes, scale

    def decode(self, codes: Tensor, scale: Tensor) -> Tensor:
        """The numbers, in float32."""
        numbers = self._values.index_select(0, codes.int())
        numbers.view(-1, BLOCK).mul_(scale.unsqueeze(1))
        return numbers


def _blocks(piece: slice) -> slice:
    return slice(piece.start // BLOCK, piece.stop // BLOCK)
