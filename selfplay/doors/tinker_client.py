"""Operations of Tinker's API as a learner needs them, each with a deadline and one sentence where it fails.

The wire is Tinker's own SDK's (the package `tinker`, extra `tinker`): it signs requests, sends them in order under
numbers of their own, so that one that is sent twice is carried out once, and polls for the results. What it raises is
told here: a refused key or request ends a command with exit code 2, a server that fails, is gone or does not finish
with 3, a request that the server says it could not carry out with 1.

What the API cannot do is refused here too. Not here: what is learnt (`tinker`), replies (`tinker_policy`).
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from selfplay.config import Config
from selfplay.errors import NotFound, NotReady, RunFailed, SelfplayError, UserError
from selfplay.policy import Request
from selfplay.samplers import constants
from selfplay.types import Sample, record

T = TypeVar("T")
KEY = "TINKER_API_KEY"
"""Variable of the environment that holds the key; the SDK knows others, and what `tinker auth login` stored."""
CONTEXT = 32_768
"""Prompt and reply, in tokens, where neither server nor settings say it."""
OPENING_SECONDS = 120.0
"""Longest wait for a session, where one request may take longer."""
OPENING = "open a session"
AGAIN = "type the same command again: it goes on from the last save"
BUSY = (402, 408, 409, 429)
"""What passes by itself, or once somebody has paid: the SDK tries again until its time is over."""


def installed() -> str:
    """The SDK's version.

    Raises:
        NotReady: it is not there.
    """
    if importlib.util.find_spec("tinker") is None:
        raise NotReady(
            "policy.backend is `tinker`, and the package `tinker` is not installed",
            hint="pip install 'selfplay-curriculum[tinker]'",
        )
    return importlib.metadata.version("tinker")


@record
class Constants:
    """Constants of the backend `tinker`, in `policy.options`."""

    url: str = ""
    """Of the server; empty: `TINKER_BASE_URL`, else Thinking Machines' own."""
    model: str = ""
    """The base's name at the server; empty: `policy.model`, whose tokenizer is used here."""
    context: int = 0
    """Prompt and reply, in tokens; 0: what the server says."""
    seconds: float = 1800.0
    """Longest wait for the result of one request."""


def given_of(config: Config) -> Constants:
    """The backend's constants, the base's name among them."""
    found = constants(Constants, config.policy.options, backend="tinker")
    return replace(found, model=found.model or config.policy.model)


def check(config: Config) -> str:
    """Refuse what the API cannot do, before anything is spent; what a plan says of it.

    Raises:
        UserError: a setting asks for it.
        NotReady: the SDK is not installed.
    """
    learner, said = config.learner, "and policy.backend is `tinker`, which"
    if not learner.lora_rank:
        raise UserError(f"learner.lora_rank is 0, {said} trains adapters alone", hint="-s learner.lora_rank=32")
    if learner.ranks > 1:
        raise UserError(f"learner.ranks is {learner.ranks}, {said} learns elsewhere", hint="-s learner.ranks=1")
    if learner.optimizer != "adamw":
        raise UserError(
            f"learner.optimizer is `{learner.optimizer}`, {said} has AdamW", hint="-s learner.optimizer=adamw"
        )
    if learner.order != "joint":
        raise UserError(f"learner.order is `{learner.order}`, {said} learns in one step", hint="-s learner.order=joint")
    if learner.kl:
        raise UserError(f"learner.kl is {learner.kl:g}, {said} keeps no reference here", hint="-s learner.kl=0")
    given = given_of(config)
    return f"{given.model} at {given.url or 'a Tinker server'}, learnt and sampled there (SDK {installed()})"


class Service:
    """A session with a server.

    Args:
        url: Of the server; empty: `TINKER_BASE_URL`, else Thinking Machines' own.
        seconds: Longest wait for the result of one request.
    """

    def __init__(self, url: str, *, seconds: float) -> None:
        """Open the session.

        Raises:
            NotReady: the SDK is not installed, or the server is not reached.
            UserError: there is no key, or it is refused.
        """
        installed()
        # note: the SDK reports every poll of a result that is not there yet; without a handler that goes to stderr.
        logging.getLogger("tinker").addHandler(logging.NullHandler())
        self.sdk: Any = importlib.import_module("tinker")
        self.url = url or os.environ.get("TINKER_BASE_URL", "") or "of Thinking Machines"
        self.seconds = seconds
        self._opened: Any = self.sdk.ServiceClient(base_url=url or None)
        opening = min(seconds, OPENING_SECONDS)
        with self.told(OPENING, seconds=opening):
            # note: the SDK itself would try for minutes, and it has no deadline for this.
            _within(opening, lambda: self._opened.holder)
            rest = _within(opening, lambda: self.sdk.RestClient(base_url=url or None))
            found = rest.get_server_capabilities().result(opening)
        self.contexts: Mapping[str, int] = {
            model.model_name: int(model.max_context_length or 0)
            for model in found.supported_models
            if model.model_name and model.trainable is not False
        }
        """Models that can be trained -> prompt and reply, in tokens; 0 where the server does not say."""

    def context(self, model: str) -> int:
        """Prompt and reply of `model`, in tokens; 0 where the server does not say.

        Raises:
            NotFound: it trains no such model.
        """
        if model not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none at all"
            raise NotFound(
                f"the Tinker server {self.url} trains no model `{model}`",
                hint=f"-s policy.model=NAME, or -s 'policy.options={{model = \"NAME\"}}'; it trains: {known}",
            )
        return self.contexts[model]

    def fresh(self, model: str, *, rank: int, seed: int) -> Training:
        """New adapters of `rank` on `model`."""
        with self.told("make adapters"):
            asked = self._opened.create_lora_training_client(base_model=model, rank=rank, seed=seed)
            return Training(self, asked.result(self.seconds))

    def from_state(self, path: str, *, moments: bool) -> Training:
        """What was saved under `path`, in a new run of the server's; with the optimizer's `moments`, or without.

        Raises:
            RunFailed: the server has it no more.
        """
        make = self._opened.create_training_client_from_state
        if moments:
            make = self._opened.create_training_client_from_state_with_optimizer
        with self.told(f"load {path}", gone=True):
            return Training(self, make(path).result(self.seconds))

    def close(self) -> None:
        """End the session; what was saved stays. Idempotent."""
        with suppress(Exception):
            self._opened.close("success").result(min(self.seconds, 10.0))

    @contextmanager
    def told(self, doing: str, *, seconds: float | None = None, gone: bool = False) -> Iterator[None]:
        """Whatever the SDK raises, in one sentence; `gone`: what is not found was there when it was recorded.

        Raises:
            SelfplayError: as the module says.
        """
        try:
            yield
        except SelfplayError:
            raise
        except Exception as error:
            raise self._sentence(error, doing, seconds=seconds or self.seconds, gone=gone) from error

    def _sentence(self, error: BaseException, doing: str, *, seconds: float, gone: bool) -> SelfplayError:
        sdk, server = self.sdk, f"the Tinker server {self.url}"
        if isinstance(error, TimeoutError):
            return NotReady(f"{server} did not {doing} within {seconds:g} s", hint=f"look whether it is well; {AGAIN}")
        status = next((e for e in (error, error.__cause__) if isinstance(e, sdk.APIStatusError)), None)
        if status is not None:
            return self._refused(status.status_code, _line(status.message), doing, gone=gone)
        if isinstance(error, sdk.APIConnectionError):
            return NotReady(f"{server} is not reached, to {doing}", hint=f"once it is there, {AGAIN}")
        if isinstance(error, sdk.RequestFailedError):
            found = re.search(r"Request failed: (.*?) for self\.request_id", str(error), re.DOTALL)
            why = f"{server} could not {doing}: {_line(found[1] if found else str(error))}"
            return RunFailed(why, hint=AGAIN) if error.category == "user" else NotReady(why, hint=AGAIN)
        if isinstance(error, sdk.TinkerError):
            if doing == OPENING:
                return UserError(
                    f"no session with {server}: {_line(error)}", hint=f"export {KEY}=..., or: tinker auth login"
                )
            return NotReady(f"{server} could not {doing}: {_line(error)}", hint=AGAIN)
        why = f"{server} could not {doing}: {type(error).__name__}: {_line(error)}"
        return NotReady(why, hint=AGAIN) if gone else RunFailed(why, hint=AGAIN)

    def _refused(self, status: int, text: str, doing: str, *, gone: bool) -> SelfplayError:
        server = f"the Tinker server {self.url}"
        if status == 401 or (status == 403 and not gone):
            return UserError(f"{server} refuses the key ({status})", hint=f"export {KEY}=... to one that it accepts")
        if status >= 500 or status in BUSY:
            return NotReady(f"{server} failed to {doing} ({status}: {text})", hint=AGAIN)
        why = f"{server} refused to {doing} ({status}: {text})"
        if not gone:
            return UserError(why, hint="does it speak the API of this version?")
        if status == 404:
            return RunFailed(why, hint=AGAIN)
        # note: a save is set aside for good where it is said to be gone; with another key it may only be out of sight.
        return NotReady(why, hint=f"is it the account that saved it? {AGAIN}")


class Training:
    """Adapters at the server, their gradient and their optimizer."""

    def __init__(self, service: Service, client: Any) -> None:
        self._service = service
        self._client = client

    def logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        """Log-probabilities of every token but the first, a sample each; nothing is learnt."""
        data = [self._datum(sample, [0.0] * (len(sample.token_ids) - 1)) for sample in samples]
        with self._service.told("compute log-probabilities"):
            found = self._client.forward(data, "cross_entropy").result(self._service.seconds)
            return [_logprobs(one, sample) for one, sample in zip(found.loss_fn_outputs, samples, strict=True)]

    def learn(
        self, samples: Sequence[Sample], weights: Sequence[Sequence[float]], *, adam: Mapping[str, float]
    ) -> tuple[list[list[float]], Mapping[str, float]]:
        """One step down the gradient of -sum of weight x log-probability, over every token but the first.

        Returns the log-probabilities before the step, and what the server says of the step.
        """
        data = [self._datum(sample, weight) for sample, weight in zip(samples, weights, strict=True)]
        with self._service.told("learn"):
            # note: both are sent before either is waited for, as the API asks: a step may wait for its turn.
            passed = self._client.forward_backward(data, "cross_entropy")
            stepped = self._client.optim_step(self._service.sdk.AdamParams(**adam))
            found = passed.result(self._service.seconds)
            told = stepped.result(self._service.seconds).metrics or {}
            each = [_logprobs(one, sample) for one, sample in zip(found.loss_fn_outputs, samples, strict=True)]
        return each, told

    def save(self, name: str) -> str:
        """Save adapters and moments at the server; the address that they are found under."""
        with self._service.told("save the weights"):
            return str(self._client.save_state(name).result(self._service.seconds).path)

    def sampler(self) -> Any:
        """A sampling client of the weights as they are, whatever is learnt later."""
        with self._service.told("hand the weights to its sampler"):
            return self._client.save_weights_and_get_sampling_client().result(self._service.seconds)

    def _datum(self, sample: Sample, weights: Sequence[float]) -> Any:
        sdk = self._service.sdk
        inputs = {
            "target_tokens": np.asarray(sample.token_ids[1:], dtype=np.int64),
            "weights": np.asarray(weights, dtype=np.float32),
        }
        return sdk.Datum(model_input=sdk.ModelInput.from_ints(list(sample.token_ids[:-1])), loss_fn_inputs=inputs)


def asked(sdk: Any, client: Any, request: Request, *, room: int) -> Any:
    """The SDK's future of one reply of at most `room` tokens."""
    sampling = request.sampling
    return client.sample(
        prompt=sdk.ModelInput.from_ints(list(request.prompt_ids)),
        num_samples=1,
        sampling_params=sdk.SamplingParams(
            max_tokens=min(sampling.max_tokens, room),
            temperature=sampling.temperature,
            seed=request.seed & 0x7FFFFFFF,
            stop=list(sampling.stop) or None,
        ),
    )


def _line(text: object) -> str:
    """The start of what the SDK says, on one line."""
    return " ".join(str(text).split())[:300]


def _logprobs(output: Mapping[str, Any], sample: Sample) -> list[float]:
    found: list[float] = output["logprobs"].data
    if len(found) != len(sample.token_ids) - 1:
        raise ValueError(f"{len(found)} log-probabilities of {len(sample.token_ids) - 1} tokens")
    return found


def _within(seconds: float, job: Callable[[], T]) -> T:
    """What `job` gives, or TimeoutError; a job that hangs is left to a thread that ends with the process."""
    done: Future[T] = Future()

    def work() -> None:
        try:
            done.set_result(job())
        except BaseException as error:  # noqa: BLE001 - handed to who waits
            done.set_exception(error)

    threading.Thread(target=work, daemon=True, name="tinker-opening").start()
    return done.result(seconds)
