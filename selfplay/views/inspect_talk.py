"""What was said in a play: every turn, calls of tools with their answers, and which tokens carried loss.

Texts are shown with control characters made visible, and never as markup. Long ones lose their middle (`Fold`).

Not here: verdicts and rewards (`inspect_text`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from selfplay.types import ToolCall, Turn, record
from selfplay.views.inspect import Play
from selfplay.views.words import clean, duration, plural, shorten

NAME_WIDTH = 9


@record
class Fold:
    """How much of a text is shown; the middle of a longer one is left out."""

    lines: int = 40
    answer: int = 12
    """Lines of a tool's answer."""
    width: int = 500
    """Characters of a line."""


PAGE = Fold()
"""Of the play that a page is about."""
BESIDE = Fold(lines=16, answer=6)
"""Of the plays that stand on it beside that one."""
WHOLE = Fold(lines=10**9, answer=10**9, width=10**9)
"""Nothing is left out."""


def conversation(play: Play, *, fold: Fold, prompt: bool = True) -> Iterator[RenderableType]:
    """Every turn in order; a tool's turn only where its answers do not stand behind the calls."""
    turns = play.trajectory.turns
    replies, reply, answered = sum(turn.sampled for turn in turns), 0, False
    for turn in turns:
        if turn.speaker == "prompt" and not prompt:
            continue
        if turn.speaker == "tool" and answered:
            answered = False
            continue
        if not turn.sampled:
            name = {"prompt": "prompt", "tool": "answer"}.get(turn.speaker, turn.speaker)
            yield _title(name, turn)
            yield block(turn.text, lines=fold.lines if turn.speaker == "prompt" else fold.answer, fold=fold)
            continue
        reply += 1
        yield _title(f"reply {reply} of {replies}" if replies > 1 else "reply", turn, learnt=bool(play.trained))
        yield block(turn.text, lines=fold.lines, fold=fold)
        answered = bool(turn.calls)
        for call in turn.calls:
            yield _call(call)
            yield Padding(block(call.result, lines=fold.answer, fold=fold), (0, 0, 0, 2), expand=False)


def trained_words(play: Play) -> str:
    """`145 of 430 learnt from`, and where none is, why."""
    every = len(play.trajectory.token_ids)
    whole = f"{every:,} in all, {play.trajectory.num_sampled:,} sampled"
    if play.trained is None:
        return f"{whole}; the step is open, nothing is learnt yet"
    if play.trained:
        return f"{whole} and learnt from; prompt and answers of tools carry no loss"
    return f"{whole}, none learnt from{_why_not(play)}"


def _why_not(play: Play) -> str:
    if play.trajectory.stage == "evaluate":
        return ": it was played to look, not to learn"
    if play.advantage is None:
        return ": nothing was decided, so it is in no group"
    if play.informative is False:
        return ": its group teaches nothing"
    if play.trajectory.stop.truncated:
        return ": a limit ended it, which counts in its group and carries no loss"
    return ""


def block(text: str, *, lines: int, fold: Fold) -> Padding:
    """A text, indented, its middle left out where it is long."""
    rows = clean(text.rstrip("\n")).split("\n")
    shown = Text("\n".join(cut(rows, lines=lines, width=fold.width)))
    return Padding(shown, (0, 0, 0, 2), expand=False)


def cut(rows: Sequence[str], *, lines: int = PAGE.lines, width: int = PAGE.width) -> list[str]:
    """The first and the last of many rows, and how many stand between."""
    short = [row if len(row) <= width else row[:width] + "…" for row in rows]
    if len(short) <= lines:
        return short
    half = lines // 2
    return [*short[:half], f"... {len(short) - 2 * half} lines left out ...", *short[-half:]]


def line(name: str, text: str) -> Text:
    """`name      text`."""
    shown = Text()
    shown.append(f"{name:<{NAME_WIDTH}} ", style="dim")
    shown.append(text)
    return shown


def _title(name: str, turn: Turn, *, learnt: bool = False) -> Text:
    said = f"{name} · {plural(len(turn.token_ids), 'token')}"
    title = Text(said, style="dim")
    if learnt:
        title.append(" · learnt from", style="not dim green")
    return title


def _call(call: ToolCall) -> Text:
    shown = Text("  → ", style="cyan")
    shown.append(clean(call.name), style="bold cyan")
    if call.arguments:
        name, value = next(iter(call.arguments.items()))
        more = f", {len(call.arguments) - 1} more" if len(call.arguments) > 1 else ""
        shown.append(f" {shorten(f'{name}={value}', 60)}{more}", style="cyan")
    ended = "" if call.exit_code is None else f" · exit {call.exit_code}"
    bad = call.exit_code not in (None, 0)
    shown.append(f"{ended} · {duration(call.seconds)}", style="yellow" if bad else "dim")
    return shown
