"""What a repository requires and what it calls itself, read from its metadata without running any of it.

Looked at, in this order, and the first one that says anything is believed: `PKG-INFO` (source distributions),
`pyproject.toml` (`project.dependencies`), `setup.cfg` (`install_requires`). Extras are left out.

Not covered: requirements that only a `setup.py` states, or a version controlled tree computes when it is built; name
them as `game.requirements`, and test dependencies too, which metadata seldom tells apart.

Example:
    >>> needs_of(fetch("pypi:python-dateutil==2.9.0.post0", cache=cache)).requirements  # doctest: +SKIP
    ('six>=1.5',)
"""

from __future__ import annotations

import configparser
import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from email.parser import HeaderParser
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from selfplay.games.code.source import Repository
from selfplay.sandbox.wheels import Wheel, pinned
from selfplay.types import digest, record


@record
class Needs:
    """What a repository's metadata says."""

    distribution: str | None
    """Its own name on an index; None where it does not say."""
    requirements: tuple[str, ...]


def needs_of(repository: Repository) -> Needs:
    """The repository's name and requirements; metadata that cannot be read is as good as none."""
    told = [_from_pkg_info(repository), _from_pyproject(repository), _from_setup_cfg(repository)]
    names = [needs.distribution for needs in told if needs.distribution]
    stated = [needs.requirements for needs in told if needs.requirements]
    return Needs(distribution=names[0] if names else None, requirements=stated[0] if stated else ())


def wheels_of(repository: Repository, *, more: Sequence[str] = (), tools: Sequence[str] = ()) -> tuple[Wheel, ...]:
    """The pinned wheels of what `repository` requires, and of `more`; its own distribution is never among them.

    Raises:
        UserError: a requirement cannot be met as it stands.
        NotReady: there are no wheels for it, or no index answers.
    """
    needs = needs_of(repository)
    return pinned([*needs.requirements, *more], tools=tools, without=needs.distribution)


def played_with(repository: Repository, wheels: Sequence[Wheel]) -> Repository:
    """The repository with a digest that tells the wheels too, since results depend on them."""
    if not wheels:
        return repository
    pins = sorted(wheel.sha256 for wheel in wheels)
    return dataclasses.replace(repository, digest=digest("played with", repository.digest, pins))


def _from_pkg_info(repository: Repository) -> Needs:
    headers = HeaderParser().parsestr(_text(repository, "PKG-INFO"))
    stated = [str(value) for value in headers.get_all("Requires-Dist", [])]
    return Needs(distribution=headers.get("Name"), requirements=tuple(r for r in stated if not _is_extra(r)))


def _from_pyproject(repository: Repository) -> Needs:
    try:
        project: Any = tomllib.loads(_text(repository, "pyproject.toml")).get("project", {})
    except tomllib.TOMLDecodeError:
        project = {}
    found: Mapping[str, Any] = project if isinstance(project, dict) else {}
    stated, name = found.get("dependencies", []), found.get("name")
    requirements = tuple(str(one) for one in stated) if isinstance(stated, list) else ()
    return Needs(distribution=name if isinstance(name, str) else None, requirements=requirements)


def _from_setup_cfg(repository: Repository) -> Needs:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(_text(repository, "setup.cfg"))
    except configparser.Error:
        return Needs(distribution=None, requirements=())
    stated = parser.get("options", "install_requires", fallback="")
    # note: `file:` and `attr:` point at what only a build could read.
    lines = [line.strip() for line in stated.splitlines() if line.strip() and not line.startswith(("file:", "attr:"))]
    return Needs(distribution=parser.get("metadata", "name", fallback=None), requirements=tuple(lines))


def _text(repository: Repository, path: str) -> str:
    try:
        return repository.read(path) if path in repository.files else ""
    except UnicodeDecodeError:
        return ""


def _is_extra(text: str) -> bool:
    """True where a requirement holds only for some extra."""
    try:
        marker = Requirement(text).marker
    except InvalidRequirement:
        return False
    return marker is not None and "extra" in str(marker) and not marker.evaluate({"extra": ""})
