"""The direction of imports, read from the source: an arrow that points the other way fails."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import selfplay

PACKAGE = Path(selfplay.__file__).parent

GROUND = {"types", "errors", "__version__"}

LOOP = {"loop", "stages", "batches", "warmup", "resume", "saves", "measures", "parts", "plan", "build", "replay"} | {
    "players",
    "grounds",
    "mix",
    "pools",
    "ahead",
    "waits",
    "flow",
    "offers",
    "fork",
    "audit",
    "salvage",
    "probe",
    "alarms",
    "watch",
    "reverify",
    "origins",
    "evaluation",
    "choices",
    "credit",
    "control",
    "seat",
    "samplers",
    "elsewhere",
    "sizing",
    "doors",
    "exports",
    "given",
    "study",
}
"""The loop and what it is made of: they may import everything but the command line."""

MAY_IMPORT: Mapping[str, set[str]] = {
    "types": set(),
    "errors": set(),
    "cache": GROUND,
    "owner": GROUND,
    "events": GROUND,
    "project": GROUND,
    "config": GROUND | {"project"},
    "estimate": GROUND,
    "ledger": GROUND,
    "curriculum": GROUND | {"ledger"},
    "views": GROUND | {"estimate", "events", "ledger"},
    "policy": GROUND | {"cache", "events"},
    "sandbox": GROUND | {"cache", "owner", "project"},
    "retrieval": GROUND | {"cache", "owner"},
    "tools": GROUND | {"cache", "retrieval", "sandbox"},
    "learner": GROUND | {"policy"},
    "rollout": GROUND | {"policy", "sandbox", "learner", "retrieval", "tools"},
    "cluster": GROUND | {"cache", "policy", "sandbox", "learner"},
    "games": GROUND | {"cache", "policy", "sandbox", "learner", "retrieval", "rollout", "tools"},
}
"""What each part may import of the package, DESIGN's arrows; parts that are not named are the loop's or the top's."""

HEAVY: Mapping[str, set[str]] = {
    "torch": {"learner", "policy", *LOOP},
    "transformers": {"learner", "policy"},
    "vllm": {"policy"},
    "docker": {"sandbox"},
    "ray": {"cluster"},
}
"""Who may name the packages that are slow to import."""


def part_of(file: Path) -> str:
    """`selfplay/views/progress.py` -> `views`."""
    return file.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(file: Path) -> Iterator[tuple[str, bool]]:
    """(dotted name, at import time?) of everything that `file` imports."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "selfplay" else [module]
            yield from ((name, id(node) in top) for name in names)


FILES = sorted(file for file in PACKAGE.rglob("*.py") if "_project" not in file.parts)


def test_every_part_is_placed() -> None:
    parts = {part_of(file) for file in FILES}
    assert parts <= {*MAY_IMPORT, *LOOP, "cli", "__init__", "__main__"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_point_downwards(file: Path) -> None:
    part = part_of(file)
    for name, _ in imports(file):
        words = name.split(".")
        if words[0] != "selfplay" or len(words) == 1 or words[1] == part:
            continue
        if words[1] == "cli":
            assert part == "__main__", f"{file} imports {name}"
        elif part in MAY_IMPORT:
            assert words[1] in MAY_IMPORT[part], f"{file} imports {name}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_slow_packages_stay_where_they_are_used(file: Path) -> None:
    for name, _ in imports(file):
        owners = HEAVY.get(name.split(".")[0])
        assert owners is None or part_of(file) in owners, f"{file} imports {name}"


def test_types_import_the_standard_library_only() -> None:
    for name, _ in imports(PACKAGE / "types.py"):
        assert name.split(".")[0] in sys.stdlib_module_names, name


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("selfplay.cli", {"torch", "transformers", "docker", "pydantic", "rich", "sqlite_utils", "selfplay.config"}),
        ("selfplay.cli.status, selfplay.views.status", {"torch", "transformers", "docker", "pydantic", "sqlite_utils"}),
        ("selfplay.views.inspect_text", {"torch", "transformers", "docker", "pydantic", "sqlite_utils"}),
        ("selfplay.cli.run", {"torch", "transformers", "docker", "pydantic"}),
    ],
)
def test_what_is_not_loaded(module: str, absent: set[str]) -> None:
    code = f"import sys, {module}; print(sorted(set(sys.modules) & {absent!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
