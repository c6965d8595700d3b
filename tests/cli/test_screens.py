"""Every command has a screen that is held character by character, an example in its help, and an answer in JSON.

Commands are typed in a folder whose one run is written by hand at a moment that is set; what depends on the machine
(a check of it, measured seconds, sampled replies) is drawn from records made here. A screen that changed on purpose is
written anew with `SELFPLAY_SCREENS=write pytest tests/cli/test_screens.py -n 0`, and read before it is committed.

Not here: the pages of views (`tests/views/test_screens.py`), what each answer says (each command's own tests).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from selfplay.cli import COMMANDS, clean, doctor, eval, group, replay, repro, reverify, sandbox, verify
from selfplay.cli.session import Session
from selfplay.config import load
from selfplay.evaluation.grounds import Ground
from selfplay.evaluation.measure import Measured
from selfplay.evaluation.targets import Target
from selfplay.games.code.attacks.matrix import Cell, Row
from selfplay.ledger import Ledger
from selfplay.ledger.held_out import HeldOutPlay
from selfplay.replay import Difference, LearnerHalf, Replayed, SamplerHalf
from selfplay.reverify import Changed, Reverified
from selfplay.sandbox import Left
from tests.views.conftest import write_run

Typed = tuple[int, str, str]

SCREENS = Path(__file__).parent / "screens"
ROOT = Path(__file__).parents[2]
PLAYED = 1_750_000_000.0
"""When everything in the run happened, Unix seconds."""
LATER = PLAYED + 3 * 86_400.0
"""When commands are typed."""
TASK = "TASK"
"""Stands for the id of the run's first task."""
WIDE = "300"
"""Columns of tables that name folders, which are as long as they are on each machine."""


TYPED: Mapping[str, str] = {
    "run": "run demo --name small -s learner.lr=0.1",
    "run_unknown": "run demo -s learner.learning_rate=1",
    "demo": "demo --plan -s play.attempts=4",
    "init": "init made --game echo",
    "status": "status small",
    "watch": "watch small --once",
    "stop": "stop small",
    "pause": "pause small",
    "resume": "resume small",
    "set": "set small run.steps=4",
    "inspect": "inspect small",
    "frontier": "frontier small",
    "why": f"why small {TASK}",
    "report": "report small --to report.html",
    "plot": "plot small --metric solved",
    "compare": "compare small small",
    "study": "study --page",
    "play": "play echo --as solver --seed echo:0 --reply reply",
    "sql": "sql small",
    "export": "export small --format sft --to plays.jsonl",
    "check": "check small",
    "check_project": "check",
    "corpus": "corpus add n notes",
    "corpus_search": "corpus search n walrus",
    "ls": "ls runs",
    "ls_sandboxes": "ls sandboxes",
    "show": "show role mine",
    "cp": "cp role mine other",
    "config": "config mine.toml -s run.steps=3",
    "schema": "schema stop",
    "completion": "completion fish",
}
"""Name of a screen, which begins with its command's -> what is typed."""

MINE = """\
# A short one.
[run]
game = "echo"
steps = 2
[roles]
proposer = "echo_proposer"
solver = "mine"
[policy]
model = "toy"
[play]
proposals = 4
attempts = 4
min_viable = 2
"""


def _eval(session: Session) -> None:
    plays = [HeldOutPlay(side="solver", subject_id=f"s:{n}", index=0, valid=None, passed=n % 3 == 0) for n in range(9)]
    plays += [HeldOutPlay(side="proposer", subject_id=f"s:{n}", index=0, valid=n > 1, passed=None) for n in range(6)]
    one = Measured(
        target=Target(words="quickstart", kind="model"),
        temperature=1.0,
        seed=0,
        plays=tuple(plays),
        seconds=64.0,
        stored=False,
        kept=None,
    )
    config = load("demo", project=session.project)
    ground = Ground(words="run quickstart", config=config, config_digest="", folder=None, on=None, count=9)
    session.say("\n".join(eval.lines([one, one], ground, attempts=1, ks=[1])))


def _replay(session: Session) -> None:
    first = Difference(trajectory_id="0123456789abcdef", at=3, what="token 17 where 12 was recorded")
    sampler = SamplerHalf(total=72, equal=71, uncovered=2, logprobs=True, first=first, tokens=2048, seconds=4.0)
    learner = LearnerHalf(recorded="a" * 32, again="a" * 32, drift=None, skipped=None, tokens=1500, seconds=2.0)
    found = Replayed(
        step=4, save="weights/step_000003", applied=1, same_fingerprint=True, sampler=sampler, learner=learner
    )
    session.say("\n".join(replay.lines(found)))
    session.say(replay._why(found))


def _reverify(session: Session) -> None:
    one = Changed(
        id="0123456789abcdef",
        task_id="t",
        step=3,
        old="passed (passed)",
        new="failed (tests_fail)",
        why="1 of 7 tests fails",
    )
    found = Reverified(what="attempts", total=40, identical=38, undecided=1, changed=(one,))
    session.say("\n".join([*reverify.lines(found), reverify.summary(found)]))


def _verify(session: Session) -> None:
    def row(name: str, group: str, word: Any, *, wrong: bool) -> Row:
        return Row(name=name, group=group, does="what it does", cells={"toy": Cell(word=word, wrong=wrong, why="so")})

    rows = [
        row("by sum", "honest", "accepted", wrong=False),
        row("edit-tests", "files", "accepted", wrong=True),
        row("exit-early", "process", "refused", wrong=False),
    ]
    session.say("".join(verify.line(one, ["toy", "toolz"], why=True) for one in rows) + verify.summary(rows))


def _sandbox(session: Session) -> None:
    one = Left(
        id="selfplay-1", backend="docker", owner="here:7:1", dead=True, state="running", age_seconds=90.0,
        labels={"run": "quickstart"},
    )  # fmt: skip
    sandbox._print(
        session, [one, Left(id="b-2", backend="bubblewrap", owner="", dead=False, state="up", age_seconds=4.0)]
    )


def _doctor(session: Session) -> None:
    Check = doctor.Check
    found = [
        Check(name="python", verdict="ok", what="Python 3.11.7 on x86_64, 2 cores"),
        Check(name="git", verdict="missing", what="no git on PATH", fix="apt-get install -y git"),
        Check(name="cache", verdict="warning", what="4.2 GB free for /cache"),
        Check(name="bubblewrap: network", verdict="ok", what="no route to 192.0.2.1 from a sandbox of this backend"),
    ]
    doctor._print(session, found)


def _clean(session: Session) -> None:
    def item(where: str, kind: str, num_bytes: int, why: str = "") -> clean.Item:
        return clean.Item(where=where, kind=kind, path=Path("runs") / kind, num_bytes=num_bytes, age=9e5, why=why)

    items = [
        item("small", "ledger", 6_500_000),
        item("small", "saves", 2_400_000),
        item("small", "saves", 2_400_000, "neither the newest nor the best"),
        item("cache", "wheels", 1_200_000_000, "not touched for 30 days"),
    ]
    clean._print(session, items, held=["busy"], removed=(), yes=False)


def _repro(session: Session) -> None:
    found = {
        "installed_from": {"words": "/project, commit 0123456789ab"},
        "engine": "1.2.3", "config_digest": "0" * 32, "seed": 0, "game": "echo", "source": None, "model": "toy",
        "forked_from": "quickstart@5", "here": {"python": "3.11.7", "torch": "2.13.0"},
        "fingerprints": ["torch 2.13.0"],
        "commands": ["pip install /project", "selfplay run runs/small/config.toml --name small-again --steps 1"],
    }  # fmt: skip
    session.say("\n".join(repro.lines(found)))


DRAWN: Mapping[str, Callable[[Session], None]] = {
    "eval": _eval,
    "replay": _replay,
    "reverify": _reverify,
    "verify": _verify,
    "sandbox": _sandbox,
    "doctor": _doctor,
    "clean": _clean,
    "repro": _repro,
}
"""Those whose screens say what a machine is or did."""

ANSWERED: Mapping[str, str] = {
    "clean": "clean small",
    "repro": "repro small",
    "reverify": "reverify small",
}
"""What is typed for the answer in JSON of those that are drawn."""
REFUSING = {"run": 2, "run_unknown": 2, "pause": 2, "resume": 2, "set": 2, "check": 1, "reverify": 1}
"""Exit codes, where they are not 0: other settings, nobody plays the run, and it was written by hand."""
APART = ("run", "demo", "study", "play", "reverify")
"""Those that keep stdout for their answer, whoever else writes there: typed in a process of their own."""
ELSEWHERE = {
    "doctor": ("test_doctor.py", r'answered\("doctor"'),
    "sandbox": ("test_sandbox.py", r'answered\("sandbox"'),
    "eval": ("test_eval.py", r'"eval", [^)]*"--json"'),
    "replay": ("test_replay.py", r'"replay", [^)]*"--json"'),
    "serve": ("test_serve.py", r'"serve", [^)]*"--json"'),
    "verify": ("test_verify.py", r'"--json"'),
}
"""Those that need weights, a sandbox, a client, or many seconds -> the test that has their answer, and how it asks."""


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run `small`, everything of it written at the same moment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: PLAYED)
        return write_run(tmp_path_factory.mktemp("by_hand") / "runs" / "small")


@pytest.fixture
def made(here: Path, by_hand: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with that run, a preset, a role, documents and a reply, three days later."""
    shutil.copytree(by_hand, here / "runs" / "small")
    for file in (here / "runs" / "small").iterdir():
        os.utime(file, (PLAYED, PLAYED))
    (here / "mine.toml").write_text(MINE)
    (here / "roles" / "mine").mkdir(parents=True)
    (here / "roles" / "mine" / "role.toml").write_text('# Says a word again.\ngame = "echo"\nside = "solver"\n')
    (here / "roles" / "mine" / "prompt.md").write_text("{{ word }}>")
    (here / "notes").mkdir()
    (here / "notes" / "walrus.md").write_text("# On walruses\n\nThe walrus and the carpenter were walking.\n")
    (here / "reply").write_text("zz\n")
    monkeypatch.setattr(time, "time", lambda: LATER)
    return here


def words_of(line: str, made: Path) -> list[str]:
    """What is typed, the task's id in its place."""
    words = shlex.split(line)
    if TASK in words:
        with Ledger.read(made / "runs" / "small") as reader:
            words[words.index(TASK)] = reader.tasks(0)[0].id
    return words


def steady(text: str, made: Path) -> str:
    """The same text on every machine: no folder, no digest, no count of what others decide, no measured second."""
    text = text.replace(str(made), "PROJECT").replace(str(ROOT), "SHIPPED")
    text = re.sub(r"(settings +)[0-9a-f]{32}\b", r"\1DIGEST", text)
    text = re.sub(r"^((?:ok|WRONG) +(?:file|config|folder) ) +[\d,]+ ", r"\1       N ", text, flags=re.MULTILINE)
    text = re.sub(r"( new passage,|(?:ok|WRONG) .*?) *\s\d+\.\d+\ss$", r"\1 N s", text, flags=re.MULTILINE)
    text = re.sub(r"\d+(\.\d)? kB$", "N kB", text, flags=re.MULTILINE)
    return "".join(f"{row.rstrip()}\n" for row in text.splitlines())


def held(name: str, text: str) -> None:
    """Compare with what was read, or write it."""
    file = SCREENS / f"{name}.txt"
    if os.environ.get("SELFPLAY_SCREENS") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TYPED)
def test_a_typed_screen_is_as_it_was_read(
    made: Path, typed: Callable[..., Typed], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if "--plan" in TYPED[name] or name == "corpus_search":
        monkeypatch.setenv("COLUMNS", WIDE)
    if name.startswith("corpus_"):
        typed("corpus", "add", "n", "notes")
    words = words_of(TYPED[name], made)
    code, out, err = typed(*words)
    assert code == REFUSING.get(name, 0), err
    assert "--plan" in words or name == "completion" or all(len(row) <= 80 for row in steady(out, made).splitlines())
    held(name, steady(f"$ selfplay {TYPED[name]}\n{out}{err and '--- stderr'}\n{err}", made))


@pytest.mark.parametrize("name", DRAWN)
def test_a_drawn_screen_is_as_it_was_read(here: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    DRAWN[name](Session())
    told = capsys.readouterr()
    held(name, steady(told.out + told.err, here))


def test_every_command_has_a_screen_and_every_file_is_one() -> None:
    names = {*TYPED, *DRAWN}
    assert {file.stem for file in SCREENS.iterdir()} == names
    assert {name.partition("_")[0] for name in names} | {"serve"} == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    command = group.get_command(click.Context(group), name)
    assert command is not None
    assert command.get_short_help_str()
    assert re.search(rf"^ +(?:echo .* \| )?selfplay {name}\b", command.help or "", re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_answers_in_json(
    made: Path,
    typed: Callable[..., Typed],
    spawned: Callable[..., Typed],
    name: str,
) -> None:
    """In the envelope, fitting the schema of its name, with nothing else on stdout; the fixtures see to that."""
    if name in ELSEWHERE:
        assert re.search(ELSEWHERE[name][1], (Path(__file__).parent / ELSEWHERE[name][0]).read_text(encoding="utf-8"))
        return
    words = words_of({**TYPED, **ANSWERED}[name], made)
    code, out, err = (spawned if name in APART else typed)(*words, "--json")
    assert code == REFUSING.get(name, 0), err
    message = json.loads(out)
    wanted = "error" if code == 2 else "plan" if "--plan" in words else name
    assert message["schema"] == f"selfplay.{wanted}/1"
