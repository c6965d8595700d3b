"""Which seeds are held out: drawn one by one, by module, and without the like of what is trained on."""

from __future__ import annotations

from typing import Any

import pytest

from selfplay.config import load
from selfplay.errors import UserError
from selfplay.games.code.opened import Settings, _seeds
from selfplay.games.code.options import Options
from selfplay.games.code.survey import Function
from selfplay.grounds import code_options
from selfplay.project import Project


def function(path: str, name: str, body: str) -> Function:
    source = f"def {name}(a):\n    return {body}\n"
    return Function(path=path, qualname=name, line=1, source=source, doc="", tests=("t.py::t",))


FUNCTIONS = [function(f"m{module}.py", f"f{n}", f"a + {module * 10 + n}") for module in range(8) for n in range(4)]


def held_out(functions: list[Function], **options: Any) -> set[str]:
    settings = Settings(held_out=0.3, package_share=1.0, options=Options(**options))
    seeds = _seeds(functions, source="pypi:small==1.0", settings=settings)
    return {f"{seed.payload['path']}:{seed.payload['qualname']}" for seed in seeds if seed.split == "held_out"}


def test_by_function() -> None:
    found = held_out(FUNCTIONS)
    assert len(found) == round(0.3 * len(FUNCTIONS))
    assert len({name.partition(":")[0] for name in found}) > 3, "functions of one module are on both sides"


def test_by_module() -> None:
    found = held_out(FUNCTIONS, split="module")
    modules = {name.partition(":")[0] for name in found}
    assert 1 <= len(modules) <= 3
    assert len(found) == 4 * len(modules) <= 0.3 * len(FUNCTIONS), "all of a module, and no more than the share"
    assert held_out(list(reversed(FUNCTIONS)), split="module") == found
    assert held_out(FUNCTIONS[:4], split="module") == set(), "the only module is learnt from"


def test_the_like_of_train_functions_is_given_back() -> None:
    twins = [function(f"m{module}.py", f"g{n}", "a * 7") for module in range(8) for n in range(4)]
    assert held_out(twins, distinct=True) == set()
    assert held_out(twins) != set()
    assert held_out(FUNCTIONS, distinct=True) == held_out(FUNCTIONS)
    mixed = [*FUNCTIONS, *twins]
    assert held_out(mixed, distinct=True) == {name for name in held_out(mixed) if ":f" in name}


def test_options_of_the_game(project: Project) -> None:
    def options(text: str) -> Options:
        return code_options(load("quickstart", project=project, sets=[f"game.options={text}"], environ={}), alone=True)

    assert options('{split = "module", distinct = true}') == Options(split="module", distinct=True)
    with pytest.raises(UserError, match="option `split` is 'file', expected function or module"):
        options('{split = "file"}')
    with pytest.raises(UserError, match="has no option `noise`"):
        options("{noise = 1}")
