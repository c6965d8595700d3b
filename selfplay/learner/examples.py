"""Supervised examples as samples: the warm-up goes through the same forward pass as play.

Not here: what the examples are (the game), the update (`trainer`).
"""

from __future__ import annotations

from collections.abc import Sequence

from selfplay.errors import UserError
from selfplay.policy import Tokenizer
from selfplay.types import Example, Sample, digest


def demonstrations(
    examples: Sequence[Example], *, tokenizer: Tokenizer, end: int | list[int] | None
) -> tuple[Sample, ...]:
    """One sample a reply, prompt first; the reply's tokens and the end-of-sequence id after it are trained.

    Args:
        examples: In the order of the update.
        tokenizer: Encodes prompt and reply apart, as they are when the reply is sampled: the prompt by its template.
        end: The model's own end-of-sequence id or ids.

    Raises:
        UserError: no example has a reply, a prompt is empty, or the tokenizer has no chat template and one asks for it.
    """
    if not any(example.replies for example in examples):
        raise UserError("there is no example to imitate")
    end_id = _end_id(tokenizer, end)
    samples: list[Sample] = []
    for example in examples:
        chat = example.template == "chat"
        prompt = tokenizer.encode_chat(example.prompt) if chat else tokenizer.encode(example.prompt)
        if not prompt:
            raise UserError(f"the example from {example.source} has an empty prompt")
        # note: of a chat alone, so that ids of what is taught as plain text stay what they are in every record.
        shown = ("example", *(["chat"] if chat else []), example.role, example.source, example.prompt)
        for reply in example.replies:
            reply_ids = (*tokenizer.encode(reply), end_id)
            samples.append(
                Sample(
                    trajectory_id=digest(*shown, reply),
                    role=example.role,
                    group_id=digest(*shown),
                    token_ids=prompt + reply_ids,
                    trained=(False,) * len(prompt) + (True,) * len(reply_ids),
                    sampler_logprobs=(0.0,) * (len(prompt) + len(reply_ids)),
                    advantage=1.0,
                )
            )
    return tuple(samples)


def _end_id(tokenizer: Tokenizer, configured: int | list[int] | None) -> int:
    """The id that ends a reply: the model's own, else the tokenizer's smallest.

    Raises:
        UserError: the tokenizer has none.
    """
    own = configured if isinstance(configured, list) else [configured]
    chosen = [i for i in own if i is not None and i in tokenizer.eos_ids] or sorted(tokenizer.eos_ids)
    if not chosen:
        raise UserError("the tokenizer has no end-of-sequence id")
    return chosen[0]
