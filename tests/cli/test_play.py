"""A person takes a seat: the same prompt and the same verdict, and no run is written to."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from selfplay.ledger import Ledger
from tests.backends import needed
from tests.games.code.conftest import write
from tests.games.code.test_agentic import FILES

Typed = tuple[int, str, str]
Type = Callable[..., Typed]


def said(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def answer(spawned: Type, *words: str) -> dict[str, object]:
    code, out, err = spawned("play", *words, "--json")
    assert code == 0, err
    message = json.loads(out)
    assert message["schema"] == "selfplay.play/1"
    data = message["data"]
    assert isinstance(data, dict)
    return data


def test_a_solver_types_a_line(here: Path, typed: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    said(monkeypatch, "ab\n\nmore\n")
    code, out, _ = typed("play", "echo", "--as", "solver")
    assert code == 0
    prompt, verdict = out.splitlines()[0], out.splitlines()[-2]
    word = prompt.removesuffix(">")
    assert verdict == (
        "verdict   passed (passed): 'ab' where 'ab' was wanted"
        if word == "ab"
        else f"verdict   not passed (wrong): 'ab' where {word!r} was wanted"
    )
    assert not (here / "runs").exists()


def test_a_proposer_replies_from_a_file(here: Path, spawned: Type) -> None:
    (here / "reply").write_text("abba\n")
    found = answer(spawned, "echo", "--as", "proposer", "--reply", "reply")
    assert (found["reply"], found["task"]) == ("abba", None)
    assert found["verdict"]["reason"] == "wrong_length"  # type: ignore[index]
    assert [check["state"] for check in found["checks"]][:2] == ["passed", "failed"]  # type: ignore[attr-defined]
    length = len(str(found["prompt"]).strip()) - 1
    (here / "reply").write_text("ab"[:length])
    found = answer(spawned, "echo", "--as", "proposer", "--reply", "reply")
    assert found["task"]["payload"] == {"word": "ab"[:length]}  # type: ignore[index]
    assert found["subject"]["split"] == "train"  # type: ignore[index]


def test_an_editor_is_opened(here: Path, typed: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "write").write_text('#!/bin/sh\nprintf ba > "$1"\n')
    (here / "write").chmod(0o755)
    monkeypatch.setenv("EDITOR", str(here / "write"))
    monkeypatch.delenv("VISUAL", raising=False)
    said(monkeypatch, ":edit\n")
    assert "verdict   " in typed("play", "echo", "--as", "solver")[1]
    said(monkeypatch, ":edit\n")
    assert ": 'ba' where" in typed("play", "echo", "--as", "solver")[1]


def test_a_recorded_task_is_played_without_a_trace(with_replays: Path, typed: Type, spawned: Type) -> None:
    folder = with_replays / "runs" / "again"
    with Ledger.read(folder) as ledger:
        task, before = next(task for step in range(3) for task in ledger.tasks(step)), dict(ledger.comparable())
        held_out = next(seed for seed in ledger.seeds() if seed.split == "held_out")
    files = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and "-" not in path.name}
    (with_replays / "reply").write_text(f"{task.payload['word']}\n")
    words = ["--run", "again", "--task", task.id[:10], "--reply", "reply"]
    found = answer(spawned, "echo", "--as", "solver", *words)
    assert found["verdict"]["passed"] is True  # type: ignore[index]
    assert found["subject"]["id"] == task.id  # type: ignore[index]
    with Ledger.read(folder) as ledger:
        assert dict(ledger.comparable()) == before
    assert {path: path.stat().st_mtime_ns for path in files} == files
    code, _, err = typed("play", "echo", "--as", "proposer", "--run", "again", "--seed", held_out.id[:12])
    assert (code, "is held out for examinations" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["chess", "--as", "solver"], 2, "no game `chess`"),
        (["echo", "--as", "solver", "--task", "a"], 2, "--task names a task of a run"),
        (["echo", "--as", "solver", "--strategy", "direct"], 2, "--strategy is how a proposer is asked"),
        (["echo", "--as", "proposer", "--strategy", "direct"], 2, "game `echo` has no strategy `direct`"),
        (["code", "--as", "solver", "--preset", "demo"], 2, "preset `demo` plays `echo`, not `code`"),
        (["echo", "--as", "proposer", "--seed", "nowhere"], 2, "no seed `nowhere`"),
        (["echo", "--as", "solver", "--reply", "nowhere"], 2, "nowhere cannot be read"),
        (["echo", "--as", "solver", "--run", "nowhere"], 2, "no run `nowhere`"),
        (["echo"], 2, "--as"),
    ],
)
def test_what_cannot_be_played(here: Path, typed: Type, words: list[str], code: int, message: str) -> None:
    got, out, err = typed("play", *words)
    assert (got, message in err, out) == (code, True, "")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The small package, and a cache that its survey is kept in."""
    folder = tmp_path_factory.mktemp("seat")
    write(folder / "pkg-1", FILES)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.bubblewrap
def test_a_shell_and_an_editor_in_the_sandbox(
    here: Path, package: Path, typed: Type, spawned: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed("bubblewrap")
    monkeypatch.setenv("SELFPLAY_CACHE", str(package / "cache"))
    monkeypatch.setenv("EDITOR", "sed -i 's/x.-1./x[0]/'")
    monkeypatch.delenv("VISUAL", raising=False)
    game = ["-s", f"game.source={package / 'pkg-1'}", "--sandbox", "bubblewrap", "-s", "game.held_out=0"]
    script = [
        "ls",
        ":edit pkg/b.py",
        ":edit pkg",
        ":edit",
        ":fly",
        ":call view nothing",
        ':call view {"path": "pkg/b.py"}',
        ":submit",
        "sed -i 's/assert last/last/' tests/test_b.py",
        ":submit",
        "echo not reached",
    ]
    (here / "script").write_text("\n".join(script))
    code, out, err = typed("play", "code", "--as", "proposer", *game, "--strategy", "direct", "--reply", "script")
    assert code == 0, err
    assert "How to break it: change what the code does" in out
    assert "return x[0]" in out
    for expected in (
        "pkg is no text file that can be changed here",
        "which file? :edit FILE",
        "there is no :fly",
        "that is no JSON",
        "Stage WEAKEN",
        "verdict   a task (valid)",
        "✓ the weakening hides it",
        "fails     tests/test_b.py::test_last",
        "+    return x[0]",
    ):
        assert expected in out, out
    assert "not reached" not in out.replace("· not reached", "")
    said(monkeypatch, ":quit\n")
    assert typed("play", "code", "--as", "solver", *game)[0] != 0
    found = answer(spawned, "code", "--as", "solver", *game, "--preset", "quickstart", "--reply", "script")
    assert (found["role"], found["sandbox"]) == ("repairer", "bubblewrap")
    assert found["verdict"]["passed"] is False  # type: ignore[index]
    assert not (here / "runs").exists()
