from __future__ import annotations

import os
import signal

from selfplay.cli.signals import FIRST, SECOND, listen
from selfplay.events import Interrupt


def test_two_signals_are_two_levels_and_the_handlers_come_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    interrupt, said = Interrupt(), list[str]()
    with listen(interrupt, say=said.append):
        os.kill(os.getpid(), signal.SIGTERM)
        assert (interrupt.level, said) == (1, [FIRST])
        os.kill(os.getpid(), signal.SIGINT)
        assert (interrupt.level, said) == (2, [FIRST, SECOND])
    assert interrupt.signal == signal.SIGTERM
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert all(len(text) <= 79 for text in (FIRST, SECOND))
