"""Readers of a run: the live screen, status, inspect. They need the ledger and no torch.

Views import `types`, `errors`, `events` and `ledger` only, so that a laptop can read any run.
"""
