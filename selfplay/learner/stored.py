"""What a save on disk holds, read without torch: its digests and its counters.

The digests are `weights.tensors_digest`'s, taken from the bytes of the safetensors files in pieces, so that a
laptop can check any run and a save larger than the memory is no trouble.

Not here: writing and loading saves (`weights.py`, which needs torch).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from selfplay.errors import RunFailed
from selfplay.types import record

MODEL = "model.safetensors"
ADAPTER = "adapter_model.safetensors"
"""In its place where only adapters are trained, as peft names it."""
STATE = "learner.safetensors"

_DTYPES = {"F32": "torch.float32", "F64": "torch.float64", "BF16": "torch.bfloat16", "F16": "torch.float16"}
_DTYPES |= {"I64": "torch.int64", "I32": "torch.int32", "BOOL": "torch.bool", "U8": "torch.uint8"}
_PIECE_BYTES = 8 << 20
_MOST_HEADER_BYTES = 100 << 20


@record
class Digests:
    """Of one save."""

    weights: str
    state: str
    policy_version: int
    """As its own counters say."""
    num_bytes: int
    """Of both files."""


def digests(folder: Path) -> Digests:
    """The digests of the save in `folder`; reads all of it.

    Raises:
        RunFailed: a file is missing, cannot be read, or is torn.
    """
    try:
        moments, counters = _lines(folder / STATE)
        model = model_file(folder)
        tensors, _ = _lines(folder / model)
        version = int(counters["policy_version"])
        num_bytes = sum((folder / name).stat().st_size for name in (model, STATE))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunFailed(f"the save in {folder} cannot be read: {error}", hint="nothing else depends on it") from error
    # note: a model's buffers lie beside its parameters and are not digested; the moments name the parameters. Adapters
    # have no buffers, and one that has not learnt yet has no moments.
    trained = {name.split(".", 1)[1] for name in moments} if model == MODEL else set()
    own = [line for name, line in sorted(tensors.items()) if not trained or name in trained]
    state = [line for _, line in sorted(moments.items())] + [f"{k}={v}" for k, v in sorted(counters.items())]
    return Digests(weights=_digest(own), state=_digest(state), policy_version=version, num_bytes=num_bytes)


def model_file(folder: Path) -> str:
    """Name of the file with the parameters of the save in `folder`."""
    return ADAPTER if (folder / ADAPTER).is_file() else MODEL


def policy_version(folder: Path) -> int | None:
    """The version of the weights in `folder`, by its own counters; None where they cannot be read."""
    try:
        with (folder / STATE).open("rb") as file:
            return int(_header(file, folder / STATE)[0].get("__metadata__", {})["policy_version"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _lines(path: Path) -> tuple[dict[str, str], Mapping[str, str]]:
    """Name -> the digest's line of each tensor, and the counters."""
    lines = {}
    with path.open("rb") as file:
        header, start = _header(file, path)
        counters = header.pop("__metadata__", {})
        for name, entry in header.items():
            first, last = entry["data_offsets"]
            file.seek(start + first)
            total = hashlib.sha256()
            left = last - first
            while left:
                piece = file.read(min(left, _PIECE_BYTES))
                if not piece:
                    raise ValueError(f"{path.name} ends inside {name}")
                total.update(piece)
                left -= len(piece)
            lines[name] = f"{name} {_DTYPES[entry['dtype']]} {tuple(entry['shape'])} {total.hexdigest()}"
    return lines, counters


def _header(file: Any, path: Path) -> tuple[dict[str, Any], int]:
    """The safetensors header, and where the tensors' bytes start."""
    size = int.from_bytes(file.read(8), "little")
    if not 2 <= size <= _MOST_HEADER_BYTES:
        raise ValueError(f"{path.name} is no safetensors file")
    header = json.loads(file.read(size))
    if not isinstance(header, dict):
        raise ValueError(f"{path.name} is no safetensors file")
    return header, 8 + size
