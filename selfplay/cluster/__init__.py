"""A run on several machines: Ray actors hold sandboxes, samplers and learner ranks; everything else is the driver's.

    driver   ledger (the only writer), loop, rank 0 of the learner, one handle an actor; the sampler where none is asked
    node     a sandbox actor for each `selfplay_sandbox` that it declares and that is asked for: one engine client
    node     an engine for each `selfplay_engine` that it declares and that is asked for: one sampler
    node     a rank of the learner, in a placement group that packs them

Actors get and return values; none of them sees the ledger. Every call of one has a deadline. An actor that dies is
named in an event and started again, at most `Nodes.restarts` times a launch: sandboxes that it held are lost, which
their plays and verdicts know as a fault of the machine and try again; what an engine owed is asked of another; a lost
rank makes the launch begin anew from the last save and the ledger (`again`).

Ray is imported where an actor is made or called, and only then; `RAY_ADDRESS` names a cluster, else one is started on
this machine and stopped with the run (`joining`).

Not here: what a sandbox, a sampler and a rank do (`sandbox`, `policy`, `learner.ranks`). Not covered: folders that
machines do not share (the model's and the run's, where ranks are elsewhere), a driver without rank 0.
"""

from __future__ import annotations

from collections.abc import Mapping

from selfplay.types import record

RESOURCE = "selfplay_sandbox"
"""What a node declares that may hold a sandbox actor, and of how many: one, as a rule."""
ENGINE_RESOURCE = "selfplay_engine"
"""What a node declares that may hold an engine, and of how many."""


@record
class Nodes:
    """Constants of `run.cluster`."""

    sandboxes: int = 1
    """Sandbox actors; 0: sandboxes are on the driver's machine."""
    engines: int = 0
    """Engines, each an actor with one sampler of `policy.backend`; 0: the sampler is on the driver's machine."""
    engine_gpus: int = 0
    """Cards of each engine, 0 or 1: a node has to have them beside the place."""
    restarts: int = 3
    """Most actors of a kind that are started again in a launch."""
    place_seconds: float = 120.0
    """Longest wait for a place on the cluster, and for an actor to begin."""

    def __post_init__(self) -> None:
        for name, least in (("sandboxes", 0), ("engines", 0), ("restarts", 0), ("place_seconds", 1.0)):
            if not least <= getattr(self, name) < float("inf"):
                raise ValueError(f"option `{name}` is {getattr(self, name):g}, expected at least {least:g}")
        if self.engine_gpus not in (0, 1):
            raise ValueError(f"option `engine_gpus` is {self.engine_gpus}, expected 0 or 1")


@record
class Wanted:
    """What a run wants of a cluster."""

    nodes: Nodes
    ranks: int
    """Of the learner; the first is the driver's process."""
    threads: int
    """Of torch, on each rank."""

    @property
    def resources(self) -> Mapping[str, float]:
        """By Ray's names, in all."""
        found = {"CPU": (self.ranks - 1) * self.threads, RESOURCE: self.nodes.sandboxes}
        return found | ({ENGINE_RESOURCE: self.nodes.engines} if self.nodes.engines else {})
