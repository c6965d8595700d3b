"""Trajectories in the Agent Trajectory Interchange Format, one file each.

Source: Harbor's RFC 0001, version 1.7: steps of `user`, `agent` and `system`; an agent's step has its tool calls, what
they gave (`observation`), and token ids with log-probabilities (`metrics`). A play's own facts, and what was decided
about it, are under `extra`. Written with the standard library; the package `atif` or Harbor reads it.

Not here: which plays (`plays`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from selfplay import __version__
from selfplay.exports.plays import Play, plays
from selfplay.exports.seam import BOTH, Asked, Made, Out, Simple, require_rows
from selfplay.types import Turn

VERSION = "ATIF-v1.7"


def trajectory_of(play: Play, *, run: str, model: str) -> dict[str, Any]:
    """One play as a document."""
    own = play.trajectory
    return {
        "schema_version": VERSION,
        "session_id": f"{run}-step-{own.step}",
        "trajectory_id": own.id,
        "agent": {
            "name": f"selfplay-{own.role}",
            "version": __version__,
            "model_name": model,
            "extra": {"policy_version": list(own.policy_version)},
        },
        "steps": _steps(own.turns),
        "final_metrics": _totals(own.turns),
        "extra": facts(play, run=run),
    }


def facts(play: Play, *, run: str) -> dict[str, Any]:
    """What the ledger says of a play beside its turns; JSON."""
    own, verdict = play.trajectory, play.verdict
    return {
        "run": run,
        "step": own.step,
        "stage": own.stage,
        "side": play.side,
        "split": play.split,
        "subject_id": own.subject_id,
        "index": own.index,
        "task_id": play.task.id if play.task is not None else None,
        "seed": play.seed.source if play.seed is not None else None,
        "stop": str(own.stop),
        "seconds": own.seconds,
        "valid": verdict.valid if verdict is not None else None,
        "passed": verdict.passed if verdict is not None else None,
        "reason": verdict.reason if verdict is not None else None,
        "why": play.why,
        "reward": play.reward,
        "advantage": play.advantage,
    }


def _steps(turns: tuple[Turn, ...]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    calling: dict[str, Any] | None = None
    num_before = 0
    for turn in turns:
        place = {"step_id": len(steps) + 1}
        if turn.speaker == "tool" and calling is not None and "observation" not in calling:
            calling["observation"] = {"results": _results(calling, turn)}
        elif turn.sampled:
            calling = {**place, "source": "agent", "message": turn.text, **_calls(turn, step=len(steps) + 1)}
            calling["metrics"] = {
                "prompt_tokens": num_before,
                "completion_tokens": len(turn.token_ids),
                "completion_token_ids": list(turn.token_ids),
                **({"logprobs": list(turn.logprobs)} if turn.logprobs else {}),
            }
            steps.append(calling)
        else:
            source = "user" if turn.speaker == "prompt" else "system"
            steps.append(
                {**place, "source": source, "message": turn.text, "extra": {"token_ids": list(turn.token_ids)}}
            )
        num_before += len(turn.token_ids)
    return steps


def _calls(turn: Turn, *, step: int) -> Mapping[str, Any]:
    calls = [
        {
            "tool_call_id": f"call_{step}_{number}",
            "function_name": call.name,
            "arguments": dict(call.arguments),
            "extra": {"exit_code": call.exit_code, "seconds": call.seconds, "result": call.result},
        }
        for number, call in enumerate(turn.calls)
    ]
    return {"tool_calls": calls} if calls else {}


def _results(calling: Mapping[str, Any], turn: Turn) -> list[dict[str, Any]]:
    """What the model read: one text for all calls of its reply, under the first."""
    calls = calling.get("tool_calls", [])
    named = {"source_call_id": calls[0]["tool_call_id"]} if calls else {}
    return [{**named, "content": turn.text, "extra": {"token_ids": list(turn.token_ids)}}]


def _totals(turns: tuple[Turn, ...]) -> dict[str, Any]:
    before, prompts = 0, 0
    for turn in turns:
        prompts += before if turn.sampled else 0
        before += len(turn.token_ids)
    sampled = sum(len(turn.token_ids) for turn in turns if turn.sampled)
    return {"total_prompt_tokens": prompts, "total_completion_tokens": sampled}


def model_of(asked: Asked) -> str:
    """The model that the run was made with, as its configuration names it."""
    return str(asked.reader.run_row().config.get("policy.model", "unknown"))


def _write(asked: Asked, out: Out) -> Made:
    require_rows(asked)
    count, model = 0, model_of(asked)
    for play in plays(asked):
        folder = out.folder / f"step-{play.trajectory.step:05}" / play.side
        folder.mkdir(parents=True, exist_ok=True)
        document = trajectory_of(play, run=asked.name, model=model)
        (folder / f"{play.trajectory.id}.json").write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
        count += 1
    return Made(count=count)


ATIF = Simple(
    about="one trajectory a file, Agent Trajectory Interchange Format",
    noun="play",
    shape="folder",
    takes=BOTH,
    writer=_write,
)
