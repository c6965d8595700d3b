"""What must not come out of a case, and which packages and judges there are; cases: `tests/cli/test_verify.py`."""

from __future__ import annotations

import pytest

from selfplay.errors import NotFound
from selfplay.games.code.attacks import matrix
from selfplay.games.code.attacks.corpus import Case, known
from selfplay.games.code.attacks.judges import CANARIES, JUDGES, Ruling

ACCEPTED, REFUSED = Ruling(accepted=True, why=""), Ruling(accepted=False, why="")
NOTHING, ODD = Ruling(accepted=None, why=""), Ruling(accepted=None, why="", suspicious=True)


def case(*, honest: bool) -> Case:
    return Case(name="c", does="d", origin="o", group="honest" if honest else "files", files={})


@pytest.mark.parametrize(
    ("honest", "ruling", "word", "right"),
    [
        (True, ACCEPTED, "accepted", True),
        (True, REFUSED, "refused", False),
        (True, ODD, "suspicious", False),
        (True, NOTHING, "no sample", False),
        (False, ACCEPTED, "accepted", False),
        (False, REFUSED, "refused", True),
        (False, ODD, "suspicious", True),
        (False, NOTHING, "no sample", False),
    ],
)
def test_what_must_not_be(honest: bool, ruling: Ruling, word: str, right: bool) -> None:
    assert matrix._word(ruling) == word
    assert matrix._as_it_must_be(case(honest=honest), ruling) is right


def test_packages_and_judges_that_are_not_there() -> None:
    matrix.checked(list(known()), judge="verifier")
    assert set(JUDGES) >= CANARIES
    with pytest.raises(NotFound, match="no package `toolzz`") as error:
        matrix.checked(["toolzz"], judge="verifier")
    assert "toy" in error.value.hint
    with pytest.raises(NotFound, match="no judge `mine`") as error:
        matrix.checked([], judge="mine")
    assert "protocol" in error.value.hint
