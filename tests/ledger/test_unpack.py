"""Any record comes back equal."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from selfplay.types import Choice, Fault, Group, Save, Seed, Stop, Task, ToolCall, Trajectory, Turn, Update, Verdict

WORDS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=40)
REALS = st.floats(allow_nan=False)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
INTS = st.integers(-(2**63), 2**63 - 1)
IDS = st.lists(st.integers(0, 2**31 - 1), max_size=8).map(tuple)
JSON = st.recursive(
    st.none() | st.booleans() | INTS | FINITE | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
PAYLOADS = st.dictionaries(WORDS, JSON, max_size=3)
MEASURES = st.dictionaries(WORDS, FINITE, max_size=3)
FAULTS = st.none() | st.builds(
    Fault, culprit=st.sampled_from(("policy", "machine")), where=ANY_TEXT, message=ANY_TEXT, detail=ANY_TEXT
)
CALLS = st.builds(
    ToolCall, name=WORDS, arguments=PAYLOADS, result=ANY_TEXT, exit_code=st.none() | st.integers(-9, 255), seconds=REALS
)
SPLITS = st.sampled_from(("train", "held_out"))
SEEDS = st.builds(Seed, id=WORDS, game=WORDS, source=WORDS, payload=PAYLOADS, split=SPLITS)


@st.composite
def turns(draw) -> Turn:
    ids = draw(IDS)
    logprobs = draw(st.lists(REALS, min_size=len(ids), max_size=len(ids)).map(tuple) | st.just(()))
    speaker = draw(st.sampled_from(("prompt", "policy", "tool")))
    calls = tuple(draw(st.lists(CALLS, max_size=2)))
    return Turn(speaker=speaker, token_ids=ids, logprobs=logprobs, text=draw(ANY_TEXT), calls=calls)


TRAJECTORIES = st.builds(
    Trajectory,
    id=WORDS,
    step=st.integers(0, 9),
    stage=st.sampled_from(("propose", "attempt", "evaluate")),
    role=WORDS,
    subject_id=WORDS,
    index=INTS,
    attempt=INTS,
    turns=st.lists(turns(), max_size=3).map(tuple),
    stop=st.sampled_from(Stop),
    policy_version=st.tuples(INTS, INTS),
    fault=FAULTS,
    product=PAYLOADS,
    seconds=REALS,
)
VERDICTS = st.builds(
    Verdict,
    trajectory_id=st.just("t"),
    stage=st.sampled_from(("mint", "judge", "grade")),
    valid=st.booleans(),
    passed=st.none() | st.booleans(),
    reward=st.none() | REALS,
    reason=WORDS,
    why=WORDS,
    task_id=st.none(),
    parts=MEASURES,
    evidence=PAYLOADS,
    fault=FAULTS,
    seconds=REALS,
)
UPDATES = st.builds(
    Update,
    step=INTS,
    phase=st.just("warmup"),
    policy_version=INTS,
    trajectory_ids=st.lists(WORDS, max_size=4).map(tuple),
    advantages=st.lists(REALS, max_size=4).map(tuple),
    partition=st.lists(st.lists(st.integers(0, 9), max_size=3).map(tuple), max_size=3).map(tuple),
    old_logprobs=st.lists(st.lists(REALS, max_size=4).map(tuple), max_size=4).map(tuple),
    lr=REALS,
    weights_digest=WORDS,
    reference_digest=st.none() | WORDS,
    fingerprint=WORDS,
    loss=REALS,
    grad_norm=REALS,
    tokens=INTS,
    seconds=REALS,
    metrics=MEASURES,
    skipped=st.none() | WORDS,
)


@st.composite
def groups(draw) -> Group:
    rewards = draw(st.lists(FINITE, max_size=3).map(tuple))
    advantages = draw(st.lists(FINITE, min_size=len(rewards), max_size=len(rewards)).map(tuple))
    fields = {"role": draw(WORDS), "subject_id": draw(WORDS), "informative": draw(st.booleans())}
    ids = ("t",) * len(rewards)
    return Group(id="g", step=0, trajectory_ids=ids, rewards=rewards, advantages=advantages, **fields)


EXAMPLES = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
NUMBERS = itertools.count()
"""Keeps the examples apart: they share one ledger, since making one costs several syncs of the disk."""


@EXAMPLES
@given(seed=SEEDS, trajectories=st.lists(TRAJECTORIES, max_size=3, unique_by=lambda t: t.id))
def test_seeds_and_trajectories(ledger, seed, trajectories):
    number = next(NUMBERS)
    seed = replace(seed, id=f"{number} {seed.id}")
    trajectories = [replace(trajectory, id=f"{number} {trajectory.id}") for trajectory in trajectories]
    ledger.append(seed, *trajectories)
    ledger.append(*trajectories)
    assert ledger.seed(seed.id) == seed
    assert ledger.trajectories_by_id(t.id for t in trajectories) == {t.id: t for t in trajectories}
    ledger.flush()


@EXAMPLES
@given(verdicts=st.lists(VERDICTS, max_size=3, unique_by=lambda v: v.stage), update=UPDATES, group=groups())
def test_verdicts_updates_and_groups(ledger, make, verdicts, update, group):
    number = next(NUMBERS)
    trajectory_id = f"{number} t"
    verdicts = [replace(verdict, trajectory_id=trajectory_id) for verdict in verdicts]
    group = replace(group, id=f"{number} g", step=number, trajectory_ids=(trajectory_id,) * len(group.rewards))
    update = replace(update, step=number)
    ledger.append(make.play(id=trajectory_id), *verdicts, group)
    ledger.record_update(update)
    assert {v.stage: v for v in ledger.verdicts_of(trajectory_id)} == {v.stage: v for v in verdicts}
    assert ledger.update(number, "warmup") == update
    assert ledger.groups_of(trajectory_id) == ((group,) if group.trajectory_ids else ())
    assert ledger.groups(number) == (group,)
    ledger.flush()


@EXAMPLES
@given(data=st.data())
def test_choices_tasks_and_saves(ledger, make, data):
    number = next(NUMBERS)
    words = {name: data.draw(WORDS) for name in ("subject_id", "why")}
    mode = data.draw(st.sampled_from(("propose", "replay", "mutate")))
    choice = Choice(step=number, index=data.draw(INTS), mode=mode, score=data.draw(REALS), **words)
    task = Task(
        id=f"{number}",
        **{name: data.draw(WORDS) for name in ("game", "key")},
        **{"seed_id": "s0", "payload": data.draw(PAYLOADS), "split": data.draw(SPLITS), "step": data.draw(INTS)},
    )
    numbers = {name: data.draw(INTS) for name in ("step", "policy_version", "num_bytes")}
    digests = {name: data.draw(WORDS) for name in ("weights_digest", "state_digest")}
    save = Save(phase="play", path=f"{number}", **digests, **numbers)
    ledger.append(make.seed(), choice, task)
    ledger.append_save(save)
    assert (ledger.choices(number), ledger.task(task.id), ledger.saves()[-1]) == ((choice,), task, save)
