"""A step of the search game from end to end: experts ask and answer in up to ten turns, everybody else is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from selfplay.build import execute
from selfplay.events import Interrupt, ignore
from selfplay.ledger import Ledger
from selfplay.project import Project
from selfplay.retrieval import Document
from selfplay.retrieval.writing import add
from tests.experts.search_players import PROPOSERS, SOLVERS, proposer, solver
from tests.experts.search_stage import SearchCast, config
from tests.experts.search_stage import project as staged
from tests.experts.stage import scripted

TOWNS = [
    "Lindisby",
    "Oxmouth",
    "Tarnwick",
    "Averham",
    "Corfield",
    "Dunmere",
    "Esterley",
    "Farrowby",
    "Glenholt",
    "Harlow",
]
TRADES = [
    "clockmaker",
    "printer",
    "shipwright",
    "founder",
    "surveyor",
    "apothecary",
    "mason",
    "weaver",
    "cooper",
    "glazier",
]
FIRST = [
    "Ambrose",
    "Barnaby",
    "Clement",
    "Desmond",
    "Everard",
    "Ferdinand",
    "Gervase",
    "Humphrey",
    "Isidore",
    "Jocelyn",
]
LAST = ["Kestrel", "Linnet", "Merlin", "Nuthatch", "Osprey", "Pintail", "Quail", "Redstart", "Siskin", "Treecreeper"]


def text(number: int) -> str:
    """A document of one passage, which names the town of the next one."""
    town, other = TOWNS[number % 10], TOWNS[(number + 1) % 10]
    name, year = f"{FIRST[number // 10]} {LAST[number % 10]}", 1600 + 3 * number
    return (
        f"The {TRADES[number // 10]} who worked longest beside the river at {town} was {name} of the old guild. "
        f"It was in the cold spring of {year} that {name} left for the bigger market of {other} with a cart. "
        f"People there still remember {name} for a bell that weighed {4000 + 7 * number} pounds and never rang."
    )


def made(name: str) -> None:
    add(
        name,
        "towns",
        [
            Document(
                id=f"{number:03d}",
                title=f"Trades {number}",
                digest=text(number),
                pieces=lambda n=number: (text(n),),  # type: ignore[misc]
            )
            for number in range(100)
        ],
    )


@pytest.mark.slow
def test_experts_play_ten_turns_and_all_others_are_refused(
    tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))
    made("towns")
    at = staged(tmp_path, project)
    cast = SearchCast(
        proposers={"quick": proposer(), "patient": proposer(turns=10), **{n: one for n, (one, _) in PROPOSERS.items()}},
        solvers={"quick": solver(), "patient": solver(turns=10), **{n: one for n, (one, _) in SOLVERS.items()}},
    )
    sets = (
        *("game.corpus=towns", "game.answers=40", "game.options={hops=2}", "curriculum.seeds=6"),
        *(f"play.proposals={len(cast.proposers)}", f"play.attempts={len(cast.solvers)}"),
    )
    with scripted(cast):
        folder = tmp_path / "runs" / "search"
        outcome = execute(config(at, *sets), project=at, folder=folder, observe=ignore, interrupt=Interrupt())
    assert outcome.stop == "done"
    experts = {"quick", "patient"}
    with Ledger.read(folder) as ledger:
        assert ledger.check() == ()
        minted = ledger.verdicts(0, "propose", "mint")
        hops = {seed.id: seed.payload["hop"] for seed in ledger.seeds()}
        searched = set()
        for played in ledger.trajectories(0, "propose"):
            who, verdict = _who(played.turns[1].text), minted[played.id]
            assert verdict.reason == ("valid" if who in experts else PROPOSERS[who][1]), (who, verdict.why)
            if who in experts:
                searched.add((who, hops[played.subject_id], sum(turn.sampled for turn in played.turns)))
        assert {turns for who, _, turns in searched if who == "patient"} == {10}
        assert {hop for _, hop, _ in searched} == {1, 2}
        judged = ledger.verdicts(0, "attempt", "judge")
        for played in ledger.trajectories(0, "attempt"):
            who, verdict = _who(played.turns[1].text), judged[played.id]
            assert verdict.reason == ("passed" if who in experts else SOLVERS[who][1]), (who, verdict.why)
            if who == "patient":
                assert sum(turn.sampled for turn in played.turns) == 10
        update = ledger.update(0)
        assert update is not None
        assert update.skipped is None


@pytest.mark.slow
def test_a_ladder_over_hops(tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))
    made("towns")
    at = staged(tmp_path, project)
    sets = (
        *("game.corpus=towns", "game.answers=40", "game.options={hops=2}", "curriculum.seeds=4", "play.attempts=2"),
        *("curriculum.choose=ladder", "run.steps=2"),
        'curriculum.options={level="hop", enough=1, unlock=0.5, review=0.0}',
    )
    with scripted(SearchCast(proposers={"quick": proposer()}, solvers={"quick": solver()})):
        folder = tmp_path / "runs" / "search"
        execute(config(at, *sets), project=at, folder=folder, observe=ignore, interrupt=Interrupt())
    with Ledger.read(folder) as ledger:
        assert ledger.check() == ()
        assert ledger.tasks(0), "what is solved on the first rung unlocks the second"
        hops = {seed.id: seed.payload["hop"] for seed in ledger.seeds()}
        asked = [{hops[choice.subject_id] for choice in ledger.choices(step)} for step in range(2)]
    assert asked == [{1}, {2}]


def _who(reply: str) -> str:
    return reply.split(".")[0].removeprefix("I am ")
