"""How good are the weights on what they never learn from: held-out seeds to propose on, held-out tasks to solve.

    during     inside a run, every `eval.every` steps, recorded in its ledger with stage `evaluate`
    measure    `selfplay eval`: any weights or endpoint on a run's held-out tasks or on a file of tasks
    targets    whose weights: a run's save, a model, an endpoint
    tasks      the file of tasks that `selfplay export --format tasks` writes

Both ways play the same stints, so a run's own evaluation and `selfplay eval RUN@STEP` sample the same tokens.

Not here: figures (`estimate`, `views.evaluation`), making held-out tasks (`Game.held_out`).
"""
