"""A bug is repaired by a harness in the sandbox, from end to end: judged, in the ledger by token ids, and learnt from.

What is covered: an agent of a few lines that speaks HTTP, in bubblewrap without a network; and mini-swe-agent,
unmodified, where `SELFPLAY_MINI` names its command (`.ci/doors`), without isolation, since it lies on the host.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from selfplay.build import execute
from selfplay.config import load
from selfplay.errors import UserError
from selfplay.events import Interrupt, ignore
from selfplay.ledger import Ledger
from selfplay.plan import plan
from selfplay.project import Project, read_toml
from tests.backends import needed
from tests.experts.players import Player
from tests.experts.stage import Cast, left_by_us, scripted
from tests.experts.stage import project as staged
from tests.games.code.conftest import write
from tests.games.code.test_agentic import FILES

CODE = {path: text for path, text in FILES.items() if path.startswith("pkg/") and text}
AGENT = r"""
import json, os, re, subprocess, sys, urllib.request
said = [{"role": "system", "content": "One command a reply."}, {"role": "user", "content": sys.argv[1]}]
while True:
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions",
                                     data=json.dumps({"model": "m", "messages": said}).encode())
    reply = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
    command = re.search("```mswea_bash_command\n(.*?)```", reply, re.DOTALL)[1]
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    if "COMPLETE_TASK" in done.stdout:
        break
    said += [{"role": "assistant", "content": reply}, {"role": "user", "content": done.stdout + done.stderr or "."}]
"""
"""What mini-swe-agent does, in a few lines."""


def block(*lines: str) -> str:
    return "\n".join(("```mswea_bash_command", *lines, "```"))


def mender(turn: int, said: str) -> str:
    """Writes every file as it was."""
    if turn == 0:
        return block(*(f"cat > {path} <<'END'\n{text}END" for path, text in CODE.items()))
    return idler(turn, said)


def idler(turn: int, said: str) -> str:
    """Has nothing to add."""
    return block("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")


def cast() -> Cast:
    solvers: dict[str, Player] = {"mender": mender, "idler": idler}
    return Cast(proposers={"nobody": lambda turn, said: "..."}, solvers=solvers)


def at_stage(folder: Path, shipped: Project, command: Sequence[str]) -> Project:
    """A project whose solver is played by `command`."""
    at = staged(folder, shipped, seconds=150.0)
    role = folder / "roles" / "tree_repairer" / "role.toml"
    before, _, _ = role.read_text().partition("[tools]")
    role.write_text(f"{before}[tools]\nharness = {json.dumps(list(command))}\n")
    return at


@pytest.mark.slow
@pytest.mark.bubblewrap
@pytest.mark.parametrize("who", ["agent", "mini"])
def test_a_harness_repairs_a_planted_bug_and_is_learnt_from(who: str, tmp_path: Path, project: Project) -> None:
    command, sandbox = ["{python}", "-c", AGENT, "{task}"], "bubblewrap"
    if who == "mini":
        if not (mini := os.environ.get("SELFPLAY_MINI")):
            pytest.skip("SELFPLAY_MINI names no mini-swe-agent")
        given, _ = read_toml(project.find("role", "tree_repairer_mini") / "role.toml")
        command, sandbox = [mini if word == "mini" else word for word in given["tools"]["harness"]], "local"
    needed(sandbox)
    source = write(tmp_path / "pkg-1", FILES)
    at = at_stage(tmp_path, project, command)
    sets = (
        *(f"game.source={source}", "policy.model=toy", f"sandbox.kind={sandbox}", "sandbox.timeout_seconds=60"),
        *("run.steps=1", "curriculum.seeds=1", "play.refills=0", "play.min_viable=1", "learner.token_budget=4096"),
        *("curriculum.choose=ssr", "curriculum.options={strategies='procedural', second=0}", "learner.dtype=float32"),
        *("play.proposals=1", "play.attempts=2", "alarms.stop=[]", "game.held_out=0", "learner.lr=1e-3"),
    )
    before = left_by_us(sandbox)
    with scripted(cast()):
        run = tmp_path / "runs" / "harness"
        config = load("code-agent", project=at, sets=sets, environ={})
        assert execute(config, project=at, folder=run, observe=ignore, interrupt=Interrupt()).stop == "done"
    assert left_by_us(sandbox) <= before
    with Ledger.read(run) as ledger:
        assert ledger.check() == ()
        judged = ledger.verdicts(0, "attempt", "judge")
        plays = ledger.trajectories(0, "attempt")
        assert plays
        for play in plays:
            repaired = "I am mender." in play.turns[1].text
            assert (judged[play.id].passed, play.stop) == (repaired, "done"), judged[play.id].why
            assert [turn.speaker for turn in play.turns] == ["prompt", "policy", "tool", "policy"][: len(play.turns)]
            assert all(turn.token_ids and len(turn.logprobs) == len(turn.token_ids) for turn in play.turns[1::2])
        update = ledger.update(0)
        assert update is not None
        assert update.skipped is None
        assert set(update.trajectory_ids) <= {play.id for play in plays}
        assert update.grad_norm > 0


@pytest.mark.parametrize("role", ["tree_injector", "tree_repairer"])
def test_who_cannot_be_a_harness_is_refused_by_the_plan(role: str, tmp_path: Path, project: Project) -> None:
    at = at_stage(tmp_path, project, ["mini", "{task}"])
    sets = ["policy.model=toy", "roles.solver=tree_repairer"]
    if role == "tree_repairer":
        rows = plan(load("code-agent", project=at, sets=sets, environ={}), at)
        (solver,) = (row.value for row in rows if (row.section, row.name) == ("roles", "solver"))
        assert "12 turns with a harness (mini)" in solver
        return
    injector = tmp_path / "roles" / "tree_injector" / "role.toml"
    injector.write_text(injector.read_text().partition("[tools]")[0] + '[tools]\nharness = ["mini"]\n')
    with pytest.raises(UserError, match="`tree_injector` is played by a harness, which can be the solver"):
        plan(load("code-agent", project=at, sets=sets, environ={}), at)
