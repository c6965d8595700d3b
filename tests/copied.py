"""A sampler with a copy of the learner's weights: the toy model twice, each on a thread of its own.

It takes over the learner's weights when it is asked for a reply and they have changed, as the `vllm` policy does, so it
may sample while the learner changes its own. A reply under way goes on with the new weights, and says so in its span.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from selfplay import loop
from selfplay.ahead import late
from selfplay.build import assemble
from selfplay.config import Config
from selfplay.events import Interrupt, Observer, ignore
from selfplay.ledger import Ledger
from selfplay.policy import Completion, PolicyCapabilities, Request, Tokenizer
from selfplay.policy.local import LocalPolicy
from selfplay.project import Project


class CopiedPolicy:
    """Implements `Policy` with the sampler of `local` on a copy of the learner's model."""

    def __init__(self, trainer: Any, tokenizer: Tokenizer, *, torch_thread: Any, max_rows: int = 32) -> None:
        self._trainer, self._torch = trainer, torch_thread
        self._own = ThreadPoolExecutor(1, thread_name_prefix="copy")
        self._model = copy.deepcopy(trainer.model)
        self._held: int = trainer.policy_version
        self._lock = asyncio.Lock()
        self._sampler = LocalPolicy(
            self._model, tokenizer, version=lambda: self._held, executor=self._own, max_rows=max_rows
        )

    @property
    def capabilities(self) -> PolicyCapabilities:
        return replace(self._sampler.capabilities, shares_weights=False, deterministic=False)

    @property
    def tokenizer(self) -> Tokenizer:
        return self._sampler.tokenizer

    async def sample(self, request: Request) -> Completion:
        async with self._lock:
            if self._held != self._trainer.policy_version:
                loop = asyncio.get_running_loop()
                given = await loop.run_in_executor(self._torch, self._read)
                await loop.run_in_executor(self._own, self._write, *given)
        return await self._sampler.sample(request)

    async def aclose(self) -> None:
        await self._sampler.aclose()
        self._own.shutdown()

    def _read(self) -> tuple[int, dict[str, torch.Tensor]]:
        tensors = {name: tensor.detach().clone() for name, tensor in self._trainer.model.state_dict().items()}
        return self._trainer.policy_version, tensors

    def _write(self, version: int, tensors: dict[str, torch.Tensor]) -> None:
        self._model.load_state_dict(tensors)
        self._held = version


@asynccontextmanager
async def copied(
    config: Config,
    *,
    project: Project,
    folder: Path,
    ledger: Ledger,
    staleness: int,
    observe: Observer = ignore,
    interrupt: Interrupt | None = None,
) -> AsyncIterator[loop.Run]:
    """The toy run of `config` with such a sampler, `staleness` steps ahead and corrected for it."""
    parts = assemble(
        config, project=project, folder=folder, ledger=ledger, observe=observe, interrupt=interrupt or Interrupt()
    )
    async with parts as run:
        trainer: Any = run.learner
        policy = CopiedPolicy(trainer, run.policy.tokenizer, torch_thread=run.torch_thread)
        try:
            yield replace(
                run,
                policy=policy,
                settings=replace(run.settings, staleness=staleness),
                curriculum=late(run.curriculum, staleness),
                pools=replace(run.pools, player=replace(run.pools.player, policy=policy)),
            )
        finally:
            await policy.aclose()


def play(config: Config, *, project: Project, folder: Path, staleness: int, **given: Any) -> int:
    """Play it, or go on with it; returns how many steps are closed."""

    async def main(ledger: Ledger) -> int:
        async with copied(config, project=project, folder=folder, ledger=ledger, staleness=staleness, **given) as run:
            return await loop.run(run)

    if (folder / "ledger.db").exists():
        made = Ledger.open(folder)
    else:
        made = Ledger.create(folder, config_digest=config.digest, config=config.values(), seed=0, game="echo")
    with made as ledger:
        return asyncio.run(main(ledger))
