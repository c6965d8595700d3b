from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from selfplay.errors import UserError
from selfplay.estimate import difference
from selfplay.ledger import Ledger
from selfplay.views.compare import Comparison, Side, compare, compare_data, compare_screen, holds, parse, side_of

FIRST = {"s:a": (4, 1), "s:b": (4, 2), "s:c": (4, 0), "s:only": (4, 4)}
SECOND = {"s:a": (4, 2), "s:b": (4, 4), "s:c": (4, 0), "s:other": (4, 0)}


def side(name: str, attempts: Mapping[str, tuple[int, int]], **config: object) -> Side:
    return Side(
        name=name,
        closed=10,
        evaluated=8 if attempts else None,
        attempts=attempts,
        valid={"s": 0.5, "t": 0.25} if attempts else {},
        figures={"valid": 0.5, "solved": 0.25 if name == "one" else 0.5, "informative": None},
        config={"learner.lr": 0.1, **config},
    )


@pytest.fixture
def found() -> Comparison:
    return compare(side("one", FIRST), side("two", SECOND, **{"learner.lr": 0.2, "play.attempts": 4}))


def shown(found: Comparison) -> list[str]:
    to = io.StringIO()
    Console(file=to, width=100, highlight=False).print(compare_screen(found))
    return [row.rstrip() for row in to.getvalue().splitlines()]


def test_tasks_that_both_were_evaluated_on_are_taken_in_pairs(found: Comparison) -> None:
    both = ("s:a", "s:b", "s:c")
    solved = found.pairs[0]
    assert solved.name == "held_out.solved"
    assert solved.difference == difference({k: FIRST[k] for k in both}, {k: SECOND[k] for k in both}, k=1)
    assert solved.difference.value == pytest.approx(0.25)
    assert solved.difference.units == 3
    assert [pair.name for pair in found.pairs] == ["held_out.solved", "held_out.pass@4", "held_out.valid"]
    assert (found.won, found.lost) == (2, 0)
    assert found.settings == (("learner.lr", 0.1, 0.2), ("play.attempts", None, 4))


def test_the_screen(found: Comparison) -> None:
    rows = shown(found)
    assert rows[0] == "one · two"
    assert rows[2].split() == ["on", "held-out", "tasks", "one", "two", "difference,", "95", "%"]
    assert rows[3].startswith("solved")
    assert "+25.0 % [" in rows[3]
    assert "3 tasks of both, after 8 and 8 steps: two solved more of 2, less of 0, as much of 1" in rows
    assert ["solved", "0.25", "0.50", "+0.25"] in [row.split() for row in rows]
    assert ["informative", "–", "–", "–"] in [row.split() for row in rows]
    assert ["play.attempts", "–", "4"] in [row.split() for row in rows]


def test_brackets_in_names_and_values_are_text() -> None:
    packages = "game.requirements"
    one = side("[b]", {}, **{packages: ["requests[socks]"], "game.source": "/data/[old]"})
    two = side("[/b]", {}, **{packages: ["requests"], "game.source": "/data/[/old]"})
    rows = [row.split() for row in shown(compare(one, two))]
    assert [packages, "['requests[socks]']", "['requests']"] in rows
    assert ["game.source", "/data/[old]", "/data/[/old]"] in rows
    assert ["settings", "that", "differ", "[b]", "[/b]"] in rows


def test_without_held_out_tasks() -> None:
    found = compare(side("one", {}), side("two", {}))
    assert found.pairs == ()
    assert found.settings == ()
    assert compare_data(found)["held_out"] == []
    assert holds(parse("solved>0.2"), found)


def test_a_task_without_a_decided_attempt_hides_none_of_the_others() -> None:
    found = compare(side("one", {**SECOND, "s:none": (0, 0)}), side("two", {**FIRST, "s:none": (4, 4)}))
    assert [pair.name for pair in found.pairs] == ["held_out.solved", "held_out.pass@4", "held_out.valid"]
    assert found.solved is not None
    assert (found.solved.first.units, found.solved.second.units) == (3, 3)
    assert (found.solved.difference.value, found.solved.difference.left_out) == (pytest.approx(-0.25), 1)
    assert holds(parse("solved<-0.05"), found), "the steps' figure is better, the held-out one worse"
    assert "two solved more of 0, less of 2, as much of 1; 1 task without a decided" in " ".join(shown(found))


def test_what_a_condition_is_about_where_no_held_out_task_is_compared() -> None:
    one, two = side("one", FIRST), side("two", {})
    about = "`solved` of --fail-if is that of the steps"
    assert f"no held-out tasks that both were evaluated on, only one was: {about}" in " ".join(shown(compare(one, two)))
    undecided = replace(one, name="two", attempts=dict.fromkeys(FIRST, (0, 0)))
    found = compare(one, undecided)
    assert [pair.name for pair in found.pairs] == ["held_out.valid"]
    assert f"no held-out task that both have a decided attempt on: {about}" in " ".join(shown(found))
    assert "no held-out tasks that both were evaluated on" in shown(compare(two, two))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("solved<-0.05", False),
        ("solved > 0.2", True),
        ("solved>=.25", True),
        ("solved.low<0", False),
        ("solved.high>0.4", True),
        ("held_out.pass@4<=0", True),
        ("valid<0", False),
    ],
)
def test_conditions(found: Comparison, text: str, expected: bool) -> None:
    assert holds(parse(text), found) is expected


@pytest.mark.parametrize("text", ["", "solved", "solved<", "solved=1", "solved<-", "solved<1;x"])
def test_what_is_no_condition(text: str) -> None:
    with pytest.raises(UserError, match="is no condition"):
        parse(text)


def test_a_condition_about_something_unknown_does_not_pass(found: Comparison) -> None:
    for name in ("speed", "informative"):
        with pytest.raises(UserError, match=f"`{name}` is not known of both runs") as caught:
            holds(parse(f"{name}<0"), found)
        assert "held_out.solved" in caught.value.hint


def test_a_run_as_a_side(played_run: Path) -> None:
    with Ledger.read(played_run) as reader:
        one = side_of(reader)
    assert (one.name, one.closed, one.evaluated) == ("small", 1, None)
    assert one.figures["valid"] == 0.5
    assert one.figures["solved"] == 0.5
    assert compare(one, replace(one, name="again")).settings == ()
