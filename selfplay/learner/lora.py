"""Low-rank adapters: small trained matrices beside a frozen model, by peft.

W x becomes W x + (alpha / r) B A x (Hu et al. 2021, arXiv 2106.09685, section 4.1), in every linear layer of
the blocks, neither in the embedding nor in the output head. The base exists in the compute type only: no
float32 copy, no gradient, no moments. A is random by a seed and B zero, so that the first adapter changes
nothing; dropout is 0. peft changes the model in place, so learner and sampler run on it as on any other:
on CPU the products with A and B give bitwise the same row whatever else is in the batch, for every rank
tried from 1 to 128 (a multiple of four rows, float32 and bfloat16), as those with W do.

alpha is 32 for every rank, and all layers are adapted, as in Schulman et al., LoRA Without Regret (Thinking
Machines Lab, September 2025): with the factor 1 / r the best learning rate hardly depends on the rank, and is
about ten times that of all weights.

Not here: files (`weights`), whether a save belongs to a model (`fit`), the optimizer (`master`). Not covered:
quantised bases, adapters in embeddings, convolutions or experts that are no linear layers, starting from an
adapter that was made elsewhere, and merging an adapter into its base (`peft`'s `merge_and_unload` does).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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


def attach(model: nn.Module, *, rank: int, seed: int, source: Path | None) -> Adapter:
    """Put adapters into `model`, a causal language model in float32.

    Args:
        model: Changed in place.
        rank: r.
        seed: Of A's random values.
        source: The folder of the base, named in the adapter's configuration.

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
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        peft.inject_adapter_in_model(config, model, adapter_name=NAME)
    return Adapter(
        parameters={_saved(name): parameter for name, parameter in model.named_parameters() if ".lora_" in name},
        traits={"base": digest, "lora_rank": str(rank)},
        config_json=_json(config),
    )


def _saved(name: str) -> str:
    """The name that peft gives a parameter in a save."""
    return f"base_model.model.{name.replace(f'.{NAME}.', '.')}"


def _json(config: LoraConfig) -> str:
    values: dict[str, Any] = config.to_dict() | {"inference_mode": True}  # type: ignore[no-untyped-call]
    return json.dumps(values, default=sorted, indent=2, sort_keys=True) + "\n"
