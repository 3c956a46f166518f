"""Threads are held to one, by the variables that a script begins with or by the library."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
import numpy
from regiondag.util.one_thread import on_one_thread
with on_one_thread():
    held = "threadpoolctl" in sys.modules
    from threadpoolctl import threadpool_info
    print(held, [one["num_threads"] for one in threadpool_info()])
"""
BOTH = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@pytest.mark.parametrize(
    ("begun_with", "held"),
    [
        ({}, True),
        ({"OMP_NUM_THREADS": "1"}, True),
        ({**BOTH, "OPENBLAS_NUM_THREADS": "2"}, True),
        ({**BOTH, "MKL_NUM_THREADS": "4"}, True),
        (BOTH, False),
        ({**BOTH, "MKL_NUM_THREADS": "1"}, False),
    ],
)
def test_there_is_one_thread_and_the_library_only_where_it_is_needed(monkeypatch, begun_with, held):
    for name in (*BOTH, "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, number in begun_with.items():
        monkeypatch.setenv(name, number)
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout == f"{held} [1]\n"
