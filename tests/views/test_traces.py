from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from selfplay.ledger import Ledger, Reader
from selfplay.views.traces import dpo, messages, sft


@pytest.fixture
def reader(played_run: Path) -> Iterator[Reader]:
    with Ledger.read(played_run) as opened:
        yield opened


def test_what_succeeded_in_closed_steps(reader: Reader) -> None:
    rows = list(sft(reader))
    assert [(row["side"], row["step"], row["why"]) for row in rows] == [
        ("proposer", 0, "a word of 2 letters"),
        ("solver", 0, "it is the word"),
    ]
    said = [{"role": "user", "content": "write ??"}, {"role": "assistant", "content": "ab"}]
    assert rows[0]["messages"] == rows[1]["messages"] == said
    assert rows[0]["task_id"] == rows[1]["task_id"] == reader.tasks(0)[0].id


def test_the_best_and_the_worst_of_each_group(reader: Reader) -> None:
    rows = list(dpo(reader))
    assert [(row["side"], row["chosen_reward"], row["rejected_reward"]) for row in rows] == [
        ("proposer", 0.1, -1.0),
        ("solver", 1.0, -1.0),
    ]
    for row in rows:
        assert row["prompt"] == [{"role": "user", "content": "write ??"}]
        assert row["chosen"] == [{"role": "assistant", "content": "ab"}]
    assert rows[1]["rejected"] == [{"role": "assistant", "content": "b"}]


def test_tools_answer_as_tools(reader: Reader) -> None:
    from selfplay.types import Turn

    turns = [Turn(speaker=speaker, token_ids=(1,), text="x") for speaker in ("prompt", "policy", "tool", "policy")]
    assert [one["role"] for one in messages(turns)] == ["user", "assistant", "tool", "assistant"]
