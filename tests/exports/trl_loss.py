"""`python trl_loss.py MODEL ROWS...`: the loss that TRL's own `GRPOTrainer.compute_loss` has on exported rows, by file.

Needs TRL and nothing of selfplay: this is how rows become the trainer's inputs (README.md beside the package shows it).
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

PADDING = 0


def inputs_of(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    wide, long = (max(len(row[name]) for row in rows) for name in ("prompt_ids", "completion_ids"))

    def left(values: list[int]) -> list[int]:
        return [PADDING] * (wide - len(values)) + values

    def right(values: list[Any]) -> list[Any]:
        return values + [0] * (long - len(values))

    found = {
        "prompt_ids": torch.tensor([left(row["prompt_ids"]) for row in rows]),
        "prompt_mask": torch.tensor([left([1] * len(row["prompt_ids"])) for row in rows]),
        "num_items_in_batch": torch.tensor(rows[0]["num_items_in_batch"]),
    }
    names = ("completion_ids", "completion_mask", "tool_mask", "old_per_token_logps", "advantages")
    return found | {name: torch.tensor([right(row[name]) for row in rows]) for name in names}


def loss_of(folder: Path, file: Path) -> float:
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    words = {f"w{number}": number for number in range(model.config.vocab_size)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="w0")), pad_token="w0", eos_token="w1"
    )
    with tempfile.TemporaryDirectory() as scratch:
        config = GRPOConfig(
            output_dir=scratch,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            per_device_train_batch_size=2,
            num_generations=2,
            report_to=[],
            disable_tqdm=True,
            **rows[0]["config"]["arguments"],
        )
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=config,
            train_dataset=Dataset.from_dict({"prompt": ["w2"] * 2}),
            processing_class=tokenizer,
        )
        trainer.model.train()
        trainer.current_gradient_accumulation_steps = trainer.args.steps_per_generation = 1
        return float(trainer.compute_loss(trainer.model, inputs_of(rows)).item())


if __name__ == "__main__":
    print(json.dumps([loss_of(Path(sys.argv[1]), Path(file)) for file in sys.argv[2:]]))
