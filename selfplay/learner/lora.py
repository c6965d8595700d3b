"""Low-rank adapters: small trained matrices beside a frozen model, by peft.

W x becomes W x + (alpha / r) B A x (Hu et al. 2021, arXiv 2106.09685, section 4.1), in every linear layer of
the blocks, neither in the embedding nor in the output head. The base exists in the compute type only: no
float32 copy, no gradient, no moments. A is random by a seed and B zero, so that the first adapter changes
nothing; dropout is 0. peft changes the model in place, so learner and sampler run on it as on any other:
A and B are layers like W, and what the sampler measures of its products (`policy.rows`) it measures of theirs.

alpha is 32 for every rank, and all layers are adapted, as in Schulman et al., LoRA Without Regret (Thinking
Machines Lab, September 2025): with the factor 1 / r the best learning rate hardly depends on the rank, and is
about ten times that of all weights.

One adapter learns for all roles, or each role has one of its own over the same base (`roles`): then every pass through
the model is one role's (`speak_as`), and what one role learns leaves the others' adapters as they are, bit by bit.

Not here: files (`weights`), which role samples when (`policy.by_role`), whether a save belongs to a model (`fit`), the
optimizer (`master`). Not covered: quantised bases, adapters in embeddings, convolutions or experts that are no linear
layers, starting from an adapter that was made elsewhere, and merging an adapter into its base (`peft`'s
`merge_and_unload` does).
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from selfplay.errors import UserError
from selfplay.learner import weights
from selfplay.types import record

if TYPE_CHECKING:
    from peft import LoraConfig

ALPHA = 32
NAME = "default"
"""Of the adapter inside the model; peft leaves it out of the names in a save."""


@record
class Adapter:
    """Adapters in a model."""

    parameters: Mapping[str, nn.Parameter]
    """Of the model, by the names that peft saves them under."""
    traits: Mapping[str, str]
    """What a save must agree with: `lora_rank`, and `base`, the digest of the base in float32."""
    config_json: str
    """Contents of `adapter_config.json`."""
    groups: tuple[frozenset[str], ...] = ()
    """Names of the parameters of each role, where each has its own."""


def attach(model: nn.Module, *, rank: int, seed: int, source: Path | None, roles: Sequence[str] = ()) -> Adapter:
    """Put adapters into `model`, a causal language model in float32.

    Args:
        model: Changed in place.
        rank: r.
        seed: Of A's random values.
        source: The folder of the base, named in the adapter's configuration.
        roles: Names of those that get one each; who is not among them plays with the first one's. None: one for all.

    Raises:
        UserError: a layer is smaller than `rank`.
    """
    # note: loaded here, for a run without adapters need not wait for it.
    import peft

    base: Any = model.base_model
    layers = {name: layer for name, layer in base.named_modules() if isinstance(layer, nn.Linear)}
    for name, layer in layers.items():
        most = min(layer.in_features, layer.out_features)
        if rank > most:
            raise UserError(
                f"learner.lora_rank is {rank}, and layer `{name}` is a matrix of {layer.out_features} x "
                f"{layer.in_features}, whose rank is at most {most}",
                hint=f"-s learner.lora_rank={min(min(x.in_features, x.out_features) for x in layers.values())}",
            )
    digest = weights.tensors_digest({name: parameter.data for name, parameter in model.named_parameters()})
    config = peft.LoraConfig(
        r=rank,
        lora_alpha=ALPHA,
        lora_dropout=0.0,
        target_modules=sorted({name.rpartition(".")[2] for name in layers}),
        task_type="CAUSAL_LM",
        base_model_name_or_path=str(source) if source else None,
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # note: the second adapter of a model is what is wanted here.
        warnings.filterwarnings("ignore", "Already found a `peft_config`", UserWarning)
        torch.manual_seed(seed)
        for name in roles or (NAME,):
            peft.inject_adapter_in_model(config, model, adapter_name=name)
    parameters = {_saved(name): parameter for name, parameter in model.named_parameters() if ".lora_" in name}
    return Adapter(
        parameters=parameters,
        traits={"base": digest, "lora_rank": str(rank), **({"lora_roles": ",".join(roles)} if roles else {})},
        config_json=_json(config),
        groups=tuple(frozenset(name for name in parameters if _of(name, role)) for role in roles),
    )


def speak_as(model: nn.Module, role: str) -> None:
    """From now on `model` computes, and learns, with the adapter of `role`; nothing where there is one for all."""
    for layer in model.modules():
        own: Any = layer.__dict__.get("_modules", {}).get("lora_A")
        if own is None or len(own) < 2:
            continue
        name = role if role in own else next(iter(own))
        switched: Any = layer
        if switched.active_adapters != [name]:
            switched.set_adapter(name)


def of_role(save: Path, role: str, to: Path) -> None:
    """Write the adapter of `role` in the save `save` into the new folder `to`, in peft's own layout.

    Raises:
        UserError: the save has none of that name.
    """
    stored = weights.read(save)
    tensors = {
        name.replace(f".{role}.weight", ".weight"): tensor for name, tensor in stored.tensors.items() if _of(name, role)
    }
    if not tensors:
        known = stored.counters.get("lora_roles", "") or "none"
        raise UserError(f"the save in {save} has no adapter of role `{role}`", hint=f"it has those of: {known}")
    counters = {name: value for name, value in stored.counters.items() if name != "lora_roles"}
    alone = weights.Stored(tensors=tensors, moments={}, counters=counters, adapter=True)
    described = (save / weights.ADAPTER_CONFIG).read_text(encoding="utf-8")
    weights.write(to, alone, config_json=described, source=save)


def _of(name: str, role: str) -> bool:
    return re.search(rf"\.lora_[AB]\.{re.escape(role)}\.weight$", name) is not None


def _saved(name: str) -> str:
    """The name of a parameter in a save: peft's, with the role's name where each has its own."""
    return f"base_model.model.{name.replace(f'.{NAME}.', '.')}"


def _json(config: LoraConfig) -> str:
    values: dict[str, Any] = config.to_dict() | {"inference_mode": True}  # type: ignore[no-untyped-call]
    return json.dumps(values, default=sorted, indent=2, sort_keys=True) + "\n"
