"""Examples become samples that train the reply and its end, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pytest

from selfplay.errors import UserError
from selfplay.learner.examples import demonstrations
from selfplay.rollout import encode
from selfplay.types import Example, Role, digest


@dataclass(frozen=True)
class Letters:
    eos_ids: frozenset[int] = frozenset({2, 9})

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    def encode_chat(self, user: str) -> tuple[int, ...]:
        return self.encode(f"<{user}>")

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(map(chr, token_ids))


def example(prompt: str = "p", replies: tuple[str, ...] = ("ab", "c")) -> Example:
    return Example(role="solver", source="a.py", prompt=prompt, replies=replies)


@pytest.mark.parametrize(("end", "expected"), [(9, 9), ([7, 9], 9), (7, 2), (None, 2)])
def test_each_reply_is_a_sample_that_ends(end: int | list[int] | None, expected: int) -> None:
    first, second = demonstrations([example()], tokenizer=Letters(), end=end)
    assert first.token_ids == (ord("p"), ord("a"), ord("b"), expected)
    assert first.trained == (False, True, True, True)
    assert second.token_ids == (ord("p"), ord("c"), expected)
    assert first.group_id == second.group_id
    assert first.trajectory_id != second.trajectory_id


@pytest.mark.parametrize("template", ["plain", "chat"])
def test_the_prompt_that_is_taught_is_the_one_that_is_played(template: Literal["plain", "chat"]) -> None:
    role = Role(name="solver", game="search", side="solver", prompt="", template=template)
    (sample,) = demonstrations([replace(example(replies=("ab",)), template=template)], tokenizer=Letters(), end=2)
    played = encode(role, "p", Letters())
    assert sample.token_ids == (*played, ord("a"), ord("b"), 2)
    assert sample.trained == (*(False,) * len(played), True, True, True)


def test_ids_of_plain_text_are_what_they_were_and_a_chats_are_others() -> None:
    (plain,) = demonstrations([example(replies=("ab",))], tokenizer=Letters(), end=2)
    assert plain.trajectory_id == digest("example", "solver", "a.py", "p", "ab")
    assert plain.group_id == digest("example", "solver", "a.py", "p")
    (chat,) = demonstrations([replace(example(replies=("ab",)), template="chat")], tokenizer=Letters(), end=2)
    assert {chat.trajectory_id, chat.group_id}.isdisjoint({plain.trajectory_id, plain.group_id})


def test_what_cannot_be_learnt_is_refused() -> None:
    with pytest.raises(UserError, match="no example"):
        demonstrations([example(replies=())], tokenizer=Letters(), end=2)
    with pytest.raises(UserError, match="empty prompt"):
        demonstrations([example(prompt="")], tokenizer=Letters(), end=2)
    with pytest.raises(UserError, match="no end-of-sequence id"):
        demonstrations([example()], tokenizer=Letters(eos_ids=frozenset()), end=2)
