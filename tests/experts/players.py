"""Players that know what to do, and players that do wrong: what each of them says, given all that was said before.

Each is a function of the number of its reply, counted from 0, and the text of the conversation. They write calls as a
model would (`fenced` or `json`), and see what a model would see. An expert solver knows the clean tree.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.experts.inject import GONE, functions

HALF = "return NotImplemented"
"""What a half-hearted solver leaves in the place of a body."""
LATE = "[no end within "
"""How a tool says that a call was not ended in its time."""
RESET = "Stage WEAKEN: the folder was reset"
"""What is said where the first stage is over."""
PROGRAM = Path(__file__).with_name("inject.py").read_text()
Player = Callable[[int, str], str]


class Wrong(NamedTuple):
    """A player that does wrong, and what comes of it."""

    player: Player
    reason: str
    stop: str


def fenced(name: str, *body: str, tag: str = "") -> str:
    """A call in the form `fenced`."""
    return "\n".join([f"<tool: {name}{tag}>", *body, "</tool>"])


def called(name: str, **arguments: Any) -> str:
    """A call in the form `json`."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def module_of(said: str) -> str:
    """Where the prompt says to look."""
    return re.findall(r"Look at `([^`]+)` first", said)[0]


def kept_of(said: str) -> str:
    """What the prompt says must stay."""
    found = re.search(r"must stay as they are:\n\n((?:\S+::\S+\n)+)", said)
    return ",".join(found[1].split()) if found else ""


def proposer(nth: int) -> Player:
    """Looks around, runs its program for the `nth` function, reads what it wrote, hands the folder over."""

    def reply(turn: int, said: str) -> str:
        return _search(turn, said, nth=nth) or fenced("submit", "artifact")

    return reply


def in_stages(nth: int) -> Player:
    """Finds a bug in the same way, leaves it in the tree and hands that over; then weakens the tests of a new tree."""

    def reply(turn: int, said: str) -> str:
        told = said.partition(RESET)[2]
        if not told:
            found = _search(turn, said, nth=nth)
            applied = "git apply artifact/bug_inject.diff && mv artifact /tmp/"
            return found or (fenced("submit") if applied in said else fenced("bash", applied))
        files = " ".join(dict.fromkeys(re.findall(r"^tests: (.*)$", said, re.MULTILINE)))
        if "inject.py" not in told:
            return fenced("create", ".git/inject.py", PROGRAM)
        command = f"python .git/inject.py --weaken {files}"
        return fenced("submit") if command in told else fenced("bash", command)

    return reply


def _search(turn: int, said: str, *, nth: int) -> str:
    """What is said until the artifact is written; then nothing."""
    module = module_of(said)
    if turn == 0:
        return fenced("search", "^ *def ", tag=f" path={module}")
    if turn == 1:
        return fenced("create", ".git/inject.py", PROGRAM)
    if "\ntests: " in said.partition(PROGRAM)[2]:
        return ""
    show = "sed 's/^/tests: /' artifact/test_files.txt; wc -l artifact/*.diff"
    return fenced("bash", f"python .git/inject.py {module} {nth} '{kept_of(said)}' && ({show})")


def solver(clean: Path) -> Player:
    """Finds the function that has no body, puts back the one of the tree `clean`, runs the tests, hands over."""

    def reply(turn: int, said: str) -> str:
        if turn == 0:
            return _look()
        if turn == 1:
            return called("edit", **_repair(clean, said))
        if turn == 2:
            files = " ".join(dict.fromkeys(re.findall(r"^\+\+\+ b/(\S+)", said, re.MULTILINE)))
            return called("bash", command=f"python -m pytest -q {files} 2>&1 | tail -3")
        return called("submit")

    return reply


def half(clean: Path) -> Player:
    """Finds the function, and leaves another one that does nothing in its place: a bug of the second order."""

    def reply(turn: int, said: str) -> str:
        if turn == 0:
            return _look()
        edit = _repair(clean, said)
        if turn == 1 and edit["old"].endswith(GONE):
            return called("edit", **{**edit, "new": edit["old"].removesuffix(GONE) + HALF})
        return called("submit")

    return reply


def patient(player: Player) -> Player:
    """The player, who makes a call again that did not end in its time, as on a machine that does much else."""

    def reply(turn: int, said: str) -> str:
        last = re.split(r"^I am \w+\.$", said, flags=re.MULTILINE)[-1]
        own = re.search(r"<tool_call>\n.*?\n</tool_call>|<tool: .*?^</tool>$", last, re.DOTALL | re.MULTILINE)
        if own is not None and LATE in last[own.end() :]:
            return own[0]
        return player(turn - said.count(LATE), said)

    return reply


def _look() -> str:
    return called("bash", command=f"git grep -nE '^ *({GONE}|{HALF})$' -- '*.py'")


def _repair(clean: Path, said: str) -> dict[str, str]:
    """The edit that puts a body back, from what `git grep` printed."""
    for path, number, mark in re.findall(rf"^(\S+\.py):(\d+): *({GONE}|{HALF})$", said, re.MULTILINE):
        text = (clean / path).read_text()
        lines = text.splitlines()
        for _, function, rest in functions(ast.parse(text)):
            gone = " " * rest[0].col_offset + mark
            if rest[0].lineno == int(number) and lines[int(number) - 1] != gone:
                head = lines[function.lineno - 1 : rest[0].lineno - 1]
                whole = lines[function.lineno - 1 : function.end_lineno]
                return {"path": path, "old": "\n".join([*head, gone]), "new": "\n".join(whole)}
    return {"path": "nothing.py", "old": "a", "new": "b"}


def in_turn(*replies: str) -> Player:
    """These replies, the last one for ever."""
    return lambda turn, said: replies[min(turn, len(replies) - 1)]


def files(**contents: str) -> tuple[str, ...]:
    """Calls that write these files into `artifact/` and hand it over."""
    names = {"listed": "test_files.txt", "bug": "bug_inject.diff", "weak": "test_weaken.diff"}
    made = [fenced("create", f"artifact/{names[name]}", text) for name, text in contents.items()]
    return (*made, fenced("submit", "artifact"))


COMMENT = """
m=$(git ls-files '*/*.py' | grep -v test | grep -v __init__ | head -1)
t=$(git ls-files | grep -E '(^|/)test_[^/]*[.]py$' | head -1)
mkdir artifact
echo '# words' >> $m; git diff > artifact/bug_inject.diff; git checkout -q -- .
echo '# words' >> $t; git diff > artifact/test_weaken.diff; git checkout -q -- .
echo $t > artifact/test_files.txt
"""
"""A change that changes nothing."""
A_TEST = COMMENT.replace("$m; git diff >", "$m; echo '# words' >> $t; git diff >")
"""The bug's diff changes a test as well."""
UNLISTED = COMMENT.replace("echo $t > artifact", "echo $m > artifact")
"""No test file is listed."""
BREAK = "sed -i 's/^    return x$/    return 1/' toolz/functoolz.py"
"""A bug in toolz: `identity` is none."""
LOUD = f"""
t=toolz/tests/test_functoolz.py; mkdir artifact; echo $t > artifact/test_files.txt
{BREAK}; git diff > artifact/bug_inject.diff; git checkout -q -- .
echo '# words' >> $t; git diff > artifact/test_weaken.diff; git checkout -q -- .
"""
"""That bug, and a weakening that hides nothing of it."""
NO_DIFF = "this is no diff\n"
NO_CALL = '<tool_call>\n{"name": "bash", "arguments": {\n</tool_call>'
FOR_EVER = "while :; do :; done"
BIG = (
    "mkdir artifact; cd artifact; yes | head -c 2000000 > bug_inject.diff; cp bug_inject.diff test_weaken.diff; "
    "echo a > test_files.txt"
)
PASSWORDS = "--- a/../../etc/passwd\n+++ b/../../etc/passwd\n@@ -1 +1 @@\n-a\n+b\n"
LIST, SUBMIT, WHOLE = fenced("bash", "ls"), fenced("submit"), fenced("submit", "artifact")
BROKEN = fenced("bash", BREAK)
"""In the tree itself, for the first of two stages."""

PROPOSERS: Mapping[str, Wrong] = {
    # Nothing whole is handed over.
    "silent": Wrong(in_turn("I would rather talk about the weather."), "malformed_calls", "malformed"),
    "unclosed": Wrong(in_turn("<tool: bash>\nls"), "malformed_calls", "malformed"),
    "twice": Wrong(in_turn(LIST + "\n" + WHOLE), "malformed_calls", "malformed"),
    "looper": Wrong(in_turn(LIST), "limit_turns", "turns"),
    "incomplete": Wrong(in_turn(fenced("create", "artifact/test_files.txt", "a.py"), WHOLE), "submit_refused", "turns"),
    "giant": Wrong(
        in_turn(fenced("bash", "yes | head -c 50000000"), fenced("bash", BIG), WHOLE), "submit_refused", "turns"
    ),
    # The two stages.
    "untouched": Wrong(in_turn(fenced("bash", "echo words > notes.txt"), SUBMIT), "submit_refused", "turns"),
    "quitter": Wrong(in_turn(BROKEN, SUBMIT, LIST), "limit_turns", "turns"),
    "unweakened": Wrong(in_turn(BROKEN, SUBMIT), "submit_refused", "turns"),
    # What is handed over is no bug.
    "wrong": Wrong(in_turn(*files(listed="no_such_test.py", bug=NO_DIFF, weak=NO_DIFF)), "patch_empty", "done"),
    "outsider": Wrong(
        in_turn(
            fenced("edit", "../../etc/passwd", "<<<<<<< SEARCH", "root", "=======", "toor", ">>>>>>> REPLACE"),
            fenced("create", "/etc/cron.d/mine", "* * * * * root true"),
            *files(listed="../../etc/passwd", bug=PASSWORDS, weak=NO_DIFF),
        ),
        "patch_traverses",
        "done",
    ),
    "double": Wrong(in_turn(LIST + "\n" + WHOLE, fenced("bash", A_TEST), WHOLE), "bug_outside_code", "done"),
    "unlisted": Wrong(in_turn(fenced("bash", UNLISTED), WHOLE), "test_files_missing", "done"),
    "harmless": Wrong(in_turn(fenced("bash", COMMENT), WHOLE), "tests_still_pass", "done"),
    "loud": Wrong(in_turn(fenced("bash", LOUD), WHOLE), "weakening_hides_nothing", "done"),
}
"""Those that do wrong, and what comes of it."""

SOLVERS: Mapping[str, Wrong] = {
    "quiet": Wrong(in_turn("It looks fine to me."), "no_submit", "done"),
    "garbled": Wrong(in_turn(NO_CALL), "malformed_calls", "malformed"),
    "looper": Wrong(in_turn(called("bash", command="ls")), "limit_turns", "turns"),
    "giant": Wrong(
        in_turn(called("bash", command="yes | tee giant.py | head -c 20000000"), called("submit")),
        "patch_empty",
        "done",
    ),
    "idle": Wrong(in_turn(called("submit")), "patch_empty", "done"),
    "stranger": Wrong(
        in_turn(
            called("edit", path="/etc/passwd", old="root", new="toor")
            + called("bash", command="echo 'x = 1' > conftest.py; echo > /etc/passwd"),
            called("submit"),
        ),
        "patch_empty",
        "done",
    ),
    "breaker": Wrong(
        in_turn(
            called("bash", command="for f in $(git ls-files '*.py' | grep -v test); do echo 'x = (' >> $f; done"),
            called("submit"),
        ),
        "collection_error",
        "done",
    ),
    "guesser": Wrong(
        in_turn(called("create", path="guess.py", text="x = 1\n") + called("submit")), "tests_fail", "done"
    ),
}
"""The same of attempts."""
ENDLESS = {
    "proposer": Wrong(in_turn(fenced("bash", FOR_EVER)), "limit_seconds", "seconds"),
    "solver": Wrong(in_turn(called("bash", command=FOR_EVER)), "limit_seconds", "seconds"),
}
"""Those whose time runs out, by side."""
