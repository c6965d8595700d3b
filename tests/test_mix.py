"""Two games in one run: each chooses, plays, decides and is paid by itself; the ledger and the weights are shared."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from selfplay import mix, parts
from selfplay.batches import groups_of
from selfplay.build import execute
from selfplay.config import Config, load
from selfplay.curriculum import ssp, uniform
from selfplay.curriculum.papers import Ssp
from selfplay.errors import UserError
from selfplay.evaluation.grounds import on_run
from selfplay.evaluation.measure import Ask, measure
from selfplay.evaluation.targets import of_run
from selfplay.events import Event, Interrupt, ignore
from selfplay.games import Abilities, abilities_of, cast, likeness
from selfplay.games.mixed import MixedGame, places
from selfplay.learner import estimators
from selfplay.learner.options import Options
from selfplay.learner.trainer import Trainer, collect, informative
from selfplay.ledger import Ledger, held_out
from selfplay.policy.toy import CharTokenizer
from selfplay.project import Project
from selfplay.stages import Played
from selfplay.types import Batch, Choice, Sample, Seed, Stage, Stop, Trajectory, Turn, Verdict
from tests.games.search.ground import corpus
from tests.learner.conftest import make_samples, tiny_model

SEARCH = "{top_k=1, answerable=false, ablation=false, closed_book=false, unique=false, quote=false}"
SMALL = (
    *(
        "game.corpus=small",
        "game.answers=40",
        "game.held_out=0.5",
        f"game.options={SEARCH}",
        "curriculum.seeds=3",
        "run.save_every=2",
    ),
    *(
        "rewards.proposer=azr",
        "play.proposals=4",
        "play.attempts=4",
        "play.min_viable=2",
        "play.refills=0",
        "learner.lr=1e-3",
    ),
    *("eval.every=2", "eval.tasks=8", "eval.attempts=1"),
)


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))
    texts = {
        f"doc{i}": f"The bridge number {i} was drawn by the architect John Brad{i} in detail. Work on it began in "
        f"19{i:02d} and went on for years. The first train went over it with the driver Walter Simp{i} that day."
        for i in range(10, 18)
    }
    corpus(tmp_path / "texts", texts)


def mixed(project: Project, *sets: str) -> Config:
    return load("mixed-demo", project=project, sets=[*SMALL, *sets], environ={})


@pytest.mark.parametrize(
    ("shares", "counts"), [((0.5, 0.5), (3, 3)), ((2 / 3, 1 / 3), (4, 2)), ((0.25, 0.5, 0.25), (2, 3, 1))]
)
def test_places_have_their_shares_wherever_one_looks(shares: tuple[float, ...], counts: tuple[int, ...]) -> None:
    order = places(shares, first=0, count=1000)
    assert tuple(order[:6].count(whose) for whose in range(len(shares))) == counts
    for length in range(1, 1000):
        for whose, share in enumerate(shares):
            assert abs(order[:length].count(whose) - share * length) < 1.0 + 1e-9
    assert places(shares, first=995, count=10) == (*order[995:], *order[:5])


def test_a_list_is_a_name_with_a_plus(project: Project, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[run]\ngame = ["code", "search"]\n[roles]\nproposer = ["injector", "search_proposer_short"]\n')
    config = load(str(file), project=project, sets=["roles.solver=repairer+search_solver_short"], environ={})
    assert config.run.game == "code+search"
    code, search = mix.alone(config)
    assert (code.roles.proposer, code.roles.solver) == ("injector", "repairer")
    assert (search.run.game, search.roles.proposer) == ("search", "search_proposer_short")
    assert mix.shares_of(config) == (0.5, 0.5)
    assert [role.name for role in parts.roles(config, project).everybody] == [
        *("injector", "repairer"),
        *("search_proposer_short", "search_solver_short"),
    ]


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (("run.shares=[1]",), "run.shares is .* names 2"),
        (("run.shares=[1, 0]",), "run.shares"),
        (("roles.solver=echo_solver",), "names 2 games: echo, search"),
        (("run.game=echo+echo",), "mixed with itself"),
        (("run.game=search+echo",), "role `echo_proposer` is the proposer of game `echo`"),
        (("curriculum.choose=frontier", "curriculum.options={probation = 0.5}", "run.game=echo+chess"), "chess"),
    ],
)
def test_what_cannot_be_mixed_is_refused(project: Project, sets: tuple[str, ...], message: str) -> None:
    config = mixed(project, *sets)
    with pytest.raises(UserError, match=message):
        parts.role_weights(config, parts.roles(config, project))


def test_a_mix_can_be_asked_what_all_its_games_can() -> None:
    assert abilities_of("echo+search", tools=False) == Abilities(modes=("propose", "replay"), terms=("hint",))
    assert "mutate" in abilities_of("code+echo", tools=False).modes


def test_a_game_s_share_weighs_its_roles(project: Project) -> None:
    config = mixed(project, "roles.weights=[0.6, 0.4]")
    weights = parts.role_weights(config, parts.roles(config, project))
    assert weights == pytest.approx(
        {"echo_proposer": 0.4, "echo_solver": 0.8 / 3, "search_proposer_short": 0.2, "search_solver_short": 0.4 / 3}
    )


def test_each_game_chooses_from_its_own_seeds_by_its_own_past(tmp_path: Path) -> None:
    seeds = [
        Seed(id=f"{game}{i}", game=game, source=f"{game}:{i}", payload={}, split="train")
        for game in ("a", "b")
        for i in range(4)
    ]
    choose = mix.Mixture(choose=uniform, games=("a", "b"), shares=(2 / 3, 1 / 3))
    with Ledger.create(tmp_path / "run", config_digest="c", config={}, seed=0, game="a+b") as ledger:
        ledger.append(*seeds)
        for step in range(4):
            chosen = choose(ledger, seeds, n=3, step=step, seed=0, first=0, taken=())
            assert [one.subject_id[0] for one in chosen] == ["a", "a", "b"]
            assert [one.index for one in chosen] == [0, 1, 2]
            again = choose(ledger, seeds, n=3, step=step, seed=0, first=3, taken={one.subject_id for one in chosen})
            assert {one.subject_id for one in again}.isdisjoint(one.subject_id for one in chosen)
            assert [one.index for one in again] == [3, 4, 5]


@pytest.mark.parametrize("refill", ["cleared", "dummy"])
def test_no_game_of_a_mix_takes_its_first_round_for_a_refill(refill: str, six_steps: Path) -> None:
    with Ledger.read(six_steps) as reader:
        seeds = [*reader.seeds(), Seed(id="b", game="b", source="b", payload={}, split="train")]
        choose = mix.Mixture(choose=partial(ssp, options=Ssp(refill=refill)), games=("b", "echo"), shares=(0.5, 0.5))
        chosen = choose(reader, seeds, n=4, step=6, seed=0, first=0, taken=())
        assert [(one.mode, one.index) for one in chosen] == [("propose", index) for index in range(3)]
        taken = {one.subject_id for one in chosen}
        again = choose(reader, seeds, n=4, step=6, seed=0, first=3, taken=taken)
        assert {one.mode for one in again} == (set() if refill == "dummy" else {"propose", "replay"})


def test_a_past_of_one_game_shows_nothing_of_the_others() -> None:
    class Past:
        """Two games' seeds were played."""

        def played_seeds(self, *, before: int) -> dict[str, int]:
            return {"a0": 1, "b0": 2}

        def known_tasks(self, *, since: int, before: int) -> tuple[object, ...]:
            return ()

        def proposals(self, *, since: int, before: int) -> dict[str, str]:
            return {"a0": "mine", "b0": "theirs", "parent": "mine"}

        def movement(self, *, since: int, before: int) -> dict[int, float]:
            return {0: 1.0}

        def failed_attempts(self, task_id: str, *, before: int) -> tuple[str, ...]:
            return ()

    own = mix.Own(history=Past(), seeds=frozenset({"a0"}), others=frozenset({"b0"}))  # type: ignore[arg-type]
    assert own.played_seeds(before=1) == {"a0": 1}
    assert own.proposals(since=0, before=1) == {"a0": "mine", "parent": "mine"}
    assert own.movement(since=0, before=1) == {0: 1.0}


def _played(role: str, subject: str, index: int, reward: float, *, stage: Stage = "propose") -> Played:
    turns = (
        Turn(speaker="prompt", token_ids=(1,), text="?"),
        Turn(speaker="policy", token_ids=(2,), logprobs=(-1.0,), text="so"),
    )
    trajectory = Trajectory(
        id=f"{role}{subject}{index}",
        step=0,
        stage=stage,
        role=role,
        subject_id=subject,
        index=index,
        turns=turns,
        stop=Stop.DONE,
        policy_version=(0, 0),
    )
    verdict = Verdict(
        trajectory_id=trajectory.id,
        stage="mint",
        valid=True,
        passed=None,
        reward=reward,
        reason="",
        why="",
        task_id="t",
    )
    return Played(trajectory=trajectory, verdict=verdict)


@pytest.mark.parametrize("name", sorted(estimators.ESTIMATORS))
def test_advantages_of_a_game_are_those_that_it_would_have_alone(name: str) -> None:
    # note: cells are equal in both games, and what a baseline looks back on is asked for by role.
    one = [_played("a_proposer", f"a{i}", 0, reward) for i, reward in enumerate((0.0, 1.0, 0.5))]
    other = [_played("b_proposer", f"b{i}", 0, reward) for i, reward in enumerate((7.0, -3.0))]
    cells = {played.trajectory.subject_id: "cell:/1" for played in (*one, *other)}

    def past(role: str, number: int) -> Sequence[float]:
        return {"a_proposer": (0.25,), "b_proposer": (5.0, 6.0)}[role]

    def advantages(plays: Collection[Played]) -> dict[str, float]:
        groups = groups_of(plays, {}, estimator=estimators.ESTIMATORS[name], past=past, cells=cells)
        return {t: value for g in groups for t, value in zip(g.trajectory_ids, g.advantages, strict=True)}

    assert advantages([*one, *other]) == {**advantages(one), **advantages(other)}


def test_proposals_of_several_games_are_not_compared() -> None:
    minted = [(p.trajectory, p.verdict) for p in (_played("a", "a0", 0, 1.0), _played("b", "b0", 0, 1.0))]
    found = likeness.beside(minted, {}, looks=("share",))
    assert [one.share for one in found.values()] == [1.0, 1.0], "each is all that its game proposed"


ROLES = ("a_proposer", "a_solver", "b_proposer", "b_solver")


def _gradient(samples: Sequence[Sample], weights: dict[str, float] | str) -> dict[str, list[float]]:
    options = Options(lr=1e-3, warmup_lr=1e-3, dtype="float32", threads=1, role_weights=weights)  # type: ignore[arg-type]
    trainer = Trainer(tiny_model(), options=options, tokenizer=None)
    batch = Batch(step=0, phase="play", samples=tuple(samples), temperature=1.0)
    work, _ = trainer._play_work(batch, informative(batch.samples), None)
    collect(work, trainer._master, room=trainer._room, world=None)
    return {name: gradient.flatten().tolist() for name, gradient in trainer._master.gradients.items()}  # type: ignore[union-attr]


@pytest.mark.parametrize("pooled", [False, True])
def test_the_gradient_of_a_mixed_step_is_the_sum_of_the_games_own(pooled: bool) -> None:
    """With weights a role, the sum of the games' gradients times their shares: each role has a token mean of its own.

    `pooled` is one token mean over all roles, so there a game weighs its part of the trained tokens.
    """
    samples = make_samples(groups=4, roles=ROLES)
    games = {game: [s for s in samples if s.role.startswith(game)] for game in ("a", "b")}
    tokens = {game: sum(sum(s.trained) for s in own) for game, own in games.items()}
    share = {"a": 0.75, "b": 0.25}
    half = dict.fromkeys(ROLES, 0.5)
    joint = _gradient(samples, "pooled" if pooled else {role: share[role[0]] * 0.5 for role in ROLES})
    alone = {game: _gradient(own, "pooled" if pooled else half) for game, own in games.items()}
    weight = {game: tokens[game] / sum(tokens.values()) for game in games} if pooled else share
    for name, values in joint.items():
        wanted = [
            weight["a"] * one + weight["b"] * other for one, other in zip(*(alone[g][name] for g in "ab"), strict=True)
        ]
        assert values == pytest.approx(wanted, abs=1e-6)


def _run(project: Project, folder: Path, config: Config, *, observe: Callable[[Event], None] = ignore) -> str:
    return execute(config, project=project, folder=folder, observe=observe, interrupt=Interrupt()).stop


def _digests(folder: Path) -> dict[str, str]:
    with Ledger.read(folder) as ledger:
        assert ledger.check() == ()
        return dict(ledger.comparable())


@pytest.mark.usefixtures("ground")
def test_two_games_run_stop_go_on_and_are_evaluated(project: Project, tmp_path: Path) -> None:
    config = mixed(project, "run.steps=2")
    assert _run(project, tmp_path / "whole", config) == "done"
    interrupt = Interrupt()

    def stop(event: Event) -> None:
        if event.kind == "tick" and event.step == 1 and event.data["done"] == 5:
            interrupt.press()

    folder = tmp_path / "parts"
    stopped = execute(config, project=project, folder=folder, observe=stop, interrupt=interrupt)
    assert stopped.stop == "interrupted"
    assert _run(project, folder, config) == "done"
    assert _digests(folder) == _digests(tmp_path / "whole")

    with Ledger.read(folder) as ledger:
        games = {seed.id: seed.game for seed in ledger.seeds()}
        chosen: list[Choice] = [choice for step in range(2) for choice in ledger.choices(step)]
        assert [games[choice.subject_id] for choice in chosen] == ["echo", "echo", "search"] * 2
        proposed = [t for step in range(2) for t in ledger.trajectories(step, "propose")]
        assert {(games[t.subject_id], t.role) for t in proposed} == {
            ("echo", "echo_proposer"),
            ("search", "search_proposer_short"),
        }
        assert {t.role for t in ledger.trajectories(0, "evaluate")} == {
            *("echo_proposer", "echo_solver", "search_proposer_short", "search_solver_short")
        }
        for step in range(2):
            minted = ledger.verdicts(step, "propose", "mint")
            for group in ledger.groups(step):
                assert len({games.get(t.subject_id) for t in proposed if t.id in group.trajectory_ids} - {None}) <= 1
            assert all(verdict.fault is None for verdict in minted.values())
        assert [update.skipped for update in ledger.updates("play")].count(None) > 0, "something was learnt"
        for task in ledger.ask(held_out.tasks):
            assert ledger.find_task(task.key) == task
    ground = on_run(folder, count=8, sandbox=None, project=project)
    ask = Ask(attempts=1, temperature=None, seed=None)
    (found,) = measure([of_run(folder, None, project=project)], ground, ask, project=project, observe=ignore)
    tasks = {play.subject_id for play in found.plays if play.side == "solver"}
    assert ground.on is not None
    assert {task.game for task in ground.on.tasks if task.id in tasks} == {"echo", "search"}


@pytest.mark.usefixtures("ground")
def test_each_game_of_a_mix_plays_the_tasks_that_it_is_given(project: Project, tmp_path: Path) -> None:
    config = mixed(project, "run.steps=2", "curriculum.choose=given", "eval.every=0")
    assert _run(project, tmp_path / "run", config) == "done"
    with Ledger.read(tmp_path / "run") as ledger:
        assert ledger.check() == ()
        given = {task.id: task.game for task in ledger.tasks(-1) if task.split == "train"}
        chosen = [choice.subject_id for step in range(2) for choice in ledger.choices(step)]
        assert [given[task] for task in chosen] == ["echo", "echo", "search"] * 2
        assert max(Counter(chosen).values()) <= 2, "what was chosen before comes later"
        assert len({task for task in chosen if given[task] == "search"}) == 2
        assert not any(ledger.trajectories(step, "propose") for step in range(2))


@pytest.mark.usefixtures("ground")
def test_a_game_of_a_mix_that_is_given_nothing_is_named(project: Project, tmp_path: Path, six_steps: Path) -> None:
    options = f"curriculum.options={{tasks = '{six_steps}'}}"
    config = mixed(project, "run.steps=1", "curriculum.choose=given", options, "eval.every=0")
    with pytest.raises(UserError, match="gives no task of a train seed of game `search`"):
        _run(project, tmp_path / "run", config)


@pytest.mark.usefixtures("ground")
def test_a_mix_is_asked_game_by_game(project: Project) -> None:
    async def main() -> None:
        config = mixed(project)
        async with AsyncExitStack() as stack:
            game, sandbox = await parts.game(config, project, parts.roles(config, project), observe=ignore, stack=stack)
            assert isinstance(game, MixedGame)
            assert (game.name, sandbox) == ("echo+search", "none")
            seeds = await game.seeds()
            for seed in (next(s for s in seeds if s.game == name) for name in ("echo", "search")):
                assert cast(game, "proposer").of(seed).game == seed.game
                assert game.proposer_view(seed)
                assert game.handed_over(seed, step=0, index=0, terms={}) is None
            held, tasks = await game.held_out(6)
            assert len(held) == 6
            assert [task.game for task in tasks].count("echo") == 4
            (example,) = game.examples(seed=0, first=0, count=1)
            assert example.role.startswith("search_"), "the toy game has none"
            own = game.games[1].examples(seed=0, first=5, count=3)
            assert tuple(game.examples(seed=0, first=5, count=3)) == tuple(own)

    asyncio.run(main())


def test_the_tokens_of_a_toy_that_plays_more_than_the_toy_game(project: Project) -> None:
    config = mixed(project)
    model = parts.learner(config, parts.roles(config, project))
    assert isinstance(model.tokenizer, CharTokenizer)
    assert model.tokenizer.decode(model.tokenizer.encode("ab, when?")) == "ab???????"
    with pytest.raises(UserError, match="has no character ','"):
        CharTokenizer("ab").encode("ab,")
