"""One role on one subject: the prompt is rendered strictly, and the record holds ids before text."""

from __future__ import annotations

import asyncio

import pytest

from selfplay.errors import UserError
from selfplay.policy.scripted import ScriptedPolicy
from selfplay.policy.toy import CharTokenizer
from selfplay.rollout import Play, Player, encode, render
from selfplay.types import Role, Sampling, Stop, play_id

TOKENIZER = CharTokenizer()


def role(prompt: str = "say {{ word }}>", *, template: str = "plain", max_tokens: int = 8) -> Role:
    return Role(
        name="r",
        game="echo",
        side="solver",
        prompt=prompt,
        template=template,  # type: ignore[arg-type]
        sampling=Sampling(max_tokens=max_tokens),
        origin="roles/r",
    )


def player(reply: str = "ab") -> Player:
    return Player(policy=ScriptedPolicy(lambda prompt: reply, tokenizer=TOKENIZER), config_digest="c", seed=0)


def test_a_play_is_a_prompt_and_a_reply() -> None:
    play = Play(role=role(), stage="attempt", step=2, subject_id="s", index=1)
    trajectory = asyncio.run(player().play(play, {"word": "ab"}))
    prompt, reply = trajectory.turns
    assert prompt.text == "say ab>"
    assert prompt.token_ids == TOKENIZER.encode("say ab>")
    assert not prompt.sampled
    assert reply.sampled
    assert trajectory.reply == "ab"
    assert len(reply.logprobs) == len(reply.token_ids) == 3
    assert trajectory.stop is Stop.DONE
    place = {"step": 2, "stage": "attempt", "role": "r", "subject_id": "s", "index": 1, "attempt": 0}
    assert trajectory.id == play_id("c", **place)  # type: ignore[arg-type]


def test_a_long_reply_is_truncated_at_the_roles_limit() -> None:
    play = Play(role=role(max_tokens=3), stage="attempt", step=0, subject_id="s", index=0)
    trajectory = asyncio.run(player("abcdef").play(play, {"word": "a"}))
    assert trajectory.reply == "abc"
    assert trajectory.stop.truncated


def test_a_prompt_that_fills_the_context_is_an_end_like_others() -> None:
    policy = ScriptedPolicy(lambda prompt: "ab", tokenizer=TOKENIZER, max_context=len("say abc>"))
    who = Player(policy=policy, config_digest="c", seed=0)
    play = Play(role=role(), stage="attempt", step=0, subject_id="s", index=0)
    for word in ("abc", "a" * 500):
        stopped = asyncio.run(who.play(play, {"word": word}))
        assert (stopped.stop, stopped.num_sampled, stopped.reply, stopped.fault) == (Stop.CONTEXT, 0, "", None)
        assert [turn.text for turn in stopped.turns] == [f"say {word}>"]
    short = asyncio.run(who.play(play, {"word": "ab"}))
    assert (short.stop, short.num_sampled) == (Stop.CONTEXT, 1)


def test_a_missing_variable_is_an_error_that_names_the_file() -> None:
    with pytest.raises(UserError, match="word") as error:
        render(role(), {"other": 1})
    assert "roles/r/prompt.md" in error.value.hint


def test_a_broken_template_is_an_error() -> None:
    with pytest.raises(UserError, match="does not render"):
        render(role("{{ word"), {"word": "a"})


def test_prompt_text_is_not_markup() -> None:
    assert render(role("{{ word }}\n"), {"word": "<a & {{ b }}>"}) == "<a & {{ b }}>\n"


def test_a_chat_role_needs_a_chat_template() -> None:
    with pytest.raises(UserError, match="chat"):
        encode(role(template="chat"), "say a>", TOKENIZER)
