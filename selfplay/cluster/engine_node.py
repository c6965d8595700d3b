"""What runs in an engine's actor, on a node: `EngineNode` has one sampler, of the kind that one machine has.

A sampler is `local` on a copy of the learner's model, or vLLM as a child process of the actor. It is called by the
driver alone, knows nothing of Ray, and ends with the driver. It samples from the weights that it was given last, and
each reply says which those were.

Not here: who calls (`engines`, `policies`), what is called (`policy.local`, `policy.vllm`, `learner.copies`).
"""

from __future__ import annotations

import asyncio
import os
import socket
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import selfplay
from selfplay.errors import RunFailed, SelfplayError
from selfplay.policy import Completion, Policy, Request, Tokenizer
from selfplay.types import record

if TYPE_CHECKING:
    from selfplay.learner.copies import Form
    from selfplay.policy.parcels import Entry
    from selfplay.policy.vllm_setup import Options

Tensors = Mapping[str, Any]
Told = Callable[[str], None]


@record
class Handed:
    """What vLLM on a node is told of the model; see `policy.handover.Outgoing`."""

    dtype: str
    config_json: str
    adapter_json: str | None
    rank: int
    options: Options


@record
class Given:
    """What an engine's actor needs to begin; weights come later."""

    tokenizer: Tokenizer
    context: int
    """Prompt and reply, in tokens."""
    vocabulary: int
    """Ids below this are tokens."""
    max_rows: int
    """Most replies that it decodes together."""
    threads: int
    """Of torch, or of vLLM on a processor; 0: the node's cores."""
    model: Form | Handed
    """The learner's: of a copy for `local`, or for vLLM."""

    @property
    def start_seconds(self) -> float:
        """Longest that the sampler may take to begin, after it was given weights."""
        return self.model.options.start_seconds if isinstance(self.model, Handed) else 0.0


class Sampler(Protocol):
    """A sampler on this node."""

    @property
    def words(self) -> str:
        """What it is."""
        ...

    @property
    def policy(self) -> Policy: ...

    async def keep(self, fixed: Tensors) -> dict[str, str]:
        """Take what no update changes; digests of what it has."""
        ...

    async def adopt(self, changed: Tensors, *, version: int) -> dict[str, str]:
        """Sample from these weights from now on; digests of what it has."""
        ...


class EngineNode:
    """One sampler and its weights."""

    def __init__(self) -> None:
        # note: read once, when torch loads its OpenMP (`parts.learner`).
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        self._made: Sampler | None = None
        self._arriving: Any = None
        self._told: list[str] = []

    async def answer(self, method: str, *words: Any, **named: Any) -> tuple[bool, Any]:
        """Call one of the methods below: True and its value, or False and its error."""
        try:
            return True, await getattr(self, method)(*words, **named)
        except SelfplayError as error:
            return False, error
        except Exception as error:  # noqa: BLE001 (what nobody foresaw is told with its place)
            traceback.print_exc()
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            return False, RunFailed(f"{type(error).__name__}: {error} ({where})")

    async def here(self) -> tuple[str, str]:
        """The version of selfplay, and the node's name."""
        return selfplay.__version__, socket.gethostname()

    async def begin(self, given: Given) -> str:
        """Load what takes time; what the sampler is, in words: engines of one run have the same.

        Raises:
            NotReady: vLLM is not there, or too old.
        """
        threads = given.threads or os.cpu_count() or 1
        # note: Ray sets it to the processors that an actor reserves, and vLLM's process takes it over.
        os.environ["OMP_NUM_THREADS"] = str(threads)
        from selfplay.policy.parcels import Arriving

        self._arriving = Arriving()
        make = partial(make_sampler, given, threads=threads, told=self._told.append)
        self._made = made = await asyncio.to_thread(make)
        return made.words

    async def take(self, start: int, piece: Any, *, size: int) -> None:
        """A piece of a parcel of weights; see `policy.parcels.Arriving`."""
        self._arriving.take(start, piece, size=size)

    async def keep(self, entries: Sequence[Entry]) -> dict[str, str]:
        """The parcel that came is what no update changes; digests of what the sampler has."""
        return await self._sampler.keep(self._arriving.tensors(entries))

    async def load(self, entries: Sequence[Entry], *, version: int) -> dict[str, str]:
        """The parcel that came are the weights of `version`: sample from them; digests of what the sampler has.

        Raises:
            NotReady: vLLM does not start, or was lost too often.
            RunFailed: vLLM was given others.
        """
        return await self._sampler.adopt(self._arriving.tensors(entries), version=version)

    async def sample(self, request: Request) -> Completion:
        """One reply; raises what the sampler does."""
        return await self._sampler.policy.sample(request)

    async def told(self) -> list[str]:
        """A sign of life; what the sampler told since it was asked last."""
        told, self._told[:] = list(self._told), []
        return told

    async def aclose(self) -> None:
        """End the sampler."""
        if self._made is not None:
            await self._made.policy.aclose()

    @property
    def _sampler(self) -> Sampler:
        assert self._made is not None, "it has begun"
        return self._made


def make_sampler(given: Given, *, threads: int, told: Told) -> Sampler:
    """What the model is for; `told` is told what a person should know."""
    if isinstance(given.model, Handed):
        return VLLM(given, given.model, threads=threads, told=told)
    return Local(given, given.model, threads=threads)


class Local:
    """`policy.local` on a copy of the learner's model."""

    def __init__(self, given: Given, form: Form, *, threads: int) -> None:
        from selfplay.learner.copies import Copy, arithmetic
        from selfplay.learner.lora import speak_as
        from selfplay.policy.by_role import sampler

        self._version = 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torch")
        self._copy = self._thread.submit(Copy, form, threads=threads).result()
        self.words = arithmetic()
        self.policy: Policy = sampler(
            self._copy.model,
            given.tokenizer,
            roles=form.lora_roles,
            speak_as=speak_as,
            version=lambda: self._version,
            executor=self._thread,
            max_rows=given.max_rows,
        )

    async def keep(self, fixed: Tensors) -> dict[str, str]:
        """See `Sampler`."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._copy.adopt, fixed)

    async def adopt(self, changed: Tensors, *, version: int) -> dict[str, str]:
        """See `Sampler`."""

        def replace() -> dict[str, str]:
            self._version = version
            return self._copy.adopt(changed)

        return await asyncio.get_running_loop().run_in_executor(self._thread, replace)


class VLLM:
    """`policy.vllm`: a child process of this one, in the environment that has vLLM."""

    def __init__(self, given: Given, handed: Handed, *, threads: int, told: Told) -> None:
        from selfplay.policy.handover import Handover, Outgoing
        from selfplay.policy.vllm import VLLMPolicy
        from selfplay.policy.vllm_setup import installed

        self.words = f"vLLM {installed(handed.options).version}"
        self._version = 0
        self._fixed: Tensors = {}
        self._changed: Tensors = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torch")
        outgoing = Outgoing(
            tensors=lambda: self._changed,
            config_json=handed.config_json,
            adapter_json=handed.adapter_json,
            rank=handed.rank,
            base=(lambda: self._fixed) if handed.rank else None,
        )
        self.policy = VLLMPolicy(
            Handover(outgoing),
            given.tokenizer,
            version=lambda: self._version,
            executor=self._thread,
            context=given.context,
            vocabulary=given.vocabulary,
            dtype=handed.dtype,
            max_rows=given.max_rows,
            threads=threads,
            options=handed.options,
            say=told,
        )

    async def keep(self, fixed: Tensors) -> dict[str, str]:
        """See `Sampler`."""
        self._fixed = fixed
        return await asyncio.to_thread(_digests, fixed)

    async def adopt(self, changed: Tensors, *, version: int) -> dict[str, str]:
        """See `Sampler`; vLLM's process has been given them, and its digests compared with those of what arrived."""

        def replace() -> dict[str, str]:
            self._changed, self._version = changed, version
            return _digests(changed)

        digests = await asyncio.get_running_loop().run_in_executor(self._thread, replace)
        await self.policy.warm()
        return digests


def _digests(tensors: Tensors) -> dict[str, str]:
    from selfplay.policy.handover import digest_of

    return {name: digest_of(tensor) for name, tensor in tensors.items()}
