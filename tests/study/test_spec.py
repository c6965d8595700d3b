"""A study's file: what it says, and what is wrong with one."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from selfplay.errors import NotFound, NotReady, UserError
from selfplay.events import Interrupt, ignore
from selfplay.project import Project
from selfplay.study import arms, results
from selfplay.study.planning import planned
from selfplay.study.spec import read
from tests.study.small import written

SHIPPED = sorted((Path(__file__).parents[2] / "curricula" / "studies").glob("*.toml"))


def test_what_it_says(tmp_path: Path, project: Project) -> None:
    study = read(written(tmp_path))
    assert [arm.name for arm in study.arms] == ["warmup", "full"], "starts come first"
    assert [arm.start for arm in study.arms] == ["", "warmup"]
    assert (study.seeds, study.dev_seeds, study.budget, study.endpoint.k) == ((0, 1), (9,), 1000, 1)
    assert study.results == tmp_path / "results" / "small"
    jobs = arms.jobs(study, project=project, dev=False)
    assert [job.name for job in jobs] == ["warmup-0", "full-0", "warmup-1", "full-1"]
    assert [job.name for job in arms.jobs(study, project=project, dev=True)] == ["warmup-9", "full-9"]
    config = arms.config_of(jobs[1], project=project)
    assert (config.run.seed, config.learner.lr, config.curriculum.choose) == (0, 1e-3, "frontier")
    assert arms.config_of(jobs[2], project=project).run.steps == 3


def test_one_start_for_all_seeds(tmp_path: Path, project: Project) -> None:
    study = read(written(tmp_path, "minutes = 30", "minutes = 30\nstart_seed = 5"))
    jobs = arms.jobs(study, project=project, dev=False)
    assert [job.name for job in jobs] == ["warmup-0", "full-0", "warmup-1", "full-1"]
    assert [job.folder.name for job in jobs] == ["warmup-5", "full-0", "warmup-5", "full-1"]
    assert [arms.config_of(job, project=project).run.seed for job in jobs] == [5, 0, 5, 1]
    assert {job.start.folder for job in jobs if job.start is not None} == {jobs[0].folder}
    found = planned(study, jobs, project=project, dev=False)
    assert found.data["runs"] == 3
    other = "[arms.longer]\nsupervised = true\n[arms.warmup]"
    path = written(tmp_path, "[arms.warmup]", other)
    path.write_text(path.read_text().replace("minutes = 30", "start_seed = 5"))
    more = [job for job in arms.jobs(read(path), project=project, dev=False) if job.arm.name == "longer"]
    assert [(job.name, job.folder.name) for job in more] == [("longer-0", "longer-5"), ("longer-1", "longer-5")]
    assert any("seeds 0, 1; one run for all" in line for line in found.lines)


def test_words_for_people_are_not_part_of_its_digest(tmp_path: Path) -> None:
    digest = read(written(tmp_path)).digest
    assert read(written(tmp_path, "minutes = 30", "minutes = 20\nabout = 'x'")).digest == digest
    assert read(written(tmp_path, 'lr" = 1e-3', 'lr" = 2e-3')).digest != digest
    assert read(written(tmp_path, "seeds = [0, 1]", "seeds = [0, 1, 2]")).digest != digest


def test_an_arm_has_a_digest_of_what_decides_its_results(tmp_path: Path) -> None:
    before = read(written(tmp_path)).arm_digests
    more = "[arms.full]\nsettings = { }\n[arms.warmup]".replace("full", "third")
    for old, new in (("[arms.warmup]", more), ("seeds = [0, 1]", "seeds = [0, 1, 2]"), ('[["warmup", "full"]]', "[]")):
        after = read(written(tmp_path, old, new)).arm_digests
        assert {name: after[name] for name in before} == before, new
    for old, new in (
        ("budget = 1000", "budget = 2000"),
        ("attempts = 4", "attempts = 8"),
        ('lr" = 1e-3', 'lr" = 2e-3'),
    ):
        after = read(written(tmp_path, old, new)).arm_digests
        assert not any(after[name] == before[name] for name in before), new
    longer = read(written(tmp_path, "steps = 3", "steps = 4")).arm_digests
    assert longer["full"] != before["full"], "it starts from an arm that has changed"
    own = read(written(tmp_path, '"frontier" }', '"uniform" }')).arm_digests
    assert (own["warmup"] == before["warmup"], own["full"] == before["full"]) == (True, False)


def test_an_arm_that_uses_another_s_run_comes_after_it(tmp_path: Path, project: Project) -> None:
    other = (
        '[arms.full]\nsettings = {{ "curriculum.options" = {{ tasks = "../third-SEED" }} }}\n[arms.third]\nsteps = {}'
    )
    one, two = (
        read(written(tmp_path, '[arms.full]\nsettings = { "curriculum.choose" = "frontier" }', other.format(steps)))
        for steps in (1, 2)
    )
    assert [arm.name for arm in one.arms] == ["warmup", "third", "full"]
    assert [one.arm(name).upon for name in ("full", "third", "warmup")] == [("warmup", "third"), ("warmup",), ()]
    job = next(job for job in arms.jobs(one, project=project, dev=False) if job.name == "full-0")
    owed = partial(arms.owed, project=project, dev=False)
    assert [other.name for other in owed([job, *job.upon])] == ["full-0", "warmup-0", "third-0"]
    assert [other.name for other in owed(job.upon)] == ["warmup-0", "third-0"]
    with pytest.raises(NotReady, match="needs the run warmup-0, which is not played to its end"):
        arms.play(job, project=project, observe=ignore, interrupt=Interrupt())
    assert one.arm_digests["full"] != two.arm_digests["full"]
    assert one.arm_digests["warmup"] == two.arm_digests["warmup"]


def test_a_result_of_other_settings_is_owed_again(tmp_path: Path, project: Project) -> None:
    study = read(written(tmp_path))
    full = next(job for job in arms.jobs(study, project=project, dev=False) if job.name == "full-0")
    measured = partial(arms.measured, full, project=project, dev=False)
    assert not measured()
    row = {"arm": "full", "arm_digest": study.arm_digests["full"]}
    for run, kept in (
        (None, True),
        ({"config": arms.config_of(full, project=project).digest}, True),
        ({"config": "of a preset that has changed since"}, False),
    ):
        results.put(results.path_of(study, name=full.name, dev=False), {**row, "run": run})
        assert measured() is kept
        assert (full in arms.owed([full], project=project, dev=False)) is not kept


def test_an_arm_that_is_there_for_others_is_played_with_them(tmp_path: Path, project: Project) -> None:
    third = "[arms.third]\nsteps = 1\nmeasured = false\n[arms.full]"
    study = read(written(tmp_path, "[arms.full]", third))
    alone = [job for job in arms.jobs(study, project=project, dev=False) if job.arm.name == "third"]
    assert arms.owed(alone, project=project, dev=False) == []
    found = planned(study, alone, project=project, dev=False)
    assert any("for others to build upon" in line for line in found.lines)
    results.describe(study)
    about = json.loads((study.results / results.ABOUT).read_text())
    assert [arm["name"] for arm in about["arms"]] == ["warmup", "full"]


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("[dev]", "[deev]", "unknown table `deev`"),
        ("minutes = 30", "minute = 30", "unknown key of .study. `minute`"),
        ("minutes = 30", "start_seed = -1", "`start_seed` is -1, expected a whole number, at least 0"),
        ("budget = 1000", "budget = 'all'", "`budget` is 'all', expected a whole number, at least 0"),
        ("pass@1", "pass@9", "`measure` is 'pass@9', expected pass@K with K from 1 to the 4 attempts"),
        ("seeds = [9]", "seeds = [1]", "a seed of .dev. is one of the study's"),
        ("attempts = 4", "attempts = 4\nproposals = 0", "`proposals` is 0, expected true, or false where"),
        ("attempts = 4", "attempts = 4\nproposals = false", "`proposals` is False, expected true, or false where"),
        ('"full"]]', '"fall"]]', "endpoint.compare names `fall`, which is no arm"),
        ("steps = 3", "steps = 3\nmeasured = false", "endpoint.compare names `warmup`, which is not measured"),
        ('start = "warmup"', 'start = "cold"', "starts from `cold`, which is no arm"),
        ("seeds = [0, 1]", "seeds = 3", "`seeds` is 3, expected a list of whole numbers"),
        ("[arms.warmup]", '[arms.warmup]\nstart = "full"', "which is no arm or starts from it"),
    ],
)
def test_what_is_wrong_with_one(tmp_path: Path, old: str, new: str, error: str) -> None:
    with pytest.raises(UserError, match=error):
        read(written(tmp_path, old, new))


def test_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read(tmp_path / "none.toml")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_those_that_ship_are_planned(path: Path, project: Project) -> None:
    study = read(path)
    jobs = arms.jobs(study, project=project, dev=False)
    found = planned(study, jobs, project=project, dev=False)
    assert found.data["runs"] == len({job.folder for job in jobs}) > 0
    there = {path.stem for path in study.results.glob("*-*.json")}
    assert {job.name for job in jobs if arms.measured(job, project=project, dev=False)} == there, (
        "settings have changed"
    )
    assert (found.data["hours"] > 0) == any(row["left"] for row in found.data["arms"])
    assert all(arm.about for arm in study.arms)
    with pytest.raises(NotFound):
        study.arm("nobody")
