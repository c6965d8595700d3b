from __future__ import annotations

import io

import pytest
from rich.console import Console, Group

from selfplay.types import Stop, ToolCall, Trajectory, Turn
from selfplay.views.inspect import Play
from selfplay.views.inspect_talk import PAGE, WHOLE, Fold, conversation, trained_words


def played(*turns: Turn, trained: bool | None = True, stop: Stop = Stop.DONE) -> Play:
    trajectory = Trajectory(
        id="a" * 32,
        step=0,
        stage="attempt",
        role="solver",
        subject_id="t",
        index=0,
        turns=turns,
        stop=stop,
        policy_version=(0, 0),
    )
    advantage = None if trained is None else 0.5
    return Play(trajectory=trajectory, verdicts=(), advantage=advantage, informative=True, trained=trained)


def drawn(play: Play, *, fold: Fold = PAGE, prompt: bool = True) -> str:
    to = io.StringIO()
    Console(file=to, width=70, highlight=False).print(Group(*conversation(play, fold=fold, prompt=prompt)))
    return "\n".join(row.rstrip() for row in to.getvalue().splitlines())


LOOK = ToolCall(
    name="bash",
    arguments={"command": "cat a.py", "first": 1},
    result="\n".join(f"line {n}" for n in range(30)),
    exit_code=1,
    seconds=0.25,
)
TALK = (
    Turn(speaker="prompt", token_ids=(1, 2), text="mend it"),
    Turn(speaker="policy", token_ids=(3, 4, 5), text="I look.", calls=(LOOK,)),
    Turn(speaker="tool", token_ids=(6,), text="the same again, as the model read it"),
    Turn(speaker="policy", token_ids=(7,), text="\x1b[31mno call"),
    Turn(speaker="tool", token_ids=(8,), text="Nothing was done"),
    Turn(speaker="policy", token_ids=(9,), text="done"),
)

SCREEN = """\
prompt · 2 tokens
  mend it
reply 1 of 3 · 3 tokens · learnt from
  I look.
  → bash command=cat a.py, 1 more · exit 1 · 0.2 s
    line 0
    line 1
    line 2
    line 3
    line 4
    line 5
    ... 18 lines left out ...
    line 24
    line 25
    line 26
    line 27
    line 28
    line 29
reply 2 of 3 · 1 token · learnt from
  \\x1b[31mno call
answer · 1 token
  Nothing was done
reply 3 of 3 · 1 token · learnt from
  done"""


def test_every_turn_with_its_tools_answers_folded() -> None:
    assert drawn(played(*TALK)) == SCREEN


def test_whole_and_without_the_prompt() -> None:
    text = drawn(played(*TALK, trained=False), fold=WHOLE, prompt=False)
    assert "    line 15\n" in text
    assert "left out" not in text
    assert "mend it" not in text
    assert "learnt from" not in text


@pytest.mark.parametrize(
    ("play", "words"),
    [
        (played(*TALK), "9 in all, 5 sampled and learnt from"),
        (played(*TALK, trained=None), "9 in all, 5 sampled; the step is open"),
        (played(*TALK, trained=False, stop=Stop.TURNS), "none learnt from: a limit ended it"),
    ],
)
def test_which_tokens_carried_loss(play: Play, words: str) -> None:
    assert words in trained_words(play)
