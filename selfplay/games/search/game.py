"""The search game: a proposer writes a question for an answer, a solver finds the answer, the answer is known.

What is covered: `SearchGame`, which implements `Game` and `GivesTools`, in two forms. With tools, both roles search the
corpus over several turns (SSP, Lu et al., arXiv 2510.18821; research note `selfplay-papers.md` §B). Without, each plays
a single turn with passages given: the proposer those that a search for its answer finds, the solver those that a search
for the question finds; a small model can do that. Seeds are answers with the number of searches that the question
should need; rules and checks decide what is a task (`filters`, `rag`); an attempt is right where it says the answer,
after normalisation that holds in any script (`normalise.plain`). Replies and documents are untrusted text.

What is not covered: children of failed attempts; questions in several parts. Noise for the RAG check is what a search
for other answers finds, not what other proposals of the step saw: that would depend on which of them came first.

Held-out and dev tasks are sentences of held-out or dev documents with the answer left out (`cloze`).

Example:
    >>> game = SearchGame(opening=Opening("python-docs", count=200), ...)  # doctest: +SKIP
    >>> (await game.seeds())[0].payload["answer"]  # doctest: +SKIP
    'lru_cache'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from selfplay.games import NO_TERMS, Minted, Terms, kept_back
from selfplay.games.duplicates import answer_key
from selfplay.games.grading import graded
from selfplay.games.rewards import ALONE, Beside, PlusMinusOne, ProposerReward, SelfPlaySwe, SolverReward
from selfplay.games.search import cloze, filters, normalise, offline, rag, replies, verdicts
from selfplay.games.search.asking import PolicyAsks
from selfplay.games.search.filters import Refusal
from selfplay.games.search.frozen import FrozenAsks
from selfplay.games.search.judge import judge
from selfplay.games.search.opening import Opening
from selfplay.games.search.options import Options
from selfplay.games.search.practice import TURNS, practice, proposer_view
from selfplay.games.search.records import AskFailed, Asks, Question
from selfplay.games.search.seeds import NAME, Grounds
from selfplay.policy import Policy
from selfplay.retrieval import Passage, RetrievalFailed
from selfplay.tools import Toolbox
from selfplay.tools.searching import SearchTools, escaped, shown
from selfplay.types import Example, Role, Seed, Split, Task, Trajectory, Verdict, task_id

DEV = 24
"""Train seeds of the dev set, of whose documents no warm-up example is made."""


class SearchGame:
    """Implements `Game` and `GivesTools` with a corpus as its ground."""

    name = NAME

    def __init__(
        self,
        *,
        opening: Opening,
        proposer: Role,
        solver: Role,
        config_digest: str,
        options: Options | None = None,
        held_out: float = 0.3,
        proposer_reward: ProposerReward | None = None,
        solver_reward: SolverReward | None = None,
        asks: Asks | None = None,
    ) -> None:
        """`asks` reads and judges; None: as the options say, a frozen model or the policy itself, once it is bound."""
        self.proposer = proposer
        self.solver = solver
        self.options = options or Options()
        self._opening = opening
        self._config_digest = config_digest
        self._proposer_reward = proposer_reward or SelfPlaySwe()
        self._solver_reward = solver_reward or PlusMinusOne()
        self._own = PolicyAsks(solver)
        self._asks = asks or (FrozenAsks(self.options.reader) if self.options.reader else self._own)
        self._grounds = Grounds(opening, options=self.options, held_out=held_out, given=proposer.tools is None)

    def bind(self, policy: Policy, *, seed: int) -> None:
        """From now on `policy` is who reads and judges, unless somebody else was named."""
        self._own.bind(policy, seed=seed)

    async def seeds(self) -> Sequence[Seed]:
        """An answer each, in the order of the draw.

        Raises:
            NotFound, UserError: there is no such corpus, or nothing in it to ask for.
            NotReady, RunFailed: the corpus cannot be read.
            RetrievalFailed: passages to be given could not be searched for.
        """
        return await self._grounds.seeds()

    def proposer_view(self, seed: Seed, *, terms: Terms = NO_TERMS) -> Mapping[str, object]:
        """`answer`; `kind`: what it is; `hops`: searches that the question should need; `turns`: the role's;
        `passages`: what is given, or empty where the role searches; `blanked`: the same with the answer left out.
        """
        return proposer_view(seed, turns=self.proposer.limits.turns)

    def solver_view(self, task: Task, *, terms: Terms = NO_TERMS) -> Mapping[str, object]:
        """`question`; `turns`: the role's; `passages`: what is given, or empty where the role searches; `hint`: the
        title of the document that the answer was found in, or empty.
        """
        given = task.payload.get("passages", ())
        return {
            "question": escaped(task.payload["question"]),
            "turns": self.solver.limits.turns,
            "passages": shown([_passage(one) for one in given]) if given else "",
            "hint": f"look at {escaped(task.payload['title'])}" if terms.get("hint") else "",
        }

    async def toolbox(self, role: Role, subject: Seed | Task) -> Toolbox:
        """The tools of one play."""
        ends: Any = "question" if role.side == "proposer" else "answer"
        return SearchTools((await self._opening.opened()).retriever, ends=ends, k=self.options.top_k)

    async def mint(self, proposal: Trajectory, seed: Seed) -> Minted:
        """A task where the question keeps every rule (`filters`) and passes every check (`rag`) that is asked for."""
        question = self._question(proposal, seed)
        if isinstance(question, Question):
            broken = filters.refusal(question, rules=self.options.filters, searches=self.proposer.tools is not None)
            question = broken or question
        if isinstance(question, Refusal):
            return verdicts.refused(proposal, question.reason, question.why, {"reply": proposal.reply[:2000]})
        evidence: dict[str, Any] = {
            "question": question.text,
            "answer": question.answer,
            "searches": list(question.queries),
        }
        try:
            task = await self._task(question, seed=seed, split=seed.split, step=proposal.step, parent_id=proposal.id)
            if self.options.asks:
                checked = await self._checked(question, key=proposal.id, seed=seed)
                evidence["checks"] = dict(checked.evidence)
                if not checked.passed:
                    return verdicts.refused(proposal, checked.reason, checked.why, evidence)
        except (AskFailed, RetrievalFailed) as error:
            return Minted(verdict=verdicts.failed(proposal, "mint", error), task=None)
        why = f"{question.text!r} asks for {question.answer!r}, which {len(question.evidence)} passages lead to"
        return verdicts.minted(proposal, task, why=why, evidence=evidence)

    async def mutate(self, parent: Task, attempt: Trajectory, *, step: int) -> Minted:
        """Refused: a wrong answer leaves nothing that could be asked."""
        return verdicts.refused(attempt, "no_children", "a wrong answer is no question")

    async def judge(self, attempt: Trajectory, task: Task) -> Verdict:
        """Passed where the answer is the one that was asked for; how much of it was said is evidence."""
        worth = self._solver_reward
        found = self._answer(attempt)
        if isinstance(found, Refusal):
            return verdicts.judged(attempt, False, found.reason, found.why, worth=worth)
        said, golds = found, (task.payload["answer"], *task.payload["aliases"])
        overlap = normalise.f1(said, golds)
        evidence: dict[str, Any] = {
            "said": said,
            "golds": list(golds),
            "exact_match": normalise.exact_match(said, golds),
            "searches": len(attempt.product.get("queries", ())),
        }
        passed = normalise.same(said, golds)
        if not passed and self.options.judge:
            key = f"judge:{attempt.id}"
            try:
                found_by = await judge(self._asks, question=task.payload["question"], known=golds, said=said, key=key)
            except AskFailed as error:
                return verdicts.failed(attempt, "judge", error)
            passed = found_by.correct
            evidence["judge"] = asdict(found_by)
        reason, why = "wrong", f"{said[:200]!r} where {golds[0]!r} was wanted"
        if passed:
            reason, why = "passed", f"{said[:200]!r} is the answer"
        return verdicts.judged(attempt, passed, reason, why, worth=worth, evidence=evidence, parts={"f1": overlap})

    def grade(
        self, proposal: Trajectory, minted: Verdict, judged: Sequence[Verdict], *, beside: Beside = ALONE
    ) -> Verdict:
        """The proposer's reward from its task's solve rate; None where the mint or too many attempts are undecided."""
        return graded(
            proposal,
            minted,
            judged,
            worth=self._proposer_reward,
            beside=beside,
            unreadable=filters.UNREADABLE,
            did="answered it",
        )

    def examples(self, *, seed: int, first: int, count: int) -> Sequence[Example]:
        """Warm-up examples of both roles of the single-turn form, of train documents outside the dev set (`practice`).

        `seeds` must have been awaited. None with tools: nobody wrote down how to search.
        """
        if self.proposer.tools is not None:
            return ()
        known = self._grounds.known
        dev = {one.payload["document"] for one in self._dev(known)}
        usable = [one for one in known if one.split == "train" and one.payload["document"] not in dev]
        if not offline.writes_its_own(self.solver):
            return practice(usable, proposer=self.proposer, solver=self.solver, seed=seed, first=first, count=count)
        made: list[Example] = []
        for index in range(first, first + count):
            if index % TURNS:
                made += offline.examples(usable, self.solver, key=(seed, "offline", index))
            else:
                made += practice(usable, proposer=self.proposer, solver=self.solver, seed=seed, first=index, count=1)
        return tuple(made)

    async def dev(self) -> tuple[Sequence[Seed], Sequence[Task]]:
        """Train seeds whose documents no warm-up example is made of, and a cloze of each that has one."""
        seeds = self._dev(await self.seeds())
        # note: of the split of what is never trained on, though the seeds are train seeds.
        return seeds, [task for one in seeds if (task := await self._cloze(one, split="held_out")) is not None]

    def _dev(self, seeds: Sequence[Seed]) -> tuple[Seed, ...]:
        train = [seed for seed in seeds if seed.split == "train"]
        documents = list(dict.fromkeys(seed.payload["document"] for seed in train))
        kept = set(documents[: min(DEV, len(documents) // 3)])
        return tuple(seed for seed in train if seed.payload["document"] in kept)[:DEV]

    async def held_out(self, count: int) -> tuple[Sequence[Seed], Sequence[Task]]:
        """The first `count` held-out seeds, and a cloze of each of up to `count` held-out seeds that have one."""
        offered = kept_back(await self.seeds())
        tasks: list[Task] = []
        for seed in offered:
            if len(tasks) == count:
                break
            task = await self.given(seed)
            tasks += [] if task is None else [task]
        return offered[:count], tuple(tasks)

    async def given(self, seed: Seed) -> Task | None:
        """A sentence of the seed's own passage with the answer left out, of the seed's split; None where there is none
        that can be asked about.

        Raises:
            RetrievalFailed: the corpus did not answer.
        """
        return await self._cloze(seed, split=seed.split)

    async def aclose(self) -> None:
        """Let go of the corpus."""
        await self._opening.aclose()

    def _question(self, proposal: Trajectory, seed: Seed) -> Question | Refusal:
        """What the proposer wrote, with what it saw; or why there is nothing to look at."""
        product, tools = proposal.product, self.proposer.tools is not None
        if proposal.stop.truncated or (tools and "question" not in product):
            reason = "truncated" if proposal.stop.truncated else "no_question"
            return Refusal(reason=reason, why=f"the play ended ({proposal.stop}), and no question was handed over")
        if tools:
            text, given = " ".join(str(product["question"]).split()), product.get("passages", ())
        else:
            found = replies.handed(proposal.reply, "question", bare=True)
            if found.reason:
                reason = "no_question" if found.reason == replies.NO_BLOCK else found.reason
                return Refusal(reason=reason, why=found.why)
            text, given = found.text, seed.payload["passages"]
        return Question(
            text=text,
            answer=seed.payload["answer"],
            aliases=tuple(seed.payload["aliases"]),
            hops=int(seed.payload["hop"]),
            queries=tuple(product.get("queries", ())),
            evidence=tuple(_passage(one) for one in given),
            quote=replies.quote_of(proposal.reply),
        )

    def _answer(self, attempt: Trajectory) -> str | Refusal:
        """What the solver answered; or why it answered nothing."""
        if attempt.stop.truncated:
            return Refusal(reason="truncated", why=f"the play ended ({attempt.stop}), and no answer was handed over")
        if self.solver.tools is not None:
            said = str(attempt.product.get("answer", ""))
            why = f"the play ended ({attempt.stop}), and no answer was handed over"
            return " ".join(said.split()) if said else Refusal(reason="no_answer", why=why)
        found = replies.handed(attempt.reply, "answer", bare=True)
        if found.reason:
            reason = "no_answer" if found.reason == replies.NO_BLOCK else found.reason
            return Refusal(reason=reason, why=found.why)
        return found.text

    async def _checked(self, question: Question, *, key: str, seed: Seed) -> rag.Checked:
        opened = await self._opening.opened()
        wanted = self.options.noise if self.options.answerable or self.options.ablation else 0
        noise = await self._grounds.noise(seed, key=key, count=wanted) if wanted else ()
        return await rag.examine(
            question,
            asks=self._asks,
            retriever=opened.retriever,
            noise=noise,
            rules=self.options.rules,
            key=key,
            judged_by=self._asks if self.options.judge else None,
        )

    async def _cloze(self, seed: Seed, *, split: Split) -> Task | None:
        own = await self._grounds.own(seed)
        text = cloze.ask(seed.payload["answer"], own.text)
        if text is None:
            return None
        question = Question(
            text=text,
            answer=seed.payload["answer"],
            aliases=tuple(seed.payload["aliases"]),
            hops=1,
            queries=(),
            evidence=(own,),
        )
        return await self._task(question, seed=seed, split=split, step=-1, parent_id=None)

    async def _task(self, question: Question, *, seed: Seed, split: Split, step: int, parent_id: str | None) -> Task:
        """The task of a question.

        Raises:
            RetrievalFailed: passages to be given could not be searched for.
        """
        seen = [passage.id for passage in question.evidence]
        given: dict[str, Any] = {}
        if self.solver.tools is None:
            # note: every proposer of a seed is given the same, so that its questions differ in their words alone.
            seen.append(f"question {normalise.plain(question.text)}")
            retriever = (await self._opening.opened()).retriever
            hits = await retriever.search(question.text, k=self.options.top_k)
            given["passages"] = [asdict(hit.passage) for hit in hits]
        key = answer_key(question.answer, seen)
        # note: a given task is another task than the same question proposed in play, or that would be its duplicate.
        key = key if step >= 0 else f"given:{split}:{key}"
        return Task(
            id=task_id(self._config_digest, game=NAME, key=key),
            game=NAME,
            seed_id=seed.id,
            key=key,
            payload={
                "question": question.text,
                "answer": question.answer,
                "aliases": list(question.aliases),
                "kind": seed.payload["kind"],
                "hop": seed.payload["hop"],
                "document": seed.payload["document"],
                "title": seed.payload["title"],
                "evidence": [passage.id for passage in question.evidence],
                "quote": question.quote,
                **given,
            },
            split=split,
            step=step,
            parent_id=parent_id,
        )


def _passage(row: Mapping[str, Any]) -> Passage:
    return Passage(**row)
