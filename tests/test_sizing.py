"""What fits where: pure picks, cards by their driver's command, the lines of a plan, and the scales."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from selfplay import config as configs
from selfplay import parts, sizing
from selfplay.build import execute
from selfplay.cli.run import Options, resolve
from selfplay.cli.session import Session
from selfplay.config.scales import SCALES
from selfplay.config.settings import fields
from selfplay.errors import UserError
from selfplay.events import Interrupt
from selfplay.learner import memory
from selfplay.plan import plan
from selfplay.policy import cards
from selfplay.project import Project
from selfplay.sizing import BUDGETS, Device, Needs, pick

MEMORY = Device(name="memory", limit_mb=20_000.0)


def card(mb: float, number: int = 0) -> Device:
    return Device(name=f"card {number}", limit_mb=mb, card=True)


def needs(*, fixed: float = 4000.0, engine: float = 2000.0, keys: float = 3000.0) -> Needs:
    """A learner whose activations take a MB a token."""

    def learner(budget: int, limit_mb: float) -> Mapping[str, float]:
        return {"weights": fixed, "activations": float(budget)}

    return Needs(learner=learner, engine_mb=engine, weights_mb=engine / 2, keys_mb=keys)


def test_the_largest_token_budget_that_fits_is_picked() -> None:
    alone = pick(needs(engine=0.0), [MEMORY])
    assert (alone.replicas, alone.token_budget, alone.sleep, alone.fits) == (0, 8192, False, True)
    assert alone.loads[0].kinds == {"weights": 4000.0, "activations": 8192.0, "keys and values": 3000.0}
    beside = pick(needs(), [MEMORY])
    assert (beside.replicas, beside.token_budget, beside.keys_mb, beside.fits) == (1, 8192, 3000.0, True)
    assert beside.loads[0].total_mb <= MEMORY.limit_mb
    assert beside.loads[0].kinds["weights"] == 5000.0


def test_less_room_gives_fewer_keys_and_then_turns() -> None:
    tight = pick(needs(), [card(8000.0)])
    assert (tight.keys_mb, tight.token_budget, tight.sleep, tight.fits) == (976.0, BUDGETS[0], False, True)
    turns = pick(needs(), [card(7000.0)])
    assert (turns.sleep, turns.fits, turns.token_budget) == (True, True, 2048)
    assert not pick(needs(), [Device(name="memory", limit_mb=7000.0)]).fits, "nothing sleeps outside a card"
    assert not pick(needs(fixed=40_000.0), [card(7000.0)]).fits


def test_of_several_cards_the_learner_has_the_first() -> None:
    found = pick(needs(keys=90_000.0), [card(10_000.0, n) for n in range(4)])
    assert (found.replicas, found.keys_mb, found.token_budget) == (3, 8000.0, 4096)
    assert (found.sleep, found.fits) == (False, True)
    assert [load.device.name for load in found.loads] == ["card 0", "card 1", "card 2", "card 3"]
    assert max(load.total_mb for load in found.loads) <= 10_000.0
    assert pick(needs(keys=900.0), [card(10_000.0, n) for n in range(4)]).keys_mb == 300.0
    assert not pick(needs(engine=11_000.0), [card(10_000.0, n) for n in range(2)]).fits


def test_cards_are_what_the_drivers_command_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert sizing.cards() == ()
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\necho '0, Card A, 24564'\necho '1, Card B, 1000'\n")
    command.chmod(0o755)
    assert sizing.cards() == (("card 0 (Card A)", pytest.approx(25757.2, abs=0.1)), ("card 1 (Card B)", 1048.576))
    for visible, names in (("1", ["card 1"]), ("1,0", ["card 1", "card 0"]), ("", []), ("-1", []), ("GPU-5a", None)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        found = [name.partition(" (")[0] for name, _ in sizing.cards()]
        assert found == (["card 0", "card 1"] if names is None else names)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    command.write_text("#!/bin/sh\nexit 9\n")
    assert sizing.cards() == ()


def test_the_learner_has_the_first_card_and_an_engine_may_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: Project
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(cards, "version", lambda name: "2.13.0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\necho '0, Card A, 20000'\necho '1, Card B, 20000'\n")
    command.chmod(0o755)

    def where(*sets: str) -> list[str]:
        config = configs.load("quickstart", project=project, sets=list(sets), environ={})
        return [device.name for device in sizing.devices(config)]

    assert where() == ["card 0 (Card A)"]
    assert where("policy.backend=vllm") == ["card 0 (Card A)", "card 1 (Card B)"]
    assert where("policy.backend=vllm", "learner.ranks=2") == ["memory", "card 0 (Card A)", "card 1 (Card B)"]
    monkeypatch.setattr(cards, "version", lambda name: "2.13.0+cpu")
    assert where() == ["memory"]
    assert (cards.shared(""), cards.shared("0 1"), cards.shared("1")) == (True, True, False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert (cards.shared("0"), cards.shared("1")) == (False, True)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A model of 7 billion parameters, as far as a plan asks."""
    folder = tmp_path / "large"
    folder.mkdir()
    shape = {"hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4}
    more = {"intermediate_size": 18944, "vocab_size": 152064, "max_position_embeddings": 32768}
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2", **shape, **more}))
    return folder


def test_a_large_model_does_not_fit_on_a_small_card_and_fits_on_several(large: Path, project: Project) -> None:
    config = configs.load("quickstart", project=project, scale="gpu", sets=[f"policy.model={large}"], environ={})
    found = sizing.needs_of(config, parts.roles(config, project))
    assert found is not None
    assert found.weights_mb == pytest.approx(2 * 7615.5, rel=0.01)
    assert not pick(found, [card(22_000.0)]).fits
    node = pick(found, [card(140_000.0, n) for n in range(8)])
    assert node.fits
    assert node.replicas == 7
    learner = node.loads[0].kinds
    assert learner["optimizer"] == pytest.approx(3 * 4 * 7615.5, rel=0.01)


def test_a_row_is_as_long_as_the_longest_play_of_a_role(large: Path, project: Project) -> None:
    def tokens(preset: str) -> float:
        sets = [f"policy.model={large}", "policy.backend=vllm", "policy.max_rows=10"]
        config = configs.load(preset, project=project, sets=sets, environ={})
        found = sizing.needs_of(config, parts.roles(config, project))
        assert found is not None
        size = memory.SIZES[config.learner.dtype]
        return found.keys_mb * memory.MB / (2 * 28 * 4 * 128 * size)

    short, searches = project.load_role("injector"), project.load_role("search_solver")
    assert tokens("quickstart") == pytest.approx(10 * (512 + short.sampling.max_tokens))
    assert searches.limits.context > 512 + searches.sampling.max_tokens
    assert tokens("ssp-paper") == pytest.approx(10 * searches.limits.context), "prompt and what tools say among them"


def test_a_plan_says_what_fits_and_that_a_scale_is_untested(
    large: Path, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name, words in (("gpu", "untested"), ("node", "untested"), ("laptop", "")):
        config = configs.load("quickstart", project=project, scale=name, sets=[f"policy.model={large}"], environ={})
        rows = {row.name: row for row in plan(config, project) if row.section == "sizing"}
        assert rows[f"scale {name}"].note.partition(":")[0] == words
        assert rows["verdict"].value.startswith("it ")
        assert "optimizer" in rows["memory"].value
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho '0, Card A, 24564'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    config = configs.load("quickstart", project=project, scale="gpu", sets=[f"policy.model={large}"], environ={})
    rows = {row.name: row for row in plan(config, project) if row.section == "sizing"}
    assert "keys and values" in rows["card 0 (Card A)"].value
    assert "optimizer" in rows["memory"].value, "this torch is for the processor alone"
    monkeypatch.setattr(cards, "version", lambda name: "2.13.0")
    rows = {row.name: row for row in plan(config, project) if row.section == "sizing"}
    assert "optimizer" in rows["card 0 (Card A)"].value
    assert "it does not fit" in rows["verdict"].value
    assert "memory" not in rows
    asked = {row.name: row.note for row in plan(config, project) if row.section == "memory"}
    assert asked["in all"] == "of 22281 MB that learner and sampler may use", (
        "nine tenths of the card, the engine asleep"
    )
    asked = {row.name: row for row in plan(configs.load("demo", project=project, environ={}), project)}
    assert "verdict" not in asked, "the toy model has no sizes"


@pytest.mark.parametrize("backend", ["local", "vllm"])
def test_engines_on_a_cluster_take_nothing_here(backend: str, large: Path, project: Project) -> None:
    sets = [f"policy.model={large}", f"policy.backend={backend}"]
    found = {}
    for engines in (0, 2):
        more = [*sets, f"run.cluster={{sandboxes = 2, engines = {engines}}}"]
        config = configs.load("quickstart", project=project, scale="ray", sets=more, environ={})
        needs = sizing.needs_of(config, parts.roles(config, project))
        assert needs is not None
        found[engines] = needs
        rows = {row.name for row in plan(config, project) if row.section == "memory"}
        assert ("sampler's cache" in rows) == (backend == "local" and not engines)
    assert found[0].keys_mb > 0.0
    assert (found[2].keys_mb, found[2].engine_mb) == (0.0, 0.0)


def test_a_scale_lies_between_the_preset_and_what_is_typed(project: Project) -> None:
    config = configs.load("demo", project=project, scale="smoke", sets=["play.attempts=3"], environ={})
    assert (config.run.steps, config.play.attempts, config.policy.model) == (1, 3, "toy")
    assert (config.provenance["run.steps"], config.provenance["play.attempts"]) == ("--scale smoke", "-s")
    with pytest.raises(UserError, match="no scale `smok`") as error:
        configs.load("demo", project=project, scale="smok", environ={})
    assert "did you mean `smoke`?" in error.value.hint
    known = dict(fields())
    assert all(name in known for scale in SCALES.values() for name in scale.values)


@pytest.mark.parametrize("name", sorted(SCALES))
def test_every_scale_is_valid_over_every_preset(name: str, project: Project) -> None:
    for preset in ("quickstart", "search-quickstart", "demo"):
        assert configs.load(preset, project=project, scale=name, environ={}).values()


def test_a_scale_is_not_laid_over_the_settings_of_a_run(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELFPLAY_RUNS", str(tmp_path))
    configs.load("demo", project=project, environ={}).write(tmp_path / "old")
    session = Session()
    given = {"sets": (), "steps": None, "sandbox": None, "new": False, "plan": True, "quiet": True, "scale": "smoke"}
    with pytest.raises(UserError, match="--scale is laid over a preset"):
        resolve(session, Options.of(None, {**given, "name": "old"}))
    config, _ = resolve(session, Options.of("demo", {**given, "name": "new"}))
    assert config.provenance["run.steps"] == "--scale smoke"


def test_a_smoke_run_is_played_to_its_end(project: Project, tmp_path: Path) -> None:
    config = configs.load("demo", project=project, scale="smoke", environ={})
    done = execute(config, project=project, folder=tmp_path / "run", observe=lambda event: None, interrupt=Interrupt())
    assert (done.stop, done.steps) == ("done", 1)
