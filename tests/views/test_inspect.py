from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from selfplay.errors import Ambiguous, NotFound
from selfplay.ledger import Ledger, Reader
from selfplay.views import inspect, inspect_data, inspect_pick, inspect_text
from selfplay.views.inspect_talk import WHOLE


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
    withheld = json.dumps(inspect_data.proposal_data(proposal, content=False))
    for text in ("write ??", "another word", "--- a", "test_word", "payload"):
        assert text not in withheld
    given = inspect_data.proposal_data(proposal, content=True)
    assert given["turns"][0] == {"speaker": "prompt", "text": "write ??", "tokens": 2, "trained": False, "calls": []}
    assert given["turns"][1]["trained"] is True
    assert (given["sampled_tokens"], given["trained_tokens"]) == (3, 3)
    assert [one["state"] for one in given["proof"]] == ["passed"] * 4
    assert given["attempts"][1]["verdicts"][0]["why"] == "it is another word"
    task = inspect_data.task_data(reader.tasks(0)[0], content=True)
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
    from selfplay.views.inspect_talk import PAGE, cut

    rows = cut([f"line {n}" for n in range(100)])
    assert len(rows) == PAGE.lines + 1
    assert rows[PAGE.lines // 2] == "... 60 lines left out ..."
    assert len(cut(["x" * 100_000])[0]) == 501
    assert len(cut(["x" * 100_000] * 100, lines=WHOLE.lines, width=WHOLE.width)) == 100


GAME = """\
proposal {proposal} · step 0 · echo_proposer · v0 · 3 tokens, done · 0.5 s
seed      echo:0 (train)
prompt · 2 tokens
  write ??
reply · 3 tokens · learnt from
  ab
verdict   valid (valid): a word of 2 letters
proof     ✓ the reply ended
          ✓ it has the wanted length
          ✓ it is made of letters
          ✓ nobody proposed it before
reward    +0.10 (1 of 2 attempts solved it) · advantage +0.700 · learnt from
tokens    5 in all, 3 sampled and learnt from; prompt and answers of tools carry
no loss
task      {task} · solved in 1 of 2 attempts

attempt       solved  reward   adv.  reason      why
{right}     yes   +1.00  +0.70  passed      it is the word
{wrong}      no   -1.00  -0.70  other_word  it is another word

attempt {right} · step 0 · echo_solver · v0 · 3 tokens, done · 0.5 s
prompt · 2 tokens
  write ??
reply · 3 tokens · learnt from
  ab
verdict   passed (passed): it is the word
reward    +1.00 · advantage +0.700 · learnt from
tokens    5 in all, 3 sampled and learnt from; prompt and answers of tools carry
no loss

attempt {wrong} · step 0 · echo_solver · v0 · 3 tokens, done · 0.5 s
reply · 3 tokens · learnt from
  b
verdict   not passed (other_word): it is another word
change
  --- a/word.py
  +++ b/word.py
  @@ -1 +1 @@
  -ab
  +b
failing tests (1)
  test_word
    assert 'b' == 'ab'
evidence  num_tests 7
reward    -1.00 · advantage -0.700 · learnt from
tokens    5 in all, 3 sampled and learnt from; prompt and answers of tools carry
no loss
"""


def test_both_sides_of_a_game_on_one_page(reader: Reader) -> None:
    trajectory = reader.trajectories(0, "propose")[0]
    right, wrong = reader.trajectories(0, "attempt")
    proposal = inspect.proposal_of(reader, trajectory)
    assert proposal.task is not None
    names = {"proposal": trajectory.id, "task": proposal.task.id, "right": right.id, "wrong": wrong.id}
    expected = GAME.format(**{name: found[: inspect.ID_DIGITS] for name, found in names.items()})
    assert drawn(inspect_text.proposal_page(proposal)) + "\n" == expected


def test_best_and_worst_are_ordered_by_advantage(reader: Reader) -> None:
    best, worst = (inspect_pick.pick(reader, which, [0]) for which in ("best", "worst"))
    assert [one.score for one in best.found] == [0.7, 0.7, -0.7, -0.7]
    assert [one.score for one in worst.found] == [-0.7, -0.7, 0.7, 0.7]
    assert best.found[0].kind == "attempt"
    assert best.found[0].reward == 1.0
    assert "advantage +0.70, reward +1.00 · it is the word" in drawn(inspect_pick.pick_table(best))
    data = inspect_pick.pick_data(best, content=False)
    assert "why" not in data["found"][0]
    assert inspect_pick.pick(reader, "best", []).found == ()


def test_refused_proposals_by_reason(reader: Reader) -> None:
    found = inspect_pick.pick(reader, "rejected", [0, 1], reason="not_a_word")
    assert [(one.step, one.reward) for one in found.found] == [(1, None), (0, -1.0)]
    assert not inspect_pick.pick(reader, "rejected", [0], reason="other").found


def test_stuck_and_surprising_are_functions_of_the_rounds() -> None:
    from selfplay.ledger.picking import Record

    records = [
        Record(task_id="a", born=0, rounds=((0, 8, 0), (3, 8, 0))),
        Record(task_id="b", born=3, rounds=((3, 8, 0),)),
        Record(task_id="c", born=0, rounds=((0, 8, 7), (3, 8, 0))),
        Record(task_id="d", born=3, rounds=((3, 8, 4),)),
    ]
    assert [(one.id, one.said) for one in inspect_pick.stuck(records)] == [
        ("a", "solved in 0 of 16 attempts, played in 2 steps"),
        ("b", "solved in 0 of 8 attempts, played in 1 step"),
    ]
    found = inspect_pick.surprising(records, [3])
    assert [one.id for one in found] == ["c", "b", "d", "a"]
    assert found[0].said == "solved in 0 of 8; 7 of 8 before"
    assert found[2].said == "solved in 4 of 8; new tasks: 4 of 16"


def test_every_play_of_a_step_is_asked_once_whether_it_was_learnt_from(reader: Reader) -> None:
    past = inspect.Past(reader)
    update = reader.update(0)
    assert update is not None
    assert past.learnt(0) == frozenset(update.trajectory_ids)
    assert past.learnt(1) is None
