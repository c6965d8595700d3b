"""What there is of Ray, without a run: its version, whether the cluster of `RAY_ADDRESS` answers, what its nodes have.

The cluster is asked by a process of its own, `python -m selfplay.cluster.looking HOST:PORT`: a Ray that comes to the
wrong place waits for minutes, and then ends its process. Nothing is started, and nothing is changed. Not here: being
part of a cluster (`joining`), Ray's own verdict on a node's health (`ray status`).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from selfplay.cluster import ENGINE_RESOURCE, RESOURCE
from selfplay.cluster.joining import ADDRESS, INSTALL, refuse_silent, unconnected
from selfplay.errors import NotReady
from selfplay.types import record

OLDEST = (2, 50)
"""The oldest Ray that the extra `ray` names."""
ANSWER_SECONDS = 60.0
"""Longest that the process may take, which loads Ray and connects."""
TOLD = ("CPU", "GPU", RESOURCE, ENGINE_RESOURCE)
"""Resources that a run asks for."""
_FIELDS = ("Alive", "NodeManagerAddress", "NodeName", "Resources")
"""What is read of Ray's account of a node."""


@record
class Line:
    """One thing that was looked at."""

    name: str
    good: bool
    what: str
    fix: str = ""


def lines(environ: Mapping[str, str], *, seconds: float = ANSWER_SECONDS) -> Iterator[Line]:
    """All there is to say; nothing where Ray is neither installed nor named."""
    address = environ.get(ADDRESS, "")
    version = _version()
    if not version:
        if address:
            what = f"{ADDRESS} is {address}, and Ray is not installed; only --scale ray wants it"
            yield Line(name="ray", good=False, what=what, fix=INSTALL)
        return
    alone = "" if address else f"; no {ADDRESS}: --scale ray starts a cluster of this machine alone"
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        yield Line(name="ray", good=False, what=f"Ray {version} is older than {oldest}{alone}", fix=INSTALL)
    else:
        yield Line(name="ray", good=True, what=f"Ray {version}{alone}")
    if address:
        try:
            yield from _told(address, asked(address, seconds=seconds))
        except NotReady as error:
            yield Line(name="ray: cluster", good=False, what=error.message, fix=error.hint)


def asked(address: str, *, seconds: float) -> Sequence[Mapping[str, Any]]:
    """The nodes of the cluster at `address`, as Ray names what they have.

    Raises:
        NotReady: nobody answers there in time, or the cluster takes no driver from here.
    """
    refuse_silent(address)
    argv = [sys.executable, "-m", "selfplay.cluster.looking", address]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise NotReady(
            f"what is at {address} ({ADDRESS}) does not answer as a Ray cluster in {seconds:g} s",
            hint="is it the head's address? look there: ray status",
        ) from None
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise unconnected(address, f"it ended with exit code {done.returncode}, and said: {last}") from None
    if "error" in answer:
        raise unconnected(address, answer["error"])
    nodes: Sequence[Mapping[str, Any]] = answer["nodes"]
    return nodes


def _told(address: str, nodes: Sequence[Mapping[str, Any]]) -> Iterator[Line]:
    alive = sorted((node for node in nodes if node["Alive"]), key=lambda node: str(node["NodeManagerAddress"]))
    total = {name: sum(node["Resources"].get(name, 0) for node in alive) for name in TOLD}
    dead = len(nodes) - len(alive)
    what = f"{address} answers: {len(alive)} nodes" + (f", {dead} dead ones" if dead else "") + f", {_words(total)}"
    if total[RESOURCE]:
        yield Line(name="ray: cluster", good=True, what=what)
    else:
        fix = f"where Docker or bubblewrap is: ray start --address={address} --resources='{{\"{RESOURCE}\": 1}}'"
        yield Line(name="ray: cluster", good=False, what=f"{what}; no place for sandboxes", fix=fix)
    for node in alive:
        has = _words({name: node["Resources"].get(name, 0) for name in TOLD})
        yield Line(name="ray: node", good=True, what=f"{node['NodeManagerAddress']} ({node['NodeName']}): {has}")


def _words(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{number:g} {name}" for name, number in resources.items() if number) or "nothing for a run"


def _version() -> str:
    """Of the installed Ray; empty where there is none."""
    if importlib.util.find_spec("ray") is None:
        return ""
    try:
        return importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        return ""


def main(address: str) -> None:
    """Print the nodes of a cluster, or what Ray said instead, in one line of JSON."""
    import logging

    import ray

    try:
        ray.init(address=address, logging_level=logging.CRITICAL, log_to_driver=False)
        told: dict[str, Any] = {"nodes": [{name: node[name] for name in _FIELDS} for node in ray.nodes()]}
    except Exception as error:  # noqa: BLE001 (whatever it is, it is told)
        told = {"error": " ".join(str(error).split())[:300]}
    print(json.dumps(told), flush=True)
    # note: not through Ray's own end, which may wait for what is gone.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
