"""Games as environments of verifiers, driven by that package's own runner against a small server of ours."""

from __future__ import annotations

import asyncio
import json
import os
import re
import string
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from selfplay.project import Project
from selfplay.types import Stop
from tests import scripted
from tests.backends import needed
from tests.doors.test_web import served
from tests.games.search.ground import TEXTS, corpus
from tests.rollout.counter import Counter, role, written

pytestmark = pytest.mark.skipif(
    not os.environ.get("SELFPLAY_VERIFIERS"), reason="SELFPLAY_VERIFIERS=1 says that verifiers is here (.ci/doors)"
)
TEXT = string.printable + "“”é—…"
"""Every character that the games' prompts have here."""
RUNNER = "from verifiers.v1.cli.eval.main import main; main()"


def evaluated(
    url: str, to: Path, project: Project, *options: str, preset: str = "demo", sets: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """The traces of `vf-eval selfplay` against the model at `url`."""
    argv = [
        *(sys.executable, "-c", RUNNER, "selfplay", "--env.taskset.preset", preset, "-m", "toy", "--no-push"),
        *(("--env.taskset.sets", *sets) if sets else ()),
        *(
            "--env.agent.runtime.type",
            "subprocess",
            "--no-rich",
            "--client.base-url",
            url,
            "--client.api-key-var",
            "KEY",
            "-o",
            str(to),
            "--run.name",
            "run",
        ),
        *options,
    ]
    home = {"HOME": str(to), "KEY": "none", "SELFPLAY_PROJECT": str(project.folder)}
    done = subprocess.run(argv, env={**os.environ, **home}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = (to / "run" / "traces.jsonl").read_text().splitlines()
    episodes = [json.loads(line) for line in lines]
    return [trace for episode in episodes for trace in episode["traces"]]


def repeats(prompt: str) -> str:
    """What a solver of the toy game should say; the last letter of a longer word is wrong."""
    word = re.findall(r"[a-z]+", prompt.split("### reply")[0])[-1]
    return word if len(word) < 3 else word[:-1] + ("b" if word[-1] == "a" else "a")


def test_its_runner_plays_the_solver_and_is_told_the_verdict(tmp_path: Path, project: Project) -> None:
    with served(repeats) as (url, _):
        traces = evaluated(url, tmp_path, project, "-n", "3", "-r", "2", "--env.taskset.split", "held_out")
    assert len(traces) == 6
    assert all(trace["ok"] and not trace["errors"] for trace in traces)
    for trace in traces:
        word = trace["task"]["data"]["subject"]["payload"]["word"]
        assert trace["info"]["passed"] == (len(word) < 3), trace["info"]["why"]
        assert (trace["rewards"]["verdict"]["score"] == 1.0) == (len(word) < 3)


def test_a_proposal_is_worth_that_it_becomes_a_task(tmp_path: Path, project: Project) -> None:
    with served(lambda prompt: "ab") as (url, _):
        traces = evaluated(url, tmp_path, project, "-n", "4", "--env.taskset.side", "proposer")
    found = {trace["task"]["data"]["subject"]["payload"]["length"]: trace["info"]["valid"] for trace in traces}
    assert found
    assert all(valid == (length == 2) for length, valid in found.items())


def lines_of(prompt: str) -> dict[str, str]:
    """Number -> line, of the function that a prompt of the code game shows."""
    return dict(re.findall(r"^ *(\d+)\|(.*)$", prompt, re.MULTILINE))


def whole(name: str) -> list[str]:
    """The lines of a function of the package, as they are."""
    return next(part for part in scripted.PACKAGE["pkg/core.py"].split("\n\n\n") if f"def {name}(" in part).split("\n")


def mends(prompt: str) -> str:
    """The line of `add` that a bug changed, as it was; in `count` something else that breaks."""
    shown = lines_of(prompt)
    if not any("def add(" in line for line in shown.values()):
        return f"{list(shown)[-1]}|    raise ValueError()"
    own = [line for line in whole("add") if line.strip()]
    return next(f"{at}|{is_}" for (at, was), is_ in zip(shown.items(), own, strict=True) if was != is_)


def breaks(prompt: str) -> str:
    """A bug in `add`, and none in `count`."""
    shown = lines_of(prompt)
    return next((f"{at}|    total = a - b" for at, line in shown.items() if "total = a" in line), "no idea")


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Settings that play a package of two functions, in bubblewrap."""
    needed("bubblewrap")
    monkeypatch.setenv("SELFPLAY_CACHE", str(scripted.cache(tmp_path)))
    source = scripted.written(tmp_path)
    return (f"game.source={source}", "sandbox.kind=bubblewrap", "warmup.steps=0", "game.held_out=0.0")


def test_its_runner_plays_the_code_game_in_bubblewrap(code: tuple[str, ...], tmp_path: Path, project: Project) -> None:
    with served(mends, alphabet=TEXT) as (url, _):
        traces = evaluated(url, tmp_path, project, "-n", "2", preset="quickstart", sets=code)
    assert all(trace["ok"] and not trace["errors"] for trace in traces)
    found = {trace["task"]["data"]["subject"]["payload"]["qualname"]: trace for trace in traces}
    assert {name: trace["info"]["passed"] for name, trace in found.items()} == {"add": True, "count": False}
    assert found["add"]["rewards"]["verdict"]["score"] > found["count"]["rewards"]["verdict"]["score"]


def test_a_bug_is_a_task_where_it_breaks_a_test(code: tuple[str, ...], tmp_path: Path, project: Project) -> None:
    with served(breaks, alphabet=TEXT) as (url, _):
        traces = evaluated(
            url, tmp_path, project, "-n", "2", "--env.taskset.side", "proposer", preset="quickstart", sets=code
        )
    found = {trace["task"]["data"]["subject"]["payload"]["qualname"]: trace["info"]["valid"] for trace in traces}
    assert found == {"add": True, "count": False}


def answers(prompt: str) -> str:
    """The words that are missing of a sentence of the corpus; where it is about the canal, others."""
    masked = re.findall(r'____ in: "(.*)"', prompt)[-1]
    pattern = re.escape(masked).replace("____", "(.+?)")
    found = [re.search(pattern, text) for text in TEXTS.values()]
    answer = next(match[1] for match in found if match)
    return "nobody" if answer in TEXTS["canal"] else answer


def test_its_runner_plays_the_search_game(tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))
    sets = (f"game.corpus={corpus(tmp_path / 'texts')}", "warmup.steps=0", "game.held_out=0.2")
    with served(answers, alphabet=TEXT) as (url, _):
        traces = evaluated(url, tmp_path, project, "-n", "12", preset="search-quickstart", sets=sets)
    assert traces
    assert all(trace["ok"] and not trace["errors"] for trace in traces)
    for trace in traces:
        answer = trace["task"]["data"]["subject"]["payload"]["answer"]
        assert trace["info"]["passed"] == (answer not in TEXTS["canal"]), trace["info"]["why"]
    assert {trace["info"]["passed"] for trace in traces} == {True, False}


TOPIC = "comet tower bridge canal poem call"
ROLES = ("roles.proposer=search_proposer", "roles.solver=search_solver")


def searches(prompt: str) -> str:
    """A search, and when it was made what a reader of the corpus knows."""
    return f"<answer>{answers(prompt)}</answer>" if TOPIC in prompt else f"<search>{TOPIC}</search>"


def test_its_runner_lets_a_solver_search(tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFPLAY_CACHE", str(tmp_path / "cache"))
    sets = (f"game.corpus={corpus(tmp_path / 'texts')}", "warmup.steps=0", *ROLES)
    with served(searches, alphabet=TEXT) as (url, _):
        traces = evaluated(url, tmp_path, project, "-n", "4", preset="search-quickstart", sets=sets)
    assert len(traces) == 4
    for trace in traces:
        assert trace["ok"], trace["errors"]
        said = [node["message"]["content"] for node in trace["nodes"] if node["sampled"]]
        assert [re.findall(r"^<(\w+)>", text) for text in said] == [["search"], ["answer"]]
        told = [str(node["message"]["content"]) for node in trace["nodes"] if not node["sampled"]]
        assert any(text.split(".")[0] in told[-1] for text in TEXTS.values()), told[-1]
        answer = trace["task"]["data"]["subject"]["payload"]["answer"]
        assert trace["info"]["passed"] == (answer not in TEXTS["canal"]), trace["info"]["why"]


@pytest.mark.parametrize("form", ["fenced", "json"])
def test_a_role_with_tools_works_in_turns(form: Any) -> None:
    from selfplay.doors.verifiers import _Play

    said: list[Sequence[Mapping[str, str]]] = []
    replies = iter([written(form, "add", number=2), "nothing" if form == "fenced" else written(form, "none"), ""])

    def ask(messages: Sequence[Mapping[str, str]]) -> Mapping[str, Any]:
        said.append(list(messages))
        return {"choices": [{"message": {"content": next(replies)}, "finish_reason": "stop"}]}

    play = _Play(role=role(form, turns=3), toolbox=Counter(), ask=ask)
    stop = asyncio.run(play.run("count"))
    assert stop in (Stop.TURNS, Stop.DONE)
    assert [one["role"] for one in said[0]] == ["system", "user"]
    assert "Remaining turns: 2" in said[1][-1]["content"]
    assert play.turns[0]["calls"][0]["name"] == "add"
