"""Engines on the nodes of a cluster in a plan: what is said of them, what they cannot do; themselves: tests/cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from selfplay import elsewhere, samplers
from selfplay.config import Config
from selfplay.errors import UserError
from selfplay.plan import plan
from selfplay.policy import cards
from selfplay.project import Project

ENGINES = "run.cluster={engines=3}"
VLLM = "policy.backend=vllm"

Config_ = Callable[..., Config]


def test_a_plan_says_where_replies_come_from(toy_config: Config_, project: Project) -> None:
    for backend, kept in ((), "A, B, C"), ((VLLM, "policy.options={python='/on/the/nodes'}"), "A, B"):
        config = toy_config(ENGINES, *backend)
        rows = {row.name: row for row in plan(config, project)}
        assert rows["sampler"].value.startswith(f"3 engines of {config.policy.backend} on the nodes of a Ray cluster")
        assert rows["sampler"].note == f"guarantees {kept}"
        assert "3 engines" in rows["cluster"].value
        assert config.digest == toy_config(*backend).digest
        assert samplers.engine_mb(config, weights_mb=100.0) == 0.0
    assert elsewhere.engines(toy_config()) == elsewhere.engines(toy_config("run.cluster={sandboxes=2}")) == 0
    assert samplers.check(toy_config()).words == "the learner's own weights, in memory"


def test_copies_of_the_weights_may_play_ahead(toy_config: Config_) -> None:
    ahead = "run.staleness=1"
    assert samplers.check(toy_config(ENGINES, ahead)).guarantees == "A, B, C"
    with pytest.raises(UserError, match="staleness"):
        samplers.check(toy_config(ahead))


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (("run.cluster={engines=-1}",), "`engines` is -1, expected at least 0"),
        (("run.cluster={engines=1, engine_gpus=2}",), "`engine_gpus` is 2, expected 0 or 1"),
        (("run.cluster={engines=1, engine_gpus=1}",), "`local` is on a node's processor"),
        ((ENGINES, "policy.options={python='x'}"), "`local` has no constants"),
        ((ENGINES, VLLM, "policy.options={replicas=2}"), "replicas to 2, and run.cluster asks for 3 engines"),
        ((ENGINES, VLLM, "policy.options={cards='0'}"), "cards to '0'"),
        ((ENGINES, VLLM, "policy.options={sleep=true}"), "sleep to True"),
        ((ENGINES, "policy.backend=openai", "roles.train=[]"), "`openai` samples at a server"),
    ],
)
def test_what_engines_cannot_do_is_refused(sets: tuple[str, ...], words: str, toy_config: Config_) -> None:
    with pytest.raises(UserError, match=words) as error:
        samplers.check(toy_config(*sets))
    assert error.value.hint


def test_engines_beside_a_learner_on_a_card_are_corrected_for(
    toy_config: Config_, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cards, "learner_has_one", lambda *, ranks: ranks == 1)
    with pytest.raises(UserError, match="3 engines sample on processors, whose arithmetic is another"):
        samplers.check(toy_config(ENGINES))
    assert samplers.check(toy_config(ENGINES, "learner.correction=token_truncated")).guarantees == "A, B"
    assert samplers.check(toy_config(ENGINES, "learner.ranks=2")).guarantees == "A, B, C"


def test_every_engine_has_as_many_replies_as_it_holds(toy_config: Config_) -> None:
    sets = ("policy.max_rows=8",)
    assert samplers.in_flight(toy_config(*sets)) == 16
    assert samplers.in_flight(toy_config(*sets, ENGINES)) == 48
    assert samplers.in_flight(toy_config(*sets, VLLM, "policy.options={replicas=2}")) == 32
    assert samplers.in_flight(toy_config(*sets, VLLM, ENGINES)) == 48
