"""Plays with tools: one growing sequence of ids, how each of them ends, and nobody waits for another's tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfplay.batches import sample_of
from selfplay.errors import UserError
from selfplay.policy import Request
from selfplay.rollout import Player
from selfplay.rollout.talk import BROKEN
from selfplay.sandbox import SandboxInfraError
from selfplay.tools import Call
from selfplay.types import Stop, Trajectory, play_id
from tests.overheard import Overheard
from tests.rollout.counter import Counter, Form, place, played, player, role, scripted, written

FORMS: tuple[Form, ...] = ("fenced", "json")


def counts(form: Form, to: int = 3) -> list[str]:
    """Replies that count to `to` and hand it over."""
    return [*(f"step {i}: " + written(form, "add", by=1) for i in range(to)), written(form, "submit")]


def grown(trajectory: Trajectory, asked: list[Request]) -> None:
    """Each request is the record up to its reply, and the next one begins with it and its reply."""
    ids: tuple[int, ...] = ()
    replies = iter(asked)
    for turn in trajectory.turns:
        if turn.sampled:
            assert next(replies).prompt_ids == ids
        ids += turn.token_ids
    assert ids == trajectory.token_ids
    assert not list(replies)


@pytest.mark.parametrize("form", FORMS)
def test_a_play_uses_tools_and_hands_something_over(form: Form) -> None:
    policy = Overheard(scripted(counts(form)))
    toolbox = Counter()
    who = Player(policy=policy, config_digest="c", seed=0)
    trajectory = asyncio.run(played(who, place(role(form), index=2), toolbox))
    assert trajectory.stop is Stop.DONE
    assert trajectory.product == {"total": 3}
    assert [turn.speaker for turn in trajectory.turns] == ["prompt", *["policy", "tool"] * 3, "policy"]
    assert [call.name for turn in trajectory.turns for call in turn.calls] == ["add", "add", "add", "submit"]
    assert next(turn.calls[0].result for turn in trajectory.turns if turn.calls) == "the total is 1"
    assert trajectory.turns[0].text.endswith("count to 3\n")
    assert "the total is 2" in trajectory.turns[4].text
    assert toolbox.closed == 1
    where = {"step": 0, "stage": "attempt", "role": "counter", "subject_id": "s", "index": 2, "attempt": 0}
    assert trajectory.id == play_id("c", **where)  # type: ignore[arg-type]
    grown(trajectory, policy.asked)
    assert len({request.seed for request in policy.asked}) == 4


ADDED, WRONG = written("json", "add", by=2), written("json", "fly", by=1)
REPLIES = st.lists(
    st.sampled_from(
        ["<tool_call>{", "<tool_call>x</tool_call>", "### reply\n", "</think>", ADDED * 2, ADDED, WRONG],
    )
    | st.text("ab {}<>\n", max_size=5),
    min_size=1,
    max_size=9,
)


@settings(max_examples=60, deadline=None)
@given(replies=REPLIES, turns=st.integers(1, 6), tokens=st.integers(1, 120), output=st.integers(1, 300))
def test_ids_only_grow_and_only_sampled_ones_carry_loss(
    replies: list[str], turns: int, tokens: int, output: int
) -> None:
    policy = Overheard(scripted([*replies, *["the end"] * turns]))
    who = Player(policy=policy, config_digest="c", seed=0)
    own = role("json", turns=turns, tokens=tokens, output=output, context=2500)
    trajectory = asyncio.run(played(who, place(own), Counter()))
    grown(trajectory, policy.asked)
    sample = sample_of(trajectory, advantage=1.0, group_id="g")
    said = [i for turn in trajectory.turns if turn.speaker == "policy" for i in turn.token_ids]
    assert [i for i, trained in zip(sample.token_ids, sample.trained, strict=True) if trained] == said
    assert len(said) == trajectory.num_sampled <= output
    assert len(trajectory.token_ids) <= 2500
    assert sum(turn.sampled for turn in trajectory.turns) <= turns
    assert all(len(turn.logprobs) == (len(turn.token_ids) if turn.sampled else 0) for turn in trajectory.turns)


def test_a_reply_without_a_call_is_the_last_in_json_and_a_mistake_in_fences() -> None:
    said = asyncio.run(played(player(["I am done."]), place(role("json")), Counter()))
    assert (said.stop, said.product) == (Stop.DONE, {})
    told = asyncio.run(played(player(["I am done.", *counts("fenced")]), place(role()), Counter()))
    assert (told.stop, told.product) == (Stop.DONE, {"total": 3})
    assert "Nothing was done: there is no <tool: NAME> block" in told.turns[2].text


def test_two_calls_at_once() -> None:
    twice = written("json", "add", by=1) + written("json", "add", by=5) + written("json", "submit")
    toolbox = Counter()
    one = asyncio.run(played(player([twice + written("json", "add", by=7)]), place(role("json")), toolbox))
    assert one.product == {"total": 6}
    assert [call.name for call in toolbox.called] == ["add", "add", "submit"]
    fenced = written("fenced", "add", by=1) + "\n" + written("fenced", "add", by=5)
    other = asyncio.run(played(player([fenced, *counts("fenced")]), place(role()), Counter()))
    assert other.product == {"total": 3}
    assert "2 <tool: NAME> blocks" in other.turns[2].text


@pytest.mark.parametrize("bad", ["<tool: add>\n1", written("fenced", "fly"), written("fenced", "add", by="one")])
def test_nothing_that_can_be_carried_out_ends_a_play(bad: str) -> None:
    enough = asyncio.run(played(player([bad] * BROKEN), place(role()), Counter()))
    assert enough.stop is Stop.MALFORMED
    assert not enough.stop.truncated
    assert sum(turn.sampled for turn in enough.turns) == BROKEN
    good = written("fenced", "add", by=1)
    script = [*[bad] * (BROKEN - 1), good, *[bad] * (BROKEN - 1), *counts("fenced", to=1)]
    again = asyncio.run(played(player(script), place(role()), Counter()))
    assert again.product == {"total": 2}


def test_only_the_tools_that_the_role_names() -> None:
    toolbox = Counter()
    own = role(names=("submit",))
    trajectory = asyncio.run(played(player(counts("fenced", to=1)), place(own), toolbox))
    assert "<tool: add>" not in trajectory.turns[0].text
    assert [call.name for call in toolbox.called] == ["submit"]
    assert "there is no such tool; there are: submit" in trajectory.turns[2].text
    with pytest.raises(UserError, match="uses the tool `fly`, which the game `echo` does not give") as error:
        asyncio.run(played(player([]), place(role(names=("fly",))), toolbox))
    assert error.value.hint == "its tools are: add, submit; the file is roles/counter/role.toml"
    assert toolbox.closed == 2


class TestLimits:
    """What stops a play that the policy does not end."""

    def test_turns(self) -> None:
        toolbox = Counter()
        stopped = asyncio.run(played(player(counts("fenced")), place(role(turns=2)), toolbox))
        assert stopped.stop is Stop.TURNS
        assert toolbox.total == 2
        assert stopped.turns[-1].sampled
        last = asyncio.run(played(player(counts("fenced", to=1)), place(role(turns=2)), Counter()))
        assert last.stop is Stop.DONE

    def test_tokens_of_a_turn(self) -> None:
        stopped = asyncio.run(played(player(counts("fenced")), place(role(tokens=5)), Counter()))
        assert stopped.stop is Stop.TOKENS
        assert stopped.num_sampled == 5

    def test_output_of_all_turns(self) -> None:
        first = len(counts("fenced")[0]) + 1
        for output in (first, first + 3):
            stopped = asyncio.run(played(player(counts("fenced")), place(role(output=output)), Counter()))
            assert stopped.stop is Stop.OUTPUT
            assert stopped.num_sampled == output

    @pytest.mark.parametrize("own", [True, False])
    def test_context(self, own: bool) -> None:
        def play(context: int) -> Trajectory:
            who = player(counts("fenced"), max_context=8192 if own else context)
            return asyncio.run(played(who, place(role(context=context) if own else role()), Counter()))

        whole = play(8192)
        # note: what is left stands in every message, and has fewer digits the less it is.
        for context in range(len(whole.token_ids) - 60, len(whole.token_ids) - 12, 7):
            stopped = play(context)
            assert stopped.stop is Stop.CONTEXT
            assert len(stopped.token_ids) <= context
        for context in (len(whole.turns[0].token_ids) - 3, 5):
            stopped = play(context)
            assert (stopped.stop, stopped.num_sampled, stopped.fault) == (Stop.CONTEXT, 0, None)
            assert [turn.speaker for turn in stopped.turns] == ["prompt"]

    def test_seconds(self) -> None:
        async def slow(call: Call) -> None:
            await asyncio.sleep(0 if call.arguments == {"by": 1} else 3600)

        toolbox = Counter(before=slow)
        script = [written("fenced", "add", by=1), written("fenced", "add", by=2)]
        stopped = asyncio.run(played(player(script), place(role(seconds=2.0)), toolbox))
        assert stopped.stop is Stop.SECONDS
        assert [call.result for turn in stopped.turns for call in turn.calls][-1] == "(the time of the play ran out)"
        assert toolbox.closed == 1

    def test_waiting_for_a_place_costs_no_time(self) -> None:
        @asynccontextmanager
        async def crowded() -> AsyncIterator[None]:
            await asyncio.sleep(0.6)
            yield

        own = place(role(seconds=2.0))
        waited = asyncio.run(played(player(counts("fenced")), own, Counter(), sampling=crowded))
        assert waited.stop is Stop.DONE

    def test_what_is_left_is_told(self) -> None:
        own = role(turns=9, context=3000)
        trajectory = asyncio.run(played(player(counts("fenced")), place(own), Counter()))
        length = 0
        for number, turn in enumerate(trajectory.turns):
            length += len(turn.token_ids)
            if turn.speaker == "tool":
                assert f"* Remaining turns: {9 - number // 2}\n" in turn.text
                told = int(turn.text.split("* Remaining tokens: ")[1].split("\n")[0])
                assert abs(told - (3000 - length)) <= 1


def test_a_failing_machine_is_a_fault_and_says_nothing_about_the_policy() -> None:
    async def broken(call: Call) -> None:
        if call.name == "submit":
            raise SandboxInfraError("the engine does not answer", hint="look at it")

    toolbox = Counter(before=broken)
    trajectory = asyncio.run(played(player(counts("fenced")), place(role()), toolbox))
    assert trajectory.stop is Stop.FAULT
    assert trajectory.fault is not None
    assert (trajectory.fault.culprit, trajectory.fault.message) == ("sandbox", "the engine does not answer")
    assert trajectory.product == {}
    assert toolbox.closed == 1


def test_a_slow_tool_holds_no_place_in_the_sampler() -> None:
    """One place, two plays: the first one's tool ends only once the second one is over."""
    places, over = asyncio.Semaphore(1), asyncio.Event()
    events: list[str] = []

    @asynccontextmanager
    async def sampling() -> AsyncIterator[None]:
        async with places:
            yield

    async def until_over(call: Call) -> None:
        events.append("slow tool begins")
        await over.wait()
        events.append("slow tool ends")

    async def second() -> None:
        await asyncio.sleep(0)
        trajectory = await played(player(counts("fenced")), place(role()), Counter(), sampling=sampling)
        events.append(f"second play ends {trajectory.stop}")
        over.set()

    async def main() -> None:
        script = [written("fenced", "add", by=1), written("fenced", "submit")]
        first = played(player(script), place(role()), Counter(before=until_over), sampling=sampling)
        await asyncio.wait_for(asyncio.gather(first, second()), timeout=30)

    asyncio.run(main())
    assert events[:3] == ["slow tool begins", "second play ends done", "slow tool ends"]


def test_a_cancelled_play_closes_its_tools() -> None:
    async def main() -> Counter:
        begun = asyncio.Event()

        async def forever(call: Call) -> None:
            begun.set()
            await asyncio.sleep(3600)

        toolbox = Counter(before=forever)
        task = asyncio.ensure_future(played(player(counts("fenced")), place(role()), toolbox))
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return toolbox

    assert asyncio.run(main()).closed == 1


def test_a_script_may_read_the_whole_conversation() -> None:
    def reply(prompt: str) -> str:
        """Adds until the goal is reached, by what the tools answered."""
        total = prompt.count("the total is")
        return written("json", "add", by=1) if total < 4 else written("json", "submit", note=str(total))

    trajectory = asyncio.run(played(player(reply), place(role("json")), Counter()))
    assert trajectory.product == {"total": 4, "note": "4"}
