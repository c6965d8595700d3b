"""The archives that a sandbox node holds in memory, by digest; those that nobody uses any more make room.

A run over many trees has an archive for each. A file without a folder holds one, so that it ends with the process,
however that ends. Not here: who brings them (`remote`), what is made of them (`node`).

Example:
    >>> archives = Archives(room_bytes=0, kept=1)
    >>> archives.take("one", b"1"), archives.take("two", b"2")
    ((), ('one',))
    >>> with open(archives.hold("two"), "rb") as file:
    ...     file.read()
    b'2'
"""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass

from selfplay.sandbox import SandboxInfraError

ROOM_BYTES = 1 << 30
KEPT = 16
"""Archives used last that stay in any case: a pool refills from the ones of `pool.SPECS` specs, on its own."""


@dataclass(slots=True)
class _Held:
    descriptor: int
    size: int
    users: int = 0


class Archives:
    """Takes them, tells where they are, and lets go of what was used least lately.

    Args:
        room_bytes: of what is kept beside the ones in use and the last `kept`.
    """

    def __init__(self, *, room_bytes: int = ROOM_BYTES, kept: int = KEPT) -> None:
        self._room, self._kept = room_bytes, kept
        self._held: OrderedDict[str, _Held] = OrderedDict()
        """The ones used last are at the end."""

    def take(self, name: str, content: bytes) -> tuple[str, ...]:
        """Hold an archive; the names of those that made room for it."""
        if name not in self._held:
            self._held[name] = _Held(descriptor=_in_memory(name, content), size=len(content))
        self._held.move_to_end(name)
        return self._make_room()

    def hold(self, name: str) -> str:
        """Where it can be opened, by this process and its children, until `release`.

        Raises:
            SandboxInfraError: it is not here.
        """
        if name not in self._held:
            raise SandboxInfraError(f"archive {name[:12]} made room for others")
        held = self._held[name]
        held.users += 1
        self._held.move_to_end(name)
        return f"/proc/{os.getpid()}/fd/{held.descriptor}"

    def release(self, name: str) -> None:
        """One of those that hold it does so no more."""
        self._held[name].users -= 1

    def _make_room(self) -> tuple[str, ...]:
        total, dropped = sum(held.size for held in self._held.values()), []
        for name in list(self._held)[: -self._kept]:
            if total <= self._room:
                break
            if not self._held[name].users:
                held = self._held.pop(name)
                os.close(held.descriptor)
                total -= held.size
                dropped.append(name)
        return tuple(dropped)


def _in_memory(name: str, content: bytes) -> int:
    """The descriptor of a file without a folder."""
    number = os.memfd_create(name)
    with open(number, "wb", closefd=False) as file:
        file.write(content)
    return number
