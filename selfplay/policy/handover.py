"""Weights on their way from the learner to an engine in another process: a folder in shared memory, and digests.

Every hand-over writes the compute copy (what the learner itself computes with, so nothing is rounded twice) as
safetensors, and says the SHA-256 of each tensor's bytes; the engine says the same of what it was given. Where adapters
are trained they alone travel, in peft's layout; the base is written or named once.

An engine on the learner's own card needs no folder: it is offered the tensors where they are (`handles`), full weights
that is; adapters are small and travel as files.

Not here: the engine's side (`policy.vllm_child`), when to hand over (`policy.vllm`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from selfplay.errors import NotReady, RunFailed
from selfplay.policy import handles
from selfplay.types import record

SHARED = Path("/dev/shm")
_PREFIX = "selfplay-weights-"
_SHOWN = 3


@record
class Outgoing:
    """What the learner hands out. The tensors are the live ones: they are read on the torch thread only."""

    tensors: Callable[[], Mapping[str, Any]]
    """The trained tensors by the names that a save has."""
    config_json: str
    """Contents of the model's `config.json`."""
    adapter_json: str | None = None
    """Contents of `adapter_config.json` where the tensors are adapters'."""
    rank: int = 0
    """Of the adapters; 0: all weights travel."""
    base: Callable[[], Mapping[str, Any]] | None = None
    """The frozen tensors under adapters."""


class Handover:
    """A folder of our own, in shared memory where there is some; removed by `close`."""

    def __init__(self, outgoing: Outgoing) -> None:
        _sweep()
        self._outgoing = outgoing
        self._offered: Mapping[str, Any] = {}
        place = SHARED if SHARED.is_dir() and os.access(SHARED, os.W_OK) else Path(tempfile.gettempdir())
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=place))

    @property
    def rank(self) -> int:
        """Of the adapters; 0: all weights travel."""
        return self._outgoing.rank

    def model(self, number: int = 0) -> Path:
        """A folder that engine `number` can be started from: some weights of the learner's, or the base under adapters.

        It stays as it is while the engine starts, whatever `write` does meanwhile. On the torch thread.

        Raises:
            NotReady: there is no room.
        """
        _give_back()
        base, folder, mine = self._outgoing.base, self.folder / "model", self.folder / f"start-{number}"
        if not (folder / "model.safetensors").exists():
            self._write(folder, "model", base() if base else self._outgoing.tensors(), self._outgoing.config_json)
        shutil.rmtree(mine, ignore_errors=True)
        # note: links, not copies: a newer file takes the name away from the old one, and nobody changes a file.
        shutil.copytree(folder, mine, copy_function=os.link)
        return mine

    def started(self, number: int) -> None:
        """Engine `number` has read its folder, which would keep the memory of weights that are long replaced."""
        shutil.rmtree(self.folder / f"start-{number}", ignore_errors=True)

    def write(self) -> tuple[Path, dict[str, str]]:
        """The weights as they are, in a folder, and the digest of each tensor; on the torch thread.

        Raises:
            NotReady: there is no room.
        """
        adapter = self._outgoing.adapter_json
        tensors = self._outgoing.tensors()
        folder = self.folder / ("adapter" if adapter else "model")
        self._write(folder, "adapter_model" if adapter else "model", tensors, adapter or self._outgoing.config_json)
        return folder, {name: digest_of(tensor) for name, tensor in tensors.items()}

    @property
    def on_card(self) -> bool:
        """Can an engine on the same card be offered the weights where they are?"""
        return not self.rank and all(tensor.is_cuda for tensor in self._outgoing.tensors().values())

    def offer(self, *, copied: bool) -> tuple[str, dict[str, str]]:
        """Handles of the weights as they are, and the digest of each tensor; on the torch thread.

        Not `copied`, they must not change until the engine has them; `withdraw` then.
        """
        import torch

        own = {name: tensor.detach().contiguous() for name, tensor in self._outgoing.tensors().items()}
        self._offered = {name: tensor.clone() for name, tensor in own.items()} if copied else own
        _give_back()
        torch.cuda.synchronize()
        card = handles.uuid_of(next(iter(self._offered.values())))
        return handles.packed(self._offered, card=card), {name: digest_of(t) for name, t in self._offered.items()}

    def withdraw(self) -> None:
        """Every engine has what was offered."""
        self._offered = {}

    def close(self) -> None:
        """Remove the folder; idempotent."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write(self, folder: Path, stem: str, tensors: Mapping[str, Any], config: str) -> None:
        from safetensors.torch import save_file

        target = folder / f"{stem}.safetensors"
        needed = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        folder.mkdir(exist_ok=True)
        # note: a new file, never a changed one: an engine may have the old one mapped.
        target.unlink(missing_ok=True)
        settings = folder / ("adapter_config.json" if stem.startswith("adapter") else "config.json")
        settings.unlink(missing_ok=True)
        free = shutil.disk_usage(folder).free
        if free < needed + (16 << 20):
            raise NotReady(
                f"the weights do not fit into {self.folder.parent}: {needed / 1e6:.0f} MB, and {free / 1e6:.0f} MB are "
                "free",
                hint="give the machine more shared memory (a container: --shm-size), or set -s policy.backend=local",
            )
        settings.write_text(config)
        # note: under its name only once it is whole, for what is there is what an engine may be started from.
        part = target.with_suffix(".part")
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, part)
        os.replace(part, target)


def compare(sent: Mapping[str, str], given: Mapping[str, str], *, version: int) -> None:
    """What was sent is what arrived.

    Raises:
        RunFailed: a tensor is missing, is new, or differs; the first of them are named.
    """
    wrong = sorted(name for name in {*sent, *given} if sent.get(name) != given.get(name))
    if not wrong:
        return
    name = wrong[0]
    ours, theirs = (found.get(name, "none")[:12] for found in (sent, given))
    others = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    raise RunFailed(
        f"the sampler has other weights than the learner (version {version}): the digest of `{name}` is {theirs} there "
        f"and {ours} here; of {len(sent)} tensors differ: {', '.join(wrong[:_SHOWN])}{others}",
        hint="nothing was sampled with them; type the same command again, or sample in the learner's process: "
        "-s policy.backend=local",
    )


def digest_of(tensor: Any) -> str:
    """SHA-256 of its bytes."""
    import torch

    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(flat.numpy().data).hexdigest()


def _give_back() -> None:
    """What the learner has freed of a card, and torch keeps for it, is the engine's to take."""
    import torch

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()


def _sweep() -> None:
    """Remove what processes that are gone left behind."""
    for folder in SHARED.glob(f"{_PREFIX}*-*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(folder, ignore_errors=True)
