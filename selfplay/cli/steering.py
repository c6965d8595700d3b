"""What `stop`, `pause`, `resume` and `set` share: ask the process that plays a run, and wait until it has heard.

Not here: what the process does (`selfplay.control`), how it is asked (`ledger.control`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfplay.cli import runs
from selfplay.cli.session import Session
from selfplay.errors import UserError

if TYPE_CHECKING:
    from selfplay.ledger import Reader
    from selfplay.ledger.control import Action, Line

PATIENCE = 10.0
"""Seconds to wait for the process to say that it heard; a long update of the weights does not keep it from that."""
EVERY = 0.1


def ask(
    session: Session,
    text: str,
    action: Action,
    arguments: Mapping[str, Any],
    *,
    idle: Callable[[Path, str], str] | None = None,
    check: Callable[[Path], None] = lambda folder: None,
    instead: str = "",
) -> int:
    """Ask the process that plays the run `text` for `action`, and say what came of it; the exit code.

    `idle` gives the sentence where nobody plays it, or, without it, that is refused, and `instead` stands behind the
    command that the refusal names; `check` may refuse the rest.

    Raises:
        UserError: nobody plays the run.
    """
    from selfplay.cli.status import look
    from selfplay.ledger import Ledger
    from selfplay.ledger.control import paused, send
    from selfplay.ledger.lock import holder

    folder = runs.find_run(text, project=session.project)
    run = runs.typed(folder, project=session.project)
    check(folder)
    held = holder(folder)
    if held is None:
        state = look(folder).state
        if idle is None:
            # note: behind --name a run that is found by its path alone would be another one.
            named = runs.is_named(folder, project=session.project)
            raise UserError(
                f"run `{folder.name}` is not running ({state}), so nobody can {action} it",
                hint=f"play it: selfplay run --name {run}{instead}" if named else f"look: selfplay status {run}",
            )
        return _answer(session, folder, action, acted=False, words=idle(folder, state), run=run)
    with Ledger.read(folder) as reader:
        rows, launches = reader.control(), reader.launches()
        already = paused(rows, launches[-1] if launches else None)
        if action in ("pause", "resume") and already == (action == "pause"):
            words = f"{folder.name}: it is {'paused' if already else 'not paused'} already"
            return _answer(session, folder, action, acted=False, words=words, run=run)
        line = send(folder, held, action=action, arguments=arguments)
        heard = _wait(reader, line, run=run)
    words = f"{folder.name}: {_HEARD[action]}" if heard else f"{folder.name}: asked; it has not answered yet"
    return _answer(session, folder, action, acted=heard, words=words, run=run)


_HEARD: Mapping[Action, str] = {
    "stop": "stopping, turns in flight end first; go on later with the same run command",
    "pause": "paused, no reply is begun",
    "resume": "going on",
    "set": "set, from the next step on",
}


def _wait(reader: Reader, line: Line, *, run: str) -> bool:
    """Wait until the process recorded the line; did it?

    Raises:
        UserError: it recorded that it refuses it.
    """
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        for row in reader.control():
            if row.arguments.get("id") != line.id:
                continue
            if refused := row.arguments.get("refused"):
                raise UserError(f"the run refused it: {refused}", hint=f"look: selfplay status {run}")
            return True
        time.sleep(EVERY)
    return False


def _answer(session: Session, folder: Path, action: Action, *, acted: bool, words: str, run: str) -> int:
    if session.json:
        session.answer(action, {"action": action, "acted": acted, "said": words}, run=folder.name)
    else:
        session.say(words)
        if action == "pause":
            session.say(f"  go on     selfplay resume {run}")
        session.say(f"  look      selfplay status {run}")
    return 0
