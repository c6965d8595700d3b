"""The page of results: made of the committed files alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from selfplay.errors import UserError
from selfplay.study import opening, page, results
from selfplay.study.spec import Study, read
from tests.study.small import written

RESULTS = Path(__file__).parents[2] / "curricula" / "results"


PLAYED = {
    "first": {"proposals": 0, "valid": 0, "attempts": 8, "passed": 2, "groups": 4, "informative": 4, "tasks": 0},
    "last": {"proposals": 0, "valid": 0, "attempts": 8, "passed": 6, "groups": 4, "informative": 1, "tasks": 0},
}


def row(arm: str, seed: int, passed: int, *, tokens: int = 1000) -> dict[str, Any]:
    """A result of two functions: one that is always solved, one of which `passed` of 4 attempts were right."""
    counts = {"f": {"a": [4, 4]}, "g": {"b": [4, passed]}}
    run = {
        **{"ledger": "ab" * 16, "check": "accepted", "config": "c", "steps": 5, "weights": "cd" * 16},
        **{"generated": tokens, "trained": tokens, "warmup_updates": 0, "warmup_tokens": 0, "verifications": 40},
        **{"seconds": 3600.0, "sandbox_seconds": 1800.0, "played": PLAYED},
    }
    return {
        **{"schema": "selfplay.study/1", "study": "small", "arm": arm, "about": ""},
        **{"start": "", "seed": seed, "model": "toy", "k": 1, "attempts": 4, "temperature": 1.0, "budget": 1000},
        "looked": {"endpoint": {"counts": counts, "valid": [4, 1], "seconds": 1.0}},
        "run": run,
        "machine": {"processor": "x", "cores": "2"},
    }


def put(study: Study, found: dict[str, Any], *, arm_digest: str = "") -> None:
    """Write a result of the arm as it is, or of another form of it."""
    name = f"{found['arm']}-{found['seed']}"
    digest = arm_digest or study.arm_digests[found["arm"]]
    results.put(results.path_of(study, name=name, dev=False), {**found, "arm_digest": digest})


def test_the_committed_page_is_current() -> None:
    assert (RESULTS / page.NAME).read_text(encoding="utf-8") == page.page(RESULTS), "selfplay study --page"


def test_figures_differences_and_costs(tmp_path: Path) -> None:
    study = read(written(tmp_path))
    results.describe(study)
    for seed, before, after in ((0, 0, 2), (1, 2, 4)):
        put(study, row("warmup", seed, before))
        put(study, row("full", seed, after))
    text = page.page(tmp_path / "results")
    # warmup: (1 + 0) / 2 and (1 + 1/2) / 2; full: (1 + 1/2) / 2 and 1.
    assert "| warmup | 2 | 62.5 [" in text
    assert "| full | 2 | 87.5 [" in text
    assert "25.0 % of 8" in text
    # g differs by 1/2 with both seeds, f not at all: 25 points; of two seeds no p is below 2/4.
    assert "| full less warmup | 2 | +25.0 [+0.0, +50.0] | 0.5000 | 0.5000 |" in text
    # 2,000 tokens, 3,600 and 1,800 seconds for 25 points
    assert "| full | 0 | 5 | 1,000 | 1,000 | 40 | 1.00 | 0.50 | +25.0 | 80 | 144 | 72 |" in text
    assert "The test tasks were not opened." in text
    assert "pass@1 of 4 attempts at temperature 1.0 on 2 tasks of 2 seeds, held-out tasks of the runs." in text
    assert "| full |  | 25.0 % to 75.0 % | 100.0 % to 25.0 % |" in text
    file = sha256(results.path_of(study, name="full-0", dev=False).read_bytes()).hexdigest()[:16]
    assert f"| full-0 | abababababababab | cdcdcdcdcdcdcdcd | {file} | cores 2, processor x |" in text
    assert page.write(tmp_path / "results").read_text() == text


def test_results_of_a_former_form_are_left_out_and_named(tmp_path: Path) -> None:
    study = read(written(tmp_path))
    results.describe(study)
    put(study, row("warmup", 0, 0))
    put(study, {**row("full", 0, 4), "k": 4}, arm_digest="a former form's")
    text = page.page(tmp_path / "results")
    assert "Left out, as measured with another form of their arm: `full-0`." in text
    assert "| full |" not in text
    assert "| warmup | 1 | 50.0 [" in text


def test_a_longer_warm_up_does_not_cost_nothing(tmp_path: Path) -> None:
    study = read(written(tmp_path))
    results.describe(study)
    put(study, row("warmup", 0, 0))
    longer = row("full", 0, 2, tokens=0)
    longer["run"].update({"seconds": 0, "sandbox_seconds": 0, "warmup_updates": 9, "steps": 0})
    put(study, longer)
    assert "| full | 9 | 0 | 0 | 0 | 40 | 0.00 | 0.00 | +25.0 |  |  |  |" in page.page(tmp_path / "results")


def test_bugs_unlike_the_warm_up_s_are_told_apart(tmp_path: Path) -> None:
    study = read(written(tmp_path))
    results.describe(study)
    one = row("full", 0, 2)
    one["looked"]["endpoint" + results.UNLIKE] = {"counts": {"g": {"b": [4, 2]}}, "valid": [0, 0], "seconds": 1.0}
    put(study, one)
    put(study, row("warmup", 0, 0))
    text = page.page(tmp_path / "results")
    head = "| by kind of bug | no procedural mutation | pass@1 | pass@4 | a mutation | pass@1 | pass@4 |"
    whole = "100.0 [100.0, 100.0]"
    assert head in text
    assert f"| full | 1 | 50.0 [50.0, 50.0] | {whole} | 1 | {whole} | {whole} |" in text
    assert "| warmup | 0 |  |  | 0 |  |  |" in text


def test_a_page_without_results(tmp_path: Path) -> None:
    assert "Nothing was measured yet." in page.page(tmp_path / "none")
    study = read(written(tmp_path))
    results.describe(study)
    assert "No arm was measured yet." in page.page(tmp_path / "results")


def test_a_file_that_is_no_result(tmp_path: Path) -> None:
    study = read(written(tmp_path))
    results.describe(study)
    (study.results / "full-0.json").write_text('{"schema": "other"}')
    with pytest.raises(UserError, match="is no result of a study"):
        page.page(tmp_path / "results")


def test_shells_that_open_the_test_at_once_are_all_noted(tmp_path: Path) -> None:
    forms = [read(written(tmp_path, "budget = 1000", f"budget = {1000 + form}")) for form in range(24)]
    assert len({study.digest for study in forms}) == 24
    with ThreadPoolExecutor(24) as shells:
        list(shells.map(lambda study: opening.open_test(study, again=True), forms))
    assert len(opening.openings(forms[0].results)) == 24


def test_the_test_is_opened_once_for_one_form_of_the_study(tmp_path: Path) -> None:
    study = read(written(tmp_path))
    opening.open_test(study, again=False)
    opening.open_test(study, again=False)
    assert len(opening.openings(study.results)) == 1
    changed = read(written(tmp_path, "budget = 1000", "budget = 2000"))
    with pytest.raises(UserError, match="was opened before, and the study has changed since") as caught:
        opening.open_test(changed, again=False)
    assert "--open-again" in str(caught.value.hint)
    opening.open_test(changed, again=True)
    assert len(opening.openings(study.results)) == 2
    results.describe(study)
    assert "opened 2 times" in page.page(tmp_path / "results")
    other = read(written(tmp_path, 'tasks = "held_out"', 'tasks = "tasks"\ndigest = "d"'))
    results.describe(other)
    path = other.results.with_name("again") / results.ABOUT
    path.parent.mkdir()
    path.write_text((other.results / results.ABOUT).read_text())
    assert "opened 2 times, 2 of them by `small`" in page.of_study(path.parent), "the same tasks by another name"
    (study.results / opening.NAME).write_text("[")
    with pytest.raises(UserError, match="is damaged"):
        opening.openings(study.results)


def test_tasks_are_those_that_the_study_names(tmp_path: Path) -> None:
    study = read(written(tmp_path, 'tasks = "held_out"', 'tasks = "tasks"'))
    with pytest.raises(Exception, match="are not there"):
        opening.task_files(study)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "a.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match="names no digest of its tasks") as caught:
        opening.task_files(study)
    digest = str(caught.value.hint).rpartition('digest = "')[2].rstrip('"')
    text = study.path.read_text().replace('tasks = "tasks"', f'tasks = "tasks"\ndigest = "{digest}"')
    study.path.write_text(text)
    assert [path.name for path in opening.task_files(read(study.path))] == ["a.jsonl"]
    (tmp_path / "tasks" / "a.jsonl").write_text("{} \n")
    with pytest.raises(UserError, match="names other tasks"):
        opening.task_files(read(study.path))
