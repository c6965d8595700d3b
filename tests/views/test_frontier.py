from __future__ import annotations

import io
from dataclasses import replace
from math import inf
from xml.etree import ElementTree

import pytest
from rich.console import Console, RenderableType

from selfplay.views.frontier import (
    BINS,
    CELLS,
    CellRow,
    FrontierView,
    Rate,
    bin_of,
    frontier_data,
    frontier_screen,
    frontier_svg,
    shot,
)

BAND = (0.35, 0.65)
RATES = [Rate(mean=0.04, decided=8, solved=0), Rate(mean=0.5, decided=8, solved=4), Rate(mean=1.0, decided=8, solved=8)]


@pytest.fixture
def view() -> FrontierView:
    early = shot(4, [Rate(mean=0.05, decided=0, solved=0)], band=BAND)
    cell = CellRow(name="solver/removal/[bold]\x1b[31m<a>.py", tasks=3, mean=0.3, deviation=0.1, strength=9.0)
    return FrontierView(
        name="some",
        curriculum="frontier",
        window=64,
        half_life=30.0,
        target=0.5,
        aim="of curriculum frontier",
        reward="ssr",
        paid=0.257,
        shots=(early, shot(9, RATES, band=BAND)),
        cells=(cell,),
    )


def drawn(page: RenderableType) -> str:
    to = io.StringIO()
    Console(file=to, width=80, highlight=False).print(page)
    return "\n".join(row.rstrip() for row in to.getvalue().splitlines())


def test_a_column_counts_its_tasks() -> None:
    one = shot(9, RATES, band=BAND)
    assert one.bins == (1, 0, 0, 0, 0, 1, 0, 0, 0, 1)
    assert (one.tasks, one.never, one.always, one.near) == (3, 1, 1, 1)
    assert one.mean == pytest.approx(0.5133, abs=1e-4)
    # note: what nobody tried was neither never nor always solved.
    untried = shot(0, [Rate(mean=0.5, decided=0, solved=0)], band=BAND)
    assert (untried.never, untried.always) == (0, 0)
    assert shot(0, [], band=BAND).mean is None
    assert [bin_of(rate) for rate in (0.0, 0.0999, 0.1, 0.999, 1.0)] == [0, 0, 1, 9, 9]


def test_the_screen_fits_and_marks_both_targets(view: FrontierView) -> None:
    text = drawn(frontier_screen(view))
    assert all(len(row) <= 80 for row in text.splitlines())
    rows = {row.split("%")[0].strip(): row for row in text.splitlines() if "–" in row and "%" in row}
    assert len(rows) == BINS
    assert "›" in rows["50–60"]
    assert "$" in rows["20–30"]
    assert "█████████ 1" in rows["0–10"]
    assert "pays a proposal most at a solve rate of 0.26" in text
    assert "near target" in text
    assert "\x1b" not in text
    assert "[bold]" in text


def test_tasks_that_were_tried_with_a_hint(view: FrontierView) -> None:
    assert "with a hint" not in drawn(frontier_screen(view))
    hard = Rate(mean=0.04, decided=8, solved=0, helped=8, helped_solved=3)
    wrong = Rate(mean=0.04, decided=8, solved=0, helped=8, helped_solved=0)
    tried = shot(9, [*RATES, hard, wrong], band=BAND)
    assert (tried.helped, tried.opened, tried.never) == (2, 1, 3)
    shown = replace(view, shots=(view.shots[0], tried))
    row = next(row for row in drawn(frontier_screen(shown)).splitlines() if "with a hint" in row)
    assert row.split() == ["with", "a", "hint", "0", "of", "0", "1", "of", "2"]
    assert frontier_data(shown)["steps"][1]["solved_with_hint"] == 1


def test_what_is_not_there_is_not_said(view: FrontierView) -> None:
    many = tuple(replace(view.cells[0], name=f"cell {i}") for i in range(CELLS + 3))
    text = drawn(frontier_screen(replace(view, paid=None, half_life=inf, cells=many)))
    assert "$" not in text
    assert "half-life" not in text
    assert "and 3 more cells: --json" in text


def test_the_picture_is_xml_with_a_bar_a_bin(view: FrontierView) -> None:
    tree = ElementTree.fromstring(frontier_svg(replace(view, name="a<b>&\x1bc")))
    space = "{http://www.w3.org/2000/svg}"
    assert tree.tag == f"{space}svg"
    bars = [bar for bar in tree.iter(f"{space}rect") if bar.get("class") == "bar"]
    assert len(bars) == BINS * len(view.shots)
    assert sum(float(bar.get("height", 0)) > 0 for bar in bars) == 4
    words = [text.text or "" for text in tree.iter(f"{space}text")]
    assert "after step 9" in words
    assert "tasks 3" in words
    assert any(word.startswith("$ reward ssr") for word in words)
    assert not [node for node in tree.iter() if "href" in node.attrib or node.tag == f"{space}script"]


def test_numbers_for_programs(view: FrontierView) -> None:
    data = frontier_data(replace(view, half_life=inf))
    assert data["half_life"] is None
    assert data["target"]["low"] == pytest.approx(0.35)
    assert len(data["edges"]) == BINS + 1
    assert [sum(step["bins"]) for step in data["steps"]] == [1, 3]
