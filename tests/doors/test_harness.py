"""A harness in a sandbox is the agent: a real child process that speaks HTTP to a policy, recorded by token ids."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from selfplay.doors.harness import BROKEN, harnessed
from selfplay.policy.scripted import ScriptedPolicy
from selfplay.policy.toy import CharTokenizer
from selfplay.rollout import Play, Player
from selfplay.sandbox import SandboxSpec
from selfplay.sandbox.local import LocalProvider
from selfplay.tools.harness import HarnessBench
from selfplay.tools.workbench import Files
from selfplay.types import Limits, Role, Sampling, Stop, Tools, Trajectory

TOKENIZER = CharTokenizer()
ASKS = """
import json, os, subprocess, sys, urllib.error, urllib.request

def ask(messages, path="/chat/completions", **more):
    url, key = os.environ["OPENAI_BASE_URL"] + path, os.environ["OPENAI_API_KEY"]
    body = json.dumps({"model": "m", "messages": messages, **more}).encode()
    request = urllib.request.Request(url, data=body, headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]

def refused(*arguments, **more):
    try:
        ask(*arguments, **more)
    except urllib.error.HTTPError as error:
        return f"{error.code} {json.load(error)['error']['message']}"

said = [{"role": "user", "content": sys.argv[1]}]
"""
"""How the harnesses of these tests begin."""
AGENT = """
while True:
    reply = ask(said)
    if reply == "done":
        break
    done = subprocess.run(reply, shell=True, capture_output=True, text=True)
    said += [{"role": "assistant", "content": reply}, {"role": "user", "content": done.stdout or "(nothing)"}]
"""
"""An agent of a few lines: each reply is a command."""


def played(harness: str, replies: Sequence[str], folder: Path, **limits: Any) -> Trajectory:
    """A play of a harness with these replies, in a sandbox of its own."""
    role = Role(
        name="mends",
        game="code",
        side="solver",
        prompt="write {{ word }}",
        limits=Limits(**{"turns": 8, "tokens": 64, **limits}),
        sampling=Sampling(max_tokens=64),
        tools=Tools(renderer="plain", harness=("{python}", "-c", ASKS + harness, "{task}")),
    )
    play = Play(role=role, stage="attempt", step=0, subject_id="task", index=0)
    policy = ScriptedPolicy(replies, tokenizer=TOKENIZER)

    async def run() -> Trajectory:
        provider = LocalProvider(folder=folder)

        async def opened() -> HarnessBench:
            return HarnessBench(provider, SandboxSpec(name="python"), handover=Files(needed=(("out.txt",),)))

        def at_once() -> AbstractAsyncContextManager[None]:
            return nullcontext()

        try:
            player = Player(policy=policy, config_digest="test", seed=0)
            return await harnessed(player, play, {"word": "a"}, open_tools=opened, sampling=at_once)
        finally:
            await provider.aclose()
            assert not list(folder.iterdir())

    return asyncio.run(run())


def test_what_it_leaves_is_handed_over_and_what_was_said_is_recorded(tmp_path: Path) -> None:
    one = played(AGENT, ["echo a > out.txt", "cat out.txt", "done"], tmp_path)
    assert (one.stop, one.fault) == (Stop.DONE, None)
    assert one.product == {"files": {"out.txt": "a\n"}, "exit_code": 0}
    assert [turn.speaker for turn in one.turns] == ["prompt", "policy", "tool", "policy", "tool", "policy"]
    assert [turn.text for turn in one.turns[::2]] == ["write a", "(nothing)", "a\n"]
    assert all(len(turn.logprobs) == len(turn.token_ids) for turn in one.turns if turn.sampled)
    shown = TOKENIZER.decode(one.token_ids)
    assert shown.startswith("write a\n### reply\necho a > out.txt")
    assert "\n### answer\na\n\n### reply\ndone" in shown
    again = played(AGENT, ["echo a > out.txt", "cat out.txt", "done"], tmp_path)
    assert (again.id, again.token_ids) == (one.id, one.token_ids)


def test_what_it_says_beside_the_play_is_kept_and_not_learnt_from(tmp_path: Path) -> None:
    title = 'ask([{"role": "user", "content": "a title"}])'
    one = played(title + AGENT, ["title", "echo a > out.txt", "done"], tmp_path)
    assert [turn.text.strip() for turn in one.turns if turn.sampled] == ["echo a > out.txt", "done"]
    (other,) = one.product["beside"]
    assert TOKENIZER.decode(other["token_ids"]) == "title"
    assert len(other["logprobs"]) == len(other["token_ids"])


@pytest.mark.parametrize(
    ("limits", "stop"),
    [({"turns": 2}, Stop.TURNS), ({"output": 8}, Stop.OUTPUT), ({"context": 40}, Stop.CONTEXT)],
)
def test_a_limit_of_the_role_ends_it(limits: dict[str, Any], stop: Stop, tmp_path: Path) -> None:
    one = played(AGENT, ["echo", "echo", "done"], tmp_path, **limits)
    assert (one.stop, one.product) == (stop, {})
    assert one.num_sampled <= limits.get("output", 64)
    assert len(one.token_ids) <= limits.get("context", 4096)


def test_its_time_ends_it(tmp_path: Path) -> None:
    one = played("ask(said)\nimport time\ntime.sleep(600)", ["wait"], tmp_path, seconds=3.0)
    assert (one.stop, one.product) == (Stop.SECONDS, {})


@pytest.mark.parametrize(
    ("harness", "why"),
    [
        ("sys.exit('no settings')", "exit code 1 before it asked for anything"),
        ("ask(said, tools=[{}])", "`tools` is not known here"),
        ("ask(said, path='/completions')", "nothing is at /v1/completions"),
        ("os.kill(os.getppid(), 9)", "the served process is lost"),
        ('ask([{"role": "user", "content": "a" * 50}])', "at its limit (context) before the first reply"),
        ("import time\ntime.sleep(600)", "at its limit (seconds) before the first reply"),
    ],
)
def test_what_goes_wrong_before_the_first_reply_is_a_fault_of_the_role(harness: str, why: str, tmp_path: Path) -> None:
    one = played(harness, ["never"], tmp_path, context=40, **({"seconds": 3.0} if "sleep" in harness else {}))
    assert one.stop is Stop.FAULT
    assert one.fault is not None
    assert (one.fault.culprit, one.turns) == ("role", ())
    assert why in one.fault.message
    assert "no settings" in one.fault.detail or "no settings" not in harness


def test_what_goes_wrong_later_is_an_answer(tmp_path: Path) -> None:
    harness = "ask(said)\nopen('out.txt', 'w').write(refused(said, n=2))\nsys.exit(3)"
    one = played(harness, ["hi"], tmp_path)
    assert one.stop is Stop.DONE
    assert one.product["files"]["out.txt"].startswith("400 one reply is sampled")
    assert one.product["exit_code"] == 3


BODIES = """
from urllib.error import HTTPError

def post(body):
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    try:
        return urllib.request.urlopen(urllib.request.Request(url, data=body.encode())).status
    except HTTPError as error:
        return error.code

one = '"messages": [{"role": "user", "content": "a"}]'
bad = [
    "", "null", "[]", "5", "NaN", "[" * 100000, "{" + one, '{"messages": 5}', '{"messages": [[]]}',
    '{"messages": [{"role": "user", "content": 5}]}', '{"messages": [{"role": "user", "content": "\\\\ud800"}]}',
    '{"messages": [{"role": "user", "content": [{"type": "text"}]}]}', '{"messages": [{"role": "\\\\ud800"}]}',
    *('{' + one + ', ' + more + '}' for more in ('"stop": 5', '"stop": {"a": 1}', '"max_tokens": NaN', '"n": "2"')),
]
"""
"""What a harness may post that is no request."""


def test_nothing_that_a_harness_posts_ends_more_than_its_play(tmp_path: Path) -> None:
    one = played(f"{BODIES}ask(said)\nopen('out.txt', 'w').write(str(set(map(post, bad))))", ["hi"], tmp_path)
    assert (one.stop, one.fault) == (Stop.DONE, None)
    assert one.product["files"]["out.txt"] == "{400}"


@pytest.mark.parametrize("body", ["bad[5]", "bad[10]", "bad[12]", "bad[13]"])
def test_a_harness_that_begins_with_none_is_a_fault_that_can_be_written_down(body: str, tmp_path: Path) -> None:
    one = played(f"{BODIES}post({body})", ["never"], tmp_path)
    assert one.stop is Stop.FAULT
    assert one.fault is not None
    assert one.fault.culprit == "role"
    assert one.fault.message.encode()


@pytest.mark.parametrize("harness", [f"for _ in range({BROKEN + 1}): refused(said, n=2)", "os.kill(os.getppid(), 9)"])
def test_an_agent_that_breaks_its_own_means_has_failed(harness: str, tmp_path: Path) -> None:
    one = played(f"ask(said)\n{harness}", ["hi"], tmp_path)
    assert (one.stop, one.fault, one.product) == (Stop.MALFORMED, None, {})
    assert one.num_sampled == 3
