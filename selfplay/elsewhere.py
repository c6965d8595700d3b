"""Samplers on the nodes of a cluster, `run.cluster.engines` of them: what they are told, and what they cannot do.

Each is what `policy.backend` is on one machine, `local` on a copy of the model or vLLM, and all sample from the weights
that the learner has. Not here: the cluster (`cluster.policies`), samplers on the learner's machine (`samplers`).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Any

from selfplay.config import Config
from selfplay.errors import UserError
from selfplay.grounds import threads_of, wanted_of

if TYPE_CHECKING:
    from selfplay.policy import Policy, Tokenizer
    from selfplay.policy.handover import Outgoing
    from selfplay.policy.vllm_setup import Options


def engines(config: Config) -> int:
    """How many there are; 0: the sampler is on the learner's machine.

    Raises:
        UserError: `run.cluster` has an unknown constant, or one that is out of bounds.
    """
    wanted = wanted_of(config)
    return wanted.nodes.engines if wanted is not None else 0


def local_words(config: Config) -> str:
    """What a plan says of engines of `local`; nothing where there are none.

    Raises:
        UserError: they are to have cards.
    """
    wanted = wanted_of(config)
    if wanted is not None and wanted.nodes.engines and wanted.nodes.engine_gpus:
        raise UserError(
            f"{_asked(config)}, each with a card, and policy.backend `local` is on a node's processor",
            hint="-s policy.backend=vllm, or leave engine_gpus out",
        )
    return _words(config)


def vllm_words(config: Config, options: Options) -> str:
    """What a plan says of engines of vLLM; whether the nodes have it is seen there.

    Raises:
        UserError: a constant is of engines beside the learner.
    """
    usual = type(options)()
    for name in ("replicas", "cards", "sleep"):
        if (value := getattr(options, name)) != getattr(usual, name):
            raise UserError(
                f"policy.options sets {name} to {value!r}, and {_asked(config)}: each has a place of its own",
                hint=f"leave {name} out; more engines, a card each: -s 'run.cluster={{engines = N, engine_gpus = 1}}'",
            )
    return _words(config)


def refuse(config: Config) -> None:
    """Who samples at a server has that one's engines.

    Raises:
        UserError: others are asked for.
    """
    backend = config.policy.backend
    if engines(config) and backend not in ("local", "vllm"):
        hint = "-s 'run.cluster={engines = 0}'"
        raise UserError(f"{_asked(config)}, and policy.backend `{backend}` samples at a server", hint=hint)


def policy(
    config: Config,
    trainer: Any,
    tokenizer: Tokenizer,
    *,
    executor: Executor,
    context: int,
    vllm: tuple[Options, Outgoing] | None,
    say: Callable[[str], None],
    alarm: Callable[[str], None],
) -> Policy:
    """Engines that sample from the weights of `trainer`.

    `context` is the longest prompt and reply that they are asked to have room for, in tokens; `vllm` are its constants
    and what it is handed (None: they are `local`). The others are `ClusterPolicy`'s.
    """
    from selfplay.cluster.engine_node import Given, Handed
    from selfplay.cluster.policies import ClusterPolicy, Source
    from selfplay.learner import copies

    wanted, rank = wanted_of(config), config.learner.lora_rank
    assert wanted is not None, "engines are of a cluster"
    shape = trainer.model.config.get_text_config()
    given = partial(
        Given,
        tokenizer=tokenizer,
        context=min(int(shape.max_position_embeddings), context),
        vocabulary=int(shape.vocab_size),
        max_rows=config.policy.max_rows,
    )
    source = partial(Source, version=lambda: trainer.policy_version)
    make = partial(ClusterPolicy, wanted=wanted, executor=executor, say=say, alarm=alarm)
    if vllm is None:
        roles = tuple(trainer.options.lora_roles) if config.learner.lora_per_role else ()
        form = copies.Form.of(trainer.model, lora_rank=rank, lora_roles=roles)
        return make(
            given(threads=threads_of(config), model=form),
            source(
                changed=partial(copies.trained, trainer.model, lora_rank=rank),
                fixed=partial(copies.fixed, trainer.model, lora_rank=rank),
                arithmetic=copies.arithmetic(),
            ),
        )
    options, out = vllm
    handed = Handed(
        dtype=config.learner.dtype,
        config_json=out.config_json,
        adapter_json=out.adapter_json,
        rank=rank,
        options=options,
    )
    return make(given(threads=config.policy.threads, model=handed), source(changed=out.tensors, fixed=out.base or dict))


def _asked(config: Config) -> str:
    return f"run.cluster asks for {engines(config)} engines on its nodes"


def _words(config: Config) -> str:
    if not (number := engines(config)):
        return ""
    handed = "weights sent after every update, digests compared"
    return f"{number} engines of {config.policy.backend} on the nodes of a Ray cluster; {handed}"
