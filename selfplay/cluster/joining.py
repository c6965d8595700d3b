"""Being part of a Ray cluster: the one of `RAY_ADDRESS`, else one of this machine alone that ends with the run.

Whoever needs the cluster joins and leaves; Ray is told once, at the first and at the last. What does not fit is said
before an actor is made: Ray absent or of another version, an address where nobody answers, fewer resources than asked.

Not here: actors (`sandboxes`, `ranks`).
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from selfplay.cluster import RESOURCE
from selfplay.errors import NotReady

ADDRESS = "RAY_ADDRESS"
INSTALL = "pip install 'selfplay-curriculum[ray]', the same version on every node"
OBJECTS = 80 << 20
"""Bytes of shared memory of a cluster that is started here: archives and batches pass through it."""
TRIES = 2
"""Of starting it: a node whose agents are not there in 15 seconds ends itself; a loaded machine is enough."""
_ANSWER_SECONDS = 5.0

_lock = threading.Lock()
_keeper = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ray")
"""Ray's processes end with the thread that started them, and on the main thread Ray would take SIGTERM for itself."""
_joined = 0


def join(whole: Mapping[str, float], *, part: str) -> None:
    """Be part of a cluster that has as much of the resource `part` as `whole` says; `leave` once it is not needed.

    A cluster of this machine alone is given the `whole` by the first to join.

    Raises:
        NotReady: there is no such cluster; the sentence says why.
    """
    global _joined
    with _lock:
        if not _joined:
            _keeper.submit(_connect, whole).result()
        _joined += 1
    try:
        _refuse_small(part, whole[part])
    except BaseException:
        leave()
        raise


def leave() -> None:
    """Not need the cluster any more: the last to leave disconnects, and stops what was started here."""
    global _joined
    with _lock:
        _joined -= 1
        if not _joined:
            _keeper.submit(_disconnect).result()


def _disconnect() -> None:
    import ray

    ray.shutdown()


def _connect(whole: Mapping[str, float]) -> None:
    if importlib.util.find_spec("ray") is None:
        raise NotReady("run.cluster asks for Ray, and it is not installed", hint=INSTALL)
    address = os.environ.get(ADDRESS, "")
    if address:
        _refuse_silent(address)
    import ray

    own = {
        "num_cpus": whole["CPU"],
        "resources": {RESOURCE: whole[RESOURCE]},
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
                raise _unconnected(address, error) from error
        else:
            return


def _unconnected(address: str, error: Exception) -> NotReady:
    said = " ".join(str(error).split())[:300]
    if "ersion mismatch" in said:
        return NotReady(f"the Ray cluster at {address} is of another version: {said}", hint=INSTALL)
    if address:
        return NotReady(
            f"the Ray cluster at {address} ({ADDRESS}) takes no driver: {said}",
            hint="look: ray status; or use this machine alone: unset RAY_ADDRESS",
        )
    return NotReady(f"no Ray cluster could be started on this machine: {said}", hint="see /tmp/ray/session_latest/logs")


def _refuse_silent(address: str) -> None:
    """Ray itself waits for minutes, and then ends the process.

    Raises:
        NotReady: nobody answers at `address`.
    """
    host, colon, port = address.rpartition(":")
    if address in ("auto", "local") or "://" in address or not colon or not port.isdecimal():
        raise NotReady(
            f"{ADDRESS} is `{address}`, and the address of a cluster's head is asked for",
            hint=f"export {ADDRESS}=HOST:6379, or unset it",
        )
    try:
        socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise NotReady(
            f"no Ray cluster answers at {address} ({ADDRESS}): {error}",
            hint=f"start it: ray start --head; or use this machine alone: unset {ADDRESS}",
        ) from error


def _refuse_small(name: str, asked: float) -> None:
    import ray

    found = ray.cluster_resources().get(name, 0)
    if found < asked:
        more = f"--resources='{{\"{RESOURCE}\": 1}}'" if name == RESOURCE else "--num-cpus=N"
        less = "-s 'run.cluster={sandboxes = N}'" if name == RESOURCE else "-s learner.ranks=N -s policy.threads=N"
        raise NotReady(
            f"the Ray cluster has {found:g} of `{name}`, and {asked:g} are asked for",
            hint=f"add a node: ray start --address=HOST:6379 {more}; or ask for less: {less}",
        )
