"""What was played, as rows for other learners: traces of what succeeded, and pairs of a group's best and worst.

    sft    one row a play that succeeded: a valid proposal, a passed attempt; `messages`
    dpo    one row a group that teaches something: `prompt`, `chosen`, `rejected`, where rewards differ most

Columns are those of TRL's conversational formats, beside ids and what was decided. A prompt is one message of `user`,
replies are `assistant`, answers of tools `tool`. Only plays that the run learnt from are rows: what is held out is
played in stage `evaluate`, which is never read here.

Not here: files (`cli.export`), tasks as rows (`evaluation.tasks`, `games.code.swebench`).

Example:
    >>> next(sft(reader))["messages"][0]["role"]  # doctest: +SKIP
    'user'
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from selfplay.ledger import Reader
from selfplay.types import Stage, Trajectory, Turn, Verdict, VerdictStage

SIDES: tuple[tuple[Stage, VerdictStage, str], ...] = (("propose", "mint", "proposer"), ("attempt", "judge", "solver"))


def sft(reader: Reader) -> Iterator[dict[str, Any]]:
    """Every play of a closed step that succeeded, step by step."""
    for step in range(reader.last_closed_step() + 1):
        for stage, decided, side in SIDES:
            verdicts = reader.verdicts(step, stage, decided)
            for play in reader.trajectories(step, stage):
                verdict = verdicts.get(play.id)
                # note: a proposal for which no model was asked has no turns.
                good = verdict is not None and (verdict.passed if stage == "attempt" else verdict.valid)
                if verdict is not None and good and play.turns:
                    yield {"messages": messages(play.turns), **_facts(play, verdict, side)}


def dpo(reader: Reader) -> Iterator[dict[str, Any]]:
    """Of each group that teaches something its best and its worst play, where both saw the same prompt."""
    for step in range(reader.last_closed_step() + 1):
        groups = [group for group in reader.groups(step) if group.informative]
        wanted = {}
        for group in groups:
            pairs = sorted(zip(group.rewards, group.trajectory_ids, strict=True))
            if pairs[0][0] < pairs[-1][0]:
                wanted[group.id] = (pairs[-1], pairs[0])
        plays = reader.trajectories_by_id(name for pair in wanted.values() for _, name in pair)
        for best, worst in wanted.values():
            chosen, rejected = plays[best[1]], plays[worst[1]]
            if _prompt(chosen) != _prompt(rejected):
                continue
            yield {
                "prompt": messages(chosen.turns[:1]),
                "chosen": messages(chosen.turns[1:]),
                "rejected": messages(rejected.turns[1:]),
                "chosen_reward": best[0],
                "rejected_reward": worst[0],
                "chosen_id": chosen.id,
                "rejected_id": rejected.id,
                "step": step,
                "side": "proposer" if chosen.stage == "propose" else "solver",
                "role": chosen.role,
                "subject_id": chosen.subject_id,
            }


def messages(turns: Sequence[Turn]) -> list[dict[str, str]]:
    """Turns as messages."""
    roles = {"prompt": "user", "policy": "assistant", "tool": "tool"}
    return [{"role": roles[turn.speaker], "content": turn.text} for turn in turns]


def _prompt(play: Trajectory) -> tuple[int, ...]:
    return play.turns[0].token_ids if play.turns else ()


def _facts(play: Trajectory, verdict: Verdict, side: str) -> dict[str, Any]:
    return {
        "id": play.id,
        "step": play.step,
        "side": side,
        "role": play.role,
        "subject_id": play.subject_id,
        "task_id": verdict.task_id if side == "proposer" else play.subject_id,
        "policy_version": list(play.policy_version),
        "why": verdict.why,
    }
