from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from selfplay.sandbox import SandboxInfraError, SandboxSpec
from selfplay.sandbox.namespaces import SANDBOX_UID, enter_argv, holder_argv, inside_argv, marks_of, told, tool
from selfplay.sandbox.process import Owner

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


def test_nothing_of_the_host_but_usr_and_the_tools_is_bound() -> None:
    argv = inside_argv(SandboxSpec(name="python"), ["true"], timeout_seconds=1.0, cwd=None, env={})
    bound = {argv[n + 1] for n, word in enumerate(argv) if word in ("--bind", "--ro-bind", "--dev-bind")}
    assert "/" not in bound
    assert all(path.startswith(("/usr", "/tmp/", "/lib", "/bin", "/sbin")) for path in bound - {"/etc/ld.so.cache"})
    assert argv[-1] == "true"


def test_root_drops_its_uid_first_and_others_enter_their_user_namespace() -> None:
    as_root = enter_argv("sp-1", mount_fd=7, user_fd=None, status_fd=9)
    assert as_root.index(f"--setuid={SANDBOX_UID}") < as_root.index("--json-status-fd")
    as_user = enter_argv("sp-1", mount_fd=7, user_fd=8, status_fd=9)
    assert not any(word.startswith(("--setuid", "--setgid")) for word in as_user)
    for argv in (as_root, as_user):
        assert {"--unshare-all", "--unshare-user", "--disable-userns", "--new-session", "--clearenv"} <= set(argv)
        assert argv[argv.index("--cap-drop") + 1] == "ALL"
        found = marks_of(argv[argv.index("--json-status-fd") - 1 :])
        assert found is not None
        assert (found.owner, found.id, found.labels) == (Owner.here(), "sp-1", {})
        assert argv.index("--clearenv") > argv.index("sp-1"), "the marks reach the command"


def test_no_command() -> None:
    with pytest.raises(ValueError):
        inside_argv(SandboxSpec(name="python"), [], timeout_seconds=1.0, cwd=None, env={})


@pytest.mark.parametrize("root", [True, False])
def test_holder_has_nothing_of_the_host_that_the_way_in_does_not_need(root: bool, tmp_path: Path) -> None:
    spec = SandboxSpec(name="python", labels={"run": "r", "role": "solver"})
    argv = holder_argv(spec, sandbox_id="sp-1", environment=tmp_path, root=root, info_fd=9)
    bound = {argv[n + 1] for n, word in enumerate(argv) if word in ("--bind", "--ro-bind", "--dev-bind")}
    places = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/dev", "/proc", "/etc/ld.so.cache")
    assert bound - {os.path.realpath(sys.base_prefix)} <= {*places, str(tmp_path)}
    assert argv.index("--remount-ro") > max(argv.index(word) for word in ("--tmpfs", "--ro-bind"))
    found = marks_of(argv)
    assert found is not None
    assert found.labels == spec.labels


def test_packages_of_the_host_are_covered() -> None:
    argv = inside_argv(SandboxSpec(name="python"), ["true"], timeout_seconds=1.0, cwd=None, env={})
    seen = {argv[n + 2]: argv[n + 1] for n, word in enumerate(argv) if word == "--ro-bind"}
    for path in ("/usr/lib/python3/dist-packages", f"{sys.base_prefix}/lib/python{sys.version[:4]}/site-packages"):
        if os.path.isdir(path):
            assert seen[path].endswith("/empty")


def test_numbers_from_status_lines() -> None:
    assert told(b'{ "child-pid": 7 }\n{ "exit-code": 3 }\n', "exit-code") == 3
    assert told(b'{ "child-pid": 7 }\n', "exit-code") is None
    assert told(b'{ "child-pid": 7 }\n', "child-pid") == 7
    assert told(b"", "exit-code") is None
    assert told(b"garbage\n[]\n", "exit-code") is None


def test_missing_tool_names_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxInfraError) as caught:
        tool("bwrap")
    assert "apt-get install" in caught.value.hint
