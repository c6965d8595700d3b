"""What is whole of a damaged run becomes a run that goes on to the very same end."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay.audit import audit
from selfplay.build import Outcome
from selfplay.errors import RunFailed
from selfplay.ledger import Ledger
from selfplay.salvage import salvage

Play = Callable[..., Outcome]

PAGE = 4096


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, play: Play) -> Path:
    """Five steps of the toy game; not to be changed."""
    folder = tmp_path_factory.mktemp("damaged") / "toy"
    play(folder, "run.keep_saves=9", steps=5)
    return folder


def digests(folder: Path) -> dict[str, str]:
    with Ledger.read(folder) as ledger:
        return dict(ledger.comparable())


def damaged(folder: Path, target: Path, *, kind: str, page: int) -> Path:
    shutil.copytree(folder, target)
    path = target / "ledger.db"
    raw = bytearray(path.read_bytes())
    at = slice(page * PAGE, (page + 1) * PAGE)
    if kind == "cut":
        raw = raw[: page * PAGE]
    elif kind == "flipped":
        raw[page * PAGE + 100] ^= 4
    else:
        raw[at] = random.Random(page).randbytes(PAGE)
    path.write_bytes(raw)
    return target


@pytest.mark.parametrize(("kind", "back"), [("noise", 1), ("noise", 9), ("cut", 2), ("cut", 12), ("flipped", 20)])
def test_what_was_salvaged_is_whole_and_ends_the_same(
    tmp_path: Path, played: Path, play: Play, kind: str, back: int
) -> None:
    pages = (played / "ledger.db").stat().st_size // PAGE
    broken = damaged(played, tmp_path / "broken", kind=kind, page=pages - back)
    before = (broken / "ledger.db").read_bytes()
    target = tmp_path / "saved"
    saved = salvage(broken, target)
    assert [checked.problems for checked in audit(target) if checked.problems] == []
    assert (broken / "ledger.db").read_bytes() == before
    with Ledger.read(target) as ledger:
        assert ledger.last_closed_step() == saved.steps - 1
    assert not list(target.glob("*.new")) + list(target.glob("*.uncut*"))
    play(target, "run.keep_saves=9", steps=5)
    assert digests(target) == digests(played)


def test_a_whole_run_is_salvaged_whole(tmp_path: Path, played: Path) -> None:
    saved = salvage(played, tmp_path / "saved")
    assert (saved.steps, saved.left_out) == (5, "")
    assert digests(tmp_path / "saved") == digests(played)
    for path in saved.saves:
        assert (tmp_path / "saved" / path / "model.safetensors").samefile(played / path / "model.safetensors")


def test_an_open_step_is_left_out_by_name(tmp_path: Path, played: Path, play: Play) -> None:
    folder = Path(shutil.copytree(played, tmp_path / "toy"))
    with Ledger.open(folder) as ledger:
        ledger.append(ledger.choices(0)[0].__class__(**{**fields(ledger.choices(0)[0]), "step": 5}))
    saved = salvage(folder, tmp_path / "saved")
    assert (saved.steps, saved.left_out) == (5, "step 5: its update is missing")


def fields(choice: object) -> dict[str, object]:
    return {name: getattr(choice, name) for name in ("step", "index", "mode", "subject_id", "score", "why")}


def test_a_file_without_a_head_is_hopeless_and_leaves_nothing(tmp_path: Path, played: Path) -> None:
    broken = damaged(played, tmp_path / "broken", kind="noise", page=0)
    with pytest.raises(RunFailed, match=r"nothing can be saved of .*broken/ledger\.db"):
        salvage(broken, tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
