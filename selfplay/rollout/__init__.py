"""One role, one subject -> a Trajectory.

`play` is the single-turn form: a prompt and a reply. `talk` is an agent with tools: a longer loop over the same
records, in which the next prompt has the previous ids as an exact prefix.

Not here: which plays are owed (`loop`), what a reply is worth (`games`), the tools themselves (`tools`).
"""

from selfplay.rollout.play import Play, Player, encode, record_of, render, request_of
from selfplay.rollout.talk import talk

__all__ = ["Play", "Player", "encode", "record_of", "render", "request_of", "talk"]
