"""What a run may set of the search game, as `game.options`: one flat record, of which each part takes what is its own.

Not here: what the rules mean in full (`filters`, `rag`), how a table of the configuration becomes the record
(`parts`).
"""

from __future__ import annotations

from math import isfinite

from selfplay.errors import UserError
from selfplay.games.search import filters, frozen, rag
from selfplay.retrieval.choosing import parts_of
from selfplay.tools.searching import SECONDS, TOP_K
from selfplay.types import record

_NOISE_KINDS = ("trajectories", "passages")
_UNREADABLE = ("refuse", "fault")


@record
class Options:
    """Options of the game `search`."""

    hops: int = 1
    """A proposer is asked for a question that needs so many searches, drawn from 1 to this for each answer."""
    searches: int = 1
    """Fewest different searches of a proposer that can search; the released SSP has 2."""
    repeats: bool = True
    """May a proposer search for the same twice? In the released SSP it may not."""
    blunt: bool = True
    """May a proposer search for the answer itself?"""
    words: int = filters.MIN_WORDS
    """Fewest words of a question; a rule of the released SSP, and none of its paper."""
    seen: bool = True
    """Must a passage that the proposer saw hold the answer? A rule of ours."""
    cloze: bool = False
    """Must a question be a sentence of a seen passage with the answer left out at `____`? For models too small to read
    for the checks."""
    top_k: int = TOP_K
    """Passages a search."""
    retriever: str = ""
    """What searches. Empty or `words`: the corpus's own index; `tantivy`, `dense`, `dense:MODEL`: one beside it, by an
    extra; `http://HOST:PORT/retrieve`: a server that answers `POST /retrieve`; `A+B`: several, by reciprocal rank."""
    timeout: float = SECONDS
    """Seconds that a search may take."""
    answerable: bool = True
    """Is the question answered from what its proposer saw, among noise?"""
    noise: int = 4
    """What so many other answers' searches find is the noise: 0, 1, 4 or 7 in the paper."""
    noise_kind: str = "trajectories"
    """`trajectories`: all that one of them finds counts as one; `passages`: each passage does."""
    closed_book: bool = True
    """Is it refused where the answer is given without any passage?"""
    ablation: bool = True
    """Is it refused where the answer is still given without the passages that hold it?"""
    unique: bool = True
    """Is it refused where a second search supports another answer?"""
    quote: bool = True
    """Must a sentence that supports the answer be quoted from the corpus?"""
    unreadable: str = "refuse"
    """What a reader's reply that cannot be read is: `refuse` the question, or a `fault`."""
    judge: bool = False
    """Does who reads judge whether another wording means the same?"""
    reader: str = ""
    """Who reads for the checks, and judges. Empty: the policy itself; `MODEL@http://HOST:PORT/v1`: a frozen model at an
    endpoint of OpenAI's chat completions."""

    def __post_init__(self) -> None:
        try:
            parts_of(self.retriever)
        except UserError as error:
            raise ValueError(f"option `retriever`: {error.message}; {error.hint}") from error
        if why := frozen.unfit(self.reader):
            raise ValueError(f"option `reader`: {why}")
        for name, low in {"hops": 1, "searches": 0, "words": 0, "top_k": 1, "noise": 0}.items():
            if getattr(self, name) < low:
                raise ValueError(f"option `{name}` is {getattr(self, name)}, expected at least {low}")
        if not (isfinite(self.timeout) and self.timeout > 0):
            raise ValueError(f"option `timeout` is {self.timeout:g}, expected a number above 0")
        for name, known in {"noise_kind": _NOISE_KINDS, "unreadable": _UNREADABLE}.items():
            if getattr(self, name) not in known:
                raise ValueError(f"option `{name}` is {getattr(self, name)!r}, expected {' or '.join(known)}")

    @property
    def asks(self) -> bool:
        """Is anybody asked before a question is a task?"""
        return self.answerable or self.closed_book or self.ablation or self.unique or self.quote

    @property
    def filters(self) -> filters.Rules:
        """What the filters take."""
        return filters.Rules(
            searches=self.searches,
            repeats=self.repeats,
            blunt=self.blunt,
            words=self.words,
            seen=self.seen,
            cloze=self.cloze,
        )

    @property
    def rules(self) -> rag.Rules:
        """What the checks take."""
        return rag.Rules(
            answerable=self.answerable,
            noise=self.noise,
            noise_kind=self.noise_kind,  # type: ignore[arg-type]
            closed_book=self.closed_book,
            ablation=self.ablation,
            unique=self.unique,
            found=self.top_k,
            quote=self.quote,
            unreadable=self.unreadable,  # type: ignore[arg-type]
        )
