from __future__ import annotations

import io
import xml.dom.minidom
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from selfplay.errors import NotReady
from selfplay.ledger import Ledger, watching
from selfplay.views.draw import OWN, blocks, chart_of, metrics, png, svg, terminal
from selfplay.views.plots import Chart, Series

LINE = Chart(
    ident="plot-a",
    title="solved <attempts>",
    series=(
        Series(name="one", points=((0, 0.0), (1, 0.5), (2, None), (3, 1.0)), band=((0, 0.0, 0.5), (3, 0.5, 1.0))),
        Series(name="other", points=((0, None), (1, None))),
    ),
)


def test_a_file_that_needs_nothing_beside_it() -> None:
    text = svg([LINE, LINE])
    page = xml.dom.minidom.parseString(text)
    assert len(page.getElementsByTagName("svg")) == 3
    assert "prefers-color-scheme: dark" in text
    assert "solved &lt;attempts&gt;" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_in_the_terminal() -> None:
    to = io.StringIO()
    Console(file=to, width=60, highlight=False).print(terminal([LINE], width=60))
    assert to.getvalue().splitlines() == [
        "solved <attempts>",
        "  one    ▁▅ █  0 % to 100 %",
        "  other      –",
    ]


def test_many_steps_are_taken_together() -> None:
    assert blocks([0.0] * 50 + [1.0] * 50, 10, percent=True) == "▁" * 5 + "█" * 5
    assert blocks([5.0, 6.0], 10, percent=False) == "▁█"
    assert blocks([None, None], 10, percent=False) == "  "
    assert blocks([], 10, percent=True) == ""


def test_every_metric_of_a_run(played_run: Path) -> None:
    with Ledger.read(played_run) as reader:
        rows = reader.step_rows()
        learnt = {one.step: one for one in reader.ask(partial(watching.learnt, after=-1))}
    values = {one.name: chart_of(one, {"small": (rows, learnt)}).series[0].points[0][1] for one in metrics(learnt)}
    assert set(values) >= {one.name for one in OWN}
    assert (values["valid"], values["solved"], values["informative"], values["seconds"]) == (0.5, 0.5, 1.0, 4.0)
    assert (values["loss"], values["grad_norm"], values["tasks"]) == (0.5, 1.0, 1)
    assert (values["proposer_reward"], values["solver_reward"]) == (pytest.approx(-0.45), 0.0)


def test_png_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NotReady, match="PNG needs cairosvg") as caught:
        png("<svg/>")
    assert "FILE.svg" in caught.value.hint
