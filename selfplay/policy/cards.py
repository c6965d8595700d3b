"""The NVIDIA cards that this process may use, by their driver's own command; torch is not imported.

`CUDA_VISIBLE_DEVICES` chooses, as it does for torch and vLLM: empty, or -1, hides all. Not here: what is put on which
card (`sizing`), where the learner is (`learner.placing`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.metadata import version

VISIBLE = "CUDA_VISIBLE_DEVICES"
USED = 0.9
"""Share of a card's memory that is planned with."""
ENGINE_MB = 900.0
"""What an engine's process takes beside weights, keys and values: 650 to 860 MB were seen of vLLM 0.32 on a CPU."""
_MEBIBYTE_MB = (1 << 20) / 1_000_000
_ASK_SECONDS = 20.0


def cards() -> tuple[tuple[str, float], ...]:
    """Name and memory (MB of 10^6 bytes) of each card that is visible, the first first."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return ()
    asked = [command, "--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_ASK_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    found = {}
    for line in done.stdout.splitlines():
        index, name, mebibytes = (word.strip() for word in line.split(",", 2))
        found[index] = (f"card {index} ({name})", float(mebibytes) * _MEBIBYTE_MB)
    return tuple(found[index] for index in _visible(list(found)))


def learners_mb(*, ranks: int) -> float | None:
    """What is planned with of the learner's card, in MB; None where it has none."""
    return USED * cards()[0][1] if learner_has_one(ranks=ranks) else None


def learner_has_one(*, ranks: int) -> bool:
    """Will a learner of so many processes be on a card, as far as can be said without torch?"""
    # note: several ranks meet over gloo, on the processor; a torch for the processor alone says so in its version.
    return ranks == 1 and not version("torch").endswith("+cpu") and bool(cards())


def shared(named: str) -> bool:
    """Is the learner's card, the first, among the engines' cards `named` (as `0 1`)? Where none is named it is."""
    first = os.environ.get(VISIBLE, "0").split(",")[0].strip()
    return not named.split() or first in named.split()


def _visible(indices: list[str]) -> list[str]:
    """Those that the environment leaves, in its order."""
    if VISIBLE not in os.environ:
        return indices
    asked = [word.strip() for word in os.environ[VISIBLE].split(",")]
    # note: cards may be named in other ways too, which the driver's list does not tell apart by their number.
    if not all(word.lstrip("-").isdecimal() for word in asked if word):
        return indices
    return [word for word in asked if word in indices]
