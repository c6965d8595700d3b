"""Every command's help as one page of Markdown: what `docs/commands.md` is generated from.

It imports each command, so nothing that a command line needs to start may import it.

Not here: the settings (`config.reference`), the shapes of answers (`views.shapes`).
"""

from __future__ import annotations

from collections.abc import Iterator

import click

WIDTH = 80


def markdown() -> str:
    """A section a command, its sub-commands behind it, with its help as it is printed."""
    from selfplay.cli import COMMANDS, group

    names = group.context_settings["help_option_names"]
    given = {"terminal_width": WIDTH, "max_content_width": WIDTH, "help_option_names": names}
    top = click.Context(group, info_name="selfplay", **given)
    parts = [_section("selfplay", group.get_help(top))]
    for name in COMMANDS:
        command = group.get_command(top, name)
        assert command is not None
        parts += [_section(title, text) for title, text in _helps(command, name, top)]
    return "\n".join(parts)


def _helps(command: click.Command, name: str, parent: click.Context) -> Iterator[tuple[str, str]]:
    """(what is typed, its help) of a command and of those below it."""
    context = click.Context(command, info_name=name, parent=parent)
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from _helps(found, below, context)


def _section(title: str, text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.splitlines())
    return f"## `{title}`\n\n```\n{lines}\n```\n"
