"""Proposals, attempts, tasks and seeds as a person reads them: who did what, why it counted, what it was worth.

Texts of models and repositories are shown with control characters made visible, and never as markup.

Not here: gathering (`inspect`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from selfplay.types import Seed, Task, Trajectory, Verdict
from selfplay.views.inspect import ID_DIGITS, Mutation, Play, Proposal, Replay, StepPlays
from selfplay.views.words import UNKNOWN, clean, duration, number, shorten

LINES = 40
"""Longest text that is shown whole; the middle of a longer one is left out."""

LISTED = ("proposal", "outcome", "solved", "reward", "adv.", "why")
AGAIN = ("task", "hint", "solved", "why")
CHILDREN = ("attempt", "child", "solved", "why")

MESSAGES = 5
"""Failing tests that are shown."""


def steps_listing(steps: Sequence[StepPlays]) -> RenderableType:
    """The proposals of some steps, a line each: id, verdict, how often it was solved, reward, advantage, why.

    And below them the known tasks that were played again, and the failed attempts that were chosen for children.
    """
    parts: list[RenderableType] = []
    for step in steps:
        state = "" if step.closed else " (open)"
        parts.append(Text(f"step {step.step}{state}", style="bold"))
        table = Table(box=None, pad_edge=False, show_header=bool(step.proposals), header_style="dim", expand=False)
        _columns(table, LISTED)
        for proposal in step.proposals:
            table.add_row(*_listing_row(proposal))
        parts.append(Padding(table, (0, 0, 1, 2), expand=False))
        rows = {AGAIN: [_replay_row(one) for one in step.replays], CHILDREN: [*map(_mutation_row, step.mutations)]}
        for titles, listed in rows.items():
            table = Table(box=None, pad_edge=False, header_style="dim", expand=False)
            _columns(table, titles)
            for row in listed:
                table.add_row(*row)
            parts += [Padding(table, (0, 0, 1, 2), expand=False)] if listed else []
    return Group(*parts)


def proposal_page(proposal: Proposal) -> RenderableType:
    """A proposal, its proof of validity, each attempt, reward and advantage."""
    play = proposal.play
    parts: list[RenderableType] = [_head("proposal", play)]
    if proposal.seed is not None:
        parts.append(_line("seed", f"{proposal.seed.source} ({proposal.seed.split.replace('_', ' ')})"))
    parts += _played(play)
    if proposal.task is not None:
        passed, decided = proposal.solved
        parts.append(_line("task", f"{proposal.task.id[:ID_DIGITS]} · solved in {passed} of {decided} attempts"))
    return Group(*parts, *_attempts([*proposal.attempts, *proposal.replays]))


def attempt_page(play: Play, *, task: Task | None, origin: Trajectory | None = None) -> RenderableType:
    """An attempt: what it saw, what it replied, what was decided and why; `origin` is what the task was made of."""
    parts: list[RenderableType] = [_head("attempt", play)]
    if task is not None:
        words = "child of attempt" if origin is not None and origin.stage == "attempt" else "proposed by"
        parent = f", {words} {task.parent_id[:ID_DIGITS]}" if task.parent_id is not None else ""
        parts.append(_line("task", f"{task.id[:ID_DIGITS]}{parent}"))
    return Group(*parts, *_played(play))


def task_page(
    task: Task, *, seed: Seed | None, attempts: Sequence[Play], origin: Trajectory | None = None
) -> RenderableType:
    """A task and every attempt on it, each play apart; `origin` is what it was made of."""
    parts: list[RenderableType] = [Text(f"task {task.id[:ID_DIGITS]} · step {task.step} · {task.game}", style="bold")]
    if seed is not None:
        parts.append(_line("seed", f"{seed.source} ({seed.split.replace('_', ' ')})"))
    if origin is not None and origin.stage == "attempt":
        parts.append(_line("parent", f"task {origin.subject_id[:ID_DIGITS]}, its attempt {origin.id[:ID_DIGITS]}"))
    elif task.parent_id is not None:
        parts.append(_line("proposal", task.parent_id[:ID_DIGITS]))
    return Group(*parts, *_mapping(task.payload), *_attempts(attempts))


def seed_page(seed: Seed, *, proposals: Sequence[Proposal]) -> RenderableType:
    """A seed and what was proposed from it."""
    title = f"seed {seed.id[:ID_DIGITS]} · {seed.game} · {seed.split.replace('_', ' ')}"
    parts: list[RenderableType] = [Text(title, style="bold"), _line("source", seed.source), *_mapping(seed.payload)]
    if proposals:
        table = Table(box=None, pad_edge=False, header_style="dim")
        _columns(table, LISTED)
        for proposal in proposals:
            table.add_row(*_listing_row(proposal))
        parts += [Text(), table]
    return Group(*parts)


def _columns(table: Table, titles: Sequence[str]) -> None:
    for title in titles:
        right = title in ("solved", "reward", "adv.")
        table.add_column(title, no_wrap=title != "why", justify="right" if right else "left", overflow="fold")


def _listing_row(proposal: Proposal) -> list[str | Text]:
    play, decision = proposal.play, proposal.play.decision
    passed, decided = proposal.solved
    return [
        play.trajectory.id[:ID_DIGITS],
        _outcome(decision),
        f"{passed}/{decided}" if proposal.attempts else "",
        number(play.reward, signed=True),
        number(play.advantage, signed=True),
        Text(shorten(decision.why, 200) if decision is not None else "not decided yet"),
    ]


def _replay_row(replay: Replay) -> list[str | Text]:
    passed, decided = replay.solved
    return [
        replay.choice.subject_id[:ID_DIGITS],
        "yes" if replay.hinted else "no",
        f"{passed}/{decided}" if replay.attempts else "",
        Text(shorten(replay.choice.why, 200)),
    ]


def _mutation_row(mutation: Mutation) -> list[str | Text]:
    passed, decided = mutation.solved
    verdict, task = mutation.verdict, mutation.task
    return [
        mutation.attempt_id[:ID_DIGITS],
        task.id[:ID_DIGITS] if task is not None else _outcome(verdict),
        f"{passed}/{decided}" if mutation.attempts else "",
        Text(shorten(verdict.why, 200) if verdict is not None else "not decided yet"),
    ]


def _outcome(decision: Verdict | None) -> str:
    if decision is None:
        return UNKNOWN
    return "fault" if decision.fault is not None else decision.reason


def _head(noun: str, play: Play) -> Text:
    trajectory = play.trajectory
    low, high = trajectory.policy_version
    version = f"v{low}" if low == high else f"v{low}-{high}"
    return Text(
        f"{noun} {trajectory.id[:ID_DIGITS]} · step {trajectory.step} · {trajectory.role} · {version} · "
        f"{trajectory.num_sampled} tokens, {trajectory.stop} · {duration(trajectory.seconds)}",
        style="bold",
    )


def _played(play: Play) -> list[RenderableType]:
    parts = _turns(play.trajectory)
    for verdict in play.verdicts:
        if verdict.stage == "grade":
            continue
        word = "valid" if verdict.stage == "mint" else "passed"
        good = verdict.valid if verdict.stage == "mint" else bool(verdict.passed)
        outcome = word if good else f"not {word}"
        if verdict.fault is not None:
            outcome = f"not decided: {clean(verdict.fault.message)}"
        name = "child" if verdict is play.child else "verdict"
        parts += [_line(name, f"{outcome} ({verdict.reason}): {clean(verdict.why)}"), *_evidence(verdict.evidence)]
    parts.append(_line("reward", _worth(play)))
    return parts


def _worth(play: Play) -> str:
    words = [number(play.reward, signed=True)]
    grade = next((verdict for verdict in play.verdicts if verdict.stage == "grade"), None)
    if grade is not None:
        words.append(f"({clean(grade.why)})")
    elif play.decision is not None and play.reward is None and play.decision.stage == "judge":
        words.append("(nothing was decided)")
    words.append(f"· advantage {number(play.advantage, digits=3, signed=True)}")
    if play.informative is False:
        words.append("· its group has no variance and teaches nothing")
    if play.trained is not None:
        words.append("· learnt from" if play.trained else "· not learnt from")
    return " ".join(words)


def _turns(trajectory: Trajectory) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for turn in trajectory.turns:
        name = {"prompt": "prompt", "policy": "reply", "tool": "tool"}[turn.speaker]
        parts += [Text(name, style="dim"), _block(turn.text)]
    if trajectory.fault is not None:
        parts.append(_line("fault", clean(f"{trajectory.fault.where}: {trajectory.fault.message}")))
    return parts


def _evidence(evidence: Mapping[str, Any]) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if isinstance(evidence.get("diff"), str):
        parts += [Text("change", style="dim"), Padding(_diff(evidence["diff"]), (0, 0, 0, 2), expand=False)]
    failing = evidence.get("failing")
    if isinstance(failing, list | tuple) and failing:
        parts.append(Text(f"failing tests ({len(failing)})", style="dim"))
        parts += [_failure(row) for row in failing[:MESSAGES]]
        if len(failing) > MESSAGES:
            parts.append(Text(f"  ... and {len(failing) - MESSAGES} more: --json --content"))
    known = ("diff", "edit", "failing")
    words = [f"{key} {value}" for key, value in evidence.items() if key not in known and isinstance(value, int | float)]
    if words:
        parts.append(_line("evidence", ", ".join(words)))
    return parts


def _failure(row: object) -> RenderableType:
    test, said = row if isinstance(row, list | tuple) and len(row) == 2 else (row, "")
    message = shorten(str(said), 160)
    return Text(f"  {clean(str(test))}" + (f"\n    {message}" if message else ""))


def _diff(text: str) -> Text:
    styles = {"+": "green", "-": "red", "@": "cyan"}
    shown = Text()
    for line in _cut(clean(text).splitlines()):
        shown.append(line + "\n", style=styles.get(line[:1], ""))
    shown.rstrip()
    return shown


def _attempts(attempts: Sequence[Play]) -> Iterator[RenderableType]:
    """A table a play of the task, with a title where there are several or its attempts saw a hint."""
    plays = [(key, tuple(some)) for key, some in groupby(attempts, key=lambda one: (one.trajectory.step, one.hinted))]
    for i, ((step, hinted), some) in enumerate(plays):
        title = f"{'again in ' if i else ''}step {step}{', with a hint' if hinted else ''}"
        yield Text()
        if hinted or len(plays) > 1:
            yield Text(title, style="bold")
        yield _attempts_table(some)


def _attempts_table(attempts: Sequence[Play]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    _columns(table, ("attempt", "solved", "reward", "adv.", "reason", "why"))
    for play in attempts:
        decision = play.decision
        solved = UNKNOWN if decision is None or decision.passed is None else ("yes" if decision.passed else "no")
        table.add_row(
            play.trajectory.id[:ID_DIGITS],
            solved,
            number(play.reward, signed=True),
            number(play.advantage, signed=True),
            _outcome(decision),
            Text(shorten(decision.why, 200) if decision is not None else "not judged yet"),
        )
    return table


def _mapping(payload: Mapping[str, Any]) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for key, value in payload.items():
        if isinstance(value, str) and "\n" in value:
            parts += [Text(key, style="dim"), _block(value)]
        else:
            parts.append(_line(key, shorten(str(value), 400)))
    return parts


def _block(text: str) -> Padding:
    return Padding(Text("\n".join(_cut(clean(text).rstrip("\n").split("\n")))), (0, 0, 0, 2), expand=False)


def _cut(lines: Sequence[str]) -> Iterable[str]:
    short = [line if len(line) <= 500 else line[:500] + "…" for line in lines]
    if len(short) <= LINES:
        return short
    half = LINES // 2
    return [*short[:half], f"... {len(short) - LINES} lines left out ...", *short[-half:]]


def _line(name: str, text: str) -> Text:
    shown = Text()
    shown.append(f"{name:<9} ", style="dim")
    shown.append(text)
    return shown
