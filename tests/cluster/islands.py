"""Network namespaces of this machine, each behind a link of its own that can be cut: nodes inside are other machines.

What a link does not carry is dropped without a word, in both directions, as by a switch that failed; inside, processes
go on reaching each other. Needs root, `ip` and `iptables`. Not here: Ray (`conftest`).
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

_NEWNET = 0x40000000
"""Linux's CLONE_NEWNET."""
_numbers = itertools.count()


class Island:
    """One namespace; `close` removes it."""

    def __init__(self) -> None:
        number = next(_numbers)
        self.name = f"selfplay-{os.getpid()}-{number}"
        # note: names of links have 15 letters at most; the addresses are those set aside for tests of networks.
        self._here, self._there = (f"sp{os.getpid() % 10**7}{end}{number}" for end in "ab")
        net = f"198.18.{os.getpid() % 256}.{4 * number}"
        base, _, last = net.rpartition(".")
        ours, self.address = (f"{base}.{int(last) + host}" for host in (1, 2))
        _run("ip", "netns", "add", self.name)
        try:
            link = ("ip", "link", "add", self._here, "type", "veth", "peer", "name", self._there)
            _run(*link, "netns", self.name)
            _run("ip", "address", "add", f"{ours}/30", "dev", self._here)
            _run("ip", "link", "set", self._here, "up")
            for words in (
                ("address", "add", f"{self.address}/30", "dev", self._there),
                ("link", "set", self._there, "up"),
                ("link", "set", "lo", "up"),
                ("route", "add", "default", "via", ours),
            ):
                _run("ip", "-n", self.name, *words)
        except BaseException:
            self.close()
            raise

    def cut(self) -> None:
        """Nothing passes any more."""
        self._drop("-I")

    def heal(self) -> None:
        """All passes again."""
        self._drop("-D")

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Processes that this thread starts meanwhile are on the island."""
        own, there = (os.open(path, os.O_RDONLY) for path in ("/proc/thread-self/ns/net", f"/run/netns/{self.name}"))
        try:
            _enter(there)
            try:
                yield
            finally:
                _enter(own)
        finally:
            os.close(own)
            os.close(there)

    def close(self) -> None:
        """Remove it; with a process still inside it ends with that."""
        for words in (("iptables", "-D", "INPUT", "-i", self._here, "-j", "DROP"), ("ip", "link", "del", self._here)):
            subprocess.run(words, capture_output=True, check=False)
        _run("ip", "netns", "del", self.name)

    def _drop(self, how: str) -> None:
        _run("iptables", how, "INPUT", "-i", self._here, "-j", "DROP")
        _run("ip", "netns", "exec", self.name, "iptables", how, "INPUT", "-i", self._there, "-j", "DROP")


def possible() -> str:
    """Why there can be none here; empty where there can."""
    if os.geteuid() != 0 or not all(shutil.which(tool) for tool in ("ip", "iptables")):
        return "network namespaces need root, ip and iptables"
    try:
        island = Island()
    except AssertionError as error:
        return f"this machine makes no network namespaces: {error}"
    try:
        island.cut()
    except AssertionError as error:
        return f"iptables does not work here: {error}"
    finally:
        island.close()
    return ""


@pytest.fixture
def islands() -> Iterator[list[Island]]:
    """Two of them."""
    if why := possible():
        pytest.skip(why)
    made: list[Island] = []
    try:
        made += [Island()]
        made += [Island()]
        yield made
    finally:
        for island in made:
            island.close()


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr.strip()}"


def _enter(descriptor: int) -> None:
    """This thread, alone, into a namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.setns(descriptor, _NEWNET) == 0, os.strerror(ctypes.get_errno())
