"""`selfplay repro`: what it takes to play a run again, printed or written into a folder.

Not here: doing a step again and comparing it (`selfplay replay`).
"""

from __future__ import annotations

import json
import platform
import shlex
from dataclasses import asdict
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from selfplay import __version__
from selfplay.cli import runs
from selfplay.cli.origin import Origin, origin
from selfplay.cli.session import Session, common, near
from selfplay.errors import NotReady, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from selfplay.ledger import Reader
    from selfplay.project import Project

PACKAGES = ("torch", "transformers", "numpy", "safetensors", "pytest", "coverage")
"""Whose version can move a result."""


@click.command("repro", short_help="What it takes to play a run again.")
@click.argument("run")
@click.option("--to", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER", help="Write it there.")
@common
def command(session: Session, run: str, *, to: Path | None) -> None:
    """Print what it takes to play RUN again: commands, versions, seed, source, the machine's fingerprint.

    With --to also a folder: config.toml (itself a valid input), requirements.txt, repro.json and commands.sh. Versions
    are those of this machine, and where selfplay comes from is what is installed here; the fingerprint says with what
    the run was played: on equal fingerprints equal records give equal weights.

    \b
    Examples:
      selfplay repro last
      selfplay repro quickstart --to again
    """
    from selfplay.ledger import Ledger

    folder = runs.find_run(run, project=session.project)
    with Ledger.read(folder) as reader:
        found = facts(reader, project=session.project)
        command = again(reader, project=session.project, sent=True)
    if to is not None:
        _write(to, folder, found, f"{command} --steps {found['steps']}")
    if session.json:
        session.answer("repro", {**found, "folder": str(to) if to is not None else None}, run=folder.name)
        return
    session.data.write("".join(f"{line}\n" for line in lines(found)))
    if found["engine"] != __version__:
        session.say(f"played with selfplay {found['engine']}, and this is {__version__}: install that one instead")
    if to is not None:
        session.say(f"written to {to}")
        if found["forked_from"] is not None:
            session.say(
                f"it is a fork of {found['forked_from']}: that run is needed where it is played, with that save"
            )
        session.say(f"  play it   cd {shlex.quote(str(to))} && sh commands.sh")
    else:
        run = runs.typed(folder, project=session.project)
        session.say(f"  to send   selfplay repro {run} --to {shlex.quote(f'{folder.name}-repro')}")


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """All of it, for people."""
    yield f"{'installed from':<14} {found['installed_from']['words']}"
    for name in ("engine", "config_digest", "seed", "game", "source", "model", "forked_from"):
        if found[name] is not None:
            yield f"{name.replace('_', ' '):<14} {found[name]}"
    yield f"{'here':<14} {', '.join(f'{name} {version}' for name, version in found['here'].items())}"
    yield from (f"{'played on':<14} {one}" for one in found["fingerprints"])
    yield ""
    yield from found["commands"]


def facts(reader: Reader, *, project: Project) -> dict[str, Any]:
    """Everything, as JSON."""
    from selfplay.ledger import watching

    row, parent = reader.run_row(), reader.parent_row()
    config: Mapping[str, Any] = row.config
    learnt = reader.ask(partial(watching.learnt, after=-1))
    closed = reader.last_closed_step() + 1
    here = origin()
    return {
        "engine": row.engine_version,
        "installed_from": {**asdict(here), "requirement": here.requirement, "words": here.words},
        "config_digest": row.config_digest,
        "seed": row.seed,
        "game": row.game,
        "source": config.get("game.source") if "code" in row.game.split("+") else None,
        "model": config.get("policy.model"),
        "forked_from": parent.words if parent is not None else None,
        "steps": closed,
        "fingerprints": list(dict.fromkeys(one.fingerprint for one in learnt)),
        "here": _here(),
        "settings": dict(config),
        "commands": _commands(reader, here, closed, project=project),
    }


def _commands(reader: Reader, here: Origin, closed: int, *, project: Project) -> list[str]:
    run = runs.typed(reader.folder, project=project)
    lines = [here.command, f"{again(reader, project=project)} --steps {closed}"]
    lines += [f"selfplay compare {run} {_again_name(reader)}"]
    return lines + ([f"selfplay replay {run} {closed - 1}"] if closed else [])


def again(reader: Reader, *, project: Project, sent: bool = False) -> str:
    """The command that plays the run again beside it; with `sent`, beside a copy of its config.toml."""
    from selfplay import fork

    config = "config.toml" if sent else shlex.quote(near(reader.folder / "config.toml"))
    command = f"selfplay run {config} --name {_again_name(reader)}"
    if (row := reader.parent_row()) is None:
        return command
    parent = fork.parent_of(reader.folder, row)
    words = runs.typed(parent, project=project)
    if sent and not runs.is_named(parent, project=project):
        # note: it is typed in the folder that is sent, from where a path beginning here leads elsewhere.
        words = shlex.quote(str(parent))
    return f"{command} --fork {words}@{row.step}"


def _again_name(reader: Reader) -> str:
    return shlex.quote(f"{reader.folder.name}-again")


def _here() -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _write(to: Path, folder: Path, found: dict[str, Any], command: str) -> None:
    """The folder, with the `command` that plays the run there; files that are there already are not written over.

    Raises:
        UserError: it holds something else.
        NotReady: it cannot be written.
    """
    try:
        config = (folder / "config.toml").read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"run `{folder.name}` has no config.toml",
            hint=f"its settings are in the ledger: selfplay repro {folder.name} --json",
        ) from error
    parent = found["forked_from"]
    needs = f"# It is a fork of {parent}: that run, with the save after that step, has to be here.\n" if parent else ""
    pins = [found["installed_from"]["requirement"]]
    pins += [f"{package}=={version}" for package, version in found["here"].items() if package in PACKAGES]
    files = {
        "config.toml": config,
        "requirements.txt": "".join(f"{pin}\n" for pin in pins),
        "repro.json": json.dumps(found, indent=2, sort_keys=True) + "\n",
        "commands.sh": f"set -e\npip install -r requirements.txt\n{needs}{command}\n",
    }
    if there := [name for name in files if (to / name).exists()]:
        raise UserError(f"{to} holds {', '.join(there)} already", hint="name another folder: --to FOLDER")
    try:
        to.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (to / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise NotReady(f"cannot write in {to}: {error.strerror}", hint=f"look: ls -ld {to.parent}") from error
