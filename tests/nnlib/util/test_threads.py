"""BLAS is held to one thread and given back; the libraries are looked for once; several threads do the pieces."""

import subprocess
import sys
import threading
import time
from collections import Counter

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from nnlib.util import threads
from nnlib.util.threads import LEAST_WORK, Team, choose_threads, consume, map_in_turn, workers


def blas_threads():
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_blas_has_one_thread_inside_and_what_it_had_outside():
    np.ones((2, 2)) @ np.ones((2, 2))
    before = blas_threads()
    with workers(1), workers(1):
        assert blas_threads() == {1}
    assert blas_threads() == before


def test_the_libraries_are_looked_for_again_only_when_modules_came():
    with workers(1):
        found = threads._find_blas(len(sys.modules))
    with workers(1):
        assert threads._find_blas(len(sys.modules)) is found


def test_a_blas_that_is_loaded_later_is_held_too():
    code = """
import sys
from nnlib.util.threads import Team, consume, workers
with workers(1):
    pass
import numpy
from threadpoolctl import threadpool_info
with workers(1):
    assert {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"} == {1}
"""
    bare = {"OPENBLAS_NUM_THREADS": "2", "PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, "-c", code], check=True, env=bare)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_results_come_in_order_whoever_is_first(count):
    with workers(count) as each:
        slow_first = each(lambda i: (time.sleep(0.002 * (i == 0)), i * i)[1], range(20))
        assert list(slow_first) == [i * i for i in range(20)]
        assert list(each(str, range(0))) == [] and list(each(str, iter([7]))) == ["7"]


def test_little_work_stays_on_one_thread(monkeypatch):
    monkeypatch.setattr(threads, "LEAST_WORK", LEAST_WORK)
    with workers(2) as each:
        assert choose_threads(each, LEAST_WORK - 1) is map_in_turn
        assert choose_threads(each, LEAST_WORK) is each


def test_an_error_comes_in_its_place_and_ends_the_rest():
    done = Counter()

    def piece(i):
        done[i] += 1
        return 1 // (i - 3)

    with workers(3) as each:
        found = each(piece, range(100_000))
        assert [next(found) for _ in range(3)] == [-1, -1, -1]
        with pytest.raises(ZeroDivisionError):
            next(found)
    assert max(done.values()) == 1 and len(done) < 100_000


def test_pieces_may_have_pieces_and_several_threads_work_at_once():
    """More than there are helpers, and each of them waits for what others do."""
    with workers(3) as each:

        def whole(i):
            return sum(each(lambda j: i * j, range(10)))

        def ask(place):
            found[place] = [list(each(whole, range(8))) for _ in range(20)]

        found = {}
        asking = [threading.Thread(target=ask, args=(place,)) for place in range(4)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join(30)
    assert found == {place: [[45 * i for i in range(8)]] * 20 for place in range(4)}


def test_who_has_work_does_not_wait_for_help_that_does_not_come():
    team, away = Team(1), threading.Event()
    busy = team.each(lambda _: away.wait(30), [0, 1])  # the helper takes one of them
    while not (waiting := team._jobs.empty()):
        time.sleep(0.001)
    assert waiting and list(team.each(lambda i: i, range(5))) == [0, 1, 2, 3, 4]
    away.set()
    assert list(busy) == [True, True]
    team.end()


def test_all_threads_work_and_none_is_left():
    seen, both = set(), threading.Barrier(2)

    def piece(_):
        seen.add(threading.get_ident())
        both.wait(30)

    before = threading.active_count()
    with workers(2) as each:
        consume(each(piece, range(2)))
        assert threading.active_count() == before + 1
    assert len(seen) == 2 and threading.get_ident() in seen
    assert threading.active_count() == before
