"""Being part of a Ray cluster: the one of `RAY_ADDRESS`, else one of this machine alone that ends with the run.

Whoever needs the cluster joins and leaves; Ray is told once, at the first and at the last. What does not fit is said
before an actor is made: Ray absent or of another version, an address where nobody answers, fewer resources than asked.
Whoever joined is told when the cluster's head is lost.

Not here: actors (`sandboxes`, `ranks`), how the head is looked at (`head`).
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from selfplay.cluster import ENGINE_RESOURCE, RESOURCE
from selfplay.cluster.head import Told, Watch, reach
from selfplay.errors import NotReady

ADDRESS = "RAY_ADDRESS"
INSTALL = "pip install 'selfplay-curriculum[ray]', the same version on every node"
OBJECTS = 80 << 20
"""Bytes of shared memory of a cluster that is started here: archives and batches pass through it."""
TRIES = 2
"""Of starting it: a node whose agents are not there in 15 seconds ends itself; a loaded machine is enough."""
LESS = {RESOURCE: "-s 'run.cluster={sandboxes = N}'", ENGINE_RESOURCE: "-s 'run.cluster={engines = N}'"}
"""How to ask for less of a place."""
_ANSWER_SECONDS = 5.0

_lock = threading.Lock()
_keeper = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ray")
"""Ray's processes end with the thread that started them, and on the main thread Ray would take SIGTERM for itself."""
_joined = 0
_head: Watch | None = None
"""Of the cluster that was joined last."""
_listening: list[Told] = []
"""Who is told of a loss without having joined."""


def join(whole: Mapping[str, float], *, part: str, told: Told | None = None) -> None:
    """Be part of a cluster that has as much of the resource `part` as `whole` says; `leave` once it is not needed.

    A cluster of this machine alone is given the `whole` by the first to join. `told` is called if its head is lost.

    Raises:
        NotReady: there is no such cluster, or it was joined before and its head is lost; the sentence says why.
    """
    global _joined, _head
    with _lock:
        if not _joined:
            _head = _keeper.submit(_connect, whole).result()
            for one in _listening:
                _head.tell(one)
        _joined += 1
        assert _head is not None, "it was joined"
        if told is not None:
            _head.tell(told)
    try:
        # note: without its head, Ray would be asked for what there is until it ends this process.
        if (gone := lost()) is not None:
            raise gone
        _refuse_small(part, whole[part])
    except BaseException:
        leave(told)
        raise


def leave(told: Told | None = None) -> None:
    """Not need the cluster any more: the last to leave disconnects, and stops what was started here."""
    global _joined
    with _lock:
        assert _head is not None, "it was joined"
        if told is not None:
            _head.forget(told)
        _joined -= 1
        if not _joined:
            _head.close()
            _keeper.submit(_disconnect).result()


@contextlib.contextmanager
def telling(told: Told) -> Iterator[None]:
    """While inside, `told` is called if the head is lost of a cluster that is joined meanwhile, before who joined."""
    with _lock:
        _listening.append(told)
        if _head is not None and _joined:
            _head.tell(told)
    try:
        yield
    finally:
        with _lock:
            _listening.remove(told)
            if _head is not None:
                _head.forget(told)


def lost() -> NotReady | None:
    """Why the cluster that was joined last is no more; None where it is, or was left before."""
    return None if _head is None else _head.lost


def _disconnect() -> None:
    import ray

    ray.shutdown()


def kill(actor: Any) -> None:
    """End an actor's process, whatever it does; it ends by itself where the head is lost."""
    import ray

    if lost() is None:  # note: without its head, Ray waits for it until it ends this process.
        with contextlib.suppress(Exception):
            ray.kill(actor)


def cancel(answer: Any) -> None:
    """Have the actor drop what it was asked, if it can; nothing where the head is lost."""
    import ray

    if lost() is None:  # note: as above.
        with contextlib.suppress(Exception):
            ray.cancel(answer)


def _connect(whole: Mapping[str, float]) -> Watch:
    if importlib.util.find_spec("ray") is None:
        raise NotReady("run.cluster asks for Ray, and it is not installed", hint=INSTALL)
    address = os.environ.get(ADDRESS, "")
    if address:
        from selfplay.cluster import looking

        # note: a process of its own comes to it first, for what listens there and is no cluster gives no answer.
        looking.asked(address, seconds=looking.ANSWER_SECONDS)
    import ray

    own = {
        "num_cpus": whole["CPU"],
        "resources": {name: number for name, number in whole.items() if name != "CPU"},
        "object_store_memory": OBJECTS,
        "include_dashboard": False,
    }
    there = {"address": address} if address else {"address": "local", **own}
    for left in reversed(range(1 if address else TRIES)):
        try:
            ray.init(**there, logging_level=logging.CRITICAL, log_to_driver=False)
        except Exception as error:
            with contextlib.suppress(Exception):
                ray.shutdown()
            if not left:
                raise unconnected(address, str(error)) from error
        else:
            return Watch(ray.get_runtime_context().gcs_address)
    raise AssertionError("the last try returns or raises")


def unconnected(address: str, said: str) -> NotReady:
    """What Ray said where it took no driver, or, without an address, started no cluster."""
    said = " ".join(said.split())[:300]
    if "ersion mismatch" in said:
        return NotReady(f"the Ray cluster at {address} is of another version: {said}", hint=INSTALL)
    if address:
        return NotReady(
            f"the Ray cluster at {address} ({ADDRESS}) takes no driver: {said}",
            hint="look: ray status; or use this machine alone: unset RAY_ADDRESS",
        )
    return NotReady(f"no Ray cluster could be started on this machine: {said}", hint="see /tmp/ray/session_latest/logs")


def refuse_silent(address: str) -> None:
    """Ray itself waits for minutes, and then ends the process.

    Raises:
        NotReady: nobody answers at `address`.
    """
    _, colon, port = address.rpartition(":")
    if address in ("auto", "local") or "://" in address or not colon or not port.isdecimal():
        raise NotReady(
            f"{ADDRESS} is `{address}`, and the address of a cluster's head is asked for",
            hint=f"export {ADDRESS}=HOST:6379, or unset it",
        )
    try:
        reach(address, seconds=_ANSWER_SECONDS)
    except (OSError, OverflowError) as error:
        raise NotReady(
            f"no Ray cluster answers at {address} ({ADDRESS}): {error}",
            hint=f"start it: ray start --head; or use this machine alone: unset {ADDRESS}",
        ) from error


def _refuse_small(name: str, asked: float) -> None:
    import ray

    found = ray.cluster_resources().get(name, 0)
    if found < asked:
        more = "--num-cpus=N" if name == "CPU" else f"--resources='{{\"{name}\": 1}}'"
        less = LESS.get(name, "-s learner.ranks=N -s policy.threads=N")
        raise NotReady(
            f"the Ray cluster has {found:g} of `{name}`, and {asked:g} are asked for",
            hint=f"add a node: ray start --address=HOST:6379 {more}; or ask for less: {less}",
        )
