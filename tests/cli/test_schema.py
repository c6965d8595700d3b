from __future__ import annotations

import json
from collections.abc import Callable

import pytest

Typed = tuple[int, str, str]


@pytest.mark.parametrize("what", [[], ["config"], ["envelope"], ["error"]])
def test_each_is_a_schema_of_an_object(typed: Callable[..., Typed], what: list[str]) -> None:
    code, out, _ = typed("schema", *what)
    schema = json.loads(out)
    assert code == 0
    assert schema["type"] == "object"
    assert schema["properties"]


def test_the_configurations_schema_knows_every_table(typed: Callable[..., Typed]) -> None:
    from selfplay.config import Config

    assert set(json.loads(typed("schema")[1])["properties"]) == set(Config.model_fields)
