"""Stages of an injector: the bug is kept, the tree reset, the tests weakened; and the single session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from selfplay.games.code.bugs import Reason
from selfplay.tools import Answer, Call, Toolbox
from selfplay.types import Seed
from tests.games.code.test_agentic import CUT, SCALE
from tests.games.code.test_tree_game import Bench, product

pytestmark = pytest.mark.bubblewrap
BREAK = "python - <<'E'\np = 'pkg/a.py'\ns = open(p).read()\nopen(p, 'w').write(s.replace({old!r}, {new!r}))\nE"
WEAKEN = "sed -i 's/assert scale(.1, 2.) == .2, 4./scale([1, 2])/' tests/test_a.py"


class Session:
    """One play of the proposer."""

    def __init__(self, bench: Bench, seed: Seed) -> None:
        self.bench = bench
        self.tools: Toolbox = bench.do(bench.game.toolbox(bench.game.proposer, seed))

    def bash(self, command: str) -> str:
        return self.call("bash", command=command).text

    def submit(self, folder: str | None = None) -> Answer:
        return self.call("submit", **({"folder": folder} if folder is not None else {}))

    def call(self, name: str, **arguments: str) -> Answer:
        return self.bench.do(self.tools.call(Call(name=name, arguments=arguments)))


@pytest.fixture(scope="module")
def bench(bubblewrap: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("staged"))
    yield made
    made.close()


@pytest.fixture
def session(bench: Bench) -> Iterator[Session]:
    made = Session(bench, bench.seeds["scale"])
    yield made
    bench.do(made.tools.aclose())


def test_a_bug_then_its_weakening_from_a_clean_start(session: Session) -> None:
    session.bash(BREAK.format(old=SCALE, new=CUT))
    session.bash("echo words > log.txt; echo words > /tmp/notes; echo 'x = 1' >> tests/test_a.py; echo > conftest.py")
    answer = session.submit()
    assert (answer.product, answer.refused) == (None, False)
    assert answer.text.startswith("[the bug is kept: pkg/a.py; left out: conftest.py (")
    assert "log.txt (new, and no Python)" in answer.text
    assert "tests/test_a.py (a test)" in answer.text
    assert "Stage WEAKEN" in answer.text
    looked = session.bash(
        "git log --oneline | wc -l; git status --short; ls log.txt /tmp/notes conftest.py; cat pkg/a.py"
    )
    assert looked.split()[0] == "1"
    assert looked.count("No such file") == 3
    assert CUT in looked
    assert SCALE not in looked
    assert session.bash("grep -c 'x = 1' tests/test_a.py").startswith("0")
    session.bash(WEAKEN + "; echo '# words' >> pkg/b.py")
    handed = session.submit()
    assert handed.product is not None
    files = handed.product["files"]
    assert files["test_files.txt"] == "tests/test_a.py\n"
    assert ("pkg/b.py" in files["bug_inject.diff"], "pkg/b.py" in files["test_weaken.diff"]) == (False, False)
    minted = session.bench.do(session.bench.game.mint(product(handed.product, stage="propose"), _seed(session)))
    assert minted.verdict.reason == Reason.VALID, minted.verdict
    assert minted.task is not None


def test_what_is_nothing_stays_in_its_stage(session: Session) -> None:
    assert session.submit().text == "nothing was handed over: the code is as it was"
    session.bash("echo 'x = 1' >> tests/test_a.py")
    assert "the code is as it was; left out: tests/test_a.py (a test)" in session.submit().text
    assert "there is no test_files.txt in artifact" in session.submit("artifact").text
    # note: a copy of the whole file beside it would tell the solver what was there.
    session.bash("cp pkg/b.py pkg/old.py; sed -i 's/x.-1./x[0]/' pkg/b.py")
    assert "a solver would be shown the answer" in session.submit().text
    session.bash("rm pkg/old.py")
    assert "Stage WEAKEN" in session.submit().text
    assert session.submit().text == "nothing was handed over: the tests are as they were"
    session.bash("echo '# words' >> pkg/b.py")
    assert session.submit().text.endswith("the tests are as they were; left out: pkg/b.py (no test)")
    assert "there is no test_files.txt in artifact" in session.submit("artifact").text


def test_a_whole_artifact_is_handed_over_at_once(session: Session) -> None:
    session.bash(BREAK.format(old=SCALE, new=CUT))
    session.bash("mkdir artifact; git diff HEAD > artifact/bug_inject.diff; git reset -q --hard")
    session.bash(f"{WEAKEN}; git diff HEAD > artifact/test_weaken.diff; echo tests/test_a.py > artifact/test_files.txt")
    handed = session.submit("artifact")
    assert handed.product is not None
    minted = session.bench.do(session.bench.game.mint(product(handed.product, stage="propose"), _seed(session)))
    assert minted.verdict.reason == Reason.VALID, minted.verdict


def test_a_session_that_was_closed_leaves_nothing(session: Session, tmp_path: Path) -> None:
    session.bash(BREAK.format(old=SCALE, new=CUT))
    session.submit()
    for _ in range(2):
        session.bench.do(session.tools.aclose())
    with pytest.raises(Exception, match="closed"):
        session.bash("ls")


def _seed(session: Session) -> Seed:
    return session.bench.seeds["scale"]
