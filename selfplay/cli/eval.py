"""`selfplay eval`: how good are weights on tasks that they never learnt from?

Not here: playing (`evaluation`), figures (`views.evaluation`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from selfplay.cli import eval_external, runs
from selfplay.cli.session import Session, common
from selfplay.errors import NotFound, UserError

if TYPE_CHECKING:
    from selfplay.config import Config
    from selfplay.estimate import Estimate
    from selfplay.evaluation.grounds import Ground
    from selfplay.evaluation.measure import Ask, Measured
    from selfplay.evaluation.targets import Target
    from selfplay.project import Project

BACKENDS = ("auto", "docker", "bubblewrap", "local")


@click.command("eval", short_help="How good are weights on tasks they never learnt from?")
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@click.option("--on", "ground", metavar="RUN|FILE|FOLDER", help="Whose held-out tasks [default: the first run's].")
@click.option("--tasks", type=click.IntRange(min=1), metavar="N", help="At most N tasks [default: as the run says].")
@click.option("--attempts", type=click.IntRange(min=1), default=4, show_default=True, metavar="N", help="A task.")
@click.option("--k", "ks", metavar="K,K,...", help="For pass@k [default: powers of two up to --attempts].")
@click.option(
    "--temperature", type=click.FloatRange(min=0.0), metavar="T", help="0: the likeliest [default: the roles']."
)
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Keys every draw [default: the run's].")
@click.option("--model", metavar="NAME", help="What an endpoint calls the model it serves.")
@click.option("--tokenizer", metavar="MODEL", help="Whose tokenizer an endpoint's model has: an alias or a folder.")
@click.option("--issues", metavar="FILE", help="Tell tasks by these texts (`code`, with tools).")
@click.option("--corpus", metavar="NAME", help="Searched for a file of questions [default: the run's].")
@click.option("--sandbox", type=click.Choice(BACKENDS), help="Where tests run [default: as the run says].")
@common
def command(
    session: Session,
    targets: tuple[str, ...],
    *,
    ground: str | None,
    tasks: int | None,
    attempts: int,
    ks: str | None,
    temperature: float | None,
    seed: int | None,
    model: str | None,
    tokenizer: str | None,
    issues: str | None,
    corpus: str | None,
    sandbox: str | None,
) -> int:
    """Let each TARGET attempt held-out tasks, and propose on held-out seeds; print pass@k and the share of valid ones.

    TARGET is RUN (its newest save), RUN@STEP (the save after that step, or `start`), a model (an alias, a folder, a
    Hugging Face id), or an endpoint of OpenAI's kind, http://HOST:PORT/v1. Of several targets, the others are compared
    with the first, task by task. pass@k is the unbiased estimate; intervals are 95 %, by bootstrap over tasks. Runs are
    only read; what was played is kept in evals/ under the run, and the same question is answered from there.

    A FILE is what `selfplay export --format tasks` writes; or questions with golden answers as JSON lines (NQ, SQuAD,
    TriviaQA, HotpotQA, 2Wiki, MuSiQue, Bamboogle), which are answered by searching, by heart, and from the right
    passages. With --issues, solvers with tools are told a bug by its issue: rows with `task_id`, `problem_statement`
    (SWE-bench's).
    A FOLDER holds files of tasks, or has QuixBugs' layout. SWE-bench rows of `selfplay export` and HumanEval's JSON
    lines, whose programs are written whole, are read too; what others made is proved in the sandbox first, once.

    \b
    Examples:
      selfplay eval last
      selfplay eval quickstart@start quickstart --tasks 32 --attempts 8
      selfplay eval smollm2-135m --on tasks.jsonl
      selfplay eval last --on bamboogle.jsonl --corpus wiki --attempts 1
      selfplay eval http://localhost:8000/v1 --model m --tokenizer ./m --on last
    """
    if session.json:
        session.claim_stdout()
    wanted = _ks(ks, attempts)
    chosen = [_chosen(text, model=model, tokenizer=tokenizer, project=session.project) for text in targets]
    from selfplay.evaluation.measure import Ask, measure
    from selfplay.views.observers import PlainObserver

    ask = Ask(attempts=attempts, temperature=temperature, seed=seed)
    if ground is not None and _holds_questions(ground):
        if issues is not None:
            raise UserError("--issues is for tasks, and questions have none", hint="name a file of tasks: --on FILE")
        return _questions(session, Path(ground), chosen, ask, ks=wanted, corpus=corpus, tasks=tasks, sandbox=sandbox)
    if ground is not None and eval_external.is_brought(ground):
        return eval_external.answer(session, Path(ground), chosen, ask, ks=wanted, tasks=tasks, sandbox=sandbox)
    if corpus is not None:
        raise UserError("--corpus is for a file of questions", hint="name one: --on questions.jsonl")
    where = _ground(ground, chosen, count=tasks, sandbox=sandbox, project=session.project)
    if issues is not None:
        where = _told(where, chosen, Path(issues), project=session.project)
    with PlainObserver(sys.stderr, run=where.words) as observe:
        found = measure(chosen, where, ask, project=session.project, observe=observe)
    _tell(session, found, where, attempts=attempts, ks=wanted)
    return 0


def _tell(session: Session, found: Sequence[Measured], where: Ground, *, attempts: int, ks: Sequence[int]) -> None:
    """What was measured: for people, or for programs."""
    run = where.folder.name if where.folder is not None else None
    if session.json:
        session.answer("eval", data(found, where, attempts=attempts, ks=ks), run=run)
        return
    session.data.write("".join(f"{line}\n" for line in lines(found, where, attempts=attempts, ks=ks)))
    for one in found:
        if one.kept is not None:
            session.say(f"{one.target.words}: {'found' if one.stored else 'kept'} in {one.kept}")


def _holds_questions(text: str) -> bool:
    from selfplay.evaluation.questions import is_questions

    return Path(text).is_file() and Path(text).name != runs.LEDGER and is_questions(Path(text))


def _questions(
    session: Session,
    path: Path,
    targets: Sequence[Target],
    ask: Ask,
    *,
    ks: Sequence[int],
    corpus: str | None,
    tasks: int | None,
    sandbox: str | None,
) -> int:
    """Evaluate on a file of questions."""
    from selfplay.cli import eval_questions
    from selfplay.evaluation.answering import exam
    from selfplay.views.observers import PlainObserver

    run = next((target.config for target in targets if target.config is not None), None)
    ready = exam(path, run=run, corpus=corpus, count=tasks, sandbox=sandbox, project=session.project)
    with PlainObserver(sys.stderr, run=path.name) as observe:
        found = eval_questions.answered(ready, targets, ask, ks=ks, project=session.project, observe=observe)
    if session.json:
        session.answer("eval", eval_questions.data(found, ready, path, attempts=ask.attempts))
        return 0
    shown = eval_questions.lines(found, ready, path, attempts=ask.attempts)
    session.data.write("".join(f"{line}\n" for line in shown))
    return 0


def _ks(text: str | None, attempts: int) -> list[int]:
    """The k of pass@k.

    Raises:
        UserError: one is no whole number from 1 to `attempts`.
    """
    if text is None:
        return sorted({1, attempts, *(2**i for i in range(attempts.bit_length()) if 2**i <= attempts)})
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 1 <= int(word) <= attempts for word in words):
        raise UserError(
            f"--k {text}: each k is a whole number from 1 to the {attempts} attempts a task",
            hint="ask for more attempts: --attempts N",
        )
    return sorted({int(word) for word in words})


def target_of(text: str, *, project: Project) -> Target:
    """What `text` means: the exact name of a run, a model, the beginning of a run's name.

    Raises:
        NotFound: neither; or the save is gone, and those that are kept are named.
        Ambiguous: it is the beginning of several runs' names.
    """
    from selfplay.evaluation.targets import Target, of_run
    from selfplay.parts import TOY
    from selfplay.policy.models import ALIASES

    name, at, step = text.rpartition("@")
    names = {run.name for run in runs.all_runs(project)}
    if at:
        return of_run(runs.find_run(name, project=project), step, project=project)
    is_model = text == TOY or text in ALIASES or (Path(text).expanduser() / "config.json").is_file()
    if text in names or not is_model:
        try:
            return of_run(runs.find_run(text, project=project), None, project=project)
        except NotFound as error:
            if text in names or "/" not in text or text.startswith((".", "/", "~")):
                models = ", ".join(ALIASES)
                raise NotFound(error.message, hint=f"{error.hint}; models: {models}, {TOY} or a folder") from error
    return Target(words=text, kind="model", name=text)


def _chosen(text: str, *, model: str | None, tokenizer: str | None, project: Project) -> Target:
    """A run, one of its saves, a model or an endpoint.

    Raises:
        NotFound, UserError: as `_endpoint` and `target_of`.
    """
    if text.startswith(("http://", "https://")):
        return _endpoint(text, model=model, tokenizer=tokenizer)
    return target_of(text, project=project)


def _endpoint(text: str, *, model: str | None, tokenizer: str | None) -> Target:
    """An endpoint.

    Raises:
        UserError: nobody said which model it serves, or what tokenizer that has.
    """
    from selfplay.evaluation.targets import Target

    if model is None or tokenizer is None:
        missing = "--model NAME" if model is None else "--tokenizer MODEL"
        raise UserError(
            f"{text} is an endpoint, and {missing} is missing",
            hint=f"selfplay eval {text} --model NAME --tokenizer smollm2-135m --on RUN",
        )
    return Target(words=text, kind="endpoint", name=text, options={"model": model, "tokenizer": tokenizer})


def _ground(
    text: str | None, targets: Sequence[Target], *, count: int | None, sandbox: str | None, project: Project
) -> Ground:
    """What is evaluated on: what `--on` names, else the first target that is a run's.

    Raises:
        UserError: there is none.
    """
    from selfplay.evaluation.grounds import on_file, on_run

    first = next((target for target in targets if target.folder is not None), None)
    if text is None:
        if first is None or first.folder is None:
            raise UserError(
                f"what shall {targets[0].words} be evaluated on? It is no run",
                hint=f"name a run or a file of tasks: selfplay eval {targets[0].words} --on RUN",
            )
        return on_run(first.folder, count=count, sandbox=sandbox, project=project)
    if Path(text).is_file() and Path(text).name != runs.LEDGER:
        own: Config | None = first.config if first is not None else None
        return on_file(Path(text), run=own, count=count, sandbox=sandbox, project=project)
    if text.endswith((".jsonl", ".json")):
        raise NotFound(f"no file {text}", hint="write one: selfplay export RUN --format tasks --held-out --to FILE")
    return on_run(runs.find_run(text, project=project), count=count, sandbox=sandbox, project=project)


def _told(ground: Ground, targets: Sequence[Target], issues: Path, *, project: Project) -> Ground:
    """The same tasks, told by issues."""
    from selfplay.evaluation.issues import told

    configs = [target.config for target in targets if target.config is not None]
    return told(ground, issues, configs=configs, project=project)


def lines(found: Sequence[Measured], ground: Ground, *, attempts: int, ks: Sequence[int]) -> Iterator[str]:
    """What came out, for people."""
    from selfplay.estimate import LEVEL, RESAMPLES
    from selfplay.views.evaluation import counts_of, percent, summary
    from selfplay.views.words import duration, plural

    first = summary(found[0].plays, ks=ks)
    warmth = sorted({one.temperature for one in found})
    yield f"on        {ground.words}: {plural(first.tasks, 'task')}, {plural(first.seeds, 'seed')}"
    yield (
        f"samples   {attempts} a task, one proposal a seed; temperature {', '.join(f'{t:g}' for t in warmth)}, "
        f"seed {found[0].seed}"
    )
    yield f"[..]      {100 * LEVEL:.0f} %, bootstrap over tasks (valid: over seeds), {RESAMPLES:,} resamples"
    for one in found:
        version = f" (weights v{one.target.version})" if one.target.version is not None else ""
        figures = summary(one.plays, ks=ks)
        yield f"\n{one.target.words}{version}"
        for k, estimate in figures.passes.items():
            yield f"  pass@{k:<4} {percent(estimate)}{_without(estimate)}"
        if figures.proposals:
            yield f"  valid     {percent(figures.valid)} of {plural(figures.proposals, 'proposal')}"
        left = figures.undecided + figures.proposals_undecided
        undecided = f", {left} undecided and left out" if left else ""
        yield f"  {plural(figures.attempts, 'attempt')}{undecided}, {duration(one.seconds)}"
    for one in found[1:]:
        yield f"\n{one.target.words} less {found[0].target.words}, on the same tasks"
        for k, estimate in _differences(counts_of(found[0].plays), counts_of(one.plays), ks):
            yield f"  pass@{k:<4} {percent(estimate, signed=True)}{_without(estimate)}"


def _without(estimate: Estimate) -> str:
    return f" (without {estimate.left_out} of too few decided attempts)" if estimate.left_out else ""


def _differences(first: Any, other: Any, ks: Sequence[int]) -> Iterator[tuple[int, Estimate]]:
    from selfplay.estimate import difference

    yield from ((k, difference(first, other, k=k)) for k in ks)


def data(found: Sequence[Measured], ground: Ground, *, attempts: int, ks: Sequence[int]) -> dict[str, Any]:
    """What came out, as JSON."""
    from selfplay.estimate import LEVEL, RESAMPLES
    from selfplay.views.evaluation import counts_of, estimate_data, summary, summary_data

    return {
        "on": ground.words,
        "attempts": attempts,
        "seed": found[0].seed,
        "intervals": {"level": LEVEL, "resamples": RESAMPLES, "method": "percentile bootstrap over tasks"},
        "targets": [
            {
                "target": one.target.words,
                "policy_version": one.target.version,
                "temperature": one.temperature,
                **summary_data(summary(one.plays, ks=ks)),
                "seconds": one.seconds,
                "stored": one.stored,
                "kept": str(one.kept) if one.kept is not None else None,
            }
            for one in found
        ],
        "differences": [
            {
                "of": one.target.words,
                "less": found[0].target.words,
                "pass_at": {
                    str(k): estimate_data(estimate)
                    for k, estimate in _differences(counts_of(found[0].plays), counts_of(one.plays), ks)
                },
            }
            for one in found[1:]
        ],
    }
