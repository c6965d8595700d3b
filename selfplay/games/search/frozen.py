"""Asks a frozen model behind an endpoint: questions are read and judged by somebody who does not learn.

What is covered: `FrozenAsks`, one `POST URL/chat/completions` (OpenAI's interface, which vLLM, llama.cpp and others
serve) a question, a single user message; the endpoint knows its model's chat template. The key is read from
`OPENAI_API_KEY`, where there is one. Whatever is no reply, in time, is an `AskFailed`, tried again as often as any
decision (`play.tries`), and never a verdict. Temperature and seed are sent; whether equal prompts have equal replies is
the endpoint's affair.

Not here: prompts and what a reply means (`rag`, `judge`), the policy itself (`asking`).
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from selfplay.games.search.asking import TEMPERATURE, TOKENS
from selfplay.games.search.records import AskFailed, Said
from selfplay.types import draw

KEY = "OPENAI_API_KEY"
"""Variable of the environment that holds the endpoint's key."""
SECONDS = 120.0
"""Longest wait for one reply."""
_CONNECT = 10.0
_FORM = "MODEL@http://HOST:PORT/v1"


def unfit(reader: str) -> str:
    """Why `reader` names nobody; empty where it does, or is empty."""
    model, _, url = reader.partition("@")
    fits = not reader or (model.strip() and url.startswith(("http://", "https://")))
    return "" if fits else f"`{reader}` is no reader, expected {_FORM}"


class FrozenAsks:
    """Implements `Asks` by an endpoint."""

    def __init__(self, reader: str, *, max_tokens: int = TOKENS, seconds: float = SECONDS) -> None:
        """`reader`: `MODEL@URL`, the address up to and with `/v1`.

        Raises:
            ValueError: it is nothing of that kind.
        """
        if not reader or (why := unfit(reader)):
            raise ValueError(why if reader else f"no reader is named, expected {_FORM}")
        self._model, _, url = reader.partition("@")
        self._url = f"{url.rstrip('/')}/chat/completions"
        self._max_tokens = max_tokens
        self._seconds = seconds

    async def ask(self, prompt: str, *, key: str) -> Said:
        """See `Asks`.

        Raises:
            AskFailed: the endpoint is not there, too slow, or answers something else.
        """
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": self._max_tokens,
            "temperature": TEMPERATURE,
            "seed": draw("frozen", key) & 0x7FFFFFFF,
        }
        began = time.monotonic()
        text, tokens = await asyncio.to_thread(self._post, body)
        return Said(text=text, tokens=tokens, seconds=time.monotonic() - began)

    def _post(self, body: dict[str, Any]) -> tuple[str, int]:
        import requests

        key = os.environ.get(KEY)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            answer = requests.post(self._url, json=body, headers=headers, timeout=(_CONNECT, self._seconds))
        except requests.RequestException as error:
            raise self._failed(f"was not reached ({type(error).__name__})") from error
        if answer.status_code != 200:
            raise self._failed(f"answers {answer.status_code}: {' '.join(answer.text.split())[:120]}")
        try:
            told = answer.json()
            text = told["choices"][0]["message"]["content"]
            if not isinstance(text, str):
                raise TypeError("the content is no text")
            used = told.get("usage") or {}
            return text, int(used.get("completion_tokens", 0))
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise self._failed(f"answers what is no completion ({type(error).__name__}: {error})") from error

    def _failed(self, what: str) -> AskFailed:
        return AskFailed(f"the reader at {self._url} {what}", hint=f"is it up, and does it serve `{self._model}`?")
