from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from selfplay.ledger import Ledger
from selfplay.ledger.intervals import Busy, Window
from selfplay.types import Turn
from selfplay.views.report import Report, Setting, gather, spread
from selfplay.views.report_charts import cost_rows, curves, refusals, step_lines, summary_rows, timeline
from selfplay.views.report_page import page
from selfplay.views.status import RunView

HOSTILE = (
    "<script>document.title='x'</script><img src=x onerror=alert(1)></pre></details>"
    "\x1b[31mred\x1b]0;title\x07 \u202eright-to-left\u2066 {{ 7 * 7 }} &amp; 'quote\""
)


@pytest.fixture(scope="session")
def report(played_run: Path) -> Report:
    with Ledger.read(played_run) as reader:
        run = RunView(name="small", folder="runs/small", status=reader.status(), steps=3, holder=None)
        return gather(
            reader,
            run,
            frontier=None,
            fixes={"drift": "load the last save"},
            settings=(Setting(key="run.steps", value="3", origin="-s"),),
            commands=(("Again:", "selfplay run --name small"),),
        )


class Structure(HTMLParser):
    """Tags, ids and texts of a page; fails where a tag is closed that is not open."""

    VOID = ("meta", "link", "br", "img", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        assert not [name for name in given if name.startswith("on")]
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [given[name] or "" for name in ("href", "src", "action", "data") if name in given]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag


def test_what_is_gathered(report: Report) -> None:
    (pair,) = report.pairs
    assert (pair.solved, pair.decided) == (1, 2)
    assert pair.proposal is not None
    assert pair.repaired is not None
    assert pair.failed is not None
    assert pair.repaired.trajectory.reply == "ab"
    assert pair.failed.trajectory.reply == "b"
    assert [one.play.decision.reason for one in report.sample.proposals if one.play.decision] == ["valid", "not_a_word"]
    assert (report.sample.of, report.sample.steps) == (2, (0,))
    assert [told.attempts for told in report.histories] == [2]
    assert report.alarms[0].fix == "load the last save"


def test_figures(report: Report) -> None:
    assert dict(summary_rows(report))["attempts solved"] == "50 % of 2"
    assert refusals(report) == [("not_a_word", 1, 1.0)]
    assert cost_rows(report)[:2] == [("calls of the model", "4.0"), ("tokens sampled, by both roles", "12")]
    (line,) = step_lines(report)
    assert line.cells[:5] == ("2", "50 %", "1", "2", "50 %")
    assert [figure.title for figure in curves(report)] == ["Valid proposals and solved attempts", "Mean reward"]


def test_the_page(report: Report) -> None:
    text = page(report)
    found = Structure(text)
    assert "script" not in found.tags
    assert len(found.ids) == len(set(found.ids))
    anchors = [link[1:] for link in found.links if link.startswith("#")]
    assert set(anchors) <= set(found.ids)
    assert [link for link in found.links if not link.startswith(("#", "data:,"))] == []
    (pair,) = report.pairs
    assert {f"task-{pair.task.id}", "step-0", "key-run.steps"} <= set(found.ids)
    assert f"t-{pair.task.parent_id}" in found.ids
    assert "load the last save" in text
    assert "Content-Security-Policy" in text
    assert '<span class="removed">-ab' in text
    assert "selfplay run --name small" in text
    assert "prefers-color-scheme: dark" in text


def test_one_step_is_shown_moment_by_moment(report: Report) -> None:
    window = report.window
    assert window is not None
    kinds = {one.what for one in window.busy}
    assert kinds >= {"update"}
    assert any(kind.startswith("plays of ") for kind in kinds)
    assert all(one.begin <= one.end for one in window.busy)
    (figure,) = timeline(window)
    assert figure.title == f"Step {window.step}, moment by moment"
    assert figure.svg.count('class="axis"') == len(kinds)
    assert all(f"{kind}: at most" in figure.svg for kind in kinds)
    assert timeline(None) == []


def test_the_most_at_the_same_time_is_counted_and_no_mean() -> None:
    short = [(10.0, 10.01), (10.005, 10.02), (10.02, 10.03), (99.9, 130.0), (-5.0, 0.1), (-5.0, 0.05)]
    busy = [Busy(what="judge", begin=begin, end=end) for begin, end in short]
    update = Busy(what="update", begin=50.0, end=50.02)
    early = [Busy(what="mint", begin=-9.0, end=end) for end in (0.2, 0.3, 0.4)]
    window = Window(step=3, opened=0.0, closed=100.0, busy=(*busy, update, *early))
    (figure,) = timeline(window)
    for words in ("judge: at most 2 at", "update: at most 1 at", "mint: at most 3 at"):
        assert words in figure.svg


def test_what_a_model_wrote_is_text(report: Report) -> None:
    (pair,) = report.pairs
    assert pair.failed is not None
    turn = Turn(speaker="policy", token_ids=(1,), text=HOSTILE)
    (verdict,) = pair.failed.verdicts
    evil = {"diff": f"+{HOSTILE}", "failing": [[HOSTILE, HOSTILE]]}
    failed = replace(
        pair.failed,
        trajectory=replace(pair.failed.trajectory, turns=(turn,), role=HOSTILE),
        verdicts=(replace(verdict, why=HOSTILE, reason=HOSTILE, evidence=evil),),
    )
    task = replace(pair.task, payload={"source": HOSTILE, "buggy": HOSTILE + "\n" + HOSTILE, "path": HOSTILE})
    choice = replace(report.choices[0], why=HOSTILE)
    worse = replace(
        report,
        run=replace(report.run, name=HOSTILE),
        pairs=(replace(pair, failed=failed, task=task),),
        choices=(choice,),
        settings=(Setting(key="a", value=HOSTILE, origin=HOSTILE),),
        commands=((HOSTILE, HOSTILE),),
        faults={HOSTILE: 1},
    )
    text = page(worse)
    found = Structure(text)
    assert "script" not in found.tags
    assert "img" not in found.tags
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text)
    assert "&lt;script&gt;" in text
    assert "\\x1b[31mred" in text
    assert "{{ 7 * 7 }}" in text


def test_a_run_without_a_step(report: Report) -> None:
    with_nothing = replace(
        report, rows=(), pairs=(), choices=(), histories=(), spent={}, learnt={}, alarms=(), faults={}
    )
    found = Structure(page(with_nothing))
    assert "section" in found.tags


def test_steps_are_spread_evenly() -> None:
    assert spread(range(5), 9) == (0, 1, 2, 3, 4)
    assert spread(range(101), 5) == (0, 25, 50, 75, 100)
    assert spread([], 5) == ()
