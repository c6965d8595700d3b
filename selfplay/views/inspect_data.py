"""Proposals, attempts, tasks and seeds as JSON: metadata, and texts only where they are asked for.

Texts were written by a model or stand in somebody's repository: a program that reads them reads data, not orders.

Not here: gathering (`inspect`), screens (`inspect_text`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from selfplay.types import Seed, Task, Turn, Verdict
from selfplay.views.inspect import Mutation, Play, Proposal, Replay
from selfplay.views.proof import proof_data, proof_of


def play_data(play: Play, *, content: bool) -> dict[str, Any]:
    """A trajectory as JSON; texts that a model or a repository wrote only where `content` is asked for."""
    trajectory = play.trajectory
    calls = [call for turn in trajectory.turns for call in turn.calls]
    data: dict[str, Any] = {
        "id": trajectory.id,
        "stage": trajectory.stage,
        "step": trajectory.step,
        "role": trajectory.role,
        "subject_id": trajectory.subject_id,
        "index": trajectory.index,
        "stop": str(trajectory.stop),
        "policy_version": list(trajectory.policy_version),
        "sampled_tokens": trajectory.num_sampled,
        "trained_tokens": play.num_trained,
        "replies": sum(turn.sampled for turn in trajectory.turns),
        "calls": [{"name": call.name, "exit_code": call.exit_code, "seconds": call.seconds} for call in calls],
        "seconds": trajectory.seconds,
        "reward": play.reward,
        "advantage": play.advantage,
        "informative": play.informative,
        "trained": play.trained,
        "hinted": play.hinted,
        "verdicts": [verdict_data(verdict, content=content) for verdict in play.verdicts],
    }
    if content:
        data["turns"] = [_turn_data(turn, trained=bool(play.trained)) for turn in trajectory.turns]
        data["product"] = dict(trajectory.product)
    return data


def _turn_data(turn: Turn, *, trained: bool) -> dict[str, Any]:
    said = ("name", "arguments", "result", "exit_code", "seconds")
    return {
        "speaker": turn.speaker,
        "text": turn.text,
        "tokens": len(turn.token_ids),
        "trained": trained and turn.sampled,
        "calls": [{name: getattr(call, name) for name in said} for call in turn.calls],
    }


def verdict_data(verdict: Verdict, *, content: bool) -> dict[str, Any]:
    """A verdict as JSON."""
    failing = verdict.evidence.get("failing")
    data: dict[str, Any] = {
        "stage": verdict.stage,
        "valid": verdict.valid,
        "passed": verdict.passed,
        "reward": verdict.reward,
        "reason": verdict.reason,
        "task_id": verdict.task_id,
        "parts": dict(verdict.parts),
        "num_failing": len(failing) if isinstance(failing, list | tuple) else None,
        "seconds": verdict.seconds,
    }
    if content:
        data |= {"why": verdict.why, "evidence": dict(verdict.evidence)}
    return data


def proposal_data(proposal: Proposal, *, content: bool) -> dict[str, Any]:
    """A proposal and its attempts as JSON."""
    passed, decided = proposal.solved
    return {
        **play_data(proposal.play, content=content),
        "seed": seed_data(proposal.seed, content=content) if proposal.seed is not None else None,
        "proof": proof_data(proof_of(proposal.play, game=proposal.game)),
        "task_id": proposal.task.id if proposal.task is not None else None,
        "passed": passed,
        "decided": decided,
        "attempts": [play_data(attempt, content=content) for attempt in proposal.attempts],
        "replays": [play_data(attempt, content=content) for attempt in proposal.replays],
    }


def replay_data(replay: Replay, *, content: bool) -> dict[str, Any]:
    """A known task that was attempted again, as JSON."""
    passed, decided = replay.solved
    return {
        "task_id": replay.choice.subject_id,
        "hinted": replay.hinted,
        "why": replay.choice.why,
        "passed": passed,
        "decided": decided,
        "attempts": [play_data(attempt, content=content) for attempt in replay.attempts],
    }


def mutation_data(mutation: Mutation, *, content: bool) -> dict[str, Any]:
    """A child, or what became of it, as JSON."""
    passed, decided = mutation.solved
    verdict = mutation.verdict
    return {
        "attempt_id": mutation.attempt_id,
        "parent_id": mutation.parent_id,
        "verdict": verdict_data(verdict, content=content) if verdict is not None else None,
        "task_id": mutation.task.id if mutation.task is not None else None,
        "passed": passed,
        "decided": decided,
        "attempts": [play_data(attempt, content=content) for attempt in mutation.attempts],
    }


def seed_data(seed: Seed, *, content: bool) -> dict[str, Any]:
    """A seed as JSON."""
    return {"id": seed.id, "source": seed.source, "split": seed.split, **_payload(seed.payload, content)}


def task_data(task: Task, *, content: bool) -> dict[str, Any]:
    """A task as JSON."""
    head = {"id": task.id, "seed_id": task.seed_id, "split": task.split, "step": task.step, "parent_id": task.parent_id}
    return {**head, **_payload(task.payload, content)}


def _payload(payload: Mapping[str, Any], content: bool) -> dict[str, Any]:
    return {"payload": dict(payload)} if content else {}
