"""Four ranks, and ranks that `torchrun` starts. Two: `test_ranks.py`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from selfplay.learner.options import Options
from selfplay.learner.ranks import Ranked, Ranks
from selfplay.learner.trainer import Trainer
from selfplay.learner.weights import read
from selfplay.types import Batch, Sample

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ranks")]

MakeModel = Callable[..., Any]
MakeSamples = Callable[..., tuple[Sample, ...]]

SCRIPT = """
import pickle, sys
from pathlib import Path
from selfplay.learner.ranks_world import World
world = World.of_torchrun()
build, batch, folder = pickle.loads(Path(sys.argv[1]).read_bytes())
trainer = build(world=world)
trainer.update(batch)
trainer.save(folder, step=0) if world.leads else trainer.gather(folder)
world.part()
"""
"""What a script of one's own does on each rank."""


def close(found: Path, expected: Path, *, betas: tuple[float, float]) -> None:
    """Moments after the first update are a tenth of the gradient."""
    one, many = read(expected), read(found)
    assert many.moments.keys() == one.moments.keys()
    for name in (name for name in one.moments if name.startswith("exp_avg.")):
        share = 1.0 - betas[0]
        torch.testing.assert_close(many.moments[name] / share, one.moments[name] / share, atol=1e-6, rtol=1e-5)


def made(tmp_path: Path, tiny_model: MakeModel, **options: Any) -> partial[Trainer]:
    tiny_model().save_pretrained(tmp_path / "model")
    whole = {"lr": 1e-3, "warmup_lr": 1e-3, "dtype": "float32", "threads": 1, "max_grad_norm": 1e9, "token_budget": 64}
    return partial(Trainer.from_folder, tmp_path / "model", options=Options(**{**whole, **options}))


def test_four_ranks_learn_what_one_process_does(
    tmp_path: Path, tiny_model: MakeModel, make_samples: MakeSamples
) -> None:
    samples = make_samples(groups=3, roles=("proposer", "solver"))[:-2]
    batch = Batch(step=0, phase="play", samples=samples, temperature=1.0)
    four = Ranks.here(4)
    try:
        for number, options in enumerate(({}, {"lora_rank": 2}, {"kl_coef": 0.1})):
            build = made(tmp_path, tiny_model, **options)
            one, many = build(), Ranked(four, build)
            if "kl_coef" in options:
                assert many.pin_reference() == one.pin_reference()
            first, second = one.update(batch), many.update(batch)
            assert second.loss == pytest.approx(first.loss, abs=1e-6)
            assert second.partition == first.partition
            one.save(tmp_path / f"one{number}", step=0)
            many.save(tmp_path / f"many{number}", step=0)
            close(tmp_path / f"many{number}", tmp_path / f"one{number}", betas=one.options.betas)
    finally:
        four.close()


def test_ranks_of_torchrun_learn_what_one_process_does(
    tmp_path: Path, tiny_model: MakeModel, make_samples: MakeSamples
) -> None:
    import pickle

    build = made(tmp_path, tiny_model)
    batch = Batch(step=0, phase="play", samples=make_samples(), temperature=1.0)
    (tmp_path / "given").write_bytes(pickle.dumps((build, batch, tmp_path / "many")))
    (tmp_path / "script.py").write_text(SCRIPT)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launch, str(tmp_path / "script.py"), str(tmp_path / "given")], capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr[-2000:]
    one = build()
    one.update(batch)
    one.save(tmp_path / "one", step=0)
    close(tmp_path / "many", tmp_path / "one", betas=one.options.betas)
