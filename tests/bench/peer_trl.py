"""TRL's `GRPOTrainer` as a peer of the learner: the same update on the same batch, by TRL's own code.

What runs is `GRPOTrainer.compute_loss` on inputs prepared as its `_generate_and_score_completions` prepares them
(prompts padded on the left, replies on the right, to the longest of the whole batch), `accelerator.backward`, the
clip by norm and the optimizer that `create_optimizer` makes. In bfloat16 that is TRL's default: float32 weights under
autocast. Defaults that would slow it down are switched off (gradient checkpointing), and the micro-batch is the fastest
of those tried.

`compact=True` is a TRL that does not exist on CPU: its output head runs at the trained positions only, as TRL does
where it has Triton; without Triton release 1.16.0 projects every position of prompt and padding.

Not here: sampling, rewards, the data loader. The package never imports trl; in an environment of its own:

    pip install torch==2.13.0 && pip install -c constraints.txt trl==1.16.0 accelerate datasets -e .
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer
from trl.trainer import utils as trl_utils

from selfplay.learner.batch import num_context
from selfplay.types import Sample

PADDING = 2


def inputs_of(samples: Sequence[Sample], *, old: Mapping[int, torch.Tensor] | None = None) -> dict[str, Any]:
    """The batch as TRL prepares it; the tokens after the prompt are one reply each."""
    prompts = [s.token_ids[: num_context(s)] for s in samples]
    replies = [s.token_ids[num_context(s) :] for s in samples]
    wide, long = max(map(len, prompts)), max(map(len, replies))
    reply_masks = [[1] * len(r) + [0] * (long - len(r)) for r in replies]
    prepared: dict[str, Any] = {
        "prompt_ids": torch.tensor([[PADDING] * (wide - len(p)) + list(p) for p in prompts]),
        "prompt_mask": torch.tensor([[0] * (wide - len(p)) + [1] * len(p) for p in prompts]),
        "completion_ids": torch.tensor([list(r) + [PADDING] * (long - len(r)) for r in replies]),
        "completion_mask": torch.tensor(reply_masks),
        "advantages": torch.tensor([s.advantage for s in samples]),
        "num_items_in_batch": torch.tensor(sum(map(len, replies))),
    }
    if old is not None:
        rows = [torch.nn.functional.pad(old[i], (0, long - len(old[i]))) for i in range(len(samples))]
        prepared["old_per_token_logps"] = torch.stack(rows)
    return prepared


class Peer:
    """One `GRPOTrainer` on CPU, its optimizer, and the micro-batch it uses."""

    def __init__(self, folder: Path, *, bf16: bool, samples: int, lr: float) -> None:
        self._scratch = tempfile.TemporaryDirectory()
        config = GRPOConfig(
            output_dir=self._scratch.name,
            use_cpu=True,
            bf16=bf16,
            gradient_checkpointing=False,
            per_device_train_batch_size=samples,
            num_generations=8,
            loss_type="dapo",
            beta=0.0,
            temperature=1.0,
            epsilon=0.2,
            epsilon_high=0.28,
            learning_rate=lr,
            adam_beta2=0.95,
            weight_decay=0.0,
            max_grad_norm=1.0,
            report_to=[],
            disable_tqdm=True,
        )
        self.trainer = GRPOTrainer(
            model=str(folder),
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=config,
            train_dataset=Dataset.from_dict({"prompt": ["a"] * samples}),
            processing_class=AutoTokenizer.from_pretrained(folder),
        )
        self.trainer.create_optimizer()
        accelerator = self.trainer.accelerator
        self.model, self.optimizer = accelerator.prepare(self.trainer.model, self.trainer.optimizer)
        self.model.train()
        self.micro_batch = samples
        self.compact = False

    def loss_and_gradient(self, inputs: Mapping[str, Any]) -> float:
        """The loss; its gradient is added to the parameters', micro-batch by micro-batch."""
        trainer, count = self.trainer, len(inputs["advantages"])
        parts = range(0, count, self.micro_batch)
        trainer.current_gradient_accumulation_steps = trainer.args.steps_per_generation = len(parts)
        total = 0.0
        with _head(self.compact):
            for start in parts:
                part = {k: v[start : start + self.micro_batch] if v.ndim else v for k, v in inputs.items()}
                with trainer.compute_loss_context_manager():
                    loss = trainer.compute_loss(self.model, part)
                trainer.accelerator.backward(loss)
                total += loss.item()
        return total

    def gradients(self) -> dict[str, torch.Tensor]:
        """What `loss_and_gradient` collected, by parameter; then forgotten."""
        found = {name: p.grad.clone() for name, p in self.model.named_parameters() if p.grad is not None}
        self.model.zero_grad(set_to_none=True)
        return found

    def step(self, inputs: Mapping[str, Any]) -> None:
        """One whole update, as `Trainer.training_step` and the loop around it make it."""
        self.loss_and_gradient(inputs)
        self.trainer.accelerator.clip_grad_norm_(self.model.parameters(), self.trainer.args.max_grad_norm)
        self.optimizer.step()
        self.model.zero_grad()

    @torch.no_grad()
    def logprobs(self, inputs: Mapping[str, Any]) -> list[torch.Tensor]:
        """Of each reply's tokens."""
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        found = self.trainer._get_per_token_logps_and_entropies(
            self.model, ids, mask, inputs["completion_ids"].shape[1], batch_size=8
        )[0]
        kept = inputs["completion_mask"].bool()
        return [row[own].float() for row, own in zip(found, kept, strict=True)]

    def fastest(self, inputs: Mapping[str, Any], *, sizes: Sequence[int]) -> dict[int, float]:
        """CPU seconds of one update at each micro-batch size; the best is kept."""
        seconds: dict[int, float] = {}
        for size in sizes:
            self.micro_batch = size
            began = time.process_time()
            self.step(inputs)
            seconds[size] = time.process_time() - began
        self.micro_batch = min(seconds, key=lambda size: seconds[size])
        return seconds


class _head:
    """Inside, TRL's head runs at the trained positions only where `compact`."""

    def __init__(self, compact: bool) -> None:
        self._compact = compact
        self._before: Callable[..., bool] = trl_utils._use_triton

    def __enter__(self) -> None:
        if self._compact:
            # the head asks this for its positions; its kernels ask the same name in a module of their own
            trl_utils._use_triton = lambda device: True

    def __exit__(self, *_: object) -> None:
        trl_utils._use_triton = self._before
