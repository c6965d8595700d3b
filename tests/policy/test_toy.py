"""The toy model and its alphabet."""

from __future__ import annotations

import pytest
import torch

from selfplay.errors import UserError
from selfplay.policy.toy import ALPHABET, CharTokenizer, toy_model


def test_equal_seeds_give_equal_weights_and_leave_torch_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    first, second, other = (toy_model(seed)[0].state_dict() for seed in (4, 4, 5))
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])


def test_text_comes_back() -> None:
    tokenizer = CharTokenizer()
    ids = tokenizer.encode(ALPHABET)
    assert tokenizer.decode(ids) == ALPHABET
    assert max(ids) == len(tokenizer) - 1
    assert tokenizer.decode((*ids, *tokenizer.eos_ids)) == ALPHABET


def test_foreign_characters_and_chat_are_refused() -> None:
    with pytest.raises(UserError, match="'A'"):
        CharTokenizer().encode("bAd")
    with pytest.raises(UserError, match="chat"):
        CharTokenizer("ab").encode_chat("a")
