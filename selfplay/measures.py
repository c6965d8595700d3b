"""What a closed step amounts to, in numbers: for its row in the ledger and for the screen. Pure.

Not here: drawing (`views`), what the ledger counts from its own rows (`ledger.tally`).
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from selfplay.stages import Played
from selfplay.types import Group, Trajectory, Update, Verdict

NGRAM = 4
"""Tokens a repeated stretch has at least."""
REPEATED = 0.5
"""A turn of which more than this share of the n-grams are repetitions is gibberish."""
LEAST_NGRAMS = 20
"""Turns with fewer n-grams are not looked at for repetitions."""
NO_TEXT = 0.1
"""A turn of which more than this share of the characters is no text is gibberish."""


def counts_of(plays: Sequence[Played], groups: Sequence[Group], *, children: Sequence[Played] = ()) -> dict[str, float]:
    """Proposals, valid ones, tasks, attempts (decided, left out, solved), faults, truncations, gibberish, tokens.

    And failed attempts of which a child was to be made, those that became one, and groups and informative groups, of
    all roles and of each: `ROLE.groups`, `ROLE.informative`.
    """
    proposals = [p for p in plays if p.trajectory.stage == "propose"]
    attempts = [p for p in plays if p.trajectory.stage == "attempt"]
    return {
        "proposals": len(proposals),
        "valid": sum(p.verdict.valid for p in proposals),
        "mutated": len(children),
        "children": len({p.task.id for p in children if p.task}),
        "tasks": len({p.task.id for p in (*proposals, *children) if p.task}),
        "attempts": len(attempts),
        "decided": sum(p.verdict.passed is not None for p in attempts),
        "left_out": sum(p.verdict.passed is None and p.verdict.fault is None for p in attempts),
        "solved": sum(bool(p.verdict.passed) for p in attempts),
        "faults": sum(p.verdict.fault is not None for p in (*plays, *children)),
        "truncated": sum(p.trajectory.stop.truncated for p in plays),
        "gibberish": sum(gibberish(p.trajectory) for p in plays),
        "tokens": sum(p.trajectory.num_sampled for p in plays),
        **_groups(groups),
        **{
            f"{role}.{name}": count
            for role in sorted({group.role for group in groups})
            for name, count in _groups([group for group in groups if group.role == role]).items()
        },
    }


def _groups(groups: Sequence[Group]) -> dict[str, int]:
    return {"groups": len(groups), "informative": sum(group.informative for group in groups)}


def gibberish(trajectory: Trajectory) -> bool:
    """Is a turn that the policy wrote no text, or the same few words over and over?

    More than `NO_TEXT` of its characters are no text, or more than `REPEATED` of its n-grams are repetitions.
    """
    return any(
        no_text(turn.text) > NO_TEXT
        or (len(turn.token_ids) - NGRAM + 1 >= LEAST_NGRAMS and repetition(turn.token_ids) > REPEATED)
        for turn in trajectory.turns
        if turn.sampled
    )


def no_text(text: str) -> float:
    """Share of the characters that are no text; 0 of nothing.

    Those are U+FFFD, which stands for bytes that decode to nothing, and what Unicode calls a control character (but
    for tab and line ends), a surrogate, private or unassigned.
    """
    strange = sum(c == "\ufffd" or (unicodedata.category(c) in _NO_TEXT and c not in "\t\n\r") for c in text)
    return strange / max(1, len(text))


def repetition(token_ids: Sequence[int], *, n: int = NGRAM) -> float:
    """seq-rep-n = 1 - (distinct n-grams / n-grams) of one reply; 0 where it is shorter than n.

    Source: Welleck et al., Neural Text Generation with Unlikelihood Training, 2020 (arXiv:1908.04319).
    """
    grams = [tuple(token_ids[at : at + n]) for at in range(len(token_ids) - n + 1)]
    return 1.0 - len(set(grams)) / len(grams) if grams else 0.0


_NO_TEXT = frozenset({"Cc", "Cs", "Co", "Cn"})


def shown(
    counts: Mapping[str, float],
    plays: Sequence[Played],
    grades: Mapping[str, Verdict],
    *,
    update: Update,
    seconds: Mapping[str, float],
) -> dict[str, Any]:
    """The data of a `step` event."""
    proposals = [p.verdict for p in plays if p.trajectory.stage == "propose"]
    refused = Counter(verdict.reason for verdict in proposals if not verdict.valid)
    attempts = [p.verdict.reward for p in plays if p.trajectory.stage == "attempt" and p.verdict.reward is not None]
    paid = [grade.reward for grade in grades.values() if grade.reward is not None]
    sampling = seconds.get("sampling", 0.0)
    return {
        **update.metrics,
        **counts,
        "decided_proposals": sum(verdict.fault is None for verdict in proposals),
        "refused": dict(sorted(refused.items())),
        "proposer_reward": mean(paid),
        "solver_reward": mean(attempts),
        "loss": update.loss,
        "grad_norm": update.grad_norm,
        "version": update.policy_version,
        "tokens_per_second": counts["tokens"] / sampling if sampling else None,
        "seconds": sum(seconds.values()),
        "stage_seconds": dict(seconds),
        "skipped": update.skipped,
    }


def mean(values: Sequence[float]) -> float | None:
    """The mean; None of nothing."""
    return sum(values) / len(values) if values else None
