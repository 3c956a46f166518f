"""Fixtures that more than one package uses: an HTCondor pool and a place for run directories."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression
from hypothesis import settings

from nnlib.gpu.runtime import usable
from regiondag.condor.quoting import is_path
from regiondag.errors import PoolError
from regiondag.pool import lifecycle
from regiondag.pool.pool import NAME_VARIABLE, Pool, list_pools
from regiondag.util.user_dirs import cache_dir
from tests.support.browser import find_chromium

settings.register_profile("patient", deadline=None)  # a busy machine is no failure
settings.load_profile("patient")

SLOW = re.compile(r"^pytestmark = .*\bpytest\.mark\.slow\b", re.MULTILINE)
MARK = re.compile(r"\bmark\.(\w+)")
PARTS = frozenset({"boot", "browser", "condor", "gpu", "slow", "source"})  # the marks by which parts of a run choose
SUITE = os.environ.get("REGIONDAG_TEST_SUITE", "trixie")
PACKAGES = tuple(os.environ.get("REGIONDAG_TEST_PACKAGES", "").split())

# One slot with the GPUs and one without, on a machine made to look bigger than it may be.
TWO_SLOTS = """
NUM_CPUS = 4
SLOT_TYPE_1 = cpus=2, memory=50%, disk=50%, swap=50%, GPUs=100%
NUM_SLOTS_TYPE_2 = 1
SLOT_TYPE_2 = cpus=2, memory=50%, disk=50%, swap=50%, GPUs=0
SLOT_TYPE_2_PARTITIONABLE = True
"""

# A suite that a script's `&` or nohup started ignores Ctrl-C, and so would every program that its tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# DAGMan refuses to run below /tmp, so run directories are made in the checkout, or where its path can stand in no DAG,
# as with a space in it, in the user's cache.
TESTS = Path(__file__).resolve().parent
RUN_AREAS = (TESTS.parent if is_path(str(TESTS)) else cache_dir()) / ".pytest-runs"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "source: reads our own source alone, so that no version of a library changes it")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what `-m` leaves out: clouds and machines take longer to import than to skip."""
    chosen = config.getoption("markexpr")
    left_out = chosen and collection_path.suffix == ".py" and not has_chosen(collection_path, chosen)
    return True if left_out or ("not slow" in chosen and is_slow(collection_path)) else None


def has_chosen(file: Path, chosen: str) -> bool:
    """Return whether a file may have a test that `-m` chooses, by the marks in its text."""
    always = {"slow"} if is_slow(file) else set[str]()
    maybe = [*(marks_of(file) - always).intersection(re.findall(r"\w+", chosen))]
    expression = Expression.compile(chosen)

    def is_chosen(some: tuple[str, ...]) -> bool:
        def has(name: str, /, **_: str | int | bool | None) -> bool:
            return name in always or name in some

        return expression.evaluate(has)

    return any(is_chosen(some) for count in range(len(maybe) + 1) for some in combinations(maybe, count))


@cache
def marks_of(path: Path) -> set[str]:
    """Return the marks that a file names, or a folder in __init__.py and conftest.py, and those of folders above."""
    if TESTS not in path.parents:
        return set()
    files = (path / "__init__.py", path / "conftest.py") if path.is_dir() else (path,)
    found = {name for file in files if file.exists() for name in MARK.findall(file.read_text(encoding="utf-8"))}
    return found | marks_of(path.parent)


@cache
def is_slow(path: Path) -> bool:
    """Return whether a file of tests, or a folder in its __init__.py, marks itself as slow.

    Those play machines, clouds and GPUs, compile kernels or train. It is told by the text: imports may take long.
    """
    file = path / "__init__.py" if path.is_dir() else path
    return bool(file.exists() and SLOW.search(file.read_text(encoding="utf-8"))) or (
        path != TESTS and TESTS in path.parents and is_slow(path.parent)
    )


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow ones; give those with a pool time to build the root folder; skip what finds no GPU or no browser."""
    for item in items:
        if is_slow(item.path):
            item.add_marker(pytest.mark.slow)
        unseen = PARTS.intersection(mark.name for mark in item.iter_markers()) - marks_of(item.path)
        if unseen:
            raise pytest.UsageError(
                f"{item.nodeid}: marked {', '.join(sorted(unseen))}, and neither its file nor an __init__.py or "
                "conftest.py above says so: write pytest.mark.NAME there, for parts of a run go by that text"
            )
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu and not usable():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="no GPU that CuPy can use"))
    if not find_chromium() and not os.environ.get("CI"):  # which must not pass over what it cannot test
        for item in items:
            if item.get_closest_marker("browser"):
                item.add_marker(pytest.mark.skip(reason="no Chromium: sudo apt-get install chromium"))
    # What waits begins before what computes, and of either what may take long, so that it does not end alone.
    items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in ("condor", "timeout")])
    for item in items:
        # Of several processes each has a pool of its own, so that such tests go to whichever is free; others share
        # what is made once for their file.
        if not item.get_closest_marker("condor") and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(str(item.path.relative_to(TESTS))))
        if "pool" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """Return a running pool with two simulated GPUs in slot1 and none in slot2; commands find it, too."""
    _purge_left_overs()
    with started_pool(f"pytest-{SUITE}-{os.getpid()}") as pool:
        yield pool


@contextmanager
def started_pool(name: str, *more: tuple[str, str], gpus: int = 2) -> Iterator[Pool]:
    """Start a pool of two slots, with more settings if need be, which commands find; remove it at the end."""
    wishes = lifecycle.PoolWishes(SUITE, gpus, (("two slots", TWO_SLOTS), *more), PACKAGES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(NAME_VARIABLE, name)
        pool = lifecycle.up(name, wishes, print)
        try:
            yield pool
        finally:
            lifecycle.down(name, print, purge=True)


@pytest.fixture
def run_area(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Return an empty folder that the pool sees; it is removed after the test."""
    folder = RUN_AREAS / f"{os.getpid()}-{re.sub(r'[^A-Za-z0-9_-]+', '-', request.node.name)}"
    folder.mkdir(parents=True)
    (RUN_AREAS / ".gitignore").write_text("*\n")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # never the folder of all areas: other processes make theirs there


def _purge_left_overs() -> None:
    """Stop the pools of sessions that were killed."""
    for name in list_pools():
        found = re.fullmatch(r"pytest-[a-z]+-(\d+)", name)
        if found and not Path("/proc", found[1]).exists():
            with suppress(PoolError, OSError):  # another process was faster, or is at it
                lifecycle.down(name, print, purge=True)
