"""`selfplay replay`: do a closed step again and compare it with its records.

Not here: how (`replay`).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from selfplay.cli import runs
from selfplay.cli.session import Session, common
from selfplay.errors import UserError

if TYPE_CHECKING:
    from selfplay.replay import LearnerHalf, Replayed, SamplerHalf


@click.command("replay", short_help="Do a closed step again, and compare with its records.")
@click.argument("run")
@click.argument("step", type=click.IntRange(min=0))
@click.option("--without-learner", is_flag=True, help="Only sample the replies again.")
@click.option("--without-sampler", is_flag=True, help="Only apply the update again.")
@common
def command(session: Session, run: str, step: int, without_learner: bool, without_sampler: bool) -> int:
    """Do STEP of a run again from its records: the same tokens, the same weights?

    It starts from the nearest save at or before STEP and applies recorded updates again up to it. The run is only read,
    and may be held by another process. The exit code is 1 where something differs.

    \b
    Examples:
      selfplay replay last 3
      selfplay replay quickstart 9 --without-sampler
    """
    if without_learner and without_sampler:
        raise UserError("--without-learner and --without-sampler leave nothing to do", hint="give one of them")
    if session.json:
        session.claim_stdout()
    folder = runs.find_run(run, project=session.project)
    from selfplay.replay import replay

    outcome = replay(
        folder,
        step,
        project=session.project,
        sampler=not without_sampler,
        learner=not without_learner,
        say=session.say,
    )
    if session.json:
        session.answer("replay", {**asdict(outcome), "equal": outcome.equal}, run=folder.name)
    else:
        session.data.write("".join(f"{line}\n" for line in lines(outcome)))
        if not outcome.equal:
            session.say(_why(outcome))
    return 0 if outcome.equal else 1


def lines(outcome: Replayed) -> list[str]:
    """What came out, for people."""
    start = f"save {outcome.save}" if outcome.save else "the weights that the run began with"
    text = [f"step {outcome.step}, from {start} and {_count(outcome.applied, 'recorded update')} applied again"]
    if outcome.sampler is not None:
        text.append("sampler  " + _sampler_words(outcome.sampler))
    if outcome.learner is not None:
        text.append("learner  " + _learner_words(outcome.learner))
    return text


def _sampler_words(half: SamplerHalf) -> str:
    compared = "tokens and log-probabilities" if half.logprobs else "tokens (log-probabilities are pruned)"
    text = f"{half.equal} of {_count(half.total, 'reply', 'replies')} equal in {compared}"
    if half.uncovered:
        text += f", {half.uncovered} not covered (tool turns, or sampled under other weights)"
    if half.first is not None:
        text += f"; the first that differs is {half.first.trajectory_id[:12]} at {half.first.at}: {half.first.what}"
    return f"{text} · {_speed(half.tokens, half.seconds)}"


def _learner_words(half: LearnerHalf) -> str:
    digest = half.again[:12]
    text = f"weights equal ({digest})" if half.drift is None else f"weights {digest} where {half.recorded[:12]} follow"
    if half.skipped is not None:
        text += f"; the step changed nothing: {half.skipped}"
    return f"{text} · {_speed(half.tokens, half.seconds)}"


def _why(outcome: Replayed) -> str:
    """What the difference can come from."""
    if outcome.same_fingerprint:
        return (
            f"step {outcome.step} differs, with the same software and processor as recorded: its records, the save or "
            "a role's files were changed, or something here is not deterministic"
        )
    return (
        f"step {outcome.step} differs, and it was recorded with other software or another kind of processor, where "
        "equal weights are not promised: replay it where it was recorded"
    )


def _speed(tokens: int, seconds: float) -> str:
    return f"{_count(tokens, 'token')} in {seconds:.2f} s, {tokens / max(seconds, 1e-9):,.0f} a second"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
