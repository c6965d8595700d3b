"""Experts on whole packages: how many of the artifacts that they hand over become tasks, and how many repairs pass.

    python -m tests.experts.long --sandbox docker --proposals 10 --least 30 --children 5

Each package is played for two steps of `--proposals` choices each: experts that take other functions where they are
told the same module and hand over in one session or in two stages, in turns, and, in the second step, children of
failed attempts for half of them. One expert and one that mends nothing attempt each task. Afterwards every bug is
proved again (`reverify --tasks`) and the tasks are exported as rows of SWE-bench, whose patches git applies. A token is
a line here (`stage`).

Fails where fewer than `--least` tasks of the first order or `--children` of the second were made in all, an expert's
repair does not pass, a bug does not hold, a patch does not lead to the tree it says, or a sandbox is left. Not a test
by itself: it takes minutes a package.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from selfplay.build import execute
from selfplay.cache import cache_folder
from selfplay.config import load
from selfplay.events import Interrupt, ignore
from selfplay.games.code.source import fetch
from selfplay.games.code.swebench import Packed
from selfplay.games.code.swebench import rows as rows_of
from selfplay.ledger import Ledger, Reader, watching
from selfplay.project import Project, find_project
from selfplay.reverify import reverify
from selfplay.types import record
from selfplay.views.cost import cost_of
from tests.experts.export import wrong_rows
from tests.experts.players import half, in_stages, patient, proposer, solver
from tests.experts.stage import Cast, left_by_us, scripted
from tests.experts.stage import project as staged

SOURCES = ("pypi:toolz==1.2.0", "pypi:boltons==26.2.0", "pypi:more-itertools==10.8.0", "pypi:click==8.1.8")
"""The last one has a `src` layout."""
STEPS = 2
STRIDE = 7
"""Functions between those that two experts begin with."""
TITLES = ("package", "proposed", "valid", "first order", "asked", "children", "repairs", "rows")
COSTS = ("replies", "tokens", "calls", "sandbox_seconds", "seconds")


@record
class Row:
    """What became of one package."""

    source: str
    counts: dict[str, int]
    reasons: dict[str, int]
    """Of proposals that became no task."""
    price: dict[str, float]
    """Of an accepted task."""
    seconds: float
    wrong: tuple[str, ...]
    """What did not hold, in sentences."""


def played(source: str, *, sandbox: str, proposals: int, rows_to: Path | None = None) -> Row:
    """Play a package, and try what is made of it; rows of SWE-bench are added to the file `rows_to`."""
    began = time.monotonic()
    shipped = find_project(explicit=Path(__file__).parents[2])
    clean = fetch(source, cache=cache_folder()).root
    cast = Cast(
        proposers={f"expert{nth}": patient((proposer, in_stages)[nth % 2](STRIDE * nth)) for nth in range(proposals)},
        solvers={"expert": patient(solver(clean)), "half": patient(half(clean))},
    )
    with tempfile.TemporaryDirectory() as made, scripted(cast):
        at = staged(Path(made), shipped, seconds=1800.0, turns=40)
        folder = Path(made) / "runs" / "long"
        config = load("code-agent", project=at, sets=_sets(source, sandbox, proposals), environ={})
        execute(config, project=at, folder=folder, observe=ignore, interrupt=Interrupt())
        with Ledger.read(folder) as ledger:
            row = _row(source, ledger, began=began)
        return _tried(row, folder, at, sandbox=sandbox, rows_to=rows_to)


def _sets(source: str, sandbox: str, proposals: int) -> list[str]:
    return [
        *(f"game.source={source}", "policy.model=toy", f"sandbox.kind={sandbox}", f"run.steps={STEPS}"),
        *(f"curriculum.seeds={proposals}", "curriculum.choose=ssr", "alarms.stop=[]"),
        "curriculum.options={strategies='removal', second=0.5}",
        *("play.proposals=1", "play.attempts=2", "play.refills=0", "play.min_viable=1"),
        *("learner.token_budget=4096", "learner.dtype=float32", "sandbox.workers=0"),
    ]


def _row(source: str, ledger: Reader, *, began: float) -> Row:
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    wrong = [str(one) for one in ledger.check()]
    for step in range(STEPS):
        for verdict in ledger.verdicts(step, "propose", "mint").values():
            counts["proposed"] += 1
            counts["valid"] += verdict.valid
            reasons[verdict.reason] += not verdict.valid
        counts["asked"] += sum(choice.mode == "mutate" for choice in ledger.choices(step))
        for task in ledger.tasks(step):
            counts["children" if task.payload["artifact"]["order"] == 2 else "first order"] += 1
        judged = ledger.verdicts(step, "attempt", "judge")
        for attempt in ledger.trajectories(step, "attempt"):
            if attempt.turns[1].text.startswith("I am expert."):
                counts["repairs"] += judged[attempt.id].passed is True
                if not judged[attempt.id].passed:
                    wrong.append(f"an expert's repair of {attempt.subject_id[:12]}: {judged[attempt.id].why}")
    rows = ledger.step_rows()
    price = cost_of(rows, ledger.ask(lambda ask: watching.spent(ask, 0, STEPS)))
    return Row(
        source=source,
        counts=dict(counts),
        reasons=dict(+reasons),
        price=dict(price or dict.fromkeys(COSTS, 0.0)),
        seconds=time.monotonic() - began,
        wrong=tuple(wrong),
    )


def _tried(row: Row, folder: Path, at: Project, *, sandbox: str, rows_to: Path | None) -> Row:
    """What is left of the run, the bugs once more, and the exported rows."""
    wrong = [*row.wrong, *(f"sandbox {name} is left" for name in left_by_us(sandbox))]
    again = reverify(folder, project=at, tasks=True, say=lambda text: None)
    wrong += [f"task {one.id[:12]}: {one.why}" for one in again.changed]
    wrong += [f"{again.undecided} bugs were not decided again"] if again.undecided else []
    with Ledger.read(folder) as ledger:
        tasks = [task for step in range(STEPS) for task in ledger.tasks(step)]
    packed = Packed(
        repository=fetch(row.source, cache=cache_folder()), requirements=("pytest",), created_at="2026-01-01T00:00:00Z"
    )
    count, bad = wrong_rows(tasks, packed=packed)
    if rows_to is not None:
        with rows_to.open("a") as file:
            file.writelines(json.dumps(one) + "\n" for one in rows_of(tasks, packed=packed))
    return replace(row, counts={**row.counts, "rows": count}, wrong=(*wrong, *bad))


def table(rows: Sequence[Row]) -> str:
    """In Markdown."""
    titles = [*TITLES, *(name.replace("_", " ") for name in COSTS), "minutes"]
    lines = [f"| {' | '.join(titles)} |", f"|---{'|--:' * (len(titles) - 1)}|"]
    for row in rows:
        cells = [row.source.removeprefix("pypi:"), *(str(row.counts.get(name, 0)) for name in TITLES[1:])]
        cells += [f"{row.price[name]:,.1f}" for name in COSTS]
        lines.append(f"| {' | '.join([*cells, f'{row.seconds / 60:.1f}'])} |")
    return "\n".join(lines)


def main() -> int:
    """Play every package."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--sandbox", default="docker")
    parser.add_argument("--proposals", type=int, default=10)
    parser.add_argument("--least", type=int, default=30)
    parser.add_argument("--children", type=int, default=5)
    parser.add_argument("--rows", type=Path, help="a file that the rows of SWE-bench are added to")
    parser.add_argument("sources", nargs="*", default=SOURCES)
    asked = parser.parse_args()
    rows: list[Row] = []
    for source in asked.sources:
        rows.append(played(source, sandbox=asked.sandbox, proposals=asked.proposals, rows_to=asked.rows))
        print(f"{source}: {rows[-1].counts}, refused {rows[-1].reasons}", *rows[-1].wrong, sep="\n  ", flush=True)
    print(table(rows))
    first, second = (sum(row.counts.get(name, 0) for row in rows) for name in ("first order", "children"))
    wrong = sum(len(row.wrong) for row in rows)
    print(f"{first} tasks of the first order, {second} of the second; {wrong} things did not hold")
    return 0 if first >= asked.least and second >= asked.children and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
