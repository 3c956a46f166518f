"""Sides in turn: whose threads may still be at work when the next one begins, and what counts as quiet."""

from __future__ import annotations

import pytest

from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.cpu import turns


class Side:
    def __init__(self, done: list[object]) -> None:
        self.done = done

    def ask(self, command: str, seconds: float) -> dict[str, float]:
        self.done.append(command)
        return {"wall": 5.0}


@pytest.mark.parametrize(("threads", "wanted"), [(1, ["step"]), (2, [turns.REST, "step"])])
def test_several_threads_begin_when_those_of_the_side_before_sleep(monkeypatch, threads, wanted):
    done: list[object] = []
    monkeypatch.setattr(turns.time, "sleep", done.append)
    assert turns.after_rest(threads, Side(done), "step") == {"wall": 5.0}
    assert done == wanted


@pytest.mark.parametrize(
    ("threads", "others", "found"), [(2, [0.1, 0.5, 0.1, 0.1], [0, 2, 3]), (1, [0.9] * 3, [0, 1, 2])]
)
def test_rounds_of_several_threads_count_where_others_left_the_processors_alone(monkeypatch, threads, others, found):
    """Each round takes a second, its sides 1.5 of two processors' two; others may have a tenth of these."""
    now, worked = [0.0], [0.0]
    monkeypatch.setattr(turns.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(turns.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(turns, "busy", lambda: worked[0])
    rounds = iter(enumerate(others))

    def measure() -> tuple[int, float]:
        number, of_others = next(rounds)
        now[0], worked[0] = now[0] + 1, worked[0] + 1.5 + of_others
        return number, 1.5

    assert turns.quiet_rounds(threads, 3, measure) == found


def test_a_machine_that_is_never_quiet_is_told(monkeypatch):
    monkeypatch.setattr(turns, "PATIENCE", -1)
    monkeypatch.setattr(turns, "is_quiet", lambda *_: False)
    with pytest.raises(NotMeasuredError, match="2 threads: other programs kept the machine busy"):
        turns.quiet_rounds(2, 1, lambda: (0, 0.0))
