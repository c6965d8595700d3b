"""Several settings at once, each in half of the arms: what such a study says, and what is wrong with one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from selfplay.errors import UserError
from selfplay.project import Project
from selfplay.study import arms, page, results
from selfplay.study.spec import Study, read
from selfplay.study.statistics import by_chance, effect
from tests.study.small import written
from tests.study.test_page import put, row

FULL = '[arms.full]\nsettings = { "curriculum.choose" = "frontier" }'
FOUR = """
[factors.rate]
about = "Twice the rate."
settings = { "learner.lr" = 2e-3 }
[factors.many]
settings = { "play.attempts" = 8, "curriculum.seeds" = 2 }
[factors.clip]
settings = { "learner.kl" = 0.5 }
[arms.full]
factors = []
[arms.a]
factors = ["rate", "many"]
[arms.b]
factors = ["clip", "rate"]
[arms.c]
about = "Its own words."
factors = ["many", "clip"]
settings = { "play.attempts" = 4 }
"""


def four(folder: Path, old: str = "", new: str = "") -> Study:
    assert old in FOUR
    return read(written(folder, FULL, FOUR.replace(old, new) if old else FOUR))


def test_an_arm_has_its_factors_settings(tmp_path: Path, project: Project) -> None:
    study = four(tmp_path)
    assert [one.name for one in study.factors] == ["rate", "many", "clip"]
    assert {arm.name: arm.factors for arm in study.arms} == {
        **{"warmup": None, "full": (), "a": ("rate", "many")},
        **{"b": ("rate", "clip"), "c": ("many", "clip")},
    }
    assert study.arm("a").settings == {"learner.lr": 2e-3, "play.attempts": 8, "curriculum.seeds": 2}
    assert study.arm("c").settings == {"play.attempts": 4, "curriculum.seeds": 2, "learner.kl": 0.5}, "its own last"
    assert [study.arm(name).about for name in ("full", "a", "c")] == [
        *("With none of the factors.", "With rate and many.", "Its own words.")
    ]
    [job] = [job for job in arms.jobs(study, project=project, dev=False) if job.name == "b-0"]
    config = arms.config_of(job, project=project)
    assert (config.learner.lr, config.learner.kl) == (2e-3, 0.5)


def test_a_factor_decides_the_arms_that_have_it_and_no_other(tmp_path: Path) -> None:
    before = four(tmp_path).arm_digests
    after = four(tmp_path, '"learner.lr" = 2e-3', '"learner.lr" = 3e-3').arm_digests
    assert {name for name in before if before[name] != after[name]} == {"a", "b"}
    assert four(tmp_path, "Twice the rate.", "Two times the rate.").arm_digests == before
    plain = read(written(tmp_path)).arm_digests
    assert before["warmup"] == plain["warmup"], "an arm outside of the experiment knows nothing of it"


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ('["rate", "many"]', '["rate", "money"]', r"arm `a` has the factors \['rate', 'money'\], .*: rate, many, clip"),
        ('["rate", "many"]', '[["rate"]]', r"arm `a` has the factors \[\['rate'\]\], expected a list"),
        ("factors = []", "factors = []\nmeasured = false", "arm `full` says which factors it has, and is not"),
        ('["rate", "many"]', '"rate"', "arm `a` has the factors 'rate', expected a list"),
        ('["rate", "many"]', '["rate"]', "factor `many` is in 1 of 4 arms, expected half of them"),
        ('["many", "clip"]', '["many", "rate"]', "factor `rate` is in 3 of 4 arms, expected half of them"),
        ("factors = []", "", "factor `rate` is in 2 of 3 arms, expected half of them"),
        ('"learner.kl" = 0.5', '"learner.lr" = 5e-3', "`rate` and `clip` both set learner.lr, so no arm can have"),
        ('{ "learner.kl" = 0.5 }', "3", r"`settings` of \[factors.clip\] is 3, expected a table"),
        ("[factors.clip]", "[factors.clip]\nlr = 1", r"unknown key of \[factors.clip\] `lr`"),
    ],
)
def test_what_is_wrong_with_one(tmp_path: Path, old: str, new: str, error: str) -> None:
    with pytest.raises(UserError, match=error):
        four(tmp_path, old, new)


@pytest.mark.parametrize("table", ["factors", "arms"])
def test_factors_and_arms_are_tables(tmp_path: Path, table: str) -> None:
    text = written(tmp_path).read_text()
    path = tmp_path / "wrong.toml"
    path.write_text(f"{text[: text.index('[arms.')]}[{table}]\nx = 3\n")
    with pytest.raises(UserError, match=rf"\[{table}\] is not made of tables"):
        read(path)


def test_somebody_has_them(tmp_path: Path) -> None:
    rest = '[factors.x]\nsettings = { "learner.lr" = 1.0 }\n[arms.full]'
    with pytest.raises(UserError, match="there are factors, and no arm says which it has"):
        read(written(tmp_path, "[arms.full]", rest))


def test_two_that_are_together_too_often_cannot_be_told_apart(tmp_path: Path) -> None:
    same = FOUR.replace('["clip", "rate"]', '["rate", "many"]').replace('["many", "clip"]', "[]")
    two = same.replace('[factors.clip]\nsettings = { "learner.kl" = 0.5 }\n', "")
    with pytest.raises(UserError, match="factors `rate` and `many` are not together in a quarter of the 4 arms"):
        read(written(tmp_path, FULL, two))


def test_an_effect_is_the_mean_with_less_the_mean_without() -> None:
    def table(value: float) -> dict[int, dict[str, float]]:
        return {0: {"f": value, "g": 0.0}}

    assert effect([table(1.0), table(0.5)], [table(0.25), table(0.25)]) == {0: {"f": 0.5, "g": 0.0}}
    more = {**table(1.0), 1: {"f": 0.0}}
    assert effect([more], [{0: {"f": 0.0}, 1: {"f": 1.0, "h": 1.0}}]) == {0: {"f": 1.0}, 1: {"f": -1.0}}
    assert effect([], []) == {}


def test_effects_are_held_against_each_other() -> None:
    small = {str(place): 0.01 * sign for place, sign in enumerate((1, -1, 1, -1, 1, -1))}
    found = by_chance({**small, "great": 0.3})
    assert found["great"] < 0.01 < 0.3 < found["0"]
    assert by_chance({"a": 1.0, "b": 2.0}) == {}, "of two nothing can be said"
    assert by_chance(dict.fromkeys("abc", 0.0)) == {}
    # Of seven effects one is 2.30 pseudo standard errors from zero by chance in 5 of 100 cases (Ye and Hamada 2000).
    sizes = {str(place): 1.0 for place in range(6)}
    assert by_chance({**sizes, "far": 1.5 * 2.30})["far"] == pytest.approx(0.05, abs=0.01)


def test_the_page_tells_what_each_does(tmp_path: Path) -> None:
    study = four(tmp_path)
    results.describe(study)
    about = json.loads((study.results / results.ABOUT).read_text())
    assert about["factors"] == {"rate": "Twice the rate.", "many": "", "clip": ""}
    for name, passed in (("warmup", 0), ("full", 0), ("a", 2), ("b", 2)):
        put(study, unlike(row(name, 0, passed)))
    assert "What each factor does is told once these are measured: c." in page.page(tmp_path / "results")
    put(study, unlike(row("c", 0, 0)))
    text = page.page(tmp_path / "results")
    assert "| factor, pass@1 with it less without it | all bugs | p | no procedural mutation | a mutation |" in text
    # g: 1/2 with rate, else 0; f: always 1.
    assert "| rate | +25.0 [+0.0, +50.0] | " in text
    assert "| +50.0 [+50.0, +50.0] | +0.0 [+0.0, +0.0] |" in text
    assert "- `rate`: Twice the rate." in text
    assert "Each is told from all 4 arms" in text


def unlike(found: dict[str, Any]) -> dict[str, Any]:
    """The same, with the second function's bug told apart."""
    counts = {"g": found["looked"]["endpoint"]["counts"]["g"]}
    found["looked"]["endpoint" + results.UNLIKE] = {"counts": counts, "valid": [0, 0], "seconds": 1.0}
    return found
