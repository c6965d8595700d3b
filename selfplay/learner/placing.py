"""Where the learner computes: on the first card that torch can use, else on the processor.

No setting names it; `CUDA_VISIBLE_DEVICES` does, as for everything that uses cards: empty, there is none. The sampler
`local` computes where the learner does. Several ranks are on the processor. Saves, digests and what the ledger records
are the same float32 tensors and numbers, wherever they were computed.

On a card torch's deterministic kernels are asked for, so that the same update gives the same bits on the same kind of
card and software, which the fingerprint names; where an operation has none torch warns. Other devices give other bits:
a run goes on where it was recorded, or from a save.

Not here: moving a model (`trainer`), what fits (`memory`, `sizing`). Not covered: more than one card for one learner,
cards that are not NVIDIA's. No test here has a card: `tests.gpu` is what runs there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from selfplay.errors import RunFailed
from selfplay.policy.cards import USED

CPU = "cpu"
CARD = "cuda:0"
MB = 1_000_000


def device_for(*, ranks: int) -> str:
    """Name of the device of a learner of so many processes."""
    return CARD if ranks == 1 and torch.cuda.is_available() else CPU


def prepare(device: torch.device) -> None:
    """Before the first tensor is on `device`: kernels whose results do not change from call to call."""
    if device.type == "cuda":
        # note: read by the library when it is first used.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
        # note: else fresh memory, of which every element is written later, is filled first.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


@contextmanager
def enough() -> Iterator[None]:
    """Inside, a card without room is said in one sentence.

    Raises:
        RunFailed: there was not enough memory on it.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        why = " ".join(str(error).split())[:200]
        raise RunFailed(
            f"the learner's card has no room left: {why}",
            hint="end what else uses the card (nvidia-smi shows it), or take less: -s learner.token_budget=1024, "
            "-s learner.lora_rank=8; or use the processor: CUDA_VISIBLE_DEVICES= selfplay run",
        ) from error


def described(device: str) -> str:
    """What of a device decides bits, for the fingerprint."""
    if torch.device(device).type != "cuda":
        return device
    major, minor = torch.cuda.get_device_capability(device)
    return f"{torch.cuda.get_device_name(device)} (capability {major}.{minor}, CUDA {torch.version.cuda})"


def room_mb(device: str) -> float | None:
    """Memory of a card that nobody has taken, in MB, as much as is planned with; None for the processor."""
    if torch.device(device).type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return USED * free / MB
