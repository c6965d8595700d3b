"""The weights of a learner of several ranks: float32 shards, their gradients and moments, by torch's FSDP2.

Each rank keeps its rows of every parameter. `fully_shard` gathers a layer's parameters for the time it computes, in
the compute type, and adds the gradients of all ranks up, in float32, into the shards. Those of embedding and output
head are collected whole, in float32 as by one process, and then added up. So an update of one micro-batch a role gives
the bits that one process gives, and others differ by the order of float32 sums. Rank 0 keeps a whole compute copy
besides, which the sampler shares, and refreshes it after each step; so it also knows the digest of the whole.

A save goes through a distributed checkpoint (`torch.distributed.checkpoint`): every rank writes its shards at once,
rank 0 reads the whole from them and writes the save that a learner of one process would.

As `master.Master`, but frozen weights are float32, and moments cannot be kept in 8 bits. Not here: who calls
(`trainer`, `ranks_worker`), what ranks say to each other (`ranks_world`). Not covered: GPUs, offloading, several nodes
whose folders are not shared.
"""

from __future__ import annotations

import copy
import math
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from selfplay.errors import RunFailed
from selfplay.learner import clipping, optimizer
from selfplay.learner.batch import Row
from selfplay.learner.forward import Scores, score
from selfplay.learner.master import TORCH_DTYPES, DType
from selfplay.learner.ranks_world import World
from selfplay.learner.reference import Reference
from selfplay.learner.refuse import refuse_ranks
from selfplay.learner.weights import joined_digest, tensor_digest, tensors_digest


class Scorer(nn.Module):
    """A model and the forward over packed rows, as one module: what is outside of the layers is gathered with it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.collects: dict[nn.Module, Tensor] = {}
        """Embedding and output head, as far as they learn -> where the gradient of their weight is collected."""

    def forward(self, row: Row, temperature: float, recompute: bool) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies (`forward.score`)."""
        # note: inside, their weights are the gathered ones.
        sinks = {cast(nn.Parameter, module.weight): sink for module, sink in self.collects.items()}
        found = score(self.model, row, temperature=temperature, sinks=sinks, recompute=recompute)
        return found.logprob_N, found.entropy_N


class Sharded:
    """In the place of `master.Master` on every rank."""

    def __init__(
        self,
        model: nn.Module,
        *,
        world: World,
        dtype: DType,
        betas: tuple[float, float],
        weight_decay: float,
        kind: optimizer.Kind = "adamw",
        trained: Mapping[str, nn.Parameter] | None = None,
        refers: bool = False,
    ) -> None:
        """Take over `model`, whose parameters are float32 and equal on every rank; rank 0's becomes the compute copy.

        `trained` names the parameters that learn (None: all); `refers`: a reference will be pinned.

        Raises:
            UserError: moments in 8 bits are asked for.
        """
        refuse_ranks(optimizer=kind)
        self._world, self._dtype = world, dtype
        self._betas, self._weight_decay = betas, weight_decay
        chosen = dict(sorted((dict(model.named_parameters()) if trained is None else trained).items()))
        places = {parameter: name for name, parameter in model.named_parameters()}
        own = copy.deepcopy(model) if world.leads else model
        frozen = copy.deepcopy(model).requires_grad_(False) if refers and trained is None else None
        self.compute: dict[str, nn.Parameter] = chosen if world.leads else {}
        """What rank 0's whole copy computes with of what is trained, by the names that saves have."""
        learns = {places[parameter] for parameter in chosen.values()}
        for name, parameter in own.named_parameters():
            parameter.requires_grad_(name in learns)
        self._scorer = _shard(own, world=world, dtype=dtype)
        self._frozen = None if frozen is None else _shard(frozen, world=world, dtype=dtype)
        found = dict(own.named_parameters())
        self.parameters: dict[str, Any] = {name: found[places[parameter]] for name, parameter in chosen.items()}
        """This rank's rows, as distributed tensors of the whole shape."""
        self._rows = {name: nn.Parameter(_local(parameter)) for name, parameter in self.parameters.items()}
        self.gradients: dict[str, Tensor] = {}
        for name, parameter in self.parameters.items():
            # note: set once, and changed in place by FSDP from then on.
            parameter.grad = torch.zeros_like(parameter)
            self.gradients[name] = self._rows[name].grad = _local(parameter.grad)
        self._whole: dict[str, Tensor] = {}
        for module in (own.get_input_embeddings(), own.get_output_embeddings()):  # type: ignore[operator]
            for name, parameter in self.parameters.items():
                if parameter is module.weight:
                    self._scorer.collects[module] = self._whole.setdefault(name, torch.zeros(parameter.shape))
        self.reset_optimizer()
        if world.leads:
            for parameter in model.parameters():
                parameter.data = parameter.data.to(TORCH_DTYPES[dtype])
                parameter.requires_grad_(False)
        self._digest = ""
        self.refresh()

    def score(self, row: Row, *, temperature: float, recompute: bool = False) -> Scores:
        """Log-probabilities and entropies of the row's trained tokens, by the weights of all ranks."""
        return _scores(self._scorer, row, temperature, recompute)

    @torch.no_grad()
    def collect(self) -> None:
        """Add up what is collected whole, as FSDP has added up the rest; after a role's last part, on every rank."""
        for name, whole in self._whole.items():
            self.gradients[name].copy_(self._world.shard(self._world.summed(whole)))
            if not self._world.leads:
                # note: rank 0 goes on from the sum, in the order of one process.
                whole.zero_()

    def reset_optimizer(self) -> None:
        """Forget the moments."""
        self._optimizer = optimizer.AdamW(self._rows, betas=self._betas, weight_decay=self._weight_decay)

    def zero_gradients(self) -> None:
        """Forget the gradients collected so far."""
        for gradient in (*self.gradients.values(), *self._whole.values()):
            gradient.zero_()

    def step(self, *, lr: float, max_grad_norm: float) -> float:
        """As `Master.step`; equal on every rank.

        Raises:
            RunFailed: the gradient is not finite; nothing has changed.
        """
        square = self._world.total(clipping.square_of(self.gradients.values()))
        norm = math.sqrt(square) if math.isfinite(square) else square
        if not math.isfinite(norm):
            self.zero_gradients()
            raise RunFailed(f"the gradient is not finite (norm {norm}); the weights are unchanged")
        clipping.clip(self.gradients.values(), norm=norm, most=max_grad_norm)
        self._optimizer.step(lr=lr)
        self.refresh()
        self.zero_gradients()
        return norm

    @torch.no_grad()
    def refresh(self) -> None:
        """Gather the parameters, one at a time, into rank 0's compute copy, and take their digest."""
        parts = {}
        for name, parameter in self.parameters.items():
            whole = parameter.full_tensor()
            if self._world.leads:
                self.compute[name].copy_(whole)
                parts[name] = tensor_digest(whole)
        self._digest = joined_digest(parts)

    def digest(self) -> str:
        """Of the whole float32 parameters; on rank 0 only."""
        return self._digest

    def whole(self, folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Parameters and moments, whole, on rank 0, by a distributed checkpoint beside `folder`; none on the others."""
        from torch.distributed.checkpoint.state_dict_loader import load
        from torch.distributed.checkpoint.state_dict_saver import save

        # note: named as `weights.write` names what it sweeps; the process id is rank 0's.
        aside = folder.with_name(f".{folder.name}.{int(self._world.total(os.getpid() * self._world.leads))}.shards")
        state = self._state()
        try:
            aside.parent.mkdir(parents=True, exist_ok=True)
            save(state, checkpoint_id=aside)
            if not self._world.leads:
                return {}, {}
            read: dict[str, Any] = {key: torch.empty(tensor.shape) for key, tensor in state.items()}
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="torch.distributed is disabled")
                load(read, checkpoint_id=aside, no_dist=True)
        finally:
            if self._world.leads:
                shutil.rmtree(aside, ignore_errors=True)
        kinds: dict[str, dict[str, Tensor]] = {"tensors": {}, "moments": {}}
        for key, tensor in read.items():
            kind, _, name = key.partition("/")
            kinds[kind][name] = tensor
        return kinds["tensors"], kinds["moments"]

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor], moments: Mapping[str, Tensor]) -> None:
        """Take over this rank's rows of whole parameters and moments.

        Raises:
            KeyError: a parameter or a moment is missing.
            RuntimeError: a shape differs.
        """
        for name, rows in self._rows.items():
            rows.copy_(self._world.shard(tensors[name]))
        self.reset_optimizer()
        if moments:
            self._optimizer.restore({key: self._world.shard(tensor) for key, tensor in moments.items()})
        self.zero_gradients()
        self.refresh()

    def pinned(self, tensors: Mapping[str, Tensor] | None) -> Reference:
        """The whole parameters `tensors` (None: those of now) as a reference, its rows on each rank."""
        whole = None if tensors is None else tensors_digest({name: tensors[name] for name in self.parameters})
        rows = {
            name: own.detach().clone() if tensors is None else self._world.shard(tensors[name]).clone()
            for name, own in self._rows.items()
        }
        if self._frozen is None:
            return Reference(digest=whole or self._digest, model=self._switched_to(rows))
        frozen = self._frozen.model
        with torch.no_grad():
            for name, parameter in frozen.named_parameters():
                _local(parameter).copy_(rows[name])
        return Reference(digest=whole or self._digest, model=lambda: _as_it_is(self._frozen))

    def reference_score(self, model: nn.Module, row: Row, *, temperature: float) -> Scores:
        """By the `model` of a reference."""
        return _scores(model, row, temperature, recompute=False)

    def _switched_to(self, rows: Mapping[str, Tensor]) -> Callable[[], AbstractContextManager[nn.Module]]:
        @contextmanager
        def switched() -> Iterator[nn.Module]:
            with torch.no_grad():
                own = {name: parameter.clone() for name, parameter in self._rows.items()}
                # note: adapters are in the layers, which are gathered anew for every pass over them.
                for name, parameter in self._rows.items():
                    parameter.copy_(rows[name])
                try:
                    yield self._scorer
                finally:
                    for name, parameter in self._rows.items():
                        parameter.copy_(own[name])

        return switched

    def _state(self) -> dict[str, Any]:
        """Everything that a save holds, as distributed tensors; numbers, equal on every rank, as they are."""
        from torch.distributed.tensor import DTensor

        state = {f"tensors/{name}": parameter.detach() for name, parameter in self.parameters.items()}
        for key, moment in self._optimizer.moments().items():
            like = self.parameters[key.partition(".")[2]]
            state[f"moments/{key}"] = (
                moment
                if moment.ndim == 0
                else DTensor.from_local(
                    moment, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
                )
            )
        return state


def _shard(model: nn.Module, *, world: World, dtype: DType) -> Scorer:
    """Cut `model` up in place: each layer is gathered by itself, the rest together."""
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
    from transformers.modeling_layers import GradientCheckpointingLayer

    scorer = Scorer(model)
    narrow = dtype != "float32"
    mixed = MixedPrecisionPolicy(
        param_dtype=TORCH_DTYPES[dtype] if narrow else None,
        reduce_dtype=torch.float32 if narrow else None,
        # note: sums along the layers stay float32 (`policy.precision`).
        cast_forward_inputs=False,
    )
    for layer in [found for found in model.modules() if isinstance(found, GradientCheckpointingLayer)]:
        fully_shard(layer, mesh=world.mesh, mp_policy=mixed)
    fully_shard(scorer, mesh=world.mesh, mp_policy=mixed)
    for module in scorer.modules():
        if isinstance(module, FSDPModule):
            # note: token weights are those of the whole batch, so gradients add up; they are no mean.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return scorer


def _scores(scorer: nn.Module, row: Row, temperature: float, recompute: bool) -> Scores:
    logprob_N, entropy_N = scorer(row, temperature, recompute)
    return Scores(logprob_N=logprob_N, entropy_N=entropy_N)


@contextmanager
def _as_it_is(model: nn.Module | None) -> Iterator[nn.Module]:
    assert model is not None, "made where a reference was announced"
    yield model


def _local(tensor: Any) -> Tensor:
    """This rank's rows, sharing memory with the distributed tensor."""
    with torch.no_grad():
        rows: Tensor = tensor.detach().to_local()
    return rows
