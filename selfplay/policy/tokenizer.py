"""Text to ids and back by a model's own tokenizer files, without surprises.

Raw text stays raw: a `<|im_end|>` inside a program becomes the ids of its characters, never the special
token, so that what is sampled or read from a file cannot end a turn or forge a role. Not here: prompts
(`rollout`), the files themselves (`models`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from selfplay.errors import NotReady, UserError


class HFTokenizer:
    """The tokenizer of a model folder in Hugging Face layout.

    Raises:
        NotReady: the folder holds no tokenizer that transformers can load.
    """

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise NotReady(
                f"{folder} holds no tokenizer that transformers can load: {str(error).splitlines()[0]}",
                hint="save one there with `tokenizer.save_pretrained`, or name another model",
            ) from error
        self._folder = folder
        self._eos_ids = _eos_ids(folder, own=self._tokenizer.eos_token_id)

    @property
    def eos_ids(self) -> frozenset[int]:
        """What generation_config.json and config.json name, and the tokenizer's own end-of-sequence id."""
        return self._eos_ids

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of raw text; no special tokens are added and none inside the text are interpreted."""
        # note: lone surrogates cannot be encoded as UTF-8; they become U+FFFD
        clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        ids = self._tokenizer(clean, add_special_tokens=False, split_special_tokens=True, verbose=False)["input_ids"]
        return tuple(ids)

    def encode_chat(self, user: str) -> tuple[int, ...]:
        """Ids of one user message in the model's chat template, ready for the reply.

        The template is rendered around a mark and the message encoded as raw text in its place, so that special
        tokens come from the template only.

        Raises:
            UserError: the tokenizer has no chat template, or one that alters or repeats the message.
        """
        if not self._tokenizer.chat_template:
            raise UserError(
                f"the tokenizer in {self._folder} has no chat template",
                hint='give the role `template = "plain"`, or name an instruction-tuned model',
            )
        mark = "selfplay-message-mark"
        rendered = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": mark}], tokenize=False, add_generation_prompt=True
        )
        around = rendered.split(mark)
        if len(around) != 2:
            raise UserError("the model's chat template does not show the message exactly once", hint="use `plain`")
        before, after = (self._tokenizer(part, add_special_tokens=False)["input_ids"] for part in around)
        return (*before, *self.encode(user), *after)

    @property
    def special_ids(self) -> Mapping[str, int]:
        """The special tokens by their text; no raw text ever becomes one."""
        tokens = self._tokenizer.added_tokens_decoder.items()
        return {str(token): token_id for token_id, token in tokens if token.special}

    def render_chat(self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """Text of `messages` in the model's chat template, ready for the reply.

        `tools` are JSON functions, as chat templates take them.

        Raises:
            UserError: the tokenizer has no chat template, or it refuses the messages.
        """
        if not self._tokenizer.chat_template:
            raise UserError(
                f"the tokenizer in {self._folder} has no chat template",
                hint='give the role `template = "plain"`, or name an instruction-tuned model',
            )
        try:
            rendered: str = self._tokenizer.apply_chat_template(
                list(messages),
                tools=list(tools) or None,
                tokenize=False,
                add_generation_prompt=True,
                # note: where a template shows the date (Llama 3), it must not be another one tomorrow.
                date_string="26 Jul 2024",
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise UserError(
                f"the chat template of the tokenizer in {self._folder} refuses a conversation: {error}",
                hint="let the role write calls in another form, or name its `tools.renderer`",
            ) from error
        return rendered

    def encode_rendered(self, text: str) -> tuple[int, ...]:
        """Ids of what a template gave; special tokens inside the text are honoured."""
        return tuple(self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of `token_ids` without special tokens; bytes that are no text become U+FFFD."""
        text: str = self._tokenizer.decode(
            list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text


def _eos_ids(folder: Path, *, own: int | None) -> frozenset[int]:
    """The ids that end a reply, from every file that may name them."""
    found = set() if own is None else {own}
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        named = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id") if path.exists() else None
        if named is not None:
            found.update(named if isinstance(named, list) else [named])
    return frozenset(found)
