"""Sampler and learner on the probe: equal figures from equal weights, and a run that ends where they are not."""

from __future__ import annotations

import asyncio
import copy
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from selfplay import loop
from selfplay.build import Outcome, assemble
from selfplay.config import Config
from selfplay.errors import RunFailed
from selfplay.events import Event, Interrupt
from selfplay.games.echo import CHARACTERS
from selfplay.ledger import Ledger
from selfplay.loop import Run
from selfplay.policy import Completion, Policy, Request
from selfplay.policy.local import LocalPolicy
from selfplay.policy.toy import toy_model
from selfplay.probe import PROMPTS, REPLIES, TOKENS, Probe, compare, of_metrics, requests, sample_of
from selfplay.project import Project
from selfplay.types import Sampling, Stop

Play = Callable[..., Outcome]
Other = Callable[[Run], Policy]


def versions(**more: int) -> dict[str, int]:
    return {"sampler_version": 1, "learner_version": 1, **more}


def test_the_figures_are_the_mean_difference_and_the_greatest_ratio() -> None:
    found = compare([(-1.0, -2.0), (-3.0,)], [(-1.5, -2.0), (-2.0,)], **versions())
    assert found.gap == pytest.approx(0.5)
    assert found.ratio_max == pytest.approx(math.e)
    assert found.tokens == 3
    assert of_metrics(found.metrics) == found
    assert compare([], [], **versions()) == Probe(gap=0.0, ratio_max=1.0, tokens=0, **versions())
    assert of_metrics({}) is None


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_not_finite_is_an_error(wrong: float) -> None:
    with pytest.raises(RunFailed, match="not finite"):
        compare([(-1.0,)], [(wrong,)], **versions())


def test_a_reply_is_scored_at_every_sampled_token() -> None:
    request = Request(prompt_ids=(5, 6, 7), sampling=Sampling(), seed=1)
    reply = Completion(token_ids=(8, 9), logprobs=(-1.0, -2.0), stop=Stop.TOKENS, policy_version=(0, 0), seconds=0.0)
    sample = sample_of(request, reply)
    assert sample.token_ids == (5, 6, 7, 8, 9)
    assert sample.trained == (False, False, False, True, True)
    assert sample.sampler_logprobs == (0.0, 0.0, 0.0, -1.0, -2.0)


def metrics(folder: Path) -> list[dict[str, float]]:
    with Ledger.read(folder) as reader:
        return [dict(update.metrics) for update in reader.updates("play")]


@pytest.mark.parametrize(("dtype", "most"), [("float32", 1e-5), ("bfloat16", 0.02)])
def test_every_step_has_its_figures_and_the_toys_are_tiny(tmp_path: Path, play: Play, dtype: str, most: float) -> None:
    play(tmp_path / "run", f"learner.dtype={dtype}", steps=3)
    rows = metrics(tmp_path / "run")
    assert len(rows) == 3
    for row in rows:
        assert PROMPTS * REPLIES <= row["probe_tokens"] <= PROMPTS * REPLIES * TOKENS
        assert 0.0 <= row["probe_gap"] < most
        assert abs(row["probe_ratio_max"] - 1.0) < 10 * most
        assert row["probe_sampler_version"] == row["probe_learner_version"]


def test_a_run_in_two_parts_has_the_same_figures(tmp_path: Path, play: Play) -> None:
    play(tmp_path / "whole", steps=3)
    play(tmp_path / "parts", steps=1)
    play(tmp_path / "parts", steps=3)
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")


def stranger(run: Run) -> Policy:
    """A sampler with the weights of another model, which says that they are the learner's."""
    return sampler(run, toy_model(99, alphabet=CHARACTERS)[0])


def stale(run: Run) -> Policy:
    """A sampler with its own copy of the first weights, that nobody refreshes."""
    assert isinstance(run.policy, LocalPolicy)
    return sampler(run, copy.deepcopy(run.learner.model))  # type: ignore[attr-defined]


def sampler(run: Run, model: Any) -> LocalPolicy:
    learner = run.learner
    tokenizer = run.policy.tokenizer
    return LocalPolicy(model, tokenizer, version=lambda: learner.policy_version, executor=run.torch_thread)


def played_with(other: Other | None, config: Config, *, project: Project, folder: Path) -> list[Event]:
    """Play `config` with another sampler than its own; the events.

    Raises:
        RunFailed: as the run.
    """
    events: list[Event] = []

    async def go(ledger: Ledger) -> None:
        parts = {"project": project, "folder": folder, "ledger": ledger, "interrupt": Interrupt()}
        async with assemble(config, observe=events.append, **parts) as run:
            if other is not None:
                policy = other(run)
                player = replace(run.pools.player, policy=policy)
                run = replace(run, policy=policy, pools=replace(run.pools, player=player))
            try:
                await loop.run(run)
            finally:
                if other is not None:
                    await run.policy.aclose()

    if folder.exists():
        opened = Ledger.open(folder)
    else:
        given = {"config_digest": config.digest, "config": config.values(), "seed": 0, "game": "echo"}
        opened = Ledger.create(folder, **given)
    with opened as ledger:
        asyncio.run(go(ledger))
    return events


def test_other_weights_are_noticed_before_anything_is_played(
    tmp_path: Path, project: Project, toy_config: Callable[..., Config]
) -> None:
    # The toy's prompts say so little that two random models differ by less than the default bound.
    config = toy_config("run.steps=3", "alarms.agreement=0.01")
    with pytest.raises(RunFailed, match="sampler and learner do not mean the same model") as error:
        played_with(stranger, config, project=project, folder=tmp_path / "run")
    assert "learner has v0" in error.value.message
    assert "alarms.stop=[]" in error.value.hint
    with Ledger.read(tmp_path / "run") as reader:
        assert reader.last_closed_step() == -1
        [alarm] = reader.alarms()
    assert (alarm.level, alarm.code, alarm.step) == ("error", "agreement", None)
    assert alarm.message in error.value.message


def test_a_sampler_that_is_not_refreshed_ends_the_run_with_its_step_closed_and_saved(
    tmp_path: Path, project: Project, toy_config: Callable[..., Config]
) -> None:
    sets = ("run.steps=4", "learner.lr=0.1", "run.save_every=4", "alarms.agreement=0.01")
    folder = tmp_path / "run"
    with pytest.raises(RunFailed, match="alarm `agreement` ended the run"):
        played_with(stale, toy_config(*sets), project=project, folder=folder)
    with Ledger.read(folder) as reader:
        last = reader.last_closed_step()
        update, alarms, saves = reader.update(last), reader.alarms(), reader.saves()
    assert 0 <= last < 3
    assert update is not None
    assert update.metrics["probe_gap"] > 0.01
    assert [(alarm.code, alarm.step) for alarm in alarms] == [("agreement", last)]
    assert [save.step for save in saves] == [last]
    # With the sampler mended the same command goes on to the end, and tells nothing twice.
    events = played_with(None, toy_config(*sets), project=project, folder=folder)
    assert not [event for event in events if event.kind == "alarm"]
    with Ledger.read(folder) as reader:
        assert reader.last_closed_step() == 3


def test_where_it_may_not_stop_the_run_it_warns_once(
    tmp_path: Path, project: Project, toy_config: Callable[..., Config]
) -> None:
    config = toy_config("run.steps=2", "alarms.agreement=0.001", "alarms.stop=[]")
    events = played_with(stranger, config, project=project, folder=tmp_path / "run")
    alarms = [event for event in events if event.kind == "alarm"]
    assert {event.data["name"] for event in alarms} == {"agreement"}
    assert all(event.data["fix"] for event in alarms)
    with Ledger.read(tmp_path / "run") as reader:
        assert [alarm.step for alarm in reader.alarms()] == [None, 0], "before the first step, and where it began"


def test_the_prompts_are_drawn_by_the_runs_seed_and_cut_to_the_context(
    tmp_path: Path, project: Project, toy_config: Callable[..., Config]
) -> None:
    config = toy_config("run.steps=0")

    async def ask(ledger: Ledger) -> tuple[tuple[Request, ...], ...]:
        parts = {"project": project, "folder": tmp_path / "run", "ledger": ledger, "interrupt": Interrupt()}
        async with assemble(config, observe=lambda event: None, **parts) as run:
            seeds = await run.game.seeds()
            other = replace(run, settings=replace(run.settings, seed=1))
            return requests(run, seeds), requests(run, list(reversed(seeds))), requests(other, seeds), requests(run, [])

    given = {"config_digest": config.digest, "config": config.values(), "seed": 0, "game": "echo"}
    with Ledger.create(tmp_path / "run", **given) as ledger:
        asked, shuffled, other, nothing = asyncio.run(ask(ledger))
    assert asked == shuffled
    assert len(asked) == PROMPTS * REPLIES == len({request.seed for request in asked})
    assert {request.seed for request in asked}.isdisjoint(request.seed for request in other)
    assert nothing == ()
