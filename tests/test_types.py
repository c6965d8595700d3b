"""Ids are pure functions of their arguments; records are frozen and say what they hold."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from selfplay.types import Stop, Trajectory, Turn, digest, draw, play_id, task_id


def trajectory(**changes: object) -> Trajectory:
    values = {
        "id": "t",
        "step": 0,
        "stage": "attempt",
        "role": "solver",
        "subject_id": "s",
        "index": 0,
        "turns": (
            Turn(speaker="prompt", token_ids=(1, 2), text="p"),
            Turn(speaker="policy", token_ids=(3,), logprobs=(-0.5,), text="r"),
        ),
        "stop": Stop.DONE,
        "policy_version": (0, 0),
    }
    return Trajectory(**{**values, **changes})  # type: ignore[arg-type]


def test_digest_does_not_depend_on_key_order_or_process() -> None:
    assert digest({"a": 1, "b": [2.5, None]}) == digest({"b": [2.5, None], "a": 1})
    code = "from selfplay.types import digest; print(digest({'a': 1, 'b': [2.5, None]}))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == digest({"a": 1, "b": [2.5, None]})


def test_digest_refuses_what_is_not_json() -> None:
    with pytest.raises(TypeError):
        digest(object())
    with pytest.raises(ValueError, match="JSON"):
        digest(float("nan"))


def test_draws_are_keyed_and_63_bits() -> None:
    values = {draw(0, step, index) for step in range(20) for index in range(20)}
    assert len(values) == 400
    assert all(0 <= value < 1 << 63 for value in values)
    assert draw(0, 3, 4) == draw(0, 3, 4)


def test_every_part_of_a_place_changes_the_id() -> None:
    place = {"step": 0, "stage": "attempt", "role": "solver", "subject_id": "s", "index": 0, "attempt": 0}
    numbers = ("step", "index", "attempt")
    changed = [{**place, key: 1 if key in numbers else f"{value}1"} for key, value in place.items()]
    ids = {play_id("c", **p) for p in (place, *changed)} | {play_id("d", **place)}  # type: ignore[arg-type]
    assert len(ids) == 8
    assert task_id("c", game="g", key="k") != task_id("c", game="g", key="l")


def test_ids_of_a_step_lie_side_by_side() -> None:
    place = {"stage": "attempt", "role": "solver", "subject_id": "s", "index": 0, "attempt": 0}
    assert [play_id("c", step=step, **place)[:4] for step in (0, 17, 0x10002)] == ["0000", "0011", "0002"]  # type: ignore[arg-type]


def test_records_are_frozen_and_slotted() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        trajectory().step = 1  # type: ignore[misc]
    assert not hasattr(trajectory(), "__dict__")


def test_a_trajectory_is_its_turns() -> None:
    played = trajectory()
    assert played.token_ids == (1, 2, 3)
    assert played.reply == "r"
    assert played.num_sampled == 1
    assert trajectory(turns=()).reply == ""


def test_siblings_share_a_group_and_others_do_not() -> None:
    assert trajectory(index=1, id="u").group_id == trajectory().group_id
    assert trajectory(step=1).group_id != trajectory().group_id
    assert trajectory(role="proposer").group_id != trajectory().group_id


def test_which_stops_are_truncations() -> None:
    limits = {Stop.TOKENS, Stop.OUTPUT, Stop.CONTEXT, Stop.TURNS, Stop.SECONDS}
    assert {stop for stop in Stop if stop.truncated} == limits
