"""`selfplay play`: a person takes the seat of a model; same prompt, same sandbox, same verdict.

Not here: opening the game and deciding (`seat`), what is checked (`games`).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import io
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from selfplay.cli import runs
from selfplay.cli.session import Session, common
from selfplay.errors import NotFound, UserError
from selfplay.types import Seed, Task, record

if TYPE_CHECKING:
    from selfplay.config import Config
    from selfplay.seat import Seat
    from selfplay.tools import Answer
    from selfplay.types import Side, Trajectory, Verdict

PRESETS = {"code": "code-agent", "search": "search-quickstart", "echo": "demo"}
"""Game -> the preset that it is opened with where none is named."""
MARKS = {"passed": "✓", "failed": "✗", "not reached": "·"}
SHOWN = 10
"""Failing tests that are named."""
LINES = 60
"""Lines of a diff that are shown."""
CHUNK = 6000
"""Bytes of a file that one call fetches for an editor."""
HELP = """\
  COMMAND           run it in the sandbox's shell
  :edit FILE        change a file with $EDITOR
  :submit [FOLDER]  hand over, and see what is decided
  :call NAME JSON   call a tool as a model does, e.g. :call view {"path": "."}
  :prompt           show again what was asked
  :quit             leave without a verdict
"""


@record
class Asked:
    """What was typed."""

    game: str
    side: Side
    preset: str | None
    sets: tuple[str, ...]
    seed: str | None
    task: str | None
    run: str | None
    strategy: str | None
    reply: str | None


@click.command("play", short_help="Take the seat of proposer or solver yourself.")
@click.argument("game")
@click.option("--as", "side", type=click.Choice(["proposer", "solver"]), required=True, help="Whose seat.")
@click.option("--preset", metavar="NAME|FILE.toml", help="How the game is set [code: code-agent].")
@click.option("-s", "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Override a setting; repeatable.")
@click.option("--sandbox", metavar="S", help="auto, docker, bubblewrap, or local (isolates nothing).")
@click.option("--seed", metavar="ID|NAME", help="What to work on, e.g. itertoolz.py::groupby [default: one is drawn].")
@click.option("--run", metavar="RUN", help="With that run's settings; its ledger is only read.")
@click.option("--task", metavar="ID", help="A solver's task, recorded in --run.")
@click.option("--strategy", metavar="NAME", help="How a proposer is asked to break things.")
@click.option("--reply", metavar="FILE|-", help="What would be typed, from a file or stdin.")
@common
def command(session: Session, *, sandbox: str | None, sets: tuple[str, ...], **given: Any) -> int:
    """Play one round of GAME (code, search, echo) yourself: read the prompt, reply or work with tools, see the verdict.

    A role without tools gets one reply: lines up to an empty one, or `:edit` for $EDITOR. With tools each line is a
    command in the sandbox's shell, and `:submit` hands over; `:help` tells the rest. The solver's task is a recorded
    one (--run RUN --task ID), else one that is made without a model. What is held out is not shown. Nothing is written
    to any run.

    \b
    Examples:
      selfplay play code --as solver
      selfplay play code --as proposer --strategy direct --seed itertoolz.py::groupby
      selfplay play code --as solver --preset quickstart
      echo ab | selfplay play echo --as solver --reply -
    """
    typed = (*sets, *([f"sandbox.kind={sandbox}"] if sandbox is not None else []))
    return play(session, Asked(sets=typed, **given))


def play(session: Session, asked: Asked) -> int:
    """Open, ask, decide, show; returns the exit code."""
    if session.json:
        session.claim_stdout()
    script = _script(asked.reply)
    config, folder = _settings(session, asked)
    from selfplay.seat import Seat
    from selfplay.views.observers import PlainObserver

    with PlainObserver(sys.stderr, run="play") as observe:
        opened = Seat.open(config, session.project, side=asked.side, observe=observe)
    tell = session.say if session.json else _teller(session.data)
    with opened as seat:
        subject = _subject(seat, asked, folder=folder, key=config.run.seed)
        prompt = seat.prompt(subject, strategy=asked.strategy)
        tell(f"{prompt.rstrip()}\n")
        if seat.role.tools is None:
            played, verdict, task = seat.decide(subject, reply=_reply(script, tell))
        else:
            _work(seat, subject, prompt, script=script, tell=tell)
            played, verdict, task = seat.decide(subject)
    if session.json:
        session.answer("play", data(played, verdict, task, subject=subject, prompt=prompt, seat=seat))
    else:
        show(session, verdict, task, game=subject.game)
    return 0


def _settings(session: Session, asked: Asked) -> tuple[Config, Path | None]:
    """What the game is opened with, and the folder of the run that was named.

    Raises:
        UserError: options that do not go together, or settings of another game.
        NotFound: there is no such game or run.
    """
    from selfplay import config as configs

    if asked.task is not None and asked.run is None:
        raise UserError("--task names a task of a run, and no run is named", hint="add --run RUN, or leave --task out")
    if asked.task is not None and (asked.side == "proposer" or asked.seed is not None):
        raise UserError(
            "--task is a solver's, and is its own subject", hint="leave it out, or: --as solver without --seed"
        )
    if asked.strategy is not None and asked.side == "solver":
        raise UserError("--strategy is how a proposer is asked", hint="leave it out, or: --as proposer")
    # note: nobody is warmed up here, and its examples would be rehearsed first.
    sets = [*asked.sets, "warmup.steps=0"]
    folder = runs.find_run(asked.run, project=session.project) if asked.run is not None else None
    if folder is not None:
        from selfplay.evaluation.grounds import config_of

        config_of(folder, project=session.project)
        config = configs.from_run(folder, project=session.project, sets=sets, environ={})
    else:
        preset = asked.preset or PRESETS.get(asked.game)
        if preset is None:
            raise NotFound(f"no game `{asked.game}`", hint=f"the games: {', '.join(PRESETS)}; or name a --preset")
        config = configs.load(preset, project=session.project, sets=sets)
    if config.run.game != asked.game:
        what = f"run `{folder.name}`" if folder is not None else f"preset `{asked.preset}`"
        raise UserError(
            f"{what} plays `{config.run.game}`, not `{asked.game}`", hint=f"selfplay play {config.run.game}"
        )
    return config, folder


def _subject(seat: Seat, asked: Asked, *, folder: Path | None, key: int) -> Seed | Task:
    if asked.side == "proposer":
        return seat.seed(asked.seed, key=key)
    if asked.task is None or folder is None:
        return seat.given(asked.seed, key=key)
    from selfplay.ledger import Ledger
    from selfplay.seat import recorded
    from selfplay.views.inspect import identify

    with Ledger.read(folder) as reader:
        _, task_id = identify(reader, asked.task, table="tasks")
    return recorded(folder, task_id)


def _script(reply: str | None) -> TextIO | None:
    """What is typed, where it does not come from the terminal.

    Raises:
        NotFound: there is no such file.
    """
    if reply is None:
        return None
    if reply == "-":
        return sys.stdin
    try:
        return io.StringIO(Path(reply).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(f"{reply} cannot be read: {error}", hint="a text file, or - for stdin") from error


def _teller(to: TextIO) -> Callable[[str], None]:
    def tell(text: str) -> None:
        to.write(text + "\n")
        to.flush()

    return tell


def _lines(script: TextIO | None, mark: str) -> Iterator[str]:
    """What is typed, line by line, up to the end of the input."""
    if script is not None or not sys.stdin.isatty():
        for line in script or sys.stdin:
            yield line.rstrip("\n")
        return
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (gives `input` its history and its keys)
    while True:
        try:
            yield input(mark)
        except EOFError:
            return


def _reply(script: TextIO | None, tell: Callable[[str], None]) -> str:
    """The one reply of a role without tools."""
    if script is not None:
        return script.read().removesuffix("\n")
    tell("(your reply; it ends with an empty line; :edit opens $EDITOR)")
    said: list[str] = []
    for line in _lines(None, "> "):
        if line == ":edit" and not said:
            return (click.edit("") or "").removesuffix("\n")
        if not line:
            break
        said.append(line)
    return "\n".join(said)


def _work(seat: Seat, subject: Seed | Task, prompt: str, *, script: TextIO | None, tell: Callable[[str], None]) -> None:
    """Calls, one a line, until something is handed over or the input ends."""
    from selfplay.tools import Call

    tell("(each line is a command in the sandbox; :submit hands over, :help tells the rest)")
    for line in _lines(script, "$ "):
        word, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        if word == ":quit":
            raise click.Abort
        if word == ":help":
            tell(HELP)
        elif word == ":prompt":
            tell(prompt)
        elif word == ":edit":
            tell(_edited(seat, subject, rest))
        elif line.strip():
            call = _call(word, rest, line)
            if isinstance(call, str):
                tell(call)
                continue
            answer = seat.call(Call(name=call[0], arguments=call[1]), subject)
            tell(answer.text)
            if answer.product is not None:
                return


def _call(word: str, rest: str, line: str) -> tuple[str, dict[str, Any]] | str:
    """Tool and arguments that a line asks for, or what is wrong with it."""
    if word == ":submit":
        return "submit", {"folder": rest} if rest else {}
    if word == ":call":
        name, _, text = rest.partition(" ")
        try:
            arguments = json.loads(text or "{}")
        except ValueError as error:
            return f"that is no JSON: {error}"
        return (name, arguments) if isinstance(arguments, dict) else "the arguments are a JSON object"
    if word.startswith(":"):
        return f"there is no {word}; :help tells what there is"
    return "bash", {"command": line}


def _edited(seat: Seat, subject: Seed | Task, path: str) -> str:
    """What came of changing a file with an editor."""
    if not path:
        return "which file? :edit FILE"
    before = _fetched(seat, subject, path)
    if before is None:
        return f"{path} is no text file that can be changed here"
    after = click.edit(before, extension=Path(path).suffix or ".txt")
    if after is None or after == before:
        return "[nothing was changed]"
    return _called(seat, subject, "create", path=path, text=after, overwrite=True).text


def _fetched(seat: Seat, subject: Seed | Task, path: str) -> str | None:
    """A file's text, empty where there is none; None where it is no text.

    In parts, since the answer to a call has a length.
    """
    quoted, raw = shlex.quote(path), b""
    while True:
        part = f"tail -c +{len(raw) + 1} {quoted} | head -c {CHUNK} | base64 -w 0"
        command = f"if [ -d {quoted} ]; then false; elif [ -e {quoted} ]; then {part}; fi"
        answer = _called(seat, subject, "bash", command=command)
        try:
            # note: below what was printed stands the exit code.
            said = [line for line in answer.text.splitlines() if not line.startswith("[")]
            piece = base64.b64decode("".join(said), validate=True)
            raw += piece
            if answer.exit_code != 0:
                return None
            if len(piece) < CHUNK:
                return raw.decode()
        except (binascii.Error, UnicodeDecodeError):
            return None


def _called(seat: Seat, subject: Seed | Task, name: str, **arguments: Any) -> Answer:
    from selfplay.tools import Call

    return seat.call(Call(name=name, arguments=arguments), subject)


def lines(verdict: Verdict, task: Task | None, *, game: str) -> Iterator[str]:
    """The verdict, its why, the checks and what it rests on, for people."""
    from selfplay.views.proof import proof

    good = verdict.valid if verdict.stage == "mint" else verdict.passed
    word = "a task" if verdict.stage == "mint" else "passed"
    outcome = "not decided" if verdict.fault is not None or good is None else word if good else f"not {word}"
    yield f"verdict   {outcome} ({verdict.reason}): {verdict.why}"
    checks = proof(game, reason=verdict.reason, valid=verdict.valid) if verdict.stage == "mint" else ()
    for check in checks:
        yield f"          {MARKS[check.state]} {check.what}"
    failing = verdict.evidence.get("failing") or ()
    yield from (f"fails     {test}: {said}" for test, said in failing[:SHOWN])
    if len(failing) > SHOWN:
        yield f"          and {len(failing) - SHOWN} more"
    yield from (f"left out  {path}: {why}" for path, why in dict(verdict.evidence.get("dropped") or {}).items())
    if diff := str(verdict.evidence.get("diff") or ""):
        yield "change"
        yield from diff.splitlines()[:LINES]
        yield from [f"... {diff.count(chr(10)) - LINES} more lines"] if diff.count("\n") > LINES else []
    if verdict.reward is not None:
        yield f"reward    {verdict.reward:+.2f}"
    if task is not None and verdict.valid:
        yield "reward    depends on how many attempts solve it: a model's, in a run"


def show(session: Session, verdict: Verdict, task: Task | None, *, game: str) -> None:
    """Write those lines."""
    session.data.write("".join(f"{line}\n" for line in lines(verdict, task, game=game)))


def data(
    played: Trajectory, verdict: Verdict, task: Task | None, *, subject: Seed | Task, prompt: str, seat: Seat
) -> dict[str, Any]:
    """What came of it, as JSON."""
    from selfplay.views.proof import proof, proof_data

    known = verdict.stage == "mint" and verdict.fault is None
    checks = proof(subject.game, reason=verdict.reason, valid=verdict.valid) if known else ()
    return {
        "game": subject.game,
        "side": seat.role.side,
        "role": seat.role.name,
        "sandbox": seat.sandbox,
        "subject": asdict(subject),
        "prompt": prompt,
        "reply": played.reply,
        "calls": [asdict(call) for turn in played.turns for call in turn.calls],
        "product": dict(played.product),
        "verdict": asdict(verdict),
        "checks": proof_data(checks),
        "task": asdict(task) if task is not None else None,
    }
