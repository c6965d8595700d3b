"""The tools of one episode over one sandbox: which there are, calling them, handing over, and the end.

What is covered: `Workbench`, a `Toolbox` whose sandbox is made at the first call that needs it and closed whatever
happens; `submit`, which reads the product out of the sandbox in the way that a game gives; and two such ways, files of
a folder (`Files`) and the difference of the work tree (`Changes`).

What is not covered: what a product is worth (the game), when a play ends (`rollout`).

Example:
    >>> bench = Workbench(provider, spec, allowance=Allowance(), handover=Files(needed=(("a.md",),)))  # doctest: +SKIP
    >>> (await bench.call(Call(name="submit", arguments={"folder": "out"}))).product  # doctest: +SKIP
    {'files': {'a.md': '# A\\n'}}
"""

from __future__ import annotations

import asyncio
import dataclasses
import posixpath
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from selfplay.errors import UserError
from selfplay.sandbox import Sandbox, SandboxProvider, SandboxSpec
from selfplay.tools import Allowance, Answer, Call, Tool, ToolSpec
from selfplay.tools.arguments import nearest, why_unfit
from selfplay.tools.files import SPECS, FileTool
from selfplay.tools.place import Place
from selfplay.tools.shell import Bash
from selfplay.tools.text import plain, shortened
from selfplay.types import record

MAX_FILE = 1 << 20
"""Largest file that is handed over, in bytes."""
MAX_CHANGES = 8 << 20
"""Largest content of what is handed over as a difference, in bytes."""
_NAME = 60
_LONGEST = 200
"""Of a folder's path, in bytes, as file systems count."""


class Handover(Protocol):
    """How a game reads the product out of the sandbox."""

    async def __call__(self, sandbox: Sandbox, folder: str) -> Mapping[str, Any] | str:
        """The product, JSON; or why there is none, in a sentence for the policy, and the play goes on.

        `folder` is what `submit` was given, relative to the work tree; empty where it was given none.

        Raises:
            SandboxInfraError: the machine failed.
        """
        ...


@record
class Files:
    """Hands over files of a folder by name: `{"files": {name: text}}`."""

    needed: tuple[tuple[str, ...], ...]
    """One of each of these names has to be there."""
    others: tuple[str, ...] = ()
    """Handed over where they are there."""
    max_bytes: int = MAX_FILE

    async def __call__(self, sandbox: Sandbox, folder: str) -> Mapping[str, Any] | str:
        """Read them."""
        found: dict[str, str] = {}
        for name in (*(name for names in self.needed for name in names), *self.others):
            try:
                raw = await sandbox.get(posixpath.join(folder, name), max_bytes=self.max_bytes)
                found[name] = raw.decode()
            except FileNotFoundError:
                continue
            except OSError:
                return f"nothing was handed over: {name} is no plain file"
            except UnicodeDecodeError:
                return f"nothing was handed over: {name} is not UTF-8 text"
            except ValueError:
                return f"nothing was handed over: {name} has more than {self.max_bytes} bytes"
        for names in self.needed:
            if not any(name in found for name in names):
                return f"nothing was handed over: there is no {' or '.join(names)} in {folder or 'the work tree'}"
        return {"files": found}


@record
class Changes:
    """Hands over what changed of the work tree: `{"patch": git diff, "changed": [path], "dropped": {path: why}}`.

    The diff holds text of plain files: modes, binary files and what `why_dropped` names are left out, and said to be.
    """

    base: str | None = None
    """The tar file that the work tree is compared with; None: what it was unpacked from. Without a folder `.git`."""
    why_dropped: Callable[[str], str] = lambda path: ""
    """Why a change of a path does not count; empty where it does."""
    max_bytes: int = MAX_CHANGES

    async def __call__(self, sandbox: Sandbox, folder: str) -> Mapping[str, Any] | str:
        """Compare."""
        found = await sandbox.diff(self.base, max_bytes=self.max_bytes)
        dropped = {path: why for path, why in found.dropped.items() if path.split("/")[0] != ".git"}
        kept: dict[str, str] = {}
        for path, section in zip(found.changed, _sections(found.patch), strict=True):
            why = self.why_dropped(path) or _why_no_text(path, section)
            if why:
                dropped[path] = why
            elif text := _without_modes(section.decode()):
                kept[path] = text
        if "." in found.dropped and not kept:
            return f"nothing was handed over: {found.dropped['.']}"
        return {"patch": "".join(kept.values()), "changed": list(kept), "dropped": _shown(dropped)}


def _sections(patch: bytes) -> list[bytes]:
    """A diff by files; where a link became a file, git has two parts for it."""
    found: dict[bytes, bytes] = {}
    for part in re.split(rb"(?m)^(?=diff --git )", patch):
        if part:
            name = part.partition(b"\n")[0]
            found[name] = found.get(name, b"") + part
    return list(found.values())


def _why_no_text(path: str, section: bytes) -> str:
    if re.search(rb"(?m)^(old|new|deleted)( file)? mode 120000$", section.partition(b"\n@@ ")[0]):
        return "a link"
    if b"\nGIT binary patch\n" in section:
        return "binary"
    try:
        path.encode()
        section.decode()
    except UnicodeError:
        return "not UTF-8"
    return ""


def _without_modes(section: str) -> str:
    """A file's part of a diff without what it says of the x bit; empty where that was all."""
    head, hunk, rest = section.partition("\n@@ ")
    if re.search(r"^old mode ", head, re.MULTILINE) and not hunk:
        return ""
    head = re.sub(r"^(old|new) mode \d+\n", "", head, flags=re.MULTILINE)
    head = re.sub(r"^((?:new|deleted) file mode) \d+$", r"\1 100644", head, flags=re.MULTILINE)
    head = re.sub(r"^(index [0-9a-f.]+) \d+$", r"\1 100644", head, flags=re.MULTILINE)
    return head + hunk + rest


def _shown(dropped: Mapping[str, str]) -> dict[str, str]:
    """What JSON can hold of it."""
    return {path.encode("utf-8", "backslashreplace").decode(): why for path, why in sorted(dropped.items())}


class Submit:
    """The tool `submit`."""

    spec = ToolSpec(
        name="submit",
        text="Hands over what you made and ends the session.",
        parameters={
            "type": "object",
            "properties": {"folder": {"type": "string", "description": "where it lies; the work tree by default"}},
            "required": [],
        },
    )

    def __init__(self, place: Place, handover: Handover) -> None:
        self._place = place
        self._handover = handover

    async def call(self, arguments: Mapping[str, Any]) -> Answer:
        """Read the product out.

        Raises:
            SandboxInfraError: the machine failed.
        """
        given = str(arguments.get("folder", ""))
        inner = posixpath.relpath(given, self._place.spec.workdir) if given.startswith("/") else given
        folder = posixpath.normpath(inner) if inner else "."
        # note: a name that no file system has would be an error of the backend's, and it is the policy's.
        if folder.startswith("../") or folder == ".." or "\0" in folder or len(folder.encode()) > _LONGEST:
            said = f"{plain(given)[:_NAME]} is no folder in the work tree {self._place.spec.workdir}"
            return Answer(text=f"nothing was handed over: {said}")
        product = await self._handover(await self._place.sandbox(), "" if folder == "." else folder)
        if isinstance(product, str):
            return Answer(text=product)
        return Answer(text="[handed over]", product=product)


class Workbench:
    """A `Toolbox`: the tools of one episode over one sandbox."""

    def __init__(
        self, provider: SandboxProvider, spec: SandboxSpec, *, allowance: Allowance, handover: Handover
    ) -> None:
        """`handover` reads the product out.

        Raises:
            UserError: the allowance names a tool that is not there.
        """
        self._place = Place(provider, spec)
        self._allowance = allowance
        self._turn = asyncio.Lock()
        self._tools: dict[str, Tool] = {}
        for name in allowance.names:
            self._tools[name] = self._tool(name, handover)

    def _tool(self, name: str, handover: Handover) -> Tool:
        if name == "bash":
            return Bash(self._place, self._allowance)
        if name == "submit":
            return Submit(self._place, handover)
        if name not in SPECS:
            raise UserError(f"there is no tool `{name}`", hint=f"the tools are: bash, {', '.join(SPECS)}, submit")
        return FileTool(name, place=self._place, allowance=self._allowance)

    @property
    def specs(self) -> Sequence[ToolSpec]:
        """The tools in the allowance's order."""
        return tuple(tool.spec for tool in self._tools.values())

    async def call(self, call: Call) -> Answer:
        """Carry a call out; one at a time.

        Raises:
            SandboxInfraError: the machine failed; nothing follows for the policy.
        """
        tool = self._tools.get(call.name)
        if tool is None:
            named = "".join(c if c.isprintable() else "?" for c in call.name)[:_NAME]
            return self._refused(f"there is no tool `{named}`; {nearest(call.name, self._tools, what='the tools')}")
        why = why_unfit(tool.spec.parameters, call.arguments, name=call.name)
        if why:
            return self._refused(why)
        async with self._turn:
            start = time.monotonic()
            answer = await tool.call(call.arguments)
        text = shortened(answer.text, self._allowance.output_chars)
        return dataclasses.replace(answer, text=text, seconds=time.monotonic() - start)

    def _refused(self, why: str) -> Answer:
        return Answer(text=shortened(plain(why), self._allowance.output_chars), refused=True)

    async def aclose(self) -> None:
        """Close the sandbox, if one was made; idempotent, shielded from cancellation."""
        await self._place.aclose()
