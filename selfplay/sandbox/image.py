"""Makes the images that Docker sandboxes start from, with a registry or without one.

An image is a base (Python 3.11 or newer) and, on top, the test tools copied from the engine's own
installation: `selfplay-NAME:DIGEST`, where the digest is that of recipe and tools, so that a changed recipe
is another image. The base is, in this order: the one named by the caller, an image or a root file system; the
recipe's, where it is here or a registry answers; a minimal Debian made by debootstrap (root only, about a
minute, cached). What a repository requires is one more layer, `selfplay-NAME-with:DIGEST`, with the digest of
the image below and of the pinned wheels.

Not covered: the repository under play (it comes in as an archive, since a tree in an image would be a clean
copy for every solver), removing old images.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, TypeVar

import docker
import docker.constants
import docker.errors
import docker.utils
import requests
import urllib3.exceptions

from selfplay.cache import cache_folder
from selfplay.errors import NotReady
from selfplay.sandbox.environment import INSIDE, Environment, tool_environment
from selfplay.sandbox.recipe import Recipe
from selfplay.sandbox.wheels import Wheel, unpack
from selfplay.types import digest

PULL_SECONDS = 30.0
BUILD_SECONDS = 300.0
BOOTSTRAP_SECONDS = 900.0
_T = TypeVar("_T")
_OLDEST = docker.constants.MINIMUM_DOCKER_API_VERSION
_SUITE = "bookworm"
_PACKAGES = ("python3", "git")
_LAYER = f"""ARG BASE
FROM ${{BASE}}
ARG VERSION=any
COPY site /opt/selfplay/site
RUN set -eu; python="{INSIDE}/bin/python -I -S"; \\
    found="$($python -c 'import sys; print("%d.%d" % sys.version_info[:2])')"; \\
    if [ "$VERSION" != any ] && [ "$VERSION" != "$found" ]; then \\
        echo "the wheels are for Python $VERSION, and the image has $found" >&2; exit 1; fi; \\
    packages="{INSIDE}/lib/python$found/site-packages"; \\
    for name in $(ls /opt/selfplay/site); do \\
        if [ -e "$packages/$name" ]; then echo "the test tools have $name already" >&2; exit 1; fi; done; \\
    cp -R /opt/selfplay/site/. "$packages/"; rm -rf /opt/selfplay/site; \\
    $python -m compileall -q "$packages"
"""
"""What adds wheels to the image below; nothing of them is run."""
# note: the client library reads an answer that comes in pieces past requests, whose exceptions are not raised then.
_FAILURES = (
    docker.errors.DockerException,
    requests.exceptions.RequestException,
    urllib3.exceptions.HTTPError,
    OSError,
)


def connect(*, timeout_seconds: float) -> Any:
    """A client of the engine that the environment names (DOCKER_HOST), else of the default socket.

    Raises:
        NotReady: no engine answers.
    """
    settings = docker.utils.kwargs_from_env()
    reach(settings.get("base_url") or "unix:///var/run/docker.sock", timeout_seconds=timeout_seconds)
    # note: not `version="auto"`, which leaves its socket open where no engine answers.
    probe = docker.APIClient(timeout=timeout_seconds, version=_OLDEST, **settings)
    try:
        spoken = str(probe.version(api_version=False)["ApiVersion"])
    except _FAILURES as error:
        raise _no_engine(error) from error
    finally:
        probe.close()
    newest = docker.constants.DEFAULT_DOCKER_API_VERSION
    version = newest if docker.utils.version_gte(spoken, newest) else spoken
    return docker.APIClient(timeout=timeout_seconds, version=version, **settings)


def reach(url: str, *, timeout_seconds: float) -> None:
    """Is there somebody behind a Unix socket? Others are not asked.

    Raises:
        NotReady: nobody listens.
    """
    # note: the client library leaves its socket open where there is nobody behind it.
    if url.startswith(("unix://", "http+unix://")):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(timeout_seconds)
            try:
                probe.connect("/" + url.partition("://")[2].lstrip("/"))
            except OSError as error:
                raise _no_engine(error) from error


def _no_engine(error: Exception) -> NotReady:
    return NotReady(
        f"no Docker engine answers: {error}",
        hint="start it (systemctl start docker), or choose --sandbox bubblewrap",
    )


def image_tag(recipe: Recipe, environment: Environment) -> str:
    """The name of the image for this recipe and these tools; a function of their content."""
    dockerfile = (recipe.folder / "Dockerfile").read_text(encoding="utf-8")
    return f"selfplay-{recipe.name}:{digest('image', dockerfile, recipe.base, environment.versions)[:16]}"


def has_image(api: Any, tag: str) -> bool:
    """Is it here?"""
    try:
        api.inspect_image(tag)
    except docker.errors.ImageNotFound:
        return False
    return True


def build_image(
    recipe: Recipe,
    *,
    base: str | None = None,
    rootfs: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> str:
    """The tag of the recipe's image, built where it is missing. May take minutes; `say` is told what it does.

    With `base` (an image's name) or `rootfs` (a tar of a root file system with Python) it is built anew from that.

    Raises:
        NotReady: no engine, no base to be had, or the build failed.
    """
    environment = tool_environment(recipe.tools)
    tag = image_tag(recipe, environment)
    api = connect(timeout_seconds=BUILD_SECONDS)
    try:
        given = base if rootfs is None else _import(api, rootfs, say=say)
        if given is None and has_image(api, tag):
            return tag
        if given is not None and not has_image(api, given):
            _ask_registry(given, say=say)
        start = given if given is not None else _base(api, recipe, say=say)
        say(f"building {tag} from {start}")
        dockerfile = (recipe.folder / "Dockerfile").read_bytes()
        _build(api, tag, _context(dockerfile, environment.packages), base=start)
        return tag
    except _FAILURES as error:
        raise NotReady(f"the image {tag} could not be built: {error}") from error
    finally:
        api.close()


def layered_image(recipe: Recipe, wheels: Sequence[Wheel], *, say: Callable[[str], None] = lambda line: None) -> str:
    """The tag of the recipe's image with `wheels` added, built where it is missing; equal pins are one image.

    Raises:
        NotReady: no engine, no image of the recipe, the wheels do not fit its Python, or the build failed.
    """
    below = image_tag(recipe, tool_environment(recipe.tools))
    api = connect(timeout_seconds=BUILD_SECONDS)
    try:
        if not has_image(api, below):
            raise NotReady(f"the Docker engine has no image `{below}`", hint=f"selfplay sandbox build {recipe.name}")
        if not wheels:
            return below
        pins = sorted(wheel.sha256 for wheel in wheels)
        tag = f"selfplay-{recipe.name}-with:{digest('layer', _LAYER, api.inspect_image(below)['Id'], pins)[:16]}"
        if not has_image(api, tag):
            say(f"building {tag}: {', '.join(f'{wheel.name} {wheel.version}' for wheel in wheels)}")
            with tempfile.TemporaryDirectory(prefix="selfplay-layer-") as folder:
                for wheel in wheels:
                    unpack(wheel, Path(folder))
                version = "any" if all(wheel.pure for wheel in wheels) else _python_version()
                _build(api, tag, _context(_LAYER.encode(), Path(folder)), base=below, version=version)
        return tag
    except _FAILURES as error:
        raise NotReady(f"the image with {len(wheels)} wheels could not be built: {error}") from error
    finally:
        api.close()


def engine_root() -> Path | None:
    """Where the engine keeps images and containers, if that is a folder of this machine.

    Raises:
        NotReady: no engine answers.
    """
    api = connect(timeout_seconds=PULL_SECONDS)
    try:
        root = Path(str(api.info()["DockerRootDir"]))
    except _FAILURES as error:
        raise _no_engine(error) from error
    finally:
        api.close()
    return root if root.is_dir() else None


def _build(api: Any, tag: str, context: io.BytesIO, *, base: str, version: str = "any") -> None:
    """Build without a network.

    Raises:
        NotReady: a step failed; the end of its output is in the sentence.
    """
    log = ""
    # note: the time-out of the client is not that of its builds.
    for line in api.build(
        fileobj=context, custom_context=True, tag=tag, rm=True, forcerm=True, decode=True, timeout=BUILD_SECONDS,
        network_mode="none", buildargs={"BASE": base, **({"VERSION": version} if version != "any" else {})},
    ):  # fmt: skip
        log += line.get("stream", "")
        if "error" in line:
            said = f"the image {tag} could not be built: {line['error'].strip()}: {log.strip()[-500:]}"
            fix = f"selfplay sandbox build --base python:{version}-slim" if version != "any" else ""
            raise NotReady(said, hint=fix)


def _base(api: Any, recipe: Recipe, *, say: Callable[[str], None]) -> str:
    imported = f"selfplay-base:{digest('base', _SUITE, _PACKAGES)[:16]}"
    for name in (recipe.base, imported):
        if has_image(api, name):
            return name
    say(f"asking the registry for {recipe.base} (given up after {PULL_SECONDS:.0f} s of silence)")
    if _pull(recipe.base):
        return recipe.base
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        raise NotReady(
            f"no registry gives {recipe.base}, and a base can be made only as root with debootstrap",
            hint="as root: apt-get install -y debootstrap && selfplay doctor --fix; or name an image that is here",
        )
    return _import(api, _rootfs(imported, say=say), say=say, name=imported)


def _import(api: Any, rootfs: Path, *, say: Callable[[str], None], name: str | None = None) -> str:
    """The image made of a root file system; its name tells its content where none is given."""
    if name is None:
        with rootfs.open("rb") as file:
            name = f"selfplay-base:{hashlib.file_digest(file, 'sha256').hexdigest()[:16]}"
        if has_image(api, name):
            return name
    say(f"importing {rootfs}")
    repository, _, label = name.partition(":")

    def imported() -> str:
        return str(api.import_image_from_file(str(rootfs), repository=repository, tag=label))

    answer = _within(BUILD_SECONDS, imported, what=f"the import of {rootfs}")
    if not has_image(api, name):
        raise NotReady(f"{rootfs} could not be imported: {answer.strip()[-300:]}", hint="give a plain or gzipped tar")
    return name


def _ask_registry(name: str, *, say: Callable[[str], None]) -> None:
    say(f"asking the registry for {name} (given up after {PULL_SECONDS:.0f} s of silence)")
    if not _pull(name):
        raise NotReady(
            f"there is no image `{name}` here, and no registry gives it", hint="docker images; or give --rootfs TAR"
        )


def _pull(name: str) -> bool:
    # note: a client of its own, because the time-out of this call must not be the build's.
    api = connect(timeout_seconds=PULL_SECONDS)
    # note: a registry's port has a colon too, and a digest is no tag.
    repository, label = docker.utils.parse_repository_tag(name)
    heard = [time.monotonic()]

    def pulled() -> bool:
        try:
            for line in api.pull(repository, tag=label or "latest", stream=True, decode=True):
                heard.append(time.monotonic())
                if "error" in line:
                    return False
            return has_image(api, name)
        finally:
            api.close()

    try:
        return _within(PULL_SECONDS, pulled, what=f"the pull of {name}", since=lambda: heard[-1])
    except _FAILURES:
        return False


def _within(seconds: float, ask: Callable[[], _T], *, what: str, since: Callable[[], float] | None = None) -> _T:
    """What `ask` returns or raises, `seconds` after its begin at the latest, or after `since` (by the monotonic clock).

    Raises:
        TimeoutError: it takes longer. It goes on by itself then, on a thread that keeps nobody from ending.
    """
    # note: the client library pulls and imports without any time-out, whatever it was told.
    answer: Future[_T] = Future()

    def body() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001
            # Carried over to the caller's thread, where it is raised.
            answer.set_exception(error)

    began = time.monotonic()
    threading.Thread(target=body, name="selfplay-image", daemon=True).start()
    while (left := (since() if since else began) + seconds - time.monotonic()) > 0:
        wait([answer], timeout=left)
        if answer.done():
            return answer.result()
    raise TimeoutError(f"{what} took longer than {seconds:.0f} s")


def _rootfs(name: str, *, say: Callable[[str], None]) -> Path:
    """A tar of a minimal Debian with Python and git, from the cache or from debootstrap."""
    path = cache_folder() / "rootfs" / f"{name.partition(':')[2]}.tar"
    if path.is_file():
        return path
    say("making a minimal Debian with debootstrap, once (about a minute)")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".rootfs-", dir=path.parent) as folder:
        root = Path(folder) / "root"
        _ran(["debootstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}", _SUITE, str(root)])
        aside = Path(folder) / "rootfs.tar"
        skip = [f"--exclude=./{place}/*" for place in ("dev", "proc", "sys", "var/cache/apt", "var/lib/apt/lists")]
        _ran(["tar", "-C", str(root), *skip, "-cf", str(aside), "."])
        aside.rename(path)
    return path


def _ran(argv: Sequence[str]) -> None:
    """Run it to its end.

    Raises:
        NotReady: it failed or took too long; the end of what it said is in the sentence.
    """
    try:
        done = subprocess.run(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=BOOTSTRAP_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise NotReady(f"{argv[0]} took longer than {BOOTSTRAP_SECONDS:.0f} s") from error
    if done.returncode != 0:
        raise NotReady(f"{argv[0]} failed: {done.stdout.decode(errors='replace').strip()[-500:]}")


def _context(dockerfile: bytes, site: Path) -> io.BytesIO:
    """What the Dockerfile sees: itself, and modules under `site/`."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        # Bytecode of this interpreter is of no use to another one.
        if "__pycache__" in member.name:
            return None
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        return member

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        member = tarfile.TarInfo("Dockerfile")
        member.size = len(dockerfile)
        tar.addfile(member, io.BytesIO(dockerfile))
        tar.add(site, arcname="site", filter=plain)
    buffer.seek(0)
    return buffer


def _python_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
