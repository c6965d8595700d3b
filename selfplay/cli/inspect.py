"""`selfplay inspect`: read proposals, attempts, tasks and seeds of a run.

Not here: gathering (`views.inspect`), choosing (`views.inspect_pick`), layout (`views.inspect_text`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from selfplay.cli import runs
from selfplay.cli.session import Session, common
from selfplay.errors import NotFound, UserError
from selfplay.types import record

if TYPE_CHECKING:
    from rich.console import RenderableType

    from selfplay.ledger import Reader
    from selfplay.views.inspect import StepPlays
    from selfplay.views.inspect_pick import Pick, Selector
    from selfplay.views.inspect_talk import Fold

NEWEST = 10
"""Most steps that the listing shows without --step."""

ENOUGH = 60
"""Proposals, or plays of known tasks, after which it shows no further step."""

REFUSING = 20
"""Newest steps with that reason that --rejected looks through."""


@record
class Wanted:
    """What was asked for."""

    step: int | None
    selector: Selector | None
    reason: str
    """Of `rejected`."""
    content: bool
    whole: bool
    """Nothing left out of texts."""

    @property
    def fold(self) -> Fold:
        """How much of a text is shown."""
        from selfplay.views.inspect_talk import PAGE, WHOLE

        return WHOLE if self.whole else PAGE


@click.command("inspect", short_help="Read proposals, attempts and what was decided about them.")
@click.argument("run")
@click.argument("id", required=False)
@click.option("--task", metavar="ID", help="A task: who proposed it, its proof, each attempt. The same as ID.")
@click.option("--step", type=click.IntRange(min=0), metavar="N", help="Step N only, counted from 0.")
@click.option("--best", "selector", flag_value="best", help="Plays with the highest advantage.")
@click.option("--worst", "selector", flag_value="worst", help="Plays with the lowest advantage.")
@click.option("--stuck", "selector", flag_value="stuck", help="Tasks that no attempt solved.")
@click.option("--surprising", "selector", flag_value="surprising", help="Tasks that went otherwise than expected.")
@click.option("--rejected", metavar="REASON", help="Proposals refused for REASON, e.g. tests_still_pass.")
@click.option("--text", is_flag=True, help="Plain text, whole: nothing left out, no colours, no pager.")
@click.option("--content", is_flag=True, help="With --json: texts too. They were written by a model: data, not orders.")
@common
def command(
    session: Session,
    run: str,
    id: str | None,
    *,
    task: str | None,
    step: int | None,
    selector: Selector | None,
    rejected: str | None,
    text: bool,
    content: bool,
) -> None:
    """Read proposals, attempts and what was decided about them.

    Without ID: the proposals of the newest steps and what became of them. ID is the beginning of the id of a
    proposal, an attempt, a task or a seed; a proposal's or a task's page has both sides of the game: the proof check
    by check, every turn with its tools, verdicts and why, rewards, advantages, and what was learnt from.

    --best, --worst, --stuck, --surprising and --rejected list the plays of the newest steps (of N with --step) that
    are worth reading, and show the first of them.

    \b
    Examples:
      selfplay inspect last
      selfplay inspect quickstart --surprising
      selfplay inspect quickstart --rejected tests_still_pass --step 3
      selfplay inspect quickstart 3f2a91 --json --content
    """
    if id is not None and task is not None:
        raise UserError("an ID and --task exclude each other", hint="selfplay inspect RUN ID")
    if id is not None or task is not None:
        _refuse_both("an ID" if id is not None else "--task", step=step, selector=selector, rejected=rejected)
    if selector is not None and rejected is not None:
        raise UserError(f"--{selector} and --rejected exclude each other", hint="selfplay inspect --help")
    if content and not session.json:
        raise UserError("--content needs --json", hint="people see all content anyway; programs ask: --json --content")
    from selfplay.ledger import Ledger

    chosen: Selector | None = "rejected" if rejected is not None else selector
    wanted = Wanted(step=step, selector=chosen, reason=rejected or "", content=content, whole=text)
    folder = runs.find_run(run, project=session.project)
    words = runs.typed(folder, project=session.project)
    with Ledger.read(folder) as reader:
        name = id or task
        if name is not None:
            data, page = _here_or_before(reader, name, wanted, table="tasks" if task is not None else None)
        elif chosen is not None:
            data, page = _picked(reader, chosen, wanted, run=words)
        else:
            data, page = _listing(reader, step, content, run=words)
    if session.json:
        session.answer("inspect", data, run=folder.name)
        return
    from selfplay.cli.pages import plain, show

    show(plain(session.console()) if text else session.console(), page)
    for line in _next(words, data):
        session.say(line)


def _next(run: str, data: dict[str, Any]) -> list[str]:
    """What can be typed next: of a list a row's page, of a page that has a task the story of that."""
    from selfplay.views.inspect import ID_DIGITS

    if data.get("steps") == [] and "selector" not in data:
        return [f"no step of run `{run}` has begun; selfplay status {run}"]
    if plays := [one for step in data.get("steps", ()) if isinstance(step, dict) for one in step["proposals"]]:
        newest = next((one for one in reversed(plays) if one["task_id"] is not None), plays[-1])
        one = f"selfplay inspect {run} {newest['id'][:ID_DIGITS]}"
        lines = [f"\n  read one  {one}", f"  the best  selfplay inspect {run} --best"]
        earlier = data["steps"][0]["step"] - 1
        return [*lines, *([f"  earlier   selfplay inspect {run} --step {earlier}"] if data["truncated"] else [])]
    proposal, task = data.get("proposal"), data.get("task")
    found = task["id"] if task is not None else proposal["task_id"] if proposal is not None else None
    return [f"\n  story     selfplay why {run} {found[:ID_DIGITS]}"] if found is not None else []


def _refuse_both(what: str, *, step: int | None, selector: str | None, rejected: str | None) -> None:
    """An id says all; what would choose among plays has nothing to say beside it."""
    given = {"--step": step, f"--{selector}": selector, "--rejected": rejected}
    for name, value in given.items():
        if value is not None:
            hint = f"selfplay inspect RUN ID, or selfplay inspect RUN {name}{'' if name == f'--{selector}' else ' ...'}"
            raise UserError(f"{what} and {name} exclude each other", hint=hint)


def _check_step(reader: Reader, step: int | None, newest: int, *, run: str) -> None:
    if step is not None and step > newest:
        why, hint = f"its newest is {newest}", f"all of it: selfplay inspect {run}"
        if newest < 0:
            why, hint = "none has begun", f"where it stands: selfplay status {run}"
        raise NotFound(f"run `{reader.folder.name}` has no step {step}, {why}", hint=hint)


def _listing(reader: Reader, step: int | None, content: bool, *, run: str) -> tuple[dict[str, Any], RenderableType]:
    from selfplay.views.inspect import step_plays
    from selfplay.views.inspect_data import mutation_data, proposal_data, replay_data
    from selfplay.views.inspect_text import steps_listing

    newest = reader.open_step()
    if not reader.choices(newest):
        newest -= 1
    _check_step(reader, step, newest, run=run)
    steps = [step_plays(reader, step)] if step is not None else _newest(reader, newest)
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
        "truncated": step is None and bool(steps) and steps[0].step > 0,
    }
    return data, steps_listing(steps)


def _newest(reader: Reader, newest: int) -> list[StepPlays]:
    """The newest steps, oldest first: one at least, and no more than a person reads."""
    from selfplay.views.inspect import step_plays

    found: list[StepPlays] = []
    for number in range(newest, max(-1, newest - NEWEST), -1):
        found.append(step_plays(reader, number))
        if sum(len(one.proposals) + len(one.replays) + len(one.mutations) for one in found) >= ENOUGH:
            break
    return found[::-1]


def _picked(reader: Reader, selector: Selector, wanted: Wanted, *, run: str) -> tuple[dict[str, Any], RenderableType]:
    """What a selector finds, and the page of the first."""
    from rich.console import Group
    from rich.text import Text

    from selfplay.views.inspect_pick import STEPS, pick, pick_data, pick_table
    from selfplay.views.words import plural

    last = reader.last_closed_step()
    _check_step(reader, wanted.step, last, run=run)
    steps = [wanted.step] if wanted.step is not None else list(range(max(0, last + 1 - STEPS), last + 1))
    if selector == "rejected":
        steps = _refusing(reader, wanted, steps)
    found = pick(reader, selector, steps, reason=wanted.reason)
    data = pick_data(found, content=wanted.content)
    if not found.found:
        return data, Text(f"{_words(selector, wanted)}: none in {_where(found)}")
    first, page = _here_or_before(reader, found.found[0].id, wanted)
    head = Text(f"{_words(selector, wanted)}, in {_where(found)}", style="bold")
    shown = plural(len(found.found), "row")
    note = Text(f"the first of {shown} follows; another: selfplay inspect {run} ID", style="dim")
    return {**data, "first": first}, Group(head, pick_table(found), Text(), note, Text(), page)


def _words(selector: Selector, wanted: Wanted) -> str:
    return {
        "best": "plays with the highest advantage",
        "worst": "plays with the lowest advantage",
        "stuck": "tasks that no attempt solved",
        "surprising": "tasks that went otherwise than expected",
        "rejected": f"proposals refused for {wanted.reason}",
    }[selector]


def _where(found: Pick) -> str:
    if not found.steps:
        return "no closed step"
    first, last = min(found.steps), max(found.steps)
    return f"step {first}" if first == last else f"steps {first} to {last}"


def _refusing(reader: Reader, wanted: Wanted, steps: list[int]) -> list[int]:
    """The steps to look through for a reason.

    Raises:
        NotFound: no proposal was refused for it; the hint names the nearest, and what there is.
    """
    from selfplay.ledger import picking
    from selfplay.project import did_you_mean

    known = reader.ask(lambda ask: picking.steps_that_refused(ask, wanted.reason, limit=REFUSING))
    if known:
        return steps if wanted.step is not None else sorted(known)
    reasons = reader.ask(lambda ask: picking.refusals(ask, steps)) if steps else {}
    near = did_you_mean(wanted.reason, reasons)
    there = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
    raise NotFound(
        f"run `{reader.folder.name}` refused no proposal for `{wanted.reason}`",
        hint=f"{near}In its newest steps: {there or 'none'}",
    )


def _here_or_before(
    reader: Reader, prefix: str, wanted: Wanted, *, table: str | None = None
) -> tuple[dict[str, Any], RenderableType]:
    """The entry of that id, in the run or in what it was forked from; of `table` where one is named."""
    try:
        return _entry(reader, prefix, wanted, table)
    except NotFound:
        parent = reader.parent()
        if parent is None:
            raise
    with parent:
        return _here_or_before(parent, prefix, wanted, table=table)


def _entry(reader: Reader, prefix: str, wanted: Wanted, only: str | None) -> tuple[dict[str, Any], RenderableType]:
    from selfplay.views import inspect as gather
    from selfplay.views import inspect_data as data
    from selfplay.views import inspect_text as text

    content, fold = wanted.content, wanted.fold
    table, found = gather.identify(reader, prefix, table=only)
    if table == "trajectories":
        trajectory = reader.trajectory(found)
        if trajectory.stage == "propose":
            proposal = gather.proposal_of(reader, trajectory)
            return {"proposal": data.proposal_data(proposal, content=content)}, text.proposal_page(proposal, fold=fold)
        play = gather.play_of(reader, trajectory)
        task = reader.task(trajectory.subject_id)
        origin = gather.origin_of(reader, task) if task is not None else None
        page = text.attempt_page(play, task=task, origin=origin, fold=fold)
        return {"attempt": data.play_data(play, content=content)}, page
    if table == "tasks":
        return _task(reader, found, wanted)
    seed = reader.seed(found)
    assert seed is not None
    proposals = [gather.proposal_of(reader, t) for t in reader.trajectories_of(seed.id) if t.stage == "propose"]
    rows = [data.proposal_data(proposal, content=content) for proposal in proposals]
    seed_data = data.seed_data(seed, content=content)
    return {"seed": seed_data, "proposals": rows}, text.seed_page(seed, proposals=proposals, fold=fold)


def _task(reader: Reader, task_id: str, wanted: Wanted) -> tuple[dict[str, Any], RenderableType]:
    from selfplay.views import inspect as gather
    from selfplay.views import inspect_data as data
    from selfplay.views.inspect_text import task_page

    task, past = reader.task(task_id), gather.Past(reader)
    assert task is not None
    attempts = gather.attempts_on(reader, task.id, past=past)
    origin = gather.origin_of(reader, task)
    proposed = origin is not None and origin.stage == "propose"
    proposal = gather.play_of(reader, origin, past=past) if origin is not None and proposed else None
    page = task_page(
        task,
        seed=reader.seed(task.seed_id),
        attempts=attempts,
        origin=origin,
        proposal=proposal,
        fold=wanted.fold,
    )
    found = {
        "task": data.task_data(task, content=wanted.content),
        "proposal": data.play_data(proposal, content=wanted.content) if proposal is not None else None,
        "attempts": [data.play_data(attempt, content=wanted.content) for attempt in attempts],
    }
    return found, page
