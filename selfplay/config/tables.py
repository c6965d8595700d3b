"""Every setting of a run: its table, type, default and meaning. At most 78 keys, each owned by one component.

A key either affects results (it is part of the digest that guards resume) or it does not (it may change
between launches of one run); each says which.

Not here: where values come from (`config.layers`), whether a backend honours them (`build`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def key(default: Any, text: str, *, affects_results: bool = True, **bounds: Any) -> Any:
    """A setting: its default, its meaning in one sentence, and whether it is part of the digest."""
    return Field(default, description=text, json_schema_extra={"affects_results": affects_results}, **bounds)


Weight = Annotated[float, Field(ge=0.0)]
Names = Annotated[str, BeforeValidator(lambda given: "+".join(map(str, given)) if isinstance(given, tuple) else given)]
"""A name, or several with a plus between them; a list of them is taken as well."""
Options = dict[str, bool | int | float | str]
"""An inline table: what it may hold is checked by what it belongs to."""


class Table(BaseModel):
    """One table of the TOML file: frozen, and a key that is not declared is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Run(Table):
    """The run as a whole."""

    game: Names = key(
        "code", "What is played: `code`, `search`, `echo` or `module:class`; several with a plus: `code+search`."
    )
    shares: tuple[Weight, ...] = key(
        (), "How much of each step the games of a mix have, in their order, e.g. `[2, 1]`; none: equal shares."
    )
    seed: int = key(0, "Keys every random draw.", ge=0)
    cluster: Options = key(
        {},
        "What of the run is on a Ray cluster (of `RAY_ADDRESS`, else of this machine alone): the learner's other ranks "
        "and actors with sandboxes and samplers, `{sandboxes = N, engines = N}`; none: all is here.",
        affects_results=False,
    )
    steps: int = key(10, "Steps to play in all; more of them prolong a run.", affects_results=False, ge=0)
    staleness: int = key(
        0,
        "Steps that are played ahead of the one that is learnt from, by a sampler with a copy of the weights; 0: none.",
        ge=0,
    )
    save_every: int = key(1, "Steps between two saves of weights and optimizer.", affects_results=False, ge=1)
    keep_saves: int = key(
        2,
        "Newest saves that are kept on disk, beside the one whose next step solved most.",
        affects_results=False,
        ge=1,
    )


class Game(Table):
    """Where the game's seeds come from, and what a bug must reach."""

    source: str = key(
        "pypi:toolz==1.2.0",
        "`pypi:NAME==VERSION`, a git URL or a folder (relative to the project), of `code`; several with ` + ` between "
        "them: `pypi:toolz==1.2.0 + ./mine`.",
    )
    requirements: tuple[str, ...] = key(
        (), "What its tests require beside its own metadata, as pinned wheels, e.g. `hypothesis>=6`; of several, each."
    )
    max_lines: int = key(30, "Longest function that is played, in lines.", ge=1)
    held_out: float = key(0.3, "Share of the seeds that is never trained on.", ge=0.0, lt=1.0)
    corpus: str = key(
        "python-docs", "Corpus of `search`; another than `python-docs` is there before: `selfplay corpus add`."
    )
    answers: int = key(2000, "Answers that are drawn from the corpus: the seeds of `search`.", ge=2)
    options: Options = key(
        {},
        "Rules and checks of `search`, e.g. `{searches = 2, noise = 1, closed_book = false}`; how seeds of `code` are "
        "split: `{split = 'module', distinct = true}`.",
    )
    hidden_share: float = key(
        0.0, "Share of a task's failing tests that decide and that a solver with tools is not told of.", ge=0.0, lt=1.0
    )
    min_passing_tests: int = key(
        0, "A bug counts where more than this many tests of the suite are stable on the clean tree.", ge=0
    )
    min_changed_files: int = key(1, "Fewest code files that a bug changes; a single edit changes one.", ge=1)
    min_failing_tests: int = key(1, "Fewest stable tests that a bug makes fail.", ge=1)
    max_broken_share: float = key(
        0.5, "Largest share of the suite's stable tests that a bug may break; 20 of them it always may.", gt=0.0, le=1.0
    )


class Curriculum(Table):
    """What is played next."""

    choose: str = key(
        "uniform",
        "What picks the next: `uniform`, `frontier`, `ssr`, `ssp`, `ladder`, `bandit`, `given`, or `module:function`.",
    )
    options: Options = key({}, "Options of what `curriculum.choose` names, e.g. `{replay = 0.3}`.")
    seeds: int = key(2, "Seeds a step.", ge=1)


class Roles(Table):
    """Who plays, and who learns."""

    proposer: Names = key("injector", "Folder under roles/ that makes tasks; in a mix one for each game, with a plus.")
    solver: Names = key("repairer", "Folder under roles/ that solves them; in a mix one for each game, with a plus.")
    train: tuple[Literal["proposer", "solver"], ...] = key(
        ("proposer", "solver"), "Sides whose replies are learnt from."
    )
    weights: tuple[Weight, Weight] | Literal["pooled"] = key(
        (0.5, 0.5),
        "Weight of the proposer's and the solver's mean token loss; `pooled`: one mean over the tokens of both.",
    )


class Play(Table):
    """How much is played a step."""

    proposals: int = key(4, "P: proposals a seed; they form one group.", ge=1)
    attempts: int = key(8, "G: attempts a task; they form one group.", ge=1)
    min_viable: int = key(6, "Fewest decided attempts from which a proposal is paid.", ge=1)
    min_groups: int = key(1, "Fewest informative groups for an update.", ge=1)
    refills: int = key(1, "Rounds of new proposals where a step has fewer.", ge=0)
    tries: int = key(
        3, "Most tries of a verdict where the machine, not the policy, fails.", affects_results=False, ge=1
    )
    temperature: Annotated[float, Field(gt=0.0)] | None = key(
        None, "Sampling temperature of both roles; unset: theirs."
    )


class Policy(Table):
    """How tokens are sampled."""

    backend: Literal["local", "vllm", "openai", "tinker"] = key(
        "local",
        "`local` samples in torch from the learner's own weights, `vllm` from a copy in an engine of its own; "
        "`openai` asks an endpoint, from which nothing is learnt; `tinker` learns and samples at a server.",
    )
    options: Options = key(
        {},
        "Constants of `policy.backend`, e.g. `{python = 'ENV/bin/python'}` for `vllm`, `{url = 'http://HOST/v1'}` for "
        "`openai`, `{url = 'http://HOST'}` for `tinker`.",
        affects_results=False,
    )
    model: str = key("smollm2-135m", "An alias, a Hugging Face id or a folder; `toy` is a two-layer random one.")
    max_rows: int = key(32, "Replies sampled at the same time.", affects_results=False, ge=1)
    threads: int = key(0, "Threads of torch; 0: one a core.", affects_results=False, ge=0)


class Sandbox(Table):
    """How commands are isolated."""

    kind: Literal["auto", "docker", "bubblewrap", "local"] = key(
        "auto",
        "`auto`: Docker where an engine answers, else bubblewrap; `local` isolates nothing.",
        affects_results=False,
    )
    workers: int = key(0, "Sandboxes at the same time; 0: one a core.", affects_results=False, ge=0)
    timeout_seconds: float = key(60.0, "Longest test run.", gt=0.0)


class Warmup(Table):
    """Supervised updates before self-play, on procedurally made examples."""

    steps: int = key(0, "Most updates; it ends earlier once the dev set says so. 0: none.", ge=0)
    examples: int = key(8, "Examples an update.", ge=1)
    lr: float = key(1e-4, "Peak learning rate.", gt=0.0)
    check_every: int = key(50, "Updates between two looks at the dev set; 0: one at the end.", ge=0)
    cache: bool = key(
        True,
        "Keep the warmed weights for later runs of equal settings, whose ledgers have no looks at the dev set.",
        affects_results=False,
    )


class Learner(Table):
    """How verdicts become weights."""

    lr: float = key(1e-6, "Learning rate of AdamW.", gt=0.0)
    weight_decay: float = key(0.0, "Decoupled weight decay.", ge=0.0)
    dtype: Literal["bfloat16", "float32"] = key("bfloat16", "Type of the forward pass; parameters stay float32.")
    estimator: str = key(
        "grpo",
        "Advantages: `grpo`, `dr_grpo`, `rloo`, `batch_std`, `dr_mas`, `spiral`, `raw`, or `module:function`; two with "
        "a comma are the proposer's and the solver's.",
    )
    loss: str = key(
        "token_mean",
        "`token_mean`, `sequence_mean`, `dr_grpo`, `dual_clip`, `gspo`, `cispo`, or `module:function`.",
    )
    clip_low: float = key(0.2, "The probability ratio is clipped below 1 - this.", ge=0.0, le=1.0)
    clip_high: float = key(0.28, "The probability ratio is clipped above 1 + this.", ge=0.0)
    kl: float = key(0.0, "Weight of the divergence from the post-warm-up weights; 0: none.", ge=0.0)
    kl_estimator: Literal["k1", "k2", "k3"] = key("k3", "How that divergence is estimated.")
    correction: Literal["auto", "none", "token_truncated", "sequence_truncated", "icepop", "sequence_masked"] = key(
        "auto",
        "Importance weights for a sampler whose probabilities differ from the learner's; `auto`: `token_truncated` "
        "where the sampler has a copy of the weights, else none.",
    )
    optimizer: Literal["adamw", "adamw8bit"] = key("adamw", "`adamw8bit` keeps moments in 8 bits.")
    credit: Literal["play", "gain"] = key(
        "play",
        "What a solver's replies are credited with: all with their play's advantage, or each with how much likelier it "
        "made the known answer (`search`, roles with tools).",
    )
    order: Literal["joint", "solver_first", "proposer_first"] = key(
        "joint", "Which side's replies are learnt from first in a step; `joint`: one update from those of both."
    )
    ramp: int = key(0, "Updates of play over which the learning rate rises.", ge=0)
    lora_rank: int = key(
        0,
        "Rank of the adapters that are trained, which want about ten times the `learner.lr` and `warmup.lr` that suit "
        "all weights; 0: all weights are.",
        ge=0,
    )
    lora_per_role: bool = key(
        False, "Each role has adapters of its own over the one base; what one learns leaves the others' as they are."
    )
    max_grad_norm: float = key(1.0, "The gradient's norm is clipped to this.", gt=0.0)
    token_budget: int = key(4096, "Tokens a micro-batch.", ge=64)
    ranks: int = key(
        1,
        "Processes on this machine that hold a part of the weights each and learn together (CPU, FSDP2).",
        affects_results=False,
        ge=1,
    )
    memory_mb: int = key(
        0,
        "Memory that learner and sampler may use: layers are computed again where they would need more, and what "
        "cannot fit is refused. 0: half of the machine's, of a card nine tenths of what is free, nothing refused.",
        affects_results=False,
        ge=0,
    )


class Rewards(Table):
    """What a verdict is worth."""

    proposer: str = key(
        "ssr",
        "Worth of a proposal: `ssr`, `ssp`, `azr`, `rzero`, `spice`, `drzero`, `learnability`, `hint_regret`, "
        "or `module:function`.",
    )
    options: Options = key({}, "Constants of `rewards.proposer`, e.g. `{invalid = 0}`.")
    solver: str = key("plus_minus_one", "Worth of an attempt: `plus_minus_one`, `zero_one`, or `module:function`.")
    alpha: float = key(0.8, "SSR's penalty for a task that none or all of the attempts solve.", ge=0.0)
    novelty: float = key(0.0, "Where a step holds copies of one task, each loses this x (copies - 1) / P.", ge=0.0)


class Eval(Table):
    """How the held-out seeds are looked at while the run plays."""

    every: int = key(0, "Steps between two evaluations on held-out seeds; 0: none.", ge=0)
    tasks: int = key(16, "Held-out tasks, each a procedural one, and as many held-out seeds to propose on.", ge=1)
    attempts: int = key(4, "Attempts a task: k of pass@k.", ge=1)


class Alarms(Table):
    """What is watched, beside what always stops a run: numbers that are not finite."""

    stop: tuple[str, ...] = key(
        ("agreement",), "Alarms that end the run; the others warn. Names: `selfplay ls alarms`.", affects_results=False
    )
    agreement: float = key(
        0.25, "Largest mean difference of sampler's and learner's log-probabilities on the probe.", gt=0.0
    )
    entropy_floor: float = key(0.05, "A role's mean entropy below this is an alarm, in nats.", ge=0.0)
