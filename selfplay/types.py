"""The frozen records that every part of selfplay exchanges.

What is here: one record a noun (Seed, Task, Trajectory, Verdict, ...), the closed sets they use
(Stop, Stage, ...) and the two functions that make ids deterministic. Records are made by one stage,
appended to the ledger and never changed.

What is not here: behaviour. Nothing in this file reads a file, a clock or a random number, and it
imports the standard library only, so that any reader of a run can load it.

Example:
    >>> seed = Seed(id="s1", game="echo", source="echo:0", payload={"word": "ab"}, split="train")
    >>> seed.split
    'train'
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeVar, dataclass_transform

_T = TypeVar("_T")

Split = Literal["train", "held_out"]
"""Held-out is a property of the seed, fixed when the run is made."""

Side = Literal["proposer", "solver"]
Stage = Literal["propose", "attempt", "evaluate"]
"""What a trajectory was played for."""

VerdictStage = Literal["mint", "judge", "grade"]
"""Who decided: mint (is it a task?), judge (is the attempt right?), grade (what is the proposal worth?)."""

Phase = Literal["warmup", "play"]


def digest(*parts: object) -> str:
    """A 32-digit hexadecimal BLAKE2b digest of the canonical JSON of `parts`.

    Equal values give equal digests on every machine: keys are sorted, floats use `repr`.

    Raises:
        TypeError: a part is not JSON (numbers, strings, lists, string-keyed mappings, None).
    """
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def draw(*key: object) -> int:
    """A 63-bit integer keyed by `key`: the only source of randomness in a run.

    Every random draw is `draw(seed, step, stage, subject, index, ...)`, so there is no generator state to save.
    """
    return int(digest("draw", *key)[:16], 16) >> 1


class Stop(StrEnum):
    """Why a trajectory ended."""

    DONE = "done"
    """The policy ended its turn (end-of-sequence token or stop string) and the role asked for no more; with tools: it
    handed something over, or gave a reply without a call where its form of calls takes that for the last."""
    MALFORMED = "malformed"
    """Several replies in a row held no call that could be carried out: the policy's own doing, so not truncated."""
    TOKENS = "tokens"
    """The reply reached `Limits.tokens`: truncated."""
    OUTPUT = "output"
    """All replies together reached `Limits.output`: truncated."""
    CONTEXT = "context"
    """The whole reached the model's context window or `Limits.context`: truncated."""
    TURNS = "turns"
    """The last reply that `Limits.turns` allows ended nothing: truncated."""
    SECONDS = "seconds"
    """Sampling and tools took `Limits.seconds`: truncated."""
    FAULT = "fault"
    """Something other than the policy broke; `Trajectory.fault` names it. Never carries a reward."""

    @property
    def truncated(self) -> bool:
        """True where a limit, not the policy, ended the trajectory."""
        return self in (Stop.TOKENS, Stop.OUTPUT, Stop.CONTEXT, Stop.TURNS, Stop.SECONDS)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(cls: type[_T]) -> type[_T]:
    """The decorator of every record: frozen, slotted, keyword-only."""
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


@record
class Seed:
    """Where a proposal starts: a function of a package, a passage of a corpus, a toy word."""

    id: str
    """Digest of game, source and payload: the same seed has the same id in every run."""
    game: str
    """Name of the game it belongs to."""
    source: str
    """Where it lies, for people: `pypi:toolz==1.2.0:toolz/itertoolz.py::groupby`."""
    payload: Mapping[str, Any]
    """What the game needs to play it; JSON."""
    split: Split
    """`held_out` seeds are never proposed from for training."""


@record
class Task:
    """Something to solve, minted from a proposal. Same content, same task."""

    id: str
    """Digest of the run's configuration, the game and `key`."""
    game: str
    seed_id: str
    key: str
    """What copies of one task share (`games.duplicates`): for code the function, the places in it that change, the
    failing tests and the change without layout, comments and names of locals."""
    payload: Mapping[str, Any]
    """For the judge and for the solver's view; JSON."""
    split: Split
    """Inherited from the seed."""
    step: int
    """The step that minted it."""
    parent_id: str | None = None
    """The proposal (trajectory) that minted it, or the failed attempt that it is a child of; None for a given task."""


@record
class ToolCall:
    """One call of a tool inside a turn."""

    name: str
    arguments: Mapping[str, Any]
    result: str
    exit_code: int | None
    seconds: float


@record
class Turn:
    """One stretch of tokens by one speaker. A trajectory's token ids are its turns' ids, concatenated."""

    speaker: Literal["prompt", "policy", "tool"]
    token_ids: tuple[int, ...]
    """The record; text is derived from it."""
    logprobs: tuple[float, ...] = ()
    """Natural-log probability of each id under the sampling temperature; empty unless the policy sampled this turn, and
    where an endpoint did not say them: nothing is learnt from such a turn."""
    text: str = ""
    """The decoded ids, for games and views."""
    calls: tuple[ToolCall, ...] = ()

    @property
    def sampled(self) -> bool:
        """True where the policy made these tokens, so that they carry loss."""
        return self.speaker == "policy"


@record
class Fault:
    """Something that broke without deciding anything about the policy: no reward follows from it."""

    culprit: Literal["policy", "sandbox", "game", "role", "machine"]
    """The party responsible."""
    where: str
    """The component and call, e.g. `sandbox.create`."""
    message: str
    """One sentence."""
    detail: str = ""
    """Traceback or output tail."""


@record
class Result:
    """What one command in a sandbox did."""

    exit_code: int | None
    """None where the process had no exit of its own (killed by the limit)."""
    stdout: str
    stderr: str
    seconds: float
    """Wall-clock seconds."""
    timed_out: bool = False
    oom_killed: bool = False
    stdout_dropped: int = 0
    """Bytes cut from the middle of stdout."""
    stderr_dropped: int = 0
    """Bytes cut from the middle of stderr."""


@record
class Trajectory:
    """One role played once on one subject."""

    id: str
    """`play_id(...)`: the same in an interrupted and an uninterrupted run."""
    step: int
    stage: Stage
    role: str
    """Name of the role."""
    subject_id: str
    """Id of the seed (propose) or the task (attempt, evaluate)."""
    index: int
    """Position among the siblings on the same subject, 0-based."""
    attempt: int = 0
    """0, or how many earlier tries ended in a fault (each is a row of its own)."""
    turns: tuple[Turn, ...]
    stop: Stop
    policy_version: tuple[int, int]
    """Lowest and highest version of the weights that sampled it."""
    fault: Fault | None = None
    product: Mapping[str, Any] = field(default_factory=dict)
    """What the policy handed over with a tool, JSON; empty where nothing was."""
    seconds: float = 0.0
    """Wall-clock seconds, sampling and tools."""

    @property
    def group_id(self) -> str:
        """Shared by the siblings whose rewards are compared."""
        return digest("group", self.step, self.stage, self.role, self.subject_id)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Every id, prompt and tools included, in order."""
        return tuple(i for turn in self.turns for i in turn.token_ids)

    @property
    def reply(self) -> str:
        """Text of the last sampled turn; empty where nothing was sampled."""
        return next((turn.text for turn in reversed(self.turns) if turn.sampled), "")

    @property
    def num_sampled(self) -> int:
        """How many tokens the policy made."""
        return sum(len(turn.token_ids) for turn in self.turns if turn.sampled)


@record
class Verdict:
    """What a verifier decided about one trajectory."""

    trajectory_id: str
    stage: VerdictStage
    """A proposal gets a `mint` and, once its task was played, a `grade`; an attempt gets a `judge`, and a `mint` where
    it failed and a later step chose it for a child."""
    valid: bool
    """Is the reply inside the rules of the game? For `mint`: did it become a task?"""
    passed: bool | None
    """For `judge`: solved or not; None where nothing was decided."""
    reward: float | None
    """None where nothing was decided: no sample, excluded from group statistics. Never 0 for a fault."""
    reason: str
    """A code from the game's closed list, e.g. `tests_still_pass`."""
    why: str
    """One sentence that a person can read."""
    task_id: str | None = None
    """The task a `mint` made or found."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """The reward's named parts, e.g. `solve_rate`."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """What the decision rests on: test names, messages, exit codes; JSON."""
    fault: Fault | None = None
    """Why nothing was decided."""
    seconds: float = 0.0
    """Wall-clock seconds that deciding took, waits for a sandbox included; 0 for a `grade`, which only counts."""


@record
class Group:
    """Plays whose rewards are compared: attempts on one task, proposals on one seed, or proposals of one cell."""

    id: str
    step: int
    role: str
    subject_id: str
    """The task, the seed, or `cell:STRATEGY/HOP`."""
    trajectory_ids: tuple[str, ...]
    rewards: tuple[float, ...]
    """One a member, all decided."""
    advantages: tuple[float, ...]
    """As used by the update; zeros where the group is not informative."""
    informative: bool
    """False where it teaches nothing: no variance (a group of one has none), and no advantage but 0."""


@record
class Sample:
    """One trajectory as the learner sees it."""

    trajectory_id: str
    role: str
    group_id: str
    token_ids: tuple[int, ...]
    """Prompt, tools and replies, in order."""
    trained: tuple[bool, ...]
    """One a token: True where it carries loss."""
    sampler_logprobs: tuple[float, ...]
    """One a token, 0.0 where it was not sampled."""
    advantage: float
    token_advantages: tuple[float, ...] = ()
    """One a trained token, in the place of `advantage`; empty where every token has that."""


@record
class Batch:
    """All that one update learns from, in a fixed order."""

    step: int
    phase: Phase
    samples: tuple[Sample, ...]
    temperature: float
    """The sampling temperature, applied to the learner's logits as well."""


@record
class Example:
    """A supervised pair for the warm-up: one prompt and the replies that are right for it."""

    role: str
    source: str
    """Where it came from, for people."""
    prompt: str
    """Rendered text of the prompt."""
    replies: tuple[str, ...]
    template: Literal["plain", "chat"] = "plain"
    """How the prompt is encoded: the role's, so that what is taught is what is played."""


@record
class Update:
    """One change of the weights, with all that its re-application needs."""

    step: int
    """Training step; for the warm-up the index of the update, 0-based."""
    phase: Phase
    policy_version: int
    """Version of the weights after it."""
    trajectory_ids: tuple[str, ...]
    """In the learner's order; for the warm-up the digests of the examples."""
    advantages: tuple[float, ...]
    """One a trajectory, as used."""
    partition: tuple[tuple[int, ...], ...]
    """Micro-batches, as positions in `trajectory_ids`."""
    old_logprobs: tuple[tuple[float, ...], ...]
    """Learner log-probabilities of the trained tokens before the step, a tuple each; empty for the warm-up."""
    lr: float
    weights_digest: str
    """Digest of the float32 parameters after it."""
    reference_digest: str | None
    """Digest of the KL reference's parameters, where one is used."""
    fingerprint: str
    """Versions, CPU capability, threads and dtype: equal fingerprints re-apply to equal digests."""
    loss: float
    grad_norm: float
    tokens: int
    """Trained tokens."""
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Per role and overall: entropy, clip fraction, KL to the sampler, learner/sampler ratio, ..."""
    skipped: str | None = None
    """Why the step closed without changing the weights; None where it did change them."""


@record
class Save:
    """Weights, optimizer moments and counters on disk. Valid only once its row exists."""

    phase: Phase
    step: int
    """Last update it contains (-1: none)."""
    policy_version: int
    path: str
    """Relative to the run's folder, or absolute for the shared cache."""
    weights_digest: str
    state_digest: str
    """Digest of optimizer moments and counters."""
    num_bytes: int


@record
class Limits:
    """What one play of a role may use."""

    turns: int = 1
    """Replies."""
    tokens: int = 64
    """Sampled tokens a turn."""
    context: int = 131_072
    """Prompt, replies and answers of tools, in tokens; the policy's own limit holds as well."""
    output: int = 131_072
    """Sampled tokens of all turns together."""
    seconds: float = 600.0
    """Spent in sampling and in tools; waiting for a place is free. Of plays with tools only."""


@record
class Sampling:
    """How a role's tokens are drawn."""

    temperature: float = 1.0
    max_tokens: int = 64
    stop: tuple[str, ...] = ()
    """The turn ends before the first of these strings; the tokens up to and including it are kept."""


@record
class Tools:
    """How a role uses tools."""

    names: tuple[str, ...] = ()
    """Those it may use, as the game calls them; none named: all that the game offers."""
    form: Literal["fenced", "json", "native", "tags"] = "fenced"
    """How calls are written, see `rollout.calls`."""
    renderer: Literal["auto", "chatml", "llama3", "plain"] = "auto"
    """Marks of the turns; `auto`: the tokenizer's chat template for `template = "chat"`, else plain text."""
    harness: tuple[str, ...] = ()
    """The command of a program that plays in the sandbox in place of these tools, see `doors.harness`."""


@record
class Role:
    """Who plays: read from `roles/NAME/role.toml` and `prompt.md`."""

    name: str
    game: str
    side: Side
    prompt: str
    """Jinja template; a missing variable is an error."""
    template: Literal["plain", "chat"] = "plain"
    """`plain`: the rendered prompt is the text; `chat`: it is a user message in the tokenizer's chat template."""
    limits: Limits = field(default_factory=Limits)
    sampling: Sampling = field(default_factory=Sampling)
    tools: Tools | None = None
    """None: one reply and no tools."""
    origin: str = ""
    """The folder it was read from."""


@record
class Choice:
    """What the curriculum plays next, committed before it is played."""

    step: int
    index: int
    mode: Literal["propose", "replay", "mutate"]
    subject_id: str
    """A seed (propose) or a task (replay, mutate)."""
    score: float
    why: str
    """One sentence that a person can read."""
    terms: Mapping[str, Any] = field(default_factory=dict)
    """What is asked beside the subject, e.g. `strategy`, `hint`, `level`; `curriculum` lists them. JSON."""


def play_id(
    config_digest: str, *, step: int, stage: Stage, role: str, subject_id: str, index: int, attempt: int
) -> str:
    """The id of a trajectory: the same for the same configuration and place, whatever the run is called.

    Its first four hexadecimal digits are the step.
    """
    known = digest("trajectory", config_digest, step, stage, role, subject_id, index, attempt)
    # note: plays of one step lie side by side in the ledger's indexes, or each would touch pages at random.
    return f"{step % 0x10000:04x}{known[4:]}"


def task_id(config_digest: str, *, game: str, key: str) -> str:
    """The id of a task: the same content in the same configuration is the same row."""
    return digest("task", config_digest, game, key)


def rewards_of(verdicts: Sequence[Verdict]) -> tuple[float, ...]:
    """The decided rewards, in order."""
    return tuple(v.reward for v in verdicts if v.reward is not None)
