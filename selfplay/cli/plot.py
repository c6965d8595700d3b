"""`selfplay plot`: curves of one run or several, as a file or in the terminal.

Not here: drawing (`views.draw`).
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from selfplay.cli import runs
from selfplay.cli.session import Session, common
from selfplay.errors import NotReady, UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from selfplay.views.plots import Chart

TERMINAL = "terminal"


@click.command("plot", short_help="Curves of one run or several, as SVG or in the terminal.")
@click.argument("names", nargs=-1, required=True, metavar="RUN...")
@click.option("--metric", "wanted", multiple=True, metavar="NAME", help="Repeatable [default: the usual ones].")
@click.option("--to", default=TERMINAL, show_default=True, metavar="FILE", help="FILE.svg, FILE.png, or `terminal`.")
@common
def command(session: Session, names: tuple[str, ...], *, wanted: tuple[str, ...], to: str) -> None:
    """Draw curves of one RUN or several over each other, step by step.

    NAME is valid, solved, informative, proposer_reward, solver_reward, tasks, seconds, loss, grad_norm, held_out
    (pass@1 with its interval), or anything that the updates measured, such as entropy. Runs of one name are told apart
    by the folders that they lie in.

    \b
    Examples:
      selfplay plot last
      selfplay plot quickstart quickstart-2 --metric solved --to solved.svg
    """
    suffix = Path(to).suffix
    if to != TERMINAL and suffix not in (".svg", ".png"):
        raise UserError(f"`{to}` is no place for a picture", hint="--to FILE.svg, --to FILE.png, or --to terminal")
    found = [runs.find_run(name, project=session.project) for name in names]
    charts = _charts(list({folder.resolve(): folder for folder in found}.values()), wanted)
    if to != TERMINAL:
        _write(Path(to), charts, as_png=suffix == ".png")
    if session.json:
        file = None if to == TERMINAL else to
        session.answer("plot", {"file": file, "charts": [_data(chart) for chart in charts]})
    elif to == TERMINAL:
        from selfplay.views.draw import terminal

        console = session.console()
        console.print(terminal(charts, width=console.width))
    else:
        session.data.write(f"{to}\n")


def _charts(folders: Sequence[Path], wanted: Sequence[str]) -> list[Chart]:
    from selfplay.ledger import Ledger, watching
    from selfplay.project import did_you_mean
    from selfplay.views.draw import DEFAULT, HELD_OUT, chart_of, held_out_chart, metrics

    with ExitStack() as stack:
        readers = {name: stack.enter_context(Ledger.read(folder)) for name, folder in _names(folders).items()}
        found = {
            name: (
                reader.step_rows(),
                {one.step: one for one in reader.ask(partial(watching.learnt, after=-1))},
            )
            for name, reader in readers.items()
        }
        learnt = {(name, step): one for name, (_, updates) in found.items() for step, one in updates.items()}
        known = {one.name: one for one in metrics(dict(enumerate(learnt.values())))}
        for name in wanted:
            if name not in known and name != HELD_OUT:
                near = did_you_mean(name, [*known, HELD_OUT])
                raise UserError(f"no metric `{name}`", hint=f"{near}Known: {', '.join([*known, HELD_OUT])}")
        evaluated = any(int(reader.run_row().config.get("eval.every") or 0) for reader in readers.values())
        names = wanted or (*DEFAULT, *((HELD_OUT,) if evaluated else ()))
        return [held_out_chart(readers) if name == HELD_OUT else chart_of(known[name], found) for name in names]


def _names(folders: Sequence[Path]) -> dict[str, Path]:
    """Each run by its name; where several have one name, by the shortest end of its path that no other has."""
    found = {}
    for folder in folders:
        length = 1
        while sum(other.parts[-length:] == folder.parts[-length:] for other in folders) > 1:
            length += 1
        found[str(Path(*folder.parts[-length:]))] = folder
    return found


def _write(file: Path, charts: Sequence[Chart], *, as_png: bool) -> None:
    from selfplay.views.draw import png, svg

    text = svg(charts)
    data = png(text) if as_png else text.encode()
    try:
        file.write_bytes(data)
    except OSError as error:
        raise NotReady(
            f"cannot write {file}: {error.strerror}", hint=f"check the folder: ls -ld {file.parent}"
        ) from error


def _data(chart: Chart) -> dict[str, Any]:
    return {
        "title": chart.title,
        "percent": chart.percent,
        "series": [{"run": one.name, "points": list(one.points), "band": list(one.band)} for one in chart.series],
    }
