from __future__ import annotations

from pathlib import Path

import pytest

from selfplay.errors import NotFound, UserError
from selfplay.project import Project, did_you_mean, find_project, line_of, read_toml, shipped_folder
from selfplay.types import Tools


@pytest.fixture
def project(project_folder: Path) -> Project:
    return find_project(explicit=None)


TOOLED = 'game = "code"\nside = "solver"\n[tools]\n'


def write_role(folder: Path, toml: str, prompt: str = "hello {{ name }}") -> None:
    folder.mkdir(parents=True)
    (folder / "role.toml").write_text(toml)
    (folder / "prompt.md").write_text(prompt)


def test_the_shipped_copy_is_found_without_a_project(tmp_path: Path) -> None:
    project = find_project(explicit=None, start=tmp_path)
    assert project.folder is None
    assert project.runs == tmp_path / "runs"
    assert project.find("curriculum", "quickstart") == shipped_folder() / "curricula" / "quickstart.toml"
    assert project.find("sandbox", "python").name == "python"


@pytest.mark.parametrize("marker", ["selfplay.toml", "curricula/a.toml", "roles/a/role.toml"])
def test_the_nearest_folder_upwards_is_the_project(tmp_path: Path, marker: str) -> None:
    file = tmp_path / "here" / marker
    file.parent.mkdir(parents=True)
    file.write_text("")
    deep = tmp_path / "here" / "a" / "b"
    deep.mkdir(parents=True)
    assert find_project(explicit=None, start=deep).folder == (tmp_path / "here").resolve()


def test_a_foreign_roles_folder_is_no_project(tmp_path: Path) -> None:
    (tmp_path / "roles" / "webserver" / "tasks").mkdir(parents=True)
    assert find_project(explicit=None, start=tmp_path).folder is None


def test_variables_name_project_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFPLAY_PROJECT", str(tmp_path))
    monkeypatch.setenv("SELFPLAY_RUNS", str(tmp_path / "elsewhere"))
    project = find_project(explicit=None, start=Path("/"))
    assert (project.folder, project.runs) == (tmp_path.resolve(), tmp_path / "elsewhere")


def test_a_project_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no folder `.*nowhere` \(--project\)"):
        find_project(explicit=tmp_path / "nowhere")


def test_the_project_hides_what_is_shipped(project: Project, project_folder: Path) -> None:
    write_role(project_folder / "roles" / "injector", 'game = "code"\nside = "proposer"\n')
    entries = {entry.name: entry for entry in project.list_all("role")}
    own, shipped = entries["injector"], entries["repairer"]
    assert (own.origin, own.hides) == ("project", shipped_folder() / "roles" / "injector")
    assert (shipped.origin, shipped.hides) == ("shipped", None)
    assert project.load_role("injector").origin == str(project_folder.resolve() / "roles" / "injector")


def test_an_unknown_name_gets_the_nearest_one(project: Project) -> None:
    with pytest.raises(NotFound) as caught:
        project.load_role("injektor")
    assert caught.value.message == "no role `injektor`"
    assert caught.value.hint == "did you mean `injector`? All roles: selfplay ls roles"


def test_the_shipped_roles_load(project: Project) -> None:
    for entry in project.list_all("role"):
        role = project.load_role(entry.name)
        assert role.name == entry.name
        assert role.prompt
        assert entry.about


def test_a_role_is_read_whole(project: Project, project_folder: Path) -> None:
    write_role(
        project_folder / "roles" / "mine",
        'game = "code"\nside = "solver"\ntemplate = "chat"\n[limits]\ntokens = 9\nseconds = 3\n'
        '[sampling]\ntemperature = 0.5\nstop = ["end"]\n',
    )
    role = project.load_role("mine")
    assert (role.side, role.template, role.limits.tokens, role.limits.seconds) == ("solver", "chat", 9, 3)
    assert (role.sampling.temperature, role.sampling.stop) == (0.5, ("end",))


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        (
            'game = "code"\nside = "proposer"\n[sampling]\ntemprature = 1\n',
            r"unknown key `sampling.temprature` .*line 4",
        ),
        ('game = "code"\nside = "proposer"\nsiede = 1\n', r"unknown key `siede` .*line 3"),
        ('game = "code"\nside = "proposer"\n[limit]\nturns = 1\n', r"unknown table `\[limit\]` .*line 3"),
        ('game = "code"\nside = "left"\n', r"`side` is 'left', expected proposer or solver .*line 2"),
        ('game = "code"\n', r"sets no `side`"),
        ('game = 1\nside = "solver"\n', r"`game` is 1, expected a string"),
        (
            'game = "code"\nside = "solver"\n[limits]\ntokens = 0\n',
            r"`limits.tokens` is 0, expected a whole number above 0",
        ),
        (
            'game = "code"\nside = "solver"\n[sampling]\nstop = "x"\n',
            r"`sampling.stop` is 'x', expected a list of strings",
        ),
        ('game = "code"\nside = "solver"\n[limits]\nturns = true\n', r"`limits.turns` is True"),
        ('game = "code"\nside = "solver"\n[limits]\nturns = 2\n', r"has 2 turns and no tools .*line 4"),
        (f'{TOOLED}form = "xml"\n', r"`tools.form` is 'xml', expected fenced or json or native .*line 4"),
        (f'{TOOLED}renderer = "chatlm"\n', r"`tools.renderer` is 'chatlm', expected auto or .*line 4"),
        (f'{TOOLED}names = ["a", "b", "a"]\n', r"`tools.names` names `a` twice .*line 4"),
        (f'{TOOLED}name = ["a"]\n', r"unknown key `tools.name` .*line 4"),
        (f'{TOOLED}form = "native"\n', r"`form = \"native\"` needs the tokenizer's chat template .*line 4"),
        ("game = \n", r"role.toml is not TOML: "),
    ],
)
def test_a_wrong_role_is_one_sentence(project: Project, project_folder: Path, toml: str, message: str) -> None:
    write_role(project_folder / "roles" / "mine", toml)
    with pytest.raises(UserError, match=message) as caught:
        project.load_role("mine")
    assert "\n" not in caught.value.message


def test_a_role_with_tools(project: Project, project_folder: Path) -> None:
    roles = project_folder / "roles"
    write_role(roles / "all", f'template = "chat"\n{TOOLED}form = "native"\n[limits]\noutput = 9\ncontext = 99\n')
    role = project.load_role("all")
    assert role.tools == Tools(form="native")
    assert (role.limits.turns, role.limits.output, role.limits.context) == (128, 9, 99)
    write_role(roles / "some", f'{TOOLED}names = ["bash"]\nrenderer = "chatml"\n[limits]\nturns = 3\n')
    role = project.load_role("some")
    assert role.tools == Tools(names=("bash",), form="fenced", renderer="chatml")
    assert role.limits.turns == 3
    assert project.load_role("repairer").tools is None


@pytest.mark.parametrize(
    ("toml", "hint"),
    [
        ("[tool]\n", "did you mean `tools`? A role has the tables [limits], [sampling], [tools]"),
        ('[tools]\nform = "jsn"\n', "did you mean `json`?"),
    ],
)
def test_a_table_or_form_that_is_nearly_right_is_named(
    project: Project, project_folder: Path, toml: str, hint: str
) -> None:
    write_role(project_folder / "roles" / "mine", f'game = "code"\nside = "solver"\n{toml}')
    with pytest.raises(UserError) as caught:
        project.load_role("mine")
    assert caught.value.hint == hint


def test_a_key_that_is_nearly_right_is_named(project: Project, project_folder: Path) -> None:
    write_role(project_folder / "roles" / "mine", 'game = "code"\nside = "solver"\n[sampling]\ntemprature = 1\n')
    with pytest.raises(UserError) as caught:
        project.load_role("mine")
    assert caught.value.hint.startswith("did you mean `temperature`?")


def test_a_role_without_or_with_a_binary_prompt(project: Project, project_folder: Path) -> None:
    folder = project_folder / "roles" / "mine"
    write_role(folder, 'game = "code"\nside = "solver"\n')
    (folder / "prompt.md").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="is not UTF-8"):
        project.load_role("mine")
    (folder / "prompt.md").unlink()
    with pytest.raises(UserError, match=r"has no prompt\.md"):
        project.load_role("mine")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no file"):
        read_toml(tmp_path / "a.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff")
    with pytest.raises(UserError, match="not UTF-8"):
        read_toml(tmp_path / "b.toml")
    with pytest.raises(UserError, match="cannot read"):
        read_toml(tmp_path)


@pytest.mark.parametrize(
    ("table", "key", "line"),
    [("run", "steps", 3), ("a", "b", 5), (None, "top", 1), ("run", "none", None), ("run", "", 2), ("q", "x.y", 7)],
)
def test_lines_are_found(table: str | None, key: str, line: int | None) -> None:
    text = 'top = 1\n[run]  # the run\n"steps" = 2\n[ a ]\nb=1\n[q]\nx.y = 2\n'
    assert line_of(text, table=table, key=key) == line


def test_nothing_is_near() -> None:
    assert did_you_mean("zzz", ["injector"]) == ""
