"""How many rows a second the ledger takes, blobs included, and what share of a step that is.

    python tests/bench/ledger.py [--trajectories N] [--million]

Appends the records of whole steps (choices, proposals with verdicts and tasks, attempts with verdicts,
groups, an update) from one thread, as the loop does, and closes each step. Rows are counted in the file
afterwards, blobs as rows of their own. `--million` makes a ledger of one million trajectories (minutes,
about 3 GB in the temporary folder) and times `status` on it. Reports; does not gate.
"""

from __future__ import annotations

import argparse
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from selfplay.ledger import Ledger
from selfplay.types import (
    Choice,
    Group,
    Seed,
    Stage,
    Stop,
    Task,
    Trajectory,
    Turn,
    Update,
    Verdict,
    digest,
    play_id,
    task_id,
)

CONFIG = "bench"
SEEDS, PROPOSALS, ATTEMPTS = 8, 4, 8
"""A step of the quickstart: seeds a step, proposals a seed, attempts a task."""

PROMPT_TOKENS, REPLY_TOKENS = 300, 48
STEP_SECONDS = 60.0
"""What a step takes on two cores without a GPU (DESIGN §6: sampling alone is 50 s)."""


def seed_of(number: int) -> Seed:
    return Seed(id=digest("seed", number), game="code", source=f"bench:{number}", payload={"n": number}, split="train")


@cache
def turns_of(number: int) -> tuple[Turn, Turn]:
    """A prompt and a reply of realistic size: ids are skewed as a tokenizer's are, so that they deflate as those do."""
    draw = random.Random(number)
    prompt, reply = (
        tuple(int(draw.paretovariate(0.3)) % 49_152 for _ in range(count)) for count in (PROMPT_TOKENS, REPLY_TOKENS)
    )
    words = "".join(
        draw.choice(("def ", "return ", "x", "(", ")", "\n    ", "seq", " = ")) for _ in range(PROMPT_TOKENS)
    )
    logprobs = tuple(-float(draw.randrange(64)) / 8 for _ in reply)
    return (
        Turn(speaker="prompt", token_ids=prompt, text=words),
        Turn(speaker="policy", token_ids=reply, logprobs=logprobs, text=words[: 3 * len(reply)]),
    )


def play(draw: random.Random, step: int, stage: Stage, role: str, subject: str, index: int) -> Trajectory:
    return Trajectory(
        id=play_id(CONFIG, step=step, stage=stage, role=role, subject_id=subject, index=index, attempt=0),
        step=step,
        stage=stage,
        role=role,
        subject_id=subject,
        index=index,
        turns=turns_of(draw.randrange(256)),
        stop=Stop.DONE,
        policy_version=(step, step),
        seconds=1.0,
    )


def step_records(step: int) -> tuple[list[object], list[Group], Update]:
    """Everything of one step, made before the clock starts."""
    draw = random.Random(step)
    records: list[object] = []
    groups, members = [], []
    for s in range(SEEDS):
        seed = seed_of(s)
        records.append(Choice(step=step, index=s, mode="propose", subject_id=seed.id, score=1.0, why="least played"))
        proposals = [play(draw, step, "propose", "injector", seed.id, p) for p in range(PROPOSALS)]
        for proposal in proposals:
            key = f"{step} {seed.id} {proposal.index}"
            task = Task(
                id=task_id(CONFIG, game="code", key=key),
                game="code",
                seed_id=seed.id,
                key=key,
                payload={"source": proposal.turns[0].text},
                split="train",
                step=step,
                parent_id=proposal.id,
            )
            records += [proposal, task, verdict_of(proposal, "mint", task.id), verdict_of(proposal, "grade", None)]
            attempts = [play(draw, step, "attempt", "repairer", task.id, a) for a in range(ATTEMPTS)]
            for attempt in attempts:
                records += [attempt, verdict_of(attempt, "judge", None)]
            groups.append(group_of(attempts))
            members += attempts
        groups.append(group_of(proposals))
        members += proposals
    return records, groups, update_of(step, members)


def verdict_of(trajectory: Trajectory, stage: str, task: str | None) -> Verdict:
    return Verdict(
        trajectory_id=trajectory.id,
        stage=stage,  # type: ignore[arg-type]
        valid=True,
        passed=trajectory.index % 2 == 0 if stage == "judge" else None,
        reward=None if stage == "mint" else float(trajectory.index % 2),
        reason="tests_fail",
        why="two of the stable tests fail with the edit",
        task_id=task,
        evidence={"failed": ["tests/test_itertoolz.py::test_groupby"], "seconds": 0.4},
    )


def group_of(members: list[Trajectory]) -> Group:
    rewards = tuple(float(member.index % 2) for member in members)
    return Group(
        id=members[0].group_id,
        step=members[0].step,
        role=members[0].role,
        subject_id=members[0].subject_id,
        trajectory_ids=tuple(member.id for member in members),
        rewards=rewards,
        advantages=tuple(reward - 0.5 for reward in rewards),
        informative=True,
    )


def update_of(step: int, members: list[Trajectory]) -> Update:
    return Update(
        step=step,
        phase="play",
        policy_version=step + 1,
        trajectory_ids=tuple(member.id for member in members),
        advantages=tuple(0.5 for _ in members),
        partition=(tuple(range(len(members))),),
        old_logprobs=tuple(member.turns[1].logprobs for member in members),
        lr=1e-6,
        weights_digest=digest("weights", step),
        reference_digest=None,
        fingerprint="bench",
        loss=0.1,
        grad_norm=1.0,
        tokens=len(members) * REPLY_TOKENS,
        seconds=1.0,
    )


def append_steps(folder: Path, num_trajectories: int) -> tuple[float, float, list[float]]:
    """(wall-clock seconds spent appending and closing, processor seconds of the same, seconds of each close)."""
    per_step = SEEDS * PROPOSALS * (1 + ATTEMPTS)
    spent, worked, closes, step = 0.0, 0.0, [], 0
    with Ledger.create(folder, config_digest=CONFIG, config={}, seed=0, game="code") as ledger:
        ledger.append(*(seed_of(s) for s in range(SEEDS))).result()
        while step * per_step < num_trajectories:
            records, groups, update = step_records(step)
            before, working = time.perf_counter(), time.process_time()
            for record in records:
                ledger.append(record)  # type: ignore[arg-type]
            ledger.flush()
            closing = time.perf_counter()
            ledger.close_step(step=step, groups=groups, update=update, stage_seconds={}, counts={})
            closes.append(time.perf_counter() - closing)
            spent += time.perf_counter() - before
            worked += time.process_time() - working
            step += 1
    return spent, worked, closes


def count_rows(folder: Path) -> dict[str, int]:
    connection = sqlite3.connect(folder / "ledger.db")
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    counts = {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}
    connection.close()
    return {table: count for table, count in counts.items() if not table.startswith(("_", "sqlite"))}


def time_status(folder: Path) -> None:
    """The query in this process, and a process that does nothing else."""
    with Ledger.read(folder) as reader:
        before = time.perf_counter()
        reader.status()
        cold = time.perf_counter() - before
        before = time.perf_counter()
        reader.status()
        warm = time.perf_counter() - before
    script = "import sys; from pathlib import Path; from selfplay.ledger import Ledger; "
    script += "Ledger.read(Path(sys.argv[1])).status()"
    before = time.perf_counter()
    subprocess.run([sys.executable, "-c", script, str(folder)], check=True)
    process = time.perf_counter() - before
    print(f"status: first {cold * 1e3:.1f} ms, again {warm * 1e3:.1f} ms (reach < 200), process {process * 1e3:.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, default=4_000)
    parser.add_argument("--million", action="store_true")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="selfplay-bench-"))
    try:
        run = folder / "run"
        seconds, worked, closes = append_steps(run, 1_000_000 if asked.million else asked.trajectories)
        counts, steps = count_rows(run), len(closes)
        rows = sum(counts.values())
        size = (run / "ledger.db").stat().st_size
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"ledger: {rows / seconds:,.0f} rows/s, blobs included (reach >= 20,000); {rows / worked:,.0f} a CPU "
            f"second; {rows:,} rows of {counts['trajectories']:,} trajectories in {seconds:.2f} s"
        )
        print(
            f"ledger: {seconds / steps * 1e3:.0f} ms a step of {counts['trajectories'] // steps} trajectories = "
            f"{seconds / steps / STEP_SECONDS:.2%} of {STEP_SECONDS:.0f} s (reach < 1 %); "
            f"closing {sorted(closes)[steps // 2] * 1e3:.0f} ms (median); "
            f"{size / counts['trajectories']:,.0f} bytes a trajectory; peak memory {memory:.0f} MB"
        )
        time_status(run)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
