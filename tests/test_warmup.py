"""The warm-up: recorded, resumable at every update, ended by its dev set, and taken from the cache."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from selfplay import loop, warmup
from selfplay.build import assemble
from selfplay.config import Config
from selfplay.events import Event, Interrupt
from selfplay.games.echo import ALPHABET, EchoGame
from selfplay.ledger import Ledger
from selfplay.project import Project
from selfplay.stages import Interrupted
from selfplay.types import Example, Seed, Task, digest, draw, task_id

WORDS = [*ALPHABET, *(a + b for a in ALPHABET for b in ALPHABET)]


class Taught(EchoGame):
    """The toy game with examples to imitate and a dev set."""

    def __init__(self, game: EchoGame) -> None:
        self.__dict__.update(game.__dict__)

    def examples(self, *, seed: int, first: int, count: int) -> Sequence[Example]:
        found = []
        for index in range(first, first + count):
            word = WORDS[draw(seed, "word", index) % len(WORDS)]
            if index % 2:
                found.append(Example(role="echo_solver", source=word, prompt=f"{word}>", replies=(word,)))
            else:
                marks = "?" * len(word)
                replies = tuple(w for w in WORDS if len(w) == len(word))[:4]
                found.append(Example(role="echo_proposer", source=word, prompt=f"{marks}>", replies=replies))
        return found

    async def dev(self) -> tuple[Sequence[Seed], Sequence[Task]]:
        seeds = await self.seeds()
        tasks = [
            Task(
                id=task_id(self._config_digest, game="echo", key=f"dev:{word}"),
                game="echo",
                seed_id=seeds[0].id,
                key=f"dev:{word}",
                payload={"word": word},
                split="train",
                step=-1,
            )
            for word in ("a", "b", "ab", "ba")
        ]
        return seeds, tasks


@pytest.fixture
def teach(tmp_path: Path, toy_config: Callable[..., Config], project: Project) -> Callable[..., list[Event]]:
    """`teach("run", steps=2, updates=10)`: run with a warm-up; returns its events."""

    def run(
        name: str,
        *,
        steps: int,
        updates: int = 8,
        check_every: int = 4,
        solve_rate: tuple[float, float] = (0.1, 0.6),
        cache: bool = False,
        role: str | None = None,
        stop_after: int | None = None,
    ) -> list[Event]:
        config = toy_config(f"run.steps={steps}", "learner.lr=1e-3", "warmup.lr=1e-2")
        events: list[Event] = []
        interrupt = Interrupt()

        def observe(event: Event) -> None:
            events.append(event)
            if event.kind == "update" and event.step == stop_after:
                interrupt.press()

        async def main(ledger: Ledger) -> None:
            folder = tmp_path / name
            parts = assemble(
                config, project=project, folder=folder, ledger=ledger, observe=observe, interrupt=interrupt
            )
            async with parts as built:
                assert isinstance(built.game, EchoGame)
                plan = warmup.WarmUp(steps=updates, examples=8, check_every=check_every, solve_rate=solve_rate)
                taught = replace(
                    built,
                    game=Taught(built.game),
                    settings=replace(built.settings, warmup=plan),
                    warm_cache=tmp_path / "warm" if cache else None,
                    origins=built.origins if role is None else lambda: {"role echo_solver": role},
                )
                try:
                    await loop.run(taught)
                except Interrupted:
                    events.append(Event(kind="end", data={"stop": "interrupted"}))

        with ledger_in(tmp_path / name, config) as ledger:
            asyncio.run(main(ledger))
        return events

    return run


def ledger_in(folder: Path, config: Config) -> Ledger:
    if (folder / "ledger.db").exists():
        return Ledger.open(folder)
    values: dict[str, Any] = config.values()
    return Ledger.create(folder, config_digest=config.digest, config=values, seed=0, game="echo")


def digests(folder: Path) -> dict[str, str]:
    with Ledger.read(folder) as ledger:
        return dict(ledger.comparable())


def notes(events: Sequence[Event]) -> list[str]:
    return [event.data["text"] for event in events if event.kind in ("note", "alarm")]


def test_it_teaches_is_recorded_and_comes_before_self_play(tmp_path: Path, teach: Callable[..., list[Event]]) -> None:
    events = teach("run", steps=1, updates=30, check_every=0, solve_rate=(0.0, 1.0))
    losses = [event.data["loss"] for event in events if event.kind == "update"]
    assert losses[-1] < losses[0] / 2
    with Ledger.read(tmp_path / "run") as ledger:
        updates = ledger.updates("warmup")
        assert [u.step for u in updates] == list(range(30))
        assert len({u.weights_digest for u in updates}) == 30
        first = ledger.update(0)
        assert first is not None
        assert first.policy_version == 31
        assert ledger.trajectories(30, "evaluate")


def test_it_ends_as_soon_as_the_dev_set_is_in_range(teach: Callable[..., list[Event]]) -> None:
    events = teach("run", steps=0, updates=200, check_every=10, solve_rate=(0.1, 1.0))
    ended = sum(event.kind == "update" for event in events)
    assert ended < 200
    assert ended % 10 == 0
    assert f"after {ended} warm-up updates" in notes(events)[-1]


def test_it_says_so_where_it_was_too_short(teach: Callable[..., list[Event]]) -> None:
    assert any("before the dev set was in range" in text for text in notes(teach("run", steps=0, updates=1)))


@pytest.mark.parametrize("stop_after", [0, 3, 6])
def test_an_interrupted_warm_up_equals_an_uninterrupted_one(
    tmp_path: Path, teach: Callable[..., list[Event]], stop_after: int
) -> None:
    never = (0.99, 1.0)  # in range, so that it does not end before it is interrupted
    teach("whole", steps=2, solve_rate=never)
    assert teach("parts", steps=2, solve_rate=never, stop_after=stop_after)[-1].data["stop"] == "interrupted"
    events = teach("parts", steps=2, solve_rate=never)
    assert any("re-applying" in text for text in notes(events))
    assert digests(tmp_path / "parts") == digests(tmp_path / "whole")


def test_warmed_weights_come_from_the_cache_with_their_records(
    tmp_path: Path, teach: Callable[..., list[Event]]
) -> None:
    teach("first", steps=2, cache=True)
    events = teach("second", steps=2, cache=True)
    assert not any(event.kind == "update" for event in events)
    assert any("taken from the cache" in text for text in notes(events))
    one, two = digests(tmp_path / "first"), digests(tmp_path / "second")
    assert one["updates"] == two["updates"]


def test_what_was_taught_another_prompt_is_not_taken(tmp_path: Path, teach: Callable[..., list[Event]]) -> None:
    for name, role in (("first", "1"), ("second", "2"), ("third", "1")):
        events = teach(name, steps=0, updates=2, check_every=0, cache=True, role=role)
        assert any("taken from the cache" in text for text in notes(events)) == (name == "third")
    assert len(list(tmp_path.glob("*/model.safetensors"))) == 2


@dataclass(frozen=True)
class Held:
    """What of a run says where its warmed weights lie."""

    warm_cache: Path | None
    ledger: Ledger
    game: EchoGame


def test_a_chats_warmed_weights_lie_elsewhere_and_those_of_plain_text_where_they_were(
    tmp_path: Path, toy_config: Callable[..., Config], project: Project
) -> None:
    asker, solver = (project.load_role(name) for name in ("echo_proposer", "echo_solver"))

    def where(ledger: Ledger, *, place: Path | None = tmp_path / "key", **templates: Any) -> Path | None:
        own = replace(solver, template=templates.get("solver", "plain"))
        first = replace(asker, template=templates.get("proposer", "plain"))
        game = EchoGame(proposer=first, solver=own, proposer_reward=lambda *_: 0.0, config_digest="c")
        return warmup._cache(Held(warm_cache=place, ledger=ledger, game=game))  # type: ignore[arg-type]

    with ledger_in(tmp_path / "run", toy_config()) as ledger:
        assert where(ledger) == tmp_path / "key"
        assert where(ledger, solver="chat") not in (None, tmp_path / "key")
        ledger.append_origins({"role echo_solver": "1"})
        plain = where(ledger)
        assert plain == tmp_path / digest("warm", "key", {"role echo_solver": "1"})
        assert where(ledger, solver="chat") == where(ledger, proposer="chat") != plain
        assert where(ledger, place=None, solver="chat") is None


def test_a_damaged_cache_is_dropped_and_made_again(tmp_path: Path, teach: Callable[..., list[Event]]) -> None:
    teach("first", steps=0, cache=True)
    (weights,) = tmp_path.glob("*/model.safetensors")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    events = teach("second", steps=0, cache=True)
    assert any("it was dropped" in text for text in notes(events))
    assert digests(tmp_path / "second")["updates"] == digests(tmp_path / "first")["updates"]
