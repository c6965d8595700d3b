"""Batches for `learner.py`: of random ids or of text, and supervised examples.

Not here: what is done with them.
"""

from __future__ import annotations

import importlib
import inspect
import random
from collections.abc import Sequence

from selfplay.policy.tokenizer import HFTokenizer
from selfplay.types import Example, Sample

VOCABULARY = 40_000
PEER_SHAPES = ("shared", "skewed", "even")
SHAPES = (*PEER_SHAPES, "code", "imitate")
DOCUMENTED = ("argparse", "asyncio", "collections", "datetime", "decimal", "email.message", "fractions", "functools")
"""Modules of the standard library whose documentation is the text of batches; with what they define, 32,000 tokens."""


def samples_of(shape: str, *, seed: int = 0, text: Sequence[int] = ()) -> tuple[Sample, ...]:
    """The samples of one shape; random ids, or pieces of `text`."""
    rng = random.Random(seed)

    def ids(length: int) -> tuple[int, ...]:
        if text:
            start = rng.randrange(len(text) - length)
            return tuple(text[start : start + length])
        return tuple(rng.randrange(3, VOCABULARY) for _ in range(length))

    groups = {
        "shared": [(512, [64] * 8)],
        "skewed": [(32, [round(8 * 64 ** (i / 7))]) for i in range(8)],
        "even": [(64, [128])] * 8,
        "code": [(rng.randrange(100, 261), [rng.randrange(8, 49) for _ in range(8)]) for _ in range(12)],
    }
    samples: list[Sample] = []
    for number, (length, replies) in enumerate(groups[shape]):
        prompt = ids(length)
        for i, reply in enumerate(replies):
            samples.append(
                Sample(
                    trajectory_id=f"{number}.{i}",
                    role="proposer" if shape == "code" and number % 3 == 0 else "solver",
                    group_id=str(number),
                    token_ids=prompt + ids(reply),
                    trained=(False,) * length + (True,) * reply,
                    sampler_logprobs=(0.0,) * (length + reply),
                    advantage=1.0 if (number + i) % 2 else -1.0,
                )
            )
    return tuple(samples)


def text_of(tokenizer: HFTokenizer) -> tuple[int, ...]:
    """Documentation of `DOCUMENTED` as ids, the modules' and that of their public classes, methods and functions."""
    found: dict[str, None] = {}
    for module in map(importlib.import_module, DOCUMENTED):
        objects = [module, *(value for name, value in sorted(vars(module).items()) if not name.startswith("_"))]
        for value in objects:
            if inspect.ismodule(value) and value is not module:
                continue
            members = [m for name, m in sorted(vars(value).items()) if name[0] != "_"] if inspect.isclass(value) else []
            found |= dict.fromkeys(inspect.getdoc(each) or "" for each in (value, *members))
    return tokenizer.encode("\n\n".join(found))


def examples() -> list[Example]:
    """Sixteen made-up repairs."""
    lines = [f"{n}|    value_{n} = table[{n}] + {n * n} * offset" for n in range(24)]
    return [
        Example(role="solver", source=str(i), prompt="\n".join(lines[i % 5 :]) + f"\nfix {i}:\n", replies=(lines[i],))
        for i in range(16)
    ]
