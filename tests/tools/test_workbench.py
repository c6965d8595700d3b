"""A toolbox over one sandbox: made when it is needed, closed whatever happens, and what it hands over."""

from __future__ import annotations

import asyncio
import io
import tarfile
from pathlib import Path

import pytest

from selfplay.errors import UserError
from selfplay.games.code import patches
from selfplay.sandbox import SandboxInfraError, SandboxSpec
from selfplay.sandbox.local import LocalProvider
from selfplay.tools import Allowance, Call
from selfplay.tools.workbench import Changes, Files, Workbench
from tests.tools.conftest import ALL, BACKENDS, Bench, Say, make, needed


@pytest.fixture
def archive(tmp_path: Path) -> str:
    """A tar of three files and a folder of git's."""
    path = tmp_path / "tree.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as packed:
        for name, text in {"a.py": "x = 1\n", "tests/test_a.py": "import a\n", "gone.py": "1\n"}.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o644
            packed.addfile(entry, io.BytesIO(text.encode()))
    return str(path)


@pytest.mark.parametrize("name", BACKENDS)
def test_what_is_wrong_with_a_call_is_an_answer(bench: Bench, name: str) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        for tool, arguments, why in (
            ("bsh", {}, "there is no tool `bsh`; did you mean `bash`?"),
            ("\x00zzz", {}, "there is no tool `?zzz`; the tools: bash, view, submit"),
            ("bash", {}, "`bash` needs `command`"),
            ("bash", {"comand": "ls"}, "`bash` has no argument `comand`; did you mean `command`?"),
            ("view", {"path": 1}, "`path` of `view` has to be of type string, and is integer"),
        ):
            found = await say(tool, **arguments)
            assert (found.text, found.refused, found.product) == (why, True, None)
        for folder in ("../out", "a/../../out", "/etc", "x" * 5000, "é" * 150):
            outside = await say("submit", folder=folder)
            assert outside.text == f"nothing was handed over: {folder[:60]} is no folder in the work tree /workspace"
            assert (outside.refused, outside.product) == (False, None)
        # note: none of them needed a sandbox.
        assert tools._place._making is None
        assert [spec.name for spec in tools.specs] == ["bash", "view", "submit"]

    bench(name, check, allowance=Allowance(names=("bash", "view", "submit")))


@pytest.mark.parametrize("name", ALL)
def test_files_are_handed_over(bench: Bench, name: str) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        missing = await say("submit", folder="out")
        assert (missing.refused, missing.product) == (False, None)
        assert missing.text == "nothing was handed over: there is no a.txt or b.txt in out"
        await say("bash", command="mkdir out; cd out; echo one > b.txt; ln -s b.txt more.txt")
        assert (await say("submit", folder="é" * 100)).text.startswith("nothing was handed over: there is no a.txt or")
        assert (await say("submit", folder=f"out/{'x' * 150}")).product is None
        assert "more.txt is no plain file" in (await say("submit", folder="out")).text
        await say("bash", command=r"rm more.txt; printf '\377' > more.txt")
        assert "more.txt is not UTF-8 text" in (await say("submit", folder="out")).text
        await say("bash", command="head -c 2000 /dev/zero > more.txt")
        assert "more.txt has more than 1000 bytes" in (await say("submit", folder="out")).text
        await say("bash", command="echo two > more.txt")
        found = await say("submit", folder="/workspace/out/")
        assert found.product == {"files": {"b.txt": "one\n", "more.txt": "two\n"}}
        assert not found.refused

    bench(name, check, handover=Files(needed=(("a.txt", "b.txt"),), others=("more.txt", "other.txt"), max_bytes=1000))


@pytest.mark.parametrize("name", ALL)
def test_changes_are_handed_over(bench: Bench, name: str, archive: str) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        empty = await say("submit")
        assert empty.product == {"patch": "", "changed": [], "dropped": {}}
        await say("edit", path="a.py", old="x = 1", new="x = 2")
        await say(
            "bash",
            command="rm gone.py; chmod +x tests/test_a.py; echo y > 'n w.py'; chmod +x 'n w.py'; mkdir .git;"
            r" echo > .git/HEAD; printf 'a\0b' > raw; printf '\351\n' > latin; ln -s a.py link;"
            " echo 'import b' >> tests/test_a.py",
        )
        found = await say("submit")
        assert found.product is not None
        assert found.product["changed"] == ["a.py", "gone.py", "n w.py"]
        assert found.product["dropped"] == {
            "latin": "not UTF-8",
            "link": "a link",
            "raw": "binary",
            "tests/test_a.py": "a test",
        }
        patch = patches.parse(found.product["patch"].encode())
        assert isinstance(patch, patches.Patch), patch
        applied = patches.apply(patch, tree=Path(archive))
        assert isinstance(applied, patches.Applied), applied
        assert applied.files == {"a.py": b"x = 2\n", "gone.py": None, "n w.py": b"y\n"}

    def why(path: str) -> str:
        return "a test" if path.startswith("tests/") else ""

    bench(name, check, archive=archive, handover=Changes(why_dropped=why))


def test_a_mode_alone_is_no_change(bench: Bench, archive: str) -> None:
    async def check(say: Say, tools: Workbench) -> None:
        await say("bash", command="chmod +x a.py; rm gone.py; ln -s a.py gone.py")
        found = await say("submit")
        assert found.product == {"patch": "", "changed": [], "dropped": {"gone.py": "a link"}}

    bench("local", check, archive=archive)


@pytest.mark.parametrize("name", BACKENDS)
def test_it_is_closed_whatever_happens(name: str) -> None:
    needed(name)

    async def main() -> None:
        provider = make(name)
        tools = Workbench(provider, SandboxSpec(name="python"), allowance=Allowance(), handover=Changes())
        running = asyncio.create_task(tools.call(Call(name="bash", arguments={"command": "sleep 100"})))
        await asyncio.sleep(0)
        sandbox = await tools._place.sandbox()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        closing = asyncio.create_task(tools.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await tools.aclose()
        assert not await sandbox.alive()
        with pytest.raises(SandboxInfraError, match="closed"):
            await tools.call(Call(name="bash", arguments={"command": "true"}))
        await provider.aclose()

    asyncio.run(main())


def test_nothing_is_made_where_nothing_is_called() -> None:
    async def main() -> None:
        tools = Workbench(LocalProvider(), SandboxSpec(name="python"), allowance=Allowance(), handover=Changes())
        await tools.aclose()
        await tools.aclose()
        assert tools._place._making is None

    asyncio.run(main())


def test_a_sandbox_that_cannot_be_made_is_the_machines_affair() -> None:
    needed("local")

    async def main() -> None:
        provider = LocalProvider()
        spec = SandboxSpec(name="python", archive="/no/such/tree.tar")
        tools = Workbench(provider, spec, allowance=Allowance(), handover=Changes())
        for _ in range(2):
            with pytest.raises(SandboxInfraError, match="no/such/tree"):
                await tools.call(Call(name="view", arguments={"path": "."}))
        await tools.aclose()
        await provider.aclose()

    asyncio.run(main())


def test_a_tool_that_nobody_has_is_a_mistake_of_the_configuration() -> None:
    with pytest.raises(UserError, match="there is no tool `brain`"):
        Workbench(
            LocalProvider(), SandboxSpec(name="python"), allowance=Allowance(names=("brain",)), handover=Changes()
        )
