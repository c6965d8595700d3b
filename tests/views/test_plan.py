from __future__ import annotations

import io

from rich.console import Console

from selfplay.views.plan import PlanRow, plan_data, plan_table

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


def test_the_plan_as_json() -> None:
    assert plan_data(ROWS)[1] == {"section": "play", "name": "proposals", "value": "P = 4 a seed", "note": "80 in all"}
