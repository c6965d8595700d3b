"""Conversations of a harness that nobody here knows, as token ids that only grow.

A harness sends the whole conversation with every request. Where it begins as one that was answered before, what was
sampled then stays as it was sampled: only the new messages are written, by the project's renderers, behind the ids
that are there. Where it does not (the harness starts anew, cut or rewrote its history), another *branch* of the episode
begins, and replies that were not sampled in it are part of its prompt. So every branch is one trajectory whose ids are
exactly what the policy read and wrote.

How tokens are drawn is the server's affair: temperature, top_p and the like of a request are not heeded, for what is
learnt from must be what was sampled. Messages are text; a request that wants tools in the template's own form, several
replies or pictures is refused. Not here: sockets (`web`), what a play is worth (games).

Example:
    >>> proxy = Proxy(policy, rendering="auto", temperature=1.0, max_tokens=512, note=lines.append)  # doctest: +SKIP
    >>> (await proxy.reply("episode-1", {"messages": [{"role": "user", "content": "hi"}]})).text  # doctest: +SKIP
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from selfplay.errors import RunFailed, UserError
from selfplay.policy import Policy, Request
from selfplay.rollout.renderers import Message, Renderer, renderer_of
from selfplay.types import Role, Sampling, Stop, Tools, Trajectory, Turn, draw, record

Rendering = Literal["auto", "chatml", "llama3", "plain"]
UNKNOWN = ("functions", "function_call", "audio")
"""What a request may not ask for, beside tools and several replies."""
SPOKEN = {"developer": "system", "function": "tool"}
"""Names that older and newer clients give the same roles."""

Said = tuple[str, str]
"""Role and text of a message."""


class TooLong(UserError):
    """A conversation leaves no room for a reply."""


@record
class Reply:
    """What the policy said."""

    episode: str
    branch: int
    text: str
    """Without the stop string that ended it."""
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop: Stop


@dataclass(slots=True)
class _Branch:
    """One conversation as far as it has come."""

    number: int
    said: list[Said]
    ids: tuple[int, ...]
    last: tuple[int, ...] = ()
    """The last reply."""
    replies: int = 0


@dataclass(slots=True)
class _Episode:
    branches: list[_Branch] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Proxy:
    """One policy behind many conversations."""

    def __init__(
        self,
        policy: Policy,
        *,
        rendering: Rendering,
        temperature: float,
        max_tokens: int,
        note: Callable[[Mapping[str, Any]], None],
        seed: int = 0,
        context: int | None = None,
        stop: Sequence[str] = (),
        role: str = "",
    ) -> None:
        """Speak for `policy`.

        Args:
            policy: Who replies; its owner closes it.
            rendering: How messages are written, as `tools.renderer` of a role.
            temperature: Of every reply.
            max_tokens: Most of one reply.
            note: Is given each reply as a row (`rows_of` reads them), before the harness has it.
            seed: Keys every draw, with the episode's name.
            context: Most tokens of a conversation; the policy's own limit holds as well.
            stop: Strings that end a reply, beside those of a request.
            role: Whose weights reply, where roles have their own.

        Raises:
            UserError: the tokenizer lacks what `rendering` needs.
        """
        self._policy = policy
        self._renderer = _renderer(policy, rendering)
        self._temperature, self._max_tokens = temperature, max_tokens
        self._note, self._seed, self._role = note, seed, role
        own = policy.capabilities.max_context
        self._context, self._stop = own if context is None else min(own, context), tuple(stop)
        self._episodes: dict[str, _Episode] = {}

    async def reply(self, episode: str, body: Mapping[str, Any]) -> Reply:
        """The reply to the chat completion `body` in `episode`; one after the other in each episode.

        Raises:
            TooLong: it does not fit the context.
            UserError: it asks for what is not done here.
        """
        said, wanted = _messages(body), _stops(body) + self._stop
        most = body.get("max_completion_tokens") or body.get("max_tokens") or self._max_tokens
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            raise UserError("max_tokens is a whole number above 0")
        own = self._episodes.setdefault(episode, _Episode())
        async with own.lock:
            branch, shown = self._branch(own, said)
            room = self._context - len(branch.ids) - len(shown)
            if room < 1:
                raise TooLong(
                    f"the conversation has {len(branch.ids) + len(shown)} tokens, and the model's context is "
                    f"{self._context}"
                )
            request = Request(
                prompt_ids=branch.ids + shown,
                sampling=Sampling(
                    temperature=self._temperature, max_tokens=min(most, self._max_tokens, room), stop=wanted
                ),
                seed=draw(self._seed, "proxy", episode, branch.number, branch.replies),
                episode=f"{episode}/{branch.number}",
                role=self._role,
            )
            completion = await self._policy.sample(request)
            text = _without(self._policy.tokenizer.decode(completion.token_ids), wanted)
            self._note(
                {
                    "episode": episode,
                    "branch": branch.number,
                    "reply": branch.replies,
                    "shown_ids": list(shown),
                    "shown": "\n".join(message for _, message in said[len(branch.said) :]),
                    "token_ids": list(completion.token_ids),
                    "logprobs": list(completion.logprobs),
                    "text": self._policy.tokenizer.decode(completion.token_ids),
                    "stop": completion.stop.value,
                    "policy_version": list(completion.policy_version),
                    "seconds": completion.seconds,
                }
            )
            if branch not in own.branches:
                own.branches.append(branch)
            branch.ids = request.prompt_ids + completion.token_ids
            branch.said = [*said, ("assistant", text)]
            branch.last, branch.replies = completion.token_ids, branch.replies + 1
        return Reply(
            episode=episode,
            branch=branch.number,
            text=text,
            prompt_ids=request.prompt_ids,
            token_ids=completion.token_ids,
            logprobs=completion.logprobs,
            stop=completion.stop,
        )

    def _branch(self, episode: _Episode, said: Sequence[Said]) -> tuple[_Branch, tuple[int, ...]]:
        """The branch that `said` goes on, or a new one, and the ids to append to it."""
        for branch in sorted(episode.branches, key=lambda one: -len(one.said)):
            known = len(branch.said)
            if len(said) > known and _same(said[:known], branch.said):
                later = said[known:]
                if all(role != "assistant" for role, _ in later):
                    return branch, self._renderer.onward(branch.last, _between(later))
        return _Branch(number=len(episode.branches), said=[], ids=()), self._opening(said)

    def _opening(self, said: Sequence[Said]) -> tuple[int, ...]:
        """A conversation from its beginning, replies of others in it included."""
        system = "\n\n".join(text for role, text in _until_reply(said) if role == "system")
        user = "\n\n".join(text for role, text in _until_reply(said) if role != "system")
        ids = self._renderer.opening(system=system, user=user)
        later = list(said[len(_until_reply(said)) :])
        while later:
            reply = self._policy.tokenizer.encode(later[0][1])
            between = _until_reply(later[1:])
            ids += reply + self._renderer.onward(reply, _between(between))
            later = later[1 + len(between) :]
        return ids


def rows_of(lines: Iterable[str]) -> list[Trajectory]:
    """The trajectories that were noted, a branch each, in the order in which they began.

    Their stage is `attempt`, their subject the episode, their index the branch; nobody has judged them.

    Raises:
        RunFailed: a row does not follow the one before it in its branch.
    """
    branches: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for line in lines:
        row = json.loads(line)
        key = (row["episode"], row["branch"])
        own = branches.setdefault(key, [])
        if row["reply"] != len(own):
            raise RunFailed(f"reply {row['reply']} of episode {key[0]} follows {len(own)} others")
        own.append(row)
    return [_trajectory(key, turns_of(own), own[-1]) for key, own in branches.items()]


def turns_of(rows: Iterable[Mapping[str, Any]]) -> tuple[Turn, ...]:
    """The turns of one branch, whose rows these are: what was shown and what was replied, in turns."""
    turns: list[Turn] = []
    for row in rows:
        said: Literal["prompt", "tool"] = "tool" if turns else "prompt"
        turns.append(Turn(speaker=said, token_ids=tuple(row["shown_ids"]), text=row["shown"]))
        turns.append(
            Turn(
                speaker="policy",
                token_ids=tuple(row["token_ids"]),
                logprobs=tuple(row["logprobs"]),
                text=row["text"],
            )
        )
    return tuple(turns)


def _trajectory(key: tuple[str, int], turns: tuple[Turn, ...], row: Mapping[str, Any]) -> Trajectory:
    low, high = row["policy_version"]
    return Trajectory(
        id=f"{key[0]}/{key[1]}",
        step=0,
        stage="attempt",
        role="agent",
        subject_id=key[0],
        index=key[1],
        turns=turns,
        stop=Stop(row["stop"]),
        policy_version=(low, high),
    )


def _renderer(policy: Policy, rendering: Rendering) -> Renderer:
    plain = rendering == "plain"
    role = Role(
        name="agent",
        game="",
        side="solver",
        prompt="",
        template="plain" if plain else "chat",
        tools=Tools(renderer=rendering),
    )
    return renderer_of(role, policy.tokenizer)


def _messages(body: Mapping[str, Any]) -> list[Said]:
    """The messages of a request, as role and text.

    Raises:
        UserError: there is none, or something else than text is wanted.
    """
    if body.get("n") not in (None, 1):
        raise UserError("one reply is sampled for a request: leave `n` out")
    asked = next((name for name in UNKNOWN if body.get(name)), None)
    if asked or (body.get("tools") and body.get("tool_choice") != "none"):
        raise UserError(
            f"`{asked or 'tools'}` is not known here",
            hint="let the agent write its calls as text (mini-swe-agent: model_class = litellm_textbased)",
        )
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise UserError("`messages` is a list of at least one message")
    found = [_said(message) for message in messages]
    if found[-1][0] == "assistant":
        raise UserError("the last message is the assistant's own: what should it reply to?")
    if all(role in ("system", "assistant") for role, _ in found):
        raise UserError("no message is a user's")
    return found


def _said(message: Any) -> Said:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise UserError("a message is an object with `role` and `content`")
    named: str = message["role"]
    role = SPOKEN.get(named, named)
    if role not in ("system", "user", "assistant", "tool"):
        raise UserError(f"no role `{role[:40]}`: system, user, assistant or tool")
    content = "" if message.get("content") is None else message["content"]
    if isinstance(content, list):
        if any(not isinstance(part, dict) or part.get("type") != "text" for part in content):
            raise UserError("a message holds text only")
        if not all(isinstance(part.get("text"), str) for part in content):
            raise UserError("a part of a message has its text in `text`")
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str) or message.get("tool_calls"):
        raise UserError("a message holds text only, and calls are written in it")
    return role, _whole(content)


def _stops(body: Mapping[str, Any]) -> tuple[str, ...]:
    stop = body.get("stop") or []
    found = [stop] if isinstance(stop, str) else stop
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise UserError("`stop` is a string or several")
    return tuple(map(_whole, found))


def _whole(text: str) -> str:
    """`text`, of which a tokenizer and the ledger can take every character.

    Raises:
        UserError: JSON gave it half of one.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UserError("a text holds half a character (a lone surrogate)") from None
    return text


def _same(one: Sequence[Said], other: Sequence[Said]) -> bool:
    """Clients may trim a reply; nothing else may differ."""
    pairs = zip(one, other, strict=True)
    return all(a == b or (a[0] == b[0] == "assistant" and a[1].strip() == b[1].strip()) for a, b in pairs)


def _until_reply(said: Sequence[Said]) -> list[Said]:
    end = next((at for at, (role, _) in enumerate(said) if role == "assistant"), len(said))
    return list(said[:end])


def _between(said: Sequence[Said]) -> list[Message]:
    """What is said between two replies; a later system message is a user's, as templates know one at the start."""
    return [Message(role="user", text=text) for _, text in said]


def _without(text: str, stops: Sequence[str]) -> str:
    ends = [text.find(stop) for stop in stops if stop in text]
    return text[: min(ends)] if ends else text
