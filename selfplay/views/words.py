"""Numbers as people read them: shares, durations, sizes. A number that is not known is a dash, never 0.

Not here: layout (`progress`, `status`, `inspect`), JSON (`envelope`).
"""

from __future__ import annotations

UNKNOWN = "–"


def share(top: float | None, bottom: float | None) -> str:
    """`5` of `8` as `62 %`; a dash where there is nothing to divide by."""
    if top is None or not bottom:
        return UNKNOWN
    return f"{100 * top / bottom:.0f} %"


def number(value: float | None, *, digits: int = 2, signed: bool = False) -> str:
    """A float with `digits` after the point, `+` shown where `signed`."""
    if value is None:
        return UNKNOWN
    return f"{value:{'+' if signed else ''}.{digits}f}"


def duration(seconds: float | None) -> str:
    """`40 s`, `12 min`, `2 h 11 min`, `3 d 4 h`."""
    if seconds is None:
        return UNKNOWN
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def size(num_bytes: float) -> str:
    """`512 B`, `3.4 MB`, `1.2 GB` (powers of 1000)."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.1f} TB"


def plural(count: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def clean(text: str) -> str:
    """Text that a model or a program made, safe to show: control characters become visible, lines stay.

    Without this a reply could move the cursor, recolour the screen or set the window's title.
    """
    return "".join(c if c == "\n" or c.isprintable() else _visible(c) for c in text)


def shorten(text: str, width: int) -> str:
    """At most `width` characters of the first line of `text`."""
    line = clean(text).strip().split("\n", 1)[0].rstrip()
    return line if len(line) <= width else line[: width - 1] + "…"


def _visible(character: str) -> str:
    if character == "\t":
        return "    "
    return f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}"
