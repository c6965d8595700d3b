"""Reads a recipe: what is inside a sandbox, from the folder `sandboxes/NAME/` (`sandbox.toml`, `Dockerfile`).

Not here: building images (`image`), and which folder holds the recipes in a project (`project`); without
a folder given, the shipped recipes are used.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import selfplay
from selfplay.errors import NotFound, UserError
from selfplay.sandbox import SandboxSpec
from selfplay.sandbox.environment import TEST_TOOLS
from selfplay.types import record

LIMITS = ("cpus", "memory_mb", "pids", "tmpfs_mb", "file_mb", "ttl_seconds")
_WHOLE = ("memory_mb", "pids", "tmpfs_mb", "file_mb")
"""Those that the kernel counts in whole numbers."""


@record
class Recipe:
    """What `sandbox.toml` says."""

    name: str
    description: str = ""
    base: str = "python:3-slim"
    """The image that the Dockerfile starts from where a registry answers."""
    tools: tuple[str, ...] = TEST_TOOLS
    """Distributions that the sandbox's interpreter has, with what they require."""
    limits: Mapping[str, float]
    """The fields of `SandboxSpec` that it sets."""
    folder: Path

    def spec(self, **changes: Any) -> SandboxSpec:
        """A spec with the recipe's limits; `changes` are fields of `SandboxSpec`."""
        return dataclasses.replace(SandboxSpec(name=self.name, **dict(self.limits)), **changes)  # type: ignore[arg-type]


def load_recipe(name: str = "python", *, folder: Path | None = None) -> Recipe:
    """The recipe `name` of `folder` (a project's `sandboxes/`), or the shipped one.

    Raises:
        NotFound: there is none of that name.
        UserError: it is not what a recipe is; the sentence names file and key.
    """
    below = folder if folder is not None else shipped()
    path = below / name / "sandbox.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        known = ", ".join(sorted(p.parent.name for p in below.glob("*/sandbox.toml"))) or "none"
        raise NotFound(f"no sandbox recipe `{name}`", hint=f"recipes in {below}: {known}") from error
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    limits = table.pop("limits", {})
    if not isinstance(limits, dict):
        raise UserError(f"`limits` in {path} must be a table, not {limits!r}")
    unknown = [key for key in table if key not in ("description", "base", "tools")]
    unknown += [f"limits.{key}" for key in limits if key not in LIMITS]
    if unknown:
        raise UserError(f"unknown key `{unknown[0]}` in {path}", hint=f"limits are: {', '.join(LIMITS)}")
    for key, value in limits.items():
        if not _is_limit(key, value):
            kind = "whole number" if key in _WHOLE else "number"
            raise UserError(f"`limits.{key}` in {path} must be a positive {kind}, not {value!r}")
    tools = table.get("tools", list(TEST_TOOLS))
    if not isinstance(tools, list) or not all(isinstance(tool, str) for tool in tools):
        raise UserError(f"`tools` in {path} must be a list of distribution names")
    return Recipe(
        name=name,
        description=str(table.get("description", "")),
        base=str(table.get("base", "python:3-slim")),
        tools=tuple(tools),
        limits=limits,
        folder=path.parent,
    )


def spec_of(recipe: Recipe | None) -> SandboxSpec:
    """What sandboxes of `recipe` are made of, nothing in them yet; None: those of no recipe in particular."""
    return recipe.spec() if recipe is not None else SandboxSpec(name="python")


def _is_limit(key: str, value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if key in _WHOLE else int | float):
        return False
    # note: TOML has `nan` and `inf`, and no comparison with the first is true.
    return math.isfinite(value) and value > 0


def limits_of(spec: SandboxSpec) -> Mapping[str, float]:
    """The limits of `spec` that are not those of every sandbox.

    What is kept of a run in a sandbox is kept under these too: with more memory a test may pass that failed.
    """
    usual = SandboxSpec(name=spec.name)
    return {key: float(getattr(spec, key)) for key in LIMITS if getattr(spec, key) != getattr(usual, key)}


def shipped() -> Path:
    """The recipes that come with selfplay: inside the wheel, or beside the package in a checkout."""
    package = Path(selfplay.__file__).parent
    inside = package / "_project" / "sandboxes"
    return inside if inside.is_dir() else package.parent / "sandboxes"
