"""Looks for clean copies of what a solver must repair, inside a sandbox as the solver gets it.

What is covered, everywhere the candidate can read: the repository's modules found by the interpreter outside of the
work tree, `.py` files of the same name and content, and bytecode of modules that are not tests: any in the tree, and
elsewhere what equals theirs. Run when a repository is opened, before anything is played.

What is not covered: copies in archives (wheels, zip files), copies of another version under another name, files of less
than `SMALL` bytes, and, where nothing is isolated, the rest of the host.

Example:
    >>> spec = load_recipe().spec()  # doctest: +SKIP
    >>> await check(provider, spec=spec, archive=repository.archive, repository=repository, roots=())  # doctest: +SKIP
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from selfplay.errors import NotReady
from selfplay.games.code.source import Repository, is_test
from selfplay.sandbox import Sandbox, SandboxInfraError, SandboxProvider, SandboxSpec

SMALL = 100
"""Bytes below which a file gives nothing away: empty `__init__.py` files are everywhere."""
SECONDS = 300.0
_LOOK = Path(__file__).with_name("looker.py")
_NOT_MODULES = frozenset({"setup", "conftest", "noxfile", "tasks", "fabfile"})


async def check(
    provider: SandboxProvider, *, spec: SandboxSpec, archive: Path, repository: Repository, roots: Sequence[str]
) -> None:
    """Make a sandbox of `archive`, with the limits of `spec`, and look around in it.

    Raises:
        NotReady: a clean copy can be read in it; the sentence names the path.
        SandboxInfraError: the machine failed.
    """
    sandbox = await provider.create(replace(spec, archive=str(archive)))
    try:
        await assert_no_clean_copy(
            sandbox,
            python=provider.python,
            repository=repository,
            roots=roots,
            everywhere=provider.capabilities.isolated,
        )
    finally:
        await sandbox.close()


async def assert_no_clean_copy(
    sandbox: Sandbox, *, python: str, repository: Repository, roots: Sequence[str], everywhere: bool = True
) -> None:
    """No module of `repository` is to be had in the sandbox but in its work tree, where the solver's copy lies.

    `roots` are the folders of the tree that imports begin in; `everywhere` also searches the file system.

    Raises:
        NotReady: one is; the sentence names the path.
        SandboxInfraError: the sandbox did not answer.
    """
    modules = [path for path in repository.files if path.endswith(".py") and not is_test(path)]
    asked = {
        "tops": sorted({top for path in modules for top in _top(path, roots)}),
        "modules": {path: _described(repository, path) for path in modules},
        "tests": [path for path in repository.files if path.endswith(".py") and is_test(path)],
        "everywhere": everywhere,
        "small": SMALL,
    }
    # note: as tests are run (-s -P), so that the interpreter looks where theirs does.
    argv = [python, "-s", "-P", "-B", "-c", _LOOK.read_text(encoding="utf-8")]
    result = await sandbox.exec(argv, timeout_seconds=SECONDS, stdin=json.dumps(asked).encode(), output_limit=1 << 20)
    try:
        found = [str(sentence) for sentence in json.loads(result.stdout)]
    except (ValueError, TypeError) as error:
        said = result.stderr.strip()[-300:]
        raise SandboxInfraError(f"the look for clean copies ended with {result.exit_code}: {said}") from error
    if found:
        raise NotReady(
            f"a solver of `{repository.name}` could read the answer: {found[0]}"
            + (f" (and {len(found) - 1} more)" if len(found) > 1 else ""),
            hint="remove that copy from this machine or from the image, or choose another sandbox or repository",
        )


def _top(path: str, roots: Sequence[str]) -> list[str]:
    """The names by which a module is imported from the roots: packages and single modules, not plain folders."""
    names = []
    for root in sorted(roots, key=len, reverse=True):
        if root and not path.startswith(f"{root}/"):
            continue
        inner = PurePosixPath(path.removeprefix(f"{root}/") if root else path)
        if len(inner.parts) == 1 and inner.stem not in _NOT_MODULES:
            names.append(inner.stem)
        elif len(inner.parts) == 2 and inner.name == "__init__.py":
            names.append(inner.parts[0])
        break
    return names


def _described(repository: Repository, path: str) -> tuple[int, str]:
    """Size and sha256 of a file."""
    content = (repository.root / path).read_bytes()
    return len(content), hashlib.sha256(content).hexdigest()
