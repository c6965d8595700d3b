"""A surveyed repository: the split, the dev set, the budgets of tests; nothing is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from selfplay.games.code.opened import Opened, Settings
from selfplay.games.code.survey import Function, Survey
from selfplay.games.code.verify import Verifier

BODY = "def f{n}(a, b):\n    if a > b:\n        return a + {n}\n    return b - a\n"


def survey(count: int) -> Survey:
    functions = tuple(
        Function(path="pkg/a.py", qualname=f"f{n}", line=5 * n + 1, source=BODY.format(n=n), doc="", tests=(f"t::{n}",))
        for n in range(count)
    )
    return Survey(functions=functions, seconds={f"t::{n}": 0.25 for n in range(count)}, left_out={})


def opened(count: int = 30, *, source: str = "pypi:pkg==1", found: Survey | None = None, **settings: Any) -> Opened:
    # note: nothing is verified here, so nobody verifies.
    verifier = cast(Verifier, None)
    return Opened(found or survey(count), verifier=verifier, source=source, settings=Settings(**settings))


def held_out(made: Opened) -> set[str]:
    return {seed.payload["qualname"] for seed in made.seeds if seed.split == "held_out"}


def test_the_split_is_a_share_of_the_functions_and_depends_on_what_they_are() -> None:
    made = opened(held_out=0.3)
    assert len(held_out(made)) == 9
    assert held_out(opened(held_out=0.3)) == held_out(made)
    assert held_out(opened(held_out=0.3, source="pypi:pkg==2")) != held_out(made)
    assert held_out(made) < held_out(opened(held_out=0.6)), "a larger share holds out those and more"
    assert not held_out(opened(held_out=0.0))
    assert len(held_out(opened(3, held_out=1.0))) == 2, "one is left to learn from"
    assert [seed.source for seed in made.seeds[:2]] == ["pypi:pkg==1:pkg/a.py::f0", "pypi:pkg==1:pkg/a.py::f1"]


def test_a_folder_counts_by_its_name(tmp_path: Path) -> None:
    one, other = tmp_path / "here" / "pkg", tmp_path / "there" / "pkg"
    for folder in (one, other, tmp_path / "there" / "other"):
        folder.mkdir(parents=True)
    ids = [seed.id for seed in opened(source=str(one)).seeds]
    assert [seed.id for seed in opened(source=str(other)).seeds] == ids
    assert [seed.id for seed in opened(source=str(tmp_path / "there" / "other")).seeds] != ids


def test_the_dev_set_is_of_train_seeds_and_no_more_than_a_third_of_them() -> None:
    made = opened(held_out=0.3, dev_seeds=5)
    assert len(made.dev) == 5
    assert all(seed.split == "train" for seed in made.dev)
    assert len(opened(6, held_out=0.0, dev_seeds=5).dev) == 2
    assert opened(2, held_out=0.0, dev_seeds=5).dev == ()


def test_a_candidate_has_ten_times_what_its_tests_need() -> None:
    made = opened(cpu_seconds=1.5, seconds=20.0)
    small = made.budget(["t::0"])
    assert (small.cpu_seconds, small.seconds) == (2.5, 20.0)
    assert made.budget([]).cpu_seconds == 1.5
    assert small.still == made.budget([f"t::{n}" for n in range(30)]).still == 15.0, "no load prolongs it"
    large = made.budget([f"t::{n}" for n in range(30)])
    assert (large.cpu_seconds, large.seconds) == (75.0, 300.0)
    assert made.budget(["t::unknown"]).cpu_seconds == 1.5


def test_examples_are_never_of_held_out_or_dev_functions() -> None:
    made = opened(held_out=0.3, dev_seeds=5, package_share=1.0, stdlib=20)
    used = {made.example(index, seed=0).origin for index in range(60)}
    kept = held_out(made) | {seed.payload["qualname"] for seed in made.dev}
    assert any("f" in name for name in used)
    assert not {name for name in used if name.rpartition("::")[2] in kept}
    assert made.example(7, seed=1) == opened(held_out=0.3, dev_seeds=5, package_share=1.0, stdlib=20).example(7, seed=1)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_small_repositories(count: int) -> None:
    made = opened(count, held_out=0.3)
    assert len(made.seeds) == count
    assert any(seed.split == "train" for seed in made.seeds)
