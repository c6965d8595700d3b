"""Connections are cut by their other ends; Ray is not needed for it."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from selfplay.cluster.connections import cut, ends


def test_what_waits_on_a_connection_that_is_cut_fails_and_others_do_not() -> None:
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        pairs = [(socket.create_connection(server.getsockname()), server.accept()[0]) for _ in range(2)]
        (ours, theirs), (kept, other) = pairs
        waiting = threading.Thread(target=lambda: heard.append(ours.recv(1)))
        waiting.start()
        assert {ours.getsockname(), theirs.getsockname(), kept.getsockname()} <= ends()
        assert cut({ours.getsockname()}) == 1
        waiting.join(60.0)
        assert heard == [b""]
        other.sendall(b"1")
        assert kept.recv(1) == b"1"
        for one in (ours, theirs, kept, other):
            one.close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_an_end_of_another_protocol_is_the_same_end() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        ours = socket.create_connection(("127.0.0.1", server.getsockname()[1]))
        theirs, _ = server.accept()
        with ours, theirs:
            mine = ours.getsockname()
            assert theirs.getpeername()[0] == "::ffff:127.0.0.1"
            assert cut([("127.0.0.1", 1)]) == 0
            assert cut([mine]) == 1
            assert ours.recv(1) == b""


def test_nothing_is_left_open_by_looking() -> None:
    before = len(os.listdir("/proc/self/fd"))
    ends()
    cut([("127.0.0.1", 1)])
    assert len(os.listdir("/proc/self/fd")) == before
