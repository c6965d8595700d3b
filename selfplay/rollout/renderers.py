"""From messages to token ids that only ever grow: how a conversation with tools is written for a model.

A renderer gives the ids of the opening, up to where the first reply begins, and the ids that go between a reply and
the next. What was sampled is never tokenized again, so the next prompt has the previous ids as an exact prefix, also
where the model's own template would rewrite what came before (drop earlier thoughts, say). What is inserted is raw
text: a `<|im_end|>` in a tool's output becomes the ids of its characters; special tokens come from templates only.

Covered: the tokenizer's own chat template (any whose marks around a message do not depend on the message), ChatML and
Llama 3 by name, and plain text with marks of its own.

Not here: what the messages say (`calls`), the loop over turns (`talk`).

Source of the idea that a renderer bridges to the next turn by ids: PrimeIntellect-ai/verifiers.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal, Protocol, cast, runtime_checkable

from selfplay.errors import UserError
from selfplay.policy import Tokenizer
from selfplay.tools import ToolSpec
from selfplay.types import Role, record


@record
class Message:
    """What is said to the model between two of its replies."""

    role: Literal["user", "tool"]
    """`tool`: an answer in the template's own form."""
    text: str
    name: str = ""
    """The tool's."""


class Renderer(Protocol):
    """Writes conversations for one tokenizer."""

    def opening(self, *, system: str, user: str, tools: Sequence[ToolSpec] = ()) -> tuple[int, ...]:
        """Ids up to the first token of the first reply.

        An empty `system` says nothing; `tools` are shown by the template itself.

        Raises:
            UserError: the template cannot show them.
        """
        ...

    def onward(self, reply: Sequence[int], messages: Sequence[Message]) -> tuple[int, ...]:
        """Ids that go between `reply`, as sampled, and the next one: the end of its turn unless the model wrote one,
        the messages, and all that precedes the next reply.
        """
        ...


@runtime_checkable
class Templated(Tokenizer, Protocol):
    """A tokenizer that knows special tokens and may have a chat template (`policy.tokenizer.HFTokenizer`)."""

    @property
    def special_ids(self) -> Mapping[str, int]: ...

    def render_chat(self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] = ()) -> str: ...

    def encode_rendered(self, text: str) -> tuple[int, ...]: ...


def renderer_of(role: Role, tokenizer: Tokenizer) -> Renderer:
    """The renderer that `role` names.

    Raises:
        UserError: the tokenizer lacks the template or the special tokens that it needs.
    """
    kind = role.tools.renderer if role.tools is not None else "auto"
    if kind == "auto":
        kind = "plain" if role.template == "plain" else "auto"
    return _made(kind, cast(Hashable, tokenizer))


# note: a template is looked at once, not in each play.
@functools.lru_cache(maxsize=4)
def _made(kind: str, tokenizer: Any) -> Renderer:
    if kind == "plain":
        return PlainRenderer(tokenizer)
    if not isinstance(tokenizer, Templated):
        raise UserError(
            f"the tokenizer of this policy has no special tokens, which the renderer `{kind}` needs",
            hint='set `renderer = "plain"` under [tools] in role.toml',
        )
    return TemplateRenderer(tokenizer) if kind == "auto" else StyledRenderer(tokenizer, STYLES[kind], name=kind)


REPLY, ANSWER = "\n### reply\n", "\n### answer\n"


class PlainRenderer:
    """Text with marks of its own, for models without a chat template: `### reply` and `### answer` on lines of theirs.

    A line of a message that begins like a mark is moved by a space.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def opening(self, *, system: str, user: str, tools: Sequence[ToolSpec] = ()) -> tuple[int, ...]:
        """See `Renderer.opening`.

        Raises:
            UserError: tools are to be shown by a template, of which there is none.
        """
        if tools:
            raise UserError("plain text has no form of its own for tools", hint='set `form = "fenced"` in role.toml')
        return self._tokenizer.encode("\n\n".join(filter(None, (system, user))) + REPLY)

    def onward(self, reply: Sequence[int], messages: Sequence[Message]) -> tuple[int, ...]:
        """See `Renderer.onward`; plain turns have no end to add."""
        said = "".join(ANSWER + re.sub(r"^(?=### )", " ", message.text, flags=re.MULTILINE) for message in messages)
        return self._tokenizer.encode(said + REPLY)


@record
class Style:
    """Marks of a chat format, special tokens included."""

    start: str
    """Before everything."""
    turn: tuple[str, str]
    """Around a message; `{role}` is replaced."""
    reply: str
    """Before a reply."""
    end: str
    """After a reply."""


STYLES: Mapping[str, Style] = {
    "chatml": Style(
        start="",
        turn=("<|im_start|>{role}\n", "<|im_end|>\n"),
        reply="<|im_start|>assistant\n",
        end="<|im_end|>\n",
    ),
    "llama3": Style(
        start="<|begin_of_text|>",
        turn=("<|start_header_id|>{role}<|end_header_id|>\n\n", "<|eot_id|>"),
        reply="<|start_header_id|>assistant<|end_header_id|>\n\n",
        end="<|eot_id|>",
    ),
}
_TOKEN = re.compile(r"<\|\w+\|>")


@record
class _Piece:
    """A stretch of a rendered conversation."""

    text: str
    raw: bool = False
    """True for what somebody said, which holds no special token whatever it looks like."""


class _Writer:
    """Pieces to ids."""

    def __init__(self, tokenizer: Templated) -> None:
        self._ends = tokenizer.eos_ids
        # note: siblings open with the same text, and the marks between turns are always the same few.
        self._encode = functools.lru_cache(maxsize=128)(tokenizer.encode)
        self._special = dict(tokenizer.special_ids)
        longest_first = sorted(self._special, key=len, reverse=True)
        self._split = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")" if longest_first else "(?!)")

    def ids(self, pieces: Sequence[_Piece]) -> tuple[int, ...]:
        """Raw text and the template's text around it are tokenized as one, as the template's owner does it."""
        ids: list[int] = []
        text = ""
        for piece in pieces:
            for part in [piece.text] if piece.raw else self._split.split(piece.text):
                if piece.raw or part not in self._special:
                    text += part
                    continue
                ids += self._encode(text) if text else ()
                ids.append(self._special[part])
                text = ""
        return (*ids, *(self._encode(text) if text else ()))

    def after_end(self, pieces: Sequence[_Piece], reply: Sequence[int]) -> list[_Piece]:
        """`pieces` without the special token that ends the reply's turn, where the reply has an end of its own."""
        first, *others = pieces
        parts = self._split.split(first.text, maxsplit=1)
        if not reply or reply[-1] not in self._ends or len(parts) == 1:
            return list(pieces)
        return [_Piece(text=parts[2]), *others]


class StyledRenderer:
    """A chat format by name, for tokenizers that have its special tokens, whatever their template says.

    Raises:
        UserError: the tokenizer lacks one of them.
    """

    def __init__(self, tokenizer: Templated, style: Style, *, name: str) -> None:
        needed = set(_TOKEN.findall(style.start + "".join(style.turn) + style.reply + style.end))
        missing = sorted(needed - set(tokenizer.special_ids))
        if missing:
            raise UserError(
                f"the tokenizer has no special token {missing[0]}, which the renderer `{name}` needs",
                hint="name another `tools.renderer` in role.toml: auto, chatml, llama3 or plain",
            )
        self._writer = _Writer(tokenizer)
        self._style = style
        self._name = name

    def opening(self, *, system: str, user: str, tools: Sequence[ToolSpec] = ()) -> tuple[int, ...]:
        """See `Renderer.opening`.

        Raises:
            UserError: tools are to be shown by a template, and this is none.
        """
        if tools:
            raise UserError(f"the renderer `{self._name}` does not show tools", hint='set `renderer = "auto"`')
        said = [*self._turn("system", system), *self._turn("user", user)] if system else self._turn("user", user)
        return self._writer.ids([_Piece(text=self._style.start), *said, _Piece(text=self._style.reply)])

    def onward(self, reply: Sequence[int], messages: Sequence[Message]) -> tuple[int, ...]:
        """See `Renderer.onward`."""
        said = [piece for message in messages for piece in self._turn(message.role, message.text)]
        ended = self._writer.after_end([_Piece(text=self._style.end)], reply)
        return self._writer.ids([*ended, *said, _Piece(text=self._style.reply)])

    def _turn(self, role: str, text: str) -> list[_Piece]:
        before, after = self._style.turn
        return [_Piece(text=before.format(role=role)), _Piece(text=text, raw=True), _Piece(text=after)]


@record
class _Slot:
    """Where a template puts a message, and what it does to it."""

    number: int
    trims: bool
    quotes: bool
    """It is written as the inside of a JSON string."""

    def filled(self, text: str) -> _Piece:
        """The message as the template would write it."""
        text = text.strip() if self.trims else text
        return _Piece(text=json.dumps(text, ensure_ascii=False)[1:-1] if self.quotes else text, raw=True)


Layout = tuple[_Piece | _Slot, ...]
"""A rendered conversation with places for its messages."""


class TemplateRenderer:
    """The tokenizer's own chat template, rendered around marks whose places the messages then take.

    Raises:
        UserError: there is no template, or one that repeats or alters messages, or that this way of filling it in
            does not give the ids of.
    """

    def __init__(self, tokenizer: Templated) -> None:
        self._tokenizer = tokenizer
        self._writer = _Writer(tokenizer)
        self._layouts: dict[tuple[object, ...], Layout] = {}
        probe = "Why?\n  1 < 2"
        asked = [{"role": "user", "content": probe}]
        if self.opening(system="", user=probe) != tokenizer.encode_rendered(tokenizer.render_chat(asked)):
            raise UserError(
                "filling in the model's chat template does not give the ids that the template gives",
                hint='name its kind under [tools] in role.toml: `renderer = "chatml"`, `"llama3"` or `"plain"`',
            )

    def opening(self, *, system: str, user: str, tools: Sequence[ToolSpec] = ()) -> tuple[int, ...]:
        """See `Renderer.opening`.

        Raises:
            UserError: the template does not show tools, or refuses a system message.
        """
        texts = [system, user] if system else [user]
        functions = tuple(json.dumps(function_of(spec)) for spec in tools)
        layout = self._layout(("system", "user") if system else ("user",), functions=functions)
        if tools and layout == self._layout(("system", "user") if system else ("user",)):
            raise UserError(
                "the model's chat template does not show tools", hint='set `form = "json"` under [tools] in role.toml'
            )
        return self._writer.ids(_fill(layout, texts))

    def onward(self, reply: Sequence[int], messages: Sequence[Message]) -> tuple[int, ...]:
        """See `Renderer.onward`.

        Raises:
            UserError: the template refuses such messages.
        """
        kinds = tuple((message.role, message.name) for message in messages)
        layout = self._layout(("user", "assistant", *kinds))
        own = next(at for at, part in enumerate(layout) if isinstance(part, _Slot) and part.number == 1)
        pieces = _fill(layout[own + 1 :], ["", "", *(message.text for message in messages)])
        return self._writer.ids(self._writer.after_end(pieces, reply))

    def _layout(self, kinds: tuple[object, ...], *, functions: tuple[str, ...] = ()) -> Layout:
        known = self._layouts.get((kinds, functions))
        if known is None:
            messages = []
            for number, kind in enumerate(kinds):
                role, name = kind if isinstance(kind, tuple) else (kind, "")
                named = {"name": name} if name else {}
                messages.append({"role": role, "content": _probe(number), **named})
            rendered = self._tokenizer.render_chat(messages, tools=[json.loads(one) for one in functions])
            known = self._layouts[(kinds, functions)] = _read(rendered, len(kinds))
        return known


def function_of(spec: ToolSpec) -> dict[str, Any]:
    """A tool as chat templates take it."""
    parameters = json.loads(json.dumps(spec.parameters))
    return {"type": "function", "function": {"name": spec.name, "description": spec.text, "parameters": parameters}}


def _probe(number: int) -> str:
    """A message that shows where it goes and what is done to white space and quotes."""
    return f'\t{_mark(number)}"{_mark(number)}\t'


def _mark(number: int) -> str:
    return f"selfplay-mark-{number}-"


def _read(rendered: str, count: int) -> Layout:
    """The layout of a conversation of `count` probes."""
    parts: list[_Piece | _Slot] = []
    whole = rendered
    for number in range(count):
        mark = _mark(number)
        found = re.search(rf'(\t|\\t)?{mark}(\\?)"{mark}(\t|\\t)?', rendered)
        if found is None or whole.count(mark) != 2:
            raise UserError(
                "the model's chat template does not show each message exactly once, as it is",
                hint='name its kind under [tools] in role.toml: `renderer = "chatml"`, `"llama3"` or `"plain"`',
            )
        parts.append(_Piece(text=rendered[: found.start()]))
        parts.append(_Slot(number=number, trims=found[1] is None, quotes=bool(found[2])))
        rendered = rendered[found.end() :]
    return (*parts, _Piece(text=rendered))


def _fill(layout: Layout, texts: Sequence[str]) -> list[_Piece]:
    return [part.filled(texts[part.number]) if isinstance(part, _Slot) else part for part in layout]
