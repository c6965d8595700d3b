"""Doors: how others use what is here, and how others' agents play here.

`proxy` and `web` put any harness that speaks OpenAI's chat completions in front of a policy and record what it played;
`verl` makes a game an agent loop of that trainer. Not here: rows for other trainers (`exports`).
"""
