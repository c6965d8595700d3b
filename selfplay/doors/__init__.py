"""Doors: how others use what is here, and how others' agents play here.

`proxy` puts any harness that speaks OpenAI's chat completions in front of a policy and records what it played: behind a
port of its own (`web`, `selfplay serve`), or inside a play's sandbox, as the solver of a run (`harness`). `verl` makes
a game an agent loop of that trainer, `verifiers` an environment of that package. `tinker` is a learner and a policy
whose weights are at a server of that API. Not here: rows for other trainers (`exports`).
"""
