"""The frozen model that a divergence is measured from.

Of a model whose weights all learn it is a copy in the compute type. Under adapters it is the same model with
the reference's adapter in place of the trained one, so that there is no second model in memory; the adapter
that a run without a warm-up starts with is zero, so there it is the base itself.

Not here: the divergence (`grpo`), when a reference is pinned (the loop).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from torch import Tensor, nn

from selfplay.learner.weights import tensors_digest
from selfplay.types import record


@record
class Reference:
    """A pinned model."""

    digest: str
    """Of its float32 parameters; under adapters, of the adapter's."""
    model: Callable[[], AbstractContextManager[nn.Module]]
    """The model, for as long as the context lasts; used without gradients."""


def pinned(
    model: nn.Module, tensors: Mapping[str, Tensor], *, compute: Mapping[str, nn.Parameter], adapters: bool
) -> Reference:
    """`model` with the float32 parameters `tensors` in place of those of equal name in `compute`."""
    rounded = {name: tensors[name].to(own.device, own.dtype, copy=True) for name, own in compute.items()}
    digest = tensors_digest({name: tensors[name] for name in compute})
    if adapters:
        return Reference(digest=digest, model=lambda: _switched(model, compute, rounded))
    frozen = copy.deepcopy(model).requires_grad_(False)
    for name, parameter in frozen.named_parameters():
        parameter.data = rounded[name]
    return Reference(digest=digest, model=lambda: nullcontext(frozen))


@contextmanager
def _switched(
    model: nn.Module, compute: Mapping[str, nn.Parameter], rounded: Mapping[str, Tensor]
) -> Iterator[nn.Module]:
    own = {name: parameter.data for name, parameter in compute.items()}
    try:
        # note: other storage, not other values: a backward pass that is still owed finds its own again.
        for name, parameter in compute.items():
            parameter.data = rounded[name]
        yield model
    finally:
        for name, parameter in compute.items():
            parameter.data = own[name]
