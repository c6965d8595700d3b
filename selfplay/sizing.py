"""What fits on which device: memory of learner and sampler by kind, and the sizes that follow from it.

Where there are cards the learner has the first (`learner.placing`) and an engine each of the others; on a single one an
engine has to sleep while the learner works where both do not fit. Without cards, learner and engine share the machine's
memory; a learner of several processes is there too, and the engines have all cards. The learner's part is
`learner.forecast`'s; an engine has the weights once more, keys and values, and what vLLM itself takes. Engines on the
nodes of a cluster are not planned: what the nodes have is seen there.

Picked are: engines (`policy.options.replicas`), the room of each for keys and values (`kv_gb`), the largest micro-batch
(`learner.token_budget`), sleep mode. They are said, never set: what a run does stands in its settings.

Not measured here: anything on a card. `python -m tests.gpu` compares the prediction with a card.

Sizes are in MB of 10^6 bytes where a name says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from selfplay import elsewhere, parts
from selfplay.cache import cache_folder
from selfplay.config import Config
from selfplay.config.scales import ORIGIN, SCALES
from selfplay.learner import memory
from selfplay.policy.cards import ENGINE_MB, USED, learner_has_one
from selfplay.policy.cards import cards as cards
from selfplay.policy.models import described
from selfplay.types import Role, record
from selfplay.views.plan import PlanRow

BUDGETS = (1024, 2048, 4096, 8192, 16_384, 32_768, 65_536)
"""Token budgets that are tried."""
LEAST_KEYS_MB = 256.0
"""Below this for keys and values an engine is of no use."""
GIB = float(1 << 30) / memory.MB
"""MB of a GiB."""


@record
class Device:
    """Memory that something can be put into."""

    name: str
    limit_mb: float
    """What of it is planned with."""
    card: bool = False


@record
class Needs:
    """What a run's model and settings ask for."""

    learner: Callable[[int, float], Mapping[str, float]]
    """(token budget, limit in MB) -> MB by kind, activations among them, without a sampler's cache."""
    engine_mb: float
    """Of an engine without its keys and values; 0: the sampler shares the learner's weights, or is elsewhere."""
    weights_mb: float
    """Of them the weights."""
    keys_mb: float
    """Keys and values of all replies that may be in flight at once."""


@record
class Load:
    """What lies on one device."""

    device: Device
    kinds: Mapping[str, float]
    """MB by kind."""

    @property
    def total_mb(self) -> float:
        """Of all kinds."""
        return sum(self.kinds.values())


@record
class Sizes:
    """What was picked."""

    loads: tuple[Load, ...]
    replicas: int
    """Engines here; 0: the sampler shares the learner's weights, or is elsewhere."""
    keys_mb: float
    """For keys and values, an engine (or the sampler's cache)."""
    token_budget: int
    sleep: bool
    """Must an engine sleep while the learner works?"""
    fits: bool


def devices(config: Config) -> tuple[Device, ...]:
    """Where the learner is, then where only engines are."""
    own = Device(name="memory", limit_mb=memory.limit_mb(config.learner.memory_mb))
    there, engines = on_cards(), config.policy.backend == "vllm" and not elsewhere.engines(config)
    if there and learner_has_one(ranks=config.learner.ranks):
        first = replace(there[0], limit_mb=memory.limit_mb(config.learner.memory_mb, card_mb=there[0].limit_mb))
        return (first, *there[1:]) if engines else (first,)
    return (own, *there) if engines else (own,)


def on_cards() -> tuple[Device, ...]:
    """The cards, as something to plan with."""
    return tuple(Device(name=name, limit_mb=USED * mb, card=True) for name, mb in cards())


def pick(needs: Needs, where: Sequence[Device]) -> Sizes:
    """The sizes for these devices, of which there is at least one."""
    first, others = where[0], where[1:]
    if not needs.engine_mb:
        return _in_process(needs, first)
    if others:
        budget, kinds = _largest(needs, first, taken_mb=0.0)
        room = min(device.limit_mb for device in others) - needs.engine_mb
        keys = max(0.0, min(room, needs.keys_mb / len(others)))
        loads = [Load(device=first, kinds=kinds)]
        loads += [Load(device=device, kinds=_engine(needs, keys)) for device in others]
        fits = sum(kinds.values()) <= first.limit_mb and keys >= min(LEAST_KEYS_MB, needs.keys_mb)
        return Sizes(
            loads=tuple(loads), replicas=len(others), keys_mb=keys, token_budget=budget, sleep=False, fits=fits
        )
    return _together(needs, first)


def _in_process(needs: Needs, device: Device) -> Sizes:
    budget, kinds = _largest(needs, device, taken_mb=needs.keys_mb)
    kinds = {**kinds, "keys and values": needs.keys_mb}
    fits = sum(kinds.values()) <= device.limit_mb
    load = Load(device=device, kinds=kinds)
    return Sizes(loads=(load,), replicas=0, keys_mb=needs.keys_mb, token_budget=budget, sleep=False, fits=fits)


def _together(needs: Needs, device: Device) -> Sizes:
    """Learner and one engine on one device: at the same time where they fit, else in turns."""
    least = sum(needs.learner(BUDGETS[0], device.limit_mb - needs.engine_mb).values())
    room = device.limit_mb - needs.engine_mb - least
    enough = min(LEAST_KEYS_MB, needs.keys_mb)
    sleep = room < enough
    if sleep:
        keys = max(0.0, min(needs.keys_mb, device.limit_mb - needs.engine_mb))
        budget, kinds = _largest(needs, device, taken_mb=0.0)
        fits = device.card and keys >= enough and sum(kinds.values()) <= device.limit_mb
    else:
        keys = min(needs.keys_mb, room)
        budget, kinds = _largest(needs, device, taken_mb=needs.engine_mb + keys)
        fits = True
    both = dict(kinds)
    for kind, mb in _engine(needs, keys).items():
        both[kind] = both.get(kind, 0.0) + mb
    load = Load(device=device, kinds=both)
    return Sizes(loads=(load,), replicas=1, keys_mb=keys, token_budget=budget, sleep=sleep, fits=fits)


def _largest(needs: Needs, device: Device, *, taken_mb: float) -> tuple[int, Mapping[str, float]]:
    """The largest token budget that fits beside what is taken, and what the learner needs with it; else the least."""
    limit = device.limit_mb - taken_mb
    for budget in reversed(BUDGETS):
        kinds = needs.learner(budget, limit)
        if sum(kinds.values()) <= limit or budget == BUDGETS[0]:
            return budget, kinds
    raise AssertionError("there is a least budget")


def _engine(needs: Needs, keys_mb: float) -> dict[str, float]:
    libraries = needs.engine_mb - needs.weights_mb
    return {"weights": needs.weights_mb, "keys and values": keys_mb, "libraries": libraries}


def needs_of(config: Config, players: parts.Players) -> Needs | None:
    """What the settings ask for; None where the model is not known or not counted."""
    settings = described(config.policy.model, cache=cache_folder()) if config.policy.model != parts.TOY else None
    shape = memory.shape_of(settings) if settings is not None else None
    if shape is None:
        return None
    size = memory.SIZES[config.learner.dtype]
    weights, copied = size * shape.parameters / memory.MB, config.policy.backend == "vllm"
    away = elsewhere.engines(config) > 0
    tokens = config.policy.max_rows * min(shape.context, max(map(_row, players.everybody)))
    if not copied:
        tokens = min(tokens, memory.CACHE_TOKENS) * max(1, len(parts.own_adapters(config, players)))
    return Needs(
        learner=lambda budget, limit: _learner(config, players, shape, budget=budget, limit_mb=limit),
        engine_mb=weights + ENGINE_MB if copied and not away else 0.0,
        weights_mb=weights,
        keys_mb=0.0 if away else tokens * 2 * shape.layers * shape.kv_heads * shape.head_size * size / memory.MB,
    )


def _row(role: Role) -> int:
    """Tokens of a play at its longest; with tools the prompt is counted already."""
    return parts._longest(role) + (_PROMPT if role.tools is None else 0)


_PROMPT = 512
"""Tokens that are assumed of every prompt, as `learner.forecast` does."""
_SEEDS = 4
"""Seeds of the step that is laid out: more of them change no micro-batch."""

_KINDS = {
    "Python and libraries": "libraries",
    "parameters": "weights",
    "gradients": "optimizer",
    "moments": "optimizer",
    "reference": "weights",
    "activations": "activations",
    "probabilities of trained tokens": "activations",
}


def _learner(
    config: Config, players: parts.Players, shape: memory.Shape, *, budget: int, limit_mb: float
) -> Mapping[str, float]:
    """MB by kind of the learner alone, with layers computed again where `limit_mb` asks for it."""
    learner = config.learner.model_copy(update={"token_budget": budget, "memory_mb": max(1, int(limit_mb))})
    step = config.curriculum.model_copy(update={"seeds": min(_SEEDS, config.curriculum.seeds)})
    found = parts.forecast_of(config.model_copy(update={"learner": learner, "curriculum": step}), players, shape)
    kinds: dict[str, float] = {}
    for name, mb in (*found.fixed.items(), *found.update.items()):
        kind = _KINDS.get(name, "weights")
        if name != "sampler's cache":
            kinds[kind] = kinds.get(kind, 0.0) + mb
    return kinds


def rows(config: Config, players: parts.Players) -> Iterator[PlanRow]:
    """The plan's lines: the scale, each device, what was picked."""
    used = next((origin for origin in config.provenance.values() if origin.startswith(ORIGIN)), "")
    if used:
        scale = SCALES[used.removeprefix(ORIGIN)]
        note = "" if scale.tested else "untested: no such machine has run it"
        yield PlanRow(section="sizing", name=used.removeprefix("--"), value=scale.words, note=note)
    needs = needs_of(config, players) if config.policy.backend not in ("openai", "tinker") else None
    if needs is None:
        return
    found = pick(needs, devices(config))
    for load in found.loads:
        kinds = ", ".join(f"{kind} {mb:.0f}" for kind, mb in load.kinds.items())
        note = f"{load.total_mb:.0f} of {load.device.limit_mb:.0f} MB, in which it is planned"
        yield PlanRow(section="sizing", name=load.device.name, value=f"{kinds} MB", note=note)
    yield PlanRow(section="sizing", name="token budget", value=_budget(found, config), note="learner.token_budget")
    if found.replicas:
        engines = f"{found.replicas} with {found.keys_mb / GIB:.1f} GiB each for keys and values are enough here"
        options = config.policy.options
        note = f"set: {options.get('replicas', 1)} with {options.get('kv_gb', 1.0):g} GiB (policy.options)"
        yield PlanRow(section="sizing", name="engines", value=engines, note=note)
    yield PlanRow(section="sizing", name="verdict", value=_verdict(found))


def _budget(found: Sizes, config: Config) -> str:
    asked = config.learner.token_budget
    return f"up to {found.token_budget} fits" + (f", and {asked} is set" if asked > found.token_budget else "")


def _verdict(found: Sizes) -> str:
    """In one sentence."""
    if not found.fits:
        return "it does not fit: a smaller policy.model, learner.lora_rank = 8, or learner.optimizer = adamw8bit"
    if found.sleep:
        return "it fits in turns only: the engine must sleep while the learner works (policy.options: sleep = true)"
    return "it fits" + (", learner and engine at the same time; no sleep mode is needed" if found.replicas else "")
