"""`selfplay compare`: two runs side by side, for people and for scripts.

Not here: what is compared (`views.compare`).
"""

from __future__ import annotations

import click

from selfplay.cli import runs
from selfplay.cli.session import Session, common


@click.command("compare", short_help="Two runs side by side, on the same held-out tasks.")
@click.argument("first")
@click.argument("second")
@click.option("--at", type=click.IntRange(min=0), metavar="N", help="Evaluations after N steps [default: the newest].")
@click.option("--fail-if", "conditions", multiple=True, metavar="CONDITION", help="Exit code 1 where it holds.")
@common
def command(session: Session, first: str, second: str, *, at: int | None, conditions: tuple[str, ...]) -> int:
    """Compare runs FIRST and SECOND: differences are the second's figure less the first's.

    On the held-out tasks that both were evaluated on (eval.every) they are taken task by task, with a 95 % interval by
    bootstrap over tasks. Beside them: figures of all steps, and the settings that differ.

    A CONDITION is NAME<VALUE about a difference, with <, <=, > or >=; NAME is a row of the tables, and NAME.low or
    NAME.high an end of its interval. `solved` and `valid` are those of held-out tasks where there are any.

    \b
    Examples:
      selfplay compare quickstart quickstart-2
      selfplay compare main branch --fail-if 'solved<-0.05' --fail-if 'valid.high<0'
    """
    from selfplay.ledger import Ledger
    from selfplay.views.compare import compare, compare_data, compare_screen, holds, parse, side_of

    wanted = [parse(text) for text in conditions]
    folders = [runs.find_run(text, project=session.project) for text in (first, second)]
    with Ledger.read(folders[0]) as one, Ledger.read(folders[1]) as other:
        found = compare(side_of(one, at=at), side_of(other, at=at))
    failed = [condition.text for condition in wanted if holds(condition, found)]
    if session.json:
        session.answer("compare", {**compare_data(found), "failed": failed})
        return 1 if failed else 0
    session.console().print(compare_screen(found))
    for text in failed:
        session.say(f"fails: {text}")
    if not found.pairs:
        first, second = (runs.typed(folder, project=session.project) for folder in folders)
        session.say(f"\n  held-out  selfplay eval {first} {second}")
    return 1 if failed else 0
