from __future__ import annotations

from selfplay.events import Event, Interrupt, ignore


def test_an_interrupt_has_three_levels_and_remembers_the_first_signal() -> None:
    interrupt = Interrupt()
    seen: list[int] = []
    interrupt.subscribe(seen.append)
    assert interrupt.level == 0
    for signal in (2, 15, 2):
        interrupt.press(signal=signal)
    assert interrupt.level == 2
    assert interrupt.signal == 2
    assert seen == [1, 2, 2]


def test_nothing_happens_when_nobody_listens() -> None:
    ignore(Event(kind="note", data={"text": "hello"}))
