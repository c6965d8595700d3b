from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from selfplay.cli import pages


def console(to: io.StringIO, *, terminal: bool) -> Console:
    return Console(file=to, force_terminal=terminal, width=40, height=5, highlight=False, _environ={"TERM": "xterm"})


def test_a_long_page_goes_through_the_pager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, kept = tmp_path / "reads", tmp_path / "kept"
    script.write_text(f"#!/bin/sh\ncat > {kept}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PAGER", str(script))
    to = io.StringIO()
    pages.show(console(to, terminal=True), "[bold]row[/]\n" * 9)
    assert to.getvalue() == ""
    assert kept.read_text().count("row") == 9
    assert "\x1b[1m" in kept.read_text()


@pytest.mark.parametrize(("terminal", "rows", "pager"), [(False, 9, "false"), (True, 2, "false"), (True, 9, "")])
def test_elsewhere_it_is_printed(terminal: bool, rows: int, pager: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", pager)
    to = io.StringIO()
    pages.show(console(to, terminal=terminal), "row\n" * rows)
    assert to.getvalue().count("row") == rows


def test_a_pager_that_is_not_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "no-such-program --x")
    assert pages.pager() is None
    monkeypatch.delenv("PAGER")
    assert pages.pager() in (None, ["less", "-FRX"])
