"""What is special about a repository, and what is done about it: told before anything is played.

What is covered: `layout_of`, which reads the tree alone (layouts, suites, build steps, several packages, history,
submodules), and `suite_of_survey`, which reads the survey (its size, its time, tests that need a network). Each fact is
a sentence of what is so and a sentence of what follows; where nothing is to be said of a kind, there is no fact.

What is not covered: whether it can be played at all, which is for the survey to refuse.

Example:
    >>> [fact.name for fact in layout_of(repository)]  # doctest: +SKIP
    ['src layout', 'no git history']
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from selfplay.games.code import history
from selfplay.games.code.opened import Settings
from selfplay.games.code.source import Repository, is_git, is_test
from selfplay.games.code.suite import suite_of
from selfplay.games.code.survey import MOST_TESTS, Survey
from selfplay.types import record

MANY_TESTS = 5000
SLOW_SECONDS = 90.0
"""The paper's longest test command (research note `selfplay-papers.md` §A.2)."""
_SOURCES = (".c", ".cc", ".cpp", ".cxx", ".pyx", ".pxd", ".rs", ".f90")
_BUILDS = re.compile(
    r"ext_modules|Extension\(|cythonize|setuptools_rust|RustExtension|maturin|mesonpy|scikit.build|hatch.cython|cffi_modules"
)
_MANIFESTS = ("pyproject.toml", "setup.py", "setup.cfg")
_NOT_PACKAGES = frozenset({"doc", "docs", "examples", "example", "scripts", "tools", "benchmarks", "bench", "ci"})


@record
class Fact:
    """One thing that is so, and what follows."""

    name: str
    """In the words of the documentation: `src layout`."""
    what: str
    """What was found."""
    then: str
    """What is done about it."""
    trouble: bool = False
    """Is less played for it than one may expect?"""


def layout_of(repository: Repository) -> tuple[Fact, ...]:
    """What its files tell."""
    makers = (_src, _namespace, _unittest, _tox, _compiled, _several, _past, _submodules)
    return tuple(fact for make in makers for fact in make(repository))


def suite_of_survey(found: Survey, *, settings: Settings) -> tuple[Fact, ...]:
    """What two runs of the suite told."""
    facts: list[Fact] = []
    network = found.network
    if network:
        facts.append(
            Fact(
                name="tests that need a network",
                what=f"{len(network)} of them, e.g. {network[0]}: {found.left_out[network[0]]}",
                then="sandboxes have none: these tests are left out, and do not count against the suite",
                trouble=True,
            )
        )
    if len(found.seconds) >= MANY_TESTS:
        facts.append(
            Fact(
                name="many tests",
                what=f"{len(found.seconds)} stable tests",
                then=f"all were run twice, within {settings.rules.seconds:g} s each time, and none was sampled; for a "
                "candidate only those run that reach its function, or stand in the files that an artifact lists",
            )
        )
    crowded = [function.name for function in found.functions if len(function.tests) >= MOST_TESTS]
    if crowded:
        facts.append(
            Fact(
                name="many tests of one function",
                what=f"{crowded[0]} and {len(crowded) - 1} more are reached by {MOST_TESTS} tests or more",
                then=f"{MOST_TESTS} of them, drawn by name, decide about a bug in it; with tools, all tests in "
                "the files that an artifact lists",
            )
        )
    if found.sampled:
        facts.append(
            Fact(
                name="sampled suite",
                what=f"the survey looked at {found.sampled}",
                then="only these tests decide; functions that no other test reaches are not played",
                trouble=True,
            )
        )
    needed = sum(found.seconds.values())
    if needed > SLOW_SECONDS:
        facts.append(
            Fact(
                name="slow suite",
                what=f"its stable tests need {needed:.0f} s of processor time, a command may take {SLOW_SECONDS:g} s",
                then="it is run whole by the survey and never again; an agent cannot run all of it in one command, and "
                f"the tests of one candidate have ten times what they need, at least {settings.cpu_seconds:g} s",
                trouble=True,
            )
        )
    return tuple(facts)


def _src(repository: Repository) -> Iterator[Fact]:
    if "src" in suite_of(repository).roots:
        yield Fact(name="src layout", what="modules lie under src/", then="imports begin there; nothing is installed")


def _namespace(repository: Repository) -> Iterator[Fact]:
    packages = {str(PurePosixPath(path).parent) for path in repository.files if path.endswith("/__init__.py")}
    roots = {root or "." for root in suite_of(repository).roots}
    found = set()
    for package in packages:
        above = PurePosixPath(package).parent
        outer = above.parts[0] if above.parts else ""
        plain = str(above) not in roots and str(above) not in packages and outer not in _NOT_PACKAGES
        if plain and not is_test(f"{package}/x.py") and str(above.parent) in {*roots, *packages}:
            found.add(str(above))
    if found and not _manifests_below(repository):
        yield Fact(
            name="namespace package",
            what=f"{', '.join(sorted(found)[:3])} has packages in it and no __init__.py",
            then="it is imported from where it lies, as Python does with namespaces; nothing is installed",
        )


def _unittest(repository: Repository) -> Iterator[Fact]:
    tests = [_text(repository, path) for path in repository.files if is_test(path) and path.endswith(".py")]
    uses = sum("unittest" in text for text in tests)
    if uses and not any(re.search(r"^\s*(import|from) pytest\b", text, re.MULTILINE) for text in tests):
        plain = any(re.search(r"^(async )?def test_", text, re.MULTILINE) for text in tests)
        if not plain:
            yield Fact(
                name="unittest only",
                what="its tests are unittest's classes",
                then="pytest runs them; each method is a test of its own",
            )


def _tox(repository: Repository) -> Iterator[Fact]:
    found: list[str] = [name for name in ("tox.ini", "noxfile.py") if name in repository.files]
    if "[tool.tox" in _text(repository, "pyproject.toml"):
        found.append("pyproject.toml (tool.tox)")
    if found:
        yield Fact(
            name="tox or nox",
            what=f"it has {', '.join(found)}",
            then="no session of it is run: pytest is started directly, with pytest's own settings in tox.ini; what "
            "tests need beside the package's metadata is named by hand: -s 'game.requirements=[\"NAME\"]'",
        )


def _compiled(repository: Repository) -> Iterator[Fact]:
    sources = [path for path in repository.files if path.endswith(_SOURCES) and not is_test(path)]
    builds = [name for name in (*_MANIFESTS, "meson.build") if _BUILDS.search(_text(repository, name))]
    if sources and (builds or "meson.build" in repository.files):
        by = ", ".join(builds) or "meson.build"
        yield Fact(
            name="compiled extensions",
            what=f"{len(sources)} sources of extensions, e.g. {sources[0]}, built by {by}",
            then="nothing is built: the modules are imported as they lie, without their extensions. Where the package "
            "does without (a fallback in Python), the rest is played; tests that fail are left out, and a suite of "
            "which more than a fifth fails is refused",
            trouble=True,
        )


def _several(repository: Repository) -> Iterator[Fact]:
    below = _manifests_below(repository)
    if below:
        yield Fact(
            name="several packages",
            what=f"{', '.join(below[:4])} {'have' if len(below) > 1 else 'has'} a project of its own"
            + (", beside the one at the top" if any(name in repository.files for name in _MANIFESTS) else ""),
            then="the tree is played as one, with imports that begin at its top, and only the top's settings and "
            f"requirements are read; to play one, name its folder: -s game.source=.../{below[0]}",
            trouble=True,
        )


def _manifests_below(repository: Repository) -> list[str]:
    """Folders with a project of their own, tests and documentation left out."""
    found = set()
    for path in repository.files:
        pure = PurePosixPath(path)
        below = len(pure.parts) > 1 and pure.parts[0] not in _NOT_PACKAGES and not is_test(path)
        if below and pure.name in ("pyproject.toml", "setup.py"):
            found.add(str(pure.parent))
    return sorted(found)


def _past(repository: Repository) -> Iterator[Fact]:
    if why := history.why_none(repository.source):
        yield Fact(
            name="no git history",
            what=why,
            then="the strategy `history` is refused, and `removal+history` is `removal`",
        )


def _submodules(repository: Repository) -> Iterator[Fact]:
    paths = re.findall(r"^\s*path\s*=\s*(.+?)\s*$", _text(repository, ".gitmodules"), re.MULTILINE)
    if paths:
        missing = [path for path in paths if not any(file.startswith(f"{path}/") for file in repository.files)]
        fetched = "they are not fetched" if is_git(repository.source) else "their files are taken where they lie"
        yield Fact(
            name="submodules",
            what=f"{', '.join(paths[:4])}; without files: {', '.join(missing[:4]) or 'none'}",
            then=f"{fetched}; tests that need what is missing fail and are left out. To have them: git clone "
            "--recurse-submodules, and name that folder",
            trouble=bool(missing),
        )


def _text(repository: Repository, path: str) -> str:
    try:
        return repository.read(path) if path in repository.files else ""
    except UnicodeDecodeError:
        return ""
