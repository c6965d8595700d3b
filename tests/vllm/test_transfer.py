"""vLLM's own calls for weights on one card, by a real vLLM on the processor: what arrives is what a folder gives."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from safetensors.torch import save_file

from selfplay.policy import handles
from selfplay.policy.toy import toy_model
from selfplay.policy.vllm_setup import SCRIPT, environment
from tests.vllm.conftest import CONTEXT

INSIDE = Path(__file__).with_name("transfer_inside.py")
SECONDS = 600.0


@pytest.mark.slow
def test_offered_weights_are_loaded_as_those_of_a_folder(python: str, tmp_path: Path) -> None:
    model, _ = toy_model(0, hidden=128, context=CONTEXT)
    model.save_pretrained(tmp_path)
    (tmp_path / "new").mkdir()
    new = {name: 3.0 * value.detach() for name, value in model.named_parameters()}
    save_file(new, tmp_path / "new" / "model.safetensors")
    done = subprocess.run(
        [python, "-P", str(INSIDE), str(tmp_path), str(SCRIPT), str(handles.__file__)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=dict(environment(1)),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    first, once, twice, read = found["replies"]
    assert first != once == twice == read
    assert found["digests"][0] == found["digests"][1] == found["digests"][2]
    assert found["digests"][0].keys() == new.keys()
