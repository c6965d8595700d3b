from __future__ import annotations

import struct
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfplay.sandbox import SandboxInfraError
from selfplay.sandbox.channel import Frames, wrapped


@given(
    frames=st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=20)), max_size=8),
    size=st.integers(min_value=1, max_value=40),
)
def test_frames_come_apart_wherever_they_are_cut(frames: list[tuple[int, bytes]], size: int) -> None:
    stream = b"".join(struct.pack(">BxxxI", kind, len(payload)) + payload for kind, payload in frames)
    taken = Frames(1 << 16)
    for start in range(0, len(stream), size):
        taken.add(stream[start : start + size])
    assert taken.out.raw() == b"".join(payload for kind, payload in frames if kind == 1)
    assert taken.err.raw() == b"".join(payload for kind, payload in frames if kind == 2)


def test_unknown_frame_is_the_engines_fault() -> None:
    with pytest.raises(SandboxInfraError):
        Frames(10).add(struct.pack(">BxxxI", 9, 1))


def test_wrapper_reports_the_commands_own_end() -> None:
    # `kill -1` is replaced: outside of a container it would end this very session.
    argv = wrapped(["sh", "-c", "echo out; echo err >&2; exit 7"], timeout_seconds=5.0, cwd="/")
    argv[2] = argv[2].replace("kill -s KILL -- -1", ":")
    run = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (7, "out\n", "err\n")
