"""Programs that are written whole: what a reply means."""

from __future__ import annotations

import pytest

from selfplay.evaluation.written import program_of

PROMPT = 'from math import sqrt\n\n\ndef root(x):\n    """The root."""\n'
WHOLE = "from math import sqrt\n\n\ndef root(x):\n    return sqrt(x)\n"
FILLED = PROMPT + "    return sqrt(x)\n"


@pytest.mark.parametrize(
    ("reply", "program"),
    [
        ("    return sqrt(x)", FILLED),
        ("    return sqrt(x)\n\n\nprint(root(4))\nassert", FILLED),
        ("    return sqrt(x)\n\n\n# Another\nclass A: pass", FILLED),
        ("Here it is:\n```python\ndef root(x):\n    return sqrt(x)\n```\nIt works.", WHOLE),
        ("def root(x):\n    return sqrt(x)\n", WHOLE),
        ("```python\n    return sqrt(x)\n", FILLED),
    ],
)
def test_what_a_reply_means(reply: str, program: str) -> None:
    assert program_of(reply, prompt=PROMPT, entry="root") == program
