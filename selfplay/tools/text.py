"""Makes what came out of a sandbox into text that a policy reads: printable, and no longer than allowed.

What is covered: line ends of all kinds, terminal colours, control characters and bytes that are no text, and leaving
the middle out with a count of what was there. What is not covered: what the text means.

Example:
    >>> shortened("a" * 5000 + "b" * 5000, 60)
    'aaaaaaaaaaaa\\n[... 9977 characters left out ...]\\nbbbbbbbbbbb'
"""

from __future__ import annotations

import re

_COLOURS = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])")
"""Sequences by which a terminal is told colours, places and titles (ECMA-48)."""
_NO_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and what stands for bytes that are no text."""


def plain(raw: str) -> str:
    """The text with newlines for all line ends, no terminal sequences, and U+FFFD for what cannot be shown."""
    return _NO_TEXT.sub("\ufffd", _COLOURS.sub("", raw).replace("\r\n", "\n").replace("\r", "\n"))


def shortened(whole: str, limit: int) -> str:
    """The text in at most `limit` characters: its first and its last part, and between them how much was left out."""
    return joined(whole, "", gone=0, limit=limit)


def joined(head: str, tail: str, *, gone: int, limit: int) -> str:
    """Two parts of a text between which `gone` bytes are missing, in at most `limit` characters in all.

    What is left out is counted in characters, or in bytes where some are missing already.
    """
    if not gone and len(head) + len(tail) <= limit:
        return head + tail
    whole = head + tail
    # note: the count is as wide as it can become, so that what is kept does not depend on it.
    most = gone + len(whole.encode("utf-8", "replace"))
    room = limit - len(_mark(most, "characters"))
    if room <= 0:
        return whole[: max(0, limit)]
    first, last = (room + 1) // 2, room // 2
    if gone:
        first, last = min(len(head), max(first, room - len(tail))), min(len(tail), max(last, room - len(head)))
    kept_head, kept_tail = whole[:first], whole[len(whole) - last :] if last else ""
    left = whole[first : len(whole) - last]
    said = _mark(gone + len(left.encode("utf-8", "replace")), "bytes") if gone else _mark(len(left), "characters")
    return kept_head + said + kept_tail


def _mark(count: int, what: str) -> str:
    return f"\n[... {count} {what} left out ...]\n"


def parts_of(stream: str, dropped: int) -> tuple[str, str]:
    """What a `Result` kept of a stream of which `dropped` bytes were cut: before and after the cut."""
    if not dropped:
        return stream, ""
    head, _, tail = stream.partition(f"\n[... {dropped} bytes cut ...]\n")
    return head, tail
