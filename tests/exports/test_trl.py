"""TRL's loss on exported rows is the learner's: by TRL's formula here, by TRL itself where it is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from selfplay.errors import UserError
from selfplay.exports import trl
from selfplay.learner import grpo
from selfplay.learner.batch import informative
from selfplay.learner.options import Options, correction_of, rule_of, token_weights
from selfplay.learner.tally import trained_values
from selfplay.types import Group, Sample, Update
from tests.exports.conftest import needs

EMPTY: Mapping[str, Any] = {
    "phase": "play", "policy_version": 1, "partition": (), "lr": 1e-3, "weights_digest": "", "reference_digest": None,
    "fingerprint": "", "loss": 0.0, "grad_norm": 0.0, "tokens": 0, "seconds": 0.0,
}  # fmt: skip


def made() -> tuple[tuple[Sample, ...], tuple[Group, ...], Update, list[Tensor]]:
    """Two roles, lengths that differ, tool tokens between trained ones, a group that teaches nothing."""
    draws = torch.Generator().manual_seed(0)
    shapes = [("a", "g", "110111", 0.9), ("a", "g", "11", -1.1), ("b", "h", "1", 0.4), ("b", "h", "1001", -0.6)]
    shapes.append(("b", "i", "11", 0.0))
    samples, now, old = [], [], []
    for at, (role, group, mask, advantage) in enumerate(shapes):
        trained = [False, False, *(one == "1" for one in mask)]
        number = sum(trained)
        before = -torch.rand(number, generator=draws) - 0.1
        sampled = iter((before + 0.3 * torch.randn(number, generator=draws)).tolist())
        now.append((before + 0.4 * torch.randn(number, generator=draws)).requires_grad_())
        old.append(tuple(before.tolist()))
        sample = Sample(
            trajectory_id=f"t{at}",
            role=role,
            group_id=group,
            token_ids=tuple(range(2, 2 + len(trained))),
            trained=tuple(trained),
            sampler_logprobs=tuple(next(sampled) if one else 0.0 for one in trained),
            advantage=advantage,
        )
        samples.append(sample)
    groups = tuple(
        Group(id=name, step=0, role=role, subject_id="s", trajectory_ids=ids, rewards=(1.0,) * len(ids),
              advantages=(0.0,) * len(ids), informative=True)
        for name, role, ids in (("g", "a", ("t0", "t1")), ("h", "b", ("t2", "t3")), ("i", "b", ("t4",)))
    )  # fmt: skip
    ids, advantages = tuple(one.trajectory_id for one in samples), tuple(one.advantage for one in samples)
    update = Update(step=0, trajectory_ids=ids, advantages=advantages, old_logprobs=tuple(old), **EMPTY)
    return tuple(samples), groups, update, now


def learners(samples: Sequence[Sample], now: Sequence[Tensor], update: Update, options: Options) -> Tensor:
    """The learner's loss, sample by sample."""
    members = informative(samples)
    weights, rule, correction = (
        token_weights(samples, members, options=options),
        rule_of(options),
        correction_of(options),
    )
    loss = torch.zeros(())
    for member in members:
        old = torch.tensor([update.old_logprobs[member]])
        mask = torch.ones_like(old, dtype=torch.bool)
        advantage = torch.tensor([samples[member].advantage])
        tokens = grpo.Tokens(logprobs_BT=now[member][None], old_BT=old, mask_BT=mask, advantage_B=advantage)
        each = rule.token_loss(tokens, clip_low=options.clip_low, clip_high=options.clip_high)
        if correction is not None:
            sampler = torch.tensor([trained_values(samples[member])])
            each = each * correction(old, sampler_BT=sampler, mask_BT=mask)
        loss = loss + weights[member] * each.sum()
    return loss


def theirs(rows: Sequence[Mapping[str, Any]], now: Sequence[Tensor], arguments: Mapping[str, Any]) -> Tensor:
    """`GRPOTrainer._compute_loss` of TRL 1.16.0 for the arguments that exports give, written again."""
    loss = torch.zeros(())
    for row, logprobs in zip(rows, now, strict=True):
        mask = torch.tensor(row["tool_mask"]) * torch.tensor(row["completion_mask"])
        logps = torch.zeros(len(mask)).masked_scatter(mask.bool(), logprobs)
        advantages = torch.tensor(row["advantages"])
        ratio = logps - torch.tensor(row["old_per_token_logps"])
        if arguments["importance_sampling_level"] == "sequence":
            ratio = ((ratio * mask).sum() / mask.sum())[None]
        first = ratio.exp()
        if arguments["loss_type"] == "cispo":
            each = -first.clamp(max=arguments["epsilon_high"]).detach() * advantages * logps
        else:
            second = first.clamp(1 - arguments["epsilon"], 1 + arguments["epsilon_high"])
            first = first.clamp(max=arguments["delta"]) if "delta" in arguments else first
            each = -torch.min(first * advantages, second * advantages)
        loss = loss + (each * mask).sum() / row["num_items_in_batch"]
    return loss


OPTIONS = {
    "token_mean": {"role_weights": {"a": 0.7, "b": 0.3}},
    "pooled": {"role_weights": "pooled"},
    "sequence_mean": {"loss": "sequence_mean"},
    "dr_grpo": {"loss": "dr_grpo", "horizon": 16},
    "dual_clip": {"loss": "dual_clip"},
    "gspo": {"loss": "gspo", "clip_low": 0.1, "clip_high": 0.1},
    "cispo": {"loss": "cispo", "clip_high": 5.0},
    "token_truncated": {"correction": "token_truncated"},
    "sequence_truncated": {"correction": "sequence_truncated", "loss": "sequence_mean"},
    "icepop": {"correction": "icepop"},
}


def options_of(name: str) -> Options:
    return Options(**{"lr": 1e-3, "warmup_lr": 1e-3, "role_weights": {}, **OPTIONS[name]})


@pytest.mark.parametrize("name", OPTIONS)
def test_the_formulas_agree(name: str) -> None:
    samples, groups, update, now = made()
    options = options_of(name)
    rows = trl.rows_of(update, samples, groups, options=options)
    assert [row["trajectory_id"] for row in rows] == ["t0", "t1", "t2", "t3"]
    assert rows[0]["tool_mask"] == [1, 1, 0, 1, 1, 1]
    ours = learners(samples, now, update, options)
    other = theirs(rows, now[:4], trl.arguments(options, temperature=1.0))
    assert abs(ours.item() - other.item()) < 1e-6
    gradients = torch.autograd.grad(ours, now[:4]), torch.autograd.grad(other, now[:4])
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two, atol=1e-6, rtol=1e-5)


def test_a_loss_of_ones_own_is_refused() -> None:
    with pytest.raises(UserError, match="which TRL does not have"):
        trl.arguments(Options(lr=1e-3, warmup_lr=1e-3, loss="mine:loss"), temperature=1.0)


def test_pruned_log_probabilities_are_null() -> None:
    samples, groups, update, _ = made()
    pruned = replace(update, old_logprobs=tuple(() for _ in samples))
    rows = trl.rows_of(pruned, samples, groups, options=Options(lr=1e-3, warmup_lr=1e-3))
    assert {row["old_per_token_logps"] for row in rows} == {None}


def exported_rows(six_steps: Path, exported: Callable[..., Any]) -> list[dict[str, Any]]:
    made, to = exported(six_steps, "trl")
    rows = [json.loads(line) for line in to.read_text().splitlines()]
    assert made.count == len(rows)
    assert made.left_out + len({row["step"] for row in rows}) == 6
    return rows


def test_a_run_gives_the_loss_that_it_recorded(six_steps: Path, exported: Callable[..., Any]) -> None:
    rows = exported_rows(six_steps, exported)
    for step in {row["step"] for row in rows}:
        own = [row for row in rows if row["step"] == step]
        # one update a step: the ratio is 1.
        loss = -sum(a for row in own for a, m in zip(row["advantages"], row["tool_mask"], strict=True) if m)
        assert abs(loss / own[0]["num_items_in_batch"] - own[0]["config"]["loss"]) < 1e-5


def test_trl_computes_the_learners_loss(six_steps: Path, exported: Callable[..., Any], tmp_path: Path) -> None:
    needs("trl")
    from selfplay.policy.toy import toy_model

    model, _ = toy_model(7)
    model = model.float().eval()
    model.save_pretrained(tmp_path / "model")

    def scored(rows: Sequence[Mapping[str, Any]]) -> list[Tensor]:
        """Log-probabilities of the trained tokens under the model, a row each."""
        found = []
        for row in rows:
            ids, start = torch.tensor([row["prompt_ids"] + row["completion_ids"]]), len(row["prompt_ids"])
            with torch.no_grad():
                logprobs = model(input_ids=ids).logits[0, start - 1 : -1].log_softmax(-1)
            own = logprobs.gather(-1, ids[0, start:, None])[:, 0]
            found.append(own[torch.tensor(row["tool_mask"]).bool()])
        return found

    wanted, files = [], []
    for number, name in enumerate(["run", *OPTIONS]):
        if name == "run":
            rows = exported_rows(six_steps, exported)
            rows = [row for row in rows if row["step"] == rows[0]["step"]]
            wanted.append(theirs(rows, scored(rows), rows[0]["config"]["arguments"]).item())
        else:
            # note: what the model says now is near what it said before, so that some ratios are clipped and some not.
            samples, groups, update, _ = made()
            options = options_of(name)
            now = scored(trl.rows_of(update, samples, groups, options=options))
            noise = torch.Generator().manual_seed(number)
            old = tuple(tuple((one + 0.4 * torch.randn(len(one), generator=noise)).tolist()) for one in now)
            update = replace(update, old_logprobs=(*old, (-1.0, -1.0)))
            told = {"config": {"arguments": trl.arguments(options, temperature=1.0)}}
            rows = [{**row, **told} for row in trl.rows_of(update, samples, groups, options=options)]
            wanted.append(learners(samples, now, update, options).item())
        files.append(tmp_path / f"{name}.jsonl")
        files[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    script = Path(__file__).with_name("trl_loss.py")
    command = [sys.executable, str(script), str(tmp_path / "model"), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len({round(value, 6) for value in found}) > 6
    assert max(abs(one - other) for one, other in zip(found, wanted, strict=True)) < 1e-5
