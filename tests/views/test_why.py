from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from selfplay.ledger import Ledger
from selfplay.ledger.story import Child, Claim, Round, story
from selfplay.types import Choice
from selfplay.views.why import LISTED, Belief, WhyView, why_data, why_page


@pytest.fixture
def view(played_run: Path) -> WhyView:
    with Ledger.read(played_run) as reader:
        (task,) = reader.tasks(0)
        told = reader.ask(lambda ask: story(ask, task.id))
    belief = Belief(step=0, mean=0.5, low=0.1, high=0.9, prior=0.4)
    return WhyView(story=told, beliefs=(belief,), cell="echo_solver", standing="may be replayed", code="open")


def drawn(page: RenderableType) -> str:
    to = io.StringIO()
    Console(file=to, width=80, highlight=False).print(page)
    return "\n".join(row.rstrip() for row in to.getvalue().splitlines())


def test_the_page_has_the_ledgers_numbers(view: WhyView) -> None:
    text = drawn(why_page(view))
    assert all(len(row) <= 80 for row in text.splitlines())
    assert text.startswith(f"task {view.story.task.id[:12]} · step 0 · echo · train\nseed      echo:0")
    assert "valid: a word of 2 letters" in text
    assert "reward    +0.10 (1 of 2 attempts solved it) · advantage +0.700" in text
    assert "0  propose  1.000  played least often" in text
    assert "0     1/2      0.50  0.10 to 0.90       0.40" in text
    assert "children" not in text
    assert text.endswith("now       may be replayed")


def test_parents_children_copies_and_hints(view: WhyView) -> None:
    told = view.story
    hint = Choice(step=3, index=0, mode="replay", subject_id=told.task.id, score=0.1, why="?", terms={"hint": True})
    copies = tuple(replace(told.claims[0], id=f"copy{i}", reward=None, advantage=None) for i in range(6))
    asked = Choice(step=0, index=0, mode="mutate", subject_id="p", score=0.1, why="\x1b!", terms={"attempt": "a" * 32})
    made_of = replace(told.claims[0], stage="attempt", reward=None, paid_why="", advantage=None)
    more = replace(
        told,
        parent_id="f" * 32,
        asked=asked,
        claims=(made_of, *copies),
        choices=(hint,),
        rounds=(*told.rounds, Round(step=3, role="echo_solver", closed=False, played=2, decided=0, solved=0)),
        children=tuple(Child(id=f"c{i:02}", step=4, decided=8, solved=i) for i in range(LISTED + 2)),
        refused={"copy": 2},
    )
    text = drawn(why_page(replace(view, story=more)))
    assert "parent    task ffffffffffff, its attempt aaaaaaaaaaaa laid over it" in text
    assert f"attempt   {made_of.id[:12]} · step 0" in text
    assert "reward    " not in text
    assert "and 2 more copies: --json" in text
    assert "hint True" in text
    assert "with a hint, open" in text
    assert "task c00 · step 4 · solved in 0 of 8 attempts" in text
    assert f"the first and the newest of {LISTED + 2} children" in text
    assert "failed attempts that became none: copy 2" in text
    assert "\x1b" not in text
    data = why_data(replace(view, story=more))
    assert [row["hinted"] for row in data["steps"]] == [False, True]
    assert len(data["proposals"]) == 7
    assert data["task"]["parent_id"] == "f" * 32
    assert (data["task"]["proposal_id"], data["task"]["attempt_id"]) == (None, told.task.parent_id)


def test_a_given_task_that_nobody_tried(view: WhyView) -> None:
    told = replace(
        view.story, task=replace(view.story.task, parent_id=None), asked=None, claims=(), choices=(), rounds=()
    )
    text = drawn(why_page(replace(view, story=told, beliefs=(), cell="")))
    assert "proposal  none: the task was given" in text
    assert "never: the curriculum did not ask for it" in text
    assert "not attempted yet" in text


def test_a_proposal_that_is_not_paid_yet(view: WhyView) -> None:
    unpaid: Claim = replace(view.story.claims[0], reward=None, paid_why="", advantage=None)
    assert "reward    – (not graded)" in drawn(why_page(replace(view, story=replace(view.story, claims=(unpaid,)))))
    data = why_data(view)
    assert data["now"] == data["steps"][0]["believed"]
    assert "letters" not in str(data["proposals"])
