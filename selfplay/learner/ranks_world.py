"""What the ranks of one learner say to each other, and which micro-batch each of them takes.

A *rank* is one process of several that hold a part of the weights each and learn from one batch together, by
`torch.distributed`. All of them make the same calls in the same order. A *round* is one micro-batch on every rank: the
weights are gathered for it layer by layer, so that every rank must take part in each, also where it has nothing to
learn from; it then takes a micro-batch whose tokens weigh nothing.

The partition is that of one process, so every micro-batch has the same bits; the gradient is their sum in another
order. Not here: the weights (`ranks_shards`), the processes (`ranks`).
"""

from __future__ import annotations

import datetime
import fcntl
import os
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from selfplay.learner.batch import num_trained, pack
from selfplay.learner.roles import last_parts
from selfplay.learner.tally import Seen
from selfplay.types import Sample, record

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

COLLECTIVE_SECONDS = 1800.0
"""Longest that a rank waits for another inside an update, and for all of them to begin."""
_SIOCGIFADDR = 0x8915
"""Linux's request for the address of an interface."""
_VALUES = 4
"""Numbers that are kept of a trained token (`tally.Seen`)."""


class Apart(Exception):
    """A rank failed inside a round, where the others wait for it; its cause says why. That rank must end."""


@record
class Turn:
    """One micro-batch on this rank."""

    part: int
    """Position in the partition."""
    counts: bool = True
    """False where the rank has nothing to learn from in this round."""
    ends: int | None = None
    """The last part of a role whose micro-batches are all done after this round."""


def alone(parts: Sequence[Sequence[int]]) -> list[Turn]:
    """The turns of a learner of one process: its parts in their order."""
    return [Turn(part=index, ends=index) for index in range(len(parts))]


def turns(samples: Sequence[Sample], parts: Sequence[Sequence[int]], *, rank: int, size: int) -> list[Turn]:
    """The turns of `rank` of `size`: as many for each, role after role, parts of like length in the same round."""
    costs = [sum(len(samples[member].token_ids) for member in part) for part in parts]
    idle = min(range(len(parts)), key=lambda part: (costs[part], part))
    found: list[Turn] = []
    begin = 0
    for end in sorted(last_parts(samples, parts)) or [len(parts) - 1]:
        longest_first = sorted(range(begin, end + 1), key=lambda part: (-costs[part], part))
        for start in range(0, len(longest_first), size):
            own = longest_first[start : start + size][rank : rank + 1]
            ends = end if start + size >= len(longest_first) else None
            found.append(Turn(part=own[0] if own else idle, counts=bool(own), ends=ends))
        begin = end + 1
    return found


class World:
    """This process among the ranks, once all of them have met."""

    def __init__(self, *, rank: int, size: int) -> None:
        from torch.distributed.device_mesh import init_device_mesh

        self.rank = rank
        self.size = size
        self.mesh: DeviceMesh = init_device_mesh("cpu", (size,))

    @classmethod
    def meet(cls, file: Path, *, rank: int, size: int, seconds: float = COLLECTIVE_SECONDS) -> World:
        """Wait for the others, who name the same `file` of this machine.

        Raises:
            RuntimeError: they did not come in `seconds`.
        """
        import torch.distributed as dist

        # note: else gloo looks for the address of this machine's name, which need not have one.
        if "lo" in (name for _, name in socket.if_nameindex()):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        return cls._through(dist.FileStore(str(file), size), rank, size, seconds)  # type: ignore[attr-defined]

    @classmethod
    def lead(cls, host: str, *, size: int, tell: Callable[[int], None], seconds: float = COLLECTIVE_SECONDS) -> World:
        """Be rank 0 of ranks on several machines: listen at `host`, an address of this one, and `tell` the port.

        Raises:
            RuntimeError: the others did not come in `seconds`.
        """
        _speak_by(host)
        store = _store(host, 0, size, seconds)
        tell(store.port)
        return cls._through(store, 0, size, seconds)

    @classmethod
    def follow(cls, host: str, port: int, *, rank: int, size: int, seconds: float = COLLECTIVE_SECONDS) -> World:
        """Be another rank, of those that meet where rank 0 listens.

        Raises:
            RuntimeError: they did not come in `seconds`.
        """
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as towards:
            towards.connect((host, port))
            _speak_by(towards.getsockname()[0])
        return cls._through(_store(host, port, size, seconds), rank, size, seconds)

    @classmethod
    def _through(cls, store: Any, rank: int, size: int, seconds: float) -> World:
        import torch.distributed as dist

        wait = datetime.timedelta(seconds=seconds)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=wait)
        return cls(rank=rank, size=size)

    @classmethod
    def of_torchrun(cls) -> World:
        """This process among those that `torchrun` started, which may be on several machines.

        Raises:
            ValueError: `torchrun` did not start it.
        """
        import torch.distributed as dist

        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=COLLECTIVE_SECONDS))
        return cls(rank=dist.get_rank(), size=dist.get_world_size())

    @staticmethod
    def part() -> None:
        """Leave; nothing may be asked of the others any more."""
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()

    @property
    def leads(self) -> bool:
        """Is this rank 0, which has the whole compute copy and writes saves?"""
        return self.rank == 0

    def turns(self, samples: Sequence[Sample], parts: Sequence[Sequence[int]]) -> list[Turn]:
        """The turns of this rank."""
        return turns(samples, parts, rank=self.rank, size=self.size)

    def total(self, number: float) -> float:
        """Sum over the ranks, in float64."""
        return float(self.summed(torch.tensor([number], dtype=torch.float64))[0])

    def joined(
        self,
        samples: Sequence[Sample],
        parts: Sequence[Sequence[int]],
        losses: Mapping[int, float],
        seen: Mapping[int, Seen],
    ) -> tuple[dict[int, float], dict[int, Seen]]:
        """What all ranks found: the loss of each part, what was seen of each member; in the order of one process.

        Sums of one number and zeros: the numbers are not changed.
        """
        loss_P = torch.zeros(len(parts), dtype=torch.float64)
        for part, loss in losses.items():
            loss_P[part] = loss
        members = [member for part in parts for member in pack(samples, part).members]
        lengths = [num_trained(samples[member]) for member in members]
        wide = torch.float64 if any(one.logprob_T.dtype == torch.float64 for one in seen.values()) else torch.float32
        values = torch.zeros(_VALUES, sum(lengths), dtype=wide)
        for member, own in zip(members, values.split_with_sizes(lengths, 1), strict=True):
            if member in seen:
                one = seen[member]
                own.copy_(torch.stack([one.logprob_T, one.old_T, one.entropy_T, one.loss_T]))
        self.summed(loss_P)
        self.summed(values)
        found = {
            member: Seen(logprob_T=own[0], old_T=own[1], entropy_T=own[2], loss_T=own[3])
            for member, own in zip(members, values.split_with_sizes(lengths, 1), strict=True)
        }
        return dict(enumerate(loss_P.tolist())), found

    def shard(self, whole: Tensor) -> Tensor:
        """This rank's rows of a tensor; all of a number. As `torch.distributed.tensor.Shard(0)` cuts it."""
        if whole.ndim == 0:
            return whole
        pieces = whole.chunk(self.size, dim=0)
        return pieces[self.rank] if self.rank < len(pieces) else whole[:0]

    def summed(self, values: Tensor) -> Tensor:
        """Their sum over the ranks, in place."""
        import torch.distributed as dist

        dist.all_reduce(values)
        return values


def _store(host: str, port: int, size: int, seconds: float) -> Any:
    """Where ranks find each other: made where `port` is 0, else come to."""
    import torch.distributed as dist

    kind: Any = vars(dist)["TCPStore"]
    wait = datetime.timedelta(seconds=seconds)
    return kind(host, port, size, is_master=not port, timeout=wait, wait_for_workers=False)


def _speak_by(address: str) -> None:
    """Let gloo use the network interface that has `address`; else it looks for that of this machine's name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                found = fcntl.ioctl(asking, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(found[20:24]) == address:
                    os.environ["GLOO_SOCKET_IFNAME"] = name
