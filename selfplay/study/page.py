"""`curricula/results/README.md`, made of the committed results alone: no number in it is typed by a person.

Not here: the numbers (`statistics`), measuring them (`measuring`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from selfplay.estimate import Estimate
from selfplay.study import results
from selfplay.study.opening import openings
from selfplay.study.spec import HELD_OUT
from selfplay.study.statistics import Table, by_chance, by_function, crossed, effect, holm, paired, sign_flips

NAME = "README.md"
COSTS = (
    *("arm", "warm-up updates", "steps", "generated", "trained", "verifications", "hours", "sandbox hours"),
    *("points gained", "tokens a point", "seconds a point", "sandbox seconds a point"),
)
"""What a run cost; tokens, verifications and hours of play."""
Rows = Sequence[Mapping[str, Any]]

HEAD = """# Results

Made by `selfplay study --page` from the files beside it; a test says whether it is current. Each file
`STUDY/ARM-SEED.json` is one run: what it solved, what it cost, the digest of its ledger, which `selfplay check`
accepted, and the machine. `file` begins that file's own SHA-256.

Figures are means over seeds and functions; `[..]` is a 95 % interval that resamples seeds and functions, each by itself
(of one seed functions alone). p compares seed by seed (changes of sign; n seeds cannot give less than 2 / 2^n), and
`Holm` is p corrected for all comparisons of the study.

A second run by the same code gives the same ledger where all is the same that is said of its machine
(`selfplay study FILE --only ARM --seed N --again` plays one and compares); `arithmetic` rises where this package's
learner or sampler changed bits.
"""


def page(folder: Path) -> str:
    """The text of the page over the results in `folder`.

    Raises:
        UserError: a file there is no result.
    """
    studies = sorted(path for path in folder.iterdir() if (path / results.ABOUT).is_file()) if folder.is_dir() else []
    parts = [HEAD]
    parts += [of_study(study) for study in studies]
    if not studies:
        parts.append("Nothing was measured yet.\n")
    return "\n".join(parts)


def of_study(folder: Path) -> str:
    """The part of one study."""
    about = json.loads((folder / results.ABOUT).read_text(encoding="utf-8"))
    rows, former = _current(results.read(folder), about)
    lines = [f"## {folder.name}", "", about["about"], "", f"    selfplay study {about['file']}", ""]
    lines += [_opened(folder, about), ""]
    if rows:
        lines += [_asked(rows, about), "", *_arms(rows, about), "", *_compared(rows, about), *_effects(rows, about)]
        lines += [*_costs(rows, about), "", *_played(rows, about), *_runs(rows, folder), ""]
    else:
        lines += ["No arm was measured yet.", ""]
    if former:
        names = ", ".join(f"`{row['arm']}-{row['seed']}`" for row in former)
        lines += [f"Left out, as measured with another form of their arm: {names}.", ""]
    dev, _ = _current(results.read(folder / "dev"), about)
    if dev:
        lines += ["### Tuning (other seeds, held-out tasks of the training package)", "", *_arms(dev, about), ""]
    return "\n".join(lines)


def _current(rows: Rows, about: Mapping[str, Any]) -> tuple[Rows, Rows]:
    """Results of the arms as the study has them, and those of former ones."""
    digests = {arm["name"]: arm["digest"] for arm in about["arms"]}
    now = [row for row in rows if row["arm_digest"] == digests.get(row["arm"])]
    return now, [row for row in rows if row not in now]


def _opened(folder: Path, about: Mapping[str, Any]) -> str:
    """How often anybody has looked at the test tasks: this study, and others whose tasks are the same."""
    own, others = len(openings(folder)), {}
    for path in sorted(folder.parent.glob(f"*/{results.ABOUT}")) if about["tasks_digest"] else ():
        other = json.loads(path.read_text(encoding="utf-8"))
        if path.parent != folder and other["tasks_digest"] == about["tasks_digest"]:
            others[path.parent.name] = len(openings(path.parent))
    total = own + sum(others.values())
    if not total:
        return "The test tasks were not opened."
    by = "".join(f", {number} of them by `{name}`" for name, number in others.items() if number)
    later = ", so that later forms of the study may be tuned to them" if total > 1 else ""
    return f"The test tasks were opened {'once' if total == 1 else f'{total} times'}{by}{later}."


def _asked(rows: Rows, about: Mapping[str, Any]) -> str:
    """The endpoint: how many bugs or questions, in how many functions or documents."""
    counts = rows[0]["looked"]["endpoint"]["counts"]
    where = "held-out tasks of the runs" if about["tasks"] == HELD_OUT else f"`{about['tasks']}`"
    tasks = sum(map(len, counts.values()))
    return (
        f"The endpoint: {about['measure']} of {about['attempts']} attempts at temperature {about['temperature']} on "
        f"{tasks:,} tasks of {len(counts):,} seeds, {where}."
    )


def _by_arm(rows: Rows, about: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Arm -> its results, in the study's order."""
    order = [arm["name"] for arm in about["arms"]]
    found: dict[str, list[Mapping[str, Any]]] = {name: [] for name in order}
    for row in rows:
        found.setdefault(row["arm"], []).append(row)
    return {name: mine for name, mine in found.items() if mine}


def _table(rows: Rows, *, where: str, k: int) -> Table:
    """Seed -> function -> pass@k, on the functions that all seeds have."""
    return _of({row["seed"]: _counts(row, where) for row in rows if where in row["looked"]}, k=k)


def _of(counts: Mapping[int, Mapping[str, Any]], *, k: int) -> Table:
    every = {seed: by_function(found, k=k) for seed, found in counts.items()}
    both = set.intersection(*map(set, every.values())) if every else set()
    return {seed: {name: found[name] for name in sorted(both)} for seed, found in every.items()}


def _arms(rows: Rows, about: Mapping[str, Any]) -> Iterator[str]:
    k, most = rows[0]["k"], rows[0]["attempts"]
    yield f"| arm | seeds | pass@{k} | pass@{most} | valid proposals | held-out pass@{k} | held-out valid |"
    yield "|---|---|---|---|---|---|---|"
    for name, mine in _by_arm(rows, about).items():
        cells = [name, str(len(mine))]
        cells += [_shown(crossed(_table(mine, where="endpoint", k=of), key=name)) for of in (k, most)]
        cells += [_valid(mine, "endpoint"), _shown(crossed(_table(mine, where="held_out", k=k), key=name))]
        yield f"| {' | '.join([*cells, _valid(mine, 'held_out')])} |"
    yield from _unlike(rows, about, k=k, most=most)
    yield ""
    played = {row["arm"] for row in rows}
    for arm in about["arms"]:
        if arm["about"] or arm["name"] not in played:
            owed = "" if arm["name"] in played else "Not measured yet."
            yield f"- `{arm['name']}`: {' '.join(filter(None, (arm['about'], owed)))}"
    if about.get("start_seed") is not None:
        yield ""
        yield (
            f"`{about['start']}` is one run, of seed {about['start_seed']}, asked with every seed: what is found holds "
            "for that start, and its intervals do not say how warm-ups differ."
        )


def _unlike(rows: Rows, about: Mapping[str, Any], *, k: int, most: int) -> Iterator[str]:
    """The endpoint's bugs apart, where only some of them are such that no warm-up example can have had them."""
    where = "endpoint" + results.UNLIKE
    if not any(where in row["looked"] for row in rows):
        return
    yield ""
    yield f"| by kind of bug | no procedural mutation | pass@{k} | pass@{most} | a mutation | pass@{k} | pass@{most} |"
    yield "|---|---|---|---|---|---|---|"
    for name, mine in _by_arm(rows, about).items():
        cells = [name]
        for counts in ([_counts(row, where) for row in mine], [_others(row, where) for row in mine]):
            each = {row["seed"]: found for row, found in zip(mine, counts, strict=True)}
            bugs = {bug for found in counts for pairs in found.values() for bug in pairs}
            cells += [str(len(bugs)), *(_shown(crossed(_of(each, k=of), key=name)) for of in (k, most))]
        yield f"| {' | '.join(cells)} |"


def _counts(row: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Function -> bug -> what became of the attempts on it."""
    found: Mapping[str, Any] = row["looked"].get(where, {"counts": {}})["counts"]
    return found


def _others(row: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The endpoint's counts without those of `where`; none where these were not told apart."""
    if where not in row["looked"]:
        return {}
    apart = _counts(row, where)
    left = {
        name: {bug: one for bug, one in pairs.items() if bug not in apart.get(name, {})}
        for name, pairs in _counts(row, "endpoint").items()
    }
    return {name: pairs for name, pairs in left.items() if pairs}


def _valid(rows: Rows, where: str) -> str:
    pairs = [row["looked"][where]["valid"] for row in rows if where in row["looked"]]
    decided, valid = (sum(pair[place] for pair in pairs) for place in (0, 1))
    return f"{100 * valid / decided:.1f} % of {decided}" if decided else ""


def _compared(rows: Rows, about: Mapping[str, Any]) -> Iterator[str]:
    """The comparisons that the study named beforehand."""
    arms, k = _by_arm(rows, about), rows[0]["k"]
    found: dict[str, tuple[int, Estimate]] = {}
    values: dict[str, float] = {}
    for first, second in about["compare"]:
        apart = paired(*(_table(arms.get(name, ()), where="endpoint", k=k) for name in (first, second)))
        means = [math.fsum(row.values()) / len(row) for row in apart.values() if row]
        name = f"{second} less {first}"
        values[name] = 1.0
        if not means:  # note: still one of the family, and not measured yet.
            continue
        found[name] = len(means), crossed(apart, key=name)
        values[name] = sign_flips(means, key=name)
    if not found:
        return
    corrected = holm(values)
    yield f"| pass@{k} | seeds | difference | p | Holm |"
    yield "|---|---|---|---|---|"
    for name, (seeds, estimate) in found.items():
        yield f"| {name} | {seeds} | {_shown(estimate, signed=True)} | {values[name]:.4f} | {corrected[name]:.4f} |"
    yield ""


def _effects(rows: Rows, about: Mapping[str, Any]) -> Iterator[str]:
    """What each factor does: arms with it less arms without it, on the seeds with which all of them are measured."""
    arms, k = _by_arm(rows, about), rows[0]["k"]
    had = {arm["name"]: arm["factors"] for arm in about["arms"] if "factors" in arm}
    if not had:
        return
    if owed := [name for name in had if name not in arms]:
        yield f"What each factor does is told once these are measured: {', '.join(owed)}."
        yield ""
        return
    tables = {name: _table(arms[name], where="endpoint", k=k) for name in had}
    where = "endpoint" + results.UNLIKE
    kinds = [
        {name: _of({row["seed"]: get(row, where) for row in arms[name]}, k=k) for name in had}
        for get in (_counts, _others)
    ]
    found: dict[str, list[Estimate]] = {}
    for factor in about["factors"]:
        found[factor] = [
            crossed(effect(*(_those(which, had, factor, have) for have in (True, False))), key=factor)
            for which in (tables, *kinds)
        ]
    means = {name: one[0].value for name, one in found.items()}
    chance = by_chance({name: value for name, value in means.items() if value is not None}, key="effects")
    yield f"| factor, pass@{k} with it less without it | all bugs | p | no procedural mutation | a mutation |"
    yield "|---|---|---|---|---|"
    for name, (every, *of_kind) in found.items():
        p = f"{chance[name]:.3f}" if name in chance else ""
        yield f"| {' | '.join([name, _shown(every, signed=True), p, *(_shown(one, signed=True) for one in of_kind)])} |"
    yield ""
    for name, text in about["factors"].items():
        yield f"- `{name}`: {text}"
    yield ""
    yield (
        f"Each is told from all {len(had)} arms that say which factors they have. p holds an effect against the size "
        "of the others, most of which are taken to be chance (Lenth); it is not corrected for their number."
    )
    yield ""


def _those(tables: Mapping[str, Table], had: Mapping[str, Sequence[str]], factor: str, have: bool) -> list[Table]:
    return [table for name, table in tables.items() if (factor in had[name]) == have]


def _costs(rows: Rows, about: Mapping[str, Any]) -> Iterator[str]:
    """Means a seed, and what a point over the start cost; neither counts the warm-up."""
    arms, k = _by_arm(rows, about), rows[0]["k"]
    starts = {arm["name"]: arm["start"] for arm in about["arms"]}
    yield f"| {' | '.join(COSTS)} |"
    yield "|" + "---|" * len(COSTS)
    for name, mine in arms.items():
        runs = [row["run"] for row in mine if row["run"] is not None]
        if not runs:
            continue

        def mean(key: str, runs: Sequence[Mapping[str, Any]] = runs) -> float:
            return math.fsum(run[key] for run in runs) / len(runs)

        before = _table(arms.get(starts.get(name, ""), ()), where="endpoint", k=k)
        gained = crossed(paired(before, _table(mine, where="endpoint", k=k)), key=name).value
        tokens = mean("generated") + mean("trained")
        cells = [name, f"{mean('warmup_updates'):,.0f}", f"{mean('steps'):,.0f}"]
        cells += [f"{mean('generated'):,.0f}", f"{mean('trained'):,.0f}"]
        cells += [f"{mean('verifications'):,.0f}", f"{mean('seconds') / 3600:.2f}"]
        cells += [f"{mean('sandbox_seconds') / 3600:.2f}", "" if gained is None else f"{100 * gained:+.1f}"]
        for value in (tokens, mean("seconds"), mean("sandbox_seconds")):
            # note: what a longer warm-up costs is in its updates; it plays nothing.
            cells.append(f"{value / (100 * gained):,.0f}" if gained is not None and gained > 0 < value else "")
        yield f"| {' | '.join(cells)} |"


def _played(rows: Rows, about: Mapping[str, Any]) -> Iterator[str]:
    """What play brought at its start and at its end; tasks change between, but for an arm of fixed ones."""
    arms = {
        name: [row["run"]["played"] for row in mine if row["run"] and row["run"]["played"]]
        for name, mine in _by_arm(rows, about).items()
    }
    if not any(arms.values()):
        return
    yield "| in play, first quarter of the steps to the last | valid proposals | passed attempts | informative groups |"
    yield "|---|---|---|---|"
    for name, parts in arms.items():
        cells = []
        for part, whole in (("valid", "proposals"), ("passed", "attempts"), ("informative", "groups")):
            ends = [_share(parts, when, part, whole) for when in ("first", "last")]
            cells.append(" to ".join(ends) if all(ends) else "")
        if parts:
            yield f"| {' | '.join([name, *cells])} |"
    yield ""


def _share(parts: Sequence[Mapping[str, Any]], when: str, part: str, whole: str) -> str:
    """Of all seeds together; empty where there was nothing to be a share of."""
    found, every = (sum(one[when][name] for one in parts) for name in (part, whole))
    return f"{100 * found / every:.1f} %" if every else ""


def _runs(rows: Rows, folder: Path) -> Iterator[str]:
    yield "| run | ledger | weights | file | machine |"
    yield "|---|---|---|---|---|"
    for row in rows:
        run = row["run"] or {"ledger": "none: the model as it comes", "weights": ""}
        # note: results of earlier versions do not say it.
        own = run.get("fingerprint")
        known = {name: value for name, value in row["machine"].items() if own is None or name not in own}
        machine = ", ".join([*(f"{name} {value}" for name, value in known.items()), *(own.split("; ") if own else ())])
        name = f"{row['arm']}-{row['seed']}"
        file = hashlib.sha256((folder / f"{name}.json").read_bytes()).hexdigest()[:16]
        yield f"| {name} | {run['ledger'][:16]} | {str(run['weights'])[:16]} | {file} | {machine} |"


def _shown(found: Estimate, *, signed: bool = False) -> str:
    """`12.5 [3.1, 25.0]`, in percent or points."""
    if found.value is None or found.low is None or found.high is None:
        return ""
    sign = "+" if signed else ""
    value, low, high = (f"{100 * part:{sign}.1f}" for part in (found.value, found.low, found.high))
    return f"{value} [{low}, {high}]"


def write(folder: Path) -> Path:
    """Make the page anew; its path."""
    path = folder / NAME
    results.whole(path, page(folder))
    return path
