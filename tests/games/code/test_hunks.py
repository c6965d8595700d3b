"""Changes taken apart and put together again."""

from __future__ import annotations

import pytest

from selfplay.games.code.hunks import hunks_of, with_only

CLEAN = {"a.py": b"1\n2\n3\n4\n5\n", "b.py": b"x\ny", "c.py": b"gone\n"}


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"a.py": b"1\n2\n3\n4\n5\n"}, 0),
        ({"a.py": b"one\n2\n3\n4\nfive\n"}, 2),
        ({"a.py": b"one\ntwo\n3\n4\n5\n"}, 1),
        ({"a.py": b"1\n3\n4\n5\n6\n", "b.py": b"x\nz"}, 3),
        ({"a.py": b""}, 1),
        ({"b.py": b"x\ny\n"}, 1),
        ({"c.py": None, "new.py": b"made\n"}, 2),
        ({"new.py": b""}, 1),
        ({"a.py": b"1\n1\n2\n2\n3\n4\n5\n"}, 1),
    ],
)
def test_the_parts_make_the_change(changed: dict[str, bytes | None], parts: int) -> None:
    hunks = hunks_of(CLEAN, changed)
    assert len(hunks) == parts
    assert with_only(hunks, clean=CLEAN) == {path: changed[path] for path in changed if parts}
    for left_out in hunks:
        rest = [hunk for hunk in hunks if hunk is not left_out]
        back = hunks_of(CLEAN, with_only(rest, clean=CLEAN))
        assert len(back) == parts - 1
