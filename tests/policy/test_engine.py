"""Rows come and go; each is what it would be alone."""

from __future__ import annotations

import pytest

from selfplay.policy import Request
from selfplay.policy.attention import ROW_TILE, TILE, tiled
from selfplay.policy.engine import Engine, Row
from selfplay.policy.toy import CharTokenizer, toy_model
from selfplay.types import Sampling, Stop

TOKENIZER = CharTokenizer()


def row(text: str, *, tokens: int = 6, seed: int = 0, stop: tuple[str, ...] = (), context: int = 256) -> Row:
    """A row that waits for its first token."""
    sampling = Sampling(max_tokens=tokens, stop=stop)
    return Row(request=Request(prompt_ids=TOKENIZER.encode(text), sampling=sampling, seed=seed), context=context)


def engine(**limits: int) -> Engine:
    """An engine over the toy model."""
    return Engine(toy_model(0)[0], TOKENIZER, **{"max_rows": 8, "kv_tokens": 4096, **limits})


def finish(engine: Engine) -> list[Row]:
    """Step until nothing is in flight."""
    done: list[Row] = []
    while engine.rows:
        done += engine.step()
    return done


def test_a_row_admitted_late_takes_a_free_place_and_changes_nobody() -> None:
    alone = [row("abc", tokens=20, seed=5), row("xyz", tokens=9, seed=6)]
    for one in alone:
        single = engine()
        single.admit([one], version=0)
        finish(single)
    crowd = engine()
    first, late = row("abc", tokens=20, seed=5), row("xyz", tokens=9, seed=6)
    crowd.admit([row("short", tokens=2, seed=1), row("q", tokens=3, seed=2), first], version=0)
    crowd.step()
    crowd.step()
    crowd.admit([late], version=0)
    finish(crowd)
    assert [(r.token_ids, r.logprobs, r.stop) for r in (first, late)] == [
        (r.token_ids, r.logprobs, r.stop) for r in alone
    ]


def test_equal_prompts_are_prefilled_once_a_version_of_the_weights() -> None:
    lengths: list[int] = []
    model, _ = toy_model(0)
    model.register_forward_pre_hook(
        lambda _, args, kwargs: lengths.append(kwargs["inputs_embeds"].shape[1]), with_kwargs=True
    )
    shared = Engine(model, TOKENIZER, max_rows=8, kv_tokens=4096)
    shared.admit([row("abcde", seed=i) for i in range(5)], version=0)
    shared.admit([row("abcde", seed=9)], version=0)
    assert lengths == [5]
    shared.admit([row("abcde", seed=10)], version=1)
    assert lengths == [5, 5]
    shared.clear()
    shared.admit([row("abcde", seed=11)], version=1)
    assert lengths == [5, 5, 5]


def test_room_is_counted_in_rows_and_in_cache() -> None:
    small = engine(max_rows=2, kv_tokens=256)
    long, short = row("a" * 60, tokens=100), row("a", tokens=3)
    assert small.fits(long)
    assert not small.fits(short, among=[long])
    assert small.fits(short, among=[short])
    assert not small.fits(short, among=[short, short])


def test_rows_are_counted_by_whole_tiles() -> None:
    crowd, one = engine(max_rows=16, kv_tokens=1000), row("a" * 60, tokens=100)
    assert crowd.fits(one, among=[one] * 3)
    assert not crowd.fits(one, among=[one] * 4), "five rows take the cache of eight: 8 x 192 tokens"


def test_rows_of_all_lengths_stay_within_the_cache_and_are_what_they_are_alone() -> None:
    def waiting() -> list[Row]:
        """Many short ones, then few long ones, then both; each with the longest reply that it may get."""
        lengths = [4] * 20 + [90] * 6 + [4, 150] * 6 + [3] * 20
        return [row("abcde"[i % 5] * length, tokens=5 + i % 40, seed=i) for i, length in enumerate(lengths)]

    limit, rows = 1024, waiting()
    crowd, queue, peaks = engine(max_rows=8, kv_tokens=limit), list(rows), []
    while queue or crowd.rows:
        admitted: list[Row] = []
        while queue and crowd.fits(queue[0], among=admitted):
            admitted.append(queue.pop(0))
        crowd.admit(admitted, version=0)
        crowd.step()
        longest = max((tiled(r.reserve, TILE) for r in rows if r.token_ids), default=0)
        cache = crowd._cache
        assert cache is not None
        assert cache.rows * cache.capacity <= max(limit, ROW_TILE * longest)
        peaks.append(cache.rows * cache.capacity)
    assert max(peaks) == limit
    for i, alone in enumerate(waiting()):
        if i % 7 == 0:
            single = engine()
            single.admit([alone], version=0)
            finish(single)
            assert (alone.token_ids, alone.logprobs, alone.stop) == (rows[i].token_ids, rows[i].logprobs, rows[i].stop)


def test_a_dropped_row_leaves_at_the_next_step() -> None:
    running = engine()
    rows = [row("abc", tokens=30, seed=i) for i in range(3)]
    running.admit(rows, version=0)
    rows[0].dropped = True
    assert running.release() == rows[:1]
    running.step()
    assert running.rows == 2
    assert len(rows[0].token_ids) == 1


@pytest.mark.parametrize(("tokens", "context", "stop"), [(4, 256, Stop.TOKENS), (50, 7, Stop.CONTEXT)])
def test_limits_end_a_reply(tokens: int, context: int, stop: Stop) -> None:
    limited = row("abc", tokens=tokens, context=context)
    ended: list[Row] = []
    running = engine()
    ended += running.admit([limited], version=0)
    ended += finish(running)
    assert ended == [limited]
    assert limited.stop is stop
    assert len(limited.token_ids) == 4


def test_a_stop_string_ends_a_reply_with_the_token_that_completes_it() -> None:
    free = row("abc", tokens=40, seed=8)
    running = engine()
    running.admit([free], version=0)
    finish(running)
    text = TOKENIZER.decode(free.token_ids)
    wanted = text[6:8]
    assert len(wanted) == 2
    cut = row("abc", tokens=40, seed=8, stop=("no such thing", wanted))
    running.admit([cut], version=0)
    finish(running)
    assert cut.stop is Stop.DONE
    assert TOKENIZER.decode(cut.token_ids) == text[: text.index(wanted) + 2]
    assert cut.token_ids == free.token_ids[: len(cut.token_ids)]
