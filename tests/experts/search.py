"""Experts of the search game on a whole corpus: how many questions become tasks, and how many are answered.

    python -m tests.experts.search CORPUS [SOURCE...] --seeds 20 --hops 3 --least 20

Two experts propose for each answer and two answer each question; one of each hands over as soon as it can, the other
in the tenth of its ten turns. They search through the tools that a model would have, and the checks are all on, with a
reader that knows nothing but what is shown to it. Fails where fewer than `--least` questions become tasks, where an
expert does not answer one, or where the corpus has fewer than `--passages` passages. CORPUS is made of the SOURCEs,
what `selfplay corpus add` takes, where there are any. Not a test by itself: it takes minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from selfplay.build import execute
from selfplay.events import Interrupt, ignore
from selfplay.ledger import Ledger
from selfplay.project import find_project
from selfplay.retrieval.sources import documents, name_of
from selfplay.retrieval.store import Corpus
from selfplay.retrieval.writing import add
from tests.experts.search_players import proposer, solver
from tests.experts.search_stage import SearchCast, config
from tests.experts.search_stage import project as staged
from tests.experts.stage import scripted


def who(reply: str) -> str:
    """The name that a player's first reply begins with."""
    return reply.split(".")[0].removeprefix("I am ")


def played(corpus: str, *, seeds: int, answers: int, hops: int) -> tuple[Counter[str], Counter[str]]:
    """What became of proposals and attempts, and their turns, by player, of one step on the corpus."""
    shipped = find_project(explicit=Path(__file__).parents[2])
    cast = SearchCast(
        proposers={"quick": proposer(), "patient": proposer(turns=10)},
        solvers={"quick": solver(), "patient": solver(turns=10)},
    )
    sets = (
        *(f"game.corpus={corpus}", f"game.answers={answers}", f"game.options={{hops={hops}}}"),
        *(f"curriculum.seeds={seeds}", "play.proposals=2", "play.attempts=2", "sandbox.workers=2"),
    )
    found: Counter[str] = Counter()
    turns: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as made, scripted(cast):
        at = staged(Path(made), shipped)
        folder = Path(made) / "runs" / "long"
        execute(config(at, *sets), project=at, folder=folder, observe=ignore, interrupt=Interrupt())
        with Ledger.read(folder) as ledger:
            assert ledger.check() == (), ledger.check()
            answer = {seed.id: seed.payload["answer"] for seed in ledger.seeds()}
            hop = {seed.id: seed.payload["hop"] for seed in ledger.seeds()}
            minted = ledger.verdicts(0, "propose", "mint")
            for one in ledger.trajectories(0, "propose"):
                found[f"{hop[one.subject_id]} searches asked: {minted[one.id].reason}"] += 1
                turns[f"{who(one.turns[1].text)} proposer: {sum(turn.sampled for turn in one.turns)} turns"] += 1
                if minted[one.id].reason != "valid":
                    print(f"  {answer[one.subject_id]!r}: {minted[one.id].why}"[:300])
            judged = ledger.verdicts(0, "attempt", "judge")
            for one in ledger.trajectories(0, "attempt"):
                found[f"attempt: {judged[one.id].reason}"] += 1
                turns[f"{who(one.turns[1].text)} solver: {sum(turn.sampled for turn in one.turns)} turns"] += 1
                if not judged[one.id].passed:
                    print(f"  {judged[one.id].why}"[:300])
            found["tasks"] = len(ledger.tasks(0))
    return found, turns


def main() -> int:
    """Play."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("corpus")
    parser.add_argument("sources", nargs="*")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--answers", type=int, default=500)
    parser.add_argument("--hops", type=int, default=2)
    parser.add_argument("--least", type=int, default=20)
    parser.add_argument("--passages", type=int, default=50_000)
    asked = parser.parse_args()
    for source in asked.sources:
        add(asked.corpus, name_of(source), documents(source))
    with closing(Corpus(asked.corpus)) as corpus:
        info = corpus.info()
    began = time.monotonic()
    found, turns = played(asked.corpus, seeds=asked.seeds, answers=asked.answers, hops=asked.hops)
    print(f"{info.passages} passages of {info.documents} documents, {time.monotonic() - began:.0f} s")
    for counts in (found, turns):
        print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    missed = sum(count for name, count in found.items() if name.startswith("attempt") and name != "attempt: passed")
    return 0 if info.passages >= asked.passages and found["tasks"] >= asked.least and not missed else 1


if __name__ == "__main__":
    sys.exit(main())
