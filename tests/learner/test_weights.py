"""Digests see every bit; a folder is written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import LlamaForCausalLM

from selfplay.errors import NotReady, RunFailed, UserError
from selfplay.learner.weights import Stored, config_json, open_model, read, tensors_digest, write
from tests import forked


def stored(size: int = 1000) -> Stored:
    torch.manual_seed(0)
    return Stored(
        tensors={"b": torch.randn(size), "a": torch.randn(4, 5)},
        moments={"exp_avg.a": torch.randn(4, 5)},
        counters={"policy_version": "3"},
    )


def test_what_was_written_is_read(tmp_path: Path) -> None:
    source = tmp_path / "original"
    source.mkdir()
    (source / "tokenizer.json").write_text("{}")
    (source / "pytorch_model.bin").write_text("not copied")
    num_bytes = write(tmp_path / "deep" / "save", stored(), config_json="{}", source=source)
    folder = tmp_path / "deep" / "save"
    assert sorted(f.name for f in folder.iterdir()) == [
        "config.json",
        "learner.safetensors",
        "model.safetensors",
        "tokenizer.json",
    ]
    assert num_bytes == sum(f.stat().st_size for f in folder.iterdir())
    found = read(folder)
    assert found.counters == {"policy_version": "3"}
    assert tensors_digest(found.tensors) == tensors_digest(stored().tensors)
    assert tensors_digest(found.moments) == tensors_digest(stored().moments)
    assert [f.name for f in folder.parent.iterdir()] == ["save"]


def test_what_stands_there_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "save").mkdir()
    (tmp_path / "save" / "torn").write_text("x")
    write(tmp_path / "save", stored(), config_json="{}", source=None)
    assert not (tmp_path / "save" / "torn").exists()
    assert [f.name for f in tmp_path.iterdir()] == ["save"]


def test_the_digest_sees_names_shapes_types_and_bits() -> None:
    tensor = torch.tensor([[1.0, 0.0], [2.0, 3.0]])
    digests = [
        tensors_digest({"a": tensor}),
        tensors_digest({"b": tensor}),
        tensors_digest({"a": tensor.view(4)}),
        tensors_digest({"a": tensor.view(torch.int32)}),
        tensors_digest({"a": torch.tensor([[1.0, -0.0], [2.0, 3.0]])}),
        tensors_digest({"a": tensor.t()}),
        tensors_digest({"a": tensor, "b": torch.zeros(0)}),
        tensors_digest({"a": tensor}, extra={"version": "1"}),
    ]
    assert len(set(digests)) == len(digests)
    assert tensors_digest({"a": tensor, "b": tensor}) == tensors_digest({"b": tensor, "a": tensor.clone()})
    assert tensors_digest({"a": tensor.t()}) == tensors_digest({"a": tensor.t().contiguous()})


@pytest.mark.parametrize("limit", [2_000, 300_000])
def test_no_room_leaves_nothing_half_written(tmp_path: Path, limit: int) -> None:
    """The kernel refuses files longer than `limit` bytes, as a full disk or a quota would."""
    write(tmp_path / "save", stored(), config_json="{}", source=None)
    before = (tmp_path / "save" / "model.safetensors").read_bytes()
    script = (
        "import resource, signal, sys, torch\n"
        "from pathlib import Path\n"
        "from selfplay.errors import NotReady\n"
        "from selfplay.learner.weights import Stored, write\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "stored = Stored(tensors={'a': torch.zeros(100_000)}, moments={'m': torch.zeros(10)}, counters={})\n"
        "try:\n"
        "    write(Path(sys.argv[1]), stored, config_json='{}', source=None)\n"
        "except NotReady as error:\n"
        "    print(error.message)\n"
    )
    done = forked.run(script, [str(tmp_path / "save")])
    assert "the disk is full" in done.stdout, done.stderr
    assert (tmp_path / "save" / "model.safetensors").read_bytes() == before
    assert [f.name for f in tmp_path.iterdir()] == ["save"]


def test_a_disk_that_is_too_small_is_refused_before_writing(tmp_path: Path) -> None:
    huge = Stored(tensors={"a": torch.empty(1).expand(1 << 50)}, moments={}, counters={})
    with pytest.raises(NotReady, match="are needed"):
        write(tmp_path / "save", huge, config_json="{}", source=None)
    assert list(tmp_path.iterdir()) == []


def test_a_torn_file_is_named(tmp_path: Path) -> None:
    write(tmp_path / "save", stored(), config_json="{}", source=None)
    file = tmp_path / "save" / "learner.safetensors"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(RunFailed, match="cannot be read"):
        read(tmp_path / "save")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t[:5].clone(), r"do not fit its config.json: `lm_head.weight` is \(5, 32\) instead of \(64, 32\)"),
        (lambda t: None, "lack `lm_head.weight`"),
    ],
    ids=["another shape", "missing"],
)
def test_weights_that_are_not_the_configuration_s_are_named(
    change: Callable[[Tensor], Tensor | None], words: str, tiny_model: Callable[..., LlamaForCausalLM], tmp_path: Path
) -> None:
    """Never filled with random numbers, as the library does with a warning."""
    tensors = {name: p.detach() for name, p in tiny_model(tied=False).named_parameters()}
    (tmp_path / "config.json").write_text(config_json(tiny_model(tied=False)))
    changed = change(tensors.pop("lm_head.weight"))
    save_file(tensors | ({} if changed is None else {"lm_head.weight": changed}), tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=words):
        open_model(tmp_path)
