"""Which kernels OpenBLAS has taken, as results, `nnlib inspect` and `regiondag replay` name them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nnlib.util import blas
from nnlib.util.blas import OPENBLAS, find_kernels

ASK = "from nnlib.util.blas import find_kernels; print(find_kernels().get('openblas', ''))"


def ask(core: str = "") -> str:
    """Return what a process of its own says, started with OPENBLAS_CORETYPE or without."""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    more = {"OPENBLAS_CORETYPE": core} if core else {}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=environment | more, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


@pytest.fixture
def own():
    found = ask()
    if not found:
        pytest.skip("NumPy is linked with another BLAS")
    return found


def test_version_and_kernels_are_those_that_threadpoolctl_finds(own):
    threadpoolctl = pytest.importorskip("threadpoolctl")
    libraries = [one for one in threadpoolctl.threadpool_info() if one["internal_api"] == OPENBLAS]
    said = {f"{one['version']} {one['architecture']}" for one in libraries}
    assert find_kernels()[OPENBLAS] in said


def test_who_starts_a_program_chooses_and_nnlib_names_what_was_chosen(own):
    version, _ = own.split()
    assert ask("Nehalem") == f"{version} Nehalem"


def test_another_blas_has_no_name(monkeypatch):
    find_kernels.cache_clear()
    monkeypatch.setattr(blas, "USERS", ("math", "no.such.module", "numpy.no_such_module"))
    assert find_kernels() == {}
    find_kernels.cache_clear()
