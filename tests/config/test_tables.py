"""The tables: frozen, closed, and every key said in a sentence; layers and digests: `tests/test_config.py`."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from selfplay.config import Config, tables
from selfplay.config.settings import affects_results, fields

TABLES = [kind for kind in vars(tables).values() if isinstance(kind, type) and issubclass(kind, tables.Table)]


def test_every_key_has_a_sentence_and_says_whether_it_affects_results() -> None:
    for name, info in fields():
        assert info.description, name
        assert info.description.rstrip().endswith((".", "`.")), name
        assert isinstance(affects_results(name), bool)
    own = [info for kind in TABLES for info in kind.model_fields.values()]
    assert len(own) == len(list(fields())), "every table is part of a configuration"


def test_what_only_moves_work_about_is_outside_the_digest() -> None:
    for name in ("run.steps", "run.save_every", "sandbox.kind", "sandbox.workers", "policy.threads", "warmup.cache"):
        assert not affects_results(name), name
    for name in ("run.seed", "learner.lr", "play.attempts", "game.held_out", "sandbox.timeout_seconds"):
        assert affects_results(name), name


@pytest.mark.parametrize(
    ("table", "given"),
    [
        (tables.Run, {"steps": -1}),
        (tables.Run, {"steps": 1.0}),
        (tables.Run, {"steps": True}),
        (tables.Run, {"stepz": 1}),
        (tables.Game, {"held_out": 1.0}),
        (tables.Game, {"max_broken_share": 0.0}),
        (tables.Play, {"temperature": 0.0}),
        (tables.Learner, {"lr": 0.0}),
        (tables.Learner, {"lr": float("nan")}),
        (tables.Learner, {"max_grad_norm": float("inf")}),
        (tables.Learner, {"clip_low": 1.5}),
        (tables.Learner, {"token_budget": 63}),
        (tables.Sandbox, {"kind": "chroot"}),
        (tables.Roles, {"weights": (0.5, -0.1)}),
        (tables.Roles, {"weights": "even"}),
        (tables.Curriculum, {"options": {"a": [1]}}),
    ],
)
def test_what_is_out_of_bounds_or_of_another_type_is_refused(table: type[tables.Table], given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        table(**given)


def test_the_edges_that_are_allowed() -> None:
    assert tables.Run(steps=0).steps == 0
    assert tables.Game(held_out=0.0, max_broken_share=1.0).max_broken_share == 1.0
    assert tables.Learner(clip_low=1.0, token_budget=64, kl=0).kl == 0.0
    assert tables.Roles(weights="pooled").weights == "pooled"


def test_a_configuration_cannot_be_changed() -> None:
    config = Config()
    with pytest.raises(ValidationError):
        config.run.steps = 3  # type: ignore[misc]
