"""A run's metrics in the files of trackers: TensorBoard, trackio, W&B. Offline: nothing leaves the machine.

Each point keeps its step and the time at which the step was closed, so that a run can be filled in at any time, again
after it went on, or never. trackio and wandb keep state of their process and read the environment once, so each fills
its folder in a process of its own (`filling`).

Not here: which numbers (`curves`).
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from functools import partial

from selfplay.errors import NotReady
from selfplay.exports.curves import Moment, moments
from selfplay.exports.seam import NEITHER, Asked, Made, Out, Simple, needs, require_rows


def _tensorboard(asked: Asked, out: Out) -> Made:
    require_rows(asked)
    needs("tensorboard", extra="tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    count = 0
    writer = SummaryWriter(log_dir=str(out.folder / asked.name))
    try:
        for moment in moments(asked):
            for name, value in moment.values.items():
                # note: its tags take no @, and would be renamed with a warning.
                tag = name.replace("@", "_at_")
                writer.add_scalar(tag, value, global_step=moment.step, walltime=moment.at)
            count += 1
    finally:
        writer.close()
    return Made(count=count, next="tensorboard --logdir {to}")


def _filled(tracker: str, following: str, asked: Asked, out: Out) -> Made:
    require_rows(asked)
    if importlib.util.find_spec(tracker) is None:
        needs(tracker, extra=tracker)
    found = [_row(moment) for moment in moments(asked)]
    config = dict(asked.reader.run_row().config)
    told = json.dumps({"name": asked.name, "config": config, "moments": found})
    command = [sys.executable, "-m", "selfplay.exports.filling", tracker, str(out.folder.resolve())]
    done = subprocess.run(command, input=told, capture_output=True, text=True, check=False, env=_environment(out))
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise NotReady(
            f"{tracker} did not write its files: {said}",
            hint=f"look at its version, or renew it: pip install -U 'selfplay-curriculum[{tracker}]'",
        )
    return Made(count=len(found), next=following)


def _row(moment: Moment) -> dict[str, object]:
    return {"step": moment.step, "at": moment.at, "values": moment.values}


def _environment(out: Out) -> dict[str, str]:
    place = str(out.folder.resolve())
    offline = {"WANDB_MODE": "offline", "WANDB_DIR": place, "WANDB_SILENT": "true", "HF_HUB_OFFLINE": "1"}
    # note: a project on a server that the caller's environment names is not meant.
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("WANDB_", "TRACKIO_"))}
    caches = {
        "WANDB_CACHE_DIR": place + "/cache",
        "WANDB_CONFIG_DIR": place + "/cache",
        "WANDB_DATA_DIR": place + "/cache",
    }
    return {**kept, **offline, **caches, "TRACKIO_DIR": place, "TRACKIO_TELEMETRY": "0"}


TENSORBOARD = Simple(
    about="each step's metrics as TensorBoard's events",
    noun="step",
    shape="folder",
    takes=NEITHER,
    writer=_tensorboard,
)
TRACKIO = Simple(
    about="each step's metrics in a trackio project",
    noun="step",
    shape="folder",
    takes=NEITHER,
    writer=partial(_filled, "trackio", "TRACKIO_DIR={to} trackio show --project selfplay"),
)
WANDB = Simple(
    about="each step's metrics as an offline run of W&B",
    noun="step",
    shape="folder",
    takes=NEITHER,
    writer=partial(_filled, "wandb", "wandb sync {to}/wandb/offline-run-*"),
)
