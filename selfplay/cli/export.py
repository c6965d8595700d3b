"""`selfplay export`: a run for other tools, in one of many formats.

Not here: the formats and which there are (`exports`), where their files go (`exports.place`).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from selfplay.cli import runs
from selfplay.cli.session import Session, common
from selfplay.errors import UserError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from selfplay.exports.seam import Asked, Format, Made


def _complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from selfplay.exports import seam

    return [CompletionItem(name) for name in seam.names() if name.startswith(incomplete)]


@click.command("export", short_help="A run for other tools: tasks, plays, data sets, curves, logs.")
@click.argument("run")
@click.option("--format", "form", default="swebench", metavar="FORMAT", shell_complete=_complete, help="See below.")
@click.option("--to", type=click.Path(path_type=Path), metavar="PATH", help="Write there [default: stdout].")
@click.option("--step", type=click.IntRange(min=0), metavar="N", help="Only what is of step N.")
@click.option("--held-out", is_flag=True, help="Also tasks of held-out seeds, what was played on them, the dev set.")
@common
def command(session: Session, run: str, *, form: str, to: Path | None, step: int | None, held_out: bool) -> int:
    """Write RUN for other tools. The run is only read; held-out tasks are left out unless asked for.

    \b
    JSON lines, to stdout or into the file --to:
      swebench     tasks in the columns of SWE-bench, which its harness can grade
      tasks        tasks for `selfplay eval --on FILE`
      sft          every play that succeeded, in TRL's conversational columns
      dpo          the best and the worst play of each group that taught something
      trl          the samples of updates, so that TRL's GRPOTrainer has the same loss
    Folders, made at --to:
      harbor       tasks that any agent of Harbor can be run on
      parquet      tables of tasks, plays and metrics
      hf           a data set for Hugging Face, Parquet with a card
      atif         one trajectory a file, Agent Trajectory Interchange Format
      inspect      logs that `inspect view` opens, one a step and side
      tensorboard, trackio, wandb   each step's metrics, at the time they were made
    More come with packages that have entry points in the group selfplay.exports.

    What each column means: selfplay/exports/README.md. Where a library is missing, the error has pip's command.

    \b
    Examples:
      selfplay export last --format swebench > tasks.jsonl
      selfplay export quickstart --format tasks --held-out --to tasks.jsonl
      selfplay export quickstart --format trl --step 3 --to step3.jsonl
      selfplay export quickstart --format hf --to quickstart-tasks
    """
    folder = runs.find_run(run, project=session.project)
    from selfplay.exports import place, seam
    from selfplay.ledger import Ledger

    chosen = seam.find(form)
    _refuse(form, chosen, to=to, step=step, held_out=held_out)
    if to is not None and to.name in ("", ".", ".."):
        raise UserError(f"--to {to} has no name of its own", hint=f"for example: --to {folder.name}-{form}")
    with Ledger.read(folder) as reader:
        asked = seam.Asked(reader=reader, project=session.project, held_out=held_out, step=step)
        if to is None:
            lines = place.Lines(None if session.json else session.data)
            made = chosen.write(asked, lines)
            return _answer(session, asked, form, made, noun=chosen.noun, rows=lines.rows)
        with place.opened(to, chosen.shape) as out:
            made = chosen.write(asked, out)
    return _answer(session, asked, form, made, noun=chosen.noun, to=to)


def _refuse(form: str, chosen: Format, *, to: Path | None, step: int | None, held_out: bool) -> None:
    if held_out and "held_out" not in chosen.takes:
        raise UserError(
            f"--held-out is for tasks and plays: {form} holds what the run learnt from", hint="leave it out"
        )
    if step is not None and "step" not in chosen.takes:
        raise UserError(f"--step is for what is of one step, and {form} is of the whole run", hint="leave it out")
    if to is None and chosen.shape == "folder":
        raise UserError(
            f"{form} is a folder of files, and --to does not say where", hint=f"for example: --to run-{form}"
        )


def _answer(
    session: Session,
    asked: Asked,
    form: str,
    made: Made,
    *,
    noun: str,
    to: Path | None = None,
    rows: Sequence[object] = (),
) -> int:
    from selfplay.views.words import plural

    following = made.next.replace("{to}", shlex.quote(str(to))) if to is not None else ""
    if session.json:
        data: dict[str, object] = {"format": form, "file": str(to) if to else None, "count": made.count}
        data |= {"left_out": made.left_out, "notes": list(made.notes), "next": following}
        session.answer("export", data if to else {**data, "rows": list(rows)}, run=asked.name)
        return 0
    where = f", in {to}" if to else ""
    session.say(f"{asked.name}: {plural(made.count, noun)}{where}" + _left_out(made))
    for note in made.notes:
        session.say(f"note: {note}")
    if following:
        session.say(f"open it: {following}")
    return 0


def _left_out(made: Made) -> str:
    return f"; {made.left_out} left out" if made.left_out else ""
