import signal

import pytest

from dualstudent.signals import StopRequest


def test_a_signal_while_the_handlers_are_restored_does_no_harm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, restore = signal.getsignal(signal.SIGINT), signal.signal
    stop, calls = StopRequest(), list[int]()

    def set_handler(number: int, handler: signal.Handlers) -> object:
        calls.append(number)
        if len(calls) == 1:
            stop._note_signal(signal.SIGINT, None)
        return restore(number, handler)

    with stop:
        monkeypatch.setattr(signal, "signal", set_handler)
    assert stop.received == signal.SIGINT
    assert signal.getsignal(signal.SIGINT) == before
