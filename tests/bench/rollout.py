"""Plays that wait for their tools: wall-clock time against the slowest play's tools alone, and against TRL's tool loop.

    python tests/bench/rollout.py FOLDER [--peer trl] [--template FILE] [--repeats N]

16 plays of six turns with a call each and a last reply, tools that take 5 to 100 ms (`asyncio.sleep`, durations drawn
once), replies from a table at once. FOLDER holds a tokenizer with ChatML tokens; its chat template is replaced by FILE
(with the peer: by TRL's copy of Qwen 2.5's), since it must show tools. Both sides tokenize, render, read calls and
append answers. Ours is timed from before the openings; TRL's is `GRPOTrainer._tool_call_loop` alone, from the first
replies on, with the same replies and tools (asynchronous ones, which it gathers within a sample). Reports, gates
nothing.

Not here: sampling. With the peer, run it in an environment of its own (`peer_trl.py` says how).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from selfplay.policy import Completion, PolicyCapabilities, Request
from selfplay.policy.tokenizer import HFTokenizer
from selfplay.rollout import Play, Player, talk
from selfplay.tools import Answer, Call, ToolSpec
from selfplay.types import Limits, Role, Sampling, Stop, Tools, Trajectory

PLAYS, TURNS = 16, 6
WAIT = ToolSpec(
    name="wait",
    text="Waits.",
    parameters={"type": "object", "properties": {"turn": {"type": "integer"}}, "required": ["turn"]},
)
OUTPUT = "line of output\n" * 20


def durations() -> list[list[float]]:
    """Seconds of every call, of each play."""
    drawn = random.Random(0)
    return [[drawn.uniform(0.005, 0.1) for _ in range(TURNS)] for _ in range(PLAYS)]


def replies() -> list[str]:
    """What every play says: a call a turn, and a last word."""
    calls = [json.dumps({"name": "wait", "arguments": {"turn": turn}}) for turn in range(TURNS)]
    return [*(f"I wait.\n<tool_call>\n{call}\n</tool_call>" for call in calls), "Done."]


class Table:
    """A policy that replies at once, by how many replies the prompt holds already."""

    def __init__(self, tokenizer: HFTokenizer) -> None:
        self.tokenizer = tokenizer
        self.capabilities = PolicyCapabilities(
            trains=False, shares_weights=False, deterministic=True, max_context=1 << 17
        )
        self._end = tokenizer.special_ids["<|im_end|>"]
        self._replies = [(*tokenizer.encode(text), self._end) for text in replies()]
        self._opening: int | None = None

    async def sample(self, request: Request) -> Completion:
        """The next reply of the play that asks."""
        ends = request.prompt_ids.count(self._end)
        # note: all openings are the same; after it, every turn ends a reply and a message.
        self._opening = ends if self._opening is None else self._opening
        ids = self._replies[(ends - self._opening) // 2]
        logprobs = (-1.0,) * len(ids)
        return Completion(token_ids=ids, logprobs=logprobs, stop=Stop.DONE, policy_version=(0, 0), seconds=0.0)

    async def aclose(self) -> None:
        """Nothing to free."""


class Waits:
    """One play's toolbox."""

    specs = (WAIT,)

    def __init__(self, seconds: list[float]) -> None:
        self._seconds = seconds

    async def call(self, call: Call) -> Answer:
        """Wait as long as the turn takes."""
        await asyncio.sleep(self._seconds[call.arguments["turn"]])
        return Answer(text=OUTPUT)

    async def aclose(self) -> None:
        """Nothing to free."""


def ours(tokenizer: HFTokenizer, seconds: list[list[float]]) -> float:
    """Wall-clock seconds of all plays at once, eight places in the sampler."""
    own = Role(
        name="waiter",
        game="echo",
        side="solver",
        prompt="Wait {{ turns }} times.",
        template="chat",
        limits=Limits(turns=TURNS + 2, tokens=200),
        sampling=Sampling(max_tokens=200),
        tools=Tools(form="native"),
    )
    player = Player(policy=Table(tokenizer), config_digest="bench", seed=0)

    async def main() -> float:
        places = asyncio.Semaphore(8)

        @asynccontextmanager
        async def sampling() -> Any:
            async with places:
                yield

        async def one(index: int) -> Trajectory:
            async def open_tools() -> Waits:
                return Waits(seconds[index])

            play = Play(role=own, stage="attempt", step=0, subject_id="s", index=index)
            return await talk(player, play, {"turns": TURNS}, open_tools=open_tools, sampling=sampling)

        began = time.perf_counter()
        played = await asyncio.gather(*(one(index) for index in range(PLAYS)))
        took = time.perf_counter() - began
        assert all(len(t.turns) == 2 * TURNS + 2 and t.stop is Stop.DONE for t in played)
        return took

    return asyncio.run(main())


def peer_trl(folder: Path, seconds: list[list[float]]) -> Callable[[], float]:
    """TRL's tool loop on the same plays: a function that runs it once and gives its wall-clock seconds."""
    import threading

    from transformers import AutoTokenizer
    from trl import GRPOTrainer
    from trl.chat_template_utils import add_response_schema, parse_response

    tokenizer = add_response_schema(AutoTokenizer.from_pretrained(str(folder)))
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    said = [tokenizer(f"{text}<|im_end|>", add_special_tokens=False)["input_ids"] for text in replies()]

    def tool(index: int) -> Callable[..., Any]:
        async def wait(turn: int) -> str:
            """Waits.

            Args:
                turn: which one it is
            """
            await asyncio.sleep(seconds[index][turn])
            return OUTPUT

        return wait

    class Loop(GRPOTrainer):  # type: ignore[misc]
        """The trainer without a model: what its tool loop reads, and replies from the table."""

        def __init__(self) -> None:
            self._tokenizer = self.processing_class = tokenizer
            self._is_vlm, self.use_vllm, self.environment_factories, self.chat_template = False, False, None, None
            self.chat_template_kwargs: dict[str, Any] = {}
            self.tools, self.async_loop = [tool(0)], loop
            self._sync_tool_dicts: list[dict[str, Any]] = [{} for _ in range(PLAYS)]
            self._async_tool_dicts = [{"wait": tool(index)} for index in range(PLAYS)]
            self.max_completion_length, self.max_tool_calling_iterations = 1 << 17, 1 << 17
            config = type("Config", (), {"max_position_embeddings": 1 << 17})
            self.model = type("Model", (), {"config": config})
            self.turn = 0

        def _generate_single_turn(self, prompt_ids: list[list[int]], *rest: Any, **named: Any) -> Any:
            self.turn += 1
            return [list(said[self.turn]) for _ in prompt_ids], [[-1.0] * len(said[self.turn]) for _ in prompt_ids]

    def once() -> float:
        prompts = [[{"role": "user", "content": f"Wait {TURNS} times."}] for _ in range(PLAYS)]
        opening = tokenizer.apply_chat_template(prompts[0], add_generation_prompt=True, return_dict=False)
        first = [[parse_response(tokenizer, said[0], prefix=list(opening))] for _ in range(PLAYS)]
        assert all(one[0].get("tool_calls") for one in first), "TRL reads the call"
        trainer = Loop()
        began = time.perf_counter()
        ids = [list(opening) for _ in range(PLAYS)]
        logprobs = [[-1.0] * len(said[0]) for _ in range(PLAYS)]
        trainer._tool_call_loop(prompts, ids, [list(said[0]) for _ in range(PLAYS)], first, logprobs, None, {})
        took = time.perf_counter() - began
        assert trainer.turn == TURNS, f"{trainer.turn} of {TURNS} turns were played"
        return took

    return once


def main() -> int:
    """Run in turns, print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peer", choices=("trl",))
    parser.add_argument("--template", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    seconds = durations()
    ideal = max(map(sum, seconds))
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name in ("tokenizer.json", "tokenizer_config.json", "config.json", "generation_config.json"):
            shutil.copy(asked.folder / name, folder)
        (folder / "chat_template.jinja").write_text(_template(asked.template, peer=asked.peer))
        tokenizer = HFTokenizer(folder)
        other = peer_trl(folder, seconds) if asked.peer else None
        ours(tokenizer, seconds)
        taken = [(ours(tokenizer, seconds), other() if other else 0.0) for _ in range(asked.repeats)]
    mine, theirs = (statistics.median(column) for column in zip(*taken, strict=True))
    print(f"{PLAYS} plays x {TURNS} turns; the slowest play's tools alone: {ideal:.3f} s")
    print(f"ours: {mine:.3f} s, {mine / ideal:.3f} of the bound (to reach: at most 1.1)")
    if other:
        print(f"TRL's tool loop: {theirs:.3f} s, {theirs / mine:.1f} times ours (to reach: at least 6)")
    return 0


def _template(file: Path | None, *, peer: str | None) -> str:
    if file is None and peer is None:
        raise SystemExit("name a chat template that shows tools: --template FILE")
    if file is None:
        import trl

        file = Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja"
    return file.read_text(encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
