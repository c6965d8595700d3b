"""Damaged files: each is named and refused, or was not needed; nothing wrong is used, nothing ends in a traceback.

Bytes of the ledger are flipped and cut, of its write-ahead log too, and files of the run are deleted. Whatever is
accepted must end with the rows and the weights of the run without interruption. A bit is flipped in every column of
JSON, which SQLite does not notice: every command ends in words, and what is salvaged is whole.

Not here: damaged saves (`tests/test_resume.py`), what `selfplay check` finds and what can be saved (`tests/ledger`).
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from compared import differences
from harness import Chain, Crash, Played, Setup

from selfplay.cli import main
from selfplay.ledger import Ledger
from tests.ledger.flips import JSON, fill
from tests.ledger.flips import flip as flip_json

pytestmark = pytest.mark.slow

Damage = Callable[[Path, random.Random], None]


@pytest.fixture(scope="module")
def killed(toy: tuple[Setup, Played], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, killed after its fourth step: the newest rows are in the write-ahead log."""
    chain = Chain(setup=toy[0], runs=tmp_path_factory.mktemp("killed"), name="chain")
    chain.crash(Crash(at="selfplay.ledger:Ledger.close_step", when="after", nth=4))
    assert (chain.folder / "ledger.db-wal").stat().st_size > 0
    return chain.folder


@pytest.fixture(scope="module")
def stopped(toy: tuple[Setup, Played], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run with four steps, done: all rows are in the file."""
    chain = Chain(setup=toy[0], runs=tmp_path_factory.mktemp("stopped"), name="chain")
    assert chain.launch("--steps", "4").wait() == 0
    assert not (chain.folder / "ledger.db-wal").exists()
    return chain.folder


def flip(name: str) -> Damage:
    def damage(folder: Path, rng: random.Random) -> None:
        file = folder / name
        content = bytearray(file.read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        file.write_bytes(content)

    return damage


def zero(name: str) -> Damage:
    def damage(folder: Path, rng: random.Random) -> None:
        file = folder / name
        content = bytearray(file.read_bytes())
        at = rng.randrange(len(content) // 4096) * 4096
        content[at : at + 4096] = bytes(4096)
        file.write_bytes(content)

    return damage


def cut(name: str) -> Damage:
    def damage(folder: Path, rng: random.Random) -> None:
        file = folder / name
        file.write_bytes(file.read_bytes()[: rng.randrange(file.stat().st_size)])

    return damage


def delete(name: str) -> Damage:
    return lambda folder, rng: (folder / name).unlink()


def resumed(folder: Path, setup: Setup, *, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The sentence that refused the run, or nothing."""
    monkeypatch.setenv("SELFPLAY_RUNS", str(folder.parent))
    capsys.readouterr()
    code = main(["run", *setup.words, "--name", folder.name, "--quiet"])
    err = capsys.readouterr().err
    assert "Traceback" not in err
    if code == 0:
        return ""
    assert code in (1, 3), err
    sentence, _, hint = err.rpartition("error: ")[2].partition("hint: ")
    assert hint
    assert not sentence.startswith("unexpected"), sentence
    return sentence.strip()


def verdict(
    origin: Path, damage: Damage, number: int, *, toy: tuple[Setup, Played], tmp_path: Path, resume: Callable[..., str]
) -> str:
    """What became of a damaged copy: the sentence of the refusal, `equal`, or how it differs from the whole run."""
    chain = Chain(setup=toy[0], runs=tmp_path / f"{number}", name="chain")
    shutil.copytree(origin, chain.folder)
    damage(chain.folder, random.Random(number))
    sentence = resume(chain.folder, toy[0])
    if sentence:
        assert str(chain.folder) in sentence or "update" in sentence, sentence
        return sentence
    # note: text for people (a verdict's `why`) has no digest; a flipped letter there decides nothing.
    found = [line for line in differences(chain, toy[1].folder) if not line.startswith("table")]
    shutil.rmtree(chain.runs)
    return "equal" if not found else f"DIFFERENT {found}"


@pytest.mark.parametrize(
    ("state", "name", "damage"),
    [
        ("killed", "ledger.db", flip),
        ("killed", "ledger.db-wal", flip),
        ("killed", "ledger.db", zero),
        ("killed", "ledger.db-wal", zero),
        ("killed", "ledger.db", cut),
        ("killed", "ledger.db-wal", cut),
        ("killed", "ledger.db-wal", delete),
        ("stopped", "ledger.db", flip),
        ("stopped", "ledger.db", zero),
        ("stopped", "ledger.db", cut),
        ("stopped", "config.toml", delete),
    ],
)
def test_a_damaged_run_is_refused_or_ends_equal(
    state: str,
    name: str,
    damage: Callable[[str], Damage],
    toy: tuple[Setup, Played],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    origin = request.getfixturevalue(state)

    def resume(folder: Path, setup: Setup) -> str:
        return resumed(folder, setup, monkeypatch=monkeypatch, capsys=capsys)

    for number in range(1 if damage is delete else 4):
        outcome = verdict(origin, damage(name), number, toy=toy, tmp_path=tmp_path, resume=resume)
        assert not outcome.startswith("DIFFERENT"), outcome


@pytest.fixture(scope="module")
def filled(stopped: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that was stopped, with a row of every kind of JSON."""
    folder = Path(shutil.copytree(stopped, tmp_path_factory.mktemp("filled") / "chain"))
    fill(folder)
    return folder


def ended(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and stderr of a command that ended in words."""
    capsys.readouterr()
    code = main(words)
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert "unexpected" not in err
    return code, err


@pytest.mark.parametrize(("table", "column"), JSON)
def test_a_flipped_bit_in_json_is_told_and_what_is_whole_is_salvaged(
    table: str,
    column: str,
    toy: tuple[Setup, Played],
    filled: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = Path(shutil.copytree(filled, tmp_path / "chain"))
    monkeypatch.setenv("SELFPLAY_RUNS", str(tmp_path))
    assert ended("check", "chain", capsys=capsys)[0] == 0
    flip_json(folder, table, column)
    for words in (("status", "chain"), ("status",), ("ls", "runs"), ("inspect", "chain")):
        ended(*words, capsys=capsys)
    code, err = ended("check", "chain", capsys=capsys)
    assert code == 1
    assert "selfplay check chain --salvage chain-2" in err
    resumed(folder, toy[0], monkeypatch=monkeypatch, capsys=capsys)
    code, err = ended("check", "chain", "--salvage", "chain-2", capsys=capsys)
    if table == "runs":
        assert (code, "nothing can be saved of " in err) == (1, True)
    else:
        assert code == 0, err
        assert ended("check", "chain-2", capsys=capsys)[0] == 0


def test_a_copy_made_while_the_run_was_live(toy: tuple[Setup, Played], tmp_path: Path) -> None:
    live = Chain(setup=toy[0], runs=tmp_path / "live", name="chain")
    launch = live.launch()
    launch.wait_for(lambda event: event.get("kind") == "step")
    shutil.copytree(live.folder, tmp_path / "copied" / "chain", ignore=shutil.ignore_patterns("*-shm", ".*"))
    assert launch.wait() == 0
    copied = Chain(setup=toy[0], runs=tmp_path / "copied", name="chain")
    copied.finish()
    assert differences(copied, toy[1].folder) == []


def test_a_clock_that_went_back(
    toy: tuple[Setup, Played],
    stopped: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import time

    folder = tmp_path / "chain"
    shutil.copytree(stopped, folder)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 86_400.0)
    assert resumed(folder, toy[0], monkeypatch=monkeypatch, capsys=capsys) == ""
    with Ledger.read(folder) as mine, Ledger.read(toy[1].folder) as whole:
        assert mine.comparable() == whole.comparable()
