"""Where a launch is ended from within: every boundary of a stage, and the gaps inside each commit and each save.

Points are chained through one run, so their order matters little: each launch passes all of the early ones. What
comes once in a run (its first commit) or needs a state (a save to load) stands where that is so.

Not here: how a launch is ended there (`child.py`), random moments (`harness.kill_at_random`).
"""

from __future__ import annotations

from harness import Crash

MAKING = (
    Crash(at="selfplay.ledger.lock:_write"),
    Crash(at="selfplay.ledger.files:write"),
    Crash(at="selfplay.ledger.files:write", when="after"),
    Crash(at="os:fsync", when="after"),
    Crash(at="os:fsync", when="after", nth=2),
    Crash(at="selfplay.config.settings:Config.to_toml", when="after"),
    Crash(at="selfplay.config.settings:Config.write", when="after"),
    Crash(at="selfplay.resume:seeds", when="after"),
)
"""The run is made."""

COMMITS = (
    Crash(at="selfplay.ledger.writer:Writer._insert", nth=3),
    Crash(at="selfplay.ledger.writer:Writer._insert", when="after", nth=4),
    Crash(at="selfplay.ledger:Ledger.append", when="after", nth=12),
    Crash(at="selfplay.ledger:Ledger.close_step"),
    Crash(at="selfplay.ledger:Ledger.close_step", when="after"),
    Crash(at="selfplay.ledger.rows:step", when="after"),
    Crash(at="selfplay.ledger.tally:add", when="after"),
)
"""Rows are appended, a step is closed."""

STAGES = (
    Crash(at="selfplay.loop:choose"),
    Crash(at="selfplay.loop:choose", when="after"),
    Crash(at="selfplay.loop:propose", when="after"),
    Crash(at="selfplay.loop:attempt", when="after"),
    Crash(at="selfplay.loop:grade", when="after"),
    Crash(at="selfplay.loop:play_step", when="after"),
    Crash(at="selfplay.loop:batch_of", when="after"),
    Crash(at="selfplay.learner.trainer:Trainer.update"),
    Crash(at="selfplay.learner.trainer:Trainer.update", when="after"),
    Crash(at="selfplay.loop:close", when="after"),
)
"""One stage has ended and the next has not begun."""

SAVES = (
    Crash(at="selfplay.learner.weights:_write_files"),
    Crash(at="selfplay.learner.weights:_synchronise", when="after"),
    Crash(at="selfplay.learner.weights:_write_files", when="after"),
    Crash(at="selfplay.learner.weights:_replace", when="after"),
    Crash(at="selfplay.ledger:Ledger.append_save"),
    Crash(at="selfplay.ledger:Ledger.append_save", when="after"),
    Crash(at="selfplay.saves:_prune", nth=2),
    Crash(at="shutil:rmtree", when="half"),
)
"""Weights are written, recorded, pruned."""

RETURNS = (
    Crash(at="selfplay.learner.trainer:Trainer.load"),
    Crash(at="selfplay.learner.trainer:Trainer.load", when="after"),
    Crash(at="selfplay.resume:restore", when="after"),
    Crash(at="selfplay.ledger:Ledger.end_launch"),
    Crash(at="selfplay.ledger:Ledger.end_launch", when="after"),
)
"""The run comes back, and ends."""

WARMING = (
    Crash(at="selfplay.warmup:warm_step", nth=2),
    Crash(at="selfplay.ledger:Ledger.record_update", when="after"),
    Crash(at="selfplay.warmup:_ready", when="after"),
    Crash(at="selfplay.warmup:_finish"),
    Crash(at="selfplay.learner.weights:_replace", when="after"),
    Crash(at="selfplay.warmup:_finish", when="after"),
)
"""The warm-up, where there is one."""

VERIFYING = (
    Crash(at="selfplay.stages:_decide", when="before", nth=3),
    Crash(at="selfplay.games.code.game:CodeGame.mint", when="after", nth=2),
    Crash(at="selfplay.games.code.verify:Verifier.run", nth=3),
    Crash(at="selfplay.games.code.game:CodeGame.judge", when="after", nth=2),
    Crash(at="selfplay.stages:_settle", when="after"),
)
"""Sandboxes are at work."""

TOY = (*MAKING, *COMMITS, *STAGES, *SAVES, *RETURNS)
CODE = (*WARMING, *VERIFYING)
