"""A server of Tinker's API on this machine: the operations that its documents describe, by a toy model that learns.

Trains adapters on the toy model in float32, with torch's AdamW; samples token by token, from copies of the adapters;
keeps states by address; carries out a request that comes twice once. Answers `try_again` to the first question after
every result. What a test puts into `faults` happens to the next requests of that operation. Needs the SDK, for its
messages.

Not here: the order of requests that overtake each other, billing, checkpoints' archives.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from selfplay.games.echo import CHARACTERS
from selfplay.learner import lora
from selfplay.policy.toy import EOS, toy_model
from tests.http_here import Handler, listening

KEY = "tml-right"
BASE = "toy"


class Adapters:
    """A model that trains, its gradient and its moments."""

    def __init__(self, *, base: str, rank: int, seed: int) -> None:
        self.base, self.rank = base, rank
        self.model, _ = toy_model(0, alphabet=CHARACTERS)
        self.parameters = dict(lora.attach(self.model, rank=rank, seed=seed, source=None).parameters)
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(".lora_" in name)
        self.optimizer = torch.optim.AdamW(self.parameters.values())

    def logprobs(self, tokens: list[int], targets: list[int]) -> Tensor:
        logits = self.model(torch.tensor([tokens])).logits[0].float()
        return logits.log_softmax(-1).gather(-1, torch.tensor(targets)[:, None])[:, 0]

    def step(self, given: dict[str, float]) -> float:
        norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), given["grad_clip_norm"] or float("inf"))
        changed = {"lr": given["learning_rate"], "betas": (given["beta1"], given["beta2"])}
        self.optimizer.param_groups[0].update(changed, eps=given["eps"], weight_decay=given["weight_decay"])
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(norm)

    def state(self) -> dict[str, Any]:
        tensors = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}
        moments = copy.deepcopy(self.optimizer.state_dict())
        return {"base": self.base, "rank": self.rank, "tensors": tensors, "moments": moments}

    @classmethod
    def of(cls, state: dict[str, Any], *, moments: bool) -> Adapters:
        made = cls(base=state["base"], rank=state["rank"], seed=0)
        made.take(state["tensors"])
        if moments:
            made.optimizer.load_state_dict(copy.deepcopy(state["moments"]))
        return made

    @torch.no_grad()
    def take(self, tensors: dict[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            self.parameters[name].copy_(tensor)


@dataclass
class Server:
    """What it has, what it was asked, and what goes wrong next."""

    url: str = ""
    faults: dict[str, list[int | str]] = field(default_factory=dict)
    """Operation -> what happens to its next requests: a status; `lost` (carried out, not answered); `never` (no result
    comes); `failed` (the result is a failure)."""
    done: Counter[str] = field(default_factory=Counter)
    """Operation -> how often it was carried out."""
    models: dict[str, Adapters] = field(default_factory=dict)
    states: dict[str, dict[str, Any]] = field(default_factory=dict)
    sessions: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    """Request -> its result: JSON, or the bytes of a message; None: never."""
    known: dict[tuple[str, int], str] = field(default_factory=dict)
    """Model and number -> the request that was made of them."""
    asked: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    _sampler: Adapters | None = None
    _sessions: int = 0

    def answer(self, operation: str, body: Any) -> dict[str, Any] | bytes:
        """The answer of one request, in JSON or as a message; KeyError where there is no such thing."""
        plain = getattr(self, f"_{operation}", None)
        with self.lock:
            if plain is not None:
                found: dict[str, Any] | bytes = plain(body)
                return found
            raise KeyError(operation)

    # -- what is answered at once

    def _healthz(self, body: Any) -> dict[str, Any]:
        return {"status": "ok"}

    def _get_server_capabilities(self, body: Any) -> dict[str, Any]:
        return {"supported_models": [{"model_name": BASE, "max_context_length": 256, "trainable": True}]}

    def _config(self, body: Any) -> dict[str, Any]:
        return {}

    _dynamic_config = _session_heartbeat = _finish = _cancel_future = _config

    def _create_session(self, body: Any) -> dict[str, Any]:
        self._sessions += 1
        return {"session_id": f"session-{self._sessions}"}

    def _get_info(self, body: Any) -> dict[str, Any]:
        made = self.models[body["model_id"]]
        return {"model_id": body["model_id"], "model_data": {"model_name": made.base}, "lora_rank": made.rank}

    def _retrieve_future(self, body: Any) -> dict[str, Any] | bytes:
        name = body["request_id"]
        found = self.results[name]
        if found is None or name not in self.asked:
            self.asked.add(name)
            return {"type": "try_again", "request_id": name, "queue_state": "active"}
        return found

    # -- what has a result later

    def _later(self, operation: str, result: Any, *, at: tuple[str, int] | None = None, **more: Any) -> dict[str, Any]:
        name = f"request-{len(self.results)}"
        fault = self._fault(operation, "never", "failed")
        failed = {"error": "out of memory", "category": "server"}
        self.results[name] = None if fault == "never" else failed if fault == "failed" else result
        if at is not None:
            self.known[at] = name
        return {"request_id": name, **more}

    def _fault(self, operation: str, *kinds: str) -> str | None:
        waiting = self.faults.get(operation) or [None]
        return str(self.faults[operation].pop(0)) if waiting[0] in kinds else None

    def _once(self, operation: str, body: Any) -> tuple[Adapters, tuple[str, int]] | dict[str, Any]:
        """The model and the request's number; the answer it had, where it came before."""
        at = (body["model_id"], body["seq_id"])
        if at in self.known:
            return {"request_id": self.known[at]}
        self.done[operation] += 1
        return self.models[at[0]], at

    def _create_model(self, body: Any) -> dict[str, Any]:
        name = f"{body['session_id']}:train:{body['model_seq_id']}"
        given = body["lora_config"]
        self.models[name] = Adapters(base=body["base_model"], rank=given["rank"], seed=given["seed"])
        return self._later("create_model", {"type": "create_model", "model_id": name})

    def _load_weights(self, body: Any) -> dict[str, Any]:
        name = f"{body['session_id']}:train:{body['model_seq_id']}"
        if body["path"] not in self.states:
            return self._later("load_weights", {"error": f"no weights at {body['path']}", "category": "user"})
        self.models[name] = Adapters.of(self.states[body["path"]], moments=body["optimizer"])
        return self._later("load_weights", {"type": "load_weights", "path": body["path"]})

    def _forward_backward(self, body: bytes) -> dict[str, Any]:
        from tinker.proto import tinker_public_pb2 as messages

        asked = messages.ForwardBackwardRequest.FromString(body)
        assert asked.loss_fn == "cross_entropy"
        operation = "forward" if asked.forward_only else "forward_backward"
        found = self._once(operation, {"model_id": asked.model_id, "seq_id": asked.seq_id})
        if isinstance(found, dict):
            return found
        made, at = found
        each, total = [], 0.0
        for datum in asked.data:
            tokens = np.frombuffer(datum.model_input[0].encoded_text.tokens, dtype=np.int32).tolist()
            targets = np.frombuffer(datum.loss_fn_inputs["target_tokens"].dense, dtype=np.int64).tolist()
            weights = np.frombuffer(datum.loss_fn_inputs["weights"].dense, dtype=np.float32).copy()
            logprobs = made.logprobs(tokens, targets)
            loss = -(logprobs * torch.from_numpy(weights)).sum()
            if not asked.forward_only:
                loss.backward()
            total += loss.item()
            each.append(logprobs.detach().numpy())
        answer = messages.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
        answer.metrics["loss:sum"] = total
        record = answer.loss_fn_outputs.add(num_datums=len(each))
        record.fields["logprobs"].data = np.concatenate(each).astype(np.float32).tobytes()
        record.fields["logprobs"].offsets = np.cumsum([0, *(4 * len(one) for one in each)], dtype=np.int64).tobytes()
        record.fields["logprobs"].dtype = messages.DTYPE_FLOAT32
        return self._later(operation, answer.SerializeToString(), at=at)

    def _optim_step(self, body: Any) -> dict[str, Any]:
        found = self._once("optim_step", body)
        if isinstance(found, dict):
            return found
        norm = found[0].step(body["adam_params"])
        return self._later("optim_step", {"metrics": {"grad_norm": norm}}, at=found[1])

    def _save_weights(self, body: Any) -> dict[str, Any]:
        found = self._once("save_weights", body)
        if isinstance(found, dict):
            return found
        path = f"tinker://{body['model_id']}/weights/{body['path']}"
        assert path not in self.states
        self.states[path] = found[0].state()
        return self._later("save_weights", {"type": "save_weights", "path": path}, at=found[1])

    def _save_weights_for_sampler(self, body: Any) -> dict[str, Any]:
        found = self._once("save_weights_for_sampler", body)
        if isinstance(found, dict):
            return found
        name = f"{body['model_id']}:sample:{body['sampling_session_seq_id']}"
        self.sessions[name] = found[0].state()["tensors"]
        self._sampler = self._sampler or Adapters(base=BASE, rank=found[0].rank, seed=0)
        result = {"type": "save_weights_for_sampler", "sampling_session_id": name}
        return self._later("save_weights_for_sampler", result, at=found[1])

    def _asample(self, body: Any) -> dict[str, Any]:
        from tinker.proto import tinker_public_pb2 as messages

        self.done["asample"] += 1
        assert self._sampler is not None
        self._sampler.take(self.sessions[body["sampling_session_id"]])
        prompt = [token for chunk in body["prompt"]["chunks"] for token in chunk["tokens"]]
        ids, logprobs, ended = _sampled(self._sampler, prompt, body["sampling_params"])
        answer = messages.SampleResponse()
        answer.sequences.add(
            stop_reason=messages.STOP_REASON_STOP if ended else messages.STOP_REASON_LENGTH,
            tokens=np.asarray(ids, dtype=np.int32).tobytes(),
            logprobs=np.asarray(logprobs, dtype=np.float32).tobytes(),
        )
        name = f"sequence-{len(self.results)}"
        return self._later("asample", answer.SerializeToString(), sample_sequence_ids=[name])


@torch.no_grad()
def _sampled(made: Adapters, prompt: list[int], given: dict[str, Any]) -> tuple[list[int], list[float], bool]:
    """Token by token, until the end of sequence; stop strings are overlooked, which a server may do by some tokens."""
    drawn = torch.Generator().manual_seed(given["seed"])
    ids: list[int] = []
    logprobs: list[float] = []
    while len(ids) < given["max_tokens"]:
        logits = made.model(torch.tensor([[*prompt, *ids]])).logits[0, -1].float()
        found = (logits / given["temperature"]).log_softmax(-1)
        ids.append(int(torch.multinomial(found.exp(), 1, generator=drawn)))
        logprobs.append(found[ids[-1]].item())
        if ids[-1] == EOS:
            return ids, logprobs, True
    return ids, logprobs, False


@contextmanager
def serving() -> Iterator[Server]:
    """A server on a thread of its own, until the block ends."""
    served = Server()

    class Asked(Handler):
        def do_GET(self) -> None:
            self._reply(None)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            packed = self.headers.get("Content-Type") == "application/x-protobuf"
            self._reply(body if packed else json.loads(body or b"{}"))

        def _reply(self, body: Any) -> None:
            operation = self.path.rstrip("/").rpartition("/")[2]
            fault = (served.faults.get(operation) or [None])[0]
            if self.headers.get("X-API-Key") != KEY:
                return self._send(401, {"detail": "unknown key"})
            if isinstance(fault, int):
                served.faults[operation].pop(0)
                return self._send(fault, {"detail": "as the test says"})
            try:
                answer = served.answer(operation, body)
            except KeyError as error:
                return self._send(404, {"detail": f"there is no {error}"})
            if isinstance(answer, dict) and answer.get("type") == "try_again":
                time.sleep(0.02)
            if fault == "lost":
                served.faults[operation].pop(0)
                return self.connection.close()
            return self._send(200, answer)

        def _send(self, status: int, answer: dict[str, Any] | bytes) -> None:
            if isinstance(answer, bytes):
                return self.answer(status, answer, kind="application/x-protobuf")
            return self.answer(status, json.dumps(answer).encode())

    with listening(Asked) as address:
        served.url = address
        yield served
