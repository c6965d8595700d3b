"""Conversations of a harness become ids that only grow; each branch is one trajectory."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import torch

from selfplay.doors.proxy import Proxy, Reply, rows_of
from selfplay.errors import RunFailed, UserError
from selfplay.learner.options import Options
from selfplay.learner.trainer import Trainer
from selfplay.policy.scripted import LOGPROB, ScriptedPolicy
from selfplay.policy.toy import CharTokenizer, toy_model
from selfplay.types import Sample, Stop, Trajectory

TOKENIZER = CharTokenizer()


class Table:
    """A proxy whose policy replies from a list, and the rows that it notes."""

    def __init__(self, replies: list[str], *, max_context: int = 4096, max_tokens: int = 64) -> None:
        self.lines: list[str] = []
        policy = ScriptedPolicy(replies, tokenizer=TOKENIZER, max_context=max_context)
        self.proxy = Proxy(
            policy,
            rendering="plain",
            temperature=1.0,
            max_tokens=max_tokens,
            note=lambda row: self.lines.append(json.dumps(row)),
        )

    def ask(self, *messages: tuple[str, Any], episode: str = "e", **more: Any) -> Reply:
        body = {"messages": [{"role": role, "content": content} for role, content in messages], **more}
        return asyncio.run(self.proxy.reply(episode, body))

    @property
    def played(self) -> list[Trajectory]:
        return rows_of(self.lines)


def ids_of(trajectory: Trajectory) -> tuple[int, ...]:
    return tuple(token for turn in trajectory.turns for token in turn.token_ids)


ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "a"}]}
NAN, INFINITY = float("nan"), float("inf")
SYSTEM, FIRST, SECOND = ("system", "fix it"), ("user", "look around"), ("user", "a b c")


def test_a_conversation_goes_on_behind_the_ids_that_were_sampled() -> None:
    table = Table(["ls", "done"])
    one = table.ask(SYSTEM, FIRST)
    assert one.text == "ls"
    assert TOKENIZER.decode(one.prompt_ids) == "fix it\n\nlook around\n### reply\n"
    two = table.ask(SYSTEM, FIRST, ("assistant", "ls"), SECOND)
    assert two.prompt_ids[: len(one.prompt_ids)] == one.prompt_ids
    assert two.prompt_ids[len(one.prompt_ids) :][: len(one.token_ids)] == one.token_ids, "the end of sequence included"
    (played,) = table.played
    assert ids_of(played) == two.prompt_ids + two.token_ids
    assert [turn.speaker for turn in played.turns] == ["prompt", "policy", "tool", "policy"]
    assert played.turns[1].logprobs == (LOGPROB,) * 3
    assert (played.subject_id, played.index, played.stop) == ("e", 0, Stop.DONE)


def test_a_client_may_trim_a_reply_and_send_its_text_in_parts() -> None:
    table = Table([" ls \n", "done"])
    table.ask(FIRST)
    table.ask(FIRST, ("assistant", [{"type": "text", "text": "ls"}]), SECOND)
    assert len(table.played) == 1


@pytest.mark.parametrize(
    "later",
    [
        (FIRST, ("assistant", "another"), SECOND),
        (("user", "look around again"), ("assistant", "ls"), SECOND),
        (FIRST,),
        (FIRST, ("assistant", "ls"), SECOND, ("assistant", "mine"), SECOND),
    ],
    ids=["a reply was changed", "a message was changed", "asked again", "a reply of another"],
)
def test_what_does_not_go_on_is_a_branch_whose_prompt_holds_all_that_was_not_sampled(
    later: tuple[tuple[str, Any], ...],
) -> None:
    table = Table(["ls", "done"])
    table.ask(FIRST)
    reply = table.ask(*later)
    assert reply.branch == 1
    first, second = table.played
    assert len(first.turns) == len(second.turns) == 2
    assert ids_of(second) == reply.prompt_ids + reply.token_ids
    for _, content in later:
        assert content in second.turns[0].text
        assert content in TOKENIZER.decode(reply.prompt_ids)


def test_the_longer_branch_goes_on_and_episodes_do_not_meet() -> None:
    table = Table(["ls", "ls", "done", "ls"])
    table.ask(FIRST)
    table.ask(FIRST)
    assert table.ask(FIRST, ("assistant", "ls"), SECOND).branch == 0
    assert table.ask(FIRST, episode="other").branch == 0
    assert [(one.subject_id, one.index) for one in table.played] == [("e", 0), ("e", 1), ("other", 0)]


def test_a_stop_string_is_sampled_and_not_said() -> None:
    table = Table(["ls then more", "done"])
    one = table.ask(FIRST, stop=" then")
    assert one.text == "ls"
    assert TOKENIZER.decode(one.token_ids) == "ls then"
    two = table.ask(FIRST, ("assistant", "ls"), SECOND)
    assert two.branch == 0
    assert two.prompt_ids[len(one.prompt_ids) :][: len(one.token_ids)] == one.token_ids


def test_lengths_are_bounded_by_request_server_and_context() -> None:
    assert len(Table(["abcdefgh"]).ask(FIRST, max_tokens=3).token_ids) == 3
    assert len(Table(["abcdefgh"], max_tokens=4).ask(FIRST, max_completion_tokens=9).token_ids) == 4
    table = Table(["abcdefgh", "x"], max_context=27)
    cut = table.ask(FIRST)
    assert cut.stop is not Stop.DONE
    with pytest.raises(UserError, match="the model's context is 27"):
        table.ask(FIRST, ("assistant", cut.text), SECOND)
    assert len(table.played) == 1, "nothing is noted of what was refused"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, "at least one message"),
        ({"messages": []}, "at least one message"),
        ({"messages": ["hi"]}, "an object with `role`"),
        ({"messages": [{"role": "owner", "content": "hi"}]}, "no role `owner`"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "text only"),
        ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, "what should it"),
        ({"messages": [{"role": "system", "content": "a"}]}, "no message is a user's"),
        ({"messages": [{"role": "user", "content": "a"}], "n": 2}, "one reply"),
        ({"messages": [{"role": "user", "content": "a"}], "tools": [{}]}, "`tools` is not known"),
        ({"messages": [{"role": "user", "content": "a"}], "max_tokens": -1}, "above 0"),
        ({"messages": [{"role": "user", "content": "a"}], "stop": [1]}, "`stop` is a string"),
        ({"messages": {"role": "user", "content": "a"}}, "at least one message"),
        ({"messages": [{"content": "a"}]}, "an object with `role`"),
        ({"messages": [{"role": ["user"], "content": "a"}]}, "an object with `role`"),
        *(({"messages": [{"role": "user", "content": one}]}, "text only") for one in (5, 0, False, {}, [5], [[]], NAN)),
        *(
            ({"messages": [{"role": "user", "content": [{"type": "text", **one}]}]}, "its text in `text`")
            for one in ({}, {"text": 5}, {"text": None}, {"text": [{}]})
        ),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "half a character"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a\udc80"}]}]}, "half a character"),
        ({"messages": [{"role": "user", "content": "a", "tool_calls": 5}]}, "calls are written in it"),
        *(({**ASKED, "n": one}, "one reply") for one in (0, "1", [1], {}, NAN)),
        *(({**ASKED, "stop": one}, "`stop` is a string") for one in (5, True, NAN, {"a": 1}, [None], [["a"]], [""])),
        ({**ASKED, "stop": "\ud800"}, "half a character"),
        *(
            ({**ASKED, name: one}, "above 0")
            for name in ("max_tokens", "max_completion_tokens")
            for one in ("5", "many", -1, 5.0, True, [5], {"a": 1}, NAN, -INFINITY)
        ),
        *(({**ASKED, name: 5}, f"`{name}` is not known") for name in ("functions", "function_call", "audio", "tools")),
    ],
)
def test_what_is_not_done_here_is_refused_in_one_sentence(body: dict[str, Any], why: str) -> None:
    table = Table(["never"])
    with pytest.raises(UserError, match=why):
        asyncio.run(table.proxy.reply("e", body))
    assert table.lines == []


@pytest.mark.parametrize("odd", [None, 5, -1, "hot", True, NAN, [], {}, [[]], {"a": {}}, "\ud800"])
@pytest.mark.parametrize("name", ["temperature", "top_p", "seed", "stream", "model", "user", "logprobs", "tool_choice"])
def test_what_is_not_heeded_may_be_anything(name: str, odd: Any) -> None:
    assert Table(["ok"]).ask(FIRST, **{name: odd}).text == "ok"


@pytest.mark.parametrize(
    "more",
    [{"stop": None}, {"stop": []}, {"stop": ""}, {"n": None}, {"max_tokens": None}, {"tools": []}, {"tools": None}],
)
def test_what_is_left_empty_is_not_asked_for(more: dict[str, Any]) -> None:
    assert Table(["ok"]).ask(FIRST, ("assistant", None), SECOND, **more).text == "ok"


def test_rows_that_lack_one_are_not_read_as_whole() -> None:
    table = Table(["ls", "done"])
    table.ask(FIRST)
    table.ask(FIRST, ("assistant", "ls"), SECOND)
    with pytest.raises(RunFailed, match="reply 1 of episode e follows 0"):
        rows_of(table.lines[1:])


def test_the_learner_gives_what_was_recorded_the_probabilities_that_were_recorded() -> None:
    """A sampler and a learner of the same weights: what is recorded can be learnt from."""
    from concurrent.futures import ThreadPoolExecutor

    from selfplay.policy.local import LocalPolicy

    torch.set_num_threads(1)
    model, tokenizer = toy_model(0)
    trainer = Trainer(model, options=Options(lr=1e-3, warmup_lr=1e-3, dtype="float32", threads=1), tokenizer=tokenizer)
    lines: list[str] = []

    async def played() -> None:
        with ThreadPoolExecutor(max_workers=1) as thread:
            policy = LocalPolicy(trainer.model, tokenizer, version=lambda: 0, executor=thread, max_rows=4)
            proxy = Proxy(
                policy, rendering="plain", temperature=0.7, max_tokens=8, note=lambda row: lines.append(json.dumps(row))
            )
            said: list[dict[str, str]] = [{"role": "user", "content": "hi"}]
            for _ in range(3):
                reply = await proxy.reply("e", {"messages": said, "temperature": 0.0, "top_p": 0.1})
                said += [{"role": "assistant", "content": reply.text}, {"role": "user", "content": "go on"}]
            await policy.aclose()

    asyncio.run(played())
    (one,) = rows_of(lines)
    assert len(one.turns) == 6
    logprobs = [lp for turn in one.turns for lp in (turn.logprobs if turn.sampled else (0.0,) * len(turn.token_ids))]
    sample = Sample(
        trajectory_id=one.id,
        role="agent",
        group_id="g",
        token_ids=ids_of(one),
        trained=tuple(turn.sampled for turn in one.turns for _ in turn.token_ids),
        sampler_logprobs=tuple(logprobs),
        advantage=1.0,
    )
    (found,) = trainer.logprobs([sample], temperature=0.7)
    recorded = [lp for lp, trained in zip(sample.sampler_logprobs, sample.trained, strict=True) if trained]
    assert list(found) == pytest.approx(recorded, abs=1e-5)
