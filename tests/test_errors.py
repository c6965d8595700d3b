"""Errors that a person sees: exit codes and kinds are a contract."""

from __future__ import annotations

import pickle

import pytest

from selfplay import errors
from selfplay.errors import Ambiguous, Held, NotFound, NotReady, RunFailed, SelfplayError, UserError

CONTRACT = {
    SelfplayError: (1, "internal"),
    UserError: (2, "config"),
    NotFound: (2, "not_found"),
    Ambiguous: (2, "ambiguous"),
    NotReady: (3, "not_ready"),
    Held: (4, "held"),
    RunFailed: (1, "fault"),
}


def test_every_error_is_in_the_contract() -> None:
    made = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, SelfplayError)}
    assert made == set(CONTRACT)
    assert {kind: (kind.exit_code, kind.kind) for kind in made} == CONTRACT
    assert len({kind.kind for kind in made}) == len(made)


@pytest.mark.parametrize("kind", CONTRACT)
def test_the_sentence_is_the_message_and_the_hint_stays_beside_it(kind: type[SelfplayError]) -> None:
    error = kind("no such thing", hint="selfplay ls")
    assert (str(error), error.message, error.hint) == ("no such thing", "no such thing", "selfplay ls")
    assert kind("alone").hint == ""


def test_what_a_child_process_hands_over_is_the_same_kind() -> None:
    again = pickle.loads(pickle.dumps(NotReady("no engine", hint="start it")))
    assert (type(again), again.message, again.hint) == (NotReady, "no engine", "start it")
