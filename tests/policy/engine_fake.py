"""Speaks the engine's lines without an engine, and fails as a test asks; run as `vllm_child.py` would be.

Its folder holds `mode`: a line a launch, the last one for all further launches. A reply is the ids 5, 6, 7, ... as many
as were asked for, each with log-probability -1.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pickle
import socket
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(os.environ.get("FAKE_ENGINE", "."))


def mode() -> str:
    """What this launch does; counts launches."""
    # note: appended, so that engines that start at the same time have numbers of their own.
    with (HERE / "launches").open("ab") as launches:
        launches.write(b"x")
        launches.flush()
        number = launches.tell() - 1
    lines = (HERE / "mode").read_text().splitlines()
    return lines[min(number, len(lines) - 1)]


def digests(path: Path) -> dict[str, str]:
    """Of the safetensors file, read by hand: a process without torch starts at once."""
    data = next(path.glob("*.safetensors")).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    found = {}
    for name, entry in json.loads(data[8:start]).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            found[name] = hashlib.sha256(data[start + first : start + last]).hexdigest()
    return found


def shared(handles: str) -> dict[str, str]:
    """Of what stands in the place of handles: the tensors' bytes."""
    update = pickle.loads(base64.b64decode(handles))
    assert [len(handle) for handle in update["ipc_handles"]] == [1] * len(update["names"])
    values = [data for handle in update["ipc_handles"] for data in handle.values()]
    return {name: hashlib.sha256(data).hexdigest() for name, data in zip(update["names"], values, strict=True)}


def main() -> None:
    if sys.argv[-1] == "--version":
        print(json.dumps({"vllm": os.environ.get("FAKE_VERSION", "0.32.0") or None, "python": "3"}))
        return
    doing = mode()
    pair = socket.socket(fileno=int(sys.argv[-2]))
    lines, out = pair.makefile("rb"), pair.makefile("wb")

    def send(**line: Any) -> None:
        out.write(json.dumps(line).encode() + b"\n")
        out.flush()

    lines.readline()
    asleep = False
    print(f"this is {doing}", file=sys.stderr, flush=True)
    if doing == "slow start":
        time.sleep(600)
    if doing == "ends at start":
        sys.exit(3)
    if doing.startswith("fails: "):
        send(op="failed", what="ValueError", message=doing.removeprefix("fails: "))
        sys.exit(1)
    send(op="ready", vllm="0.32.0", device="none")
    for text in lines:
        line = json.loads(text)
        with (HERE / "asked").open("a") as asked:
            asked.write(f"{line['op']}\n")
        if line["op"] == "sleep":
            asleep = True
            if doing == "dies asleep":
                os._exit(7)
            send(op="asleep")
        if line["op"] == "weights":
            asleep = False
            found = digests(Path(line["path"])) if "path" in line else shared(line["handles"])
            if doing == "other weights":
                found["lm_head.weight"] = "0" * 64
            send(op="weights", version=line["version"], digests=found)
        elif line["op"] == "sample":
            assert not asleep, "nobody is asked while asleep"
            answer(line, doing, send)


def answer(line: dict[str, Any], doing: str, send: Any) -> None:
    """One reply, or a fault."""
    known = int(os.environ.get("FAKE_VOCABULARY", "1000000"))
    ids = [5 + number % (known - 5) for number in range(line["max_tokens"])]
    if doing == "dies":
        os._exit(7)
    if doing == "second dies" and line["id"] > 1:
        os._exit(7)
    if doing == "no line":
        os.write(int(sys.argv[-2]), b"no line\n")
    elif doing == "refuses":
        send(op="refused", id=line["id"], message="not today")
    elif doing == "too early":
        send(op="tokens", id=line["id"], ids=ids[:1], logprobs=[-1.0], end="abort")
    elif doing == "not finite":
        send(op="tokens", id=line["id"], ids=ids[:1], logprobs=[float("nan")], end=None)
    elif line["stream"]:
        for number, one in enumerate(ids):
            end = "length" if number + 1 == len(ids) else None
            send(op="tokens", id=line["id"], ids=[one], logprobs=[-1.0], end=end)
    elif doing != "silent":
        send(op="tokens", id=line["id"], ids=ids, logprobs=[-1.0] * len(ids), end="length")


if __name__ == "__main__":
    main()
