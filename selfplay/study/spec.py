"""A study's file: TOML that says what is compared, how often, with what budget, and on what.

    [study]      preset, about, seeds, budget (tokens), minutes (expected of an arm), start (an arm), start_seed
    [endpoint]   measure, attempts, temperature, tasks, digest, compare; proposals (false: nobody is asked for one on
    the tasks' seeds); secondary, tasks of the runs' own held-out seeds
    [making]     how the endpoint's tasks are made: sources, bugs, functions, each (bugs a function), writer (an arm
                 whose injector writes them; without one they are slips, `evaluation.mechanism`)
    [dev]        seeds: those of tuning, which never sees the endpoint's tasks
    [settings]   keys of the configuration, for every arm, e.g. "learner.lr" = 1e-5; SEED in a value is the run's seed
    [factors.NAME]  about, settings: a setting in question, which arms have or have not
    [arms.NAME]  about, start (an arm, or "" for none), steps, supervised, factors, settings; measured (false: other
                 arms build upon it, and nobody asks what it can do)

An arm starts from the last weights of the arm `start` with the same seed, as a fork (`selfplay.fork`), and plays until
it has generated and trained `budget` tokens; with `steps` it plays so many steps instead. A `supervised` arm has no
play: its warm-up is longer than the start's by as many updates as the budget pays for. With `start_seed` the arm
`start` and the supervised ones are played with that seed alone: all seeds go on from the same weights, which saves
their warm-ups, and what is found holds for that start.

Arms that say which `factors` they have are an experiment on all of these at once: each factor is in half of such arms
and each two in a quarter, so that what a factor does is the mean of the arms with it less that of the arms without it,
and every run tells of every factor (Plackett and Burman 1946, Biometrika 33, pages 305 to 325). In the smallest such
experiments what two factors do together cannot be told from what a third does.

Everything but `about` and `minutes` is part of the study's digest. An arm has one of its own, of all that decides its
results: other arms and more seeds change nothing of it, so that a study may grow without playing or measuring again.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from selfplay.errors import NotFound, UserError
from selfplay.project import read_toml
from selfplay.types import digest, record

HELD_OUT = "held_out"
"""In the place of a file of tasks: the held-out tasks of the runs themselves."""
WORDS = ("about", "minutes")
"""Keys that are for people."""
SEED = "SEED"
"""In a setting's value: the run's seed. `../ARM-SEED` is another arm's run, which is played before."""


@record
class Factor:
    """A setting in question."""

    name: str
    about: str
    settings: Mapping[str, Any]


@record
class Arm:
    """One way to learn."""

    name: str
    about: str
    start: str
    """The arm whose last weights it starts from; empty: the preset's own."""
    upon: tuple[str, ...]
    """Arms whose runs it needs played to their end: `start`, and those that its settings name."""
    steps: int | None
    """Steps it plays; None: until its budget is spent."""
    supervised: bool
    measured: bool
    """Is it asked what it can do? Else it is played for those that build upon it."""
    factors: tuple[str, ...] | None
    """Those that it has; None: it is no part of the experiment on them."""
    settings: Mapping[str, Any]
    """Its factors' ones among them."""


@record
class Endpoint:
    """What decides."""

    k: int
    """Of pass@k."""
    attempts: int
    temperature: float
    tasks: str
    """A file of tasks or a folder of such, beside the study's file; or `HELD_OUT`."""
    digest: str
    """Of the tasks; empty before they are made."""
    secondary: int
    """Tasks of the runs' own held-out seeds that are looked at beside them; 0: none."""
    proposals: bool
    """Is a proposal asked for on each seed that the file's tasks are of? Each costs several runs of a whole suite."""
    compare: tuple[tuple[str, str], ...]
    """(first, second): the second's figure less the first's; Holm's family."""


@record
class Making:
    """How the endpoint's tasks are made."""

    sources: tuple[str, ...]
    bugs: int
    functions: int
    each: int
    """Most bugs a function."""
    writer: str
    """The arm whose weights write them; empty: nobody, they are slips."""


@record
class Study:
    """All of it."""

    name: str
    path: Path
    about: str
    preset: str
    seeds: tuple[int, ...]
    dev_seeds: tuple[int, ...]
    budget: int
    """Tokens that an arm generates and trains on, after its start."""
    minutes: float
    start: str
    """The arm that others start from unless they say otherwise; empty: none."""
    start_seed: int | None
    """The one seed of that arm; None: it is played with every seed."""
    settings: Mapping[str, Any]
    factors: tuple[Factor, ...]
    arms: tuple[Arm, ...]
    """Starts before those that start from them."""
    endpoint: Endpoint
    making: Making
    digest: str
    arm_digests: Mapping[str, str]
    """Name of an arm -> digest of what decides its results."""

    @property
    def results(self) -> Path:
        """Where its results are committed."""
        folder = self.path.resolve().parent
        return (folder.parent if folder.name == "studies" else folder) / "results" / self.name

    def arm(self, name: str) -> Arm:
        """The arm of that name.

        Raises:
            NotFound: there is none.
        """
        found = next((arm for arm in self.arms if arm.name == name), None)
        if found is None:
            names = [arm.name for arm in self.arms]
            raise NotFound(f"study `{self.name}` has no arm `{name}`", hint=f"its arms: {', '.join(names)}")
        return found


def read(path: Path) -> Study:
    """The study in `path`.

    Raises:
        NotFound: there is no such file.
        UserError: a table or key is unknown, missing, or does not fit.
    """
    if not path.is_file():
        raise NotFound(f"no study {path}", hint="those that ship: ls curricula/studies")
    raw, _ = read_toml(path)
    where = _Where(path=path)
    where.only(raw, ("study", "endpoint", "making", "dev", "settings", "factors", "arms"), "table")
    head, point, made = (dict(raw.get(name, {})) for name in ("study", "endpoint", "making"))
    where.only(head, ("preset", "about", "seeds", "budget", "minutes", "start", "start_seed"), "key of [study]")
    endpoint = _endpoint(point, where)
    where.only(made, ("sources", "bugs", "functions", "each", "writer"), "key of [making]")
    dev = dict(raw.get("dev", {}))
    where.only(dev, ("seeds",), "key of [dev]")
    factors = _factors(where.tables(raw.get("factors", {}), "factors"), where)
    arms = _arms(
        where.tables(raw.get("arms", {}), "arms"), start=str(head.get("start", "")), factors=factors, where=where
    )
    for pair in endpoint.compare:
        for name in pair:
            if name not in {arm.name for arm in arms}:
                raise where.wrong(f"endpoint.compare names `{name}`, which is no arm")
            if not next(arm.measured for arm in arms if arm.name == name):
                raise where.wrong(f"endpoint.compare names `{name}`, which is not measured")
    writer = str(made.get("writer", ""))
    if writer and writer not in {arm.name for arm in arms}:
        raise where.wrong(f"making.writer names `{writer}`, which is no arm")
    if "start_seed" in head and not head.get("start"):
        raise where.wrong("`start_seed` is the seed of the arm `start`, and there is none")
    seeds, dev_seeds = (where.numbers(table.get("seeds", []), "seeds") for table in (head, dev))
    if set(seeds) & set(dev_seeds):
        raise where.wrong("a seed of [dev] is one of the study's: tuning uses other seeds")
    return Study(
        name=path.stem,
        path=path,
        about=str(head.get("about", "")),
        preset=where.text(head, "preset"),
        seeds=seeds,
        dev_seeds=dev_seeds,
        budget=where.whole(head, "budget", least=0),
        minutes=float(head.get("minutes", 0.0)),
        start=str(head.get("start", "")),
        start_seed=where.whole(head, "start_seed", least=0) if "start_seed" in head else None,
        settings=dict(raw.get("settings", {})),
        factors=tuple(factors.values()),
        arms=arms,
        endpoint=endpoint,
        making=Making(
            sources=tuple(map(str, made.get("sources", ()))),
            bugs=int(made.get("bugs", 0)),
            functions=int(made.get("functions", 0)),
            each=int(made.get("each", 2)),
            writer=writer,
        ),
        digest=digest("study", _decisive(raw)),
        arm_digests={arm.name: digest("arm", _deciding(_decisive(raw), arm, arms)) for arm in arms},
    )


@record
class _Where:
    """Says what is wrong with the file."""

    path: Path

    def wrong(self, text: str, hint: str = "") -> UserError:
        return UserError(f"{self.path}: {text}", hint=hint or "an example: curricula/studies/toy.toml")

    def only(self, table: Mapping[str, Any], known: Sequence[str], what: str) -> None:
        for name in table:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                raise self.wrong(
                    f"unknown {what} `{name}`",
                    f"{f'did you mean `{near[0]}`? ' if near else ''}known: {', '.join(known)}",
                )

    def tables(self, value: Any, what: str) -> dict[str, Mapping[str, Any]]:
        if not isinstance(value, Mapping) or not all(isinstance(one, Mapping) for one in value.values()):
            raise self.wrong(f"[{what}] is not made of tables", f"write [{what}.NAME]")
        for name, one in value.items():
            if not isinstance(one.get("settings", {}), Mapping):
                raise self.wrong(f"`settings` of [{what}.{name}] is {one['settings']!r}, expected a table")
        return dict(value)

    def text(self, table: Mapping[str, Any], key: str) -> str:
        if not isinstance(table.get(key), str) or not table[key]:
            raise self.wrong(f"`{key}` is missing, or no text")
        return str(table[key])

    def whole(self, table: Mapping[str, Any], key: str, *, least: int) -> int:
        value = table.get(key)
        if type(value) is not int or value < least:
            raise self.wrong(f"`{key}` is {value!r}, expected a whole number, at least {least}")
        return value

    def numbers(self, value: Any, key: str) -> tuple[int, ...]:
        if not isinstance(value, list) or not all(type(one) is int and one >= 0 for one in value):
            raise self.wrong(f"`{key}` is {value!r}, expected a list of whole numbers")
        return tuple(dict.fromkeys(value))


def _endpoint(table: Mapping[str, Any], where: _Where) -> Endpoint:
    known = ("measure", "attempts", "temperature", "tasks", "digest", "secondary", "proposals", "compare")
    where.only(table, known, "key of [endpoint]")
    measure = where.text(table, "measure")
    name, at, number = measure.partition("@")
    attempts = where.whole(table, "attempts", least=1)
    if name != "pass" or not at or not number.isdecimal() or not 1 <= int(number) <= attempts:
        raise where.wrong(f"`measure` is {measure!r}, expected pass@K with K from 1 to the {attempts} attempts")
    proposals = table.get("proposals", True)
    if type(proposals) is not bool or (not proposals and table.get("tasks") == HELD_OUT):
        raise where.wrong(f"`proposals` is {proposals!r}, expected true, or false where `tasks` is a file or a folder")
    compare = table.get("compare", [])
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in compare):
        raise where.wrong('`compare` is a list of pairs of arms, e.g. [["warmup", "frontier"]]')
    return Endpoint(
        k=int(number),
        attempts=attempts,
        temperature=float(table.get("temperature", 1.0)),
        tasks=where.text(table, "tasks"),
        digest=str(table.get("digest", "")),
        secondary=int(table.get("secondary", 0)),
        proposals=proposals,
        compare=tuple((str(first), str(second)) for first, second in compare),
    )


def _factors(table: Mapping[str, Mapping[str, Any]], where: _Where) -> dict[str, Factor]:
    found: dict[str, Factor] = {}
    for name, keys in table.items():
        where.only(keys, ("about", "settings"), f"key of [factors.{name}]")
        settings = dict(keys.get("settings", {}))
        for other in found.values():
            if both := settings.keys() & other.settings.keys():
                raise where.wrong(f"factors `{other.name}` and `{name}` both set {min(both)}, so no arm can have both")
        found[name] = Factor(name=name, about=str(keys.get("about", "")), settings=settings)
    return found


def _had(name: str, value: Any, factors: Mapping[str, Factor], where: _Where) -> tuple[str, ...] | None:
    """The factors of arm `name`."""
    if value is None:
        return None
    if not isinstance(value, list) or any(not isinstance(one, str) or one not in factors for one in value):
        known = ", ".join(factors) or "none"
        raise where.wrong(f"arm `{name}` has the factors {value!r}, expected a list of those that are there: {known}")
    return tuple(one for one in factors if one in value)


def _balanced(arms: Sequence[Arm], factors: Sequence[str], where: _Where) -> None:
    """Every factor in half of the arms that say which they have, every two in a quarter."""
    if unseen := next((arm for arm in arms if arm.factors is not None and not arm.measured), None):
        raise where.wrong(f"arm `{unseen.name}` says which factors it has, and is not measured")
    sets = [set(arm.factors) for arm in arms if arm.factors is not None]
    if factors and not sets:
        raise where.wrong("there are factors, and no arm says which it has")
    for place, one in enumerate(factors):
        mine = [have for have in sets if one in have]
        if 2 * len(mine) != len(sets):
            raise where.wrong(f"factor `{one}` is in {len(mine)} of {len(sets)} arms, expected half of them")
        for other in factors[:place]:
            if 4 * sum(other in have for have in mine) != len(sets):
                raise where.wrong(
                    f"factors `{other}` and `{one}` are not together in a quarter of the {len(sets)} arms"
                )


def _arms(table: Mapping[str, Any], *, start: str, factors: Mapping[str, Factor], where: _Where) -> tuple[Arm, ...]:
    """The arms, after those that they build upon."""
    made: dict[str, Arm] = {}
    for name, keys in table.items():
        known = ("about", "start", "steps", "supervised", "measured", "factors", "settings")
        where.only(keys, known, f"key of [arms.{name}]")
        supervised = bool(keys.get("supervised", False))
        begin = str(keys.get("start", "" if name == start else start))
        had = _had(name, keys.get("factors"), factors, where)
        settings = {key: value for one in had or () for key, value in factors[one].settings.items()}
        settings |= dict(keys.get("settings", {}))
        about = "" if had is None else f"With {' and '.join(had)}." if had else "With none of the factors."
        used = [other for other in table if f"/{other}-{SEED}" in repr(settings)]
        made[name] = Arm(
            name=name,
            about=str(keys.get("about", about)),
            start=begin,
            upon=tuple(dict.fromkeys([begin, *used] if begin else used)),
            steps=keys.get("steps"),
            supervised=supervised,
            measured=bool(keys.get("measured", True)),
            factors=had,
            settings=settings,
        )
    if not made:
        raise where.wrong("there is no arm")
    _balanced(list(made.values()), list(factors), where)
    found: list[Arm] = []

    def put(arm: Arm, above: tuple[str, ...]) -> None:
        if arm in found:
            return
        if arm.name in above or (arm.start and arm.start not in made):
            raise where.wrong(f"arm `{arm.name}` starts from `{arm.start}`, which is no arm or starts from it")
        for name in arm.upon:
            put(made[name], (*above, arm.name))
        found.append(arm)

    for arm in made.values():
        put(arm, ())
    return tuple(found)


def _decisive(raw: Any) -> Any:
    """What is read, without what is for people."""
    if not isinstance(raw, Mapping):
        return raw
    return {key: _decisive(value) for key, value in raw.items() if key not in WORDS}


def _deciding(raw: Mapping[str, Any], arm: Arm, arms: Sequence[Arm]) -> dict[str, Any]:
    """What decides the results of `arm`, of `raw` as `_decisive` left it: no other arm, but those it builds on."""
    named = {one.name: one for one in arms}
    upon: list[str] = []
    ahead = [arm.name]
    while ahead:
        name = ahead.pop()
        if name not in upon:
            upon.append(name)
            ahead += named[name].upon
    apart = {"study": ("seeds",), "endpoint": ("compare",)}
    tables = ((name, dict(raw.get(name, {})), apart.get(name, ())) for name in ("study", "endpoint", "settings"))
    kept = {name: {key: value for key, value in table.items() if key not in out} for name, table, out in tables}
    had = {factor for name in upon for factor in named[name].factors or ()}
    factors = {"factors": {name: raw["factors"][name] for name in sorted(had)}} if had else {}
    return {**kept, **factors, "arm": arm.name, "arms": {name: raw["arms"][name] for name in sorted(upon)}}
