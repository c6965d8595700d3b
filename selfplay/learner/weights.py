"""Weights on disk: digests, and folders that are written whole or not at all.

A saved folder is in the Hugging Face layout (`config.json`, `model.safetensors` in float32, the
tokenizer's files), so that `AutoModelForCausalLM.from_pretrained` opens it, plus `learner.safetensors`:
optimizer moments, with the counters in its header. Where adapters are trained it is in peft's layout
(`adapter_config.json`, `adapter_model.safetensors`), which `peft.PeftModel.from_pretrained` opens on the base,
with the same third file. It is written beside its place, synchronised to disk (files, then folder) and renamed.

Not here: when to save, which saves to keep (the loop), what a save is worth (its ledger row).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from selfplay.errors import NotFound, NotReady, RunFailed, UserError
from selfplay.learner.stored import ADAPTER, MODEL, STATE, model_file
from selfplay.types import record

CONFIG = "config.json"
ADAPTER_CONFIG = "adapter_config.json"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "generation_config.json",
)
"""Copied from the folder that the model came from, where they exist."""

HEADROOM_BYTES = 16 << 20
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@record
class Stored:
    """What a saved folder holds."""

    tensors: Mapping[str, Tensor]
    """Float32 parameters by name."""
    moments: Mapping[str, Tensor]
    """Optimizer moments by name."""
    counters: Mapping[str, str]
    adapter: bool = False
    """Are the parameters those of adapters alone?"""


def open_model(folder: Path) -> nn.Module:
    """The causal language model in `folder` (Hugging Face layout), in float32; nothing is downloaded.

    Raises:
        NotFound: there is no model in `folder`.
        UserError: its weights lack a parameter that its configuration asks for, or have it in another shape.
    """
    if not (folder / CONFIG).is_file():
        raise NotFound(f"no model in {folder}", hint="a folder with config.json and model.safetensors")
    log: Any = transformers.utils.logging
    opened: Any = transformers.AutoModelForCausalLM
    bars, level = log.is_progress_bar_enabled(), log.get_verbosity()
    log.disable_progress_bar()
    # note: what does not fit is said below, by an error; the library would fill it with random numbers and go on.
    log.set_verbosity_error()
    try:
        model, found = opened.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True, output_loading_info=True, ignore_mismatched_sizes=True
        )
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()
    for name, there, asked in sorted(found["mismatched_keys"]):
        raise UserError(
            f"the weights in {folder} do not fit its {CONFIG}: `{name}` is {tuple(there)} instead of {tuple(asked)}",
            hint="the two files must be of one model",
        )
    for name in sorted(found["missing_keys"]):
        raise UserError(f"the weights in {folder} lack `{name}`", hint=f"the weights that {CONFIG} describes")
    return model  # type: ignore[no-any-return]


def config_json(model: nn.Module) -> str:
    """Contents of `config.json` of a save of all weights: float32, whatever they were converted from."""
    described: Any = model.config
    config = json.loads(described.to_json_string())
    config.pop("quantization_config", None)
    return json.dumps(config | {"dtype": "float32"}, indent=2, sort_keys=True) + "\n"


def buffers(model: nn.Module) -> dict[str, Tensor]:
    """The buffers that belong into a save of all weights."""
    kept = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name in kept}


def tensors_digest(tensors: Mapping[str, Tensor], *, extra: Mapping[str, str] | None = None) -> str:
    """SHA-256 over name, type, shape and bytes of every tensor in the order of their names, and over `extra`.

    Two threads hash tensors independently (hashlib releases the interpreter's lock); 540 MB take 0.2 s.
    """
    names = sorted(tensors)
    with ThreadPoolExecutor(max_workers=2) as pool:
        parts = list(pool.map(lambda name: tensor_digest(tensors[name]), names))
    return joined_digest(dict(zip(names, parts, strict=True)), extra=extra)


def joined_digest(parts: Mapping[str, str], *, extra: Mapping[str, str] | None = None) -> str:
    """`tensors_digest` of tensors whose `tensor_digest` is known, a name each."""
    lines = [f"{name} {parts[name]}" for name in sorted(parts)]
    lines += [f"{key}={value}" for key, value in sorted((extra or {}).items())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def tensor_digest(tensor: Tensor) -> str:
    """Type, shape and SHA-256 of the bytes of one tensor."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    head = f"{tensor.dtype} {tuple(tensor.shape)}"
    return f"{head} {hashlib.sha256(flat.view(torch.uint8).numpy().data).hexdigest()}"


def write(folder: Path, stored: Stored, *, config_json: str, source: Path | None) -> int:
    """Write `stored` to `folder`, replacing what stands there, and return how many bytes it has.

    Args:
        folder: Where it goes; its parents are made.
        stored: Parameters, moments, counters.
        config_json: Contents of `config.json`, or of `adapter_config.json`.
        source: Folder of the original model, whose tokenizer's files are copied; None where there is none.

    Raises:
        NotReady: the disk is full; nothing was changed.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    needed = sum(t.numel() * t.element_size() for t in (*stored.tensors.values(), *stored.moments.values()))
    free = shutil.disk_usage(folder.parent).free
    if free < needed + HEADROOM_BYTES:
        raise _no_room(folder, f"{needed / 1e6:.0f} MB are needed and {free / 1e6:.0f} MB are free")
    _sweep(folder)
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir()
        _write_files(aside, stored, config_json=config_json, source=source)
        num_bytes = sum(file.stat().st_size for file in aside.iterdir())
        _replace(folder, aside)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        if _is_full(error):
            raise _no_room(folder, "the disk is full") from error
        raise
    return num_bytes


def _write_files(folder: Path, stored: Stored, *, config_json: str, source: Path | None) -> None:
    (folder / (ADAPTER_CONFIG if stored.adapter else CONFIG)).write_text(config_json, encoding="utf-8")
    for name in TOKENIZER_FILES:
        if source is not None and (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    save_file(dict(stored.tensors), folder / (ADAPTER if stored.adapter else MODEL), metadata={"format": "pt"})
    save_file(dict(stored.moments), folder / STATE, metadata=dict(stored.counters))
    for file in folder.iterdir():
        file.chmod(0o644)
        _synchronise(file)
    _synchronise(folder)


def _replace(folder: Path, aside: Path) -> None:
    # A folder that already stands here is a torn or repeated save of the same step: no row needs its content.
    old = aside.with_suffix(".old")
    if folder.exists():
        folder.rename(old)
    aside.rename(folder)
    _synchronise(folder.parent)
    _synchronise(folder.parent.parent)
    shutil.rmtree(old, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """Remove what processes that are gone left half written beside `folder`."""
    for aside in folder.parent.glob(f".{folder.name}.*.*"):
        owner = aside.name.split(".")[-2]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(aside, ignore_errors=True)


def _synchronise(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_full(error: OSError | SafetensorError) -> bool:
    if isinstance(error, OSError):
        return error.errno in NO_ROOM
    # safetensors writes in Rust and gives the system's error as text.
    return any(f"code: {code}," in str(error) or f"os error {code}" in str(error) for code in NO_ROOM)


def _no_room(folder: Path, why: str) -> NotReady:
    return NotReady(f"cannot save the weights to {folder}: {why}", hint="free some space: selfplay clean")


def read(folder: Path) -> Stored:
    """What `write` wrote.

    Raises:
        RunFailed: a file is missing or torn.
    """
    try:
        model = model_file(folder)
        tensors = load_file(folder / model)
        moments = load_file(folder / STATE)
        with safe_open(folder / STATE, framework="pt") as opened:
            counters = dict(opened.metadata() or {})
    except (OSError, SafetensorError, json.JSONDecodeError) as error:
        raise RunFailed(f"the save in {folder} cannot be read: {error}") from error
    return Stored(tensors=tensors, moments=moments, counters=counters, adapter=model == ADAPTER)
