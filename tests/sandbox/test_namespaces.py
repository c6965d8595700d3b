from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from selfplay.sandbox import SandboxInfraError, SandboxSpec
from selfplay.sandbox.namespaces import enter_argv, exit_code_of, inside_argv, owner_of, tool
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
    assert as_root.index("--reuid") < as_root.index("--json-status-fd")
    as_user = enter_argv("sp-1", mount_fd=7, user_fd=8, status_fd=9)
    assert not any(word.endswith("setpriv") for word in as_user)
    for argv in (as_root, as_user):
        assert {"--unshare-all", "--unshare-user", "--disable-userns", "--new-session", "--clearenv"} <= set(argv)
        assert argv[argv.index("--cap-drop") + 1] == "ALL"
        found = owner_of(argv[argv.index("--json-status-fd") - 1 :])
        assert found is not None
        assert (found[0], found[1]) == (Owner.here(), "sp-1")
        assert argv.index("--clearenv") > argv.index("sp-1"), "the marks reach the command"


def test_no_command() -> None:
    with pytest.raises(ValueError):
        inside_argv(SandboxSpec(name="python"), [], timeout_seconds=1.0, cwd=None, env={})


def test_exit_code_from_status_lines() -> None:
    assert exit_code_of(b'{ "child-pid": 7 }\n{ "exit-code": 3 }\n') == 3
    assert exit_code_of(b'{ "child-pid": 7 }\n') is None
    assert exit_code_of(b"") is None
    assert exit_code_of(b"garbage\n") is None


def test_missing_tool_names_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxInfraError) as caught:
        tool("bwrap")
    assert "apt-get install" in caught.value.hint
