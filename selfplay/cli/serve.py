"""`selfplay serve`: any harness plays with a policy, and what it played is recorded token by token.

Not here: conversations (`doors.proxy`), the web server (`doors.web`).
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from selfplay.cli.eval import target_of
from selfplay.cli.session import Session, common
from selfplay.errors import UserError

if TYPE_CHECKING:
    from selfplay.evaluation.targets import Target
    from selfplay.project import Project

PRESET = "quickstart"
"""Whose settings a model that is no run is opened with."""
RENDERERS = ("auto", "chatml", "llama3", "plain")


@click.command("serve", short_help="A policy behind OpenAI's chat completions, every play recorded.")
@click.argument("target", metavar="TARGET")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, metavar="N", help="0: any.")
@click.option(
    "--record",
    type=click.Path(dir_okay=False),
    default="episodes.jsonl",
    show_default=True,
    metavar="FILE",
    help="Where replies go.",
)
@click.option("--renderer", type=click.Choice(RENDERERS), default="auto", show_default=True, help="Marks of turns.")
@click.option(
    "--temperature", type=click.FloatRange(min=0.0), default=1.0, show_default=True, metavar="T", help="Of every reply."
)
@click.option("--max-tokens", type=click.IntRange(min=1), default=1024, show_default=True, metavar="N", help="A reply.")
@common
def command(
    session: Session,
    target: str,
    *,
    host: str,
    port: int,
    record: str,
    renderer: str,
    temperature: float,
    max_tokens: int,
) -> int:
    """Serve TARGET's weights to a harness until interrupted; append every reply to FILE with its token ids.

    TARGET is RUN (its newest save), RUN@STEP, or a model (an alias, a folder). The harness names its episode by its API
    key or by the header X-Episode. How tokens are drawn is said here: what a request says of it is not heeded. Of a run
    whose roles have adapters of their own the solver replies.

    \b
    Examples:
      selfplay serve last
      selfplay serve quickstart@4 --port 9000 --record plays.jsonl
    """
    if session.json:
        session.claim_stdout()
    found = target_of(target, project=session.project)
    place = Path(record)

    def ready(url: str) -> None:
        if session.json:
            session.answer("serve", {"url": url, "record": str(place)})
        session.say(f"{found.words} at {url}; replies go to {place}; end it with Ctrl-C")

    try:
        with place.open("a", encoding="utf-8") as file:

            def note(row: Mapping[str, Any]) -> None:
                file.write(json.dumps(row) + "\n")
                file.flush()

            asyncio.run(
                _serve(
                    found,
                    session.project,
                    ready=ready,
                    say=session.say,
                    address=(host, port),
                    given={
                        "rendering": renderer,
                        "temperature": temperature,
                        "max_tokens": max_tokens,
                        "note": note,
                    },
                )
            )
    except OSError as error:
        raise UserError(f"{place} cannot be written: {error.strerror}", hint="name another: --record FILE") from error
    session.say(f"ended; what was played: {place}")
    return 0


async def _serve(
    target: Target,
    project: Project,
    *,
    ready: Any,
    say: Callable[[str], None],
    address: tuple[str, int],
    given: dict[str, Any],
) -> None:
    from selfplay import parts
    from selfplay.config import load
    from selfplay.doors.proxy import Proxy
    from selfplay.doors.web import serving
    from selfplay.evaluation import targets

    config = targets.config_of(target, otherwise=load(PRESET, project=project))
    players = parts.roles(config, project)
    async with AsyncExitStack() as stack:
        torch_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torch")
        stack.callback(torch_thread.shutdown, wait=False, cancel_futures=True)
        policy = await targets.opened(
            target, config=config, players=players, torch_thread=torch_thread, stack=stack, say=say
        )
        proxy = Proxy(policy, **given, role=players.solver.name)
        with serving(proxy, host=address[0], port=address[1], model=target.words) as server:
            ended = asyncio.Event()
            # note: said for both, since a shell's background job is born deaf to SIGINT.
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, ended.set)
            ready(f"http://{address[0]}:{server.server_address[1]}/v1")
            await ended.wait()
