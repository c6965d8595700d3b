"""Weights through vLLM's transfer engine `ipc`, in the interpreter that has vLLM: FOLDER vllm_child.py handles.py.

Only a card has handles of memory, so two functions stand in for it: the one that makes a tensor of a handle, and the
one that names the card. All else is vLLM's: its engine, its workers, the four calls, its loading. Prints one JSON line:
what the engine replies with at first, after each of two transfers of the weights in `FOLDER/new`, and after the same
weights were read from that folder, with the digests of all three. Of selfplay it has those two files alone.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

UUID = "GPU-1"


def module_of(file: Path) -> Any:
    """A module by its file."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = made
    spec.loader.exec_module(made)
    return made


def replied(engine: Any) -> list[Any]:
    """Ids and log-probabilities of one reply."""
    line = {"id": 1, "prompt": [5, 6, 7], "max_tokens": 6, "temperature": 1.0, "seed": 1, "ends": [], "stream": False}
    engine.add(line)
    found: list[Any] = []
    while not engine.idle:
        found = [[one["ids"], one["logprobs"]] for one in engine.step()] or found
    return found[-1]  # type: ignore[no-any-return]


def main(folder: Path, child: Path, offer: Path) -> None:
    """Start, transfer twice, read once."""
    module = module_of(child)
    sizes = {"dtype": "float32", "context": 256, "rows": 8, "kv_gb": 0.25, "lora_rank": 0}
    engine = module.Engine({"model": str(folder), **sizes, "sleep": False, "shares": True})
    import torch
    from safetensors.torch import load_file
    from vllm.distributed.weight_transfer import ipc_engine

    tensors = load_file(folder / "new" / "model.safetensors")
    cards: Any = torch.cuda
    ipc: Any = ipc_engine
    cards.get_device_properties = lambda index: types.SimpleNamespace(uuid=UUID)
    ipc.rebuild_cuda_tensor = lambda *words: tensors[words[0]]
    engine._transfer = module.Transfer(engine._call, rebuild=lambda handle: tensors[handle[UUID][0]])
    names = {id(tensor): name for name, tensor in tensors.items()}
    handles = module_of(offer).packed(tensors, card=UUID, reduce=lambda one: (None, (names[id(one)], *[0] * 6)))
    replies, digests = [replied(engine)], []
    for version in (1, 2):
        digests.append(engine.load({"version": version, "handles": handles}))
        replies.append(replied(engine))
    digests.append(engine.load({"version": 3, "path": str(folder / "new"), "adapter": False}))
    replies.append(replied(engine))
    print(json.dumps({"replies": replies, "digests": digests}))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
