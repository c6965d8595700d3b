"""`frontier` replays what is learnable, asks for tasks where they were, and says the numbers it went by."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import exp, isfinite, log, sqrt

import pytest

from selfplay.curriculum import configured, frontier
from selfplay.curriculum.history import Played, look
from selfplay.curriculum.pool import displaced, on_probation, ranked, replayable
from selfplay.curriculum.presets import FRONTIER, Frontier
from selfplay.curriculum.where import Place, fresh, learnability, normal, places
from selfplay.types import Choice, Seed, Task
from tests.curriculum.past import Past, proposed, seeds, task

MOVED = dict.fromkeys(range(100), 1.0)


def choose(
    past: Past | Rehearsed, train: int = 8, *, n: int = 4, step: int = 10, **other: object
) -> tuple[Choice, ...]:
    return frontier(past, seeds(train), n=n, step=step, seed=0, **other)  # type: ignore[arg-type]


def modes(choices: tuple[Choice, ...]) -> Counter[str]:
    return Counter(choice.mode for choice in choices)


def test_half_of_the_tasks_played_are_known_ones() -> None:
    known, half = [task(f"k{i}", (9, 4)) for i in range(40)], Frontier(only_better=False)
    one = Past(tasks=known, moved=MOVED)
    new = sum(modes(choose(one, 40, n=10, step=step, options=half))["propose"] for step in range(10, 50))
    assert new / 400 == pytest.approx(0.5, abs=0.05)
    many = Past(tasks=known, moved=MOVED, proposed={"t0": proposed(10, 40, 30)})
    new = sum(modes(choose(many, 40, n=10, step=step, options=half))["propose"] for step in range(10, 50))
    assert new / 400 == pytest.approx(0.25, abs=0.05), "a choice gives three tasks: a quarter of the choices propose"


def test_the_learnable_are_replayed_and_the_numbers_are_said() -> None:
    past = Past(tasks=[task("easy", (9, 7)), task("edge", (7, 4)), task("dead", (9, 0))], moved=MOVED)
    greedy = Frontier(replay=1.0, temperature=0.01, staleness=0.0, only_better=False)
    (choice,) = choose(past, n=1, options=greedy)
    assert (choice.mode, choice.subject_id) == ("replay", "edge")
    for words in ("rank 1 of 2", "4 of 8 attempts solved in solver", "last played 3 steps ago", "0 replays"):
        assert words in choice.why
    assert choice.score == pytest.approx(0.7 * 0.22, abs=0.02), "faded by its play"


class Rehearsed:
    """A past with eight given tasks, of which it chose some."""

    def __init__(self, past: Past, *chosen: str) -> None:
        self._past, self._chosen = past, chosen

    def __getattr__(self, name: str) -> object:
        return getattr(self._past, name)

    def tasks(self, step: int) -> list[Task]:
        kinds = {"game": "toy", "key": "k", "payload": {}, "split": "train", "step": -1, "parent_id": None}
        return [Task(id=f"g{i}", seed_id=f"t{i}", **kinds) for i in range(8)] if step == -1 else []

    def choices(self, step: int) -> list[Choice]:
        given = {"step": 0, "mode": "replay", "score": 0.0, "why": ""}
        return [Choice(index=i, subject_id=one, **given) for i, one in enumerate(self._chosen)] if step == 0 else []


def test_a_share_is_rehearsed_the_least_chosen_first() -> None:
    known, options = Past(tasks=[task(f"k{i}", (9, 4)) for i in range(40)], moved=MOVED), Frontier(rehearse=0.25)
    given, past = {f"g{i}" for i in range(8)}, Rehearsed(known)
    assert (options.beforehand, FRONTIER.beforehand) == ("procedural", "")
    found = [choose(past, 40, n=8, step=step, options=options) for step in range(10, 30)]
    rehearsed = [[one for one in choices if one.why.startswith("rehearsed")] for choices in found]
    assert {len(choices) for choices in found} == {8}
    assert {len(one) for one in rehearsed} == {2}, "a quarter of eight"
    assert {one.mode for each in rehearsed for one in each} == {"replay"}
    past = Rehearsed(known, "g0", "g0", "g1", "g2", "g3", "g4", "g5")
    for step in range(10, 14):
        assert {one.subject_id for one in choose(past, 40, n=8, step=step, options=options)} & given == {"g6", "g7"}
    last = choose(past, 40, n=8, step=10, options=options, taken=given - {"g0"})
    assert "g0" in {one.subject_id for one in last}, "what was chosen in this step already comes last"


def test_a_rehearsed_task_is_not_replayed_as_well() -> None:
    past = Rehearsed(Past(tasks=[task(f"g{i}", (9, 4)) for i in range(8)], moved=MOVED))
    for step in range(10, 30):
        names = [one.subject_id for one in choose(past, 8, n=8, step=step, options=Frontier(rehearse=0.5))]
        assert len(set(names)) == len(names)


def test_what_is_mastered_played_out_or_given_up_leaves_the_pool() -> None:
    tasks = [
        task("fresh", (9, 4)),
        task("mastered", (1, 8), (5, 8), (9, 8)),
        task("played out", *((step, 4) for step in range(5))),
        task("failed", (9, 0)),
    ]
    seen = look(Past(tasks=tasks, moved=MOVED), seeds(2), step=10, staleness=0, window=64, half_life=30, patience=50)
    left = replayable(seen, taken=(), max_replays=4, retire=0.85, give_up=1)
    assert [one.task.id for one in left] == ["fresh"]
    assert len(replayable(seen, taken=(), max_replays=0, retire=1.0, give_up=0)) == 4
    assert not replayable(seen, taken={"fresh"}, max_replays=4, retire=0.85, give_up=1)


def test_probation_tells_hard_from_wrong() -> None:
    tasks = [
        task("new", (8, 0)),
        task("twice", (7, 0), (8, 0)),
        task("hard", (5, 0), (6, 0), (7, 6, True)),
        task("wrong", (5, 0), (6, 0), (7, 0, True), (8, 0, True)),
    ]
    past = Past(tasks=tasks, moved=MOVED)
    seen = look(past, seeds(2), step=10, staleness=0, window=64, half_life=30, patience=50)
    assert [one.task.id for one in on_probation(seen, taken=(), give_up=2)] == ["twice"]
    back = replayable(seen, taken=(), max_replays=4, retire=0.85, give_up=2)
    assert {one.task.id for one in back} == {"new", "hard"}
    assert {one.task.id: one.regret for one in seen.candidates}["hard"] == 0.75
    chosen = choose(past, n=2, options=Frontier(probation=0.5, give_up=2))
    (retried,) = (choice for choice in chosen if choice.terms)
    assert (retried.mode, retried.subject_id, dict(retried.terms)) == ("replay", "twice", {"hint": True})
    assert "none of 16 attempts in 2 plays" in retried.why


def test_new_tasks_are_asked_for_where_they_were_learnable() -> None:
    where = seeds(40, path=lambda i: "good.py" if i < 20 else "bad.py")
    tasks = [task(f"g{i}", (9, 4), seed_id=f"t{i}") for i in range(5)]
    tasks += [task(f"b{i}", (9, 0), seed_id=f"t{20 + i}") for i in range(5)]
    past = Past(tasks=tasks, moved=MOVED, counts={f"t{i}": 1 for i in range(40)})
    picked: Counter[str] = Counter()
    for step in range(10, 60):
        chosen = frontier(past, where, n=4, step=step, seed=0, options=Frontier(replay=0.0))
        picked.update("good" if int(choice.subject_id[1:]) < 20 else "bad" for choice in chosen)
    assert picked["good"] > 1.8 * picked["bad"] > 0, "it prefers, and starves nobody"


def looked(past: Past, where: list[Seed], *, step: int = 10) -> dict[str, Place]:
    seen = look(past, where, step=step, staleness=0, window=64, half_life=30, patience=50)
    return {place.seed.id: place for place in places(seen, target=0.5, half_life=30, key=(0, step))}


def test_what_is_expected_of_a_seed_is_shrunk_towards_its_module_and_all() -> None:
    where = seeds(4, path=lambda i: "good.py" if i < 2 else "bad.py")
    past = Past(proposed={"t0": proposed(2, 8, 8), "t2": proposed(2, 8, 0)}, moved=MOVED)
    valid = {name: place.valid for name, place in looked(past, where).items()}
    assert valid["t0"] > valid["t1"] > 0.5 > valid["t3"] > valid["t2"]
    tasks = [task(f"e{i}", (9, 7), seed_id="t0") for i in range(4)] + [
        task(f"h{i}", (9, 1), seed_id="t2") for i in range(4)
    ]
    solve = {name: place.solve for name, place in looked(Past(tasks=tasks, moved=MOVED), where).items()}
    assert solve["t0"] > solve["t1"] > 0.5 > solve["t3"] > solve["t2"]


def test_a_seed_whose_tasks_fail_whole_beside_solved_ones_gives_broken_ones() -> None:
    where = seeds(8, path=lambda i: "one.py")
    tasks = [task(f"{i}-{j}", (9, 5), seed_id=f"t{i}") for i in range(1, 8) for j in range(3)]
    tasks += [task(f"0-{j}", (9, 0 if j < 3 else 5), seed_id="t0") for j in range(6)]
    found = looked(Past(tasks=tasks, moved=MOVED), where)
    assert found["t0"].broken > 2 * found["t1"].broken
    assert found["t0"].worth < 0.9 * found["t1"].worth
    assert abs(found["t0"].solve - found["t1"].solve) < 0.2, "broken tasks say nothing about the others"


def test_a_seed_whose_only_task_is_surely_broken_is_placed_by_the_others() -> None:
    where = seeds(50)
    tasks = [task(f"{i}-{j}", (9, 8), seed_id=f"t{i}") for i in range(1, 50) for j in range(2)]
    tasks = [replace(one, plays=(Played(step=9, decided=32, solved=32),)) for one in tasks]
    bad = replace(task("bad", (9, 0), seed_id="t0"), plays=(Played(step=9, decided=32, solved=0),))
    past = Past(tasks=[*tasks, bad], moved=MOVED)
    found = looked(past, where)
    assert found["t0"].doubts == {"bad": 1.0}
    assert found["t0"].solve > 0.9
    assert all(isfinite(choice.score) for choice in frontier(past, where, n=4, step=10, seed=0))


@pytest.mark.parametrize("half_life", [1e-9, 4.7e-3, 1.0])
def test_tasks_that_are_older_than_a_weight_can_say_tell_nothing(half_life: float) -> None:
    past = Past(tasks=[task(f"{i}", (i % 10, i % 9), seed_id=f"t{i % 8}") for i in range(40)], moved=MOVED)
    chosen = choose(past, options=Frontier(half_life=half_life))
    assert len(chosen) == 4
    assert all(isfinite(choice.score) for choice in chosen)


def test_where_groups_are_all_or_nothing_one_in_between_is_doubted() -> None:
    where = seeds(8)
    sharp = [task(f"{i}-{j}", (9, 8 if i < 4 else 0), seed_id=f"t{i}") for i in range(8) for j in range(4)]
    mixed = [task(f"{i}-{j}", (9, 2 + j), seed_id=f"t{i}") for i in range(8) for j in range(4)]
    coin = task("coin", (9, 4), seed_id="t0")
    doubts = [looked(Past(tasks=[*others, coin], moved=MOVED), where)["t0"].doubts for others in (sharp, mixed)]
    assert doubts[0]["coin"] > 1.5 * doubts[1]["coin"] > 0.0
    assert doubts[0]["0-0"] < 0.01, "what is always solved is not broken"


def test_a_doubted_task_is_ranked_lower() -> None:
    past = Past(tasks=[task("a", (9, 4)), task("b", (9, 4))], moved=MOVED)
    seen = look(past, seeds(2), step=10, staleness=0, window=64, half_life=30, patience=50)
    one, other = ranked(seen.candidates, target=0.5, doubts={"a": 0.25})
    assert (one.candidate.task.id, other.candidate.task.id) == ("b", "a")
    assert other.score == pytest.approx(0.75 * one.score)


def test_where_everything_fails_tasks_are_hard_rather_than_wrong() -> None:
    where = seeds(2)
    found = looked(Past(tasks=[task(f"k{i}", (9, 0)) for i in range(20)], moved=MOVED), where)
    assert found["t0"].solve < 0.1
    assert found["t0"].learnable < found["t1"].learnable


def test_old_tasks_are_moved_along_by_what_the_same_seeds_became_easier() -> None:
    where = seeds(20)
    rising = [task(f"{i}-{s}", (s, 1 + s // 10), seed_id=f"t{i}") for i in range(19) for s in (0, 20, 40)]
    late = [task("last", (0, 1), seed_id="t19")]
    past = Past(tasks=rising + late, moved=MOVED)
    assert looked(past, where, step=60)["t19"].solve > 0.4 > 1 / 8


def test_the_learnability_of_log_odds_is_close_to_its_integral() -> None:
    for mean, variance in ((0.0, 0.01), (0.0, 4.0), (2.0, 1.0), (-4.0, 6.0)):
        grid = [mean + sqrt(variance) * (i - 400) / 50 for i in range(801)]
        weights = [exp(-((x - mean) ** 2) / (2 * variance)) for x in grid]
        exact = sum(w / (2 + exp(x) + exp(-x)) for x, w in zip(grid, weights, strict=True)) / sum(weights)
        assert learnability(mean, variance) == pytest.approx(exact, abs=0.016)
    assert learnability(log(0.2 / 0.8), 0.1, 0.2) > learnability(0.0, 0.1, 0.2)


def test_normal_numbers_are_normal() -> None:
    drawn = [normal("test", i) for i in range(2000)]
    assert sum(drawn) / 2000 == pytest.approx(0.0, abs=0.08)
    assert sum(x * x for x in drawn) / 2000 == pytest.approx(1.0, abs=0.12)


def test_a_floor_of_the_choices_goes_where_least_was_asked_for() -> None:
    where = seeds(20, path=lambda i: "good.py" if i < 10 else "bad.py")
    tasks = [task(f"{i}-{j}", (9, 4 if i < 10 else 0), seed_id=f"t{i}") for i in range(20) for j in range(3)]
    past = Past(tasks=tasks, moved=MOVED, counts={f"t{i}": 9 if i < 10 else 3 for i in range(20)})
    picked: Counter[str] = Counter()
    for step in range(10, 60):
        chosen = frontier(past, where, n=4, step=step, seed=0, options=Frontier(replay=0.0, explore=0.25))
        picked.update(choice.subject_id for choice in chosen)
    assert sum(picked[f"t{i}"] for i in range(10, 20)) >= 50


def test_a_module_that_nobody_played_for_long_is_asked_first() -> None:
    where = seeds(12, path=lambda i: f"{i // 4}.py")
    tasks = [task(f"{i}", (39 if i < 4 else 9, 4), seed_id=f"t{i}") for i in range(8)]
    counts = {f"t{i}": 3 if i < 4 else 0 for i in range(12)}
    played = Past(tasks=tasks, moved=MOVED, counts=counts, proposed={"t8": proposed(16, 32, 0)})
    waited = {name: place.neglected for name, place in looked(played, where, step=40).items()}
    assert waited["t0"] == 0
    assert waited["t4"] == 31
    assert waited["t8"] == 0, "it was asked often enough, and gave nothing"
    never = {name: place.neglected for name, place in looked(Past(tasks=tasks, moved=MOVED), where, step=40).items()}
    assert never["t8"] == 40
    (first,), _ = fresh(tuple(looked(played, where, step=40).values()), 1, explore=1.0, key=(0,))
    assert first.seed.id in {"t4", "t5", "t6", "t7"}


def test_a_cap_keeps_one_seed_from_being_chosen_again_and_again() -> None:
    past = Past(proposed={"t0": proposed(3, 12, 12)}, counts={"t0": 3, "t1": 9}, moved=MOVED)
    for step in range(10, 30):
        (choice,) = choose(past, 2, n=1, step=step, options=Frontier(cap=3, replay=0.0))
        assert choice.subject_id == "t1"
    capped = Past(proposed={name: proposed(3, 12, 12) for name in ("t0", "t1")}, moved=MOVED)
    assert choose(capped, 2, n=1, options=Frontier(cap=3, replay=0.0)), "where all are capped, the cap does not count"


def test_it_is_pure_and_reads_closed_steps_only() -> None:
    past = Past(tasks=[task(f"k{i}", (9, i % 9)) for i in range(20)], moved=MOVED)
    assert choose(past) == choose(past)
    assert choose(past, step=11) != choose(past, step=12)
    past.asked.clear()
    choose(past, step=10, staleness=3)
    assert {(question, before) for question, _, before in past.asked} == {
        (question, 7) for question in ("tasks", "proposals", "movement")
    }
    past.asked.clear()
    choose(past, step=100)
    assert ("tasks", 36, 100) in past.asked


def test_a_refill_goes_on_where_the_round_before_ended() -> None:
    past = Past(tasks=[task(f"k{i}", (9, 4)) for i in range(20)], moved=MOVED)
    first = choose(past)
    second = choose(past, first=4, taken={choice.subject_id for choice in first})
    assert [choice.index for choice in second] == [4, 5, 6, 7]
    assert not {choice.subject_id for choice in first} & {choice.subject_id for choice in second}


def test_annealed_replay_begins_when_seeds_have_been_seen() -> None:
    known = [task(f"k{i}", (9, 4)) for i in range(40)]
    options = Frontier(anneal=True, replay=1.0, only_better=False)
    assert modes(choose(Past(tasks=known, moved=MOVED), options=options)) == {"propose": 4}
    all_seen = Past(tasks=known, moved=MOVED, counts={f"t{i}": 1 for i in range(8)})
    assert modes(choose(all_seen, options=options)) == {"replay": 4}


def test_options_come_in_by_name() -> None:
    bound = configured(frontier, {"replay": 0, "window": 8})
    assert bound.keywords["options"] == Frontier(replay=0.0, window=8)
    assert configured(frontier, {}) is frontier
    assert FRONTIER.replay == 0.5


def test_a_refill_without_new_seeds_plays_known_tasks_before_it_repeats_itself() -> None:
    past = Past(tasks=[task(f"k{i}", (9, 4)) for i in range(3)], moved=MOVED)
    taken = {"t0", "t1"}
    assert modes(choose(past, 2, n=4, first=2, taken=taken)) == {"replay": 3}
    assert modes(choose(past, 2, n=4, first=5, taken={*taken, "k0", "k1", "k2"})) == {"propose": 2}


def test_a_known_task_is_replayed_only_where_it_promises_more_than_a_new_one() -> None:
    tasks = [task(f"k{i}-{j}", (9, 0), seed_id=f"t{i}") for i in range(8) for j in range(3)]
    past = Past(tasks=[*tasks, task("edge", (9, 4))], moved=MOVED)
    played = [choice for step in range(10, 20) for choice in choose(past, step=step) if choice.mode == "replay"]
    assert {choice.subject_id for choice in played} == {"edge"}
    again = [task(f"k{i}", (8, 4), (9, 4)) for i in range(30)]
    assert modes(choose(Past(tasks=again, moved=MOVED), options=Frontier(fade=0.5))) == {"propose": 4}


@dataclass(frozen=True)
class New:
    worth: float


def test_the_best_known_take_the_place_of_the_least_new() -> None:
    past = Past(tasks=[task(f"k{i}", (9, i)) for i in (1, 2, 4)], moved=MOVED)
    seen = look(past, seeds(2), step=10, staleness=0, window=64, half_life=30, patience=50)
    known = ranked(seen.candidates, target=0.5)
    new = [New(0.25), New(0.0), New(known[1].score - 0.001), New(0.24)]
    assert displaced(new, known, most=4) == ((New(0.25), New(0.24)), known[:2])
    assert displaced(new, known, most=1) == ((*new[:1], *new[2:]), known)
    assert displaced(new, known, most=0) == (tuple(new), ())
    assert displaced(new, (), most=4) == (tuple(new), ())
