"""Whose weights are evaluated: a save of a run, a model, an endpoint; each opened as a policy.

Not here: what they play (`measure`), which run a person means (`cli`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Literal

from selfplay import parts
from selfplay.cache import cache_folder
from selfplay.config import Config, from_run
from selfplay.errors import NotFound
from selfplay.ledger import Ledger
from selfplay.policy import Policy
from selfplay.project import Project
from selfplay.samplers import tokenizer_of
from selfplay.saves import retained
from selfplay.types import Save, digest, record

START = "start"
"""What the save that self-play started from is called."""


@record
class Target:
    """Whose weights."""

    words: str
    """As a person would type it."""
    kind: Literal["save", "model", "endpoint"]
    config: Config | None = None
    """Of the run whose save it is; other targets play with the settings of what they are evaluated on."""
    folder: Path | None = None
    """Of that run."""
    save: Save | None = None
    name: str = ""
    """The model's name, or the endpoint's address."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Of an endpoint: `model`, the name it is served under, and `tokenizer`."""

    @property
    def step(self) -> int:
        """Closed steps that the weights have seen."""
        return self.save.step + 1 if self.save is not None and self.save.step >= 0 else 0

    @property
    def version(self) -> int | None:
        """Of the weights, where they are a run's."""
        return self.save.policy_version if self.save is not None else None


def of_run(folder: Path, step: str | None, *, project: Project) -> Target:
    """The save after `step` of the run in `folder`, or its newest; `start`: the one that self-play started from.

    Raises:
        NotFound: there is none, or none any more; those that are kept are named.
    """
    config = from_run(folder, project=project, environ={})
    with Ledger.read(folder) as reader:
        kept = {_name(save): save for save in retained(reader, folder)}
        closed = reader.last_closed_step()
    if not kept:
        hint = f"go on with it: selfplay run --name {folder.name}"
        raise NotFound(f"run `{folder.name}` has no save on disk", hint=hint)
    chosen = step if step is not None else max(kept, key=lambda name: kept[name].policy_version)
    if chosen not in kept:
        names = ", ".join(f"{folder.name}@{name}" for name in kept)
        why = "is not kept" if chosen == START or (chosen.isdecimal() and int(chosen) <= closed) else "does not exist"
        raise NotFound(
            f"the save `{folder.name}@{chosen}` {why}; there is {names}", hint="keep more: -s run.keep_saves=N"
        )
    return Target(words=f"{folder.name}@{chosen}", kind="save", config=config, folder=folder, save=kept[chosen])


def _name(save: Save) -> str:
    return str(save.step) if save.step >= 0 and save.phase == "play" else START


def identity(target: Target, *, config: Config) -> str | None:
    """What tells its weights from all others; None where nobody can know (an endpoint).

    Raises:
        NotFound, NotReady: there is no such model, or it cannot be fetched.
    """
    if target.save is not None:
        return digest("save", target.save.weights_digest, config.learner.dtype)
    if target.kind == "endpoint":
        return None
    if target.name == parts.TOY:
        return digest("toy", config.run.seed, config.learner.dtype)
    from selfplay.policy.models import resolve

    return digest("model", resolve(target.name, cache=cache_folder()).digest, config.learner.dtype)


def config_of(target: Target, *, otherwise: Config) -> Config:
    """The settings it is opened with."""
    if target.config is not None:
        return target.config
    if target.kind == "endpoint":
        return otherwise
    changed: dict[str, object] = {"model": target.name}
    if otherwise.policy.backend in ("openai", "tinker"):
        changed |= {"backend": "local", "options": {}}
    return otherwise.model_copy(update={"policy": otherwise.policy.model_copy(update=changed)})


async def opened(
    target: Target,
    *,
    config: Config,
    players: parts.Players,
    torch_thread: Executor,
    stack: AsyncExitStack,
    say: Callable[[str], None],
) -> Policy:
    """The policy that samples from it; closed with `stack`. `say` is told what becomes of engines elsewhere.

    Raises:
        NotFound, NotReady: there is no such model, or it cannot be fetched.
        RunFailed: the save is damaged.
    """
    if target.kind == "endpoint":
        return await _endpoint(target, config=config, stack=stack)
    loop = asyncio.get_running_loop()
    # note: nothing is learnt, so one process holds the weights whatever they were learnt with.
    config = config.model_copy(update={"learner": config.learner.model_copy(update={"ranks": 1})})
    model = await loop.run_in_executor(torch_thread, partial(parts.learner, config, players))
    if target.save is not None and target.folder is not None:
        place = target.folder / target.save.path
        await loop.run_in_executor(torch_thread, partial(model.trainer.load, place, target.save))
    policy = parts.policy(config, model, torch_thread, say=say, alarm=say)
    stack.push_async_callback(policy.aclose)
    return policy


async def _endpoint(target: Target, *, config: Config, stack: AsyncExitStack) -> Policy:
    from selfplay.policy.openai import OpenAIPolicy

    tokenizer = await asyncio.to_thread(tokenizer_of, target.options["tokenizer"])
    model, rows = target.options["model"], config.policy.max_rows
    policy = OpenAIPolicy(target.name, model=model, tokenizer=tokenizer, max_rows=rows)
    stack.push_async_callback(policy.aclose)
    return policy
