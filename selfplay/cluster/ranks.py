"""Ranks of the learner on other nodes: each is an actor, in a placement group that packs them; `Ranks` speaks to them.

The ranks meet at an address of the driver, which is rank 0, and add gradients up over TCP (gloo); Ray carries calls
and batches only. A call has the deadline of a rank in a child process.

Not here: what a rank does (`node`, `learner.ranks_worker`), who notices that one is silent (`silence`), what becomes of
a run whose learner is lost (`again`). Not covered: folders of model and saves must be the same files on every node.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import selfplay
from selfplay.cluster import Wanted, joining
from selfplay.cluster.connections import End
from selfplay.cluster.node import RankNode
from selfplay.cluster.remote import short
from selfplay.cluster.silence import GROUP, Signs
from selfplay.errors import NotReady
from selfplay.learner.ranks import ANSWER_SECONDS, HINT, LearnerLost, Ranks
from selfplay.learner.ranks_world import World

LOOK_SECONDS = 1.0
"""Between two looks whether the learner is lost, while an answer is waited for."""
BEGIN_SECONDS = 300.0
"""Longest that an actor with a place may take to load torch."""


class _Actor:
    """See `learner.ranks.Rank`."""

    def __init__(self, number: int, actor: Any, *, signs: Signs) -> None:
        self.number = number
        self.pid = 0
        self.actor = actor
        self._signs = signs
        self._answer = actor.begin.remote()

    def begun(self, seconds: float) -> None:
        """Wait until it is there.

        Raises:
            NotReady: it does not come, or has another version of selfplay.
        """
        import ray

        try:
            version, self.pid = ray.get(self._answer, timeout=seconds)
        except ray.exceptions.RayError as error:
            raise NotReady(f"rank {self.number} of the learner did not begin: {short(error)}") from None
        if version != selfplay.__version__:
            raise NotReady(
                f"rank {self.number} of the learner has selfplay {version}, and the driver {selfplay.__version__}",
                hint=f"there: pip install selfplay-curriculum=={selfplay.__version__}",
            )
        self._answer = _done()

    def meet(self, host: str, port: int, *, size: int) -> None:
        """Have it begin to meet the others; `answer` says how that ended."""
        self._answer = self.actor.meet.remote(host, port, rank=self.number, size=size)

    def send(self, name: str, words: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """See `learner.ranks.Rank`."""
        self._answer = self.actor.do.remote(name, words, named)

    def met(self) -> set[End]:
        """What its connections are known by, once it has met the others.

        Raises:
            LearnerLost: it ended, or is silent.
        """
        found: set[End] = self._got(ANSWER_SECONDS)
        self._answer = _done()
        return found

    def answer(self, seconds: float) -> str | None:
        """See `learner.ranks.Rank`."""
        found: str | None = self._got(seconds)
        return found

    def ended(self) -> bool:
        """See `learner.ranks.Rank`; also where another rank is known to be lost."""
        return self._signs.lost is not None or self._error() is not None

    def lost(self) -> LearnerLost:
        """See `learner.ranks.Rank`; in Ray's words."""
        if self._signs.lost is not None:
            return self._signs.lost
        error = self._error()
        how = f"is lost ({short(error)})" if error is not None else "does not answer"
        return LearnerLost(f"rank {self.number} of the learner {how}", hint=HINT)

    def close(self, *, soon: bool = False) -> None:
        """See `learner.ranks.Rank`."""
        self._signs.close()
        joining.kill(self.actor)

    def _got(self, seconds: float) -> Any:
        """The answer to the last call.

        Raises:
            LearnerLost: none came in `seconds`, or the learner is lost.
        """
        import ray

        until = time.monotonic() + seconds
        while not ray.wait([self._answer], timeout=LOOK_SECONDS)[0]:
            if self._signs.lost is not None:
                raise self._signs.lost
            if time.monotonic() > until:
                sentence = f"rank {self.number} of the learner gave no answer in {seconds:g} s"
                raise LearnerLost(sentence, hint=HINT)
        try:
            return ray.get(self._answer)
        except ray.exceptions.RayError:
            raise self.lost() from None

    def _error(self) -> Exception | None:
        """Why the last call failed; None where it is under way, or done."""
        import ray

        try:
            if ray.wait([self._answer], timeout=0)[0]:
                ray.get(self._answer, timeout=1.0)
        except ray.exceptions.RayError as error:
            found: Exception = error
            return found
        return None


def start(wanted: Wanted) -> Ranks:
    """Join the cluster and start the ranks there, but for the first.

    Raises:
        NotReady: the cluster cannot be joined, has no place for them, or they do not begin.
        LearnerLost: one ended before all had met.
    """
    end = contextlib.ExitStack()
    signs = Signs()
    try:
        joining.join(wanted.resources, part="CPU", told=signs.headless)
        end.callback(joining.leave, signs.headless)
        actors = _placed(wanted, signs, end=end)
        end.callback(signs.close)
        signs.begin({actor.number: actor.actor for actor in actors})
    except BaseException:
        end.close()
        raise
    return Ranks(actors, meet=partial(_met, actors, signs), leave=end.close)


def _placed(wanted: Wanted, signs: Signs, *, end: contextlib.ExitStack) -> list[_Actor]:
    """An actor a rank, each in a bundle of one placement group, begun; the group is given back with `end`."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    size, threads, seconds = wanted.ranks, wanted.threads, wanted.nodes.place_seconds
    group = ray.util.placement_group([{"CPU": threads}] * (size - 1), strategy="PACK")
    end.callback(_given_back, group)
    if not group.wait(seconds):
        raise NotReady(
            f"the Ray cluster had no place for {size - 1} ranks of {threads} CPUs each in {seconds:g} s",
            hint="look who has it: ray status; or ask for less: -s learner.ranks=N -s policy.threads=N",
        )
    actors = []
    for bundle in range(size - 1):
        place = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=bundle)
        kind = ray.remote(concurrency_groups={GROUP: 1})(RankNode)
        own = kind.options(num_cpus=threads, max_restarts=0, scheduling_strategy=place)
        actors.append(_Actor(bundle + 1, own.remote(), signs=signs))
        end.callback(actors[-1].close)
    until = time.monotonic() + max(seconds, BEGIN_SECONDS)
    for actor in actors:
        actor.begun(max(0.0, until - time.monotonic()))
    return actors


def _given_back(group: Any) -> None:
    """The places of the ranks, where there is still somebody to take them."""
    import ray

    if joining.lost() is None:
        ray.util.remove_placement_group(group)


def _met(actors: Sequence[_Actor], signs: Signs) -> World:
    """Rank 0 among the others."""
    import ray

    host = ray.util.get_node_ip_address()
    size = len(actors) + 1

    def tell(port: int) -> None:
        # note: rank 0 waits at its own listening end for those who do not come.
        signs.know([(host, port)])
        for actor in actors:
            actor.meet(host, port, size=size)

    world = World.lead(host, size=size, tell=tell)
    for actor in actors:
        signs.know(actor.met())
    return world


def _done() -> Any:
    """Of a call that has been answered: there is nothing to say."""
    import ray

    return ray.put(None)
