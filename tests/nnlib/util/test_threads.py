"""BLAS is held to one thread and given back; the libraries are looked for once."""

import subprocess
import sys

import numpy as np
from threadpoolctl import threadpool_info

from nnlib.util import threads
from nnlib.util.threads import workers


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
from nnlib.util.threads import workers
with workers(1):
    pass
import numpy
from threadpoolctl import threadpool_info
with workers(1):
    assert {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"} == {1}
"""
    bare = {"OPENBLAS_NUM_THREADS": "2", "PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, "-c", code], check=True, env=bare)
