from __future__ import annotations

import io

from rich.console import Console

from selfplay.views.plan import Difference, PlanRow, differences, differences_table, plan_data, plan_table

ROWS = (
    PlanRow(section="play", name="game", value="code"),
    PlanRow(section="play", name="proposals", value="P = 4 a seed", note="80 in all"),
    PlanRow(section="rewards", name="proposer", value="-1 if invalid, else 1 - 1.8 s"),
)


def test_rows_of_a_section_stand_together() -> None:
    to = io.StringIO()
    Console(file=to, width=80).print(plan_table(ROWS))
    assert [row.rstrip() for row in to.getvalue().splitlines()] == [
        "play     game       code",
        "         proposals  P = 4 a seed · 80 in all",
        "rewards  proposer   -1 if invalid, else 1 - 1.8 s",
    ]


def test_brackets_are_text() -> None:
    to = io.StringIO()
    console = Console(file=to, width=80)
    console.print(plan_table([PlanRow(section="play", name="role [a]", value="[/x]", note="[b]")]))
    console.print(differences_table([Difference(what="[a]", paper="[0, 1]", ours="[/x]", reason="[b]")]))
    first, _, second = (row.split() for row in to.getvalue().splitlines())
    assert first == ["play", "role", "[a]", "[/x]", "·", "[b]"]
    assert second == ["[a]", "[0,", "1]", "[/x]", "[b]"]


def test_the_plan_as_json() -> None:
    assert plan_data(ROWS)[1] == {"section": "play", "name": "proposals", "value": "P = 4 a seed", "note": "80 in all"}


TEXT = """# Head | of | no | table
#
#   what  | paper | here    | why
#   batch | 256   | 16      | two cores
#   noise | four  | what a  | drawn by
#         |       | search  | a key
#
#   a | b | c | d
[run]
"""


def test_a_preset_s_differences_stand_in_a_table_of_its_comments() -> None:
    found = differences(TEXT)
    assert [(one.what, one.paper, one.ours, one.reason) for one in found] == [
        ("batch", "256", "16", "two cores"),
        ("noise", "four", "what a search", "drawn by a key"),
    ]
    to = io.StringIO()
    Console(file=to, width=80).print(differences_table(found))
    head, first, _ = to.getvalue().splitlines()
    assert head.split() == ["not", "as", "published", "paper", "ours", "reason"]
    assert first.split() == ["batch", "256", "16", "two", "cores"]
