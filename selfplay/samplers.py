"""Which backend samples: `policy.backend` and `policy.options` become a policy, or a sentence that says what is wrong.

    local    the learner's own weights in memory      trains; guarantees A, B, and C on the processor
    vllm     a copy of them in an engine's process    trains; guarantees A, B
    openai   an endpoint's weights                    collects and evaluates; guarantee A
    tinker   those of a learner at a server           trains there; guarantee A

The first two are beside the learner, or on the nodes of a cluster (`elsewhere`).

Not here: the policies themselves (`policy`), the other parts of a run (`parts`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from selfplay import ahead, elsewhere
from selfplay.cache import cache_folder
from selfplay.config import Config
from selfplay.errors import NotReady, UserError
from selfplay.learner.refuse import refuse_ranks
from selfplay.policy import cards
from selfplay.project import did_you_mean
from selfplay.types import record

if TYPE_CHECKING:
    from selfplay.learner.spectator import Spectator
    from selfplay.learner.trainer import Trainer
    from selfplay.parts import Model
    from selfplay.policy import Policy, Tokenizer
    from selfplay.policy.handover import Outgoing
    from selfplay.policy.vllm_setup import Options

T = TypeVar("T")

TOY = "toy"
"""The model that is not loaded but made: two random layers."""
_GIB_MB = (1 << 30) / 1_000_000
CONTEXT = 32_768
"""Longest prompt and reply that a sampler is asked to have room for, in tokens."""
_TOY_CONTEXT = 4096
"""Characters that the toy model has room for where it plays more than the toy game."""
_TOY_HIDDEN = {"vllm": 128}
"""Width of the toy model where a backend's kernels need wider heads than its 16."""


@record
class Endpoint:
    """Constants of the backend `openai`."""

    url: str = ""
    """Up to and with `/v1`."""
    model: str = ""
    """The name that it is served under; empty: `policy.model`."""
    context: int = 131_072
    """Of the served model, in tokens."""
    seconds: float = 600.0
    """Longest wait for one reply."""


@record
class Sampler:
    """What the plan says of a backend."""

    words: str
    guarantees: str
    """Of DESIGN, section 2."""


def check(config: Config) -> Sampler:
    """Refuse what the backend cannot honour, before anything is spent.

    Raises:
        UserError: a constant is unknown or of the wrong type, something is to learn from an endpoint's replies,
            steps are to be played ahead by a sampler that shares its weights, engines have another arithmetic than
            the learner and nothing corrects that, or ranks are to learn as they cannot.
        NotReady: vLLM is not there, or too old.
    """
    name, options = config.policy.backend, config.policy.options
    corrected = correction(config) is not None
    _refuse_adapters(config)
    _refuse_ranks(config)
    elsewhere.refuse(config)
    shares = name == "local" and not elsewhere.engines(config)
    ahead.refuse(config.run.staleness, shares_weights=shares, corrected=corrected or name == "openai")
    if name == "vllm":
        from selfplay.policy import vllm_setup

        given = _options(config)
        if elsewhere.engines(config):
            return Sampler(words=elsewhere.vllm_words(config, given), guarantees="A, B")
        if given.sleep and config.run.staleness:
            raise UserError(
                "policy.options sets sleep, and run.staleness plays steps ahead: engines would sample while they sleep",
                hint="one or the other: -s run.staleness=0; or engines on cards of their own, e.g. cards = '1'",
            )
        found = vllm_setup.installed(given)
        several = f"{given.replicas} engines of " if given.replicas > 1 else ""
        handed = "weights handed over after every update, digests compared"
        words = f"{several}vLLM {found.version} ({found.python}); {handed}"
        return Sampler(words=words, guarantees="A, B")
    if name == "openai":
        endpoint = _endpoint(config)
        return Sampler(words=f"{endpoint.model} at {endpoint.url}; nothing is learnt", guarantees="A")
    if name == "tinker":
        from selfplay.doors import tinker_client

        return Sampler(words=tinker_client.check(config), guarantees="A")
    if options:
        raise UserError(
            f"policy.options is set ({', '.join(options)}), and policy.backend `local` has no constants",
            hint="leave it out, or name the backend: -s policy.backend=vllm",
        )
    carded = cards.learner_has_one(ranks=config.learner.ranks)
    if elsewhere.engines(config) and carded and not corrected:
        raise UserError(
            f"the learner is on a card, and {elsewhere.engines(config)} engines sample on processors, whose arithmetic "
            "is another",
            hint="-s learner.correction=token_truncated; or CUDA_VISIBLE_DEVICES= for a learner on the processor",
        )
    # note: on a card what else is in flight moves the last bits, as with vLLM.
    kept = "A, B" if carded else "A, B, C"
    words = elsewhere.local_words(config) or "the learner's own weights, in memory"
    return Sampler(words=words, guarantees=kept)


def _refuse_adapters(config: Config) -> None:
    """Adapters for each role are learnt in one process, and sampled by that model or by copies of it."""
    learner, said = config.learner, "learner.lora_per_role is true"
    if not learner.lora_per_role:
        return
    if not learner.lora_rank:
        raise UserError(f"{said}, and learner.lora_rank is 0: there are no adapters", hint="-s learner.lora_rank=8")
    if config.policy.backend != "local":
        raise UserError(
            f"{said}, and policy.backend `{config.policy.backend}` samples with one set of weights for all roles",
            hint="-s policy.backend=local, or one adapter for all: -s learner.lora_per_role=false",
        )
    if learner.ranks > 1:
        raise UserError(
            f"{said}, and learner.ranks is {learner.ranks}: ranks share one adapter",
            hint="-s learner.ranks=1, or one adapter for all: -s learner.lora_per_role=false",
        )


def _refuse_ranks(config: Config) -> None:
    """Several ranks learn in one way alone, which they would say only once they have started and loaded the model."""
    learner = config.learner
    # note: from an endpoint nothing is learnt, and a Tinker server says itself what it cannot do.
    if learner.ranks > 1 and config.policy.backend not in ("openai", "tinker"):
        refuse_ranks(in_turns=learner.order != "joint", optimizer=learner.optimizer)


def in_flight(config: Config) -> int:
    """Replies that are asked for at the same time: twice what all samplers hold, so that none waits for the next."""
    several = elsewhere.engines(config)
    if not several and config.policy.backend == "vllm":
        several = _options(config).replicas
    return 2 * config.policy.max_rows * max(1, several)


def planned(config: Config) -> Sampler:
    """As `check`, for a plan: what is not ready on this machine is said, not raised.

    Raises:
        UserError: as `check`.
    """
    try:
        return check(config)
    except NotReady as error:
        kept = "A" if config.policy.backend == "tinker" else "A, B"
        return Sampler(words=f"not ready here: {error.message}", guarantees=kept)


def engine_gb(config: Config) -> float:
    """Memory for keys and values of a vLLM engine, in GiB."""
    return _options(config).kv_gb


def engine_mb(config: Config, *, weights_mb: float) -> float:
    """What an engine takes of the learner's card while the learner works, in MB; asleep, what vLLM itself keeps."""
    if config.policy.backend != "vllm" or elsewhere.engines(config):
        return 0.0
    given = _options(config)
    if not cards.shared(given.cards):
        return 0.0
    return cards.ENGINE_MB + (0.0 if given.sleep else weights_mb + given.kv_gb * _GIB_MB)


def _options(config: Config) -> Options:
    """Of vLLM."""
    from selfplay.policy.vllm_setup import Options

    return constants(Options, config.policy.options, backend="vllm")


def correction(config: Config) -> str | None:
    """Importance weights of the loss: truncated ones by default where the sampler's arithmetic is another, or its
    weights are older."""
    asked = config.learner.correction
    if asked == "auto":
        return "token_truncated" if config.policy.backend in ("vllm", "tinker") or config.run.staleness else None
    return None if asked == "none" else asked


def policy(
    config: Config,
    model: Model,
    torch_thread: Executor,
    *,
    say: Callable[[str], None] = lambda text: None,
    alarm: Callable[[str], None] = lambda text: None,
) -> Policy:
    """The sampler of the learner's weights, or of an endpoint's.

    `say` is told what a person should know, `alarm` of engines on other machines that are lost.

    Raises:
        UserError, NotReady: as `check`.
    """
    if config.policy.backend == "openai":
        return _openai(config, model.tokenizer)
    trainer: Any = model.trainer
    if config.policy.backend == "tinker":
        from selfplay.doors import tinker_policy

        return tinker_policy.policy(config, trainer, model.tokenizer, torch_thread)
    vllm = config.policy.backend == "vllm"
    if elsewhere.engines(config):
        there = (_options(config), outgoing(trainer, rank=config.learner.lora_rank)) if vllm else None
        return elsewhere.policy(
            config, trainer, model.tokenizer, executor=torch_thread, context=CONTEXT, vllm=there, say=say, alarm=alarm
        )
    if vllm:
        return _vllm(config, trainer, model.tokenizer, torch_thread, say=say)
    from selfplay.learner.lora import speak_as
    from selfplay.policy.by_role import sampler

    return sampler(
        trainer.model,
        model.tokenizer,
        roles=trainer.options.lora_roles if config.learner.lora_per_role else (),
        speak_as=speak_as,
        version=lambda: trainer.policy_version,
        executor=torch_thread,
        max_rows=config.policy.max_rows,
    )


def _vllm(
    config: Config, trainer: Trainer, tokenizer: Tokenizer, torch_thread: Executor, *, say: Callable[[str], None]
) -> Policy:
    from selfplay.policy.handover import Handover
    from selfplay.policy.vllm import VLLMPolicy

    shape = _text_config(trainer)
    return VLLMPolicy(
        Handover(outgoing(trainer, rank=config.learner.lora_rank)),
        tokenizer,
        version=lambda: trainer.policy_version,
        executor=torch_thread,
        context=min(int(shape.max_position_embeddings), CONTEXT),
        vocabulary=int(shape.vocab_size),
        dtype=config.learner.dtype,
        max_rows=config.policy.max_rows,
        threads=config.policy.threads or os.cpu_count() or 1,
        options=_options(config),
        say=say,
    )


def outgoing(trainer: Trainer, *, rank: int) -> Outgoing:
    """What a sampler with a copy of the weights is given: all of them, or the base once and then adapters of `rank`."""
    from selfplay.learner.weights import config_json
    from selfplay.policy.handover import Outgoing

    def base() -> Mapping[str, Any]:
        named = trainer.model.named_parameters()
        return {name.replace(".base_layer.", "."): value for name, value in named if ".lora_" not in name}

    return Outgoing(
        tensors=lambda: trainer.compute,
        config_json=config_json(trainer.model),
        adapter_json=trainer.adapter_json,
        rank=rank,
        base=base if rank else None,
    )


def _text_config(trainer: Trainer) -> Any:
    model: Any = trainer.model
    return model.config.get_text_config()


def _openai(config: Config, tokenizer: Tokenizer) -> Policy:
    from selfplay.policy.openai import OpenAIPolicy

    endpoint = _endpoint(config)
    return OpenAIPolicy(
        endpoint.url,
        model=endpoint.model,
        tokenizer=tokenizer,
        max_context=endpoint.context,
        max_rows=config.policy.max_rows,
        seconds=endpoint.seconds,
    )


def _endpoint(config: Config) -> Endpoint:
    """The endpoint; refused where something is to learn from it.

    Raises:
        UserError: no address is given, or something is to be learnt.
    """
    found = constants(Endpoint, config.policy.options, backend="openai")
    if not found.url.startswith(("http://", "https://")):
        raise UserError(
            "policy.backend is `openai`, and policy.options names no address",
            hint="-s 'policy.options={url = \"http://HOST:PORT/v1\"}'; its tokenizer is policy.model's",
        )
    if config.roles.train or config.warmup.steps or config.learner.kl:
        wants = "roles.train" if config.roles.train else "warmup.steps" if config.warmup.steps else "learner.kl"
        raise UserError(
            f"{wants} asks to learn, and what an endpoint samples cannot be learnt from: its weights are not the "
            "learner's, and its ids and log-probabilities are only as exact as it says",
            hint="collect only: -s 'roles.train=[]' -s warmup.steps=0 -s learner.kl=0; or learn with vLLM: "
            "-s policy.backend=vllm",
        )
    return Endpoint(**{**_values(found), "model": found.model or config.policy.model})


def constants(kind: type[T], values: Mapping[str, Any], *, backend: str) -> T:
    """The constants of a backend, each of the type of its default.

    Raises:
        UserError: there is no such constant, or it does not take such a value.
    """
    known = _values(kind())
    for name, value in values.items():
        if name not in known:
            raise UserError(
                f"policy.options names `{name}`, and the backend `{backend}` has no such constant",
                hint=f"{did_you_mean(name, known)}its constants: {', '.join(known)}",
            )
        default = known[name]
        number = isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool)
        wrong = type(value) is not type(default) and not number
        if wrong or (not isinstance(default, str) and not 0 <= value < float("inf")):
            raise UserError(
                f"policy.options sets `{name}` to {value!r}, and it takes {type(default).__name__}, as in {default!r}",
                hint="its value has TOML's syntax: -s 'policy.options={NAME = VALUE}'",
            )
    return kind(**values)


def _values(of: Any) -> dict[str, Any]:
    return {field.name: getattr(of, field.name) for field in fields(of)}


def tokenizer_of(name: str) -> Tokenizer:
    """The tokenizer of the model `name`: an alias, a folder, a Hugging Face id or `toy`.

    Raises:
        NotFound, NotReady: there is no such model, or it cannot be fetched.
    """
    if name == TOY:
        from selfplay.games.echo import CHARACTERS
        from selfplay.policy.toy import CharTokenizer

        return CharTokenizer(CHARACTERS)
    from selfplay.policy.models import resolve
    from selfplay.policy.tokenizer import HFTokenizer

    return HFTokenizer(resolve(name, cache=cache_folder()).folder)


def toy(config: Config) -> tuple[Any, Tokenizer]:
    """The toy model and its tokenizer, of the toy game's few characters; of another game's prompts it reads no more."""
    from selfplay.games.echo import CHARACTERS, MARK
    from selfplay.policy.toy import toy_model

    wide = _TOY_HIDDEN.get(config.policy.backend)
    options: dict[str, Any] = {"hidden": wide} if wide else {}
    if config.run.game != "echo":
        options |= {"context": _TOY_CONTEXT, "unknown": MARK}
    return toy_model(config.run.seed, alphabet=CHARACTERS, **options)


def spectator(config: Config) -> tuple[Spectator, Tokenizer]:
    """What stands in the learner's place where nothing is learnt, and the tokenizer of `policy.model`."""
    from selfplay.learner.spectator import Spectator

    return Spectator(), tokenizer_of(config.policy.model)
