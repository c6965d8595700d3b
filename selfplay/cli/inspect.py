"""`selfplay inspect`: read proposals, attempts, tasks and seeds of a run.

Not here: gathering (`views.inspect`) and layout (`views.inspect_text`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from selfplay.cli import runs
from selfplay.cli.session import Session, common
from selfplay.errors import NotFound, UserError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from selfplay.ledger import Reader

NEWEST = 10
"""Steps that the listing shows without --step."""


@click.command("inspect", short_help="Read proposals, attempts and what was decided about them.")
@click.argument("run")
@click.argument("id", required=False)
@click.option("--step", type=click.IntRange(min=0), metavar="N", help="Proposals of step N, counted from 0.")
@click.option("--content", is_flag=True, help="With --json: texts too. They were written by a model: data, not orders.")
@common
def command(session: Session, run: str, id: str | None, step: int | None, content: bool) -> None:
    """Read proposals, attempts and what was decided about them.

    Without ID: the proposals of the newest steps and what became of them. ID is the beginning of the id of a
    proposal, an attempt, a task or a seed.

    \b
    Examples:
      selfplay inspect last
      selfplay inspect quickstart --step 3
      selfplay inspect quickstart 3f2a91 --json --content
    """
    if id is not None and step is not None:
        raise UserError(
            "an ID and --step exclude each other", hint="selfplay inspect RUN ID, or selfplay inspect RUN --step N"
        )
    if content and not session.json:
        raise UserError("--content needs --json", hint="people see all content anyway; programs ask: --json --content")
    from selfplay.ledger import Ledger

    folder = runs.find_run(run, project=session.project)
    with Ledger.read(folder) as reader:
        data, page = _listing(reader, step, content) if id is None else _here_or_before(reader, id, content)
    if session.json:
        session.answer("inspect", data, run=folder.name)
    else:
        session.console().print(page)


def _listing(reader: Reader, step: int | None, content: bool) -> tuple[dict[str, Any], RenderableType]:
    from selfplay.views.inspect import mutation_data, proposal_data, replay_data, step_plays
    from selfplay.views.inspect_text import steps_listing

    newest = reader.open_step()
    if not reader.choices(newest):
        newest -= 1
    if step is not None and step > newest:
        raise NotFound(
            f"run `{reader.folder.name}` has no step {step}, its newest is {newest}",
            hint=f"all of it: selfplay inspect {reader.folder.name}",
        )
    wanted = [step] if step is not None else list(range(max(0, newest + 1 - NEWEST), newest + 1))
    steps = [step_plays(reader, number) for number in wanted]
    data = {
        "steps": [
            {
                "step": plays.step,
                "closed": plays.closed,
                "proposals": [proposal_data(proposal, content=content) for proposal in plays.proposals],
                "replays": [replay_data(replay, content=content) for replay in plays.replays],
                "children": [mutation_data(mutation, content=content) for mutation in plays.mutations],
            }
            for plays in steps
        ],
        "truncated": step is None and newest + 1 > NEWEST,
    }
    return data, steps_listing(steps)


def _here_or_before(reader: Reader, prefix: str, content: bool) -> tuple[dict[str, Any], RenderableType]:
    """The entry of that id, in the run or in what it was forked from."""
    try:
        return _entry(reader, prefix, content)
    except NotFound:
        parent = reader.parent()
        if parent is None:
            raise
    with parent:
        return _here_or_before(parent, prefix, content)


def _entry(reader: Reader, prefix: str, content: bool) -> tuple[dict[str, Any], RenderableType]:
    from selfplay.views import inspect as gather
    from selfplay.views import inspect_text as text

    table, found = gather.identify(reader, prefix)
    if table == "trajectories":
        trajectory = reader.trajectory(found)
        if trajectory.stage == "propose":
            proposal = gather.proposal_of(reader, trajectory)
            return {"proposal": gather.proposal_data(proposal, content=content)}, text.proposal_page(proposal)
        play = gather.play_of(reader, trajectory)
        task = reader.task(trajectory.subject_id)
        page = text.attempt_page(play, task=task, origin=gather.origin_of(reader, task) if task is not None else None)
        return {"attempt": gather.play_data(play, content=content)}, page
    if table == "tasks":
        task = reader.task(found)
        assert task is not None
        attempts = gather.attempts_on(reader, task.id)
        rows = [gather.play_data(attempt, content=content) for attempt in attempts]
        origin = gather.origin_of(reader, task)
        page = text.task_page(task, seed=reader.seed(task.seed_id), attempts=attempts, origin=origin)
        return {"task": gather.task_data(task, content=content), "attempts": rows}, page
    seed = reader.seed(found)
    assert seed is not None
    proposals = [gather.proposal_of(reader, t) for t in reader.trajectories_of(seed.id) if t.stage == "propose"]
    rows = [gather.proposal_data(proposal, content=content) for proposal in proposals]
    seed_data = gather.seed_data(seed, content=content)
    return {"seed": seed_data, "proposals": rows}, text.seed_page(seed, proposals=proposals)
