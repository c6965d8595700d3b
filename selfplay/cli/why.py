"""`selfplay why`: why a task was chosen, how its solve rate moved, who its parent and children are.

Not here: the records (`ledger.story`), what is believed (`cli.beliefs`), layout (`views.why`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from selfplay.cli import runs
from selfplay.cli.session import Session, common
from selfplay.errors import Ambiguous, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from selfplay.cli.beliefs import Lens
    from selfplay.curriculum.history import Candidate, Seen
    from selfplay.curriculum.presets import Frontier
    from selfplay.ledger import Reader
    from selfplay.ledger.story import Story
    from selfplay.types import Seed
    from selfplay.views.why import Belief, WhyView

NEWEST = 8
"""Steps of a task for which the belief is worked out: each asks for all tasks of the window."""

Standing = tuple[str, str]
"""A word, and a sentence."""


@click.command("why", short_help="Why a task was chosen, how its solve rate moved, what came of it.")
@click.argument("run")
@click.argument("task")
@common
def command(session: Session, run: str, task: str) -> None:
    """Why a task was chosen, how its solve rate moved, what came of it.

    TASK is the beginning of a task's id; `selfplay inspect RUN` shows proposals, and a proposal its task.

    \b
    Examples:
      selfplay why last 3f2a91
      selfplay why quickstart 3f2a91 --json
    """
    from selfplay.ledger import Ledger
    from selfplay.views.why import why_data, why_page

    folder = runs.find_run(run, project=session.project)
    with Ledger.read(folder) as reader:
        view = _here_or_before(reader, task)
    if session.json:
        session.answer("why", why_data(view), run=folder.name)
    else:
        session.console().print(why_page(view))


def _here_or_before(reader: Reader, prefix: str) -> WhyView:
    """The task of that id, in the run or in what it was forked from."""
    try:
        return _view(reader, identify(reader, prefix))
    except NotFound:
        parent = reader.parent()
        if parent is None:
            raise
    with parent:
        return _here_or_before(parent, prefix)


def identify(reader: Reader, prefix: str) -> str:
    """The id of the one task that begins with `prefix`.

    Raises:
        NotFound: there is none; where a proposal has that id the hint names its task.
        Ambiguous: there are several; the message names them.
    """
    from selfplay.ledger.story import beginning, minted_by
    from selfplay.views.inspect import ID_DIGITS

    name = reader.folder.name
    found = reader.ask(lambda ask: beginning(ask, prefix, limit=6)) if prefix else ()
    if prefix in found or len(found) == 1:
        return prefix if prefix in found else found[0]
    if found:
        ids = ", ".join(one[: len(prefix) + 4] for one in found[:5]) + (", ..." if len(found) > 5 else "")
        raise Ambiguous(f"`{prefix}` begins more than one task's id: {ids}", hint="give more of the id")
    others = reader.by_prefix(prefix, limit=2) if prefix else ()
    if len(others) == 1:
        table, other = others[0]
        task = reader.ask(lambda ask: minted_by(ask, other)) if table == "trajectories" else None
        hint = f"selfplay why {name} {task[:ID_DIGITS]}" if task else f"selfplay inspect {name} {other[:ID_DIGITS]}"
        kind = "a seed" if table == "seeds" else "a proposal or an attempt"
        raise NotFound(f"`{prefix}` is {kind} of run `{name}`, not a task", hint=hint)
    if not reader.status().num_tasks:
        raise NotFound(f"run `{name}` has no task yet", hint=f"what became of its proposals: selfplay inspect {name}")
    raise NotFound(
        f"no task of run `{name}` has an id that begins with `{prefix}`",
        hint=f"proposals and their tasks: selfplay inspect {name}",
    )


def _view(reader: Reader, task_id: str) -> WhyView:
    from selfplay.cli.beliefs import believed, lens_of
    from selfplay.ledger.story import story
    from selfplay.views.why import WhyView

    told = reader.ask(lambda ask: story(ask, task_id))
    lens, last = lens_of(reader.run_row().config), reader.last_closed_step()
    played = sorted({one.step for one in told.rounds if one.closed and one.step >= 0})
    seeds: Sequence[Seed] = [seed for seed in reader.seeds() if seed.split == "train"]
    if told.task.split != "train" or not played or not seeds:
        code, words = _unplayed(told)
        return WhyView(story=told, beliefs=(), cell="", standing=words, code=code)
    steps = sorted({*played[-NEWEST:], last})
    looks = [(step, believed(reader, seeds, lens, after=step)) for step in steps]
    found = [(step, seen, one) for step, seen in looks if (one := _of(seen, task_id)) is not None]
    newest = _of(looks[-1][1], task_id)
    code, words = standing(newest, looks[-1][1], lens, story=told, next_step=last + 1)
    return WhyView(
        story=told,
        beliefs=tuple(_belief(step, seen, one) for step, seen, one in found),
        cell=str(newest.cell) if newest is not None else "",
        standing=words,
        code=code,
    )


def _of(seen: Seen, task_id: str) -> Candidate | None:
    return next((one for one in seen.candidates if one.task.id == task_id), None)


def _belief(step: int, seen: Seen, one: Candidate) -> Belief:
    from selfplay.curriculum.interval import interval
    from selfplay.views.why import Belief

    low, high = interval(one.rate)
    return Belief(step=step, mean=one.rate.mean, low=low, high=high, prior=seen.priors[one.cell].mean)


def _unplayed(told: Story) -> Standing:
    if told.task.split != "train":
        return "never", f"of split {told.task.split.replace('_', ' ')}: the curriculum never plays it"
    if told.task.parent_id is None:
        return "never", "given, not proposed: it serves evaluations, and the curriculum never plays it"
    return "open", "no closed step has played it, so nothing is known about it yet"


def standing(one: Candidate | None, seen: Seen, lens: Lens, *, story: Story, next_step: int) -> Standing:
    """May the task be chosen again, by the rules of the run's curriculum; a word and a sentence."""
    from selfplay.curriculum.papers import Ssp, Ssr
    from selfplay.curriculum.presets import Frontier

    if isinstance(lens.options, Frontier):
        return _by_frontier(one, seen, lens.options)
    if isinstance(lens.options, Ssp):
        return _by_ssp(one, lens.options, story=story, next_step=next_step)
    if isinstance(lens.options, Ssr):
        if story.parent_id is not None:
            return "never", "a child itself: ssr makes children of first-order tasks only, and replays none"
        if story.children:
            return "never", "has a child: ssr makes one of each task, and replays none"
        return "open", "may be the parent of a second-order task once an attempt failed; ssr replays none"
    if lens.options is not None:
        return "never", f"curriculum {lens.name} plays no task again"
    return "open", f"curriculum {lens.name} is not of this package: whether it plays the task again is its own affair"


def _forgotten(window: int) -> Standing:
    return "forgotten", f"forgotten: not played in the last {window} closed steps, which is what the curriculum reads"


def _by_frontier(one: Candidate | None, seen: Seen, options: Frontier) -> Standing:
    from selfplay.curriculum import pool, where
    from selfplay.views.words import plural

    if one is None:
        return _forgotten(options.window)
    if options.max_replays and one.replays >= options.max_replays:
        return "evicted", f"evicted: {one.replays} replays, of at most {options.max_replays} (max_replays)"
    if one.rate.mean > options.retire:
        return "retired", f"retired: expected solve rate {one.rate.mean:.2f} is above {options.retire:g} (retire)"
    regret = one.regret or 0.0
    if pool.hopeless(one, options.give_up) and regret <= 0.0:
        failed = f"{plural(len(one.plain), 'play')} failed whole, where {options.give_up} is enough (give_up)"
        shelf = {other.task.id for other in pool.on_probation(seen, taken=(), give_up=options.give_up)}
        if options.probation and one.task.id in shelf:
            return "probation", f"on probation: {failed}; it may be tried with a hint"
        return "hopeless", f"left alone: {failed}"
    doubts = where.doubts(seen, half_life=options.half_life) if options.only_better else {}
    worth = pool.ranked([one], target=options.target, fade=options.fade, doubts=doubts)[0].score
    said = f"may be replayed: learnability {worth:.3f} after {plural(one.replays, 'replay')}"
    if not options.only_better:
        return "open", said
    doubt = doubts.get(one.task.id, 0.0)
    return "open", f"{said}, {doubt:.2f} likely to be broken; where that beats a new task"


def _by_ssp(one: Candidate | None, options: Any, *, story: Story, next_step: int) -> Standing:
    if options.refill in ("dummy", "resample"):
        return "never", f"never replayed: refill is {options.refill}"
    since = next_step - next_step % options.clear if options.refill == "cleared" else 0
    if story.task.step < since:
        return "cleared", f"cleared: the pool holds tasks minted since step {since} (clear {options.clear})"
    if one is None:
        return _forgotten(options.window)
    if one.plain and one.plain[-1].solved / one.plain[-1].decided > options.threshold:
        return "retired", f"retired: its last solve rate is above {options.threshold:g} (threshold)"
    return "open", f"in the pool since step {story.task.step}: a refill round may draw it"
