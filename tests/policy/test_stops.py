"""A reply ends with the token that completes a stop string in its text, whatever the tokens are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from selfplay.policy import Request
from selfplay.policy.engine import Row
from selfplay.policy.tokenizer import HFTokenizer
from selfplay.types import Sampling, Stop

WORDS = ["ab", "b", "a", "abc", " ", "  ", "\n", "end", "the end of it", "é", "日本", "-", "--"]
NOTHING = 0
"""A special token: it decodes to nothing, and ends no reply."""


def byte_level() -> Tokenizer:
    """Every byte is a token, and some words are."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    spelt = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words = [spelt.pre_tokenize_str(word)[0][0] for word in WORDS]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(["<s>", *sorted(alphabet), *words]))}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = spelt
    inner.decoder = decoders.ByteLevel()
    return inner


def byte_fallback() -> Tokenizer:
    """Words that carry their space before them, and bytes for the rest; the first space of a text is not shown."""
    words = [word.replace(" ", "▁") for word in WORDS]
    tokens = dict.fromkeys(["<s>", "<unk>", *[f"<0x{byte:02X}>" for byte in range(256)], "▁a", *words])
    vocabulary = {token: i for i, token in enumerate(tokens)}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<unk>"))
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return inner


@pytest.fixture(scope="module", params=[byte_level, byte_fallback], ids=lambda make: make.__name__)
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HFTokenizer:
    """Read from a folder, as a model's is; nothing in it ends a reply by itself."""
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    PreTrainedTokenizerFast(tokenizer_object=request.param(), bos_token="<s>").save_pretrained(folder)
    return HFTokenizer(folder)


def bytes_of(tokenizer: HFTokenizer, text: str) -> list[int]:
    """`text` as one token a byte."""
    inner = tokenizer._tokenizer
    spelt = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if "<0x00>" in inner.get_vocab():
        return [inner.get_vocab()[f"<0x{byte:02X}>"] for byte in text.encode()]
    return [inner.get_vocab()[character] for character in spelt.pre_tokenize_str(text)[0][0]]


def word(tokenizer: HFTokenizer, text: str) -> int:
    """The one token of a word."""
    spelt = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for spelling in (text.replace(" ", "▁"), spelt.pre_tokenize_str(text)[0][0]):
        found = tokenizer._tokenizer.get_vocab().get(spelling)
        if found is not None:
            return int(found)
    raise AssertionError(text)


def sample(tokenizer: HFTokenizer, token_ids: Sequence[int], *, stop: tuple[str, ...]) -> Row:
    """A row that gets `token_ids` one by one until it ends."""
    request = Request(prompt_ids=(5,), sampling=Sampling(max_tokens=len(token_ids) + 1, stop=stop), seed=0)
    row = Row(request=request, context=4096)
    for index, token_id in enumerate(token_ids):
        if row.stop is None:
            row.append(token_id, -float(index), tokenizer=tokenizer)
    return row


def expected(tokenizer: HFTokenizer, token_ids: Sequence[int], *, stop: tuple[str, ...]) -> int:
    """Tokens up to the first whose text holds a stop string; all where none does."""
    for count in range(1, len(token_ids) + 1):
        if any(s in tokenizer.decode(token_ids[:count]) for s in stop):
            return count
    return len(token_ids)


@given(data=st.data())
@settings(max_examples=120, deadline=None)
def test_it_ends_with_the_first_token_that_completes_a_stop_string(tokenizer: HFTokenizer, data: st.DataObject) -> None:
    vocabulary = len(tokenizer._tokenizer.get_vocab())
    common = st.sampled_from([NOTHING, *[word(tokenizer, w) for w in WORDS], *bytes_of(tokenizer, "é日ab \n")])
    token_ids = data.draw(st.lists(st.one_of(common, st.integers(0, vocabulary - 1)), min_size=1, max_size=120))
    text = tokenizer.decode(token_ids)
    start = data.draw(st.integers(0, max(0, len(text) - 1)))
    cut = text[start : start + data.draw(st.integers(1, 12))].replace("\ufffd", "")
    stop = (data.draw(st.sampled_from(["the end", "日", "zz", " -", "\n\n"])), *([cut] if cut else []))
    row = sample(tokenizer, token_ids, stop=stop)
    count = expected(tokenizer, token_ids, stop=stop)
    assert row.token_ids == token_ids[:count]
    assert row.logprobs == [-float(i) for i in range(count)]
    assert (row.stop is Stop.DONE) == any(s in tokenizer.decode(token_ids[:count]) for s in stop)


def test_a_stop_string_may_span_tokens_and_end_inside_one(tokenizer: HFTokenizer) -> None:
    ids = [word(tokenizer, w) for w in ("a", "ab", "-", "the end of it", "b")]
    row = sample(tokenizer, ids, stop=("b-the",))
    assert (row.token_ids, row.stop) == (ids[:4], Stop.DONE)


def test_the_first_token_may_hold_the_whole_stop_string(tokenizer: HFTokenizer) -> None:
    ids = [word(tokenizer, w) for w in ("the end of it", "a", "b")]
    row = sample(tokenizer, ids, stop=("end",))
    assert (row.token_ids, row.logprobs, row.stop) == (ids[:1], [0.0], Stop.DONE)


def test_a_character_of_several_bytes_counts_when_it_is_whole(tokenizer: HFTokenizer) -> None:
    ids = [word(tokenizer, "a"), *bytes_of(tokenizer, "日本"), word(tokenizer, "b")]
    row = sample(tokenizer, ids, stop=("a日",))
    assert (row.token_ids, row.stop) == (ids[:4], Stop.DONE)


def test_tokens_of_no_text_do_not_hide_a_stop_string(tokenizer: HFTokenizer) -> None:
    ids = [word(tokenizer, "a"), *[NOTHING] * 90, word(tokenizer, "b"), word(tokenizer, "a")]
    row = sample(tokenizer, ids, stop=("ab",))
    assert (row.token_ids, row.stop) == (ids[:92], Stop.DONE)


def test_a_long_run_of_bytes_is_read_from_its_beginning(tokenizer: HFTokenizer) -> None:
    # with byte fallback a run of bytes is text as a whole, or not at all: no tail of it reads as the whole does
    ids = bytes_of(tokenizer, "日" * 40 + "本日語")
    row = sample(tokenizer, ids, stop=("本日",))
    assert (row.token_ids, row.stop) == (ids[:-3], Stop.DONE)
