"""The story of one task: where it came from, why it was chosen, how its solve rate moved, what came of it.

Every number is the ledger's, or follows from it by the posterior of the run's own curriculum.

Not here: the records (`ledger.story`), the posterior (`cli.why` asks `curriculum`), content of plays (`inspect`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from selfplay.ledger.story import Child, Claim, Round, Story
from selfplay.types import Choice, record
from selfplay.views.inspect import ID_DIGITS
from selfplay.views.words import UNKNOWN, clean, number, shorten

LISTED = 12
"""Choices, steps and children that the screen lists: the first and the newest ones."""
COPIES = 4
"""Copies that the screen lists."""


@record
class Belief:
    """What the curriculum believed of the task once a step was closed."""

    step: int
    mean: float
    """Of the posterior solve rate, without a hint."""
    low: float
    high: float
    """Nine tenths of the posterior lie between them."""
    prior: float
    """The mean of its cell's prior at that time."""


@record
class WhyView:
    """A task and all that is known about it."""

    story: Story
    beliefs: tuple[Belief, ...]
    """After the newest steps it was played in, and after the newest closed step, by step."""
    cell: str
    """Tasks like it, as the newest belief places it; empty where nothing is believed any more."""
    standing: str
    """May it be played again, in words."""
    code: str
    """The same as a word: `open`, `retired`, `evicted`, `hopeless`, `probation`, `forgotten`, `cleared`, `never`."""


def why_data(view: WhyView) -> dict[str, Any]:
    """The view as JSON, without texts that a model wrote."""
    story, task = view.story, view.story.task
    return {
        "task": {
            "id": task.id,
            "game": task.game,
            "split": task.split,
            "step": task.step,
            "seed": {"id": task.seed_id, "source": story.seed.source if story.seed is not None else None},
            "proposal_id": task.parent_id if story.parent_id is None else None,
            "attempt_id": task.parent_id if story.parent_id is not None else None,
            "parent_id": story.parent_id,
        },
        "asked": _choice_data(story.asked) if story.asked is not None else None,
        "proposals": [
            {
                "id": claim.id,
                "stage": claim.stage,
                "step": claim.step,
                "role": claim.role,
                "subject_id": claim.subject_id,
                "valid": claim.valid,
                "reason": claim.reason,
                "reward": claim.reward,
                "advantage": claim.advantage,
                "minted": claim.id == task.parent_id,
            }
            for claim in story.claims
        ],
        "choices": [_choice_data(choice) for choice in story.choices],
        "steps": [_round_data(view, one) for one in story.rounds],
        "cell": view.cell or None,
        "now": _belief_data(view.beliefs[-1]) if view.beliefs else None,
        "children": [
            {"id": one.id, "step": one.step, "decided": one.decided, "solved": one.solved} for one in story.children
        ],
        "refused_children": dict(story.refused),
        "standing": {"code": view.code, "why": view.standing},
    }


def why_page(view: WhyView) -> RenderableType:
    """The task as a person reads it."""
    story, task = view.story, view.story.task
    parts: list[RenderableType] = [
        Text(f"task {task.id[:ID_DIGITS]} · step {task.step} · {task.game} · {task.split}", style="bold")
    ]
    if story.seed is not None:
        parts.append(_line("seed", f"{clean(story.seed.source)} ({task.seed_id[:ID_DIGITS]})"))
    if story.parent_id is not None:
        failed = (story.asked.terms if story.asked is not None else {}).get("attempt")
        laid = f", its attempt {str(failed)[:ID_DIGITS]} laid over it" if failed else ""
        parts.append(_line("parent", f"task {story.parent_id[:ID_DIGITS]}{laid}"))
    parts += _proposals(story)
    chosen = [*([story.asked] if story.asked is not None else []), *story.choices]
    parts += [Text(), Text("chosen", style="bold"), *_choices(chosen)]
    parts += [Text(), Text("solve rate", style="bold"), *_moves(view)]
    if story.children or story.refused:
        parts += [Text(), Text("children", style="bold"), *_children(story)]
    return Group(*parts, Text(), _line("now", view.standing))


def _proposals(story: Story) -> list[RenderableType]:
    task = story.task
    if task.parent_id is None:
        return [_line("proposal", "none: the task was given")]
    parts: list[RenderableType] = []
    copies = [claim for claim in story.claims if claim.id != task.parent_id]
    for claim in story.claims:
        if claim.id == task.parent_id:
            where = f"{claim.id[:ID_DIGITS]} · step {claim.step} · {claim.role}"
            noun = {"propose": "proposal"}.get(claim.stage, claim.stage)
            parts.append(_line(noun, f"{where} · {claim.reason}: {shorten(claim.why, 120)}"))
            parts += [_line("reward", _paid(claim))] if claim.stage == "propose" else []
    for claim in copies[:COPIES]:
        paid = f"reward {number(claim.reward, signed=True)}, advantage {number(claim.advantage, signed=True)}"
        paid = paid if claim.stage == "propose" else "an attempt: not paid for it"
        on = f"{claim.id[:ID_DIGITS]} · step {claim.step} · on {claim.subject_id[:ID_DIGITS]}"
        parts.append(_line("copy", f"{on} · {claim.reason} · {paid}"))
    return parts + ([_line("", f"and {len(copies) - COPIES} more copies: --json")] if len(copies) > COPIES else [])


def _paid(claim: Claim) -> str:
    if not claim.paid_why and claim.reward is None:
        return f"{UNKNOWN} (not graded)"
    why = f" ({shorten(claim.paid_why, 120)})" if claim.paid_why else ""
    return f"{number(claim.reward, signed=True)}{why} · advantage {number(claim.advantage, digits=3, signed=True)}"


def _choices(choices: Sequence[Choice]) -> list[RenderableType]:
    if not choices:
        return [Text("never: the curriculum did not ask for it", style="dim")]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("step", "mode", "score", "why"):
        right = title in ("step", "score")
        table.add_column(title, no_wrap=title != "why", justify="right" if right else "left", overflow="fold")
    for choice in _ends(choices):
        why = Text(clean(choice.why))
        if choice.terms:
            why.append("\n" + ", ".join(f"{key} {_term(value)}" for key, value in choice.terms.items()), style="dim")
        table.add_row(str(choice.step), choice.mode, number(choice.score, digits=3), why)
    return [table, *_left_out(len(choices), "choice")]


def _moves(view: WhyView) -> list[RenderableType]:
    story = view.story
    if not story.rounds:
        return [Text("not attempted yet", style="dim")]
    known = {belief.step: belief for belief in view.beliefs}
    hinted, roles = hinted_steps(story), {one.role for one in story.rounds}
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("step", "solved", "expected", "90 % within", "a new one", ""):
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    for one in _ends(story.rounds):
        note = [one.role] if len(roles) > 1 else []
        note += ["with a hint"] if one.step in hinted else []
        note += [] if one.closed else ["open"]
        row = (str(one.step), f"{one.solved}/{one.decided}", *_believed(known.get(one.step)))
        table.add_row(*row, Text(", ".join(note), style="dim"))
    newest = view.beliefs[-1] if view.beliefs else None
    if newest is not None and newest.step > story.rounds[-1].step:
        table.add_row(str(newest.step), "", *_believed(newest), Text("its attempts are older by now", style="dim"))
    where = f"expected: after that step; a new one: what is expected of a first play in {clean(view.cell)}"
    return [table, *_left_out(len(story.rounds), "step"), *([Text(where, style="dim")] if view.cell else [])]


def _believed(belief: Belief | None) -> tuple[str, str, str]:
    if belief is None:
        return UNKNOWN, UNKNOWN, UNKNOWN
    return number(belief.mean), f"{belief.low:.2f} to {belief.high:.2f}", number(belief.prior)


def _children(story: Story) -> list[RenderableType]:
    lines = [_child(one) for one in _ends(story.children)]
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(story.refused.items()))
    refused = [Text(f"failed attempts that became none: {reasons}", style="dim")] if reasons else []
    return [*lines, *_left_out(len(story.children), "child"), *refused]


def _child(one: Child) -> Text:
    return Text(f"task {one.id[:ID_DIGITS]} · step {one.step} · solved in {one.solved} of {one.decided} attempts")


def hinted_steps(story: Story) -> frozenset[int]:
    """Steps whose attempts saw a hint."""
    return frozenset(choice.step for choice in story.choices if choice.mode == "replay" and choice.terms.get("hint"))


def _ends(rows: Sequence[Any]) -> Sequence[Any]:
    """At most `LISTED` of them: the first, and the newest."""
    return rows if len(rows) <= LISTED else [rows[0], *rows[len(rows) + 1 - LISTED :]]


def _left_out(count: int, noun: str) -> list[Text]:
    some = {"child": "children"}.get(noun, noun + "s")
    return [Text(f"the first and the newest of {count} {some}: --json", style="dim")] if count > LISTED else []


def _choice_data(choice: Choice) -> dict[str, Any]:
    return {
        "step": choice.step,
        "mode": choice.mode,
        "subject_id": choice.subject_id,
        "score": choice.score,
        "why": choice.why,
        "terms": dict(choice.terms),
    }


def _round_data(view: WhyView, one: Round) -> Mapping[str, Any]:
    belief = next((belief for belief in view.beliefs if belief.step == one.step), None)
    return {
        "step": one.step,
        "role": one.role,
        "closed": one.closed,
        "played": one.played,
        "decided": one.decided,
        "solved": one.solved,
        "hinted": one.step in hinted_steps(view.story),
        "believed": _belief_data(belief) if belief is not None else None,
    }


def _belief_data(belief: Belief) -> dict[str, float]:
    names = ("step", "mean", "low", "high", "prior")
    return {name: getattr(belief, name) for name in names}


def _term(value: object) -> str:
    return clean(str(value)[:40])


def _line(name: str, text: str) -> Text:
    shown = Text()
    shown.append(f"{name:<9} ", style="dim")
    shown.append(text)
    return shown
