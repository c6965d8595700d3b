"""Each alarm on rows made by hand: it sounds, it is silent just below its threshold, and it does not repeat itself."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from selfplay.alarms import (
    ALARMS,
    APART,
    COLLAPSE,
    EVALUATIONS,
    LEAST,
    REST,
    STREAK,
    WINDOW,
    Alarm,
    Point,
    Rate,
    Watch,
    began,
    known,
)
from selfplay.errors import NotFound
from selfplay.ledger import Tally


def said(name: str, *points: Point, watch: Watch | None = None) -> Mapping[str, str]:
    """What the alarm says of `points`, numbered anew."""
    numbered = [
        Point(step=i, counts=p.counts, tallies=p.tallies, metrics=p.metrics, held_out=p.held_out)
        for i, p in enumerate(points)
    ]
    return ALARMS[name].says(numbered, watch or Watch())


def proposals(valid: int, decided: int = LEAST, **more: int) -> Point:
    return Point(step=0, tallies={"propose/p": Tally(played=decided, decided=decided, valid=valid, **more)})


def attempts(passed: int, decided: int = 100, *, held_out: Rate | None = None, **more: int) -> Point:
    tally = Tally(played=decided, decided=decided, passed=passed, **more)
    return Point(step=0, tallies={"attempt/s": tally}, held_out=held_out)


def groups(informative: int, of: int = 2, *, role: str = "s") -> Point:
    return Point(step=0, counts={f"{role}.groups": of, f"{role}.informative": informative})


def probed(gap: float) -> Point:
    figures = {"probe_gap": gap, "probe_ratio_max": 2.0, "probe_tokens": 16.0}
    versions = {"probe_sampler_version": 3.0, "probe_learner_version": 4.0}
    return Point(step=0, metrics=figures | versions)


def test_agreement_names_the_figures_and_both_versions() -> None:
    assert said("agreement", probed(0.25)) == {}
    [text] = said("agreement", probed(0.2501)).values()
    assert "16 tokens" in text
    assert "0.25 nats" in text
    assert "the sampler says that it used weights v3, the learner has v4" in text
    assert said("agreement", probed(0.2), watch=Watch(agreement=0.1))
    assert said("agreement", Point(step=0)) == {}, "a step recorded before there was a probe"


def test_no_variance_is_a_streak_of_one_role() -> None:
    assert said("no_variance", *[groups(0)] * (STREAK - 1)) == {}
    assert said("no_variance", groups(1), *[groups(0)] * (STREAK - 1)) == {}
    found = said("no_variance", groups(1), *[groups(0)] * STREAK)
    assert list(found) == ["s"]
    assert found["s"].startswith(f"steps 1 to {STREAK}: no group of `s`")


def test_no_variance_skips_steps_without_groups_and_waits_for_the_next() -> None:
    idle = [groups(0)] * STREAK
    assert said("no_variance", *idle[:2], Point(step=0), *idle[2:])
    assert said("no_variance", *idle, Point(step=0)) == {}, "the newest step has no group: nothing new is known"


def test_no_variance_is_a_share_as_well() -> None:
    many = [groups(1, of=10), *[groups(0, of=10)] * (STREAK - 2), groups(1, of=10), *[groups(0, of=10)] * 2]
    assert said("no_variance", *many, groups(1, of=100))["s"].startswith("steps 0 to 7: 98% of the groups")
    assert said("no_variance", *many, groups(4, of=10)) == {}


def test_truncation() -> None:
    cut = attempts(0, 10, truncated=6)
    assert said("truncation", *[cut] * (WINDOW - 1)) == {}
    assert "60% of the replies of `s`" in said("truncation", *[cut] * WINDOW)["s"]
    assert said("truncation", *[attempts(0, 10, truncated=5)] * WINDOW) == {}
    assert said("truncation", *[attempts(0, 3, truncated=3)] * WINDOW) == {}, "too few replies for a share"


def lost(faults: int, places: int = 100, *, left_out: int = 0) -> Point:
    """Places, of which some were given up after three tries, as both counters see them."""
    counts = {"proposals": 10, "mutated": 2, "attempts": places - 12, "left_out": left_out, "faults": faults}
    decided = places - faults - left_out
    # note: the ledger's count has each try and the verdict.
    tally = Tally(played=decided + left_out, decided=decided, left_out=left_out, faults=4 * faults)
    return Point(step=0, counts=counts, tallies={"attempt/s": tally})


def test_infrastructure_goes_by_places_however_often_each_was_tried() -> None:
    assert said("infrastructure", lost(8)) == {}, "where 32 of 124 records are of faults"
    assert said("infrastructure", lost(20)) == {}
    [text] = said("infrastructure", lost(21)).values()
    assert text.startswith("step 0: 21 of 100 places were given up after faults of the machine")
    assert said("infrastructure", lost(20, left_out=1)), "20 of 99: what is suspicious was neither decided nor lost"
    [text] = said("infrastructure", lost(20), lost(21)).values()
    assert text.startswith("steps 0 to 1: 41 of 200 places")
    assert said("infrastructure", lost(LEAST - 1, LEAST - 1)) == {}, "too few places for a share"
    early = Point(step=0, counts={"proposals": 20, "attempts": 80, "faults": 21})
    assert said("infrastructure", early), "a step recorded before children and suspicious attempts were counted"


def test_entropy_is_each_roles_own() -> None:
    def seen(p: float, s: float) -> Point:
        return Point(step=0, metrics={"p.entropy": p, "s.entropy": s, "entropy": 0.0})

    low, high = seen(1.0, 0.04), seen(1.0, 0.06)
    assert said("entropy", low, low) == {}
    assert list(said("entropy", high, low, low, low)) == ["s"]
    assert said("entropy", low, high, high) == {}
    assert said("entropy", low, low, low, Point(step=0)) == {}, "the newest step changed nothing"
    assert said("entropy", low, low, low, watch=Watch(entropy_floor=0.0)) == {}


def test_gibberish() -> None:
    def strange(count: int) -> Point:
        return Point(step=0, counts={"proposals": 4, "attempts": 16, "gibberish": count})

    assert said("gibberish", *[strange(5)] * WINDOW) == {}
    [text] = said("gibberish", *[strange(5)] * (WINDOW - 1), strange(6)).values()
    assert "26% of the replies" in text
    assert said("gibberish", *[strange(20)] * (WINDOW - 1)) == {}
    assert said("gibberish", *[Point(step=0)] * WINDOW) == {}, "steps recorded before it was counted"


def test_valid_proposals_collapse_against_their_earlier_best() -> None:
    good, half, bad = proposals(16), proposals(8), proposals(7)
    assert COLLAPSE == 0.5
    assert said("proposals", *[good] * WINDOW, *[half] * WINDOW) == {}
    [text] = said("proposals", *[good] * WINDOW, *[bad] * WINDOW).values()
    assert "35% of the proposals are valid, where 80% were before" in text
    assert said("proposals", *[bad] * 3 * WINDOW) == {}, "it never was better"
    assert said("proposals", *[proposals(1)] * WINDOW, *[proposals(0)] * WINDOW) == {}, "there was nothing to lose"
    assert said("proposals", *[good] * WINDOW) == {}


def test_held_out_falls_while_the_game_is_won() -> None:
    def phase(passed: int, held_out: int) -> list[Point]:
        return [attempts(passed), attempts(passed, held_out=Rate(passed=held_out, decided=200))] * EVALUATIONS

    [text] = said("held_out", *phase(40, 120), *phase(60, 80)).values()
    assert "rose from 40% to 60% in the game and fell from 60% to 40% on held-out" in text
    assert said("held_out", *phase(40, 120), *phase(60, 120)) == {}
    assert said("held_out", *phase(40, 120), *phase(40, 80)) == {}
    assert said("held_out", *phase(60, 80), *phase(40, 120)) == {}
    assert said("held_out", *phase(40, 120), *phase(int(40 + 100 * APART), 80)) == {}, "hardly risen"
    assert said("held_out", *phase(40, 120), *phase(60, 109)) == {}, "fallen by chance, as far as anybody knows"
    assert said("held_out", *phase(60, 80)) == {}, "too few evaluations"
    assert said("held_out", *phase(40, 120), *phase(60, 80), attempts(60)) == {}, "nothing new is known"


def sounding(pattern: str) -> list[bool]:
    """For each step of `pattern` (`x`: the alarm speaks of role `a`): does it begin there?"""
    alarm = Alarm(
        about="", fix="", says=lambda history, watch: {"a": "text"} if history[-1].counts["x"] else {}, level="note"
    )
    history = [Point(step=i, counts={"x": mark == "x"}) for i, mark in enumerate(pattern)]
    return [began(alarm, history[: i + 1], Watch()) is not None for i in range(len(history))]


def test_an_alarm_begins_once_and_again_only_after_it_ended() -> None:
    assert sounding("..xxxx") == [False, False, True, False, False, False]
    flickering = "x" + ".x" * 5
    assert sum(sounding(flickering)) == 1
    assert sum(sounding("x" + "." * (REST - 1) + "x")) == 1
    assert sum(sounding("x" + "." * REST + "x")) == 2


def test_a_role_begins_by_itself() -> None:
    early = [groups(0, role="a")] * STREAK
    history = [*early, Point(step=0, counts={"a.groups": 2, "a.informative": 0, "b.groups": 40, "b.informative": 0})]
    text = began(ALARMS["no_variance"], history, Watch())
    assert text is not None
    assert "`b`" in text
    assert "`a`" not in text


def test_nothing_begins_before_the_first_step() -> None:
    assert all(began(alarm, [], Watch()) is None for alarm in ALARMS.values())
    assert all(began(alarm, [Point(step=0)], Watch()) is None for alarm in ALARMS.values())


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    assert known(("entropy", "agreement")) == ("entropy", "agreement")
    with pytest.raises(NotFound, match="names `truncated`") as error:
        known(("truncated",))
    assert "did you mean `truncation`?" in error.value.hint


def test_the_table_is_in_order_and_says_what_to_do() -> None:
    assert list(ALARMS) == sorted(ALARMS)
    assert all(alarm.about.endswith(".") and alarm.fix for alarm in ALARMS.values())
