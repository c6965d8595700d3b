"""The tools `edit`, `create`, `view` and `search`: what they do, and what they say where they cannot."""

from __future__ import annotations

import pytest

from selfplay.tools import Allowance
from selfplay.tools.files import SPECS, program
from selfplay.tools.workbench import Workbench
from tests.tools.conftest import ALL, BACKENDS, Bench, Say, limited


@pytest.mark.parametrize("name", ALL)
def test_a_file_is_made_shown_changed_and_found(bench: Bench, name: str) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        made = await say(
            "create", path="pkg/a.py", text="def f(x):\n    return x + 1\n\n\ndef g(x):\n    return x + 1\n"
        )
        assert made.text == "[pkg/a.py was created: 6 lines]"
        assert (await say("view", path=".")).text == "pkg/\npkg/a.py"
        shown = await say("view", path="/workspace/pkg/a.py", first=1, last=2)
        assert shown.text == "     1\tdef f(x):\n     2\t    return x + 1\n[lines 1 to 2 of 6]"
        changed = await say(
            "edit", path="pkg/a.py", old="def f(x):\n    return x + 1", new="def f(x):\n    return x - 1"
        )
        assert changed.text.startswith(
            "[pkg/a.py was changed at line 1]\n     1\tdef f(x):\n     2\t    return x - 1\n"
        )
        found = await say("search", pattern=r"return x [+-]", names="*.py")
        assert found.text == "pkg/a.py:2:     return x - 1\npkg/a.py:6:     return x + 1\n[2 lines in 1 files]"
        assert (await say("search", pattern="x + 1", plain=True, path="pkg/a.py")).text.startswith("pkg/a.py:6:")
        assert (await say("search", pattern="nothing like it")).text == "[nothing in . matches]"
        assert "return x - 1" in (await say("bash", command="cat pkg/a.py")).text

    bench(name, check)


@pytest.mark.parametrize("name", BACKENDS)
def test_an_edit_has_to_match_once(bench: Bench, name: str) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        await say("create", path="a.py", text="x = 1\ny = 2\nx = 1\n  z = 3\n")
        await say("create", path="aa", text="aaa")
        for old, new, path, why in (
            ("x = 1", "n", "a.py", "`old` occurs 2 times in a.py, at lines 1, 3; add lines around it to say which"),
            ("w = 1", "n", "a.py", "`old` does not occur in a.py"),
            ("y = 2\nx = 1\nz = 3", "n", "a.py", "`old` does not occur in a.py; line 2 differs from it in blanks only"),
            (
                "y = 2\nx = 9",
                "n",
                "a.py",
                "`old` does not occur in a.py; line 2 is like its first line, but what follows ",
            ),
            ("", "n", "a.py", "`old` is empty"),
            ("y = 2", "y = 2", "a.py", "`old` and `new` are equal"),
            ("x", "n", "b/a.py", "there is no file b/a.py; did you mean a.py?"),
            ("aa", "n", "aa", "`old` occurs 2 times in aa, at lines 1, 1"),
        ):
            found = await say("edit", path=path, old=old, new=new)
            assert found.text.startswith(why), found
            # note: it was a call that fits; only what does not counts as none.
            assert not found.refused
        assert (await say("view", path="a.py")).text.count("x = 1") == 2

    bench(name, check)


@pytest.mark.parametrize("name", BACKENDS)
def test_ends_of_lines_and_modes_are_kept(bench: Bench, name: str) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        await say("bash", command=r"printf 'a\r\nb\r\nc\r\n' > dos; printf 'a\nb' > bare; chmod 755 dos")
        assert (await say("edit", path="dos", old="a\nb\n", new="a\nnew\nb\n")).text.startswith("[dos was changed")
        assert (await say("edit", path="bare", old="b", new="")).text.startswith("[bare was changed")
        found = await say("bash", command="od -c dos | head -1; od -An -c bare; test -x dos && echo x; ls -A")
        assert r"a  \r  \n   n   e   w  \r  \n   b  \r  \n" in found.text
        assert found.text.endswith("x\nbare\ndos\n[exit code 0]")

    bench(name, check)


@pytest.mark.parametrize("name", BACKENDS)
def test_nothing_outside_is_changed(bench: Bench, name: str) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        await say("bash", command='ln -s "${TMPDIR:-/tmp}" out; ln -s nowhere dangling; echo x > "${TMPDIR:-/tmp}/x"')
        for path in ("../x", "/etc/x", "out/x", "/workspace/../x"):
            found = await say("create", path=path, text="y", overwrite=True)
            assert "outside of the work tree /workspace" in found.text, found
        for path in ("out/x", "."):
            found = await say("edit", path=path, old="x", new="y")
            assert "outside of the work tree /workspace" in found.text, found
        assert (await say("bash", command='cat "${TMPDIR:-/tmp}/x"')).text == "x\n[exit code 0]"
        assert (await say("view", path="out/x")).text == "     1\tx"
        assert (await say("create", path="", text="y")).text == "a path is needed"
        assert (await say("view", path="a\0b")).text == "a path is needed"

    bench(name, check)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_link_that_is_named_is_searched_and_one_that_is_met_is_not(bench: Bench, name: str) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        await say(
            "bash", command='mkdir d; echo needle > d/a; ln -s d/a l; ln -s l l2; echo needle > "${TMPDIR:-/tmp}/x"'
        )
        await say("bash", command='ln -s "${TMPDIR:-/tmp}/x" out; ln -s nowhere dangling; mkfifo p; ln -s p lp')
        for path in ("l", "l2", "/workspace/l"):
            found = await say("search", pattern="need", path=path)
            assert found.text == f"{path.rpartition('/')[2]}:1: needle\n[1 lines in 1 files]"
        assert (await say("search", pattern="need")).text == "d/a:1: needle\n[1 lines in 1 files]"
        outside = await say("search", pattern="need", path="out")
        assert outside.text == "out is a link that leads out of the work tree /workspace, where nothing is searched"
        assert (await say("search", pattern="need", path="dangling")).text.startswith("there is no dangling")
        assert (await say("search", pattern="need", path="lp")).text == "[nothing in lp matches]"

    bench(name, check)


@pytest.mark.parametrize("name", BACKENDS)
def test_files_that_are_there_and_files_that_are_none(bench: Bench, name: str) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        await say("create", path="a", text="1")
        again = await say("create", path="a", text="2")
        assert "is there already" in again.text
        assert (await say("create", path="a", text="3", overwrite=True)).text == "[a was overwritten: 1 lines]"
        assert (await say("view", path="a")).text == "     1\t3"
        assert "cannot be written" in (await say("create", path="a/b", text="x")).text
        await say("bash", command=r"mkfifo pipe; printf '\377' > raw; printf 'a\0b' > nul; : > empty; mkdir d")
        for path, why in {
            "pipe": "no plain file",
            "raw": "not UTF-8",
            "nul": "a binary file",
            "nowhere": "there is no file",
        }.items():
            found = await say("view", path=path)
            assert why in found.text
        assert (await say("view", path="empty")).text == "[empty is empty]"
        assert (await say("view", path="d")).text == "[d is an empty folder]"
        assert (await say("create", path="d", text="", overwrite=True)).text == "d is a folder"
        assert "are not among them" in (await say("view", path="a", first=2)).text
        assert "are not among them" in (await say("view", path="a", first=1, last=0)).text
        assert (await say("search", pattern="b")).text == "[nothing in . matches]"
        assert "no regular expression" in (await say("search", pattern="(")).text
        assert (await say("search", pattern="x", path="nowhere")).text == "there is no nowhere"

    bench(name, check)


@pytest.mark.parametrize("name", BACKENDS)
def test_answers_are_bounded(bench: Bench, name: str) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        script = "open('big','w').write('needle \\x01 é\\n' * 50000); import os; os.mkdir('d'); "
        script += "[open(f'd/{n}', 'w').close() for n in range(3000)]"
        await say("bash", command=f'python3 -c "{script}" || {tools._place.python} -c "{script}"')
        for found in (
            await say("view", path="big"),
            await say("search", pattern="needle"),
            await say("view", path="d"),
            await say("view", path="x" * 5000),
        ):
            assert len(found.text) <= 300
            assert "left out" in found.text
        assert (await say("search", pattern="needle")).text.endswith(
            "[50000 lines in 1 files, of which the first 1000 are shown]"
        )
        assert (await say("view", path="d")).text.endswith("[and 1000 more]")

    bench(name, check, allowance=Allowance(output_chars=300))


@pytest.mark.parametrize("name", BACKENDS)
def test_an_expression_without_end_is_ended(bench: Bench, name: str) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        await say("create", path="a", text="a" * 60 + "b\n")
        limited(tools, "search", 3.0)
        assert (await say("search", pattern="(a|a)*c")).text == "[no end within 3 s]"

    bench(name, check)


@pytest.mark.bubblewrap
def test_a_full_disk_is_an_answer(bench: Bench) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        await say("create", path="a", text="before\n")
        await say("bash", command="head -c 9000000 /dev/zero > fill")
        full = await say("edit", path="a", old="before", new="x" * 100_000)
        assert "No space left" in full.text
        assert (await say("view", path="a")).text == "     1\tbefore"
        assert (await say("bash", command="ls -A")).text == "a\nfill\n[exit code 0]"

    bench("bubblewrap", check, tmpfs_mb=8)


def test_the_program_is_plain_python() -> None:
    compile(program(), "program", "exec")
    assert "from selfplay" not in program()
    assert set(SPECS) == {"edit", "create", "view", "search"}
