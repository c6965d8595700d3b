"""The toy game through the whole engine: it plays, learns, closes steps, and comes back from anything."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from selfplay.build import Outcome
from selfplay.events import Event, Interrupt
from selfplay.ledger import Ledger
from tests import forked

Play = Callable[..., Outcome]

CHILD = """
import sys
from pathlib import Path
from selfplay.build import execute
from selfplay.config import load
from selfplay.events import Interrupt, ignore
from selfplay.project import find_project
project = find_project(explicit=Path(sys.argv[1]))
config = load("demo", project=project, sets=sys.argv[3:])
execute(config, project=project, folder=Path(sys.argv[2]), observe=ignore, interrupt=Interrupt())
"""


def digests(folder: Path) -> dict[str, str]:
    with Ledger.read(folder) as ledger:
        assert ledger.check() == ()
        return dict(ledger.comparable())


def test_every_step_leaves_its_whole_story(tmp_path: Path, play: Play) -> None:
    assert play(tmp_path / "run", steps=3) == Outcome(stop="done", steps=3)
    with Ledger.read(tmp_path / "run") as ledger:
        assert ledger.last_closed_step() == 2
        changed = [u.weights_digest for u in ledger.updates("play") if u.skipped is None]
        assert len(changed) == len(set(changed)) > 0
        for step in range(3):
            proposals = ledger.trajectories(step, "propose")
            assert len(proposals) in (8, 16), "P = 4 on 2 seeds, and one refill at most"
            minted = ledger.verdicts(step, "propose", "mint")
            graded = ledger.verdicts(step, "propose", "grade")
            assert set(minted) == set(graded) == {p.id for p in proposals}
            assert all(v.reason and v.why and v.seconds > 0 for v in minted.values())
            assert not any(v.seconds for v in graded.values())
            tasks = ledger.tasks(step)
            attempts = ledger.trajectories(step, "attempt")
            assert len(attempts) == 4 * len(tasks)
            assert set(ledger.verdicts(step, "attempt", "judge")) == {a.id for a in attempts}
            for group in ledger.groups(step):
                assert sum(group.advantages) == pytest.approx(0.0, abs=1e-6)


def test_the_same_call_again_does_nothing_more(tmp_path: Path, play: Play) -> None:
    play(tmp_path / "run", steps=2)
    before = digests(tmp_path / "run")
    assert play(tmp_path / "run", steps=2).steps == 2
    assert digests(tmp_path / "run") == before


def test_a_prolonged_run_equals_an_uninterrupted_one(tmp_path: Path, play: Play) -> None:
    play(tmp_path / "whole", steps=5)
    for steps in (1, 3, 5):
        play(tmp_path / "parts", steps=steps)
    assert digests(tmp_path / "parts") == digests(tmp_path / "whole")


@pytest.mark.parametrize("level", [1, 2])
def test_stopping_inside_a_step_loses_and_repeats_nothing(tmp_path: Path, play: Play, level: int) -> None:
    play(tmp_path / "whole", steps=3)
    interrupt = Interrupt()

    def stop(event: Event) -> None:
        if event.kind == "tick" and event.step == 1 and event.data["done"] == 3:
            for _ in range(level):
                interrupt.press()

    folder = tmp_path / "parts"
    assert play(folder, steps=3, observe=stop, interrupt=interrupt).stop == "interrupted"
    with Ledger.read(folder) as ledger:
        assert ledger.last_closed_step() == 0
        kept = {t.id for t in ledger.trajectories(1, "propose")}
    assert play(folder, steps=3).stop == "done"
    with Ledger.read(folder) as ledger:
        assert kept <= {t.id for t in ledger.trajectories(1, "propose")}
    assert digests(folder) == digests(tmp_path / "whole")


def test_kill_9_at_any_moment_then_the_same_command_finishes_the_same_run(
    tmp_path: Path, play: Play, small: tuple[str, ...]
) -> None:
    steps = 12
    play(tmp_path / "whole", steps=steps)
    folder = tmp_path / "killed"
    checkout = Path(__file__).parent.parent
    words = [str(checkout), str(folder), *small, f"run.steps={steps}"]
    kills = 0
    for attempt in range(30):
        log = tmp_path / "log"
        with log.open("wb") as stderr:
            child = forked.Forked(CHILD, words, stderr=stderr)
        deadline = time.monotonic() + 60
        before = closed(folder)
        # note: the moment is counted in closed steps, so that a slow machine is killed as often as a fast one.
        while child.poll() is None and time.monotonic() < deadline:
            if closed(folder) > before + (attempt % 3):
                child.send_signal(signal.SIGKILL)
                break
            time.sleep(0.01)
        code = child.wait(timeout=60)
        child.stdout.close()
        if code == 0:
            break
        assert code == -signal.SIGKILL, log.read_text()
        kills += 1
    assert closed(folder) == steps - 1
    assert kills >= 3
    assert digests(folder) == digests(tmp_path / "whole")


def closed(folder: Path) -> int:
    """Last closed step; -1 where there is no ledger yet."""
    if not (folder / "ledger.db").exists():
        return -1
    with Ledger.read(folder) as ledger:
        return ledger.last_closed_step()
