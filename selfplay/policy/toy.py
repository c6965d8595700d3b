"""A two-layer random transformer and a character tokenizer: real parts, small enough for a test.

The model is an ordinary `LlamaForCausalLM`, so that sampler and learner treat it as any other; only its
weights are random, and equal for equal seeds. Not here: the toy game (`games.echo`).

Example:
    >>> model, tokenizer = toy_model(0)
    >>> tokenizer.decode(tokenizer.encode("say abc"))
    'say abc'
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import TYPE_CHECKING

from selfplay.errors import UserError

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

PAD, EOS = 0, 1
ALPHABET = string.ascii_lowercase + string.digits + " \n.,:;!?'\"()[]<>=+-*/|_#"


class CharTokenizer:
    """One id a character of `alphabet`; ids 0 and 1 are padding and end of sequence.

    Any other character is read as `unknown`, one of the alphabet; where none is given, it is refused.
    """

    def __init__(self, alphabet: str = ALPHABET, *, unknown: str = "") -> None:
        self._alphabet = alphabet
        self._unknown = alphabet.find(unknown) if unknown else -1

    @property
    def eos_ids(self) -> frozenset[int]:
        """The one id that ends a reply."""
        return frozenset({EOS})

    def __len__(self) -> int:
        return len(self._alphabet) + 2

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of `text`, one a character.

        Raises:
            UserError: a character is not in the alphabet.
        """
        found = (self._alphabet.find(character) for character in text)
        ids = tuple((self._unknown if at < 0 else at) + 2 for at in found)
        if EOS in ids:
            raise UserError(
                f"the toy tokenizer has no character {text[ids.index(EOS)]!r}",
                hint=f"its alphabet is {self._alphabet!r}",
            )
        return ids

    def encode_chat(self, user: str) -> tuple[int, ...]:
        """Always refused: the toy model knows no chat.

        Raises:
            UserError: always.
        """
        raise UserError("the toy tokenizer has no chat template", hint='give the role `template = "plain"`')

    def decode(self, token_ids: Sequence[int]) -> str:
        """The characters; padding and end of sequence are nothing."""
        return "".join(self._alphabet[i - 2] for i in token_ids if i > EOS)


def toy_model(
    seed: int, *, hidden: int = 64, context: int = 256, alphabet: str = ALPHABET, unknown: str = ""
) -> tuple[LlamaForCausalLM, CharTokenizer]:
    """A random two-layer Llama in float32 with its tokenizer; a pure function of the arguments.

    `hidden` is the width (a multiple of 32), `context` the longest prompt and reply in tokens, `alphabet` what it can
    write: the fewer characters, the sooner a random model stumbles on a right reply. All others it reads as `unknown`.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = CharTokenizer(alphabet, unknown=unknown)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=hidden * 3,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        pad_token_id=PAD,
        bos_token_id=None,
        eos_token_id=EOS,
        tie_word_embeddings=False,
        attention_dropout=0.0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.train(False)
    return model, tokenizer
