from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from selfplay.errors import Ambiguous, NotFound
from selfplay.ledger import Ledger, Reader
from selfplay.views import inspect, inspect_text


@pytest.fixture
def reader(played_run: Path) -> Iterator[Reader]:
    with Ledger.read(played_run) as opened:
        yield opened


def drawn(page: RenderableType) -> str:
    to = io.StringIO()
    Console(file=to, width=80, highlight=False).print(page)
    return "\n".join(row.rstrip() for row in to.getvalue().splitlines())


def test_the_listing_shows_every_proposal_and_its_outcome(reader: Reader) -> None:
    text = drawn(inspect_text.steps_listing([inspect.step_plays(reader, step) for step in (0, 1)]))
    rows = [row.split() for row in text.splitlines() if row]
    good, bad = (trajectory.id[: inspect.ID_DIGITS] for trajectory in reader.trajectories(0, "propose"))
    assert rows[0] == ["step", "0"]
    assert rows[2][:5] == [good, "valid", "1/2", "+0.10", "+0.70"]
    assert rows[3][:4] == [bad, "not_a_word", "-1.00", "-0.70"]
    assert ["step", "1", "(open)"] in rows


def test_a_proposal_with_its_proof_and_its_attempts(reader: Reader) -> None:
    trajectory = reader.trajectories(0, "propose")[0]
    proposal = inspect.proposal_of(reader, trajectory)
    assert proposal.solved == (1, 2)
    text = drawn(inspect_text.proposal_page(proposal))
    for part in (
        "proposal " + trajectory.id[:10],
        "echo:0 (train)",
        "write ??",
        "verdict   valid (valid): a word of 2 letters",
        "reward    +0.10 (1 of 2 attempts solved it) · advantage +0.700 · learnt from",
        "solved in 1 of 2 attempts",
        "it is another word",
    ):
        assert part in text


def test_an_attempt_with_its_evidence(reader: Reader) -> None:
    right, wrong = reader.trajectories(0, "attempt")
    text = drawn(inspect_text.attempt_page(inspect.play_of(reader, wrong), task=reader.task(wrong.subject_id)))
    for part in (
        "proposed by",
        "not passed (other_word)",
        "  -ab\n  +b",
        "failing tests (1)\n  test_word",
        "num_tests 7",
    ):
        assert part in text
    assert "passed (passed): it is the word" in drawn(
        inspect_text.attempt_page(inspect.play_of(reader, right), task=None)
    )


def test_a_task_and_a_seed(reader: Reader) -> None:
    task = reader.tasks(0)[0]
    seed = reader.seeds()[0]
    text = drawn(inspect_text.task_page(task, seed=seed, attempts=inspect.attempts_on(reader, task.id)))
    assert "    return 1" in text
    assert "other_word" in text
    proposals = [inspect.proposal_of(reader, trajectory) for trajectory in reader.trajectories_of(seed.id)]
    assert drawn(inspect_text.seed_page(seed, proposals=proposals)).count("not_a_word") == 2


def test_a_reply_cannot_touch_the_terminal(reader: Reader) -> None:
    bad = reader.trajectories(0, "propose")[1]
    text = drawn(inspect_text.proposal_page(inspect.proposal_of(reader, bad)))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]markup[/bold]" in text


def test_content_is_given_only_when_asked_for(reader: Reader) -> None:
    proposal = inspect.proposal_of(reader, reader.trajectories(0, "propose")[0])
    withheld = json.dumps(inspect.proposal_data(proposal, content=False))
    for text in ("write ??", "another word", "--- a", "test_word", "payload"):
        assert text not in withheld
    given = inspect.proposal_data(proposal, content=True)
    assert given["turns"][0] == {"speaker": "prompt", "text": "write ??"}
    assert given["attempts"][1]["verdicts"][0]["why"] == "it is another word"
    task = inspect.task_data(reader.tasks(0)[0], content=True)
    assert task["payload"]["word"] == "ab"


def test_an_open_step_has_no_gradients_view(reader: Reader) -> None:
    play = inspect.play_of(reader, reader.trajectories(1, "propose")[0])
    assert (play.advantage, play.informative, play.trained, play.reward) == (None, None, None, None)


def test_ids_are_found_by_their_beginning(reader: Reader) -> None:
    trajectory = reader.trajectories(0, "propose")[0]
    assert inspect.identify(reader, trajectory.id[:12]) == ("trajectories", trajectory.id)
    assert inspect.identify(reader, trajectory.id) == ("trajectories", trajectory.id)
    with pytest.raises(NotFound, match="begins with `zz`"):
        inspect.identify(reader, "zz")
    digits = [record_id[0] for _, record_id in reader.by_prefix("", limit=100)]
    twice = next((digit for digit in digits if digits.count(digit) > 1), None)
    assert twice is not None
    with pytest.raises(Ambiguous, match="begins more than one id"):
        inspect.identify(reader, twice)


def test_long_texts_are_cut_in_the_middle() -> None:
    from selfplay.views.inspect_text import LINES, _cut

    rows = list(_cut([f"line {n}" for n in range(100)]))
    assert len(rows) == LINES + 1
    assert rows[LINES // 2] == "... 60 lines left out ..."
    assert len(next(iter(_cut(["x" * 100_000])))) == 501
