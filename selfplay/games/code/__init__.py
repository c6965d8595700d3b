"""The code game: bugs in a real repository, planted and repaired by edits, judged by its tests.

`CodeGame` and `Settings` are loaded when named, so that readers of the parts (`edits`, `mutate`) stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selfplay.games.code.game import CodeGame
    from selfplay.games.code.opened import Settings

__all__ = ["CodeGame", "Settings"]


def __getattr__(name: str) -> Any:
    if name == "CodeGame":
        from selfplay.games.code.game import CodeGame

        return CodeGame
    if name == "Settings":
        from selfplay.games.code.opened import Settings

        return Settings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
