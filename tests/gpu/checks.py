"""What is tried on a device: one function a check, each of which says what it saw or raises `Failed`.

Everything is made here (a Llama with random weights, batches of random ids), so nothing is fetched. Only torch,
transformers and this repository are needed.

Not here: which device, the order, the answer (`__main__`).
"""

from __future__ import annotations

import asyncio
import math
import random
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from selfplay.learner import memory
from selfplay.learner.batch import pack, partition
from selfplay.learner.options import Options
from selfplay.learner.trainer import Trainer
from selfplay.policy import Completion, Policy, Request
from selfplay.policy.local import LocalPolicy
from selfplay.policy.toy import CharTokenizer
from selfplay.policy.vllm import VLLMPolicy
from selfplay.probe import sample_of
from selfplay.types import Batch, Sample, Sampling, record

AGREEMENT = 0.05
"""Largest mean difference of sampler's and learner's log-probabilities, in nats, in bfloat16."""
MEMORY_TOLERANCE = 0.35
"""Of the measured memory of a card, as a share, that the prediction may be off."""
SHARDED = 1e-3
"""Largest relative difference of the gradient norm under FSDP."""


class Failed(Exception):
    """The check did not hold; one sentence."""


class Skipped(Exception):
    """The check cannot be made here; one sentence."""


@record
class Size:
    """Of the model and of what it is tried on."""

    hidden: int
    layers: int
    heads: int
    intermediate: int
    vocabulary: int
    groups: int
    prompt: int
    reply: int
    rows: int
    """Replies that are sampled at the same time."""


LARGE = Size(
    hidden=1024, layers=16, heads=16, intermediate=4096, vocabulary=32_000, groups=16, prompt=512, reply=128, rows=64
)
"""276 million parameters: less than 6 GB of a card."""
TINY = Size(hidden=32, layers=2, heads=4, intermediate=64, vocabulary=96, groups=2, prompt=12, reply=6, rows=4)
"""Two layers: seconds on a processor."""


@dataclass
class Bench:
    """A device, and what the checks measured on it."""

    device: torch.device
    size: Size
    vllm_python: str = ""
    throughput: list[dict[str, Any]] = field(default_factory=list)

    def fresh(self) -> nn.Module:
        """A Llama, the same each time, on the processor, where a run opens its model."""
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=self.size.vocabulary,
            hidden_size=self.size.hidden,
            intermediate_size=self.size.intermediate,
            num_hidden_layers=self.size.layers,
            num_attention_heads=self.size.heads,
            num_key_value_heads=self.size.heads // 4,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=1,
            pad_token_id=None,
        )
        return LlamaForCausalLM(config)

    def model(self) -> nn.Module:
        """The same on the device."""
        return self.fresh().to(self.device)

    def trainer(self, model: nn.Module | None = None) -> Trainer:
        """A learner of it in bfloat16, which moves it to the device as a run's learner does."""
        options = Options(lr=1e-4, warmup_lr=1e-4, threads=1, device=str(self.device))
        return Trainer(model or self.fresh(), options=options)

    def batch(self) -> Batch:
        """`groups` groups of eight replies."""
        rng = random.Random(0)
        ids = range(2, self.size.vocabulary)
        samples = []
        for group in range(self.size.groups):
            prompt = tuple(rng.choices(ids, k=self.size.prompt))
            for i in range(8):
                reply = tuple(rng.choices(ids, k=max(1, self.size.reply - 3 * i // 2)))
                samples.append(_sample(f"{group}.{i}", prompt, reply, advantage=1.0 if i % 2 else -1.0))
        return Batch(step=0, phase="play", samples=tuple(samples), temperature=1.0)

    def wait(self) -> None:
        """Until the device has done what it was told."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def sample(self, policy: Policy, *, replies: int, tokens: int) -> tuple[list[Request], list[Completion]]:
        """Replies to prompts of different lengths, all at once."""

        async def all_of_them() -> tuple[list[Request], list[Completion]]:
            try:
                return await self.asked(policy, replies=replies, tokens=tokens)
            finally:
                await policy.aclose()

        return asyncio.run(all_of_them())

    async def asked(self, policy: Policy, *, replies: int, tokens: int) -> tuple[list[Request], list[Completion]]:
        """As `sample`, of a policy that stays open."""
        rng = random.Random(1)
        ids = range(2, self.size.vocabulary)
        sampling = Sampling(temperature=1.0, max_tokens=tokens)
        asked = [
            Request(prompt_ids=tuple(rng.choices(ids, k=2 + i % self.size.prompt)), sampling=sampling, seed=i)
            for i in range(replies)
        ]
        return asked, await asyncio.gather(*(policy.sample(one) for one in asked))


def _sample(name: str, prompt: tuple[int, ...], reply: tuple[int, ...], *, advantage: float) -> Sample:
    return Sample(
        trajectory_id=name,
        role="solver",
        group_id=name.partition(".")[0],
        token_ids=prompt + reply,
        trained=(False,) * len(prompt) + (True,) * len(reply),
        sampler_logprobs=(0.0,) * len(prompt) + (-4.0,) * len(reply),
        advantage=advantage,
    )


def update(bench: Bench) -> str:
    """One real update changes the weights, and its numbers are finite."""
    trainer, batch = bench.trainer(), bench.batch()
    before = trainer.weights_digest()
    done = trainer.update(batch)
    if not (math.isfinite(done.loss or 0.0) and math.isfinite(done.grad_norm or 0.0) and done.grad_norm):
        raise Failed(f"loss {done.loss}, gradient norm {done.grad_norm}")
    if trainer.weights_digest() == before:
        raise Failed("the update changed no weight")
    return f"loss {done.loss:.4f}, gradient norm {done.grad_norm:.4f}, {done.tokens} trained tokens"


def agreement(bench: Bench) -> str:
    """What the sampler says of its tokens is what the learner says of them, after an update too."""
    trainer = bench.trainer()
    gaps = []
    for _ in range(2):
        with ThreadPoolExecutor(1) as thread:
            policy = _local(bench, trainer, thread)
            asked, replies = bench.sample(policy, replies=8, tokens=bench.size.reply)
        gaps.append(_gap(trainer, asked, replies))
        trainer.update(bench.batch())
    return f"mean difference {gaps[0]:.2e} before an update and {gaps[1]:.2e} after it, in nats"


def resumed(bench: Bench) -> str:
    """A save that is loaded goes on with the same bits: its update gives the same weights as without a stop."""
    trainer, batch = bench.trainer(), bench.batch()
    trainer.update(batch)
    with tempfile.TemporaryDirectory() as folder:
        save = trainer.save(Path(folder, "save"), step=0)
        went_on = trainer.update(batch)
        other = bench.trainer()
        other.load(Path(folder, "save"), save)
    again = other.update(batch, recorded=went_on)
    if again.weights_digest != went_on.weights_digest:
        raise Failed(f"the same update on the same weights gave others ({other.fingerprint})")
    return f"equal digests after a save was loaded ({other.fingerprint.rpartition('; ')[2]})"


def _gap(trainer: Trainer, asked: Sequence[Request], replies: Sequence[Completion]) -> float:
    """Mean |sampler - learner| in nats.

    Raises:
        Failed: it is above `AGREEMENT`.
    """
    samples = [sample_of(request, reply) for request, reply in zip(asked, replies, strict=True)]
    scored = trainer.logprobs(samples, temperature=1.0)
    said = [value for reply in replies for value in reply.logprobs]
    found = [value for values in scored for value in values]
    gap = sum(abs(a - b) for a, b in zip(said, found, strict=True)) / max(1, len(said))
    if not gap <= AGREEMENT:
        raise Failed(f"sampler and learner differ by {gap:.3g} nats a token, and at most {AGREEMENT} is allowed")
    return gap


def _local(bench: Bench, trainer: Trainer, thread: ThreadPoolExecutor) -> LocalPolicy:
    model: Any = trainer.model
    return LocalPolicy(
        model, CharTokenizer(), version=lambda: trainer.policy_version, executor=thread, max_rows=bench.size.rows
    )


def sharded(bench: Bench) -> str:
    """A model that FSDP holds on one device has the loss and the gradient of the same model without it."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    ids = torch.tensor([sample.token_ids[: bench.size.prompt] for sample in bench.batch().samples[:8]])
    ids = ids.to(bench.device)
    plain = _gradient(bench.model(), ids)
    with tempfile.TemporaryDirectory() as folder:
        backend = "nccl" if bench.device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=dist.FileStore(str(Path(folder, "meet")), 1), rank=0, world_size=1)
        try:
            held = bench.model()
            mesh = init_device_mesh(bench.device.type, (1,))
            for layer in held.model.layers:  # type: ignore[union-attr]
                fully_shard(layer, mesh=mesh)  # type: ignore[arg-type]
            fully_shard(held, mesh=mesh)
            split = _gradient(held, ids)
        finally:
            dist.destroy_process_group()
    if abs(split - plain) > SHARDED * plain:
        raise Failed(f"the gradient's norm is {split:.6g} under FSDP and {plain:.6g} without")
    return f"gradient norm {split:.6g} with and {plain:.6g} without, over {backend}"


def _gradient(model: nn.Module, ids: torch.Tensor) -> float:
    """Norm of the gradient of the mean loss, in float32."""
    model(input_ids=ids, labels=ids).loss.backward()
    total = 0.0
    for parameter in model.parameters():
        if parameter.grad is not None:
            grad: Any = parameter.grad
            total += float((grad.full_tensor() if hasattr(grad, "full_tensor") else grad).square().sum())
    return math.sqrt(total)


def predicted_memory(bench: Bench) -> str:
    """What `learner.memory` predicts of an update, and what the device had at most."""
    model = bench.fresh()
    shape = memory.shape_of(model.config.to_dict())  # type: ignore[operator,union-attr]
    if shape is None:
        raise Failed("the model's shape is not counted")
    trainer, batch = bench.trainer(model), bench.batch()
    trainer.update(batch)
    card = bench.device.type == "cuda"
    if card:
        torch.cuda.reset_peak_memory_stats(bench.device)
    trainer.update(batch)
    peak = torch.cuda.max_memory_allocated(bench.device) if card else _resident()
    setup = memory.Setup(dtype="bfloat16")
    fixed = memory.fixed(shape, setup)
    rows = partition(batch.samples, range(len(batch.samples)), token_budget=trainer.options.token_budget)
    needs = [
        sum(memory.update_mb(shape, pack(batch.samples, part), setup=setup, recompute=False).values()) for part in rows
    ]
    total = sum(fixed.values()) - (memory.FLOOR_MB if card else 0.0) + max(needs)
    measured = peak / memory.MB
    words = f"{total:.0f} MB predicted, {measured:.0f} MB measured"
    if card and abs(total - measured) > MEMORY_TOLERANCE * measured:
        raise Failed(f"{words}: off by more than {MEMORY_TOLERANCE:.0%}")
    return words if card else f"{words} (of the whole process, which says little about a tiny model)"


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def throughput(bench: Bench) -> str:
    """Tokens a second of the sampler and of the learner; never a failure."""
    trainer, batch = bench.trainer(), bench.batch()
    for tokens in (bench.size.reply // 4 or 1, bench.size.reply):
        with ThreadPoolExecutor(1) as thread:
            began = time.perf_counter()
            _, replies = bench.sample(_local(bench, trainer, thread), replies=bench.size.rows, tokens=tokens)
        seconds, made = time.perf_counter() - began, sum(len(reply.token_ids) for reply in replies)
        bench.throughput.append(_row("sampler", f"{bench.size.rows} rows, {tokens} tokens", made, seconds))
    trainer.update(batch)
    bench.wait()
    began = time.perf_counter()
    trainer.update(batch)
    bench.wait()
    seen = sum(len(sample.token_ids) for sample in batch.samples)
    row = _row("learner", f"{len(batch.samples)} samples", seen, time.perf_counter() - began)
    bench.throughput.append(row)
    return "; ".join(f"{one['what']} {one['tokens_per_second']:.0f} tokens/s" for one in bench.throughput)


def _row(what: str, load: str, tokens: int, seconds: float) -> dict[str, Any]:
    return {
        "what": what,
        "load": load,
        "tokens": tokens,
        "seconds": round(seconds, 4),
        "tokens_per_second": round(tokens / max(seconds, 1e-9), 1),
    }


def vllm(bench: Bench) -> str:
    """vLLM, where it is installed, samples from the learner's weights, before and after an update."""
    from selfplay.errors import NotReady
    from selfplay.policy.handover import Handover
    from selfplay.policy.vllm_setup import Options as EngineOptions
    from selfplay.policy.vllm_setup import installed
    from selfplay.samplers import outgoing

    options = EngineOptions(python=bench.vllm_python, kv_gb=0.5, start_seconds=240.0)
    try:
        found = installed(options)
    except NotReady as error:
        raise Skipped(error.message) from error
    card = bench.device.type == "cuda"
    trainer = bench.trainer()
    gaps = []
    for sleep in (False, True) if card else (False,):
        with ThreadPoolExecutor(1) as thread:
            policy = VLLMPolicy(
                Handover(outgoing(trainer, rank=0)),
                CharTokenizer(),
                version=lambda: trainer.policy_version,
                executor=thread,
                context=1024,
                vocabulary=bench.size.vocabulary,
                options=replace(options, sleep=sleep),
            )
            gaps += asyncio.run(_two_updates(bench, trainer, policy, thread))
    ways = "offered on the card, awake and asleep" if card else "through shared memory"
    return f"vLLM {found.version}, weights {ways}: mean differences {', '.join(f'{gap:.2e}' for gap in gaps)} nats"


async def _two_updates(bench: Bench, trainer: Trainer, policy: VLLMPolicy, thread: ThreadPoolExecutor) -> list[float]:
    """How far sampler and learner are apart before an update, after it and after another."""
    gaps = []
    try:
        for number in range(3):
            asked, replies = await bench.asked(policy, replies=8, tokens=bench.size.reply)
            await policy.rest()
            gaps.append(await asyncio.get_running_loop().run_in_executor(thread, _gap, trainer, asked, replies))
            if number < 2:
                await asyncio.get_running_loop().run_in_executor(thread, trainer.update, bench.batch())
    finally:
        await policy.aclose()
    return gaps


CHECKS: Sequence[tuple[str, Callable[[Bench], str]]] = (
    ("update", update),
    ("agreement", agreement),
    ("resumed", resumed),
    ("fsdp", sharded),
    ("memory", predicted_memory),
    ("throughput", throughput),
    ("vllm", vllm),
)
"""In their order."""
