"""A sampler a role: who asks is served by the own one, and the memory of all of them is what is counted."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from selfplay.learner import lora
from selfplay.learner.memory import MB, fixed, setup_of, shape_of
from selfplay.learner.options import Options
from selfplay.policy import Request
from selfplay.policy.by_role import ByRole, sampler
from selfplay.policy.local import LocalPolicy
from selfplay.policy.toy import toy_model
from selfplay.types import Sampling

ROLES = ("solver", "proposer")
ROWS = 4


def test_the_caches_of_all_roles_are_counted() -> None:
    model, tokenizer = toy_model(0)
    options = Options(lr=0.1, warmup_lr=0.1, dtype="float32", lora_rank=2, lora_roles=ROLES, sampler_rows=ROWS)
    lora.attach(model, rank=2, seed=0, source=None, roles=ROLES)
    held: dict[str, float] = {}

    async def main(policy: ByRole) -> None:
        for role in ROLES:
            sampling = Sampling(max_tokens=30)
            await asyncio.gather(
                *(
                    policy.sample(
                        Request(prompt_ids=tokenizer.encode("a" * 220), sampling=sampling, seed=seed, role=role)
                    )
                    for seed in range(ROWS)
                )
            )
        for role, own in policy._policies.items():
            assert isinstance(own, LocalPolicy)
            assert own._engine._cache is not None
            tables = [table for layer in own._engine._cache.layers for table in layer.tables]
            held[role] = sum(table.numel() * table.element_size() for table in tables) / MB
        await policy.aclose()

    with ThreadPoolExecutor(1) as thread:
        policy = sampler(
            model,
            tokenizer,
            roles=ROLES,
            speak_as=lora.speak_as,
            version=lambda: 0,
            executor=thread,
            max_rows=options.sampler_rows,
        )
        assert isinstance(policy, ByRole)
        asyncio.run(main(policy))
    shape = shape_of(model.config.to_dict())
    assert shape is not None
    assert held["solver"] == held["proposer"] > 0
    assert sum(held.values()) == fixed(shape, setup_of(options))["sampler's cache"]
