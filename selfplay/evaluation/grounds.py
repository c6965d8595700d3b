"""What is evaluated on: a run's held-out seeds and tasks, or a file of tasks.

Not here: whose weights (`targets`), playing (`measure`), the file's lines (`tasks`).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from selfplay.config import Config, from_run, load
from selfplay.config.settings import affects_results, toml_value
from selfplay.errors import UserError
from selfplay.evaluation import tasks as files
from selfplay.evaluation import written
from selfplay.evaluation.stints import HeldOut, held_out_of, in_order
from selfplay.games import kept_back
from selfplay.ledger import Ledger, held_out
from selfplay.mix import games_of
from selfplay.origins import refuse_source
from selfplay.project import Project
from selfplay.types import Role, record

FOLDER = "evals"
"""Under a run's folder: what was evaluated on it, and tasks that were made for that."""


@record
class Ground:
    """What is played on."""

    words: str
    """`run quickstart` or the file's name."""
    config: Config
    """What the game is made with."""
    config_digest: str
    """What the tasks' ids were made with."""
    folder: Path | None
    """Of the run; None for a file."""
    on: HeldOut | None
    """None where tasks are still to be made of the run's held-out seeds."""
    count: int
    """Tasks that are wanted, and seeds."""
    solver: Role | None = None
    """Who solves in the place of the target's own solver."""
    seeded: bool = True
    """Has the game to make its seeds first?"""


def on_run(folder: Path, *, count: int | None, sandbox: str | None, project: Project) -> Ground:
    """The held-out seeds of the run in `folder`, and its held-out tasks where they were made.

    Raises:
        NotFound: there is no run.
        UserError: no seed of it is held out, or `config.toml` or the source is not the run's any more.
    """
    config, digest = config_of(folder, sandbox=sandbox, project=project)
    wanted = count or config.eval.tasks
    with Ledger.read(folder) as reader:
        refuse_source(reader, config, project)
        seeds = kept_back(reader.seeds())
        made = in_order(reader.ask(held_out.tasks), seeds) if wanted <= config.eval.tasks else ()
    if not seeds:
        raise UserError(
            f"run `{folder.name}` has no held-out seed to evaluate on",
            hint="hold some out when you start one: -s game.held_out=0.3; or name a file of tasks: --on FILE",
        )
    kept = made_file(folder, wanted)
    if not made:
        digest, made = config.digest, files.read(kept).on.tasks if kept.is_file() else ()
    on = held_out_of(seeds, made[:wanted], count=wanted) if made else None
    return Ground(words=f"run {folder.name}", config=config, config_digest=digest, folder=folder, on=on, count=wanted)


def config_of(folder: Path, *, sandbox: str | None = None, project: Project) -> tuple[Config, str]:
    """The settings of the run in `folder`, and the digest that its ids were made with.

    Settings that are newer than the run have their defaults, so that the digest need not be theirs.

    Raises:
        NotFound: there is no run.
        UserError: `config.toml` is not the run's any more.
    """
    config = from_run(folder, project=project, sets=_sets(sandbox), environ={})
    with Ledger.read(folder) as reader:
        row = reader.run_row()
    now = config.values()
    other = [name for name in now if name in row.config and affects_results(name) and now[name] != row.config[name]]
    if other:
        raise UserError(
            f"{folder / 'config.toml'} is not what the run was started with: {', '.join(other)}",
            hint=f"set it back: {other[0]} was {row.config[other[0]]!r}",
        )
    return config, row.config_digest


def on_file(path: Path, *, run: Config | None, count: int | None, sandbox: str | None, project: Project) -> Ground:
    """The tasks in `path`, judged with the settings of `run` where its source is theirs, else with their own.

    Raises:
        NotFound: there is no such file.
        UserError: it holds no task, or tasks of another game than the run's, or of files that changed; or it names a
            module that nobody here has named.
    """
    found = files.read(path)
    if run is not None and found.game != run.run.game:
        raise UserError(
            f"the tasks in {path} are of game `{found.game}`, and the run plays `{run.run.game}`",
            hint="evaluate on tasks of its own: selfplay export RUN --format tasks --held-out",
        )
    if run is not None and found.source == files.source_in_words(run):
        config = run.model_copy(update={"sandbox": _sandbox(run, sandbox)})
    else:
        config = _own(found, path, sandbox or (run.sandbox.kind if run else None), project)
    now = files.digest_of(config, project)
    if now != found.digest:
        raise UserError(
            f"the tasks in {path} were made of other files than {found.source} has now: "
            f"digest {str(found.digest)[:12]}, now {str(now)[:12]}",
            hint="give the source back its content, or export the tasks of a run on what it is now",
        )
    tasks = found.on.tasks[:count]
    used = {task.seed_id for task in tasks}
    on = HeldOut(seeds=tuple(seed for seed in found.on.seeds if seed.id in used), tasks=tasks)
    return Ground(
        words=str(path),
        config=config,
        config_digest=found.config_digest,
        folder=None,
        on=on,
        count=len(tasks),
        solver=written.role() if written.is_written(tasks) else None,
    )


def _own(found: files.TaskFile, path: Path, sandbox: str | None, project: Project) -> Config:
    """A configuration of the settings that the file carries."""
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "tasks.toml"
        empty.write_text("", encoding="utf-8")
        sets = [f"{name}={toml_value(value)}" for name, value in found.settings.items() if value is not None]
        config = load(str(empty), project=project, sets=[*sets, *_sets(sandbox)], environ={})
        ours = load(str(empty), project=project, environ={})
    # note: a file may come from somebody else, and to open a game of one's own is to run its module.
    if strange := [name for name in games_of(config) if ":" in name and name not in games_of(ours)]:
        raise UserError(
            f"the tasks in {path} are of the module `{strange[0]}`, which nobody here has named",
            hint=f"if it is yours, write in selfplay.toml, under [run]: game = {toml_value(config.run.game)}; "
            f"or evaluate a run that plays it: selfplay eval RUN --on {path}",
        )
    return config


def _sets(sandbox: str | None) -> list[str]:
    return [f"sandbox.kind={sandbox}"] if sandbox else []


def _sandbox(config: Config, kind: str | None) -> object:
    return config.sandbox.model_copy(update={"kind": kind}) if kind else config.sandbox


def made_file(folder: Path, count: int) -> Path:
    """Where held-out tasks that were made for an evaluation of the run in `folder` are kept."""
    return folder / FOLDER / f"tasks_{count}.jsonl"
