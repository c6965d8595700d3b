"""What a proposal and an attempt are worth, as functions of verdicts alone.

What is covered: the published proposer reward of SSR and the solver's plus or minus one, each with its formula as text
for `selfplay run --plan`. What is not: groups, advantages, roles' weights (`learner`), novelty terms.

Example:
    >>> ssr = SelfPlaySwe()
    >>> [ssr(True, passed, 8) for passed in (0, 2, 8)]
    [-0.8, 0.55, -0.8]
    >>> ssr.formula
    '-1 if invalid, -0.8 if s is 0 or 1, else 1 - 1.8 s'
"""

from __future__ import annotations

from typing import Protocol

from selfplay.errors import UserError
from selfplay.types import record


class ProposerReward(Protocol):
    """What a proposal is worth."""

    @property
    def formula(self) -> str:
        """The reward as text, constants filled in; s is the solve rate."""
        ...

    def __call__(self, valid: bool, passed: int, decided: int) -> float | None:
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
    def formula(self) -> str:
        """The reward as text, constants filled in."""
        return f"{self.invalid:g} if invalid, {-self.alpha:g} if s is 0 or 1, else 1 - {1 + self.alpha:g} s"

    def __call__(self, valid: bool, passed: int, decided: int) -> float | None:
        """The reward; None where a valid proposal has fewer than `min_viable` decided attempts.

        Raises:
            ValueError: counts that cannot be.
        """
        if not 0 <= passed <= decided:
            raise ValueError(f"{passed} of {decided} attempts passed")
        if not valid:
            return self.invalid
        if decided < self.min_viable:
            return None
        if passed in (0, decided):
            return -self.alpha
        return 1.0 - (1.0 + self.alpha) * passed / decided


@record
class PlusMinusOne:
    """The solver's reward: `right` when it passed, `wrong` when it did not."""

    right: float = 1.0
    wrong: float = -1.0

    @property
    def formula(self) -> str:
        """The reward as text, constants filled in."""
        return f"{self.right:+g} if all tests pass, else {self.wrong:+g}"

    def __call__(self, passed: bool) -> float:
        """The reward."""
        return self.right if passed else self.wrong


def proposer_reward(name: str, *, alpha: float = 0.8, min_viable: int = 6) -> ProposerReward:
    """The proposer reward of that name.

    Raises:
        UserError: there is none.
    """
    if name != "ssr":
        raise UserError(f"no proposer reward `{name}`", hint="the one there is: ssr")
    return SelfPlaySwe(alpha=alpha, min_viable=min_viable)


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
