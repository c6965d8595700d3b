"""Pins what a repository requires: exact wheels, by sha256, fetched once and unpacked without running any of them.

Covered: resolving requirement strings to a closed set of wheels with pip on its configured index (binary only), what
the test tools already give, keeping wheels and pins in the cache (afterwards no index is asked), and unpacking.

Not covered: packages without a wheel, extras of the repository itself, entry points and scripts, and a dependency that
names another one by URL (pip would follow it; the ones given here may not).

Example:
    >>> [wheel.filename for wheel in pinned(["six>=1.5"])]  # doctest: +SKIP
    ['six-1.17.0-py2.py3-none-any.whl']
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from selfplay.cache import cache_folder
from selfplay.errors import NotReady, UserError
from selfplay.types import digest, record

FETCH_SECONDS = 600.0
MAX_BYTES = 1 << 30
"""Largest sum of files unpacked from one wheel."""
_FORMAT = 1


@record
class Wheel:
    """One pinned wheel, in the cache."""

    name: str
    version: str
    filename: str
    sha256: str

    @property
    def path(self) -> Path:
        """Where it lies."""
        return cache_folder() / "wheels" / self.sha256 / self.filename

    @property
    def pure(self) -> bool:
        """True where it fits every interpreter and machine."""
        return self.filename.endswith("-none-any.whl")


def pinned(requirements: Iterable[str], *, tools: Sequence[str] = (), without: str | None = None) -> tuple[Wheel, ...]:
    """The wheels that `requirements` come to on this interpreter, sorted by name; empty where nothing is asked for.

    `tools` are `name==version` pins that the sandbox has anyway; `without` is the repository's own distribution, which
    must never be there. Equal questions have equal answers: the first one is kept.

    Raises:
        UserError: a requirement is none, is a URL, or does not go with a tool's version.
        NotReady: there are no wheels for it, or no index answers.
    """
    had = dict(tool.split("==", 1) for tool in tools)
    wanted = _wanted(requirements, had=had, without=without)
    if not wanted:
        return ()
    machine = (sys.version_info[:2], sys.implementation.name, platform.system(), platform.machine())
    key = digest("pins", _FORMAT, wanted, sorted(tools), without, machine)
    record_file = cache_folder() / "pins" / f"{key}.json"
    kept = _kept(record_file)
    if kept is not None:
        return kept
    found = _fetch(wanted, had=had, without=without)
    record_file.parent.mkdir(parents=True, exist_ok=True)
    aside = record_file.with_suffix(f".{os.getpid()}")
    rows = [{"name": w.name, "version": w.version, "filename": w.filename, "sha256": w.sha256} for w in found]
    aside.write_text(json.dumps({"requirements": wanted, "wheels": rows}, indent=1), encoding="utf-8")
    aside.replace(record_file)
    return found


def unpack(wheel: Wheel, packages: Path, *, taken: frozenset[str] = frozenset()) -> None:
    """Write a wheel's modules under `packages`; nothing of it is run. Scripts, headers and data are left out.

    Raises:
        NotReady: its file is not what was pinned, or it would write over a name in `taken` or outside.
    """
    if not wheel.path.is_file() or _sha256(wheel.path) != wheel.sha256:
        shutil.rmtree(wheel.path.parent, ignore_errors=True)
        raise NotReady(
            f"{wheel.filename} in the cache is gone or damaged", hint="type the same command again: it is fetched anew"
        )
    with zipfile.ZipFile(wheel.path) as packed:
        members = [(place, entry) for entry in packed.infolist() if (place := _place(entry)) is not None]
        if sum(entry.file_size for _, entry in members) > MAX_BYTES:
            raise NotReady(f"{wheel.filename} unpacks to more than {MAX_BYTES >> 20} MiB")
        for place, entry in members:
            if place.parts[0] in taken:
                raise NotReady(f"{wheel.filename} would write over `{place.parts[0]}`, which the test tools have")
            target = packages.joinpath(*place.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            with packed.open(entry) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink)


def _wanted(requirements: Iterable[str], *, had: Mapping[str, str], without: str | None) -> list[str]:
    """The requirements that hold here and that the tools do not meet, canonical and sorted."""
    wanted: set[str] = set()
    for text in requirements:
        try:
            parsed = Requirement(text)
        except InvalidRequirement as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"`{text}` is no requirement: {reason}", hint="write e.g. six>=1.5") from error
        if parsed.url is not None:
            raise UserError(
                f"`{text}` names a URL, and only wheels of the package index are taken", hint=f"write {parsed.name}"
            )
        if parsed.marker is not None and not parsed.marker.evaluate({"extra": ""}):
            continue
        name = canonicalize_name(parsed.name)
        if name in had:
            if not parsed.specifier.contains(had[name], prereleases=True):
                raise UserError(
                    f"`{text}` does not go with the sandbox's {name} {had[name]}",
                    hint=f"pip install '{name}{parsed.specifier}' beside selfplay, or choose another repository",
                )
        elif without is None or name != canonicalize_name(without):
            parsed.marker = None
            wanted.add(str(parsed))
    return sorted(wanted)


def _fetch(wanted: Sequence[str], *, had: Mapping[str, str], without: str | None) -> tuple[Wheel, ...]:
    """Ask pip, and put what it brought into the cache."""
    folder = cache_folder() / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=folder) as scratch:
        _download(wanted, had=had, scratch=Path(scratch))
        brought = sorted((Path(scratch) / "to").iterdir())
        found = [wheel for path in brought if (wheel := _wheel(path)) is not None]
        own = canonicalize_name(without) if without is not None else None
        kept = [wheel for wheel in found if wheel.name not in had and wheel.name != own]
        for wheel in kept:
            wheel.path.parent.mkdir(exist_ok=True)
            (Path(scratch) / "to" / wheel.filename).replace(wheel.path)
    return tuple(sorted(kept, key=lambda wheel: wheel.name))


def _download(wanted: Sequence[str], *, had: Mapping[str, str], scratch: Path) -> None:
    """`pip download` of wheels only: a source archive would run its set-up code here."""
    (scratch / "to").mkdir()
    (scratch / "wanted").write_text("\n".join(wanted), encoding="utf-8")
    (scratch / "had").write_text("\n".join(f"{name}=={version}" for name, version in had.items()), encoding="utf-8")
    argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet"]
    argv += ["--only-binary", ":all:", "--progress-bar", "off", "--dest", str(scratch / "to")]
    argv += ["--constraint", str(scratch / "had"), "--requirement", str(scratch / "wanted")]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False, cwd=scratch)
    except subprocess.TimeoutExpired as error:
        raise NotReady(f"pip took longer than {FETCH_SECONDS:.0f} s for {', '.join(wanted)}") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        said = [line for line in lines if line.startswith("ERROR:") and not line.endswith(":")] or lines
        reason = said[-1].removeprefix("ERROR: ")[:300] if said else f"exit code {done.returncode}"
        raise NotReady(
            f"no wheels for {', '.join(wanted)}: {reason}",
            hint="only wheels are taken, since anything else would run code here; check: pip config list",
        )


def _wheel(path: Path) -> Wheel | None:
    try:
        name, version, _, _ = parse_wheel_filename(path.name)
    except InvalidWheelFilename:
        return None
    return Wheel(name=str(name), version=str(version), filename=path.name, sha256=_sha256(path))


def _kept(file: Path) -> tuple[Wheel, ...] | None:
    """The pins of an earlier call, where every wheel is still there."""
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))["wheels"]
        wheels = tuple(Wheel(**row) for row in rows)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return wheels if all(wheel.path.is_file() for wheel in wheels) else None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _place(entry: zipfile.ZipInfo) -> PurePosixPath | None:
    """Where an entry belongs under site-packages; None for what is no module or metadata."""
    path = PurePosixPath(entry.filename)
    if entry.is_dir() or path.is_absolute() or ".." in path.parts or "\\" in entry.filename:
        return None
    if path.parts[0].endswith(".data"):
        return PurePosixPath(*path.parts[2:]) if path.parts[1:2] in (("purelib",), ("platlib",)) else None
    return path
