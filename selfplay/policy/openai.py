"""The `openai` policy: any endpoint that speaks OpenAI's completions, for evaluation and collection only.

One `POST URL/completions` a reply, with the prompt as token ids, so that the endpoint's model reads exactly what the
local tokenizer made. The reply's ids are asked for (`return_token_ids`, vLLM) and taken where the endpoint tells them,
else they are its text and its end, encoded; log-probabilities are its own where there is one a token, else they are
missing (`()`, which no update takes), and whether they are those of the temperature is the endpoint's affair (vLLM:
`--logprobs-mode processed_logprobs`). So nothing may be learnt from it, and a reply cannot be had again:
`capabilities` says so.

What the machine or the network fails at is tried again and then raised: it is never a reply, so never a reward. Not
here: chat completions (roles render their own prompts), streaming.

Example:
    >>> policy = OpenAIPolicy("http://localhost:8000/v1", model="m", tokenizer=tokenizer)  # doctest: +SKIP
    >>> (await policy.sample(request)).stop  # doctest: +SKIP
    <Stop.DONE: 'done'>
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import requests

from selfplay.errors import NotReady, RunFailed, UserError
from selfplay.policy import Completion, PolicyCapabilities, Request, Tokenizer
from selfplay.types import Stop

KEY = "OPENAI_API_KEY"
"""Variable of the environment that holds the endpoint's key; local servers want none."""

IDS = "return_token_ids"
"""Asks for the ids of the reply; an endpoint that refuses the word is asked without it."""

CONNECT_SECONDS = 10.0
LONGEST_WAIT = 30.0
"""Seconds between two tries, at most, whatever the endpoint asks for."""


class OpenAIPolicy:
    """Samples from the model that `url` serves as `model`.

    Args:
        url: up to and with `/v1`.
        model: the name it is served under.
        tokenizer: of that model, here.
        max_context: prompt and reply, in tokens; no reply is asked for that could get longer, which vLLM refuses.
        max_rows: most requests in flight.
        seconds: longest wait for one reply.
        tries: of one reply, where the endpoint is busy (429), fails (5xx) or is not reached.
        pause: seconds before the second try; each later pause is twice as long.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str,
        tokenizer: Tokenizer,
        max_context: int = 131_072,
        max_rows: int = 32,
        seconds: float = 600.0,
        tries: int = 5,
        pause: float = 0.5,
    ) -> None:
        self._url = f"{url.rstrip('/')}/completions"
        self._model = model
        self._tokenizer = tokenizer
        self._context = max_context
        self._seconds = seconds
        self._tries = tries
        self._pause = pause
        self._more = {IDS: True}
        self._closed = threading.Event()
        self._calls: set[asyncio.Future[Mapping[str, Any]]] = set()
        self._jobs: SimpleQueue[tuple[Future[Mapping[str, Any]], Mapping[str, Any]] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._most, self._threads = max_rows, 0

    @property
    def capabilities(self) -> PolicyCapabilities:
        """Neither trains nor is deterministic."""
        return PolicyCapabilities(trains=False, shares_weights=False, deterministic=False, max_context=self._context)

    @property
    def tokenizer(self) -> Tokenizer:
        """The one that was given."""
        return self._tokenizer

    async def sample(self, request: Request) -> Completion:
        """One reply; `Completion.seconds` holds waits and further tries too.

        Raises:
            UserError: the prompt leaves no room for a reply; or the endpoint refuses the key, knows no such model, or
                does not take the request.
            NotReady: it was busy, failed, or was not reached, at every try; or its answer is none.
            RunFailed: the policy is closed.
            asyncio.CancelledError: the caller gave up, or the policy was closed meanwhile.
        """
        began, room = time.monotonic(), self._room(request)
        if room < 1:
            raise UserError(
                f"the prompt has {len(request.prompt_ids)} tokens, and prompt and reply together may have "
                f"{self._context}",
                hint="shorten the role's prompt.md or what it shows, or name a model with a longer context",
            )
        if self._closed.is_set():
            raise _over()
        body = {
            "model": self._model,
            "prompt": list(request.prompt_ids),
            "n": 1,
            "max_tokens": min(request.sampling.max_tokens, room),
            "temperature": request.sampling.temperature,
            "seed": request.seed & 0x7FFFFFFF,
            "logprobs": 1,
            **({"stop": list(request.sampling.stop)} if request.sampling.stop else {}),
        }
        call = asyncio.wrap_future(self._ask(body))
        self._calls.add(call)
        try:
            answer = await call
        finally:
            self._calls.discard(call)
        return self._completion(answer, request, seconds=time.monotonic() - began)

    async def aclose(self) -> None:
        """Drop what waits or is in flight (its callers are cancelled), and ask nothing more; idempotent."""
        self._closed.set()
        for call in self._calls:
            call.cancel()
        for _ in range(self._threads):
            self._jobs.put(None)

    def _room(self, request: Request) -> int:
        """The longest that a reply can get, in tokens."""
        return self._context - len(request.prompt_ids)

    def _ask(self, body: Mapping[str, Any]) -> Future[Mapping[str, Any]]:
        """`_post`, on one of at most `max_rows` threads; called on one thread, the loop's."""
        told: Future[Mapping[str, Any]] = Future()
        self._jobs.put((told, body))
        if not self._idle.acquire(blocking=False) and self._threads < self._most:
            self._threads += 1
            # note: no pool, for its threads are joined when Python ends, and an answer may take `seconds` to come.
            threading.Thread(target=self._work, name=f"endpoint-{self._threads}", daemon=True).start()
        return told

    def _work(self) -> None:
        """A thread's life: what is asked, one after the other, over a session of its own."""
        with requests.Session() as session:
            while (job := self._jobs.get()) is not None:
                told, body = job
                if told.set_running_or_notify_cancel():
                    try:
                        told.set_result(self._post(body, session=session))
                    except BaseException as error:  # noqa: BLE001 - the caller's, who waits for it
                        told.set_exception(error)
                self._idle.release()

    def _post(self, body: Mapping[str, Any], *, session: requests.Session) -> Mapping[str, Any]:
        """The first choice of the answer; on a thread."""
        key = os.environ.get(KEY)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        why, wait, pause = "", 0.0, self._pause
        for _ in range(self._tries):
            # note: nobody waits for an answer that comes after the end, and the endpoint may be a paid one.
            if self._closed.wait(min(wait, LONGEST_WAIT)):
                raise _over()
            # note: other threads may learn meanwhile that the endpoint refuses it; what this one sent counts.
            more = self._more
            try:
                answer = session.post(
                    self._url, json={**body, **more}, headers=headers, timeout=(CONNECT_SECONDS, self._seconds)
                )
            # note: the last is an answer that ends before it should.
            except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
                why = f"it was not reached ({type(error).__name__})"
                wait, pause = pause, 2 * pause
                continue
            if more and answer.status_code in (400, 422) and IDS in answer.text:
                self._more = {}
                return self._post(body, session=session)
            if answer.status_code != 429 and answer.status_code < 500:
                return self._choice(answer)
            why = f"it answered {answer.status_code}"
            wait = max(pause, _asked_for(answer))
            pause = 2 * wait
        raise NotReady(
            f"the endpoint {self._url} gave no reply in {self._tries} tries: {why}",
            hint="look at its log; then type the same command again",
        )

    def _choice(self, answer: requests.Response) -> Mapping[str, Any]:
        status = answer.status_code
        if status in (401, 403):
            raise UserError(f"the endpoint {self._url} refuses the key ({status})", hint=f"set {KEY} to one it accepts")
        if status == 404:
            raise UserError(
                f"the endpoint {self._url} is not there, or serves no model `{self._model}` (404)",
                hint="the address ends with /v1; what it serves: GET /v1/models",
            )
        if status != 200:
            raise UserError(
                f"the endpoint {self._url} refused the request ({status}): {' '.join(answer.text.split())[:200]}",
                hint="it must take completions with token ids as the prompt",
            )
        try:
            choice = answer.json()["choices"][0]
            if not isinstance(choice["text"], str):
                raise TypeError("its text is no string")
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise NotReady(
                f"the answer of the endpoint {self._url} is no completion: {error!r}",
                hint="is it one of OpenAI's kind?",
            ) from error
        found: Mapping[str, Any] = choice
        return found

    def _completion(self, choice: Mapping[str, Any], request: Request, *, seconds: float) -> Completion:
        text, told = choice["text"], choice.get("token_ids")
        cut = choice.get("finish_reason") == "length"
        if isinstance(told, list) and all(isinstance(one, int) for one in told):
            token_ids = tuple(told)
        else:
            # note: an endpoint cuts off the end, be it a stop string (vLLM says which) or the end of the sequence.
            stopped_by = choice.get("stop_reason")
            ended = stopped_by if stopped_by in request.sampling.stop else ""
            eos = () if cut or ended else tuple(sorted(self._tokenizer.eos_ids)[:1])
            token_ids = (*self._tokenizer.encode(text + ended), *eos)
        logprobs = (choice.get("logprobs") or {}).get("token_logprobs") or ()
        exact = len(logprobs) == len(token_ids) and all(isinstance(one, int | float) for one in logprobs)
        stop = Stop.DONE
        if cut:
            # note: by what was asked for, since text that is encoded again may have another length.
            stop = Stop.CONTEXT if self._room(request) < request.sampling.max_tokens else Stop.TOKENS
        return Completion(
            token_ids=token_ids,
            logprobs=tuple(map(float, logprobs)) if exact else (),
            stop=stop,
            policy_version=(0, 0),
            seconds=seconds,
        )


def _asked_for(answer: requests.Response) -> float:
    """Seconds that the endpoint asks to wait."""
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.replace(".", "", 1).isdecimal() else 0.0


def _over() -> RunFailed:
    return RunFailed("the policy is closed")
