"""What does not fit is said in one sentence, with exit code 3 or 4, and nothing is left running."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from selfplay import parts
from selfplay.cluster import RESOURCE, Nodes, Wanted, joining, looking
from selfplay.config import load
from selfplay.errors import NotReady, UserError
from selfplay.project import Project
from tests.cluster.conftest import Machines, left_over
from tests.cluster.ray_fake import installed
from tests.crash.harness import Chain, Setup, write_package

ONE_EACH = {"CPU": 1.0, RESOURCE: 1.0}


def refused(name: str, *sets: str, folder: Path, setup: Setup | None = None) -> str:
    """What a run on the cluster says before it ends with exit code 3."""
    words = (*(setup or Setup.toy(steps=1)).words, *(word for text in sets for word in ("-s", text)))
    chain = Chain(setup=replace(setup or Setup.toy(), words=words), runs=folder, name=name, cache=folder / "cache")
    launch = chain.launch()
    assert launch.wait() == 3, launch.said
    assert not chain.folder.exists(), "the mended command can take the name"
    assert left_over() == []
    return launch.said


def test_ray_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NotReady, match="Ray, and it is not installed") as error:
        joining.join(ONE_EACH, part="CPU")
    assert "pip install" in error.value.hint


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_the_command_where_ray_is_not_installed(tmp_path: Path) -> None:
    said = refused("absent", "run.cluster={sandboxes=0}", "learner.ranks=2", folder=tmp_path)
    assert "Ray, and it is not installed" in said
    assert "pip install" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("address", ["nowhere", "ray://host:10001", "127.0.0.1:", "auto"])
def test_an_address_that_is_none(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(NotReady, match=f"RAY_ADDRESS is `{address}`"):
        joining.join(ONE_EACH, part="CPU")


def test_an_address_where_nobody_answers_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    with pytest.raises(NotReady, match=f"no Ray cluster answers at 127.0.0.1:{port}"):
        joining.join(ONE_EACH, part="CPU")


def test_what_listens_at_the_address_and_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    ray_fake = installed(monkeypatch, places=1)
    monkeypatch.setattr(ray_fake, "init", lambda **given: pytest.fail("it would wait for minutes"))
    monkeypatch.setattr(looking, "ANSWER_SECONDS", 5.0)
    address = f"127.0.0.1:{ray_fake.head.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(NotReady, match=f"at {address}"):
        joining.join(ONE_EACH, part="CPU")


def test_constants_of_a_cluster(project: Project) -> None:
    known = load("demo", project=project, scale="ray", environ={})
    assert parts.wanted_of(known) == Wanted(nodes=Nodes(sandboxes=2), ranks=2, threads=parts.threads_of(known))
    assert known.digest == load("demo", project=project, scale="laptop", environ={}).digest
    assert parts.wanted_of(load("demo", project=project, environ={})) is None
    for value, sentence in (("{sandboxes = -1}", "at least 0"), ("{nodes = 2}", "no option `nodes`")):
        with pytest.raises(UserError, match=sentence):
            parts.wanted_of(load("demo", project=project, sets=[f"run.cluster={value}"], environ={}))


def test_a_cluster_that_does_not_fit(machines: Machines, tmp_path: Path) -> None:
    said = refused("few", "run.cluster={sandboxes=0}", "learner.ranks=2", folder=tmp_path)
    assert "the Ray cluster has 0 of `CPU`, and" in said
    setup = Setup.code(write_package(tmp_path / "tiny-1.0"), sandbox="docker", steps=1)
    said = refused("none", "run.cluster={sandboxes=1}", folder=tmp_path, setup=setup)
    assert f"has 0 of `{RESOURCE}`, and 1 are" in said, said
    machines.node(sandboxes=1, env_vars={"DOCKER_HOST": "unix:///nowhere/docker.sock"})
    said = refused("docker", "run.cluster={sandboxes=1, place_seconds=900}", folder=tmp_path, setup=setup)
    assert "sandbox actor 1: sandbox `docker` is not ready" in said, said


def test_a_node_without_bubblewrap(machines: Machines, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in os.environ["PATH"].split(":"):
        for tool in Path(folder).glob("*"):
            if tool.name != "bwrap" and not (tools / tool.name).exists():
                (tools / tool.name).symlink_to(tool)
    assert shutil.which("bwrap", path=str(tools)) is None
    machines.node(sandboxes=1, env_vars={"PATH": str(tools)})
    setup = Setup.code(write_package(tmp_path / "tiny-1.0"), sandbox="bubblewrap", steps=1)
    said = refused("bare", "run.cluster={sandboxes=1, place_seconds=900}", folder=tmp_path, setup=setup)
    assert "sandbox actor 1: sandbox `bubblewrap` is not ready" in said, said


def test_a_cluster_of_another_version(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    machines.node(num_cpus=1)
    monkeypatch.setattr(ray, "__version__", "1.0.0")
    with pytest.raises(NotReady, match="is of another version") as error:
        joining.join(ONE_EACH, part="CPU")
    assert "the same version on every node" in error.value.hint


def test_a_rank_of_another_version_of_selfplay(machines: Machines, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import selfplay\n\nselfplay.__version__ = '0.0'\n")
    machines.node(num_cpus=1, env_vars={"PYTHONPATH": str(tmp_path)})
    said = refused(
        *("old", "run.cluster={sandboxes=0, place_seconds=900}", "learner.ranks=2", "policy.threads=1"),
        folder=tmp_path / "runs",
    )
    assert "rank 1 of the learner has selfplay 0.0, and the driver" in said, said


def test_two_drivers_on_one_run(machines: Machines, tmp_path: Path) -> None:
    machines.node(num_cpus=1)
    words = (*Setup.toy(steps=400).words, "-s", "run.cluster={sandboxes=0}", "-s", "learner.ranks=2")
    chain = Chain(setup=Setup(words=(*words, "-s", "policy.threads=1")), runs=tmp_path, name="one")
    first = chain.launch()
    assert first.wait_for(lambda event: event.get("kind") == "step"), first.said
    second = chain.launch()
    assert second.wait() == 4, second.said
    first.kill(2)
    assert first.wait() in (75, 130), first.said
    assert left_over() == []
