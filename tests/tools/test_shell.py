"""The tool `bash`: what lasts, what ends, and every way a command can take its shell with it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from selfplay.sandbox import SandboxInfraError, SandboxSpec
from selfplay.tools import Allowance
from selfplay.tools.place import Place
from selfplay.tools.shell import Bash
from selfplay.tools.workbench import Workbench
from tests.tools.conftest import ALL, BACKENDS, Bench, Say, limited, make, needed

SHORT = Allowance(output_chars=1000)
MADE = r"""
mkdir -p a/b && cd a/b
X='two
"lines"'; export Y=exported
f() { echo "f got $1"; }; export -f f
declare -A map=([key]='a value'); list=(1 'two words'); readonly R=fixed; shopt -s extglob
"""
LOOKED = r"""
echo ${PWD##*/}; echo "$X"; f 1; bash -c 'f 2'; env | grep ^Y=
echo "${map[key]}" "${list[1]}" $R
[[ aa == +(a) ]]
"""
AGAIN = "started again as it was before this command"


@pytest.mark.parametrize("name", ALL)
def test_what_a_shell_remembers(bench: Bench, name: str) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        first = await say("bash", command="echo out; echo err >&2; echo out again; false")
        assert (first.text, first.exit_code, first.refused) == ("out\nerr\nout again\n[exit code 1]", 1, False)
        assert first.seconds > 0
        made = await say("bash", command=MADE)
        assert made.exit_code == 0, made
        found = await say("bash", command=LOOKED)
        assert found.text == 'b\ntwo\n"lines"\nf got 1\nf got 2\nY=exported\na value two words fixed\n[exit code 0]'
        assert (await say("bash", command="cd - >/dev/null && test -d a/b && ls")).text == "a\n[exit code 0]"

    bench(name, check)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("exit 3", 3),
        ("exec true", 0),
        ("set -e; false; echo no", 1),
        ("kill -9 $$", 137),
        ("kill -TERM $$; sleep 5", 143),
        ("set -n", 0),
        ("set -u; echo $NO_SUCH_NAME; echo no", 127),
    ],
)
@pytest.mark.parametrize("name", BACKENDS)
def test_a_shell_that_ends_is_started_again(bench: Bench, name: str, command: str, code: int) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        await say("bash", command="mkdir d; cd d; KEPT=yes")
        ended = await say("bash", command=f"cd ..; KEPT=no; {command}")
        assert AGAIN in ended.text
        assert ended.exit_code == code
        assert (await say("bash", command="echo $KEPT ${PWD##*/}")).text == "yes d\n[exit code 0]"

    bench(name, check)


@pytest.mark.parametrize("name", ALL)
def test_an_endless_command_is_ended(bench: Bench, name: str) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        await say("bash", command="KEPT=yes")
        limited(tools, "bash", 4.0)
        ended = await say("bash", command="echo begun; KEPT=no; while :; do :; done")
        limited(tools, "bash", 90.0)
        assert ended.text.startswith("begun\n[no end within 4 s: it was killed")
        assert ended.exit_code is None
        assert (await say("bash", command="echo $KEPT")).text == "yes\n[exit code 0]"

    bench(name, check)


@pytest.mark.parametrize("name", ALL)
def test_what_is_left_in_the_background_hangs_nothing(bench: Bench, name: str) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        found = await say("bash", command="sleep 1000 & (setsid sleep 1000 &) ; nohup sleep 1000 & echo on")
        assert found.text == "on\n[exit code 0]"
        assert found.seconds < 60.0
        # note: what runs as the candidate is seen by all of it, and `ps` is not in every image.
        look = "for p in /proc/[0-9]*; do tr '\\0' ' ' 2>/dev/null < $p/cmdline; done"
        if name != "local":
            assert "sleep 1000" not in (await say("bash", command=look)).text

    bench(name, check)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_flood_is_cut_in_the_middle(bench: Bench, name: str) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        found = await say("bash", command="echo first; yes | head -c 20000000; echo last")
        assert found.text.startswith("first\ny\n")
        assert found.text.endswith("last\n[exit code 0]")
        assert 900 < len(found.text) <= 1000
        # note: what is shown and what is left out is all there was.
        head, _, rest = found.text.partition("\n[... ")
        count, _, tail = rest.partition(" bytes left out ...]\n")
        assert len(head) + int(count) + len(tail.removesuffix("[exit code 0]")) == 20_000_000 + len("first\nlast\n")
        limited(tools, "bash", 4.0)
        endless = await say("bash", command="yes")
        assert "bytes left out" in endless.text
        assert endless.exit_code is None
        assert len(endless.text) <= 1000

    bench(name, check, allowance=SHORT)


@pytest.mark.parametrize("name", BACKENDS)
def test_bytes_that_are_no_text(bench: Bench, name: str) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        found = await say("bash", command=r"printf 'a\377\000b\033[31mred\033[0m\r\nend'")
        assert found.text == "a\ufffd\ufffdbred\nend\n[exit code 0]"
        noise = await say("bash", command="head -c 100000 /dev/urandom")
        assert noise.exit_code == 0
        assert "left out" in noise.text
        assert all(c.isprintable() or c in "\n\t" or not c.isascii() for c in noise.text)

    bench(name, check, allowance=SHORT)


@pytest.mark.parametrize("name", BACKENDS)
def test_streams_that_are_closed(bench: Bench, name: str) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        assert (await say("bash", command="cat; read x; echo $?")).text == "1\n[exit code 0]"
        assert (await say("bash", command="exec <&-; echo on")).text == "on\n[exit code 0]"
        assert (await say("bash", command="exec >&- 2>&-; echo hidden; A=1")).text == "[exit code 0]"
        assert (await say("bash", command="exec 2>/dev/null; echo $A; echo gone >&2")).text == "1\n[exit code 0]"
        assert (await say("bash", command="tty; test -t 0 || echo none")).text == "not a tty\nnone\n[exit code 0]"

    bench(name, check)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_shell_that_is_spoilt(bench: Bench, name: str) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        names = "eval builtin declare unset printf exec exit set trap mapfile source compgen"
        spoilt = await say("bash", command=f'for n in {names}; do builtin eval "$n() {{ echo SPOILT; }}"; done; K=1')
        assert spoilt.exit_code == 0, spoilt
        assert (await say("bash", command="echo $K; printf 'fine\\n'")).text == "1\nfine\n[exit code 0]"
        assert (await say("bash", command="PATH=; IFS=x; trap 'echo SPOILT' EXIT DEBUG; set -x; K=2")).exit_code == 0
        assert (await say("bash", command="echo $K")).text == "2\n[exit code 0]"
        broken = await say("bash", command="if then (")
        assert broken.text.startswith("bash: eval: line 1: syntax error"), broken
        assert broken.exit_code == 2
        assert (await say("bash", command="\n\nno-such-command")).text.startswith("bash: line 3: no-such-command")

    bench(name, check)


@pytest.mark.parametrize("name", BACKENDS)
def test_what_was_remembered_is_lost(bench: Bench, name: str) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        await say("bash", command="mkdir d; cd d; K=1")
        # note: the command that ruins it remembers itself in the other file.
        ruined = await say("bash", command='mkdir "${TMPDIR:-/tmp}/.selfplay-shell-2"; K=2')
        assert "could not be written down" in ruined.text
        assert (await say("bash", command="echo $K ${PWD##*/}; rmdir ../d")).text.startswith("1 d\n")
        assert "working directory is gone" in (await say("bash", command="echo $K")).text
        sandbox = await tools._place.sandbox()
        await sandbox.exec(["sh", "-c", 'rm -rf "${TMPDIR:-/tmp}"/.selfplay-shell-*'], timeout_seconds=30.0)
        anew = await say("bash", command="echo =$K=")
        assert anew.text.startswith("==\n[what the shell remembered cannot be read")
        await say("bash", command="K=3")
        endless = ["sh", "-c", 'for f in "${TMPDIR:-/tmp}"/.selfplay-shell-*; do echo "while :; do :; done" > $f; done']
        await sandbox.exec(endless, timeout_seconds=30.0)
        limited(tools, "bash", 4.0)
        stuck = await say("bash", command="echo never")
        limited(tools, "bash", 90.0)
        assert "it starts anew" in stuck.text
        assert "no end within" in stuck.text
        assert (await say("bash", command="echo on =$K=")).text == "on ==\n[exit code 0]"

    bench(name, check, allowance=SHORT)


@pytest.mark.parametrize("name", BACKENDS)
def test_odd_commands(bench: Bench, name: str) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        assert (await say("bash", command="")).text == "[exit code 0]"
        assert (await say("bash", command="a\0b")).refused
        assert (await say("bash", command=":" * ((1 << 20) + 1))).refused
        long = await say("bash", command=f"cat > f <<'END'\n{'x' * 300_000}\nEND\nwc -c < f")
        assert long.text == "300001\n[exit code 0]"
        here = await say("bash", command="cat <<E\n$((1 + 1)) ünïcödé\nE")
        assert here.text == "2 ünïcödé\n[exit code 0]"

    bench(name, check)


@pytest.mark.bubblewrap
def test_killing_everything_is_an_answer(bench: Bench) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        await say("bash", command="K=1")
        found = await say("bash", command="(sleep 100 & sleep 100 &); kill -9 -1; kill -9 $PPID; sleep 1; exit 5")
        assert AGAIN in found.text
        assert (await say("bash", command="echo $K")).text == "1\n[exit code 0]"

    bench("bubblewrap", check)


def test_a_sandbox_without_bash_is_the_machines_affair(tmp_path: Path) -> None:
    needed("local")
    for tool in ("setpriv", "prlimit", "timeout", "env"):
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / tool).symlink_to(found)

    async def main() -> None:
        provider = make("local")
        place = Place(provider, SandboxSpec(name="python", env={"PATH": str(tmp_path)}))
        try:
            with pytest.raises(SandboxInfraError, match="no bash"):
                await Bash(place, Allowance()).call({"command": "true"})
        finally:
            await place.aclose()
            await provider.aclose()

    asyncio.run(main())
