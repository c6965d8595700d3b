"""Tensors on a card, offered to another process on the same card: handles of their memory (CUDA IPC), without a copy.

What vLLM's transfer engine `ipc` takes (0.32): names, types, shapes, and for each tensor a handle by the card's UUID.
The memory stays the learner's: it must not change until the other side has said that it is done, and the tensors must
be kept until then.

Not here: the other side (`policy.vllm_child.Transfer`), when (`policy.handover`). Only a card makes such handles, so no
test here has made a real one; weights between two cards go through shared memory.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Reduce = Callable[["torch.Tensor"], tuple[Any, Any]]
"""A tensor -> what makes it again in another process: a function, which is not sent, and its arguments."""


def packed(tensors: Mapping[str, torch.Tensor], *, card: str, reduce: Reduce | None = None) -> str:
    """The update of contiguous `tensors` on the card with UUID `card`, in base64."""
    if reduce is None:
        from torch.multiprocessing.reductions import reduce_tensor

        reduce = reduce_tensor
    update = {
        "names": list(tensors),
        "dtype_names": [str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()],
        "shapes": [list(tensor.shape) for tensor in tensors.values()],
        "ipc_handles": [{card: reduce(tensor)[1]} for tensor in tensors.values()],
    }
    return base64.b64encode(pickle.dumps(update)).decode()


def uuid_of(tensor: torch.Tensor) -> str:
    """Of the card that it is on."""
    import torch

    return str(torch.cuda.get_device_properties(tensor.device).uuid)
