"""Games as environments of verifiers, driven by that package's own runner against a small server of ours."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from selfplay.project import Project
from selfplay.types import Stop
from tests.doors.test_web import served
from tests.rollout.counter import Counter, role, written

pytestmark = pytest.mark.skipif(
    not os.environ.get("SELFPLAY_VERIFIERS"), reason="SELFPLAY_VERIFIERS=1 says that verifiers is here (.ci/doors)"
)
RUNNER = "from verifiers.v1.cli.eval.main import main; main()"


def evaluated(url: str, to: Path, project: Project, *options: str) -> list[dict[str, Any]]:
    """The traces of `vf-eval selfplay` against the model at `url`."""
    argv = [
        *(sys.executable, "-c", RUNNER, "selfplay", "--env.taskset.preset", "demo", "-m", "toy", "--no-push"),
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
