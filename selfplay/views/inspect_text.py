"""Proposals, attempts, tasks and seeds as a person reads them: who did what, why it counted, what it was worth.

Texts of models and repositories are shown with control characters made visible, and never as markup.

Not here: gathering (`inspect`), what was said (`inspect_talk`), which checks there are (`proof`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from selfplay.types import Seed, Task, Trajectory, Verdict
from selfplay.views.inspect import ID_DIGITS, Mutation, Play, Proposal, Replay, StepPlays
from selfplay.views.inspect_talk import (
    BESIDE,
    NAME_WIDTH,
    PAGE,
    WHOLE,
    Fold,
    block,
    conversation,
    cut,
    line,
    trained_words,
)
from selfplay.views.proof import Checked, proof_of
from selfplay.views.words import UNKNOWN, clean, duration, number, plural, shorten

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


def proposal_page(proposal: Proposal, *, fold: Fold = PAGE) -> RenderableType:
    """Both sides: a proposal, its proof check by check, its reward, and each attempt on its task with all it did."""
    play = proposal.play
    parts: list[RenderableType] = [_head("proposal", play)]
    if proposal.seed is not None:
        parts.append(line("seed", f"{proposal.seed.source} ({proposal.seed.split.replace('_', ' ')})"))
    parts += _played(play, fold=fold, proof=proof_of(play, game=proposal.game))
    if proposal.task is not None:
        passed, decided = proposal.solved
        parts.append(line("task", f"{proposal.task.id[:ID_DIGITS]} · solved in {passed} of {decided} attempts"))
    return Group(*parts, *_attempts([*proposal.attempts, *proposal.replays], fold=fold))


def attempt_page(
    play: Play, *, task: Task | None, origin: Trajectory | None = None, fold: Fold = PAGE
) -> RenderableType:
    """An attempt: what it saw, what it replied, what was decided and why; `origin` is what the task was made of."""
    parts: list[RenderableType] = [_head("attempt", play)]
    if task is not None:
        words = "child of attempt" if origin is not None and origin.stage == "attempt" else "proposed by"
        parent = f", {words} {task.parent_id[:ID_DIGITS]}" if task.parent_id is not None else ""
        parts.append(line("task", f"{task.id[:ID_DIGITS]}{parent}"))
    return Group(*parts, *_played(play, fold=fold))


def task_page(
    task: Task,
    *,
    seed: Seed | None,
    attempts: Sequence[Play],
    origin: Trajectory | None = None,
    proposal: Play | None = None,
    fold: Fold = PAGE,
) -> RenderableType:
    """A task, the `proposal` that made it, and every attempt, each play apart; `origin` is what it was made of."""
    parts: list[RenderableType] = [Text(f"task {task.id[:ID_DIGITS]} · step {task.step} · {task.game}", style="bold")]
    if seed is not None:
        parts.append(line("seed", f"{seed.source} ({seed.split.replace('_', ' ')})"))
    if origin is not None and origin.stage == "attempt":
        parts.append(line("parent", f"task {origin.subject_id[:ID_DIGITS]}, its attempt {origin.id[:ID_DIGITS]}"))
    elif task.parent_id is not None:
        parts.append(line("proposal", task.parent_id[:ID_DIGITS]))
    parts += _mapping(task.payload, fold=fold)
    if proposal is not None:
        checks = proof_of(proposal, game=task.game)
        parts += [Text(), _head("proposal", proposal), *_played(proposal, fold=fold, proof=checks)]
    return Group(*parts, *_attempts(attempts, fold=fold))


def seed_page(seed: Seed, *, proposals: Sequence[Proposal], fold: Fold = PAGE) -> RenderableType:
    """A seed and what was proposed from it."""
    title = f"seed {seed.id[:ID_DIGITS]} · {seed.game} · {seed.split.replace('_', ' ')}"
    parts: list[RenderableType] = [Text(title, style="bold"), line("source", seed.source)]
    parts += _mapping(seed.payload, fold=fold)
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


def _played(play: Play, *, fold: Fold, proof: Sequence[Checked] = (), prompt: bool = True) -> list[RenderableType]:
    """What was said, what was decided and why, what it was worth, and what of it was learnt from."""
    parts: list[RenderableType] = [*conversation(play, fold=fold, prompt=prompt)]
    if play.trajectory.fault is not None:
        parts.append(line("fault", clean(f"{play.trajectory.fault.where}: {play.trajectory.fault.message}")))
    for verdict in play.verdicts:
        if verdict.stage == "grade":
            continue
        word = "valid" if verdict.stage == "mint" else "passed"
        good = verdict.valid if verdict.stage == "mint" else bool(verdict.passed)
        outcome = word if good else f"not {word}"
        if verdict.fault is not None:
            outcome = f"not decided: {clean(verdict.fault.message)}"
        name = "child" if verdict is play.child else "verdict"
        said = line(name, f"{outcome} ({verdict.reason}): {clean(verdict.why)}")
        said.stylize("green" if good else "yellow" if verdict.fault is not None else "red", NAME_WIDTH, NAME_WIDTH + 1)
        parts += [said, *(_proof(proof) if verdict.stage == "mint" and name == "verdict" else ())]
        parts += _evidence(verdict.evidence, fold=fold)
    parts.append(line("reward", _worth(play)))
    if terms := [f"{name} {value:g}" for verdict in play.verdicts for name, value in verdict.parts.items()]:
        parts.append(line("parts", ", ".join(terms)))
    parts.append(line("tokens", trained_words(play)))
    return parts


def _proof(checks: Sequence[Checked]) -> Iterator[RenderableType]:
    """A line a check; those after a failed one together."""
    marks = {"passed": ("✓", "green"), "failed": ("✗", "red")}
    for at, check in enumerate(checks):
        if check.state == "not reached":
            yield Text(f"{'':<{NAME_WIDTH}} · {plural(len(checks) - at, 'check')} not reached", style="dim")
            return
        mark, style = marks[check.state]
        shown = Text(f"{'proof' if at == 0 else '':<{NAME_WIDTH}} ", style="dim")
        shown.append(mark, style=f"not dim {style}")
        shown.append(f" {check.what}" + (" – failed" if check.state == "failed" else ""), style="not dim")
        yield shown


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


def _evidence(evidence: Mapping[str, Any], *, fold: Fold) -> list[RenderableType]:
    parts: list[RenderableType] = []
    diff = evidence.get("diff")
    if isinstance(diff, str) and diff:
        parts += [Text("change", style="dim"), Padding(_diff(diff, fold=fold), (0, 0, 0, 2), expand=False)]
    failing = evidence.get("failing")
    if isinstance(failing, list | tuple) and failing:
        parts.append(Text(f"failing tests ({len(failing)})", style="dim"))
        most = len(failing) if fold is WHOLE else MESSAGES
        parts += [_failure(row) for row in failing[:most]]
        if len(failing) > most:
            parts.append(Text(f"  ... and {len(failing) - most} more: --text"))
    known = ("diff", "edit", "failing")
    words = [f"{key} {value}" for key, value in evidence.items() if key not in known and isinstance(value, int | float)]
    if words:
        parts.append(line("evidence", ", ".join(words)))
    return parts


def _failure(row: object) -> RenderableType:
    test, said = row if isinstance(row, list | tuple) and len(row) == 2 else (row, "")
    message = shorten(str(said), 160)
    return Text(f"  {clean(str(test))}" + (f"\n    {message}" if message else ""))


def _diff(text: str, *, fold: Fold) -> Text:
    styles = {"+": "green", "-": "red", "@": "cyan"}
    shown = Text()
    for row in cut(clean(text).splitlines(), lines=fold.lines, width=fold.width):
        shown.append(row + "\n", style=styles.get(row[:1], ""))
    shown.rstrip()
    return shown


def _attempts(attempts: Sequence[Play], *, fold: Fold) -> Iterator[RenderableType]:
    """A table a play of the task, titled where there are several or its attempts saw a hint; then each attempt."""
    plays = [(key, tuple(some)) for key, some in groupby(attempts, key=lambda one: (one.trajectory.step, one.hinted))]
    for i, ((step, hinted), some) in enumerate(plays):
        title = f"{'again in ' if i else ''}step {step}{', with a hint' if hinted else ''}"
        yield Text()
        if hinted or len(plays) > 1:
            yield Text(title, style="bold")
        yield _attempts_table(some)
    beside = fold if fold is WHOLE else BESIDE
    said: dict[tuple[str, ...], str] = {}
    prompts: set[str] = set()
    for attempt in attempts:
        turns = attempt.trajectory.turns
        asked = turns[0].text if turns else ""
        yield Text()
        yield _head("attempt", attempt)
        words = tuple(turn.text for turn in turns)
        if words in said:
            yield Text(f"  said the same as attempt {said[words]}", style="dim")
            yield line("reward", _worth(attempt))
            continue
        said[words] = attempt.trajectory.id[:ID_DIGITS]
        yield from _played(attempt, fold=beside, prompt=asked not in prompts)
        prompts.add(asked)


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


def _mapping(payload: Mapping[str, Any], *, fold: Fold) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for key, value in payload.items():
        if isinstance(value, str) and "\n" in value:
            parts += [Text(key, style="dim"), block(value, lines=fold.lines, fold=fold)]
        else:
            parts.append(line(key, clean(str(value)) if fold is WHOLE else shorten(_short(value), 400)))
    return parts


def _short(value: object) -> str:
    """A value of a payload; of a list its length and its beginning, of a table its keys."""
    if isinstance(value, Mapping):
        return f"{plural(len(value), 'key')}: {', '.join(map(str, value))}"
    if isinstance(value, list | tuple):
        return f"{len(value)} of them, first {shorten(str(value[0]), 120)}" if value else "none"
    return str(value)
