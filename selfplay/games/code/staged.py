"""The tools of an injector, in stages: the bug is made and handed over, the tree reset, its tests are weakened.

    DISCOVER   how the tests run and which there are: the survey's, made once for a repository without a model, kept by
               its digest (`survey`), and told in the prompt
    INJECT     the clean tree; `submit` takes the difference of its code for the bug
    WEAKEN     a fresh sandbox of the bug alone, in one commit; `submit` takes the difference of its tests for the
               weakening, and the files that it touches for those that decide

One free session rarely makes a coherent artifact: diffs overlap, or start from a tree that is no longer clean. Here the
engine makes both, each from a tree of its own, within one conversation that only grows. The paper's single session
(arXiv 2512.18552, research note `selfplay-papers.md` §A.2) is the same tools used otherwise: where `submit` names a
folder with the files of an artifact, that is handed over whole, and the play ends. Which of the two a role does is
its prompt's affair (`roles/tree_injector`, `roles/tree_injector_whole`).

What is covered: what `submit` does in each stage, what of a difference counts, the reset. What is not: whether it is a
bug (`checks`), the tools themselves (`tools.workbench`), prompts (`roles/`).

Example:
    >>> tools = Staged(repository, spec=spec, first=tree, provider=provider, ...)  # doctest: +SKIP
    >>> (await tools.call(Call(name="submit", arguments={}))).text  # doctest: +SKIP
    '[the bug is kept: pkg/a.py. Stage WEAKEN: ...]'
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from selfplay.games.code import agentic, patches
from selfplay.games.code.artifact import Files
from selfplay.games.code.handed import GivesAway, Handed, handed
from selfplay.games.code.protected import why_dropped
from selfplay.games.code.source import Repository, is_test
from selfplay.sandbox import Sandbox, SandboxProvider, SandboxSpec
from selfplay.tools import Allowance, Answer, Call, Toolbox, ToolSpec
from selfplay.tools.workbench import Changes, Workbench
from selfplay.types import record

_SHOWN = 10
"""Paths that an answer names."""
_BUG, _WEAKENING = "bug", "weakening"


@record
class _TakesBug:
    """What `submit` hands over in stage INJECT: a whole artifact, or the difference of the code."""

    clean: Handed
    files: frozenset[str]
    """Paths of the clean tree."""

    async def __call__(self, sandbox: Sandbox, folder: str) -> Mapping[str, Any] | str:
        whole = await agentic.artifact_handover()(sandbox, folder)
        if folder or not isinstance(whole, str):
            return whole
        found = await Changes(base=str(self.clean.base), why_dropped=self._why_dropped)(sandbox, "")
        if isinstance(found, str):
            return found
        if not found["patch"]:
            return f"nothing was handed over: the code is as it was{_left_out(found)}"
        return {_BUG: found["patch"], "changed": found["changed"], "dropped": found["dropped"]}

    def _why_dropped(self, path: str) -> str:
        # note: logs and notes of the session lie about, and are no part of a bug.
        stray = "new, and no Python" if path not in self.files and not path.endswith(".py") else ""
        return why_dropped(path) or stray


@record
class _TakesWeakening:
    """What `submit` hands over in stage WEAKEN: the difference of the tests."""

    broken: Handed

    async def __call__(self, sandbox: Sandbox, folder: str) -> Mapping[str, Any] | str:
        if folder:
            return await agentic.artifact_handover()(sandbox, folder)
        known = Changes(base=str(self.broken.base), why_dropped=lambda path: "" if is_test(path) else "no test")
        found = await known(sandbox, "")
        if isinstance(found, str):
            return found
        if not found["patch"]:
            return f"nothing was handed over: the tests are as they were{_left_out(found)}"
        return {_WEAKENING: found["patch"], "changed": found["changed"]}


class Staged:
    """Implements `Toolbox` for one play of an injector."""

    def __init__(
        self,
        repository: Repository,
        *,
        first: Handed,
        spec_of: Callable[[Path], SandboxSpec],
        provider: SandboxProvider,
        allowance: Allowance,
        cache: Path,
    ) -> None:
        """`first` is the clean tree, with or without its history; `spec_of` says how a sandbox of a tar is made."""
        self._repository = repository
        self._spec_of = spec_of
        self._provider = provider
        self._allowance = allowance
        self._cache = cache
        self._bug = ""
        takes = _TakesBug(clean=first, files=frozenset(repository.files))
        self._bench = Workbench(provider, spec_of(first.archive), allowance=allowance, handover=takes)
        self._closed = False

    @property
    def specs(self) -> Sequence[ToolSpec]:
        """Those of the bench, which all stages share."""
        return self._bench.specs

    async def call(self, call: Call) -> Answer:
        """Carry a call out; a product ends the play only where the artifact is whole.

        Raises:
            SandboxInfraError: the machine failed; nothing follows for the policy.
        """
        answer = await self._bench.call(call)
        product = answer.product or {}
        if _BUG in product:
            said = await self._weaken(str(product[_BUG]), product)
            return dataclasses.replace(answer, text=said, product=None)
        if _WEAKENING in product:
            listed = "".join(f"{path}\n" for path in product["changed"])
            files = {"test_files.txt": listed, "bug_inject.diff": self._bug, "test_weaken.diff": product[_WEAKENING]}
            return dataclasses.replace(answer, product={"files": files})
        return answer

    async def aclose(self) -> None:
        """Close the sandbox of the present stage; idempotent, shielded from cancellation."""
        self._closed = True
        await self._bench.aclose()

    async def _weaken(self, bug: str, product: Mapping[str, Any]) -> str:
        """Keep the bug and go on with a tree of it; what the policy is told."""
        code = self._code(bug)
        if isinstance(code, str):
            return f"nothing was handed over: {code}"
        try:
            broken = await asyncio.to_thread(handed, self._repository, files=code, cache=self._cache)
        except GivesAway as error:
            return f"nothing was handed over: a solver would be shown the answer: {error}"
        next_bench = Workbench(
            self._provider,
            self._spec_of(broken.archive),
            allowance=self._allowance,
            handover=_TakesWeakening(broken=broken),
        )
        before, self._bug, self._bench = self._bench, bug, next_bench
        await before.aclose()
        if self._closed:
            await next_bench.aclose()
        return (
            f"[the bug is kept: {_some(product['changed'])}{_left_out(product)}. Stage WEAKEN: the folder was reset; "
            "it holds the repository with your bug and its tests as they were, in one commit. Nothing else of stage "
            "INJECT is left. Change tests so that they no longer notice, then call `submit`]"
        )

    def _code(self, bug: str) -> Files | str:
        """What the bug makes of the clean tree, or why it cannot be read."""
        found = patches.parse(bug.encode("utf-8", "surrogatepass"))
        if not isinstance(found, patches.Refusal):
            made = patches.apply(patches.filtered(found), tree=self._repository.archive)
            if not isinstance(made, patches.Refusal):
                return made.files
            found = made
        return found.why


class Roomed:
    """A toolbox that gives its place back when it is closed."""

    def __init__(self, inner: Toolbox, room: asyncio.Semaphore) -> None:
        self.inner = inner
        self._room: asyncio.Semaphore | None = room

    @property
    def specs(self) -> Sequence[ToolSpec]:
        return self.inner.specs

    async def call(self, call: Call) -> Answer:
        return await self.inner.call(call)

    async def aclose(self) -> None:
        room, self._room = self._room, None
        try:
            await self.inner.aclose()
        finally:
            if room is not None:
                room.release()


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(paths[:_SHOWN]) + more


def _left_out(product: Mapping[str, Any]) -> str:
    """What of a difference does not count, in words; empty where all does."""
    dropped = product.get("dropped") or {}
    told = [f"{path} ({why})" for path, why in dropped.items()]
    return f"; left out: {_some(told)}" if told else ""
