"""The TCP connections of this process, whoever made them: their ends, and how to cut some of them.

What waits on a connection that is cut fails at once, in whatever library it waits. Linux alone.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Collection, Iterator
from typing import Any

End = tuple[str, int]
"""The address and the port of a process's side of a connection."""


def ends() -> set[End]:
    """Those of this process's connections over TCP."""
    found = set()
    for held in _connections():
        with contextlib.suppress(OSError):
            found.add(_plain(held.getsockname()))
    return found


def cut(peers: Collection[End]) -> int:
    """End this process's connections to these ends of others; how many there were."""
    count = 0
    for held in _connections():
        with contextlib.suppress(OSError):
            if _plain(held.getpeername()) in peers:
                held.shutdown(socket.SHUT_RDWR)
                count += 1
    return count


def _connections() -> Iterator[socket.socket]:
    """This process's, over TCP, each by a descriptor of its own that lives for a moment."""
    for name in os.listdir("/proc/self/fd"):
        # note: descriptors come and go, and most are no sockets.
        with contextlib.suppress(OSError), _socket(int(name)) as held:
            if held.family in (socket.AF_INET, socket.AF_INET6) and held.type == socket.SOCK_STREAM:
                yield held


def _socket(number: int) -> socket.socket:
    own = os.dup(number)
    try:
        return socket.socket(fileno=own)
    except OSError:
        os.close(own)
        raise


def _plain(address: tuple[Any, ...]) -> End:
    """An address of a socket that speaks both protocols is as that of one that speaks the older."""
    return str(address[0]).removeprefix("::ffff:"), int(address[1])
