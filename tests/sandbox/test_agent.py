"""The program inside a container, run for real in a namespace of its own: its sweep would end this very session."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from selfplay.sandbox.channel import agent_source, command_fields, put_body

pytestmark = pytest.mark.bubblewrap

NONCE = b"0123456789abcdef"
ALONE = [
    *("bwrap", "--unshare-all", "--unshare-user", "--uid", "10001", "--gid", "10001", "--cap-drop", "ALL"),
    *("--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"),
    *("--tmpfs", "/run", "--chdir", "/run"),
]


class Agent:
    """Speaks the agent's line, blocking."""

    def __init__(self) -> None:
        argv = [*ALONE, sys.executable, "-I", "-S", "-c", agent_source()]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.write(NONCE)
        assert self.reply() == [(b"=", b"ready")]

    def write(self, payload: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(payload)
        self.process.stdin.flush()

    def reply(self) -> list[tuple[bytes, bytes]]:
        assert self.process.stdout is not None
        frames: list[tuple[bytes, bytes]] = []
        while not frames or frames[-1][0] == b"+":
            head = self.process.stdout.read(21)
            assert head[:16] == NONCE, head
            frames.append((head[16:17], self.process.stdout.read(int.from_bytes(head[17:], "big"))))
        return frames

    def ask(self, verb: bytes, fields: list[str], body: bytes = b"") -> list[tuple[bytes, bytes]]:
        head = "\0".join(fields).encode()
        self.write(verb + len(head).to_bytes(4, "big") + len(body).to_bytes(8, "big") + head + body)
        return self.reply()

    def sh(
        self, script: str, *, seconds: float = 20.0, limit: int = 1000, body: bytes = b""
    ) -> tuple[list[int], bytes]:
        fields = [str(seconds), str(limit), *command_fields(["sh", "-c", script], cwd="/run", env={"WORD": "said"})]
        [(kind, payload)] = self.ask(b"x", fields, body)
        assert kind == b"=", payload
        numbers, _, streams = payload.partition(b"\n")
        return [int(number) for number in numbers.split()], streams

    def close(self) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(timeout=20)


@pytest.fixture
def agent() -> Iterator[Agent]:
    tried = subprocess.run([*ALONE, "true"], capture_output=True, check=False) if shutil.which("bwrap") else None
    if tried is None or tried.returncode != 0:
        sentence = f"no namespace to be had: {tried.stderr.decode() if tried else 'bwrap is missing'}"
        if os.environ.get("SELFPLAY_REQUIRE_BUBBLEWRAP") == "1":
            pytest.fail(sentence)
        pytest.skip(sentence)
    one = Agent()
    yield one
    if one.process.poll() is None:
        one.process.kill()
    one.close()


def test_command_is_run_and_reported(agent: Agent) -> None:
    numbers, streams = agent.sh("echo $WORD; cat >&2; exit 7", body=b"fed")
    assert (numbers[0], numbers[1], streams) == (7, 0, b"said\nfed")


def test_deadline_and_sweep_leave_nothing(agent: Agent) -> None:
    numbers, _ = agent.sh("setsid sleep 100 & sleep 100", seconds=0.5)
    assert numbers[:2] == [137, 1]
    assert numbers[4] >= 1, "the daemon was seen to end"
    numbers, streams = agent.sh("ls -d /proc/[0-9]* | wc -l")
    # bubblewrap, the agent, sh, ls, wc
    assert (numbers[0], int(streams)) <= (0, 6)


def test_output_keeps_its_ends(agent: Agent) -> None:
    numbers, streams = agent.sh("echo first; head -c 9000000 /dev/zero; echo last", limit=100)
    assert numbers[5:8] == [50, 50, 9000011]
    assert streams.startswith(b"first\n")
    assert streams.endswith(b"last\n")


def test_input_that_is_not_read_is_skipped(agent: Agent) -> None:
    for _ in range(2):
        numbers, streams = agent.sh("echo on", body=bytes(3_000_000))
        assert (numbers[0], streams) == (0, b"on\n")


def test_agent_cannot_be_read_or_traced(agent: Agent) -> None:
    script = "for f in mem environ fd/0 maps; do cat /proc/$PPID/$f >/dev/null 2>&1 && echo $f; done; exit 0"
    numbers, streams = agent.sh(script)
    assert (numbers[0], streams) == (0, b"")
    assert agent.sh("cat /proc/self/oom_score_adj")[1] == b"1000\n"
    assert agent.sh("ls /proc/self/fd | wc -l")[1] == b"4\n", "its own three, and the listed folder"


def test_missing_commands_have_a_shells_codes(agent: Agent) -> None:
    for argv, cwd, code in ((["no-such"], "/run", 127), (["/etc/passwd"], "/run", 126), (["true"], "/none", 125)):
        [(_, payload)] = agent.ask(b"x", ["5", "1000", *command_fields(argv, cwd=cwd, env={})])
        assert int(payload.split()[0]) == code


def test_files_go_in_and_out_and_no_link_is_followed(agent: Agent) -> None:
    assert agent.ask(b"w", ["/run"], put_body({"a/b": bytes(200_000), "c": b"c"})) == [(b"=", b"")]
    parts = agent.ask(b"g", ["/run", "a/b", "200000"])
    assert b"".join(payload for kind, payload in parts if kind == b"+") == bytes(200_000)
    agent.sh("ln -s c link; mkfifo pipe; ln -s a linked")
    refused = {
        "link": b"45",
        "pipe": b"45",
        "a": b"45",
        "linked/b": b"45",
        "none": b"44",
        "n" * 300: b"44",
        "é" * 150 + "/b": b"44",
        "../run/c": b"45",
        "a/b": b"46",
    }
    for path, number in refused.items():
        kind, payload = agent.ask(b"g", ["/run", path, "10"])[-1]
        assert (kind, payload[:2]) == (b"!", number), path
    assert agent.ask(b"w", ["/run"], put_body({"linked/x": b"1", "y": bytes(100_000)}))[-1][1][:2] == b"45"
    assert agent.sh("ls")[1].split() == [b"a", b"c", b"link", b"linked", b"pipe"]


def test_engine_that_goes_away_takes_all_with_it(agent: Agent) -> None:
    fields = ["100", "1000", *command_fields(["sleep", "100"], cwd="/run", env={})]
    head = "\0".join(fields).encode()
    agent.write(b"x" + len(head).to_bytes(4, "big") + bytes(8) + head)
    assert agent.close() == 0


def test_agent_becomes_a_command(agent: Agent) -> None:
    fields = command_fields(["sh", "-c", "while read line; do echo got $line; done"], cwd="/run", env={})
    assert agent.ask(b"t", fields) == [(b"=", b"")]
    agent.write(b"one\n")
    assert agent.process.stdout is not None
    assert agent.process.stdout.readline() == b"got one\n"


def test_agent_runs_as_nobody_else() -> None:
    done = subprocess.run([sys.executable, "-I", "-S", "-c", agent_source()], capture_output=True, check=False)
    assert done.returncode == 1
    assert b"as uid 10001 only" in done.stderr
