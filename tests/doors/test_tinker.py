"""A server of Tinker's API as learner and policy, by its own SDK, against a small server of ours that learns."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from selfplay import samplers
from selfplay.build import Outcome
from selfplay.config import Config
from selfplay.doors.tinker import TinkerLearner
from selfplay.doors.tinker_client import KEY, Service
from selfplay.doors.tinker_policy import TinkerPolicy
from selfplay.errors import NotFound, NotReady, RunFailed, SelfplayError, UserError
from selfplay.games.echo import CHARACTERS
from selfplay.learner.options import Options
from selfplay.learner.trainer import Trainer
from selfplay.ledger import Ledger, check
from selfplay.policy import Completion, Request
from selfplay.policy.toy import EOS, CharTokenizer, toy_model
from selfplay.resume import drift
from selfplay.types import Batch, Example, Sample, Sampling, Stop, draw
from tests.doors import tinker_server
from tests.doors.tinker_server import BASE, Server

sdk = pytest.mark.skipif(
    not os.environ.get("SELFPLAY_TINKER"), reason="SELFPLAY_TINKER=1 says that Tinker's SDK is here (.ci/doors)"
)
# note: what the SDK keeps for the life of the process, connections among it, it does not close when collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
RANK = 8
LR = 1e-2


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The server's key, nobody's own, no reports, and no proxy to this machine."""
    for name, value in {KEY: tinker_server.KEY, "TINKER_TELEMETRY": "0", "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("TINKER_BASE_URL", raising=False)


@pytest.fixture
def server() -> Iterator[Server]:
    with tinker_server.serving() as served:
        yield served


@pytest.fixture
def opened(server: Server) -> Iterator[Callable[..., TinkerLearner]]:
    """`opened(loss="gspo")`: a learner with a session of its own."""
    made: list[TinkerLearner] = []

    def make(**options: Any) -> TinkerLearner:
        service = Service(server.url, seconds=120.0)
        made.append(TinkerLearner(service, base=BASE, options=options_of(**options), tokenizer=TOKENS))
        return made[-1]

    yield make
    for learner in made:
        learner.close()


TOKENS = CharTokenizer(CHARACTERS)


def options_of(**options: Any) -> Options:
    plain: dict[str, Any] = {"lr": LR, "warmup_lr": LR, "dtype": "float32", "lora_rank": RANK, "threads": 1, "seed": 3}
    return Options(**(plain | options))


def trainer(**options: Any) -> Trainer:
    model, tokenizer = toy_model(0, alphabet=CHARACTERS)
    return Trainer(model, options=options_of(**options), tokenizer=tokenizer)


def samples() -> tuple[Sample, ...]:
    """Two roles, one group each, of replies in one or two turns; one reply has advantages of its own for each token."""
    made = []
    for role, group in (("proposer", 0), ("solver", 1)):
        for number in range(3):
            ids = tuple(2 + draw(group, number, t) % len(CHARACTERS) for t in range(7 + number))
            learns = (False, False, False, True, True, number == 0, *(True,) * (len(ids) - 6))
            made.append(
                Sample(
                    trajectory_id=f"{role}{number}",
                    role=role,
                    group_id=f"g{group}",
                    token_ids=ids,
                    trained=learns,
                    sampler_logprobs=tuple(-3.0 - draw("lp", group, number, t) % 5 / 10 for t in range(len(ids))),
                    advantage=(1.0, -0.75, -0.25)[number],
                    token_advantages=tuple(0.5 - t for t in range(sum(learns))) if (group, number) == (1, 1) else (),
                )
            )
    return tuple(made)


def batch_of(step: int = 0) -> Batch:
    return Batch(step=step, phase="play", samples=samples(), temperature=1.0)


def adapters(server: Server) -> dict[str, torch.Tensor]:
    """Those of the model that was made last."""
    return server.models[list(server.models)[-1]].state()["tensors"]  # type: ignore[no-any-return]


def apart(one: Any, other: Any) -> float:
    """The mean difference of two sets of parameters."""
    assert sorted(one) == sorted(other)
    # note: AdamW's first steps are as long as the rate, whatever the gradient's size: where it is next to nothing, its
    # last bits show in full.
    return float(torch.cat([(one[name] - other[name]).detach().abs().flatten() for name in one]).mean())


@sdk
@pytest.mark.parametrize(
    "options",
    [
        {"correction": "token_truncated"},
        {"loss": "gspo", "clip_low": 3e-4, "clip_high": 4e-4, "correction": "sequence_masked"},
        {"loss": "cispo", "clip_high": 5.0, "role_weights": "pooled", "weight_decay": 0.1, "max_grad_norm": 0.01},
    ],
    ids=lambda options: options.get("loss", "token_mean"),
)
def test_updates_are_those_of_the_learner_here(
    options: dict[str, Any], opened: Callable[..., TinkerLearner], server: Server
) -> None:
    there, here = opened(**options), trainer(**options)
    for step in range(2):
        told, own = there.update(batch_of(step)), here.update(batch_of(step))
        assert told.loss == pytest.approx(own.loss, abs=1e-5)
        assert told.grad_norm == pytest.approx(own.grad_norm, rel=1e-3)
        assert told.tokens == own.tokens
        assert told.policy_version == own.policy_version == step + 1
        for one, other in zip(told.old_logprobs, own.old_logprobs, strict=True):
            assert one == pytest.approx(other, abs=1e-5)
        same = ("sampler_gap", "clip_fraction", "solver.loss", "zero_variance")
        assert [told.metrics[name] for name in same] == pytest.approx([own.metrics[name] for name in same], abs=1e-4)
    assert apart(adapters(server), here.compute) < LR / 1000
    assert server.done["optim_step"] == 2


@sdk
def test_a_warm_up_is_that_of_the_learner_here(opened: Callable[..., TinkerLearner], server: Server) -> None:
    there, here = opened(), trainer()
    examples = [Example(role="solver", source="x", prompt="ab", replies=("ba", "b"))]
    for index in range(2):
        told, own = (one.imitate(examples, index=index, total=4) for one in (there, here))
        assert told.loss == pytest.approx(own.loss, abs=1e-5)
        assert (told.lr, told.tokens, told.phase) == (own.lr, own.tokens, own.phase)
    for learner in (there, here):
        learner.start_phase("play")
        learner.update(batch_of())
    assert apart(adapters(server), here.compute) < LR / 1000
    scored = [one.logprobs(samples(), temperature=1.0) for one in (there, here)]
    assert [v for one in scored[0] for v in one] == pytest.approx([v for one in scored[1] for v in one], abs=1e-3)


@sdk
def test_what_nothing_is_learnt_from_moves_nothing(opened: Callable[..., TinkerLearner], server: Server) -> None:
    there = opened()
    before = there.weights_digest()
    flat = replace(batch_of(), samples=tuple(replace(s, advantage=0.0, token_advantages=()) for s in samples()))
    assert there.update(flat).skipped
    with pytest.raises(RunFailed, match="cannot be learnt from"):
        there.update(replace(batch_of(), samples=(replace(samples()[0], advantage=float("nan")), *samples()[1:])))
    assert (there.weights_digest(), there.policy_version, server.done["optim_step"]) == (before, 0, 0)


@sdk
def test_a_save_names_a_state_and_a_later_launch_goes_on_from_it(
    opened: Callable[..., TinkerLearner], server: Server, tmp_path: Path
) -> None:
    there = opened()
    there.start_phase("play")
    there.update(batch_of(0))
    save = there.save(tmp_path / "step_000000", step=0)
    second = there.update(batch_of(1))
    end = adapters(server)
    assert server.states.keys() == {"tinker://session-1:train:0/weights/step_000000_1"}

    again = opened()
    again.load(tmp_path / "step_000000", save)
    assert (again.policy_version, again.weights_digest()) == (1, save.weights_digest)
    assert drift(None, second, again.update(batch_of(1), recorded=second)) is None  # type: ignore[arg-type]
    assert apart(adapters(server), end) < LR / 1000

    for kept in server.states.values():
        kept["tensors"] = {name: tensor + 0.3 for name, tensor in kept["tensors"].items()}
    moved = opened()
    moved.load(tmp_path / "step_000000", save)
    assert moved.update(batch_of(1), recorded=second).weights_digest != second.weights_digest

    with pytest.raises(UserError, match="of another learner"):
        opened(lora_rank=2).load(tmp_path / "step_000000", save)
    with pytest.raises(RunFailed, match="not the recorded one"):
        moved.load(tmp_path / "step_000000", replace(save, weights_digest="0"))
    server.faults = {"load_weights": [403]}
    with pytest.raises(NotReady, match=r"refused to load tinker://.* \(403") as raised:
        moved.load(tmp_path / "step_000000", save)
    assert "is it the account that saved it?" in raised.value.hint
    server.states.clear()
    with pytest.raises(RunFailed, match=r"could not load tinker://.*no weights at"):
        moved.load(tmp_path / "step_000000", save)


def sampled(there: TinkerLearner, requests: Sequence[Request], *, context: int = 256) -> list[Completion]:
    async def main() -> list[Completion]:
        with ThreadPoolExecutor(1) as thread:
            policy = TinkerPolicy(there, TOKENS, executor=thread, max_context=context)
            return list(await asyncio.gather(*map(policy.sample, requests)))

    return asyncio.run(main())


def request(*, seed: int = 0, tokens: int = 8, stop: tuple[str, ...] = ()) -> Request:
    sampling = Sampling(temperature=1.0, max_tokens=tokens, stop=stop)
    return Request(prompt_ids=TOKENS.encode("ab"), sampling=sampling, seed=seed, role="solver")


@sdk
def test_replies_have_the_log_probabilities_that_the_learner_gives_them(opened: Callable[..., TinkerLearner]) -> None:
    there = opened()
    for version in (0, 1):
        asked = [request(seed=seed) for seed in range(6)]
        replies = sampled(there, asked)
        assert {one.policy_version for one in replies} == {(version, version)}
        assert {one.stop for one in replies} <= {Stop.DONE, Stop.TOKENS}
        for one in replies:
            assert (one.token_ids[-1] == EOS) == (one.stop is Stop.DONE)
        played = [
            Sample(
                trajectory_id="t",
                role="solver",
                group_id="g",
                token_ids=(*ask.prompt_ids, *one.token_ids),
                trained=(False, False, *(True,) * len(one.token_ids)),
                sampler_logprobs=(0.0, 0.0, *one.logprobs),
                advantage=0.0,
            )
            for ask, one in zip(asked, replies, strict=True)
        ]
        for one, scored in zip(replies, there.logprobs(played, temperature=1.0), strict=True):
            assert one.logprobs == pytest.approx(scored, abs=1e-5)
        there.update(batch_of())


@sdk
def test_replies_end_where_they_should(opened: Callable[..., TinkerLearner]) -> None:
    there = opened()
    asked = [request(seed=seed, tokens=12) for seed in range(8)]
    seed, text = max(enumerate(TOKENS.decode(one.token_ids) for one in sampled(there, asked)), key=lambda x: len(x[1]))
    assert len(text) > 4
    (cut,) = sampled(there, [request(seed=seed, tokens=12, stop=(text[2:4],))])
    assert (cut.stop, TOKENS.decode(cut.token_ids)) == (Stop.DONE, text[: text.index(text[2:4]) + 2])
    assert len(cut.logprobs) == len(cut.token_ids)
    (full,) = sampled(there, [request(seed=seed, tokens=12)], context=4)
    assert (full.stop, len(full.token_ids)) == (Stop.CONTEXT, 2)
    with pytest.raises(UserError, match="the prompt has 2 tokens"):
        sampled(there, [request()], context=2)


@sdk
def test_a_request_whose_answer_is_lost_is_sent_again_and_carried_out_once(
    opened: Callable[..., TinkerLearner], server: Server
) -> None:
    there, here = opened(), trainer()
    server.faults = {"optim_step": ["lost"], "forward_backward": [503], "retrieve_future": [500, 429]}
    there.update(batch_of())
    here.update(batch_of())
    assert not any(server.faults.values())
    assert server.done["optim_step"] == 1
    assert apart(adapters(server), here.compute) < LR / 1000


FAULTS: dict[str, tuple[dict[str, list[int | str]], type[SelfplayError], str]] = {
    "400": ({"optim_step": [400]}, UserError, "refused to learn \\(400"),
    "422": ({"forward_backward": [422]}, UserError, "refused to compute log-probabilities \\(422"),
    "500": ({"optim_step": [500] * 99}, NotReady, "within 2 s"),
    "never": ({"optim_step": ["never"]}, NotReady, "within 2 s"),
    "failed": ({"forward_backward": ["failed"]}, NotReady, "could not learn: out of memory$"),
}


@sdk
@pytest.mark.parametrize("name", FAULTS)
def test_a_server_that_fails_is_told_in_one_sentence(
    name: str, opened: Callable[..., TinkerLearner], server: Server
) -> None:
    faults, kind, words = FAULTS[name]
    there = opened()
    there.renew()
    there.service.seconds = 2.0 if "within" in words else 120.0
    server.faults = faults
    with pytest.raises(kind, match=words) as raised:
        there.update(batch_of())
    assert raised.value.exit_code == (2 if kind is UserError else 3)
    assert there.policy_version == 0
    assert "\n" not in raised.value.message
    server.faults = {}


def nobody() -> str:
    """An address at which nobody answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@sdk
@pytest.mark.parametrize("key", ["tml-wrong", "right", None])
def test_a_key_that_is_not_the_servers(key: str | None, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY) if key is None else monkeypatch.setenv(KEY, key)
    with pytest.raises(UserError, match="refuses the key \\(401\\)" if key == "tml-wrong" else "no session") as raised:
        Service(server.url, seconds=60.0)
    assert raised.value.exit_code == 2
    assert KEY in raised.value.hint


@sdk
def test_a_model_that_it_does_not_train(server: Server) -> None:
    service = Service(server.url, seconds=60.0)
    with pytest.raises(NotFound, match="trains no model `big`") as raised:
        service.context("big")
    assert "it trains: toy" in raised.value.hint
    assert service.context(BASE) == 256
    service.close()
    service.close()


@sdk
def test_a_server_that_is_gone_ends_the_command(project: Any, tmp_path: Path) -> None:
    sets = ("policy.backend=tinker", "learner.lora_rank=4", f"policy.options={{url='{nobody()}', seconds=3}}")
    argv = [sys.executable, "-m", "selfplay", "run", "demo", "--name", "gone", *(f"-s{one}" for one in sets)]
    home = {"SELFPLAY_PROJECT": str(project.folder), "SELFPLAY_RUNS": str(tmp_path)}
    done = subprocess.run(argv, env={**os.environ, **home}, capture_output=True, text=True, timeout=240)
    assert done.returncode == 3, done.stderr
    assert "did not open a session within 3 s" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "gone").exists()


def sets_of(server: Server, *more: str) -> tuple[str, ...]:
    options = f"policy.options={{url='{server.url}', seconds=120}}"
    return ("policy.backend=tinker", f"learner.lora_rank={RANK}", "learner.dtype=float32", options, *more)


@sdk
def test_a_run_learns_there_and_one_that_was_cut_off_ends_like_it(
    play: Callable[..., Outcome], server: Server, tmp_path: Path
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    play(whole, *sets_of(server), steps=3)
    ends = adapters(server)
    steps = server.done["optim_step"]
    assert steps >= 2
    assert apart(ends, trainer(seed=0).compute) > 1e-4

    server.faults = {"forward_backward": [], "optim_step": []}
    real = server.answer

    def failing(operation: str, body: Any) -> Any:
        # note: the second step of this launch is made, and its result is a failure: the launch knows nothing of it.
        if operation == "optim_step" and server.done["optim_step"] == steps + 1:
            server.faults["optim_step"] = ["failed"]
        return real(operation, body)

    server.answer = failing  # type: ignore[method-assign]
    with pytest.raises(NotReady, match="could not learn: out of memory"):
        play(cut, *sets_of(server), steps=3)
    server.answer = real  # type: ignore[method-assign]
    play(cut, *sets_of(server), steps=3)
    assert apart(adapters(server), ends) < 1e-6

    with Ledger.read(whole) as one, Ledger.read(cut) as other:
        updates = [[u.weights_digest for u in reader.updates("play")] for reader in (one, other)]
        assert updates[0] == updates[1]
        learnt = [u for u in one.updates("play") if u.skipped is None]
        assert all(u.metrics["sampler_gap"] < 1e-4 and u.metrics["probe_gap"] < 1e-4 for u in learnt)
        assert {u.metrics["probe_tokens"] > 0 for u in learnt} == {True}
    assert not [checked.problems for checked in check.checks(cut) if checked.num_problems]


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ((), "learner.lora_rank is 0"),
        (("learner.lora_rank=8", "learner.kl=0.1"), "keeps no reference"),
        (("learner.lora_rank=8", "learner.ranks=2"), "learner.ranks is 2"),
        (("learner.lora_rank=8", "learner.order=solver_first"), "learns in one step"),
        (("learner.lora_rank=8", "learner.optimizer=adamw8bit"), "has AdamW"),
        (("learner.lora_rank=8", "learner.lora_per_role=true"), "one set of weights for all roles"),
        (("learner.lora_rank=8", "run.cluster={engines=2}"), "run.cluster asks for 2 engines"),
    ],
)
def test_what_the_api_cannot_do_is_refused(
    sets: tuple[str, ...], words: str, toy_config: Callable[..., Config]
) -> None:
    with pytest.raises(UserError, match=words):
        samplers.check(toy_config("policy.backend=tinker", *sets))


def test_the_sdk_is_asked_for(toy_config: Callable[..., Config], monkeypatch: pytest.MonkeyPatch) -> None:
    config = toy_config("policy.backend=tinker", "learner.lora_rank=8", "policy.options={url='http://h'}")
    monkeypatch.setattr(importlib.util, "find_spec", lambda *asked: None)
    with pytest.raises(NotReady, match="`tinker` is not installed") as raised:
        samplers.check(config)
    assert "pip install" in raised.value.hint
    assert samplers.correction(config) == "token_truncated"
    with pytest.raises(UserError, match="no such constant"):
        samplers.check(toy_config("policy.backend=tinker", "learner.lora_rank=8", "policy.options={adress='x'}"))
