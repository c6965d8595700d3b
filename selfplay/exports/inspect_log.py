"""Plays as logs of inspect_ai, which `inspect view` and its data frames open: one log a step and side.

A sample is a task (a solver's log) or a seed (a proposer's), an epoch one play on it. Its score is the verdict: `C`
where it succeeded, `I` where it did not, none where nothing was decided; its explanation is the verdict's `why`.
Written by inspect_ai itself (`write_eval_log`, format `.eval`).

Not here: which plays (`plays`); events, which the ledger has as turns.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from selfplay import __version__
from selfplay.exports.atif import facts, model_of
from selfplay.exports.plays import Play, plays
from selfplay.exports.seam import BOTH, Asked, Made, Out, Simple, needs, require_rows
from selfplay.types import Stop, Turn, digest

STOPS = {Stop.DONE: "stop", Stop.TOKENS: "max_tokens", Stop.OUTPUT: "max_tokens", Stop.CONTEXT: "model_length"}
"""Why a reply ended, in inspect_ai's words; all else is `unknown`."""


def log_of(asked: Asked, found: Sequence[Play], *, at: float) -> Any:
    """The plays of one step, side and split as an `EvalLog`."""
    log = needs("inspect_ai.log", extra="inspect")
    first, model, created = found[0], model_of(asked), _time(at)
    task = f"{asked.name}-{first.trajectory.step:05}-{first.side}" + ("-held-out" if first.split == "held_out" else "")
    ids = list(dict.fromkeys(play.trajectory.subject_id for play in found))
    row = asked.reader.run_row()
    decided = [play.succeeded for play in found if play.succeeded is not None]
    rate = {"accuracy": log.EvalMetric(name="accuracy", value=sum(decided) / len(decided))} if decided else {}
    results = log.EvalResults(
        total_samples=len(found),
        completed_samples=len(found),
        scores=[log.EvalScore(name="verdict", scorer="verdict", scored_samples=len(decided), metrics=rate)],
    )
    spec = log.EvalSpec(
        eval_id=digest("inspect", row.config_digest, task)[:22],
        run_id=row.config_digest[:22],
        created=created,
        task=task,
        task_id=digest("inspect", task)[:22],
        dataset=log.EvalDataset(name=row.game, samples=len(ids), sample_ids=ids, shuffled=False),
        model=f"selfplay/{model}",
        config=log.EvalConfig(epochs=max(play.trajectory.index for play in found) + 1),
        packages={"selfplay-curriculum": __version__},
        metadata={"run": asked.name, "step": first.trajectory.step, "side": first.side, "config": dict(row.config)},
    )
    stats = log.EvalStats(started_at=created, completed_at=created)
    samples = [_sample(play, run=asked.name, model=model) for play in found]
    return log.EvalLog(status="success", eval=spec, results=results, stats=stats, samples=samples)


def _sample(play: Play, *, run: str, model: str) -> Any:
    log, own = needs("inspect_ai.log", extra="inspect"), play.trajectory
    scores = None
    if play.succeeded is not None:
        scorer = needs("inspect_ai.scorer", extra="inspect")
        told = {"reward": play.reward, "reason": play.verdict.reason if play.verdict is not None else None}
        score = scorer.Score(
            value="C" if play.succeeded else "I", answer=own.reply, explanation=play.why, metadata=told
        )
        scores = {"verdict": score}
    return log.EvalSample(
        id=own.subject_id,
        epoch=own.index + 1,
        input=own.turns[0].text if own.turns else "",
        target="",
        messages=_messages(own.turns, name=own.id),
        output=_output(play, model=model),
        scores=scores,
        metadata={"id": own.id, **facts(play, run=run)},
        total_time=own.seconds,
        uuid=own.id,
    )


def _messages(turns: Sequence[Turn], *, name: str) -> list[Any]:
    said = needs("inspect_ai.model", extra="inspect")
    tools = needs("inspect_ai.tool", extra="inspect")
    found: list[Any] = []
    calling: Turn | None = None
    for number, turn in enumerate(turns):
        place = f"{name}-{number}"
        if turn.sampled:
            calls = [
                tools.ToolCall(id=f"{place}-{at}", function=call.name, arguments=dict(call.arguments))
                for at, call in enumerate(turn.calls)
            ]
            found.append(said.ChatMessageAssistant(id=place, content=turn.text, tool_calls=calls or None))
            calling = turn
        elif turn.speaker == "tool":
            call = calling.calls[0] if calling is not None and calling.calls else None
            about = {"tool_call_id": f"{name}-{number - 1}-0", "function": call.name} if call is not None else {}
            found.append(said.ChatMessageTool(id=place, content=turn.text, **about))
        else:
            found.append(said.ChatMessageUser(id=place, content=turn.text))
    return found


def _output(play: Play, *, model: str) -> Any:
    said, own = needs("inspect_ai.model", extra="inspect"), play.trajectory
    output = said.ModelOutput.from_content(model, own.reply, stop_reason=STOPS.get(own.stop, "unknown"))
    given = sum(len(turn.token_ids) for turn in own.turns) - own.num_sampled
    output.usage = said.ModelUsage(
        input_tokens=given, output_tokens=own.num_sampled, total_tokens=given + own.num_sampled
    )
    return output


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _write(asked: Asked, out: Out) -> Made:
    require_rows(asked)
    log = needs("inspect_ai.log", extra="inspect")
    closed = {row.step: row.closed_at for row in asked.reader.step_rows()}
    last = max(closed)
    count = 0
    for key, found in itertools.groupby(plays(asked), key=lambda play: (play.trajectory.step, play.trajectory.stage)):
        by_side: dict[tuple[str, str], list[Play]] = {}
        for play in found:
            by_side.setdefault((play.side, play.split), []).append(play)
        for own in by_side.values():
            # note: the last evaluation follows the last step, and has no step of its own that could be closed.
            made = log_of(asked, own, at=closed[min(key[0], last)])
            at = made.eval.created.replace(":", "-")
            log.write_eval_log(made, str(out.folder / f"{at}_{made.eval.task}_{made.eval.task_id}.eval"), format="eval")
            count += 1
    return Made(count=count, next="inspect view --log-dir {to}")


INSPECT = Simple(
    about="logs that `inspect view` opens, one a step and side", noun="log", shape="folder", takes=BOTH, writer=_write
)
