"""`selfplay check` without a word: are the project's settings, presets, roles and sandboxes sound?

Everything is read as a run would read it, and nothing is played, built or fetched: keys and values, the roles that a
preset names, what a curriculum needs of a prompt, each prompt's template, each recipe. Where there is no project, what
ships with selfplay is read.

Not here: whether a prompt has a value for each of its variables (`selfplay play` shows it), whether a sandbox isolates
(`selfplay doctor`), runs (`audit`), repositories (`cli.check_source`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

from selfplay.cli.session import Session, near
from selfplay.errors import SelfplayError, UserError
from selfplay.project import NOUNS, Entry, Kind, Project
from selfplay.types import record

PRESET = "quickstart"
"""The settings of the project are laid over its values, or it over theirs."""


@record
class Sound:
    """One thing that people edit."""

    kind: str
    """`settings`, `preset`, `role` or `sandbox`."""
    name: str
    ok: bool
    what: str
    """What is wrong with it, or where it lies."""
    fix: str = ""


def check(session: Session) -> int:
    """Read everything, and say what was found; returns the exit code."""
    project = session.project
    found = list(sound(project))
    wrong = [one for one in found if not one.ok]
    if session.json:
        session.answer("check", {"ok": not wrong, "project": [asdict(one) for one in found]})
        return 1 if wrong else 0
    wide = max(len(one.name) for one in found)
    for one in found:
        session.data.write(f"{'ok' if one.ok else 'WRONG':<6}{one.kind:<9}{one.name:<{wide}}  {one.what}\n")
        if one.fix and not one.ok:
            session.data.write(f"{'':<15}{'':<{wide}}  fix: {one.fix}\n")
    where = "the project" if project.folder is not None else "what ships with selfplay"
    session.say(f"\n{where}: {len(found)} read, {len(wrong) or 'nothing'} wrong")
    if not wrong:
        session.say("  ready?    selfplay doctor")
    return 1 if wrong else 0


def sound(project: Project) -> Iterator[Sound]:
    """Each of the project's own, or each that is shipped where there is no project."""
    if project.folder is not None:
        file = project.folder / "selfplay.toml"
        if file.is_file():
            yield _tried("settings", "selfplay.toml", file, partial(_settings, project))
    looks: dict[Kind, Callable[[Project, Entry], None]] = {"curriculum": _preset, "role": _role, "sandbox": _sandbox}
    for kind, look in looks.items():
        for entry in project.list_all(kind):
            if project.folder is None or entry.origin == "project":
                yield _tried(NOUNS[kind], entry.name, entry.path, partial(look, project, entry))


def _tried(kind: str, name: str, path: Path, look: Callable[[], None]) -> Sound:
    try:
        look()
    except SelfplayError as error:
        return Sound(kind=kind, name=name, ok=False, what=error.message, fix=error.hint)
    return Sound(kind=kind, name=name, ok=True, what=near(path))


def _settings(project: Project) -> None:
    from selfplay import config as configs

    configs.load(PRESET, project=project)


def _preset(project: Project, entry: Entry) -> None:
    from selfplay import config as configs
    from selfplay import parts
    from selfplay.plan import refuse_hidden

    config = configs.load(entry.name, project=project)
    refuse_hidden(config, parts.roles(config, project))


def _role(project: Project, entry: Entry) -> None:
    import jinja2

    role = project.load_role(entry.name)
    try:
        jinja2.Environment().parse(role.prompt)
    except jinja2.TemplateSyntaxError as error:
        place = f"{entry.path / 'prompt.md'}, line {error.lineno}"
        raise UserError(f"its prompt is no template: {error.message} ({place})", hint=f"mend {place}") from error


def _sandbox(project: Project, entry: Entry) -> None:
    from selfplay.sandbox.recipe import load_recipe

    load_recipe(entry.name, folder=entry.path.parent)
