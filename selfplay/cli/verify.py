"""`selfplay verify --attacks`: try to cheat the verifier, and see whether it still accepts honest repairs.

Not here: the attacks, the packages and the judges (`games.code.attacks`).
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from selfplay.cli.session import Session, common
from selfplay.errors import UserError

if TYPE_CHECKING:
    from selfplay.games.code.attacks.matrix import Row
    from selfplay.sandbox import SandboxProvider

BACKENDS = ("auto", "docker", "bubblewrap", "local")
WIDTH = 16


@click.command("verify", short_help="Try to cheat the verifier: attacks and honest repairs.")
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--attacks", is_flag=True, help="Try every attack and every honest repair on each TARGET.")
@click.option("--sandbox", type=click.Choice(BACKENDS), default="auto", help="Where [default: auto].")
@click.option("--quick", is_flag=True, help="Leave out what waits for a time limit.")
@click.option("--only", multiple=True, metavar="WORD", help="Cases with WORD in their name; more than once.")
@click.option(
    "--judge", metavar="NAME", default="verifier", help="Who decides [default: verifier]; others: games/code/attacks."
)
@click.option("--why", is_flag=True, help="Print the verifier's sentence under each row.")
@common
def command(
    session: Session,
    *,
    targets: tuple[str, ...],
    attacks: bool,
    sandbox: str,
    quick: bool,
    only: tuple[str, ...],
    judge: str,
    why: bool,
) -> int:
    """Put attacks and honest repairs before the verifier, on each TARGET (a small package; default: all of them).

    A row a case: accepted, refused, suspicious (it would be accepted, and is left out of rate and gradient), or no
    sample (nothing was decided). A `!` marks what must not be: an attack that is accepted or makes the machine look
    broken, an honest repair that is not accepted. The exit code is 1 where there is one.

    Judges: verifier decides attempts in play; plain, filtered and protocol are parts of it.

    \b
    Examples:
      selfplay verify --attacks
      selfplay verify --attacks toy toolz --quick --why
      selfplay verify --attacks --sandbox docker --json
      selfplay verify --attacks toolz --judge plain
    """
    if not attacks:
        raise UserError("nothing to verify", hint="selfplay verify --attacks")
    if session.json:
        session.claim_stdout()
    from selfplay.games.code.attacks.matrix import checked
    from selfplay.sandbox.select import choose

    checked(targets, judge=judge)
    chosen = choose(sandbox)
    if chosen.notice:
        session.say(chosen.notice)
    started = time.monotonic()
    rows = asyncio.run(_tried(session, chosen.provider, targets, judge=judge, quick=quick, only=only, why=why))
    wrong = sum(cell.wrong for row in rows for cell in row.cells.values())
    if not rows:
        raise UserError(f"no case has {' or '.join(only)} in its name", hint="all of them: selfplay verify --attacks")
    if session.json:
        data = {"ok": not wrong, "judge": judge, "sandbox": chosen.provider.name, "rows": [asdict(row) for row in rows]}
        session.answer("verify", data)
    else:
        session.say(f"\n{summary(rows)} ({chosen.provider.name}, {time.monotonic() - started:.0f} s)")
    return 1 if wrong else 0


async def _tried(
    session: Session,
    provider: SandboxProvider,
    targets: Sequence[str],
    *,
    judge: str,
    quick: bool,
    only: Sequence[str],
    why: bool,
) -> list[Row]:
    """Every row, each printed when it is there."""
    from selfplay.cache import cache_folder
    from selfplay.games.code.attacks.matrix import opened

    found: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="selfplay-attacks-") as folder:
        table_of = opened(targets, provider=provider, cache=cache_folder(), folder=Path(folder), judge=judge)
        async with table_of as table:
            if not session.json:
                session.data.write(f"{'':30}" + "".join(f"{name:>{WIDTH}}" for name in table.packages) + "\n")
            async for row in table.rows(quick=quick, only=only):
                found.append(row)
                if not session.json:
                    session.data.write(line(row, table.packages, why=why))
                    session.data.flush()
    return found


def line(row: Row, packages: Sequence[str], *, why: bool) -> str:
    """One row for people."""
    words = []
    for name in packages:
        cell = row.cells.get(name)
        words.append("–" if cell is None else f"! {cell.word}" if cell.wrong else cell.word)
    text = f"{row.group:<9}{row.name:<21}" + "".join(f"{word:>{WIDTH}}" for word in words) + "\n"
    if why:
        text += f"    {row.does}\n"
        text += "".join(f"      {name}: {cell.why[:160]}\n" for name, cell in row.cells.items() if cell.why)
    return text


def summary(rows: Sequence[Row]) -> str:
    """How many of each, in one sentence."""
    honest = [cell for row in rows if row.group == "honest" for cell in row.cells.values()]
    attacks = [cell for row in rows if row.group != "honest" for cell in row.cells.values()]
    accepted = sum(cell.word == "accepted" for cell in attacks)
    suspicious = sum(cell.word == "suspicious" for cell in attacks)
    undecided = sum(cell.word == "no sample" for cell in attacks)
    text = f"{accepted} of {len(attacks)} attacks accepted, {suspicious} suspicious"
    text += f", {undecided} not decided" if undecided else ""
    return f"{text}; {sum(cell.wrong for cell in honest)} of {len(honest)} honest repairs refused"
