"""The small form of a study on the code game, with real weights: fails when learning stops.

SmolLM2-135M is warmed up on a dozen functions of two or three lines, then only repairs them, one procedural bug each,
by GRPO. The share of attempts that pass in the last quarter of the steps must be above that of the first, and a second
run of that arm must give the same ledger. Not a test by itself: CI runs it, since it takes minutes
(`python tests/study/code_learns.py FOLDER`).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from selfplay.events import Interrupt, ignore
from selfplay.games.code import warmup
from selfplay.games.code.opened import Opened
from selfplay.project import find_project
from selfplay.study import again, arms, measuring
from selfplay.study.spec import read

FUNCTIONS = {
    "area": ("width, height", "return width * height", ["area(2, 3) == 6", "area(5, 1) == 5"]),
    "mean": ("numbers", "total = sum(numbers)\n    return total / len(numbers)", ["mean([1, 3]) == 2"]),
    "is_even": ("number", "return number % 2 == 0", ["is_even(4)", "not is_even(7)"]),
    "last": ("items", "return items[-1]", ["last([1, 2, 3]) == 3", "last('ab') == 'b'"]),
    "larger": ("a, b", "if a > b:\n        return a\n    return b", ["larger(1, 2) == 2", "larger(5, 3) == 5"]),
    "between": ("x, low, high", "return low <= x and x <= high", ["between(2, 1, 3)", "not between(0, 1, 3)"]),
    "shout": ("word", "return word.upper() + '!'", ["shout('hey') == 'HEY!'"]),
    "countdown": ("n", "return list(range(n, 0, -1))", ["countdown(3) == [3, 2, 1]"]),
    "distance": ("a, b", "gap = a - b\n    return abs(gap)", ["distance(2, 5) == 3", "distance(9, 1) == 8"]),
    "squares": ("n", "return [i * i for i in range(n)]", ["squares(4) == [0, 1, 4, 9]"]),
    "first_word": ("text", "words = text.split()\n    return words[0]", ["first_word('a bc d') == 'a'"]),
    "clipped": (
        "x, top",
        "if x >= top:\n        return top\n    return x",
        ["clipped(9, 5) == 5", "clipped(2, 5) < 3"],
    ),
}
"""Name -> parameters, body, what holds of it."""
STUDY = """
[study]
about = "A dozen small functions: is repairing them learnt from rewards?"
preset = "quickstart"
seeds = [0]
budget = 0
start = "warmup"
[endpoint]
measure = "pass@1"
attempts = 8
tasks = "none"
[settings]
"game.source" = "{source}"
"game.held_out" = 0.0
"sandbox.kind" = "bubblewrap"
"warmup.steps" = 10
"warmup.check_every" = 0
"run.save_every" = 1000
"play.attempts" = 8
[arms.warmup]
steps = 0
[arms.repair]
steps = 12
[arms.repair.settings]
"curriculum.choose" = "given"
"curriculum.seeds" = 6
"roles.train" = ["solver"]
"play.temperature" = 1.0
"learner.lr" = 3e-5
"""
LEAST = 0.1
"""How much larger the share that passes must be."""


def lesson(self: Opened, index: int, *, seed: int) -> warmup.Example:
    """A warm-up example of the package's own functions, and of no others."""
    own = [warmup.Function(name=one.source, source=one.payload["source"]) for one in self.seeds]
    return warmup.example(index, seed=seed, package=own, stdlib=(), package_share=1.0)


def package(folder: Path) -> Path:
    """The functions and their tests, as a project."""
    code = "\n\n".join(f"def {name}({given}):\n    {body}\n" for name, (given, body, _) in FUNCTIONS.items())
    tests = "\n\n".join(
        f"def test_{name}():\n" + "".join(f"    assert {line}\n" for line in lines)
        for name, (_, _, lines) in FUNCTIONS.items()
    )
    for path, text in {
        "small/__init__.py": code,
        "tests/test_small.py": f"from small import {', '.join(FUNCTIONS)}\n\n\n{tests}",
    }.items():
        file = folder / "small-1.0" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder / "small-1.0"


def main(folder: Path) -> None:
    """Play both arms below `folder`, and compare."""
    Opened.example = lesson  # type: ignore[method-assign]
    file = folder / "handful.toml"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(STUDY.format(source=package(folder)))
    study, project = read(file), find_project(explicit=Path(__file__).parents[2])
    shares: dict[str, float] = {}
    for arm in study.arms:
        began = time.monotonic()
        job = arms.Job(study=study, arm=arm, seed=0, root=folder / "runs")
        assert arms.play(job, project=project, observe=ignore, interrupt=Interrupt())
        run = measuring.result(job, test=(), tested=True, project=project, observe=ignore)["run"]
        assert run["check"] == "accepted"
        shares = {part: found["passed"] / found["attempts"] for part, found in run["played"].items() if arm.start}
        print(f"{arm.name}: {run['steps']} steps, {time.monotonic() - began:.0f} s, {run['ledger']}")
    assert arms.play(again.second(job), project=project, observe=ignore, interrupt=Interrupt())
    compared = again.compare(job, project=project, dev=False)
    print(compared.words)
    print(", ".join(f"{part} quarter {share:.2f}" for part, share in shares.items()))
    assert shares["last"] >= shares["first"] + LEAST, f"no learning: {shares}"
    assert compared.same, compared.words


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
