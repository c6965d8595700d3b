"""`python -m selfplay.exports.filling TRACKER FOLDER < moments.json`: fill a tracker's folder, in a process of its own.

Standard input has `name`, `config` and `moments`, each with `step`, `at` (Unix seconds) and `values`.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

PROJECT = "selfplay"


def trackio(folder: Path, told: Mapping[str, Any]) -> None:
    """By the call that trackio's own imports make: `log` has no time, and `import_csv` cuts names to ten characters."""
    storage = importlib.import_module("trackio.sqlite_storage").SQLiteStorage
    storage.bulk_log(
        project=PROJECT,
        run=told["name"],
        metrics_list=[moment["values"] for moment in told["moments"]],
        steps=[moment["step"] for moment in told["moments"]],
        timestamps=[datetime.fromtimestamp(moment["at"], UTC).isoformat() for moment in told["moments"]],
        config=dict(told["config"]),
    )


def wandb(folder: Path, told: Mapping[str, Any]) -> None:
    """An offline run; `wandb sync` uploads it where somebody wants that."""
    module = importlib.import_module("wandb")
    # note: no metrics of this machine, no console, no code: only what the ledger holds.
    options = {"x_disable_stats": True, "x_disable_meta": True, "console": "off", "save_code": False}
    run = module.init(
        project=PROJECT,
        name=told["name"],
        dir=str(folder),
        mode="offline",
        config=dict(told["config"]),
        settings=module.Settings(**options),
    )
    for moment in told["moments"]:
        run.log({**moment["values"], "_timestamp": moment["at"]}, step=moment["step"])
    run.finish()
    shutil.rmtree(folder / "cache", ignore_errors=True)


TRACKERS: Mapping[str, Callable[[Path, Mapping[str, Any]], None]] = {"trackio": trackio, "wandb": wandb}

if __name__ == "__main__":
    TRACKERS[sys.argv[1]](Path(sys.argv[2]), json.load(sys.stdin))
