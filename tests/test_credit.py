"""Turn credit: the formula by hand, what the learner does with an advantage a token, and a batch of a ledger."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch

from selfplay import credit, parts
from selfplay.build import execute
from selfplay.config import load
from selfplay.errors import RunFailed, UserError
from selfplay.events import Interrupt, ignore
from selfplay.games import Cast
from selfplay.games.gold import Gold, gold_of
from selfplay.learner.credit import gains_of, turn_advantages
from selfplay.learner.trainer import Trainer, collect, informative
from selfplay.ledger import Ledger
from selfplay.plan import plan
from selfplay.policy.scripted import ScriptedPolicy
from selfplay.project import Project
from selfplay.stages import Played
from selfplay.types import Batch, Group, Role, Sample, Seed, Stop, Task, Tools, Trajectory, Turn, Verdict, task_id
from tests.experts.players import in_turn
from tests.experts.search_players import proposer
from tests.experts.search_stage import SearchCast, config
from tests.experts.search_stage import project as staged
from tests.experts.stage import scripted
from tests.games.search.ground import corpus
from tests.learner.conftest import Characters, make_batch, make_samples, make_trainer

T = TypeVar("T")


def test_gains_are_differences_of_geometric_means() -> None:
    before, between, after = (math.log(0.1), math.log(0.4)), (math.log(0.5),), (math.log(0.9), math.log(0.9))
    assert gains_of([before, between, after]) == pytest.approx((0.3, 0.4))
    assert gains_of([before]) == (), "a play of one reply has its reward alone"


def test_advantages_by_hand() -> None:
    # what was earned: 0.25, 1 | -0.25, 0.5, 0 -> mean 0.3, deviation sqrt(0.925 / 5)
    found = turn_advantages([(0.25,), (-0.25, 0.5)], (1.0, 0.0))
    deviation = math.sqrt(0.925 / 5) + 1e-6
    first = [(-0.05 + 0.7) / deviation, 0.7 / deviation]
    second = [(-0.55 + 0.2 - 0.3) / deviation, (0.2 - 0.3) / deviation, -0.3 / deviation]
    assert found == (pytest.approx(first), pytest.approx(second))
    half = turn_advantages([(0.25,), (-0.25, 0.5)], (1.0, 0.0), gamma=0.5)
    assert half[1][0] == pytest.approx((-0.55 + 0.5 * (0.2 + 0.5 * -0.3)) / deviation)


def test_without_gains_it_is_grpo() -> None:
    found = turn_advantages([(), (), ()], (1.0, 0.0, 0.0))
    assert [value for (value,) in found] == pytest.approx([math.sqrt(2), -math.sqrt(0.5), -math.sqrt(0.5)], abs=1e-5)
    assert turn_advantages([(), ()], (1.0, 1.0)) == ((0.0,), (0.0,))


def test_equal_outcomes_leave_the_turns_by_hand() -> None:
    # what was earned: 0.2, 0 | 0, 0 | 0 -> mean 0.04, deviation sqrt(0.04 / 5 - 0.0016) = 0.08
    found = turn_advantages([(0.2,), (0.0,), ()], (0.0, 0.0, 0.0))
    assert [list(one) for one in found] == [
        pytest.approx([2.0 - 0.5, -0.5], abs=1e-4),
        pytest.approx([-0.5 - 0.5, -0.5], abs=1e-4),
        pytest.approx([-0.5], abs=1e-4),
    ]


def _gradient(samples: Sequence[Sample]) -> list[float]:
    trainer = make_trainer()
    work, _ = trainer._play_work(make_batch(samples), informative(samples), None)
    collect(work, trainer._master, room=trainer._room, world=None)
    return [x for g in trainer._master.gradients.values() for x in g.flatten().tolist()]  # type: ignore[union-attr]


def test_an_advantage_a_token_weighs_each_by_its_own() -> None:
    (sample,) = make_samples(groups=1, size=1, reply=7)
    count = sum(sample.trained)
    marks = [tuple(float(at % 2 == side) for at in range(count)) for side in (0, 1)]
    mixed = tuple(3.0 * even - 0.5 * odd for even, odd in zip(*marks, strict=True))
    even, odd, both = (_gradient([replace(sample, token_advantages=one)]) for one in (*marks, mixed))
    assert both == pytest.approx([3.0 * a - 0.5 * b for a, b in zip(even, odd, strict=True)], abs=1e-6)
    same = replace(sample, advantage=0.0, token_advantages=(sample.advantage,) * count)
    assert _gradient([same]) == pytest.approx(_gradient([sample]), abs=1e-7)


@pytest.mark.parametrize(("advantages", "message"), [((1.0,), "1 advantages for"), ((math.nan,) * 99, "advantage")])
def test_advantages_that_do_not_fit_are_refused(advantages: tuple[float, ...], message: str) -> None:
    sample = max(make_samples(), key=lambda one: sum(one.trained))
    wrong = replace(sample, token_advantages=advantages[: sum(sample.trained)])
    with pytest.raises(RunFailed, match=message):
        make_trainer().update(make_batch([wrong]))


CHECKS = ("answerable", "ablation", "closed_book", "unique", "quote")
SOLVER = Role(name="solver", game="search", side="solver", prompt="", tools=Tools(form="tags"))
TASK = Task(
    id=task_id("c", game="search", key="k"),
    game="search",
    seed_id="s",
    key="k",
    payload={"answer": "eve"},
    split="train",
    step=0,
)


def _played(name: str, *, replies: int, role: str = "solver", stop: Stop = Stop.DONE) -> Played:
    turns = [
        Turn(speaker="prompt", token_ids=(1,), text="?"),
        *(Turn(speaker="policy", token_ids=(2,), logprobs=(-1.0,), text="so") for _ in range(replies)),
    ]
    where: dict[str, Any] = {"step": 0, "stage": "attempt", "role": role, "subject_id": TASK.id, "index": 0}
    trajectory = Trajectory(id=name, turns=tuple(turns), stop=stop, policy_version=(0, 0), **where)
    verdict = Verdict(
        trajectory_id=name, stage="judge", valid=True, passed=False, reward=0.0, reason="", why="", task_id=TASK.id
    )
    return Played(trajectory=trajectory, verdict=verdict)


PLAYS = [
    *(_played("one", replies=1), _played("uno", replies=1), _played("two", replies=2), _played("three", replies=3)),
    *(_played("cut", replies=4, stop=Stop.TURNS), _played("other", replies=2, role="proposer")),
]


@pytest.mark.parametrize(
    ("members", "taught"),
    [
        (("one", "uno"), False),
        (("one", "two"), True),
        (("three", "two"), True),
        (("three",), False),
        (("one", "cut"), False),
        (("cut", "two"), False),
        (("one", "uno", "cut", "two"), True),
    ],
)
def test_groups_without_variance_that_turns_teach(members: tuple[str, ...], taught: bool) -> None:
    equal = replace(group(*members), rewards=(0.0,) * len(members), advantages=(0.0,) * len(members), informative=False)
    found = credit.teaching([equal], PLAYS, Cast(roles={"search": SOLVER}))
    assert found == (replace(equal, informative=taught),)
    assert credit.by_turns(found) == taught
    assert credit.teaching([equal], PLAYS, None) == (equal,)
    others = replace(equal, role="proposer")
    assert credit.teaching([others], PLAYS, Cast(roles={"search": SOLVER})) == (others,)
    assert credit.by_turns([group("one", "two")]) == 0, "its outcomes differ"


def test_a_group_whose_attempts_all_fail_is_learnt_from_by_turns(
    tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))
    corpus(tmp_path / "texts")
    at = staged(tmp_path, project)
    solvers = {
        "reader": in_turn("<search>architect</search>", "<answer>nobody</answer>"),
        "guesser": in_turn("<answer>nobody at all</answer>"),
    }
    sets = (
        *("game.corpus=small", "game.answers=4", "game.held_out=0.0", "curriculum.seeds=2", "play.attempts=2"),
        f"game.options={{{', '.join(f'{check} = false' for check in CHECKS)}}}",
    )
    found = {}
    for how in ("play", "gain"):
        with scripted(SearchCast(proposers={"quick": proposer()}, solvers=solvers)):
            folder = tmp_path / "runs" / how
            settings = config(at, *sets, f"learner.credit={how}")
            execute(settings, project=at, folder=folder, observe=ignore, interrupt=Interrupt())
        with Ledger.read(folder) as ledger:
            assert ledger.check() == ()
            update, (row,) = ledger.update(0), ledger.step_rows()
            assert update is not None
            attempts = {one.id for one in ledger.trajectories(0, "attempt")}
            found[how] = update, row.counts, len(attempts & set(update.trajectory_ids))
    update, counts, learnt = found["play"]
    assert (learnt, "by_turns" in counts) == (0, False)
    update, counts, learnt = found["gain"]
    assert update.skipped is None
    assert counts["by_turns"] == counts["search_solver.informative"] == counts["tasks"] > 0
    assert learnt == 2 * counts["by_turns"]
    assert not any(update.advantages), "what their turns gained is scored again where it is needed"


@dataclass(frozen=True)
class Asked:
    """The settings that are looked at."""

    credit: Cast | None


@dataclass(frozen=True)
class Place:
    """Implements `credit.Site` with a tiny learner."""

    settings: Any
    ledger: Ledger
    learner: Trainer
    policy: ScriptedPolicy

    async def on_torch(self, job: Callable[[], T]) -> T:
        return job()


def talked(name: str, *lengths: int) -> Sample:
    """A play of a prompt of five tokens, and replies of these lengths with three tokens of a tool between them."""
    marks = [False] * 5
    for at, length in enumerate(lengths):
        marks += [False] * (3 if at else 0) + [True] * length
    ids = tuple(2 + (7 * at + len(name) + 3 * sum(lengths)) % 60 for at in range(len(marks)))
    return Sample(
        trajectory_id=name,
        role="solver",
        group_id="g",
        token_ids=ids,
        trained=tuple(marks),
        sampler_logprobs=(-4.0,) * len(marks),
        advantage=1.0 if name == "a" else -1.0,
    )


def likely(trainer: Trainer, ids: tuple[int, ...], answer: tuple[int, ...]) -> float:
    """Geometric mean of the answer's probabilities behind `ids`, by the model's own forward pass."""
    with torch.no_grad():
        logits = trainer.model(input_ids=torch.tensor([[*ids, *answer]])).logits[0]
    logprobs = torch.log_softmax(logits, -1)
    found = [logprobs[len(ids) - 1 + at, token].item() for at, token in enumerate(answer)]
    return math.exp(sum(found) / len(found))


def group(*ids: str) -> Group:
    return Group(
        id="g",
        step=0,
        role="solver",
        subject_id=TASK.id,
        trajectory_ids=ids,
        rewards=(1.0, 0.0, 0.0)[: len(ids)],
        advantages=(1.0, -1.0, -1.0)[: len(ids)],
        informative=True,
    )


def test_a_batch_is_credited_by_what_the_weights_know(tmp_path: Path) -> None:
    tokenizer, samples = Characters(), (talked("a", 4, 2, 3), talked("bb", 2))
    answer, opens = tokenizer.encode("eve"), tokenizer.encode("<answer>")
    seed = Seed(id="s", game="search", source="", payload={}, split="train")
    batch = Batch(step=0, phase="play", samples=samples, temperature=1.0)
    with Ledger.create(tmp_path / "run", config_digest="c", config={}, seed=0, game="search") as ledger:
        ledger.append(seed, TASK).result()

        def place(settings: Asked) -> Place:
            policy = ScriptedPolicy([], tokenizer=tokenizer)  # type: ignore[arg-type]
            return Place(settings=settings, ledger=ledger, learner=make_trainer(), policy=policy)

        def made(site: Place, groups: Sequence[Group]) -> Batch:
            return asyncio.run(credit.credited(site, batch, groups))

        site = place(Asked(Cast(roles={"search": SOLVER})))
        # note: a member that was truncated is in the group, and not in the batch.
        found = made(site, [group("a", "bb", "gone")])
        first = samples[0]
        starts = [start for start, _ in credit.turns_of(first)]
        assert credit.turns_of(first) == [(5, 9), (12, 14), (17, 20)]
        known = [likely(site.learner, (*first.token_ids[:at], *opens), answer) for at in starts]
        gains = [after - before for before, after in pairwise(known)]
        wanted = turn_advantages([gains, []], (1.0, 0.0))
        each = [value for value, length in zip(wanted[0], (4, 2, 3), strict=True) for _ in range(length)]
        assert found.samples[0].token_advantages == pytest.approx(each, rel=1e-4)
        assert found.samples[1].token_advantages == pytest.approx(wanted[1] * 2, rel=1e-4)

        # note: a step that is applied again finds the same, bit by bit.
        update = site.learner.update(found)
        again = place(site.settings)
        once_more = made(again, [group("a", "bb", "gone")])
        assert once_more == found
        assert again.learner.update(once_more, recorded=update).weights_digest == update.weights_digest
        assert update.advantages == (1.0, -1.0), "the record holds what the groups have"

        assert made(place(Asked(None)), [group("a", "bb")]) == batch
        other = replace(group("a", "bb"), role="proposer")
        assert made(site, [other]) == batch


def behind(sample: Sample, more: int) -> Sample:
    """The same behind a prompt that is so much longer."""
    rest = len(sample.token_ids) + more
    ids, marks = (2,) * more + sample.token_ids, (False,) * more + sample.trained
    return replace(sample, token_ids=ids, trained=marks, sampler_logprobs=(-4.0,) * rest)


@pytest.mark.parametrize("room", [0, -1])
def test_a_group_keeps_its_plain_advantages_where_the_answer_has_no_room(tmp_path: Path, room: int) -> None:
    learner, (first, second) = make_trainer(), (talked("a", 4, 2, 3), talked("bb", 2))
    # note: the last token of all needs no place in the context.
    longest = int(learner.model.config.max_position_embeddings) + 1  # type: ignore[union-attr, arg-type]
    last = credit.turns_of(first)[-1][0] + len("<answer>eve")
    samples = (behind(first, longest - last - room), second, *_beside(first, second))
    assert len(samples[0].token_ids) < longest, "the play itself has room"
    batch = Batch(step=0, phase="play", samples=samples, temperature=1.0)
    groups = [group("a", "bb"), replace(group("c", "dd"), id="h")]
    with Ledger.create(tmp_path / "run", config_digest="c", config={}, seed=0, game="search") as ledger:
        ledger.append(Seed(id="s", game="search", source="", payload={}, split="train"), TASK).result()

        def made(learner: Trainer) -> Batch:
            settings, policy = Asked(Cast(roles={"search": SOLVER})), ScriptedPolicy([], tokenizer=Characters())  # type: ignore[arg-type]
            site = Place(settings=settings, ledger=ledger, learner=learner, policy=policy)
            return asyncio.run(credit.credited(site, batch, groups))

        found = made(learner)
        assert [bool(one.token_advantages) for one in found.samples] == [not room, not room, True, True]
        assert [one.advantage for one in found.samples] == [1.0, -1.0, 1.0, -1.0]
        update = learner.update(found)
        again = make_trainer()
        assert made(again) == found
        assert again.update(found, recorded=update).weights_digest == update.weights_digest


def _beside(*samples: Sample) -> list[Sample]:
    """Another group of the same plays."""
    names = {"a": "c", "bb": "dd"}
    return [replace(one, trajectory_id=names[one.trajectory_id], group_id="h") for one in samples]


def test_the_known_answer_is_written_as_the_role_writes_it() -> None:
    assert gold_of(TASK, SOLVER) == Gold(opens="<answer>", answer="eve")
    assert gold_of(TASK, replace(SOLVER, tools=None)) is None
    assert gold_of(TASK, replace(SOLVER, game="code")) is None


def test_it_is_off_by_default_and_refused_where_no_answer_is_known(project: Project) -> None:
    config = load("ssp-paper", project=project, environ={})
    assert parts.credit_of(config, parts.roles(config, project)) is None
    asked = load("ssp-paper", project=project, sets=["learner.credit=gain"], environ={})
    found = parts.credit_of(asked, parts.roles(asked, project))
    assert found is not None
    assert list(found.roles) == ["search"]
    assert "IGPO" in {row.name: row.note for row in plan(asked, project)}["credit"]
    toy = load("demo", project=project, sets=["learner.credit=gain"], environ={})
    with pytest.raises(UserError, match="no solver plays several turns"):
        plan(toy, project)
