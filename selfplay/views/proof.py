"""How far a proposal came on its way to a task: the checks of its game in order, each passed, failed or not reached.

A game decides with one reason code; the checks are made one after another, so the code says which one failed and that
those before it did not. A game that is not listed, or a code that no check has, has no such list: its sentence stands.

Not here: the checks themselves (`games`), how they are printed (`inspect_text`).

Example:
    >>> [one.state for one in proof("echo", reason="wrong_length", valid=False)]
    ['passed', 'failed', 'not reached', 'not reached']
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from selfplay.types import record
from selfplay.views.inspect import Play

State = Literal["passed", "failed", "not reached"]


@record
class Check:
    """One thing that is looked at."""

    what: str
    """In words, as what is true once it is passed."""
    reasons: tuple[str, ...]
    """Codes of its failures; one that ends with `*` stands for all that begin so."""


@record
class Checked:
    """A check and what came of it."""

    what: str
    state: State


CHECKS: Mapping[str, tuple[Check, ...]] = {
    "echo": (
        Check(what="the reply ended", reasons=("truncated",)),
        Check(what="it has the wanted length", reasons=("wrong_length",)),
        Check(what="it is made of letters", reasons=("not_letters",)),
        Check(what="nobody proposed it before", reasons=("same_as_parent", "duplicate")),
    ),
    "code": (
        Check(
            what="something whole was handed over",
            reasons=("truncated", "no_submit", "malformed_calls", "submit_refused", "limit_*", "artifact_incomplete"),
        ),
        Check(
            what="it can be read and applied, and changes code only", reasons=("edit_*", "patch_*", "bug_outside_code")
        ),
        Check(what="the changed file is a program", reasons=("does_not_compile", "changes_outside")),
        Check(what="its test files are the repository's", reasons=("test_files_missing", "weakening_outside")),
        Check(what="they gave results on the clean tree", reasons=("no_results",)),
        Check(what="enough of the suite passes there", reasons=("too_few_passing",)),
        Check(what="enough files change", reasons=("too_few_files",)),
        Check(
            what="everything imports and ends, and tests fail that were stable",
            reasons=(
                *("tests_still_pass", "too_few_failing", "import_error", "collection_error"),
                *("timeout", "cpu_limit", "out_of_memory", "crashed"),
            ),
        ),
        Check(what="they fail again in another sandbox", reasons=("flaky",)),
        Check(what="not too much of the suite fails", reasons=("breaks_too_many",)),
        Check(what="the weakening hides it", reasons=("weakening_hides_nothing",)),
        Check(what="every changed file matters", reasons=("dead_file",)),
        Check(
            what="it can be played: not held out, gives nothing away",
            reasons=("touches_held_out", "weakening_too_long", "gives_away"),
        ),
        Check(what="the clean code passes, cheats do not", reasons=("control_*",)),
        Check(what="nobody proposed it before", reasons=("same_as_original", "same_as_parent", "too_far", "duplicate")),
    ),
    "search": (
        Check(what="the play ended with a question", reasons=("truncated", "no_question", "many_blocks", "empty")),
        Check(what="it is neither too short nor too long", reasons=("few_characters", "many_characters", "few_words")),
        Check(what="it does not tell the answer", reasons=("tells_answer",)),
        Check(what="enough was searched for", reasons=("few_searches", "same_search", "searched_answer")),
        Check(what="what was found holds the answer", reasons=("no_evidence", "answer_unseen", "no_key_passage")),
        Check(what="a sentence of the corpus supports it", reasons=("no_quote", "quote_*")),
        Check(what="it is not known without a search", reasons=("known_without_search",)),
        Check(what="no other answer is supported", reasons=("not_unique",)),
        Check(what="its passages lead to the answer, among others", reasons=("not_answerable",)),
        Check(what="without the key passage it is lost", reasons=("not_lost",)),
        Check(what="nobody proposed it before", reasons=("duplicate",)),
    ),
}
"""Game -> its checks, in the order in which they are made; those that a run does not ask for are passed over."""


def proof(game: str, *, reason: str, valid: bool) -> tuple[Checked, ...]:
    """Every check of `game` and what came of it; empty where that cannot be said."""
    checks = CHECKS.get(game, ())
    failed = next((at for at, check in enumerate(checks) if _has(check, reason)), None)
    if not valid and failed is None:
        return ()
    last = len(checks) if valid or failed is None else failed
    return tuple(Checked(what=check.what, state=_state(at, last)) for at, check in enumerate(checks))


def proof_of(play: Play, *, game: str) -> tuple[Checked, ...]:
    """The checks of a proposal; empty while it is not decided, or where the machine failed."""
    mint = next((verdict for verdict in play.verdicts if verdict.stage == "mint"), None)
    if mint is None or mint.fault is not None or play.trajectory.stage != "propose":
        return ()
    return proof(game, reason=mint.reason, valid=mint.valid)


def proof_data(checked: tuple[Checked, ...]) -> list[dict[str, Any]]:
    """As JSON."""
    return [{"what": one.what, "state": one.state} for one in checked]


def _state(at: int, last: int) -> State:
    if at == last:
        return "failed"
    return "passed" if at < last else "not reached"


def _has(check: Check, reason: str) -> bool:
    return any(reason.startswith(code[:-1]) if code.endswith("*") else reason == code for code in check.reasons)
