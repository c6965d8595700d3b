"""The single-turn form of a play: a prompt and one reply.

`Player.play` renders the role's prompt, samples the reply and returns the record.

Not here: plays with tools (`talk`), which plays are owed (`loop`), what a reply is worth (`games`).

Example:
    >>> player = Player(policy=policy, config_digest="c0ffee", seed=0)
    >>> trajectory = await player.play(Play(role=role, stage="propose", step=3, subject_id=seed.id, index=0), view)
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jinja2

from selfplay.errors import UserError
from selfplay.policy import Policy, Request, Tokenizer
from selfplay.types import Fault, Role, Sampling, Stage, Stop, Trajectory, Turn, draw, play_id, record


@record
class Play:
    """One trajectory that is owed: the place it fills."""

    role: Role
    stage: Stage
    step: int
    subject_id: str
    index: int
    attempt: int = 0


@functools.cache
def _template(prompt: str) -> jinja2.Template:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False, keep_trailing_newline=True)
    return environment.from_string(prompt)


def render(role: Role, view: Mapping[str, object]) -> str:
    """The prompt's text.

    Raises:
        UserError: the template names a variable that the game does not give, or is no template.
    """
    try:
        return _template(role.prompt).render(**view)
    except jinja2.TemplateError as error:
        raise UserError(
            f"the prompt of role `{role.name}` does not render: {error}",
            hint=f"the variables are: {', '.join(sorted(view))}; the file is {role.origin}/prompt.md",
        ) from error


def encode(role: Role, text: str, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Ids of a rendered prompt, by the role's `template`."""
    return tokenizer.encode_chat(text) if role.template == "chat" else tokenizer.encode(text)


def request_of(
    play: Play, prompt_ids: tuple[int, ...], *, seed: int, turn: int = 0, room: int | None = None
) -> Request:
    """What is asked of the policy: a pure function of the place, the prompt and the run's seed.

    `turn` counts the replies before this one; `room` are the tokens that it may have beside the role's own limits.
    """
    place = (play.step, play.stage, play.role.name, play.subject_id, play.index, play.attempt)
    later = (turn,) if turn else ()
    most = min(play.role.sampling.max_tokens, play.role.limits.tokens)
    sampling = Sampling(
        temperature=play.role.sampling.temperature,
        max_tokens=most if room is None else min(most, room),
        stop=play.role.sampling.stop,
    )
    episode = "/".join(map(str, place))
    return Request(
        prompt_ids=prompt_ids,
        sampling=sampling,
        seed=draw(seed, *place, *later),
        episode=episode,
        role=play.role.name,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Player:
    """Plays roles with one policy under one configuration."""

    policy: Policy
    config_digest: str
    seed: int

    async def play(self, play: Play, view: Mapping[str, object]) -> Trajectory:
        """Play `play.role` once on the subject that `view` describes.

        A prompt that leaves no room for a reply ends it with CONTEXT, and nothing is sampled.

        Raises:
            UserError: the prompt does not render.
        """
        started = time.monotonic()
        tokenizer = self.policy.tokenizer
        prompt = render(play.role, view)
        prompt_ids = encode(play.role, prompt, tokenizer)
        shown = Turn(speaker="prompt", token_ids=prompt_ids, text=prompt)
        if len(prompt_ids) >= self.policy.capabilities.max_context:
            seconds = time.monotonic() - started
            return record_of(
                play, self.config_digest, turns=(shown,), stop=Stop.CONTEXT, policy_version=(0, 0), seconds=seconds
            )
        completion = await self.policy.sample(request_of(play, prompt_ids, seed=self.seed))
        reply = Turn(
            speaker="policy",
            token_ids=completion.token_ids,
            logprobs=completion.logprobs,
            text=tokenizer.decode(completion.token_ids),
        )
        return record_of(
            play,
            self.config_digest,
            turns=(shown, reply),
            stop=completion.stop,
            policy_version=completion.policy_version,
            seconds=time.monotonic() - started,
        )


def record_of(
    play: Play,
    config_digest: str,
    *,
    turns: tuple[Turn, ...],
    stop: Stop,
    policy_version: tuple[int, int],
    seconds: float,
    product: Mapping[str, Any] | None = None,
    fault: Fault | None = None,
) -> Trajectory:
    """What was played, at its place."""
    return Trajectory(
        id=play_id(
            config_digest,
            step=play.step,
            stage=play.stage,
            role=play.role.name,
            subject_id=play.subject_id,
            index=play.index,
            attempt=play.attempt,
        ),
        step=play.step,
        stage=play.stage,
        role=play.role.name,
        subject_id=play.subject_id,
        index=play.index,
        attempt=play.attempt,
        turns=turns,
        stop=stop,
        policy_version=policy_version,
        fault=fault,
        product=product or {},
        seconds=seconds,
    )
