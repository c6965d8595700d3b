"""A repository that has been surveyed: its seeds, who is held out, what the warm-up may use, and what verifies it.

What is covered: making seeds of functions, the split by seed id, the dev set, budgets from what tests need on the clean
tree, and warm-up examples. What is not: verdicts (`game`), running anything (`verify`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from selfplay.games.code import alike, bugs, warmup
from selfplay.games.code.bugs import Target
from selfplay.games.code.checks import Grounds, Thresholds
from selfplay.games.code.mutants import measure
from selfplay.games.code.mutate import Mutation
from selfplay.games.code.options import Options
from selfplay.games.code.source import is_folder
from selfplay.games.code.survey import Function, Rules, Survey
from selfplay.games.code.verify import STILL, Budget, Verifier
from selfplay.types import Seed, digest, draw, record

NAME = "code"


@record
class Settings:
    """What the code game can be told."""

    rules: Rules = Rules()
    """What makes a function a seed, and a suite playable."""
    thresholds: Thresholds = Thresholds()
    """What a bug has to reach."""
    held_out: float = 0.3
    """Share of the seeds that are never trained on."""
    hidden_share: float = 0.0
    """Share of the failing tests that a solver with tools is not told of (`hidden`)."""
    workers: int = 2
    """Sandboxes that run at once."""
    cpu_seconds: float = 1.5
    """Processor seconds for the tests of one candidate, or ten times what they need on the clean tree."""
    seconds: float = 20.0
    """Wall-clock seconds for one candidate."""
    shown_tests: int = 2
    """Failing tests that the repairer sees."""
    dev_seeds: int = 8
    """Train seeds kept out of the warm-up examples, to tell when the warm-up is long enough."""
    rehearsed: int = 0
    """Warm-up examples whose failing tests are found beforehand, so that repairers see them; 0: they see none."""
    seed: int = 0
    """The run's seed, which says what those examples are."""
    stdlib: int = 1500
    """Functions of the standard library that the warm-up draws from."""
    package_share: float = 0.3
    """Share of the warm-up examples made of the package's functions; the rest is the standard library's."""
    options: Options = Options()
    """How the seeds are split."""


class Opened:
    """A surveyed repository: seeds, their split, and what verifies them."""

    def __init__(self, found: Survey, *, verifier: Verifier, source: str, settings: Settings) -> None:
        self.verifier = verifier
        self.survey = found
        self._settings = settings
        self._seconds = found.seconds
        self._functions = found.functions
        self.grounds = Grounds(
            verifier=verifier, stable=tuple(found.seconds), left_out=found.left_out, thresholds=settings.thresholds
        )
        """What proposals are proved on."""
        self.seeds = _seeds(found.functions, source=source, settings=settings)
        train = sorted((s for s in self.seeds if s.split == "train"), key=lambda s: draw("dev", s.id))
        with_bugs = [seed for seed in train if warmup.usable(seed.payload["source"])]
        # note: never more than a third of the seeds, or a small package would have nothing left to learn from.
        self.dev = tuple(with_bugs[: min(settings.dev_seeds, len(train) // 3)])
        used = {seed.id for seed in train} - {seed.id for seed in self.dev}
        pairs = zip(self.seeds, self._functions, strict=True)
        self._lessons = [f for seed, f in pairs if seed.id in used and warmup.usable(f.source)]
        self._package = tuple(warmup.Function(name=f.name, source=f.source) for f in self._lessons)
        self._stdlib: tuple[warmup.Function, ...] | None = None
        self._table: dict[tuple[str, str], Mapping[str, str]] = {}

    @property
    def distinct(self) -> bool:
        """Has no held-out function a near-copy among the train functions?"""
        return self._settings.options.distinct

    @property
    def num_lessons(self) -> int:
        """The package's functions that warm-up examples are made of."""
        return len(self._lessons)

    def release(self, known: Collection[str]) -> None:
        """Train on held-out functions whose program (`alike.key`) is one of `known`, those of other repositories."""
        self.seeds = tuple(
            replace(seed, split="train")
            if seed.split == "held_out" and alike.key(seed.payload["source"]) in known
            else seed
            for seed in self.seeds
        )

    async def rehearse(self, *, cache: Path, indices: Sequence[int]) -> None:
        """Find out what tests say about the package's bugs in the repairer examples among these of the warm-up."""

        def budget(function: Function) -> Budget:
            return self.budget(function.tests)

        # note: a bug that no test fails is not used, and the example draws another; hence more than one look.
        for _ in range(3):
            asked = self._unknown(indices)
            if not asked:
                return
            self._table |= await measure(asked, verifier=self.verifier, budget=budget, cache=cache)

    def _unknown(self, indices: Sequence[int]) -> list[tuple[Function, Mutation]]:
        """The package's bugs that the rehearsed examples would use without knowing what tests say about them."""
        functions = {f.name: f for f in self._lessons}
        asked: list[tuple[Function, Mutation]] = []

        def note(function: warmup.Function, mutation: Mutation) -> str | None:
            known = self._said(function, mutation)
            if known is None and function.name in functions:
                asked.append((functions[function.name], mutation))
            return known

        for index in indices:
            if index % warmup.INJECTOR_EVERY:
                self._example(index, seed=self._settings.seed, failures=note)
        return asked

    def _said(self, function: warmup.Function, mutation: Mutation) -> str | None:
        failing = self._table.get((function.name, mutation.edit.text))
        return None if failing is None else bugs.shown(failing, limit=self._settings.shown_tests)

    def budget(self, tests: Sequence[str]) -> Budget:
        """What the tests of one candidate may use: ten times what they need on the clean tree, and a floor."""
        needed = sum(self._seconds.get(test, 0.0) for test in tests)
        return Budget(
            cpu_seconds=round(max(self._settings.cpu_seconds, 10 * needed), 1),
            seconds=round(max(self._settings.seconds, 40 * needed), 1),
            still=STILL * self._settings.seconds,
        )

    def target(self, payload: Mapping[str, Any]) -> Target:
        """The function of a seed or a task, in the clean tree."""
        function = Function(
            path=payload["path"],
            qualname=payload["qualname"],
            line=payload["line"],
            source=payload["source"],
            doc=payload["doc"],
            tests=tuple(payload["tests"]),
        )
        text = self.verifier.repository.read(function.path)
        return bugs.target_of(function, text=text, budget=self.budget(function.tests))

    def example(self, index: int, *, seed: int) -> warmup.Example:
        """Warm-up example number `index`."""
        return self._example(index, seed=seed, failures=self._said)

    def _example(self, index: int, *, seed: int, failures: warmup.Failures) -> warmup.Example:
        if self._stdlib is None:
            self._stdlib = warmup.functions_of_stdlib(limit=self._settings.stdlib)
        return warmup.example(
            index,
            seed=seed,
            package=self._package,
            stdlib=self._stdlib,
            failures=failures,
            package_share=self._settings.package_share,
        )


def _seeds(functions: Sequence[Function], *, source: str, settings: Settings) -> tuple[Seed, ...]:
    """Seeds in the survey's order; the share with the smallest draws of their ids is held out.

    A folder counts by its name, so that what is held out is the same wherever it lies. `Options` has other ways.
    """
    called = Path(source).expanduser().resolve().name if is_folder(source) else source
    ids = [digest("seed", NAME, called, f.path, f.qualname, f.source, list(f.tests)) for f in functions]
    kept_back = _kept_back(ids, functions, called=called, settings=settings)
    return tuple(
        Seed(
            id=one,
            game=NAME,
            source=f"{source}:{f.name}",
            payload={
                "path": f.path,
                "qualname": f.qualname,
                "line": f.line,
                "source": f.source,
                "doc": f.doc,
                "tests": list(f.tests),
            },
            split="held_out" if one in kept_back else "train",
        )
        for one, f in zip(ids, functions, strict=True)
    )


def _kept_back(ids: Sequence[str], functions: Sequence[Function], *, called: str, settings: Settings) -> set[str]:
    """The seeds that are held out."""
    wanted = min(round(settings.held_out * len(ids)), len(ids) - 1)
    found = set(sorted(ids, key=lambda one: draw("split", one))[:wanted])
    if settings.options.split == "module":
        modules: dict[str, list[str]] = {}
        for one, function in zip(ids, functions, strict=True):
            modules.setdefault(function.path, []).append(one)
        found = set()
        # note: never the last module, or nothing would be left to learn from.
        for path in sorted(modules, key=lambda path: draw("split", called, path))[: len(modules) - 1]:
            if len(found) + len(modules[path]) <= wanted:
                found |= set(modules[path])
    if not settings.options.distinct or not found:
        return found
    programs = {one: alike.key(function.source) for one, function in zip(ids, functions, strict=True)}
    known = {programs[one] for one in ids if one not in found}
    if settings.package_share < 1.0:
        known |= {alike.key(one.source) for one in warmup.functions_of_stdlib(limit=settings.stdlib)}
    return {one for one in found if programs[one] not in known}
