"""Processes of this machine give each other numbers, and sum them as one alone would."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from nnlib.parallel.host import AT_REST, COMPUTING, PHASE, Host, create_board, map_words
from nnlib.parallel.watch import read_state
from nnlib.shards.collectives import Alone

SLOT = 4096
PROGRAM = """
import hashlib, sys
import numpy as np
from nnlib.parallel.host import Host
from tests.nnlib.parallel.test_host import SLOT, exchange
rank, ranks, memory = map(int, sys.argv[1:])
host = Host(rank, ranks, memory, SLOT)
print(exchange(host), host.sent, host.waited)
"""


def exchange(host):
    """Do all that there is, with more than fits into a slot, and return a digest of what came of it."""
    digest = hashlib.sha256()
    for turn, shape in enumerate([(3,), (64, 33), (1,), (0, 5), (17, 1001)]):
        for dtype in (np.float32, np.float64):
            random = np.random.default_rng(turn)
            whole = (random.normal(size=(8, *shape)) * 10.0 ** random.integers(-6, 7, (8, *shape))).astype(dtype)
            digest.update(host.tree_sum([whole[shard].copy() for shard in host.own]).tobytes())
        gathered = host.gather(whole[host.own.start : host.own.stop])
        digest.update(gathered.reshape(whole.shape).tobytes())
    numbers = host.numbers([float(shard) for shard in host.own])
    digest.update(numbers.reshape(-1).tobytes())
    return digest.hexdigest()


@pytest.fixture
def start(keep):
    def begin(ranks, program=PROGRAM, absent=()):
        memory = create_board(ranks, SLOT)
        started = [
            keep(
                subprocess.Popen(
                    [sys.executable, "-c", program, str(rank), str(ranks), str(memory)],
                    pass_fds=[memory],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            for rank in range(ranks)
            if rank not in absent
        ]
        return memory, started

    return begin


def collect(memory, started):
    os.close(memory)
    found = [process.communicate(timeout=60) for process in started]
    assert not any(process.returncode for process in started), found[0][1]
    return [out for out, _ in found]


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_any_number_of_processes_sums_as_one(start, ranks):
    found = collect(*start(ranks))
    assert {out.split()[0] for out in found} == {exchange(Alone())}


def test_ranks_that_do_not_exchange_the_same_are_told(start):
    program = PROGRAM.replace("print(exchange(host)", "host.gather(np.zeros(3 + rank)); print(exchange(host)")
    memory, started = start(2, program)
    os.close(memory)
    for process in started:
        assert "ranks give [24, 32] bytes in one exchange" in process.communicate(timeout=60)[1]


def test_who_waits_long_takes_no_time_of_the_processor(start):
    memory, [waiting] = start(2, absent=[1])
    board = map_words(memory, 2)
    until = time.monotonic() + 60
    while board[0, 0] == 0 and time.monotonic() < until:
        time.sleep(0.01)
    assert board[0, 0] == 1, "the first rank has arrived"
    time.sleep(0.2)

    def taken():
        return read_state(waiting.pid).ticks / os.sysconf("SC_CLK_TCK")

    before = taken()
    time.sleep(1)
    assert taken() - before <= 0.3
    os.close(memory)


def test_what_a_rank_does_can_be_seen():
    memory = create_board(1, SLOT)
    host = Host(0, 1, memory, SLOT)
    words = map_words(memory, 1)
    os.close(memory)
    assert words[0, PHASE] == AT_REST
    host.enter(COMPUTING)
    assert words[0, PHASE] == COMPUTING
