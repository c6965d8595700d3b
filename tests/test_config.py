from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest
from cogapp import Cog

import selfplay
from selfplay.config import Config, diff, from_run, load
from selfplay.config.reference import markdown, rows
from selfplay.config.settings import affects_results, expected, fields, toml_value
from selfplay.errors import NotFound, UserError
from selfplay.project import Project, find_project

ROOT = Path(__file__).parent.parent


@pytest.fixture
def project(project_folder: Path) -> Project:
    return find_project(explicit=None)


def settings(project: Project, text: str = "", *, sets: tuple[str, ...] = (), **environ: str) -> Config:
    (project.runs.parent / "mine.toml").write_text(text)
    return load("mine.toml", project=project, sets=sets, environ=environ)


def test_at_most_sixty_keys_each_with_a_meaning() -> None:
    found = dict(fields())
    assert len(found) <= 78
    for name, info in found.items():
        assert info.description, name
        assert expected(info), name
        assert isinstance(affects_results(name), bool)


def test_every_key_is_honoured_by_somebody() -> None:
    read: set[str] = set()
    for file in Path(selfplay.__file__).parent.rglob("*.py"):
        if "config" in file.parts:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute | ast.Name):
                table = node.value.attr if isinstance(node.value, ast.Attribute) else node.value.id
                read.add(f"{table}.{node.attr}")
    assert {name for name, _ in fields()} <= read


@pytest.mark.parametrize("name", ["quickstart", "demo"])
def test_the_shipped_presets_are_valid(project: Project, name: str) -> None:
    config = load(name, project=project, environ={})
    assert config.name == name
    assert project.load_role(config.roles.proposer).game == config.run.game
    assert project.load_role(config.roles.solver).side == "solver"


def test_the_quickstart_is_what_the_issues_ask(project: Project) -> None:
    config = load("quickstart", project=project, environ={})
    assert (config.run.game, config.game.source, config.policy.model) == ("code", "pypi:toolz==1.2.0", "smollm2-135m")
    assert (config.run.steps, config.play.proposals, config.play.attempts) == (10, 4, 16)
    assert (config.learner.clip_low, config.learner.clip_high, config.learner.kl) == (0.2, 0.28, 0.0)
    learns = load("code-learns", project=project, environ={})
    shorter = {"game.options", "warmup.steps", "warmup.check_every"}
    assert {one.key for one in diff(config, learns)} == shorter, "its settings are the study's, but for its length"


def test_the_last_layer_wins(project: Project, project_folder: Path) -> None:
    (project_folder / "selfplay.toml").write_text("[run]\nsteps = 1\nseed = 1\nsave_every = 9\nkeep_saves = 7\n")
    config = settings(
        project, "[run]\nsteps = 2\nseed = 2\nsave_every = 3\n", sets=("run.steps=4",), SELFPLAY_RUN_SEED="3"
    )
    assert (config.run.steps, config.run.seed, config.run.save_every, config.run.keep_saves) == (4, 3, 3, 7)
    origins = [config.provenance[f"run.{key}"] for key in ("steps", "seed", "save_every", "keep_saves", "game")]
    assert origins == ["-s", "SELFPLAY_RUN_SEED", "mine.toml:4", "selfplay.toml:5", "built-in"]


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("policy.model=toy", "policy.model", "toy"),
        ("policy.model='a b'", "policy.model", "a b"),
        ("policy.model=123", "policy.model", "123"),
        ("game.source=pypi:toolz==1.2.0", "game.source", "pypi:toolz==1.2.0"),
        ("learner.lr=2e-6", "learner.lr", 2e-6),
        ("learner.lr=1", "learner.lr", 1.0),
        ("warmup.cache=false", "warmup.cache", False),
        ("roles.weights=pooled", "roles.weights", "pooled"),
        ("roles.weights=[1, 0.5]", "roles.weights", [1.0, 0.5]),
        ("roles.train=['solver']", "roles.train", ["solver"]),
        ("play.temperature=0.7", "play.temperature", 0.7),
        ("curriculum.options={replay=0.3, x='a', y=true}", "curriculum.options", {"replay": 0.3, "x": "a", "y": True}),
    ],
)
def test_values_on_the_command_line(project: Project, text: str, key: str, value: object) -> None:
    assert settings(project, sets=(text,)).values()[key] == value


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("run.step=3", "unknown key `run.step` (-s run.step=3)", "did you mean `run.steps`? It is 10 by default."),
        ("lerner.lr=1", "unknown key `lerner.lr` (-s lerner.lr=1)", "did you mean `learner.lr`?"),
        (
            "learner.proposals=1",
            "unknown key `learner.proposals` (-s learner.proposals=1)",
            "did you mean `play.proposals`?",
        ),
        ("steps=5", "unknown key `steps` (-s steps=5)", "did you mean `run.steps`?"),
        ("x.y=1", "unknown table `[x]` (-s x.y=1)", "Tables: run, game,"),
        ("run.steps", "`-s run.steps` has no `=`", "write -s table.key=value"),
        ("run.steps=ten", "`run.steps` is 'ten', expected a whole number, at least 0 (-s run.steps=ten)", "Steps to"),
        ("run.steps=-1", "`run.steps` is -1, expected a whole number, at least 0", ""),
        ("run.steps=1.5", "`run.steps` is 1.5, expected a whole number", ""),
        ("sandbox.kind=dokcer", "`sandbox.kind` is 'dokcer', expected one of auto, docker,", "did you mean `docker`?"),
        ("game.held_out=1.0", "`game.held_out` is 1.0, expected a number, at least 0, below 1", ""),
        ("warmup.cache=1", "`warmup.cache` is 1, expected true or false", ""),
        ("roles.weights=[1]", "`roles.weights` is [1], expected a list of 2 numbers or `pooled`", ""),
        ("roles.weights=[-1, 1]", "`roles.weights` is [-1, 1], expected", ""),
        ("play.temperature=0", "`play.temperature` is 0, expected a number, above 0", ""),
        ("rewards.options=1", "`rewards.options` is 1, expected an inline table of numbers, strings and booleans", ""),
        ("learner.lr=inf", "`learner.lr` is inf, expected a number, above 0", ""),
    ],
)
def test_a_wrong_setting_is_one_sentence_and_a_hint(project: Project, text: str, message: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        settings(project, sets=(text,))
    assert caught.value.message.startswith(message)
    assert "\n" not in caught.value.message
    assert caught.value.hint.startswith(hint)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[learner]\nlr = 1e-6\nlearning_rate = 3\n", "unknown key `learner.learning_rate` (mine.toml, line 3)"),
        ("steps = 3\n", "`steps` stands outside a table (mine.toml, line 1)"),
        ("[lerner]\n", "unknown table `[lerner]` (mine.toml, line 1)"),
        ('[run]\n\nsteps = "x"\n', "`run.steps` is 'x', expected a whole number, at least 0 (mine.toml, line 3)"),
        ("[learner.deep]\nlr = 1\n", "unknown key `learner.deep` (mine.toml"),
        ("[run\n", "mine.toml is not TOML: "),
    ],
)
def test_a_wrong_file_names_the_line(project: Project, text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        settings(project, text)
    assert caught.value.message.startswith(message)


def test_a_wrong_variable_is_named(project: Project) -> None:
    with pytest.raises(UserError, match=r"`run.steps` is 'ten', expected .* \(SELFPLAY_RUN_STEPS\)"):
        settings(project, SELFPLAY_RUN_STEPS="ten")


def test_an_unknown_variable_of_a_table_is_an_error_and_foreign_ones_are_not(project: Project) -> None:
    with pytest.raises(UserError) as caught:
        settings(project, SELFPLAY_LEARNER_LRATE="1")
    assert caught.value.message == "unknown key `learner.lrate` (SELFPLAY_LEARNER_LRATE)"
    assert settings(project, SELFPLAY_RUNS="x", SELFPLAY_CACHE="y", SELFPLAY_REQUIRE_DOCKER="1").run.steps == 10


def test_unknown_presets_and_files(project: Project) -> None:
    with pytest.raises(NotFound) as caught:
        load("quikstart", project=project)
    assert caught.value.hint == "did you mean `quickstart`? All presets: selfplay ls presets"
    with pytest.raises(NotFound, match=r"no file `nope\.toml`"):
        load("nope.toml", project=project)


def test_the_digest_covers_what_affects_results_and_nothing_else(project: Project) -> None:
    plain = settings(project)
    for text in ("run.steps=99", "run.save_every=3", "sandbox.workers=7", "sandbox.kind=docker", "policy.max_rows=3"):
        assert settings(project, sets=(text,)).digest == plain.digest, text
    for text in ("run.seed=1", "learner.lr=1e-3", "game.source=x", "play.attempts=4", "warmup.steps=3"):
        assert settings(project, sets=(text,)).digest != plain.digest, text


def test_the_resolved_file_is_a_valid_input(project: Project, tmp_path: Path) -> None:
    strange = 'a"b\\c\u00e9\x01\n# not a comment'
    config = settings(project, sets=(f"policy.model={strange}", "roles.weights=pooled", "run.steps=3"))
    config = config.model_copy(update={"policy": config.policy.model_copy(update={"model": strange})})
    path = config.write(tmp_path / "runs" / "one")
    again = from_run(tmp_path / "runs" / "one", project=project, environ={})
    assert again.values() == config.values()
    assert again.digest == config.digest
    assert again.name == "one"
    assert [file.name for file in path.parent.iterdir()] == ["config.toml"]
    assert "steps = 3  # -s" in path.read_text(encoding="utf-8")


def test_a_resume_leaves_the_file_as_it_was_written(project: Project, tmp_path: Path) -> None:
    mark = "a  # b"
    sets = (f"policy.model={mark}", "run.save_every=9")
    config = settings(project, "[run]\nseed = 2\nsteps = 2\n", sets=sets, SELFPLAY_RUN_STEPS="3")
    folder = tmp_path / "runs" / "one"
    first = config.write(folder).read_text(encoding="utf-8")
    again = from_run(folder, project=project, environ={})
    assert again.provenance == config.provenance
    assert again.provenance["run.seed"] == "mine.toml:2"
    assert (again.digest, again.name) == (config.digest, "one")
    assert again.write(folder).read_text(encoding="utf-8") == first
    assert first.startswith("# The resolved settings of a run of `mine`;")
    other = from_run(folder, project=project, sets=("run.seed=4",), environ={"SELFPLAY_RUN_SAVE_EVERY": "5"})
    second = other.write(folder).read_text(encoding="utf-8")
    changed = [line for line in second.splitlines() if line not in first.splitlines()]
    assert changed == ["seed = 4  # -s", "save_every = 5  # SELFPLAY_RUN_SAVE_EVERY"]


def test_an_origin_that_cannot_be_is_not_believed(project: Project, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one"
    text = settings(project).write(folder).read_text(encoding="utf-8")
    for old, new in (
        ("seed = 0  # built-in", "seed = 7  # built-in"),
        ("steps = 10  # built-in", "steps = 10"),
        ("save_every = 1  # built-in", "save_every = 1  # --scale of-old"),
    ):
        assert f"\n{old}\n" in text
        text = text.replace(f"\n{old}\n", f"\n{new}\n")
    (folder / "config.toml").write_text(text, encoding="utf-8")
    origins = from_run(folder, project=project, environ={}).provenance
    for key in ("run.seed", "run.steps", "run.save_every"):
        assert re.fullmatch(r"runs/one/config\.toml:\d+", origins[key].removeprefix(f"{tmp_path}/")), key
    assert origins["run.keep_saves"] == "built-in"
    (folder / "config.toml").write_text(text.replace("seed = 7", "seed = -7"), encoding="utf-8")
    with pytest.raises(UserError, match=r"config\.toml, line \d+\)"):
        from_run(folder, project=project, environ={})


def test_a_folder_without_a_run_is_not_found(project: Project, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no run in"):
        from_run(tmp_path, project=project)


def test_differences_are_named(project: Project) -> None:
    old = settings(project)
    new = settings(project, sets=("learner.lr=1e-3", "run.steps=99"))
    assert [(d.key, d.old, d.new) for d in diff(old, new)] == [("learner.lr", 1e-6, 1e-3)]
    assert [d.key for d in diff(old, new, every_key=True)] == ["run.steps", "learner.lr"]


@pytest.mark.parametrize(
    "value", [True, False, 3, 1e-6, "x", 'q"\\\n\t\x7f\u2028', ["a", "b"], [0.5, 1.0], [], {"a": 1, "b c": "x"}, {}]
)
def test_toml_values_round_trip(value: object) -> None:
    assert tomllib.loads(f"v = {toml_value(value)}")["v"] == value


def test_what_has_no_toml_form() -> None:
    with pytest.raises(TypeError):
        toml_value(None)


def test_the_reference_lists_every_key() -> None:
    assert len(rows(Config())) == len(dict(fields()))
    assert markdown().count("\n") == len(dict(fields())) + 1


def test_the_documented_table_is_current() -> None:
    assert Cog().main(["cog", "--check", str(ROOT / "curricula" / "README.md")]) == 0, "cog -r curricula/README.md"
