from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selfplay.ledger import Ledger, schema
from selfplay.ledger.lock import Lock
from selfplay.types import Save
from tests.ledger.flips import flip, unguarded

Typed = tuple[int, str, str]


@pytest.fixture
def littered(with_run: Path) -> Path:
    """The toy run with a damaged save, an older log and a cache with an old and a new entry."""
    run = with_run / "runs" / "toy"
    newest = max((run / "weights").glob("step_*"))
    shutil.copytree(newest, run / "weights" / f"damaged_{newest.name}")
    for number in (1, 2):
        (run / "logs" / f"attempt_{number}").mkdir(parents=True)
        (run / "logs" / f"attempt_{number}" / "out.txt").write_text("x" * 5000)
    os.utime(run / "logs" / "attempt_1", (1, 1))
    for name in ("old", "new"):
        entry = with_run / "cache" / "wheels" / name
        entry.mkdir(parents=True)
        (entry / "file").write_text("y" * 5000)
    long_ago = time.time() - 90 * 86_400
    for path in (with_run / "cache" / "wheels" / "old" / "file", with_run / "cache" / "wheels" / "old"):
        os.utime(path, (long_ago, long_ago))
    return with_run


def everything(folder: Path) -> set[str]:
    """Reading a ledger may leave its shared memory behind."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.name.startswith("ledger.db-")}


def test_nothing_is_removed_unless_asked_for(littered: Path, typed: Callable[..., Typed]) -> None:
    before = everything(littered)
    code, out, err = typed("clean")
    assert code == 0
    assert everything(littered) == before
    assert "nothing was removed; " in err
    assert "the same command with --yes" in err
    rows = [row.split() for row in out.splitlines()]
    assert rows[0] == ["where", "kind", "entries", "size", "can", "go"]
    assert ["toy", "ledger"] in [row[:2] for row in rows]
    assert ["cache", "wheels", "2"] in [row[:3] for row in rows]


def test_what_can_go_goes_and_the_run_goes_on(
    littered: Path, answered: Callable[..., Any], typed: Callable[..., Typed], play: Callable[..., Any]
) -> None:
    run = littered / "runs" / "toy"
    kept = {path.name for path in (run / "weights").glob("step_*")}
    data = answered("clean", "--yes")
    gone = {Path(path).name for path in data["removed"]}
    assert gone == {f"damaged_{max(kept)}", "attempt_1", "old"}
    assert data["num_bytes_removed"] > 10_000
    assert {path.name for path in (run / "weights").iterdir()} == kept
    assert (littered / "cache" / "wheels" / "new" / "file").is_file()
    assert not [path for path in everything(littered) if path.endswith(".old")]
    with Ledger.read(run) as reader:
        assert reader.check() == ()
    assert answered("clean", "--yes")["removed"] == []
    assert "nothing can go" in typed("clean", "toy")[2]
    assert play(run, steps=3).stop == "done"


def test_saves_that_nothing_needs(tmp_path: Path, here: Path, play: Callable[..., Any]) -> None:
    from selfplay.cli.clean import _saves

    run = here / "runs" / "long"
    play(run, "run.save_every=1", "run.keep_saves=9", steps=5)
    why = {path.name: why for path, why in _saves(run)}
    assert why["step_000004"] == ""
    staying = [name for name, reason in why.items() if not reason]
    assert len(staying) in (1, 2)
    assert {reason for reason in why.values() if reason} == {"neither the newest nor the best"}


def test_a_run_that_is_played_is_left_alone(littered: Path, typed: Callable[..., Typed]) -> None:
    before = everything(littered / "runs")
    lock = Lock.take(littered / "runs" / "toy")
    try:
        code, _, err = typed("clean", "toy", "--yes")
    finally:
        lock.release()
    assert code == 0
    assert "toy: it is being played, so it is left as it is" in err
    assert everything(littered / "runs") == before


@pytest.mark.parametrize("how", ["damaged", "older"])
def test_a_run_that_cannot_be_read_is_named_and_the_others_are_cleaned(
    littered: Path, typed: Callable[..., Typed], answered: Callable[..., Any], how: str
) -> None:
    broken = littered / "runs" / "broken"
    shutil.copytree(littered / "runs" / "toy", broken)
    if how == "damaged":
        flip(broken, "steps", "tallies")
    else:
        with unguarded(broken) as connection:
            connection.execute(f"PRAGMA user_version = {schema.VERSION - 1}")
    before = everything(broken)
    why = "is damaged (" if how == "damaged" else f"has schema {schema.VERSION - 1}, and "
    code, out, err = typed("clean")
    assert code == 0
    assert ["toy", "saves"] in [row.split()[:2] for row in out.splitlines()]
    assert f"broken: {broken}/ledger.db {why}" in err
    assert "; it is left as it is" in err
    data = answered("clean", "--yes")
    assert [row["name"] for row in data["unreadable"]] == ["broken"]
    assert "attempt_1" in {Path(path).name for path in data["removed"]}
    assert everything(broken) == before
    assert typed("clean", "broken", "--yes")[0] == 0


@pytest.fixture
def warmed(with_run: Path) -> Path:
    """The cache with old weights: those that the toy run began with, and those of no run."""
    for name in ("mine", "nobodys"):
        entry = with_run / "cache" / "warm" / name
        entry.mkdir(parents=True)
        (entry / "file").write_text("y" * 5000)
        for path in (entry / "file", entry):
            os.utime(path, (1, 1))
    digests = {"weights_digest": "w", "state_digest": "s"}
    place = str(with_run / "cache" / "warm" / "mine")
    with Ledger.open(with_run / "runs" / "toy") as ledger:
        ledger.append_save(Save(phase="warmup", step=-1, policy_version=0, path=place, num_bytes=5000, **digests))
        ledger.end_launch("done")
    return with_run / "cache"


def test_weights_that_a_run_began_with_stay_while_it_is_there(
    warmed: Path, typed: Callable[..., Typed], answered: Callable[..., Any]
) -> None:
    err = typed("clean", "--cache", "--days", "7")[2]
    assert "cache/warm/mine: run `toy` began with it, so it stays" in err
    data = answered("clean", "--cache", "--days", "7", "--yes")
    assert data["removed"] == [str(warmed / "warm" / "nobodys")]
    assert data["stay"] == [{"path": str(warmed / "warm" / "mine"), "why": "run `toy` began with it"}]
    shutil.rmtree(warmed.parent / "runs" / "toy")
    assert answered("clean", "--yes")["removed"] == [str(warmed / "warm" / "mine")]


def test_weights_that_an_unreadable_run_may_have_begun_with_stay(warmed: Path, answered: Callable[..., Any]) -> None:
    with unguarded(warmed.parent / "runs" / "toy") as connection:
        connection.execute("PRAGMA user_version = 1")
    data = answered("clean", "--yes")
    assert (data["removed"], len(data["stay"])) == ([], 2)
    assert data["stay"][0]["why"] == "run `toy`, which cannot be read, may have begun with it"


def test_a_corpus_that_was_added_stays_and_the_one_that_is_made_goes(here: Path, answered: Callable[..., Any]) -> None:
    corpora = here / "cache" / "corpora"
    for name in ("mine.db", "mine.db-wal", "python-docs.db", "mine.dense-1/.making-x/vectors.npy"):
        path = corpora / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("z")
        for place in (path, *path.relative_to(corpora).parents):
            os.utime(corpora / place, (1, 1))
    gone = ["mine.dense-1", "python-docs.db"]
    assert answered("clean", "--yes")["removed"] == [str(corpora / name) for name in gone], "an index is made again"
    assert sorted(path.name for path in corpora.iterdir()) == ["mine.db", "mine.db-wal"]
