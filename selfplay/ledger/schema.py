"""The ledger's tables: one migration a version, comments on every table and column, and their document.

A table's comment follows its opening bracket, a column's comment follows the column; SQLite keeps
both (`sqlite3 ledger.db .schema`), and `document` turns them into `runs/README.md`.

Three rules hold in the file itself, by triggers, whoever writes: rows are never updated or deleted
(one exception: a blob's data may become NULL, which is how log-probabilities are pruned), what
belongs to a closed step cannot be added to, and steps close in order.

sqlite-utils is imported only inside functions: its import costs a reader 200 ms.

Not here: applying migrations to a file (`files.py`), record <-> row (`rows.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from selfplay.ledger import fifth, fourth, second, sixth, third

if TYPE_CHECKING:
    from sqlite_utils import Database
    from sqlite_utils.migrations import Migrations

VERSION = 6
"""Number of migrations; a file's own is `PRAGMA user_version`."""

APPLICATION_ID = 0x73656C66
"""`PRAGMA application_id` of every ledger: ASCII `self`."""

CLOCK_COLUMNS = frozenset(
    {"at", "seconds", "opened_at", "stage_seconds", "host", "pid", "engine_version", "path", "save_path"}
)
"""Columns that hold a clock or name the machine; `Reader.comparable` leaves them out."""

CLOCK_KEYS = ("second", "memory")
"""JSON keys that contain one of these are left out as well, at any depth."""

TABLES = """
CREATE TABLE runs ( -- The run itself: one row, written when it is made.
    id INTEGER PRIMARY KEY CHECK (id = 1), -- Always 1.
    config_digest TEXT NOT NULL, -- Digest of every setting that affects results; guards resume.
    config TEXT NOT NULL, -- The resolved configuration, JSON.
    seed INTEGER NOT NULL, -- Keys every random draw.
    game TEXT NOT NULL, -- Name of the game.
    schema_version INTEGER NOT NULL, -- Schema it was made with; PRAGMA user_version has the one it has now.
    engine_version TEXT NOT NULL, -- Version of selfplay that made it.
    at REAL NOT NULL -- When it was made, Unix seconds.
) STRICT;
CREATE TABLE launches ( -- Each process that held the run.
    id INTEGER PRIMARY KEY, -- Counts up.
    pid INTEGER NOT NULL, -- Process id.
    host TEXT NOT NULL, -- Name of the machine.
    engine_version TEXT NOT NULL, -- Version of selfplay that held it.
    at REAL NOT NULL -- When it took the run, Unix seconds.
) STRICT;
CREATE TABLE launch_ends ( -- How a launch ended; a launch without a row was killed or still runs.
    launch_id INTEGER PRIMARY KEY REFERENCES launches(id), -- The launch.
    how TEXT NOT NULL, -- done, stopped, failed, ...
    at REAL NOT NULL -- When, Unix seconds.
) STRICT;
CREATE TABLE seeds ( -- Where proposals start: a function of a package, a passage, a toy word.
    id TEXT PRIMARY KEY, -- Digest of game, source and payload.
    game TEXT NOT NULL, -- Game it belongs to.
    source TEXT NOT NULL, -- Where it lies, for people.
    payload TEXT NOT NULL, -- What the game needs to play it, JSON.
    split TEXT NOT NULL CHECK (split IN ('train', 'held_out')), -- Fixed when the run is made.
    at REAL NOT NULL -- When it was committed, Unix seconds.
) STRICT;
CREATE TABLE choices ( -- What the curriculum plays, committed before it is played.
    step INTEGER NOT NULL, -- The step it is played in.
    position INTEGER NOT NULL, -- Order within the step, 0-based.
    mode TEXT NOT NULL CHECK (mode IN ('propose', 'replay', 'mutate')), -- What is done with the subject.
    subject_id TEXT NOT NULL, -- A seed (propose) or a task (replay, mutate).
    score REAL NOT NULL, -- The curriculum's figure for it.
    why TEXT NOT NULL, -- One sentence.
    at REAL NOT NULL, -- When it was committed, Unix seconds.
    PRIMARY KEY (step, position)
) STRICT;
CREATE TABLE blobs ( -- Token ids, log-probabilities and long text, packed; other tables point here by id.
    id INTEGER PRIMARY KEY, -- Counts up.
    dtype TEXT NOT NULL CHECK (dtype IN ('int32', 'float32', 'float64', 'utf8')), -- Little-endian; text is UTF-8.
    codec TEXT NOT NULL CHECK (codec IN ('raw', 'zlib')), -- How data is packed.
    data BLOB -- The packed bytes; NULL once pruned (only log-probabilities ever are).
) STRICT;
CREATE TABLE trajectories ( -- One role played once on one subject.
    id TEXT PRIMARY KEY, -- Deterministic: digest of the configuration and the columns step to attempt.
    step INTEGER NOT NULL, -- Step it was played in; for stage evaluate, the update that was looked at.
    stage TEXT NOT NULL CHECK (stage IN ('propose', 'attempt', 'evaluate')), -- What it was played for.
    role TEXT NOT NULL, -- Name of the role.
    subject_id TEXT NOT NULL, -- The seed (propose) or the task (attempt, evaluate).
    position INTEGER NOT NULL, -- Among the siblings on the same subject, 0-based.
    attempt INTEGER NOT NULL, -- How many earlier tries ended in a fault.
    stop TEXT NOT NULL, -- Why it ended: done, tokens, context, turns, seconds, fault.
    policy_low INTEGER NOT NULL, -- Lowest version of the weights that sampled it.
    policy_high INTEGER NOT NULL, -- Highest.
    num_turns INTEGER NOT NULL, -- Rows in turns.
    num_sampled INTEGER NOT NULL, -- Tokens that the policy made.
    fault TEXT, -- What broke, JSON; NULL where nothing did.
    token_ids INTEGER NOT NULL REFERENCES blobs(id), -- Ids of all turns, concatenated: the record.
    logprobs INTEGER NOT NULL REFERENCES blobs(id), -- Sampling log-probabilities of all turns, concatenated.
    texts INTEGER NOT NULL REFERENCES blobs(id), -- Decoded turns, concatenated, so that no reader needs a tokenizer.
    results INTEGER REFERENCES blobs(id), -- Results of all tool calls, concatenated; NULL without calls.
    seconds REAL NOT NULL, -- Wall-clock seconds, sampling and tools.
    at REAL NOT NULL -- When it was committed, Unix seconds.
) STRICT;
CREATE TABLE turns ( -- One stretch of a trajectory by one speaker; lengths cut the trajectory's blobs.
    trajectory_id TEXT NOT NULL REFERENCES trajectories(id), -- Whose turn.
    position INTEGER NOT NULL, -- Order within the trajectory, 0-based.
    speaker TEXT NOT NULL CHECK (speaker IN ('prompt', 'policy', 'tool')), -- Who made the tokens.
    num_tokens INTEGER NOT NULL, -- Token ids of this turn.
    num_logprobs INTEGER NOT NULL, -- Log-probabilities of this turn; 0 unless the policy sampled it.
    num_chars INTEGER NOT NULL, -- Characters of its text.
    PRIMARY KEY (trajectory_id, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE tool_calls ( -- One call of a tool inside a turn.
    trajectory_id TEXT NOT NULL, -- Whose call.
    turn INTEGER NOT NULL, -- Position of the turn.
    position INTEGER NOT NULL, -- Order within the turn, 0-based.
    name TEXT NOT NULL, -- Name of the tool.
    arguments TEXT NOT NULL, -- JSON.
    exit_code INTEGER, -- NULL where there was none.
    num_chars INTEGER NOT NULL, -- Characters of its result.
    seconds REAL NOT NULL, -- Wall-clock seconds.
    PRIMARY KEY (trajectory_id, turn, position),
    FOREIGN KEY (trajectory_id, turn) REFERENCES turns(trajectory_id, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE tasks ( -- Something to solve, minted from a proposal. Same content, same row.
    id TEXT PRIMARY KEY, -- Digest of the run's configuration, the game and key.
    game TEXT NOT NULL, -- Game it belongs to.
    seed_id TEXT NOT NULL REFERENCES seeds(id), -- The seed it comes from.
    key TEXT NOT NULL, -- What two copies of one task share.
    payload TEXT NOT NULL, -- For the judge and the solver's view, JSON.
    split TEXT NOT NULL CHECK (split IN ('train', 'held_out')), -- Inherited from the seed.
    step INTEGER NOT NULL, -- The step that minted it.
    parent_id TEXT REFERENCES trajectories(id), -- The proposal that minted it; NULL for a given task.
    at REAL NOT NULL -- When it was committed, Unix seconds.
) STRICT;
CREATE TABLE verdicts ( -- What a verifier decided about one trajectory; final (retries are rows of faults).
    trajectory_id TEXT NOT NULL REFERENCES trajectories(id), -- About which.
    stage TEXT NOT NULL CHECK (stage IN ('mint', 'judge', 'grade')), -- Who decided.
    valid INTEGER NOT NULL CHECK (valid IN (0, 1)), -- Inside the rules? For mint: did it become a task?
    passed INTEGER CHECK (passed IN (0, 1)), -- For judge: solved? NULL where nothing was decided.
    reward REAL, -- NULL where nothing was decided: no sample, in no group. Never 0 for a fault.
    reason TEXT NOT NULL, -- A code from the game's closed list.
    why TEXT NOT NULL, -- One sentence that a person can read.
    task_id TEXT REFERENCES tasks(id), -- The task that a mint made or found.
    parts TEXT NOT NULL, -- The reward's named parts, JSON.
    fault TEXT, -- Why nothing was decided, JSON; NULL where it was.
    seconds REAL NOT NULL, -- Wall-clock seconds.
    evidence TEXT NOT NULL, -- What the decision rests on, JSON.
    at REAL NOT NULL, -- When it was committed, Unix seconds.
    PRIMARY KEY (trajectory_id, stage)
) STRICT;
CREATE TABLE groups ( -- Siblings whose rewards are compared.
    id TEXT PRIMARY KEY, -- Deterministic.
    step INTEGER NOT NULL, -- The step that used it.
    role TEXT NOT NULL, -- Role of all members.
    subject_id TEXT NOT NULL, -- What they were played on.
    num_members INTEGER NOT NULL, -- Rows in group_members.
    informative INTEGER NOT NULL CHECK (informative IN (0, 1)) -- 0: no variance or fewer than two, teaches nothing.
) STRICT;
CREATE TABLE group_members ( -- Who is in a group.
    group_id TEXT NOT NULL REFERENCES groups(id), -- The group.
    position INTEGER NOT NULL, -- Order within it, 0-based.
    trajectory_id TEXT NOT NULL REFERENCES trajectories(id), -- The member.
    reward REAL NOT NULL, -- Decided.
    advantage REAL NOT NULL, -- As used by the update.
    PRIMARY KEY (group_id, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE updates ( -- One change of the weights, with all that its re-application needs.
    phase TEXT NOT NULL CHECK (phase IN ('warmup', 'play')), -- Warm-up or self-play.
    step INTEGER NOT NULL, -- Training step; for the warm-up the index of the update, 0-based.
    policy_version INTEGER NOT NULL, -- Version of the weights after it.
    lr REAL NOT NULL, -- Learning rate.
    weights_digest TEXT NOT NULL, -- Digest of the float32 parameters after it.
    reference_digest TEXT, -- Digest of the KL reference, where one is used.
    fingerprint TEXT NOT NULL, -- Versions, CPU capability, threads and dtype.
    loss REAL NOT NULL, -- As minimised.
    grad_norm REAL NOT NULL, -- Before clipping.
    tokens INTEGER NOT NULL, -- Trained tokens.
    skipped TEXT, -- Why the weights were not changed; NULL where they were.
    metrics TEXT NOT NULL, -- Entropy, clip fraction, KL to the sampler, ..., JSON.
    trajectory_ids INTEGER NOT NULL REFERENCES blobs(id), -- In the learner's order, JSON.
    advantages INTEGER NOT NULL REFERENCES blobs(id), -- One a trajectory, as used.
    partition INTEGER NOT NULL REFERENCES blobs(id), -- Micro-batches as positions in trajectory_ids, JSON.
    old_lengths INTEGER NOT NULL REFERENCES blobs(id), -- Trained tokens of each trajectory: cuts old_logprobs.
    old_logprobs INTEGER NOT NULL REFERENCES blobs(id), -- The learner's log-probabilities before the step.
    seconds REAL NOT NULL, -- Wall-clock seconds.
    at REAL NOT NULL, -- When it was committed, Unix seconds.
    PRIMARY KEY (phase, step)
) STRICT;
CREATE TABLE steps ( -- Closed steps: the sign that a step's groups and update are whole.
    step INTEGER PRIMARY KEY, -- 0-based.
    opened_at REAL, -- When its first choice was committed, Unix seconds; NULL without choices.
    stage_seconds TEXT NOT NULL, -- Wall-clock seconds by what the run was doing, JSON.
    counts TEXT NOT NULL, -- The loop's counts, JSON.
    tallies TEXT NOT NULL, -- The ledger's counts of this step by STAGE/ROLE, JSON.
    totals TEXT NOT NULL, -- The sum of tallies of this and all earlier steps, so that status reads one row, JSON.
    at REAL NOT NULL -- When it was closed, Unix seconds.
) STRICT;
CREATE TABLE saves ( -- Weights, moments and counters on disk; a save without a row is not valid.
    id INTEGER PRIMARY KEY, -- Counts up.
    phase TEXT NOT NULL CHECK (phase IN ('warmup', 'play')), -- Phase of its last update.
    step INTEGER NOT NULL, -- Last update it contains; -1 for none.
    policy_version INTEGER NOT NULL, -- Version of the weights.
    path TEXT NOT NULL, -- Relative to the run's folder, or absolute for the shared cache.
    weights_digest TEXT NOT NULL, -- Digest of the float32 parameters.
    state_digest TEXT NOT NULL, -- Digest of moments and counters.
    num_bytes INTEGER NOT NULL, -- Size on disk.
    at REAL NOT NULL -- When it was committed, Unix seconds.
) STRICT;
CREATE TABLE faults ( -- Everything that broke without deciding anything, retried or not.
    id INTEGER PRIMARY KEY, -- Counts up.
    launch_id INTEGER NOT NULL REFERENCES launches(id), -- Which launch saw it.
    trajectory_id TEXT, -- What it happened to, where that is known; need not be recorded.
    attempt INTEGER NOT NULL, -- How many tries of the same thing had failed before.
    culprit TEXT NOT NULL, -- policy, sandbox, game, role or machine.
    place TEXT NOT NULL, -- The component and call.
    message TEXT NOT NULL, -- One sentence.
    detail TEXT NOT NULL, -- Traceback or output tail.
    at REAL NOT NULL -- When it was committed, Unix seconds.
) STRICT;
CREATE TABLE alarms ( -- What a person should look at; decides nothing.
    id INTEGER PRIMARY KEY, -- Counts up.
    level TEXT NOT NULL CHECK (level IN ('note', 'warning', 'error')), -- How bad.
    code TEXT NOT NULL, -- A short name.
    message TEXT NOT NULL, -- One sentence.
    step INTEGER, -- Where it belongs to one.
    at REAL NOT NULL -- When it was committed, Unix seconds.
) STRICT;
CREATE TABLE control ( -- Lines of control.jsonl (stop, pause, set) that the writer acted on.
    id INTEGER PRIMARY KEY, -- Counts up.
    action TEXT NOT NULL, -- stop, pause, resume, set.
    arguments TEXT NOT NULL, -- JSON.
    at REAL NOT NULL -- When it was committed, Unix seconds.
) STRICT;
"""

INDEXES = """
CREATE INDEX seeds_split ON seeds(split);
CREATE INDEX choices_subject ON choices(mode, subject_id, step);
CREATE INDEX trajectories_place ON trajectories(step, stage, role, subject_id, position);
CREATE INDEX trajectories_subject ON trajectories(subject_id);
CREATE INDEX tasks_step ON tasks(step);
CREATE INDEX tasks_parent ON tasks(parent_id);
CREATE INDEX verdicts_task ON verdicts(task_id) WHERE task_id IS NOT NULL;
CREATE INDEX groups_step ON groups(step);
CREATE INDEX group_members_trajectory ON group_members(trajectory_id);
CREATE UNIQUE INDEX saves_place ON saves(phase, step, path);
"""

FIRST_APPENDED = (
    *("runs", "launches", "launch_ends", "seeds", "choices", "trajectories", "turns", "tool_calls", "tasks"),
    *("verdicts", "groups", "group_members", "updates", "steps", "saves", "faults", "alarms", "control"),
)
"""Version 1's."""

APPENDED = (*FIRST_APPENDED, "parents", "origins")
"""Tables whose rows are never changed: all but `blobs`."""

CLOSED = "(SELECT max(step) FROM steps)"

GUARDS = {
    "choices": f"NEW.step <= {CLOSED}",
    "trajectories": f"NEW.stage <> 'evaluate' AND NEW.step <= {CLOSED}",
    "tasks": f"NEW.parent_id IS NOT NULL AND NEW.step <= {CLOSED}",
    "verdicts": (f"(SELECT step FROM trajectories WHERE id = NEW.trajectory_id AND stage <> 'evaluate') <= {CLOSED}"),
    "groups": f"NEW.step <= {CLOSED}",
    "updates": f"NEW.phase = 'play' AND NEW.step <= {CLOSED}",
}
"""Table -> when a new row belongs to a closed step and is refused."""


def statements() -> list[str]:
    """The SQL of all versions, a statement each."""
    later = (second, third, fourth, fifth, sixth)
    return [*first(), *(statement for version in later for statement in version.statements())]


def first() -> list[str]:
    """The SQL of version 1, a statement each."""
    sql = [part.strip() for part in (TABLES + INDEXES).split(";\n") if part.strip()]
    sql += [
        f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, 'rows of {table} are never changed'); END"
        for table in FIRST_APPENDED
        for verb in ("UPDATE", "DELETE")
    ]
    sql += [
        f"CREATE TRIGGER {table}_closed BEFORE INSERT ON {table} WHEN {condition} "
        f"BEGIN SELECT RAISE(ABORT, 'it belongs to a closed step'); END"
        for table, condition in GUARDS.items()
    ]
    sql.append(
        f"CREATE TRIGGER steps_in_order BEFORE INSERT ON steps WHEN NEW.step <> coalesce({CLOSED}, -1) + 1 "
        "BEGIN SELECT RAISE(ABORT, 'steps close in order'); END"
    )
    sql.append("CREATE TRIGGER blobs_no_delete BEFORE DELETE ON blobs BEGIN SELECT RAISE(ABORT, 'blobs are kept'); END")
    sql.append(
        "CREATE TRIGGER blobs_prune_only BEFORE UPDATE ON blobs WHEN NEW.data IS NOT NULL OR NEW.id <> OLD.id "
        "BEGIN SELECT RAISE(ABORT, 'a blob can only be pruned'); END"
    )
    return sql


def migrations() -> Migrations:
    """Every migration, in order; their number is `VERSION`."""
    from sqlite_utils.migrations import Migrations

    ledger = Migrations("selfplay")

    @ledger()
    def m001_first(db: Database) -> None:
        for statement in first():
            db.execute(statement)

    @ledger()
    def m002_forks_and_states(db: Database) -> None:
        for statement in second.statements():
            db.execute(statement)

    @ledger()
    def m003_terms_of_choices(db: Database) -> None:
        for statement in third.statements():
            db.execute(statement)

    @ledger()
    def m004_products(db: Database) -> None:
        for statement in fourth.statements():
            db.execute(statement)

    @ledger()
    def m005_children_of_attempts(db: Database) -> None:
        for statement in fifth.statements():
            db.execute(statement)

    @ledger()
    def m006_origins(db: Database) -> None:
        for statement in sixth.statements():
            db.execute(statement)

    return ledger


def document() -> str:
    """`runs/README.md`: what lies in a run's folder, and every table and column of its ledger."""
    parts = [HEADER.format(version=VERSION)]
    for table in filter(None, (TABLES + second.TABLES.lstrip() + sixth.TABLES.lstrip()).split("CREATE TABLE ")):
        lines = table.strip().splitlines()
        if not lines:
            continue
        name, _, said = lines[0].partition(" ( -- ")
        parts.append(f"### {name}\n\n{said}\n\n| column | type | what |\n|---|---|---|")
        for line in lines[1:]:
            declared, dashes, what = line.strip().partition(" -- ")
            if dashes:
                column, kind, *_ = declared.rstrip(",").split()
                parts.append(f"| `{column}` | {kind} | {fourth.SAID.get(name, {}).get(column, what)} |")
        added = third.COLUMNS.get(name, {}) | fourth.COLUMNS.get(name, {})
        parts += [f"| `{column}` | {kind} | {what} |" for column, (kind, what) in added.items()]
        parts.append("")
    states = second.VIEW_COMMENTS
    parts.append(f"## Views\n\n### trajectory_states\n\n{states['']}\n\n| column | what |\n|---|---|")
    parts += [f"| `{column}` | {what} |" for column, what in states.items() if column]
    return "\n".join(parts).rstrip("\n") + "\n"


HEADER = """# runs

<!-- Generated: python -c "from selfplay.ledger import schema; print(schema.document(), end='')" > runs/README.md -->

What came out. One folder a run; git ignores all but this page.

| in `runs/NAME/` | what |
|---|---|
| `ledger.db` | everything that happened: one SQLite file, documented below |
| `ledger.lock` | who holds the run; the lock itself dies with its process |
| `control.jsonl` | what people asked of the process that holds it (`selfplay stop`, `pause`, `resume`, `set`) |
| `ledger.db-wal`, `ledger.db-shm` | the newest rows while the run is held, or after a kill: part of the ledger |
| `ledger.vN.db` | copy made before a migration away from schema N |
| `config.toml` | the resolved configuration; itself a valid input |
| `weights/` | saves |
| `evals/` | what `selfplay eval` played on the run's held-out tasks, a small ledger each |
| `logs/` | one folder a launch |

Read it with `selfplay inspect`, `selfplay status`, or any SQLite tool on the same host
(`sqlite3 -readonly ledger.db`). Copy it with `sqlite3 ledger.db "vacuum into 'copy.db'"` or together
with its `-wal` file.

## Rules

- Rows are only added. Triggers refuse updates and deletions, whoever tries; the one exception is the
  data of a pruned blob.
- What belongs to a closed step is refused as well, and steps close in order. Rows of stage `evaluate`
  may come at any time, and so may the mint of an attempt that a choice of an open step names for a child.
- What state a thing is in follows from which rows exist: a choice without trajectories is owed, a
  trajectory without a verdict is owed a verdict, a step without a row in `steps` is open. The view
  `trajectory_states` says it for each trajectory.
- Ids are deterministic: the same configuration gives the same ids in every run.
- Columns `at`, `seconds`, `opened_at`, `stage_seconds`, `host`, `pid`, `engine_version`, `path` and
  `save_path` hold a clock or name a machine. All others are equal in two runs of one configuration (guarantee C).

## Tables (schema {version})
"""
