"""`selfplay` with one function that ends the process when it is called for the n-th time, as `kill -9` would.

The product has no test hooks: this wrapper replaces a function of it before the command starts.

    python tests/crash/child.py --at selfplay.loop:choose --when after --nth 2 -- run demo --json

With `--scripted` the code game, and the search game beside it, are played by a toy model whose replies are taken from a
table, so that real tests in real sandboxes decide about proposals and attempts without real weights.

Not here: when to kill (`harness.py`), kills from outside, which need none of this.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import os
import signal
import string
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SCRIPT = {
    "def add(": (
        "4|    return total - 1",
        "3|    total = a - b",
        "3|    total = a + b",
        "no edit",
    ),
    "def count(": ("3|    i = 1", "5|        i += 2", "6|    return i", "3|    i = 0", "5|        i += 1", ""),
    "def largest(": ("3|    best = 0", "5|        if x < best:", "5|        if x > best:", "7|    return best", "5|x"),
    "Left out at ____": ("Which two words of the text say who it was that made it, and for whom?",),
    "Question: Which two words": ("Gustave Eiffel", "John Bradfield", "Samuel Coleridge"),
}
"""What stands in the prompt -> the replies that are given to it, wrong ones among them."""


def die() -> None:
    """End this process as the kernel does at `kill -9`: no handler runs, nothing is flushed."""
    os.kill(os.getpid(), signal.SIGKILL)


def crash_at(place: str, *, when: str, nth: int) -> None:
    """Replace `module:Class.name` by itself with an end before, after or (`half`, for rmtree) inside its n-th call."""
    module_name, _, path = place.partition(":")
    owner: Any = importlib.import_module(module_name)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    declared = inspect.getattr_static(owner, name)
    original = declared.__func__ if isinstance(declared, classmethod) else declared
    wrapped = _wrapped(original, when=when, nth=nth)
    setattr(owner, name, classmethod(wrapped) if isinstance(declared, classmethod) else wrapped)


def _wrapped(original: Callable[..., Any], *, when: str, nth: int) -> Callable[..., Any]:
    calls = 0

    def due() -> bool:
        nonlocal calls
        calls += 1
        return calls == nth

    if inspect.iscoroutinefunction(original):

        @functools.wraps(original)
        async def awaited(*given: Any, **named: Any) -> Any:
            now = due()
            if now and when == "before":
                die()
            outcome = await original(*given, **named)
            if now:
                die()
            return outcome

        return awaited

    @functools.wraps(original)
    def called(*given: Any, **named: Any) -> Any:
        if when == "half":
            folder = Path(given[0])
            if folder.is_dir() and due():
                _half_removed(folder)
            return original(*given, **named)
        now = due()
        if now and when == "before":
            die()
        outcome = original(*given, **named)
        if now:
            die()
        return outcome

    return called


def _half_removed(folder: Path) -> None:
    files = sorted(file for file in folder.iterdir() if file.is_file())
    for file in files[: (len(files) + 1) // 2]:
        file.unlink()
    die()


def script_the_code_game() -> None:
    """Let the model `toy` know every printable character, and take replies from `SCRIPT`."""
    from selfplay.games import echo
    from selfplay.policy import Completion, Request, local, toy
    from selfplay.types import Stop

    echo.CHARACTERS = string.printable
    toy.toy_model = functools.partial(toy.toy_model, context=2048)
    encode = toy.CharTokenizer.encode

    def encode_all(self: toy.CharTokenizer, text: str) -> tuple[int, ...]:
        return encode(self, "".join(c if c in string.printable else "?" for c in text))

    async def sample(self: Any, request: Request) -> Completion:
        prompt = self.tokenizer.decode(request.prompt_ids)
        replies = next((replies for mark, replies in SCRIPT.items() if mark in prompt), ("no edit",))
        token_ids = (*self.tokenizer.encode(replies[request.seed % len(replies)]), toy.EOS)
        version = self._version()
        return Completion(
            token_ids=token_ids,
            logprobs=(-1.0,) * len(token_ids),
            stop=Stop.DONE,
            policy_version=(version, version),
            seconds=0.0,
        )

    toy.CharTokenizer.encode = encode_all  # type: ignore[method-assign]
    local.LocalPolicy.sample = sample  # type: ignore[method-assign]


def main(words: Sequence[str]) -> int:
    """The command line behind `--`, with the crash in front of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--at")
    parser.add_argument("--when", choices=("before", "after", "half"), default="before")
    parser.add_argument("--nth", type=int, default=1)
    parser.add_argument("--scripted", action="store_true")
    split = words.index("--")
    asked = parser.parse_args(words[:split])
    if asked.scripted:
        script_the_code_game()
    if asked.at:
        crash_at(asked.at, when=asked.when, nth=asked.nth)
    from selfplay.cli import main as selfplay

    return selfplay(words[split + 1 :])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
