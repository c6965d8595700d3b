"""What a proposal and an attempt are worth, as functions of verdicts alone.

What is covered: the published proposer rewards as one table (`PROPOSER`), each with its formula as text for
`selfplay run --plan`, and the solver's plus or minus one. s is the solve rate, k of n decided attempts passed. What is
not: groups, advantages, roles' weights (`learner`), what several copies of a task lose (`loop.grade`), how alike
proposals are (`likeness`).

Example:
    >>> ssr = SelfPlaySwe()
    >>> [ssr(True, passed, 8) for passed in (0, 2, 8)]
    [-0.8, 0.55, -0.8]
    >>> ssr.formula
    '-1 if invalid, -0.8 if s is 0 or 1, else 1 - 1.8 s'
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from math import exp
from typing import Protocol

from selfplay.errors import UserError
from selfplay.types import record


@record
class Beside:
    """What some rewards look at beside the first attempts; a reward says in `looks` what it must be told."""

    formed: bool = True
    """Could the proposal be read at all? AZR pays less for one that could not; the game says it, always."""
    share: float = 0.0
    """Share of the step's proposals that are like this one, itself included; 0: not known. R-Zero subtracts it."""
    hinted: tuple[int, int] | None = None
    """(passed, decided) of the step's attempts on its task that saw a hint; they are in no solve rate."""

    @property
    def parts(self) -> Mapping[str, float]:
        """What is known, by name, for the parts of a grade."""
        passed, decided = self.hinted or (0, 0)
        return {**({"share": self.share} if self.share else {}), **({"hinted": passed / decided} if decided else {})}

    @property
    def words(self) -> str:
        """What is known, to be put behind the solve rate of a sentence; empty where it is nothing."""
        alike = f", {self.share:.0%} of the step's proposals are like it" if self.share else ""
        return (f", {self.hinted[0]} of {self.hinted[1]} with a hint" if self.hinted else "") + alike


ALONE = Beside()


class ProposerReward(Protocol):
    """What a proposal is worth."""

    @property
    def formula(self) -> str:
        """The reward as text, constants filled in; s is the solve rate."""
        ...

    @property
    def invalid(self) -> float:
        """What a proposal that is no task is paid."""
        ...

    @property
    def looks(self) -> tuple[str, ...]:
        """Fields of `Beside` that it must be told: `share`, `hinted`."""
        ...

    def __call__(self, valid: bool, passed: int, decided: int, beside: Beside = ALONE) -> float | None:
        """The reward for a proposal whose task was solved in `passed` of `decided` attempts; None: not decided."""
        ...


class SolverReward(Protocol):
    """What an attempt is worth."""

    @property
    def formula(self) -> str:
        """The reward as text, constants filled in."""
        ...

    def __call__(self, passed: bool) -> float: ...


@record
class SelfPlaySwe:
    """The injector's reward of SSR (arXiv 2512.18552): hard bugs pay most, hopeless and trivial ones cost."""

    alpha: float = 0.8
    """Loss on a bug that nobody or everybody repairs."""
    invalid: float = -1.0
    min_viable: int = 6
    """Fewest decided attempts that give a solve rate."""

    @property
    def looks(self) -> tuple[str, ...]:
        """Nothing beside the attempts."""
        return ()

    @property
    def formula(self) -> str:
        """The reward as text, constants filled in."""
        return f"{self.invalid:g} if invalid, {-self.alpha:g} if s is 0 or 1, else 1 - {1 + self.alpha:g} s"

    def __call__(self, valid: bool, passed: int, decided: int, beside: Beside = ALONE) -> float | None:
        """The reward; None where a valid proposal has fewer than `min_viable` decided attempts.

        Raises:
            ValueError: counts that cannot be.
        """
        if not viable(passed, decided, self.min_viable) or not valid:
            return None if valid else self.invalid
        if passed in (0, decided):
            return -self.alpha
        return 1.0 - (1.0 + self.alpha) * passed / decided


Worth = Callable[[int, int, Beside, Mapping[str, float]], float | None]
"""(passed, decided, beside, constants) of a valid proposal -> its worth."""


@record
class Row:
    """A published reward: what a valid proposal is worth, its constants, and the words for both."""

    worth: Worth
    words: str
    """The formula of a valid one; `{name}` stands for a constant."""
    constants: Mapping[str, float]
    """`invalid` is what an invalid proposal is paid; `malformed` one that cannot be read, where that differs."""
    source: str
    looks: tuple[str, ...] = ()
    """Fields of `Beside` that it needs."""


@record
class Tabled:
    """A row with its constants filled in."""

    row: Row
    constants: Mapping[str, float]
    min_viable: int = 6
    """Fewest decided attempts that give a solve rate."""

    @property
    def invalid(self) -> float:
        """What an invalid proposal is paid."""
        return self.constants["invalid"]

    @property
    def looks(self) -> tuple[str, ...]:
        """What the row needs."""
        return self.row.looks

    @property
    def formula(self) -> str:
        """The reward as text, constants filled in."""
        shown = {name: f"{value:g}" for name, value in self.constants.items()}
        malformed = f" ({shown['malformed']} if unreadable)" if "malformed" in shown else ""
        return f"{shown['invalid']} if invalid{malformed}, else {self.row.words.format(**shown)}"

    def __call__(self, valid: bool, passed: int, decided: int, beside: Beside = ALONE) -> float | None:
        """The reward; None where a valid proposal has fewer than `min_viable` decided attempts.

        Raises:
            ValueError: counts that cannot be.
        """
        enough = viable(passed, decided, self.min_viable)
        if not valid:
            return self.constants.get("malformed", self.invalid) if not beside.formed else self.invalid
        if beside.hinted is not None and not viable(*beside.hinted, self.min_viable):
            beside = replace(beside, hinted=None)
        return self.row.worth(passed, decided, beside, self.constants) if enough else None


def viable(passed: int, decided: int, least: int) -> bool:
    """Do the attempts give a solve rate?

    Raises:
        ValueError: counts that cannot be.
    """
    if not 0 <= passed <= decided:
        raise ValueError(f"{passed} of {decided} attempts passed")
    return decided >= max(1, least)


def _regret(k: int, n: int, beside: Beside, c: Mapping[str, float]) -> float | None:
    if beside.hinted is None:
        return None
    return beside.hinted[0] / beside.hinted[1] - k / n


PROPOSER: Mapping[str, Row] = {
    "ssp": Row(
        worth=lambda k, n, beside, c: 1.0 - k / n,
        words="1 - s",
        constants={"invalid": 0.0},
        source="SSP, arXiv 2510.18821, section 3; a constant of -0.1 for invalid ones ruined it",
    ),
    "azr": Row(
        worth=lambda k, n, beside, c: 1.0 - k / n if k else 0.0,
        words="0 if s is 0, else 1 - s",
        constants={"invalid": -0.5, "malformed": -1.0},
        source="Absolute Zero, arXiv 2505.03335",
    ),
    "rzero": Row(
        worth=lambda k, n, beside, c: min(k, n - k) / n - c["repeated"] * beside.share,
        words="min(s, 1 - s) - {repeated} (share of proposals like it)",
        constants={"invalid": -1.0, "repeated": 1.0},
        source="R-Zero, arXiv 2508.05004, as in its code; the paper has 1 - 2 |s - 1/2|",
        looks=("share",),
    ),
    "spice": Row(
        worth=lambda k, n, beside, c: exp(-((k / n * (1 - k / n) - c["peak"]) ** 2) / (2.0 * c["width"])),
        words="exp(-(s (1 - s) - {peak})^2 / (2 {width}))",
        constants={"invalid": -0.1, "peak": 0.25, "width": 0.01},
        source="SPICE, arXiv 2510.24684",
    ),
    "drzero": Row(
        worth=lambda k, n, beside, c: (n - k) / (n - 1) if 0 < k < n else 0.0,
        words="(n - k) / (n - 1) if 0 < s < 1, 0 if not",
        constants={"invalid": 0.0},
        source="Dr. Zero, arXiv 2601.07055: the difficulty; its half for the format is the game's affair",
    ),
    "learnability": Row(
        worth=lambda k, n, beside, c: 4.0 * (k + 1) * (n - k + 1) / ((n + 2) * (n + 3)),
        words="4 (k+1)(n-k+1) / ((n+2)(n+3)) = 4 E[p (1-p)]",
        constants={"invalid": 0.0},
        source="p (1 - p) of Sampling for Learnability, arXiv 2408.15099, under a uniform prior of p",
    ),
    "hint_regret": Row(
        worth=_regret,
        words="s with a hint - s, None where too few attempts with one were decided",
        constants={"invalid": 0.0},
        source="SPADE, arXiv 2608.19197; it does not check validity, so 0 is ours",
        looks=("hinted",),
    ),
}
"""Name -> published reward; `ssr` is `SelfPlaySwe`."""


@record
class Dotted:
    """A reward given by dotted path: `function(valid, passed, decided, beside)`.

    A function that wants to be told more than the share of like proposals says so in an attribute `looks`.
    """

    name: str
    function: Callable[[bool, int, int, Beside], float | None] = field(compare=False)
    min_viable: int = 6

    @property
    def formula(self) -> str:
        """Its name: what it computes is its author's."""
        return f"as {self.name} says"

    @property
    def looks(self) -> tuple[str, ...]:
        """What its author says that it looks at."""
        return tuple(getattr(self.function, "looks", ("share",)))

    @property
    def invalid(self) -> float:
        """What it pays an invalid proposal; nothing counts as 0."""
        return self.function(False, 0, 0, ALONE) or 0.0

    def __call__(self, valid: bool, passed: int, decided: int, beside: Beside = ALONE) -> float | None:
        """The reward; None where a valid proposal has fewer than `min_viable` decided attempts."""
        enough = viable(passed, decided, self.min_viable)
        return self.function(valid, passed, decided, beside) if enough or not valid else None


@record
class PlusMinusOne:
    """The solver's reward: `right` when it passed, `wrong` when it did not."""

    right: float = 1.0
    wrong: float = -1.0

    @property
    def formula(self) -> str:
        """The reward as text, constants filled in."""
        return f"{self.right:+g} if it passes, else {self.wrong:+g}"

    def __call__(self, passed: bool) -> float:
        """The reward."""
        return self.right if passed else self.wrong


def proposer_reward(
    name: str, *, alpha: float = 0.8, min_viable: int = 6, options: Mapping[str, object] | None = None
) -> ProposerReward:
    """The proposer reward of that name, or of that dotted path; `options` replace its constants.

    `alpha` is SSR's; the other rewards have no such constant.

    Raises:
        UserError: there is none, it has no such constant, or a constant is no number.
    """
    given = options or {}
    if ":" in name:
        _refuse(given, {}, name)
        return Dotted(name=name, function=_imported(name), min_viable=min_viable)
    if name == "ssr":
        constants = _refuse(given, {"invalid": -1.0}, name)
        return SelfPlaySwe(alpha=alpha, min_viable=min_viable, invalid=constants["invalid"])
    if name not in PROPOSER:
        there = ", ".join(("ssr", *PROPOSER))
        raise UserError(f"no proposer reward `{name}`", hint=f"those there are: {there}, or module:function")
    row = PROPOSER[name]
    return Tabled(row=row, constants=_refuse(given, row.constants, name), min_viable=min_viable)


def refuse_unbalanced(reward: ProposerReward, *, name: str, estimator: str) -> None:
    """A constant loss for invalid proposals needs a baseline that takes it away again.

    Without one every proposal's tokens are pushed down while most are invalid: in SSP (arXiv 2510.18821) -0.1 took the
    valid rate to 0.0056. SSR pays -1 and survives, since its advantages subtract the group's mean.

    Raises:
        UserError: the estimator subtracts nothing and the reward is negative.
    """
    if estimator.rpartition(":")[2] == "raw" and reward.invalid < 0.0:
        raise UserError(
            f"reward `{name}` pays {reward.invalid:g} for an invalid proposal, and estimator `{estimator}` subtracts "
            f"no baseline: this pushes every proposal down, and ruined SSP with -0.1",
            hint="pay nothing: -s 'rewards.options={invalid=0}'; or subtract a baseline: -s learner.estimator=grpo",
        )


def solver_reward(name: str) -> SolverReward:
    """The solver reward of that name: `plus_minus_one` or `zero_one`.

    Raises:
        UserError: there is none.
    """
    if name == "plus_minus_one":
        return PlusMinusOne()
    if name == "zero_one":
        return PlusMinusOne(right=1.0, wrong=0.0)
    raise UserError(f"no solver reward `{name}`", hint="those there are: plus_minus_one, zero_one")


def _imported(name: str) -> Callable[[bool, int, int, Beside], float | None]:
    module, _, attribute = name.partition(":")
    try:
        found: Callable[[bool, int, int, Beside], float | None] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UserError(f"no proposer reward `{name}`: {error}", hint="module:function that can be imported") from error
    return found


def _refuse(given: Mapping[str, object], known: Mapping[str, float], name: str) -> dict[str, float]:
    """The constants with those given in their place."""
    for option, value in given.items():
        if option not in known:
            near = difflib.get_close_matches(option, list(known), n=1, cutoff=0.5)
            said = f"did you mean `{near[0]}`? " if near else ""
            hint = f"{said}its constants: {', '.join(known) or 'none'}"
            raise UserError(f"reward `{name}` has no constant `{option}` (rewards.options)", hint=hint)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UserError(f"constant `{option}` of reward `{name}` is {value!r}, expected a number")
    return {option: float(given.get(option, value)) for option, value in known.items()}  # type: ignore[arg-type]
