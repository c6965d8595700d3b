"""Where downloads, root file systems, converted and warmed weights lie: one folder, by digest, safe to delete.

Not here: what is put there and how it is checked (each owner).
"""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`SELFPLAY_CACHE`, or `~/.cache/selfplay`; not necessarily there yet."""
    given = os.environ.get("SELFPLAY_CACHE")
    return Path(given).expanduser().absolute() if given else Path.home() / ".cache" / "selfplay"
