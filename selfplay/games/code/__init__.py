"""The code game: bugs in a real repository, planted and repaired by edits or with tools, judged by its tests.

Both games (`CodeGame`, and with tools `TreeGame`), `Repositories` for several of them and `Settings` are loaded when
named, so that readers of the parts (`edits`, `mutate`) stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selfplay.games.code.game import CodeGame
    from selfplay.games.code.opened import Settings
    from selfplay.games.code.repositories import Repositories
    from selfplay.games.code.tree_game import TreeGame

__all__ = ["CodeGame", "Repositories", "Settings", "TreeGame"]


def __getattr__(name: str) -> Any:
    if name == "CodeGame":
        from selfplay.games.code.game import CodeGame

        return CodeGame
    if name == "Settings":
        from selfplay.games.code.opened import Settings

        return Settings
    if name == "Repositories":
        from selfplay.games.code.repositories import Repositories

        return Repositories
    if name == "TreeGame":
        from selfplay.games.code.tree_game import TreeGame

        return TreeGame
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
