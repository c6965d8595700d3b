"""What a curriculum asks of a game beside new tasks and known ones, and whether the game has it.

The record of a curriculum's options says it beforehand in a property `needs`, where it asks for anything at all; its
choices say it one by one. Not here: what a game has (`games.ABILITIES`), when this is looked at (`parts`, `choices`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Protocol

from selfplay.curriculum.options import defaults_of, near
from selfplay.errors import UserError
from selfplay.types import Choice, record

CARRIED = ("strategy", "attempt")
"""Terms that are not asked for by themselves: a strategy is asked for by name, an attempt comes with mode `mutate`."""


@record
class Needs:
    """What must be there, for all of a curriculum's choices or for some."""

    modes: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()
    """Other terms of a choice: `hint`, `turns`."""
    less: Mapping[str, str] = field(default_factory=dict)
    """`modes`, `strategies` or `terms` -> the option with which none is asked for, e.g. `second=0`."""


class Can(Protocol):
    """What a game has (`games.Abilities`)."""

    @property
    def modes(self) -> tuple[str, ...]: ...

    @property
    def strategies(self) -> tuple[str, ...]: ...

    @property
    def terms(self) -> tuple[str, ...]: ...


def needs_of(choose: Any) -> Needs:
    """What a curriculum asks for with its options; nothing where they do not say."""
    options = choose.keywords.get("options") if isinstance(choose, partial) else defaults_of(choose)
    found = getattr(options, "needs", None)
    return found if isinstance(found, Needs) else Needs()


def needs_of_choices(chosen: Iterable[Choice]) -> Needs:
    """What these choices ask for."""
    chosen = tuple(chosen)
    terms = [(name, value) for choice in chosen for name, value in choice.terms.items()]
    return Needs(
        modes=_each(choice.mode for choice in chosen),
        # note: a child is not proposed, so that its strategy is a name and nothing else.
        strategies=_each(str(c.terms["strategy"]) for c in chosen if "strategy" in c.terms and c.mode != "mutate"),
        terms=_each(name for name, value in terms if value and name not in CARRIED),
    )


def missing(needs: Needs, can: Can) -> tuple[str, ...]:
    """What is asked for and not there, in words."""
    return (
        *(f"mode `{mode}`" for mode in needs.modes if mode not in can.modes),
        *(f"strategy `{strategy}`" for strategy in needs.strategies if strategy not in can.strategies),
        *(f"`{term}`" for term in needs.terms if term not in can.terms),
    )


def refuse_missing(needs: Needs, can: Can, *, name: str, game: str, known: Mapping[str, Any]) -> None:
    """A curriculum can be played by a game that has all that it asks for; `known` are curricula by name.

    Raises:
        UserError: something is missing; names the curricula that the game can play with their own options.
    """
    lacks = missing(needs, can)
    if not lacks:
        return
    able = [other for other, choose in known.items() if not missing(needs_of(choose), can)]
    raise UserError(
        f"curriculum `{name}` with these options asks for {', '.join(lacks)}, which game `{game}` does not have",
        hint=f"{_strategies(needs, can)}{_less(needs, can)}by default it can be played with: {', '.join(able)}; "
        "presets: selfplay ls",
    )


def _strategies(needs: Needs, can: Can) -> str:
    strange: Sequence[str] = [name for name in needs.strategies if name not in can.strategies]
    if not strange or not can.strategies:
        return ""
    return f"{near(strange[0], can.strategies)}its strategies: {', '.join(can.strategies)}; "


def _less(needs: Needs, can: Can) -> str:
    lacks = {
        "modes": set(needs.modes) - set(can.modes),
        "strategies": set(needs.strategies) - set(can.strategies),
        "terms": set(needs.terms) - set(can.terms),
    }
    options = [option for kind, option in needs.less.items() if lacks[kind]]
    return f"-s 'curriculum.options={{{', '.join(options)}}}' asks for less; " if options else ""


def _each(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
