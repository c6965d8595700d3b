"""The report in a real browser: it fits, it asks for nothing, it is accessible, and what a model wrote stays text.

Needs Chromium and Playwright, and axe-core for the accessibility rules (SELFPLAY_AXE=FILE names axe.min.js). What is
missing is skipped, or fails with SELFPLAY_REQUIRE_BROWSER=1.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from selfplay.cli.report import report_of, write
from selfplay.ledger import Ledger
from selfplay.project import Project
from selfplay.types import Turn
from selfplay.views.report_page import page

HOSTILE = "<script>document.title='taken'</script><img src='http://localhost:9/x' onerror=\"document.title='taken'\">"
WIDTHS = (360, 800, 1440)


def missing(what: str) -> NoReturn:
    if os.environ.get("SELFPLAY_REQUIRE_BROWSER") == "1":
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, play: Callable[..., Any], project: Project) -> Path:
    """The report of a toy run with replays; in it a reply and a name try to be markup."""
    folder = tmp_path_factory.mktemp("reported") / "runs" / "shown"
    options = "curriculum.options={replay = 0.9, give_up = 0, only_better = false}"
    play(folder, "curriculum.choose=frontier", options, "curriculum.seeds=3", "play.proposals=16", steps=3)
    with Ledger.read(folder) as reader:
        report = report_of(reader, project=project)
    first, *others = report.sample.proposals
    turn = Turn(speaker="policy", token_ids=(1,), text=HOSTILE)
    evil = replace(first.play, trajectory=replace(first.play.trajectory, turns=(turn,)))
    sample = replace(report.sample, proposals=(replace(first, play=evil), *others))
    found = folder / "report.html"
    write(found, page(replace(report, sample=sample)))
    return found


@pytest.fixture(scope="module")
def chromium(file: Path) -> Iterator[Any]:
    """A running headless browser; after the run was played, since Playwright leaves an event loop running."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("Playwright is not installed: pip install playwright")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        missing("no Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        # note: its own sandbox needs rights that a container's root does not have.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_and_asks_for_nothing(chromium: Any, file: Path, width: int, scheme: str) -> None:
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    tab = context.new_page()
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(file.as_uri())
    tab.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert tab.title() == "shown · report"
    dark = tab.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark is (scheme == "dark")
    context.close()


def test_it_is_read_without_javascript_and_links_lead_into_it(chromium: Any, file: Path) -> None:
    context = chromium.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(file.as_uri())
    for heading in ("Summary", "Learning curves", "Frontier over time", "Configuration", "Reproduce it"):
        assert tab.get_by_role("heading", name=heading).first.is_visible()
    anchor = tab.locator("details [id^='t-']").last.get_attribute("id")
    tab.goto(f"{file.as_uri()}#{anchor}")
    assert tab.locator(f"[id='{anchor}']").is_visible(), "a link into a closed part opens it"
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility_rules(chromium: Any, file: Path, scheme: str) -> None:
    axe = Path(os.environ.get("SELFPLAY_AXE", "axe.min.js"))
    if not axe.is_file():
        missing("no axe-core: npm install axe-core, then SELFPLAY_AXE=node_modules/axe-core/axe.min.js")
    # note: the page's own policy forbids scripts, axe's too.
    context = chromium.new_context(bypass_csp=True, color_scheme=scheme)
    tab = context.new_page()
    tab.goto(file.as_uri())
    tab.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    tab.add_script_tag(path=str(axe))
    found = tab.evaluate("axe.run()")["violations"]
    assert [(one["impact"], one["id"], one["nodes"][0]["html"]) for one in found] == []
    context.close()
