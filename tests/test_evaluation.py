"""Evaluations on held-out seeds: played once, resumed where they stopped, and never learnt from."""

from __future__ import annotations

import asyncio
import difflib
import json
import string
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from selfplay import loop, parts
from selfplay.build import Outcome, assemble
from selfplay.config import Config, from_run, load
from selfplay.errors import NotFound, UserError
from selfplay.evaluation import tasks as files
from selfplay.evaluation.grounds import on_file, on_run
from selfplay.evaluation.measure import Ask, Measured, measure
from selfplay.evaluation.stints import HeldOut
from selfplay.evaluation.stints import play as play_stints
from selfplay.evaluation.targets import Target, of_run
from selfplay.events import Event, Interrupt, ignore
from selfplay.games import Cast
from selfplay.games.echo import EchoGame
from selfplay.ledger import Ledger, Reader, held_out
from selfplay.ledger.held_out import HeldOutPlay
from selfplay.policy.scripted import ScriptedPolicy
from selfplay.policy.toy import CharTokenizer
from selfplay.project import Project
from selfplay.rollout import Player
from selfplay.stages import Clock, Pools
from selfplay.types import Seed, play_id
from selfplay.views.evaluation import line, newest, summary

Play = Callable[..., Outcome]

EVALUATED = ("eval.every=2", "eval.tasks=4", "eval.attempts=3", "learner.lr=0.01")


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory: pytest.TempPathFactory, play: Play) -> Path:
    """A toy run of four steps, evaluated before steps 0 and 2 and after the last; not to be changed."""
    folder = tmp_path_factory.mktemp("evaluated") / "evaluated"
    play(folder, *EVALUATED, "run.keep_saves=9", steps=4)
    return folder


def plays_of(folder: Path, done: int) -> tuple[HeldOutPlay, ...]:
    with Ledger.read(folder) as reader:
        return reader.ask(partial(held_out.plays, step=done))


def digests(folder: Path) -> dict[str, str]:
    with Ledger.read(folder) as reader:
        return dict(reader.comparable())


def test_it_is_played_when_it_is_due_and_is_in_the_ledger(evaluated: Path) -> None:
    assert [len(plays_of(evaluated, done)) for done in range(6)] == [16, 0, 16, 0, 16, 0]
    with Ledger.read(evaluated) as reader:
        tasks = reader.ask(held_out.tasks)
        assert [task.split for task in tasks] == ["held_out"] * 4
        found = newest(reader)
        assert found is not None
        assert found[0] == 4
        assert found[1] == summary(plays_of(evaluated, 4), ks=[1, 3])
        assert reader.check() == ()
    assert (found[1].tasks, found[1].attempts, found[1].proposals) == (4, 12, 4)
    assert line(found[1]).startswith("pass@1 ")


def test_nothing_of_it_is_learnt_from(evaluated: Path) -> None:
    with Ledger.read(evaluated) as reader:
        kept_back = {seed.id for seed in reader.seeds() if seed.split == "held_out"}
        forbidden = {task.id for task in reader.ask(held_out.tasks)} | kept_back
        looked_at = {t.id for done in (0, 2, 4) for t in reader.trajectories(done, "evaluate")}
        assert len(looked_at) == 48
        for step in range(4):
            update = reader.update(step)
            assert update is not None
            members = {one for group in reader.groups(step) for one in group.trajectory_ids}
            assert not looked_at & {*update.trajectory_ids, *members}
            assert not forbidden & {group.subject_id for group in reader.groups(step)}
            assert not forbidden & {choice.subject_id for choice in reader.choices(step)}
            assert not forbidden & {t.subject_id for t in reader.trajectories(step, "attempt")}


def test_a_run_learns_what_it_learns_without_evaluations(
    tmp_path: Path, evaluated: Path, toy_config: Callable[..., Config], project: Project
) -> None:
    config = toy_config(*EVALUATED, "run.keep_saves=9", "run.steps=4")
    with _played(tmp_path / "plain", config, project, _unevaluated) as other, Ledger.read(evaluated) as one:
        assert any(update.skipped is None for update in one.updates("play"))
        assert [u.weights_digest for u in one.updates("play")] == [u.weights_digest for u in other.updates("play")]
        assert [row.tallies for row in one.step_rows()] == [row.tallies for row in other.step_rows()]
        assert [row.counts for row in one.step_rows()] == [row.counts for row in other.step_rows()]
        assert one.status().num_tasks == other.status().num_tasks
        assert other.ask(held_out.tasks) == ()


def _unevaluated(run: loop.Run) -> loop.Run:
    return replace(run, settings=replace(run.settings, evaluation=replace(run.settings.evaluation, every=0)))


def _played(folder: Path, config: Config, project: Project, change: Callable[[loop.Run], loop.Run]) -> Reader:
    """The ledger of a run of `config` that `change` changed before it was played."""

    async def main(ledger: Ledger) -> None:
        making = assemble(config, project=project, folder=folder, ledger=ledger, observe=ignore, interrupt=Interrupt())
        async with making as run:
            await loop.run(change(run))

    given = {"config_digest": config.digest, "config": config.values(), "seed": 0, "game": "echo"}
    with Ledger.create(folder, **given) as ledger:  # type: ignore[arg-type]
        asyncio.run(main(ledger))
    return Ledger.read(folder)


@pytest.mark.parametrize("at", [3, 39])
def test_an_interrupted_evaluation_goes_on_where_it_stopped(
    tmp_path: Path, evaluated: Path, play: Play, at: int
) -> None:
    folder, interrupt, ticks, made = tmp_path / "parts", Interrupt(), 0, 0

    def observe(event: Event) -> None:
        nonlocal ticks, made
        made += event.kind == "stage" and event.stage == "held-out"
        if event.kind == "tick" and str(event.stage).startswith("held-out"):
            ticks += 1
            if ticks == at:
                interrupt.press()
                interrupt.press()

    settings = (*EVALUATED, "run.keep_saves=9")
    assert play(folder, *settings, steps=4, observe=observe, interrupt=interrupt).stop == "interrupted"
    assert play(folder, *settings, steps=4, observe=observe).stop == "done"
    assert made == 1
    assert digests(folder) == digests(evaluated)
    assert plays_of(folder, 4) == plays_of(evaluated, 4)


def test_plays_of_a_warm_ups_dev_set_are_not_counted(tmp_path: Path, play: Play) -> None:
    folder = tmp_path / "run"
    play(folder, *EVALUATED, steps=1)
    before = plays_of(folder, 0)
    with Ledger.open(folder) as ledger:
        digest = ledger.run_row().config_digest
        seed = next(seed for seed in ledger.seeds() if seed.split == "train")
        one = ledger.trajectories(0, "evaluate")[0]
        place = {"step": 0, "stage": "evaluate", "role": one.role, "subject_id": seed.id, "index": 0, "attempt": 0}
        dev = replace(one, id=play_id(digest, **place), subject_id=seed.id, index=0)  # type: ignore[arg-type]
        ledger.append(dev).result()
        ledger.end_launch("done")
    assert plays_of(folder, 0) == before


class Open(EchoGame):
    """The toy game with nothing held out."""

    def __init__(self, game: EchoGame) -> None:
        self.__dict__.update(game.__dict__)

    async def seeds(self) -> Sequence[Seed]:
        return [seed for seed in await super().seeds() if seed.split == "train"]


def test_a_run_without_held_out_seeds_says_so(
    tmp_path: Path, toy_config: Callable[..., Config], project: Project
) -> None:
    def change(run: loop.Run) -> loop.Run:
        assert isinstance(run.game, EchoGame)
        return replace(run, game=Open(run.game))

    with pytest.raises(UserError, match=r"eval.every is 1, and no seed is held out"):
        _played(tmp_path / "run", toy_config("eval.every=1"), project, change)


# `selfplay eval`, without its words.


def measured(
    targets: Sequence[Target], folder: Path, project: Project, *, attempts: int = 3, tasks: int | None = None
) -> list[Measured]:
    ground = on_run(folder, count=tasks, sandbox=None, project=project)
    ask = Ask(attempts=attempts, temperature=None, seed=None)
    return measure(targets, ground, ask, project=project, observe=ignore)


def test_a_save_gives_what_the_run_itself_recorded(evaluated: Path, project: Project) -> None:
    for step, done in ((None, 4), ("1", 2)):
        target = of_run(evaluated, step, project=project)
        (found,) = measured([target], evaluated, project)
        assert sorted(found.plays, key=str) == sorted(plays_of(evaluated, done), key=str)
        assert found.kept is not None
        assert found.kept.parent == evaluated / "evals"
    before = digests(evaluated)
    (again,) = measured([target], evaluated, project)
    assert (again.stored, again.plays) == (True, found.plays)
    assert digests(evaluated) == before


def test_equal_questions_give_equal_numbers(tmp_path: Path, evaluated: Path, project: Project) -> None:
    path = tmp_path / "tasks.jsonl"
    export(evaluated, path, project)
    ground = on_file(path, run=None, count=3, sandbox=None, project=project)
    targets = [Target(words="toy", kind="model", name="toy"), of_run(evaluated, None, project=project)]
    ask = Ask(attempts=2, temperature=0.7, seed=3)
    first, second = (measure(targets[:1], ground, ask, project=project, observe=ignore)[0] for _ in range(2))
    assert first.plays == second.plays
    assert (first.stored, first.kept, first.temperature, first.seed) == (False, None, 0.7, 3)
    assert {play.subject_id for play in first.plays if play.side == "solver"} == {t.id for t in in_file(path)[:3]}


def in_file(path: Path) -> tuple[files.Task, ...]:
    return files.read(path).on.tasks


def export(folder: Path, to: Path, project: Project) -> None:
    config = from_run(folder, project=project, environ={})
    with Ledger.read(folder) as reader:
        tasks, seeds = reader.ask(held_out.tasks), reader.seeds()
        made = files.rows(tasks, seeds, config=config, config_digest=config.digest, digest=None)
        to.write_text("".join(json.dumps(row) + "\n" for row in made))


def test_tasks_that_the_run_never_made_are_made_once(tmp_path: Path, play: Play, project: Project) -> None:
    folder = tmp_path / "plain"
    play(folder, "eval.tasks=2", steps=2)
    target = of_run(folder, None, project=project)
    (found,) = measured([target], folder, project, tasks=5)
    assert len(in_file(folder / "evals" / "tasks_5.jsonl")) == 5
    ground = on_run(folder, count=5, sandbox=None, project=project)
    assert ground.on is not None
    assert {task.id for task in ground.on.tasks} == {p.subject_id for p in found.plays if p.side == "solver"}


def test_a_save_that_is_gone_names_those_that_are_kept(tmp_path: Path, play: Play, project: Project) -> None:
    folder = tmp_path / "run"
    play(folder, "run.save_every=1", "run.keep_saves=1", steps=5)
    kept = of_run(folder, None, project=project)
    assert (kept.words, kept.step) == ("run@4", 5)
    with pytest.raises(NotFound, match=r"the save `run@0` is not kept; there is .*run@4"):
        of_run(folder, "0", project=project)
    with pytest.raises(NotFound, match=r"the save `run@99` does not exist; there is .*run@4"):
        of_run(folder, "99", project=project)


def test_files_that_cannot_be_played_are_refused(tmp_path: Path, evaluated: Path, project: Project) -> None:
    path = tmp_path / "tasks.jsonl"
    export(evaluated, path, project)
    good = path.read_text()
    one = good.splitlines()[0]

    def refused(text: str, match: str, *, run: Config | None = None) -> None:
        path.write_text(text)
        with pytest.raises(UserError, match=match):
            on_file(path, run=run, count=None, sandbox=None, project=project)

    refused("", "holds no task")
    refused("{}\n", r"line 1 is no task: its schema is not selfplay.task/1")
    refused("nonsense\n", "line 1 is no task")
    refused(one.replace('"key": "held_out:', '"key": "held_out:x'), "not the one that its id was made of")
    refused(one + "\n" + one.replace('"source": "echo"', '"source": "other"'), "line 2 is of source other")
    refused(good.replace('"digest": null', '"digest": "00"'), "made of other files than echo has now")
    refused(good, "are of game `echo`, and the run plays `code`", run=load("quickstart", project=project))
    path.unlink()
    with pytest.raises(NotFound, match="no file"):
        on_file(path, run=None, count=None, sandbox=None, project=project)


@pytest.mark.bubblewrap
def test_tasks_of_another_package_are_judged_as_they_say(tmp_path: Path, code_run: Path, project: Project) -> None:
    path, made = tmp_path / "tasks.jsonl", from_run(code_run, project=project, environ={})
    with Ledger.read(code_run) as reader:
        tasks, seeds, source = reader.tasks(0), reader.seeds(), files.digest_of(made, project)
        rows = files.rows(tasks, seeds, config=made, config_digest=made.digest, digest=source)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = load("quickstart", project=project, sets=["sandbox.kind=local", "game.max_lines=3"])
    ground = on_file(path, run=run, count=None, sandbox=None, project=project)
    assert ground.config.game == made.game
    assert ground.config.sandbox.kind == "local", "where the run's are judged"
    assert on_file(path, run=run, count=None, sandbox="docker", project=project).config.sandbox.kind == "docker"
    own = on_file(path, run=made, count=None, sandbox=None, project=project)
    assert own.config == made, "its own source: its own settings"


# The code game, its replies written beforehand.


def repair(clean: str, buggy: str) -> str:
    """The line edit that makes `clean` of `buggy`."""
    matcher = difflib.SequenceMatcher(a=buggy.splitlines(), b=clean.splitlines(), autojunk=False)
    ((_, first, last, start, end),) = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    assert last - first == end - start == 1
    return f"{first + 1}|{clean.splitlines()[start]}"


@pytest.mark.bubblewrap
def test_held_out_bugs_of_a_package(
    tmp_path: Path, played_code: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELFPLAY_CACHE", str(played_code / "cache"))
    source = next(played_code.glob("pkg-*"))
    sets = [f"game.source={source}", "sandbox.kind=bubblewrap", "game.held_out=0.5", "warmup.steps=0"]
    config = load("quickstart", project=project, sets=sets)

    async def main() -> tuple[HeldOut, HeldOut, list[HeldOutPlay]]:
        async with AsyncExitStack() as stack:
            players = parts.roles(config, project)
            game, _ = await parts.game(config, project, players, observe=ignore, stack=stack)
            made = [await game.held_out(4) for _ in range(2)]
            first, second = (HeldOut(seeds=tuple(seeds), tasks=tuple(tasks)) for seeds, tasks in made)
            (task,) = first.tasks
            mended = repair(task.payload["source"], task.payload["buggy"])
            policy = ScriptedPolicy(
                lambda prompt: mended if "Fix:" in prompt else "no edit", tokenizer=CharTokenizer(string.printable)
            )
            given = {"config_digest": config.digest, "config": config.values(), "seed": 0, "game": "code"}
            with Ledger.create(tmp_path / "eval", **given) as ledger:  # type: ignore[arg-type]
                ledger.append(*first.seeds, *first.tasks)
                pools = Pools(
                    ledger=ledger,
                    player=Player(policy=policy, config_digest=config.digest, seed=0),
                    observe=ignore,
                    interrupt=Interrupt(),
                    clock=Clock(),
                    rows=asyncio.Semaphore(4),
                    workers=asyncio.Semaphore(2),
                    retries=0,
                )
                roles = [replace(r, template="plain") for r in (players.proposer, players.solver)]
                casts = [Cast(roles={role.game: role}) for role in roles]
                found = await play_stints(pools, game, first, step=0, attempts=2, proposers=casts[0], solvers=casts[1])
            return first, second, found

    first, second, found = asyncio.run(main())
    assert first == second
    assert [seed.split for seed in first.seeds] == ["held_out"]
    assert [(task.split, task.seed_id, task.step) for task in first.tasks] == [("held_out", first.seeds[0].id, -1)]
    figures = summary(found, ks=[1, 2])
    assert [figures.passes[k].value for k in (1, 2)] == [1.0, 1.0]
    assert (figures.valid.value, figures.undecided) == (0.0, 0)
