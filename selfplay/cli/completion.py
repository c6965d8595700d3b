"""`selfplay completion`: a script for a shell, which completes commands, options and this project's names.

The script calls selfplay with `_SELFPLAY_COMPLETE` set; `LazyGroup` then asks `teach` to say what each word may be.

Not here: how a shell asks (click).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from selfplay.cli.session import Session, common

if TYPE_CHECKING:
    from selfplay.project import Kind, Project

SHELLS = ("bash", "zsh", "fish")

HOW: Mapping[str, str] = {
    "bash": "selfplay completion bash > ~/.local/share/bash-completion/completions/selfplay",
    "zsh": "selfplay completion zsh > ~/.zfunc/_selfplay   # and in .zshrc: fpath+=~/.zfunc; compinit",
    "fish": "selfplay completion fish > ~/.config/fish/completions/selfplay.fish",
}


@click.command("completion", short_help="A script that completes commands and names in your shell.")
@click.argument("shell", type=click.Choice(SHELLS))
@common
def command(session: Session, shell: str) -> None:
    """Print a script that completes commands, options, runs, presets, roles, sandboxes and setting keys in SHELL.

    \b
    Examples:
      selfplay completion bash > ~/.local/share/bash-completion/completions/selfplay
      selfplay completion fish
    """
    from selfplay.cli import COMPLETE, group

    made = get_completion_class(shell)
    assert made is not None
    text = made(group, {}, "selfplay", COMPLETE).source()
    if session.json:
        session.answer("completion", {"shell": shell, "script": text})
        return
    session.data.write(text)
    session.say(f"to keep it: {HOW[shell]}")


class Names(click.types.StringParamType):
    """A word that is completed to one of some names."""

    def __init__(self, names: Callable[[Project], Iterable[str]]) -> None:
        self._names = names

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names that begin so; none where the project cannot be read."""
        from selfplay.errors import SelfplayError
        from selfplay.project import find_project

        try:
            names = list(self._names(find_project(explicit=None)))
        except (SelfplayError, OSError):
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def teach(command: click.Command) -> None:
    """Say what the words of a command may be, by what they are called."""
    for param in command.params:
        if param.name == "name" and command.name in ("show", "cp"):
            param.type = _OfKind()
        elif param.name in _KNOWN and isinstance(param.type, click.types.StringParamType):
            param.type = Names(_KNOWN[param.name])


class _OfKind(Names):
    """A name of the kind that stands before it."""

    def __init__(self) -> None:
        super().__init__(lambda project: ())

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Names of that kind that begin so."""
        from selfplay.cli.copying import WORDS

        kind = WORDS.get(str(ctx.params.get("kind")))
        inner = Names(_entries(kind)) if kind is not None else None
        return inner.shell_complete(ctx, param, incomplete) if inner is not None else []


def _runs(project: Project) -> Iterable[str]:
    from selfplay.cli.runs import all_runs

    return ["last", *(run.name for run in all_runs(project))]


def _entries(kind: Kind) -> Callable[[Project], Iterable[str]]:
    return lambda project: [one.name for one in project.list_all(kind)]


def _keys(project: Project) -> Iterable[str]:
    from selfplay.config.settings import fields

    return [f"{name}=" for name, _ in fields()]


def _live(project: Project) -> Iterable[str]:
    from selfplay.control import LIVE

    return [f"{name}=" for name in LIVE]


def _kinds(project: Project) -> Iterable[str]:
    from selfplay.project import NOUNS

    return NOUNS.values()


def _schemas(project: Project) -> Iterable[str]:
    from selfplay.cli.schema import WHAT
    from selfplay.views.shapes import SHAPES

    return [*WHAT, *SHAPES]


def _metrics(project: Project) -> Iterable[str]:
    from selfplay.views.draw import HELD_OUT, OWN

    return [*(one.name for one in OWN), HELD_OUT]


_KNOWN: Mapping[str, Callable[[Project], Iterable[str]]] = {
    **dict.fromkeys(("run", "names", "first", "second", "fork", "targets", "ground"), _runs),
    "preset": _entries("curriculum"),
    "sets": _keys,
    "pairs": _live,
    "kind": _kinds,
    "what": _schemas,
    "wanted": _metrics,
}
"""Name of a parameter -> what it may be."""
