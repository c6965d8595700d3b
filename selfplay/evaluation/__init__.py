"""How good are the weights on what they never learn from: held-out seeds to propose on, held-out tasks to solve.

    during     inside a run, every `eval.every` steps, recorded in its ledger with stage `evaluate`
    measure    `selfplay eval`: any weights or endpoint on a run's held-out tasks or on a file of tasks
    targets    whose weights: a run's save, a model, an endpoint
    tasks      the file of tasks that `selfplay export --format tasks` writes
    external   what others made: QuixBugs, HumanEval, SWE-bench rows; `written` whole programs, `bringing` all of them
    mechanism  bugs by another mechanism than the warm-up's; `making` a study's tasks of them
    planted    bugs that somebody named, proved as tasks
    rows       how files of rows are read
    issues     tasks told by what people wrote of them, in the place of what tests lost

Both ways play the same stints, so a run's own evaluation and `selfplay eval RUN@STEP` sample the same tokens.

Not here: figures (`estimate`, `views.evaluation`), making held-out tasks (`Game.held_out`).
"""
