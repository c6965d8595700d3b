"""Names of backends become policies, or a sentence; a run that collects from an endpoint."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay import samplers
from selfplay.batches import sample_of
from selfplay.build import Outcome
from selfplay.config import Config
from selfplay.errors import NotReady, RunFailed, SelfplayError, UserError
from selfplay.evaluation.targets import Target, config_of
from selfplay.games.echo import CHARACTERS
from selfplay.learner.refuse import refuse
from selfplay.learner.spectator import SKIPPED
from selfplay.ledger import Ledger, check
from selfplay.plan import plan
from selfplay.policy import cards
from selfplay.policy.cards import ENGINE_MB
from selfplay.policy.toy import CharTokenizer
from selfplay.project import Project
from selfplay.replay import replay
from selfplay.types import Batch
from tests.served import Answer, serving

COLLECT = ("policy.backend=openai", "roles.train=[]", "run.save_every=1")
Config_ = Callable[..., Config]
TOKENIZER = CharTokenizer(CHARACTERS)


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy between the policy and this machine."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def echoed(body: dict[str, object]) -> Answer:
    """A reply that follows from the prompt alone, with ids and log-probabilities."""
    prompt = body["prompt"]
    assert isinstance(prompt, list)
    ids = [prompt[0], prompt[-1]]
    choice = {
        "text": TOKENIZER.decode(ids),
        "token_ids": ids,
        "finish_reason": "length",
        "logprobs": {"token_logprobs": [-0.5, -1.5]},
    }
    return 200, {"choices": [choice]}


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (("policy.options={python='x'}",), "has no constants"),
        (("policy.backend=vllm", "policy.options={pyton='x'}"), "no such constant"),
        (("policy.backend=vllm", "policy.options={kv_gb='x'}"), "it takes float"),
        (("policy.backend=vllm", "policy.options={restarts=-1}"), "it takes int"),
        (("policy.backend=vllm", "policy.options={restarts=1.5}"), "it takes int"),
        (("policy.backend=vllm", "policy.options={sleep=1}"), "it takes bool"),
        (("policy.backend=vllm", "policy.options={sleep=true}", "run.staleness=1"), "sample while they sleep"),
        (("policy.backend=openai", "roles.train=[]"), "names no address"),
        (("policy.backend=openai", "policy.options={url='http://h/v1'}"), "roles.train asks to learn"),
        (
            ("policy.backend=openai", "policy.options={url='http://h/v1'}", "roles.train=[]", "learner.kl=0.1"),
            "learner.kl asks to learn",
        ),
        (
            ("policy.backend=openai", "policy.options={url='http://h/v1'}", "roles.train=[]", "warmup.steps=3"),
            "warmup.steps asks to learn",
        ),
        (("learner.ranks=2", "learner.order=solver_first"), "ranks make one update a step"),
        (("learner.ranks=2", "learner.optimizer=adamw8bit"), "`adamw8bit` keeps blocks of numbers together"),
    ],
)
def test_what_a_backend_cannot_honour_is_refused_by_the_plan_and_the_run(
    sets: tuple[str, ...],
    words: str,
    toy_config: Config_,
    play: Callable[..., Outcome],
    project: Project,
    tmp_path: Path,
) -> None:
    with pytest.raises(UserError, match=words):
        plan(toy_config(*sets), project)
    with pytest.raises(UserError, match=words):
        play(tmp_path / "run", *sets)
    assert not (tmp_path / "run").exists()


def test_an_environment_without_vllm_is_refused_with_what_to_type(toy_config: Config_, project: Project) -> None:
    config = toy_config("policy.backend=vllm", f"policy.options={{python='{sys.executable}', replicas=2}}")
    with pytest.raises(NotReady, match="vLLM is not installed in the environment") as error:
        samplers.check(config)
    assert "pip install" in error.value.hint
    rows = {row.name: row for row in plan(config, project)}
    assert rows["sampler"].value.startswith("not ready here: vLLM is not installed"), "a plan is printed all the same"
    assert rows["sampler"].note == "guarantees A, B"


def test_a_copy_of_the_weights_is_corrected_for_unless_it_is_asked_otherwise(toy_config: Config_) -> None:
    vllm = "policy.backend=vllm"
    assert samplers.correction(toy_config()) is None
    assert samplers.correction(toy_config(vllm)) == "token_truncated"
    assert samplers.correction(toy_config(vllm, "learner.correction=none")) is None
    assert samplers.correction(toy_config(vllm, "learner.correction=icepop")) == "icepop"
    assert samplers.correction(toy_config("learner.correction=icepop")) == "icepop"


def test_an_engine_on_the_learners_card_takes_of_it_unless_it_sleeps(
    toy_config: Config_, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def taken(*sets: str) -> float:
        return samplers.engine_mb(toy_config(*sets), weights_mb=100.0)

    vllm = "policy.backend=vllm"
    assert taken() == 0.0
    assert taken(vllm) == pytest.approx(100.0 + 1073.7 + ENGINE_MB, abs=0.1)
    assert taken(vllm, "policy.options={kv_gb=2.0, cards='0'}") == pytest.approx(100.0 + 2147.5 + ENGINE_MB, abs=0.1)
    assert taken(vllm, "policy.options={cards='1'}") == 0.0
    assert taken(vllm, "policy.options={sleep=true}") == ENGINE_MB


def test_bits_are_promised_on_the_processor_alone(
    toy_config: Config_, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert samplers.check(toy_config()).guarantees == "A, B, C"
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho '0, Card A, 24564'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(cards, "version", lambda name: "2.13.0")
    assert samplers.check(toy_config()).guarantees == "A, B"
    assert samplers.check(toy_config("learner.ranks=2")).guarantees == "A, B, C"


def test_whole_numbers_do_where_a_fraction_is_taken() -> None:
    from selfplay.policy.vllm_setup import Options

    found = samplers.constants(Options, {"kv_gb": 2, "python": "p"}, backend="vllm")
    assert (found.kv_gb, found.python) == (2, "p")


def test_the_plan_names_backend_and_guarantees(toy_config: Config_, project: Project) -> None:
    rows = {row.name: row for row in plan(toy_config(), project)}
    assert rows["sampler"].note == "guarantees A, B, C"
    assert "correction" not in rows
    collects = toy_config(*COLLECT, "policy.options={url='http://h/v1', model='m'}")
    rows = {row.name: row for row in plan(collects, project)}
    assert rows["sampler"].value == "m at http://h/v1; nothing is learnt"
    assert rows["sampler"].note == "guarantees A"


def test_a_run_collects_from_an_endpoint_and_goes_on(
    play: Callable[..., Outcome], project: Project, tmp_path: Path
) -> None:
    folder = tmp_path / "collected"
    with serving(echoed) as served:
        sets = (*COLLECT, f"policy.options={{url='{served.url}', model='m'}}")
        assert play(folder, *sets, steps=1).steps == 1
        with Ledger.read(folder) as ledger:
            before = {one.id for one in ledger.trajectories(0, "propose")}
        asked = len(served.asked)
        assert play(folder, *sets, steps=2).steps == 2
        assert play(folder, *sets, steps=2).steps == 2
        assert asked < len(served.asked)
    with Ledger.read(folder) as ledger:
        [first, *_] = replies = ledger.trajectories(0, "propose")
        assert {one.id for one in replies} == before, "nothing recorded was asked for again"
        assert first.turns[-1].logprobs == (-0.5, -1.5)
        assert [update.skipped for update in ledger.updates("play")] == [SKIPPED, SKIPPED]
        assert [save.step for save in ledger.saves()][-1] == 1
    assert not [one for one in check.checks(folder) if one.num_problems]
    said: list[str] = []
    again = replay(folder, 1, project=project, say=said.append)
    assert (again.sampler, again.equal) == (None, True)
    assert "policy.backend `openai` cannot be had again" in said[0]


def test_log_probabilities_that_an_endpoint_does_not_tell_are_missing_and_not_learnt_from(
    play: Callable[..., Outcome], tmp_path: Path
) -> None:
    folder = tmp_path / "collected"

    def silent(body: dict[str, object]) -> Answer:
        status, answer = echoed(body)
        del answer["choices"][0]["logprobs"]
        return status, answer

    with serving(silent) as served:
        play(folder, *COLLECT, f"policy.options={{url='{served.url}', model='m'}}", steps=1)
    with Ledger.read(folder) as ledger:
        [reply, *_] = ledger.trajectories(0, "propose")
    assert (len(reply.turns[-1].token_ids), reply.turns[-1].logprobs) == (2, ())
    assert not [one for one in check.checks(folder) if one.num_problems]
    sample = sample_of(reply, advantage=1.0, group_id="g")
    with pytest.raises(RunFailed, match=f"trajectory {reply.id} .* cannot be learnt from"):
        refuse(Batch(step=0, phase="play", samples=(sample,), temperature=1.0))


def test_a_model_is_evaluated_by_itself_on_what_an_endpoint_played(toy_config: Config_) -> None:
    collects = toy_config(*COLLECT, "policy.options={url='http://h/v1'}")
    found = config_of(Target(words="toy", kind="model", name="toy"), otherwise=collects)
    assert (found.policy.backend, found.policy.options, found.policy.model) == ("local", {}, "toy")


def test_an_endpoint_that_goes_away_ends_the_run_and_loses_nothing(
    play: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selfplay.policy.openai.LONGEST_WAIT", 0.01)
    folder = tmp_path / "collected"
    with serving(echoed) as served:
        sets = (*COLLECT, f"policy.options={{url='{served.url}', model='m'}}")
        play(folder, *sets, steps=1)
    with pytest.raises(SelfplayError, match="gave no reply"):
        play(folder, *sets, steps=2)
    with serving(echoed) as again:
        sets = (*COLLECT, f"policy.options={{url='{again.url}', model='m'}}")
        assert play(folder, *sets, steps=2).steps == 2, "the address is no part of what the run is"
