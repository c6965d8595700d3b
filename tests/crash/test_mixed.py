"""SIGKILL in a run of two games, code in bubblewrap sandboxes beside search, with replies from a table.

Not here: each game alone (`test_sandboxes.py`), the toy game beside search (`../test_mix.py`).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from compared import differences
from harness import PROJECT, Chain, Crash, Played, Setup, write_package

from selfplay.ledger import Ledger
from selfplay.project import find_project
from selfplay.reverify import reverify
from tests import scripted
from tests.backends import needed
from tests.games.search.ground import corpus

pytestmark = pytest.mark.slow

TEXTS = {
    "tower": "The tower in the middle of the city was built by the engineer Gustave Eiffel in two years and a month.",
    "bridge": "The bridge over the harbour of the town was drawn by the architect John Bradfield in great detail.",
    "poem": "The poem about the old mariner and his bird was written by the poet Samuel Coleridge in a small cottage.",
}
SETS = (
    *("warmup.steps=0", "run.game=code+search", "roles.proposer=injector+search_proposer_short"),
    *("roles.solver=repairer+search_solver_short", "game.corpus=small", "game.answers=9"),
    "game.options={top_k=1, answerable=false, ablation=false, closed_book=false, unique=false, quote=false}",
)
STEPS = 3
WHERE = (
    Crash(at="selfplay.games.mixed:MixedGame.judge"),
    Crash(at="selfplay.games.search.game:SearchGame.mint", when="after", nth=2),
    Crash(at="selfplay.games.code.game:CodeGame.mint", when="after", nth=2),
    Crash(at="selfplay.loop:close", when="after"),
)
"""Each step has four mints of each game and two attempts at a question: each is reached in the next one at last."""


@pytest.mark.bubblewrap
def test_a_mix_with_sandboxes_is_killed_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed("bubblewrap")
    cache = scripted.cache(tmp_path)
    monkeypatch.setenv("SELFPLAY_CACHE", str(cache))
    corpus(tmp_path / "texts", TEXTS)
    setup = Setup.code(write_package(tmp_path / "tiny-1.0"), *SETS, sandbox="bubblewrap", steps=STEPS)
    whole = Played.by(setup, tmp_path, cache=cache)
    with Ledger.read(whole.folder) as ledger:
        games = {seed.id: seed.game for seed in ledger.seeds()}
        tasks = {task.id: task.game for step in range(STEPS) for task in ledger.tasks(step)}
        proposals = [one for step in range(STEPS) for one in ledger.trajectories(step, "propose")]
        attempts = [one for step in range(STEPS) for one in ledger.trajectories(step, "attempt")]
        # note: whether an edit of code breaks a test is a draw that hangs on where the folder lies.
        assert {games[one.subject_id] for one in proposals} == {"code", "search"}
        assert "search" in {tasks[one.subject_id] for one in attempts}
        assert not ledger.faults()
    chain = Chain(setup=setup, runs=tmp_path, name="chain", cache=cache)
    for crash in WHERE:
        chain.crash(crash)
    chain.finish()
    assert differences(chain, whole.folder) == []
    again = reverify(chain.folder, project=find_project(explicit=PROJECT), say=lambda words: None)
    assert (again.total, again.identical) == (len(attempts), len(attempts))
