from __future__ import annotations

import re
from pathlib import Path

import pytest

from selfplay.games.code import bugs, checks, edits
from selfplay.views.proof import CHECKS, Check, proof


def states(game: str, reason: str, *, valid: bool = False) -> list[str]:
    return [one.state for one in proof(game, reason=reason, valid=valid)]


def test_checks_before_the_failed_one_were_passed() -> None:
    assert states("code", "valid", valid=True) == ["passed"] * len(CHECKS["code"])
    found = states("code", "tests_still_pass")
    at = found.index("failed")
    assert found == ["passed"] * at + ["failed"] + ["not reached"] * (len(found) - at - 1)
    assert states("code", "edit_no_block")[:2] == ["passed", "failed"]


@pytest.mark.parametrize(("game", "reason"), [("code", "somebody_elses"), ("chess", "truncated")])
def test_what_is_not_known_is_not_said(game: str, reason: str) -> None:
    assert proof(game, reason=reason, valid=False) == ()


def test_every_reason_of_a_refused_bug_has_its_check() -> None:
    decided = {"valid", "passed", "tests_fail", "forged", "suspicious", "fault"}
    codes = {str(reason) for reason in bugs.Reason} - decided | {f"edit_{reason}" for reason in edits.Reason}
    assert not [code for code in codes if not states("code", code)]


def test_the_order_is_that_of_the_checks() -> None:
    """The first reason that each function of `checks.CHECKS` gives falls into later and later rows."""
    text = Path(checks.__file__).read_text()
    names = [check.__name__ for check in checks.CHECKS]
    rows = []
    for name in names:
        body = re.split(r"\nasync def |\ndef |\nCHECKS", text.split(f"async def {name}(")[1])[0]
        found = re.findall(r"Reason\.([A-Z_]+)", body)
        if found and name != "breaks_them_again":
            rows.append(states("code", bugs.Reason[found[0]].value).index("failed"))
    assert rows == sorted(rows)
    assert len(rows) >= 8


def test_no_code_is_in_two_rows() -> None:
    for rows in CHECKS.values():
        codes = [code for row in rows for code in row.reasons]
        assert len(codes) == len(set(codes))
        assert all(isinstance(row, Check) and row.what for row in rows)
