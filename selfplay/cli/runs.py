"""Which run a person means: a name, a unique prefix, a path or `last`.

Not here: what a run holds (`ledger`).
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from selfplay.cli.session import near
from selfplay.errors import Ambiguous, NotFound, UserError
from selfplay.project import Project, did_you_mean

LEDGER = "ledger.db"

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def all_runs(project: Project) -> tuple[Path, ...]:
    """Folders of the runs, the one that was written last first."""
    found = [path.parent for path in project.runs.glob(f"*/{LEDGER}")]
    return tuple(sorted(found, key=written, reverse=True))


def find_run(text: str, *, project: Project) -> Path:
    """The folder of the run that `text` means.

    Raises:
        NotFound: there is none.
        Ambiguous: it is the beginning of several names.
    """
    runs = all_runs(project)
    names = [run.name for run in runs]
    if text == "last" and runs:
        return runs[0]
    if text in names:
        return runs[names.index(text)]
    if "/" in text or text == ".":
        folder = Path(text).expanduser()
        folder = folder.parent if folder.name == LEDGER else folder
        if (folder / LEDGER).is_file():
            return folder.resolve()
        raise NotFound(f"no run in `{text}`: it holds no {LEDGER}", hint="all runs: selfplay ls runs")
    matches = [run for run in runs if run.name.startswith(text)]
    if len(matches) > 1:
        raise Ambiguous(
            f"`{text}` begins the names of {len(matches)} runs: {', '.join(sorted(run.name for run in matches))}",
            hint="give more of the name; all runs: selfplay ls runs",
        )
    if not matches:
        near = did_you_mean(text, names)
        raise NotFound(f"no run `{text}` in {project.runs}", hint=f"{near}All runs: selfplay ls runs")
    return matches[0]


def is_named(folder: Path, *, project: Project) -> bool:
    """Does the name of the run in `folder` mean it? One elsewhere, as a study's are, is found by its path alone."""
    return folder.parent.resolve() == project.runs.resolve()


def typed(folder: Path, *, project: Project) -> str:
    """The run in `folder`, as one types it behind a command: its name, or its path where that means another run."""
    if is_named(folder, project=project):
        return folder.name
    path = near(folder)
    # note: without a slash it would be a name, and with a dash before it an option.
    return shlex.quote(path if path == "." or ("/" in path and path[0] != "-") else f"./{path}")


def check_name(name: str) -> str:
    """`name`, if a run can be called that.

    Raises:
        UserError: it is not a plain file name, or means something else.
    """
    if not NAME.fullmatch(name) or name == "last":
        raise UserError(
            f"a run cannot be called `{name}`",
            hint="a name has up to 64 letters, digits, `.`, `_`, `-`, begins with a letter or digit, and is not `last`",
        )
    return name


def free_name(name: str, *, project: Project) -> str:
    """`name`, or the first of `name-2`, `name-3`, ... that no folder has."""
    candidate, number = name, 1
    while (project.runs / candidate).exists():
        number += 1
        candidate = f"{name}-{number}"
    return candidate


def written(run: Path) -> float:
    """When something of the run was recorded last, in Unix seconds."""
    ledger, log = run / LEDGER, run / f"{LEDGER}-wal"
    # note: whoever reads a closed ledger leaves an empty log beside it.
    files = [ledger, *([log] if log.is_file() and log.stat().st_size else [])]
    return max((file.stat().st_mtime for file in files if file.is_file()), default=0.0)
