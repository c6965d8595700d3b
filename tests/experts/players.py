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
from typing import Any

from tests.experts.inject import GONE, functions

PROGRAM = Path(__file__).with_name("inject.py")
Player = Callable[[int, str], str]


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
    """Looks around, runs its program for the `nth` function, reads what it wrote, hands it over."""

    def reply(turn: int, said: str) -> str:
        module = module_of(said)
        if turn == 0:
            return fenced("search", "^ *def ", tag=f" path={module}")
        if turn == 1:
            return fenced("create", ".git/inject.py", PROGRAM.read_text())
        if turn == 2:
            return fenced("bash", f"python .git/inject.py {module} {nth} '{kept_of(said)}'; git status --short | head")
        if turn == 3:
            return fenced("bash", "cat artifact/test_files.txt; wc -l artifact/*.diff")
        return fenced("submit", "artifact")

    return reply


def solver(clean: Path) -> Player:
    """Finds the function that has no body, puts back the one of the tree `clean`, runs the tests, hands over."""

    def reply(turn: int, said: str) -> str:
        if turn == 0:
            return called("bash", command=f"git grep -n '^ *{GONE}$' -- '*.py'")
        if turn == 1:
            return called("edit", **_repair(clean, said))
        if turn == 2:
            files = " ".join(dict.fromkeys(re.findall(r"^\+\+\+ b/(\S+)", said, re.MULTILINE)))
            return called("bash", command=f"python -m pytest -q {files} 2>&1 | tail -3")
        return called("submit")

    return reply


def _repair(clean: Path, said: str) -> Mapping[str, str]:
    """The edit that puts a body back, from what `git grep` printed."""
    for path, number in re.findall(rf"^(\S+\.py):(\d+): *{GONE}$", said, re.MULTILINE):
        text = (clean / path).read_text()
        lines = text.splitlines()
        for _, function, rest in functions(ast.parse(text)):
            gone = " " * rest[0].col_offset + GONE
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
NO_DIFF = "this is no diff\n"

PROPOSERS: Mapping[str, tuple[Player, str]] = {
    "silent": (in_turn("I would rather talk about the weather."), "no_submit"),
    "looper": (in_turn(fenced("bash", "ls")), "no_submit"),
    "endless": (in_turn(fenced("bash", "while :; do :; done"), fenced("submit", "artifact")), "no_submit"),
    "unclosed": (in_turn("<tool: bash>\nls"), "no_submit"),
    "incomplete": (
        in_turn(fenced("create", "artifact/test_files.txt", "a.py"), fenced("submit", "artifact")),
        "no_submit",
    ),
    "wrong": (in_turn(*files(listed="no_such_test.py", bug=NO_DIFF, weak=NO_DIFF)), "patch_empty"),
    "giant": (
        in_turn(
            fenced("bash", "yes | head -c 50000000"),
            fenced(
                "bash",
                "mkdir artifact; cd artifact; yes | head -c 2000000 > bug_inject.diff; cp bug_inject.diff "
                "test_weaken.diff; echo a > test_files.txt",
            ),
            fenced("submit", "artifact"),
        ),
        "no_submit",
    ),
    "outsider": (
        in_turn(
            fenced("edit", "../../etc/passwd", "<<<<<<< SEARCH", "root", "=======", "toor", ">>>>>>> REPLACE"),
            fenced("create", "/etc/cron.d/mine", "* * * * * root true"),
            *files(
                listed="../../etc/passwd",
                bug="--- a/../../etc/passwd\n+++ b/../../etc/passwd\n@@ -1 +1 @@\n-a\n+b\n",
                weak=NO_DIFF,
            ),
        ),
        "patch_traverses",
    ),
    "double": (
        in_turn(
            fenced("bash", "ls") + "\n" + fenced("submit", "artifact"),
            fenced("bash", A_TEST),
            fenced("submit", "artifact"),
        ),
        "bug_outside_code",
    ),
    "harmless": (in_turn(fenced("bash", COMMENT), fenced("submit", "artifact")), "tests_still_pass"),
}
"""Those that do wrong -> what they say, and the reason for which nothing comes of it."""

SOLVERS: Mapping[str, tuple[Player, str]] = {
    "quiet": (in_turn("It looks fine to me."), "no_submit"),
    "garbled": (in_turn('<tool_call>\n{"name": "bash", "arguments": {\n</tool_call>'), "no_submit"),
    "idle": (in_turn(called("submit")), "patch_empty"),
    "stranger": (
        in_turn(
            called("edit", path="/etc/passwd", old="root", new="toor")
            + called("bash", command="echo 'x = 1' > conftest.py; echo > /etc/passwd"),
            called("submit"),
        ),
        "patch_empty",
    ),
    "guesser": (in_turn(called("create", path="guess.py", text="x = 1\n") + called("submit")), "tests_fail"),
}
"""The same of attempts."""
