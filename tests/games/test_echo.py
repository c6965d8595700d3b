"""The toy game's rules: what is a word, what is an echo, what a word is worth."""

from __future__ import annotations

import asyncio

import pytest

from selfplay.games.echo import CHARACTERS, EchoGame
from selfplay.games.rewards import proposer_reward
from selfplay.project import Project
from selfplay.rollout import render
from selfplay.types import Seed, Stop, Task, Trajectory, Turn, Verdict


@pytest.fixture(scope="module")
def game(project: Project) -> EchoGame:
    reward = proposer_reward("ssr", min_viable=2)
    roles = [project.load_role(name) for name in ("echo_proposer", "echo_solver")]
    return EchoGame(proposer=roles[0], solver=roles[1], proposer_reward=reward, config_digest="c")


def said(text: str, *, stop: Stop = Stop.DONE, step: int = 0) -> Trajectory:
    turn = Turn(speaker="policy", token_ids=(1,), logprobs=(-1.0,), text=text)
    return Trajectory(
        id=f"{step}{text}",
        step=step,
        stage="propose",
        role="echo_proposer",
        subject_id="s",
        index=0,
        turns=(turn,),
        stop=stop,
        policy_version=(0, 0),
    )


def seed(length: int) -> Seed:
    return Seed(id="s", game="echo", source="echo:0", payload={"length": length}, split="train")


def mint(game: EchoGame, text: str, *, length: int = 2, stop: Stop = Stop.DONE) -> tuple[Verdict, Task | None]:
    minted = asyncio.run(game.mint(said(text, stop=stop), seed(length)))
    return minted.verdict, minted.task


def test_a_word_of_the_wanted_length_is_a_task(game: EchoGame) -> None:
    verdict, task = mint(game, "ab")
    assert verdict.valid
    assert task is not None
    assert verdict.task_id == task.id
    assert verdict.reward is None
    assert game.solver_view(task) == {"word": "ab", "hint": ""}


def test_a_hint_is_the_first_letter_and_the_prompt_without_one_is_the_word(game: EchoGame) -> None:
    _, task = mint(game, "ab")
    assert task is not None
    prompts = [render(game.solver, game.solver_view(task, terms=terms)) for terms in ({}, {"hint": True})]
    assert prompts == ["ab>", "a?ab>"]
    assert set("".join(prompts)) <= set(CHARACTERS)


@pytest.mark.parametrize(
    ("text", "stop", "reason"),
    [
        ("a", Stop.DONE, "wrong_length"),
        ("", Stop.DONE, "wrong_length"),
        ("a?", Stop.DONE, "not_letters"),
        ("ab", Stop.TOKENS, "truncated"),
    ],
)
def test_what_is_no_task_says_why(game: EchoGame, text: str, stop: Stop, reason: str) -> None:
    verdict, task = mint(game, text, stop=stop)
    assert (verdict.valid, verdict.reason, task) == (False, reason, None)
    assert verdict.why


def test_copies_of_a_step_are_one_task_and_another_steps_are_not(game: EchoGame) -> None:
    ids = [asyncio.run(game.mint(said("ab", step=step), seed(2))).verdict.task_id for step in (0, 0, 1)]
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.parametrize(
    ("reply", "stop", "reason"),
    [
        ("ba", Stop.DONE, "valid"),
        ("a", Stop.DONE, "valid"),
        ("ba", Stop.TOKENS, "truncated"),
        ("", Stop.DONE, "wrong_length"),
        ("aba", Stop.DONE, "wrong_length"),
        ("b?", Stop.DONE, "not_letters"),
        ("ab", Stop.DONE, "same_as_parent"),
    ],
)
def test_the_child_of_a_failed_echo_is_what_it_wrote(game: EchoGame, reply: str, stop: Stop, reason: str) -> None:
    _, parent = mint(game, "ab")
    assert parent is not None
    attempt = said(reply, stop=stop)
    minted = asyncio.run(game.mutate(parent, attempt, step=4))
    verdict = minted.verdict
    assert (verdict.stage, verdict.trajectory_id, verdict.reward) == ("mint", attempt.id, None)
    assert (verdict.valid, verdict.reason, verdict.task_id is not None) == (
        reason == "valid",
        reason,
        reason == "valid",
    )
    if minted.task is not None:
        assert (minted.task.step, minted.task.parent_id, minted.task.seed_id) == (4, attempt.id, parent.seed_id)
        assert game.solver_view(minted.task)["word"] == reply
        assert asyncio.run(game.mint(said(reply, step=4), seed(len(reply)))).verdict.task_id != minted.task.id


@pytest.mark.parametrize(
    ("reply", "stop", "passed", "reward"),
    [
        ("ab", Stop.DONE, True, 1.0),
        ("aa", Stop.DONE, False, 1 / 3),
        ("ab", Stop.TOKENS, False, 1 / 3),
        ("a", Stop.DONE, False, -1 / 3),
        ("", Stop.DONE, False, -1.0),
    ],
)
def test_an_echo_is_paid_by_its_right_letters(
    game: EchoGame, reply: str, stop: Stop, passed: bool, reward: float
) -> None:
    _, task = mint(game, "ab")
    assert task is not None
    verdict = asyncio.run(game.judge(said(reply, stop=stop), task))
    assert verdict.passed is passed
    assert verdict.reward == pytest.approx(reward)


def test_a_word_is_worth_what_its_solve_rate_says(game: EchoGame) -> None:
    minted, task = mint(game, "ab")
    assert task is not None
    judged = [asyncio.run(game.judge(said(reply), task)) for reply in ("ab", "ba", "aa", "bb")]
    graded = game.grade(said("ab"), minted, judged)
    assert graded.reward == pytest.approx(1 - 1.8 / 4)
    assert graded.parts["solve_rate"] == 0.25
    assert game.grade(said("a"), mint(game, "a")[0], []).reward == -1.0
    assert game.grade(said("ab"), minted, judged[:1]).reward is None
