from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from selfplay.errors import NotReady
from selfplay.ledger import ControlRow, Launch, control
from selfplay.ledger.lock import Holder

HELD = Holder(pid=7, host="here", started_at=12.5)


def test_lines_are_read_once_and_name_their_launch(tmp_path: Path) -> None:
    assert control.read(tmp_path, since=0) == ((), 0)
    first = control.send(tmp_path, HELD, action="pause", arguments={})
    found, since = control.read(tmp_path, since=0)
    assert found == (first,)
    second = control.send(tmp_path, HELD, action="set", arguments={"run.steps": "9"})
    assert control.read(tmp_path, since=since)[0] == (second,)
    assert second.is_for(HELD)
    assert not second.is_for(replace(HELD, started_at=13.0))
    assert not second.is_for(replace(HELD, pid=8))


def test_what_is_no_line_is_left_out_and_half_a_line_waits(tmp_path: Path) -> None:
    line = control.send(tmp_path, HELD, action="stop", arguments={})
    file = tmp_path / control.NAME
    whole = file.read_bytes()
    file.write_bytes(b'not json\n[1]\n{"id": 1}\n' + whole.replace(b'"stop"', b'"jump"') + whole + whole[:20])
    found, since = control.read(tmp_path, since=0)
    assert found == (line,)
    with file.open("ab") as more:
        more.write(whole[20:])
    assert control.read(tmp_path, since=since)[0] == (line,)


def test_a_pause_is_of_its_launch() -> None:
    launch = Launch(id=2, pid=1, host="here", engine_version="0", started_at=10.0, ended_at=None, how=None)

    def rows(*asked: tuple[str, float]) -> list[ControlRow]:
        return [ControlRow(action=action, arguments={}, at=at) for action, at in asked]

    assert control.paused(rows(("pause", 11.0)), launch)
    assert control.paused(rows(("pause", 11.0), ("set", 12.0)), launch)
    assert not control.paused(rows(("pause", 11.0), ("resume", 12.0)), launch)
    assert not control.paused(rows(("pause", 9.0)), launch)
    assert not control.paused((), launch)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match=r"cannot write .*control\.jsonl"):
        control.send(tmp_path / "gone", HELD, action="stop", arguments={})
