"""What an installation exposes: `selfplay`, its metadata, and nothing else; the data folders lie inside."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

TOP_LEVEL = ("roles", "curricula", "sandboxes", "runs", "tests")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is built, so that building leaves nothing in the working tree."""
    import shutil

    copy = tmp_path_factory.mktemp("checkout")
    for name in ("selfplay", "roles", "curricula", "sandboxes"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> Path:
    """The wheel, built with the installed back end."""
    return checkout / "dist" / build(checkout, "build_wheel")


def build(checkout: Path, hook: str) -> str:
    """Call a hook of the build back end in `checkout`; the name of the file it made."""
    code = f"import hatchling.build; print(hatchling.build.{hook}('dist'))"
    (checkout / "dist").mkdir(exist_ok=True)
    done = subprocess.run([sys.executable, "-c", code], cwd=checkout, capture_output=True, text=True, check=True)
    return done.stdout.split()[-1]


def test_top_level_names(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"selfplay"}
    assert len(tops) == 2


def test_data_folders_lie_inside_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for folder in ("roles", "curricula", "sandboxes"):
        tracked = [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        assert tracked
        for path in tracked:
            assert f"selfplay/_project/{path.relative_to(ROOT)}" in names


def test_data_lies_beside_its_code(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    attacks = ROOT / "selfplay" / "games" / "code" / "attacks"
    rows = list(attacks.rglob("*.toml"))
    assert len(rows) > 6
    assert {str(path.relative_to(ROOT)) for path in rows} <= names


def test_the_wheel_alone_finds_its_data(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = (
        f"import importlib.util, sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
        "from selfplay.project import find_project\n"
        "project = find_project(explicit=None)\n"
        "print(project.shipped, project.load_role('injector').name, project.find('curriculum', 'quickstart').name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(tmp_path / "site" / "selfplay" / "_project"), "injector", "quickstart.toml"]


def test_an_editable_install_exposes_nothing_else(checkout: Path, tmp_path: Path) -> None:
    name = build(checkout, "build_editable")
    venv.create(tmp_path / "env", with_pip=False, system_site_packages=False)
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(checkout / "dist" / name) as archive:
        archive.extractall(site)
    import editables

    # The one dependency of an editable install, which pip would fetch.
    (site / "editables").symlink_to(Path(editables.__file__).parent)
    names = (*TOP_LEVEL, "selfplay")
    code = f"import importlib.util as u; print([n for n in {names!r} if u.find_spec(n) is not None])"
    python = tmp_path / "env" / "bin" / "python"
    done = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['selfplay']"
