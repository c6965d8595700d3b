"""A closed step done again: equal from every start that is left, and named where there is none."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay import fork
from selfplay.build import Outcome
from selfplay.config import diff, from_run, load
from selfplay.errors import NotFound, RunFailed, UserError
from selfplay.events import Event, Interrupt
from selfplay.ledger import Ledger
from selfplay.project import Project
from selfplay.replay import Replayed, replay
from selfplay.types import Stage

Play = Callable[..., Outcome]
Again = Callable[..., Replayed]


@pytest.fixture(scope="session")
def six(tmp_path_factory: pytest.TempPathFactory, play: Play) -> Path:
    """A toy run of six steps, saved after steps 1, 3 and 5, the first of them lost; to be copied, not changed."""
    folder = tmp_path_factory.mktemp("replay") / "six"
    play(folder, "run.keep_saves=3", "play.proposals=8", "play.attempts=8", steps=6)
    shutil.rmtree(folder / "weights" / "step_000001")
    return folder


@pytest.fixture
def run(tmp_path: Path, six: Path) -> Path:
    return Path(shutil.copytree(six, tmp_path / "six"))


@pytest.fixture
def again(project: Project) -> Again:
    """`again(folder, 3)`: replay step 3; what was said is kept in `said`."""

    def replayed(folder: Path, step: int, *, said: list[str] | None = None, **halves: bool) -> Replayed:
        words = said if said is not None else []
        return replay(folder, step, project=project, say=words.append, **halves)

    return replayed


def test_a_run_of_no_step_has_no_newest(tmp_path: Path, play: Play, again: Again) -> None:
    play(tmp_path / "warm", steps=0)
    with pytest.raises(NotFound, match=r"step 0 of run `warm` is not closed: none is$"):
        again(tmp_path / "warm", 0)


def tamper(folder: Path, *statements: str) -> None:
    with sqlite3.connect(folder / "ledger.db") as connection:
        # note: the ledger's own triggers refuse to change a row.
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
    connection.close()


def prune(folder: Path, *, before: int) -> None:
    with Ledger.open(folder) as ledger:
        assert ledger.prune_logprobs(before=before) > 0
        ledger.end_launch("done")


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)


def test_every_step_is_the_same_again(six: Path, again: Again) -> None:
    trained = 0
    for step in range(6):
        outcome = again(six, step)
        assert outcome.equal
        assert outcome.same_fingerprint
        assert outcome.save == ("weights/step_000003" if step > 3 else None)
        assert outcome.sampler is not None
        assert outcome.sampler.equal == outcome.sampler.total > 0
        assert (outcome.sampler.uncovered, outcome.sampler.logprobs) == (0, True)
        assert outcome.learner is not None
        assert outcome.learner.again == outcome.learner.recorded
        trained += int(outcome.learner.skipped is None)
        with Ledger.read(six) as reader:
            stages: tuple[Stage, ...] = ("propose", "attempt")
            assert outcome.sampler.tokens == sum(t.num_sampled for s in stages for t in reader.trajectories(step, s))
    assert trained > 1


def test_one_half_alone(six: Path, again: Again) -> None:
    outcome = again(six, 4, learner=False)
    assert outcome.learner is None
    assert outcome.sampler is not None
    outcome = again(six, 4, sampler=False)
    assert outcome.sampler is None
    assert outcome.learner is not None


def test_updates_after_the_save_are_applied_again(six: Path, again: Again) -> None:
    said: list[str] = []
    outcome = again(six, 3, said=said)
    with Ledger.read(six) as reader:
        changed = [u.step for u in reader.updates("play") if u.skipped is None and u.step < 3]
    assert outcome.applied == len(changed) == len(said) > 0


def test_the_run_is_only_read_and_may_be_held(run: Path, again: Again) -> None:
    def contents() -> dict[str, bytes]:
        files = [file for file in run.rglob("*") if file.is_file() and not file.name.startswith("ledger.db-")]
        return {str(file): file.read_bytes() for file in files}

    with Ledger.open(run) as ledger:
        ledger.flush()
        before = contents()
        assert again(run, 5).equal
        assert contents() == before
        ledger.end_launch("done")


def test_other_tokens_than_the_recorded_ones_are_shown(run: Path, again: Again) -> None:
    with Ledger.read(run) as reader:
        first = next(t for t in reader.trajectories(2, "propose") if t.num_sampled > 1)
    ids = [*first.token_ids]
    ids[-1] = (ids[-1] + 1) % 2
    data = b"".join(i.to_bytes(4, "little") for i in ids).hex()
    tamper(
        run,
        f"UPDATE blobs SET codec = 'raw', data = x'{data}' "
        f"WHERE id = (SELECT token_ids FROM trajectories WHERE id = '{first.id}')",
    )
    outcome = again(run, 2, learner=False)
    assert not outcome.equal
    assert outcome.sampler is not None
    assert outcome.sampler.equal == outcome.sampler.total - 1
    found = outcome.sampler.first
    assert found is not None
    assert (found.trajectory_id, found.at) == (first.id, first.num_sampled - 1)
    assert f"where {ids[-1]} was recorded" in found.what


def test_other_weights_than_the_recorded_ones_are_told_by_their_fingerprint(run: Path, again: Again) -> None:
    with Ledger.read(run) as reader:
        step = next(u.step for u in reversed(reader.updates("play")) if u.skipped is None)
    tamper(run, f"UPDATE updates SET weights_digest = 'other' WHERE step = {step}")
    outcome = again(run, step, sampler=False)
    assert not outcome.equal
    assert outcome.learner is not None
    assert "with the same software on this machine" in str(outcome.learner.drift)
    tamper(run, "UPDATE updates SET fingerprint = 'torch 1.0'")
    outcome = again(run, step, sampler=False)
    assert not outcome.same_fingerprint
    assert outcome.learner is not None
    assert "other software or another kind of processor" in str(outcome.learner.drift)


def test_other_weights_on_the_way_stop_it(run: Path, again: Again) -> None:
    tamper(run, "UPDATE updates SET weights_digest = 'other' WHERE step < 3 AND skipped IS NULL")
    with pytest.raises(RunFailed, match=r"update \d of phase play gives other weights"):
        again(run, 3)


def test_a_damaged_save_is_passed_over_for_an_earlier_one(run: Path, again: Again) -> None:
    flip(run / "weights" / "step_000003" / "model.safetensors")
    said: list[str] = []
    outcome = again(run, 5, said=said)
    assert outcome.equal
    assert outcome.save is None
    assert "step_000003" in said[0]


def test_a_damaged_save_with_none_before_it_is_an_error(run: Path, again: Again) -> None:
    prune(run, before=4)
    flip(run / "weights" / "step_000003" / "model.safetensors")
    with pytest.raises(RunFailed, match=r"step_000003 is not what was recorded"):
        again(run, 5)


def test_a_missing_save_is_no_start(run: Path, again: Again) -> None:
    shutil.rmtree(run / "weights")
    outcome = again(run, 5)
    assert outcome.equal
    assert outcome.save is None


def test_after_pruning_the_nearest_step_is_named(run: Path, again: Again) -> None:
    prune(run, before=4)
    with pytest.raises(NotFound, match=r"step 2 .* no save at or before it .*; the nearest step that can is 4") as told:
        again(run, 2)
    assert "selfplay replay six 4" in told.value.hint
    for step in (4, 5):
        assert again(run, step).equal
    shutil.rmtree(run / "weights" / "step_000003")
    with pytest.raises(NotFound, match="cannot be replayed") as told:
        again(run, 4)
    assert "keep_saves" in told.value.hint


def test_pruned_replies_are_compared_by_their_tokens(run: Path, again: Again) -> None:
    prune(run, before=6)
    with pytest.raises(NotFound, match="its log-probabilities are pruned") as told:
        again(run, 4)
    assert "--without-learner" in told.value.hint
    outcome = again(run, 4, learner=False)
    assert outcome.equal
    assert outcome.sampler is not None
    assert outcome.sampler.logprobs is False
    with pytest.raises(NotFound, match="the nearest step that can is 4"):
        again(run, 3, learner=False)


def test_what_cannot_be_replayed(run: Path, again: Again) -> None:
    with pytest.raises(NotFound, match="step 6 of run `six` is not closed: the newest is 5"):
        again(run, 6)
    config = run / "config.toml"
    config.write_text(config.read_text().replace("lr = 0.001", "lr = 0.002", 1))
    with pytest.raises(UserError, match="is not what the run was started with"):
        again(run, 5)


def test_a_divergence_from_a_reference_is_weighed_again(tmp_path: Path, play: Play, again: Again) -> None:
    play(tmp_path / "kl", "learner.kl=0.05", "play.proposals=8", "play.attempts=8", steps=3)
    assert all(again(tmp_path / "kl", step).equal for step in range(3))


def test_an_open_step_does_not_matter(tmp_path: Path, play: Play, again: Again) -> None:

    interrupt = Interrupt()

    def stop(event: Event) -> None:
        if event.kind == "tick" and event.step == 2:
            interrupt.press()

    assert play(tmp_path / "open", steps=4, observe=stop, interrupt=interrupt).stop == "interrupted"
    assert again(tmp_path / "open", 1).equal
    with pytest.raises(NotFound, match="step 2"):
        again(tmp_path / "open", 2)


def test_a_fork_is_replayed_from_the_weights_it_was_born_with(
    run: Path, tmp_path: Path, project: Project, small: tuple[str, ...], play: Play, again: Again
) -> None:
    forked = tmp_path / "forked"
    sets = ("run.keep_saves=2", "play.proposals=8", "play.attempts=8", "learner.lr=0.002")
    config = load("demo", project=project, sets=[*small, *sets, "run.steps=3"])
    fork.make(config, fork.find(run, diff(from_run(run, project=project), config), step=3), folder=forked)
    play(forked, *sets, steps=3)
    shutil.rmtree(run)
    outcome = again(forked, 1)
    assert outcome.equal
    assert outcome.save == fork.START
    shutil.rmtree(forked / "weights")
    with pytest.raises(NotFound, match="no save at or before it is left"):
        again(forked, 1)
