"""The policy itself as who is asked: seeded by the key, counted, and a fault where it cannot answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from selfplay.errors import RunFailed
from selfplay.games.search.asking import TEMPERATURE, PolicyAsks
from selfplay.games.search.records import AskFailed, Said
from selfplay.policy.scripted import ScriptedPolicy
from tests.games.search.ground import TOKENIZER, role, scripted
from tests.overheard import Overheard


def overheard() -> Overheard:
    """It says how long its prompt was."""
    return Overheard(scripted(lambda prompt: f"{len(prompt)}"))


def test_a_reply_is_seeded_by_the_key_alone() -> None:
    policy, asks = overheard(), PolicyAsks(role("search_solver_short"))
    asks.bind(policy, seed=7)

    async def main() -> list[Said]:
        return [await asks.ask("what?", key=key) for key in ("a", "b", "a")]

    first, _, again = asyncio.run(main())
    assert first.text == again.text == "6"
    assert first.tokens == 2
    seeds = [request.seed for request in policy.asked]
    assert seeds[0] == seeds[2] != seeds[1]
    assert policy.asked[0].sampling.temperature == TEMPERATURE
    asks.bind(policy, seed=8)
    asyncio.run(asks.ask("what?", key="a"))
    assert policy.asked[-1].seed != seeds[0]


def gone(prompt: str) -> str:
    raise RunFailed("the policy is closed")


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (lambda: None, "no policy"),
        (lambda: scripted(gone), "is closed"),
        (lambda: ScriptedPolicy(["a"], tokenizer=TOKENIZER, max_context=3), "in vain"),
        (lambda: ScriptedPolicy(["a" * 50], tokenizer=TOKENIZER, max_context=20), "did not fit"),
    ],
)
def test_who_cannot_answer_is_a_fault(policy: Callable[[], ScriptedPolicy | None], why: str) -> None:
    asks, found = PolicyAsks(role("search_solver_short")), policy()
    if found is not None:
        asks.bind(found, seed=0)
    with pytest.raises(AskFailed, match=why):
        asyncio.run(asks.ask("what?", key="k"))
