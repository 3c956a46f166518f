"""Threads that end: after the work, after a failure, and when nobody wants the rest."""

from __future__ import annotations

import threading
import time

import pytest

from regiondag.bake.upload import parallel
from regiondag.bake.upload.parallel import in_parallel


def test_all_items_are_done_once():
    assert sorted(in_parallel(lambda number: number * 2, range(50), 7)) == [(n, 2 * n) for n in range(50)]
    assert list(in_parallel(str, [], 3)) == []


def test_items_are_worked_on_at_the_same_time():
    barrier = threading.Barrier(4, timeout=20)
    assert len(list(in_parallel(lambda _: barrier.wait(), range(8), 4))) == 8


def test_a_failure_comes_after_what_was_under_way():
    gate = threading.Event()

    def work(number: int) -> int:
        if number == 3:
            gate.set()
            raise ValueError("three")
        if number < 3:
            gate.wait(20)
        return number

    seen = []
    with pytest.raises(ValueError, match="three"):
        for number, _ in in_parallel(work, range(1000), 4):
            seen.append(number)
    assert {0, 1, 2} <= set(seen)
    assert len(seen) < 100


def test_an_interrupted_reader_is_not_kept_waiting(monkeypatch):
    monkeypatch.setattr(parallel, "GRACE", 0.1)
    gate = threading.Event()

    def work(number: int) -> int:
        if number:
            gate.wait(20)
        return number

    results = in_parallel(work, range(4), 2)
    assert next(results) == (0, 0)
    begin = time.monotonic()
    results.close()
    assert time.monotonic() - begin < 10
    gate.set()


def test_no_thread_is_left():
    before = set(threading.enumerate())
    list(in_parallel(str, range(20), 5))
    assert set(threading.enumerate()) <= before
