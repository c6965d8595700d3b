"""What a reply hands over: the last complete block of a tag, or the whole reply of a role that writes nothing else.

Covered: untrusted text of any kind. Only what the policy wrote is ever read, never a prompt or what was found; what
stands before the last `</think>` is a thought, in which nothing is handed over. Blocks beyond `MAX_BLOCKS` make a reply
unreadable: who writes every answer there is has given none (the released SSP divides such a score by four and counts
it as solved).

Not here: calls of tools (`rollout.calls`), whether what was handed over is any good (`filters`, `game`).

Example:
    >>> handed("so <answer>a</answer>, no: <answer> b </answer>", "answer").text
    'b'
    >>> handed("groupby", "answer", bare=True).text, handed("groupby", "answer").reason
    ('groupby', 'no_block')
"""

from __future__ import annotations

import re

from selfplay.types import record

MAX_BLOCKS = 10
"""Complete blocks of one tag that a reply may have, as in the released SSP."""
MAX_CHARS = 4_000
"""Longest text that is looked at; a longer one is cut, and then no rule of length can pass it."""
NO_BLOCK, MANY_BLOCKS, EMPTY = "no_block", "many_blocks", "empty"


@record
class Handed:
    """What a reply hands over, or why it hands over nothing."""

    text: str = ""
    reason: str = ""
    """One of `NO_BLOCK`, `MANY_BLOCKS`, `EMPTY`; empty where there is a text."""
    why: str = ""


def handed(reply: str, tag: str, *, bare: bool = False) -> Handed:
    """The last complete block `<tag>...</tag>` of a reply; with `bare`, of a reply without the tag, all of it."""
    said = reply.rpartition("</think>")[2]
    blocks = re.findall(rf"<{tag}>((?:(?!<{tag}>).)*?)</{tag}>", said, flags=re.DOTALL)
    if len(blocks) > MAX_BLOCKS:
        why = f"the reply has {len(blocks)} <{tag}> blocks, and at most {MAX_BLOCKS} are read"
        return Handed(reason=MANY_BLOCKS, why=why)
    if not blocks and (not bare or f"<{tag}>" in said):
        return Handed(reason=NO_BLOCK, why=f"the reply has no complete <{tag}>...</{tag}>")
    text = " ".join((blocks[-1] if blocks else said)[:MAX_CHARS].split())
    return Handed(text=text) if text else Handed(reason=EMPTY, why=f"the {tag} is empty")


def quote_of(reply: str) -> str:
    """The sentence that a proposer quoted as support; empty where it quoted none."""
    return handed(reply, "quote").text
