"""Which files have what `-m` chooses, by their text, and which combinations of parameters have each value once."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from types import SimpleNamespace

import pytest

from tests import conftest
from tests.fewer import keep_each_value

FAST = "not condor and not slow and not browser"
POOL = "(condor or slow or browser) and not boot"


def item(test: str, **params: int) -> SimpleNamespace:
    """A test with parameters."""
    name = f"test_a.py::{test}" + (f"[{'-'.join(map(str, params.values()))}]" if params else "")
    return Item(nodeid=name, **({"callspec": SimpleNamespace(params=params)} if params else {}))


class Item(SimpleNamespace):
    __hash__ = object.__hash__


@pytest.mark.parametrize("sizes", [(1,), (4,), (3, 5), (5, 3), (2, 3, 4)])
def test_each_value_is_kept_and_no_more_than_the_longest_has(sizes):
    names = "abc"[: len(sizes)]
    items = [item("test", **dict(zip(names, found, strict=True))) for found in product(*map(range, sizes))]
    kept = keep_each_value(items)
    assert len(kept) == max(sizes)
    for name, size in zip(names, sizes, strict=True):
        assert {one.callspec.params[name] for one in kept} == set(range(size))


def test_each_test_has_values_of_its_own_and_one_without_is_kept():
    items = [item("test"), item("other", a=0), item("other", a=1), item("third", a=0)]
    assert keep_each_value(items) == {*items}


def test_pytests_own_combinations_are_seen_as_such(tmp_path):
    (tmp_path / "test_a.py").write_text(
        "import pytest\n"
        "@pytest.fixture(params=['x', 'y'])\ndef one(request): return request.param\n"
        "@pytest.mark.parametrize('a', [[1], 700, 0.5])\n@pytest.mark.parametrize(('b', 'c'), [(1, 2), (1, 3)])\n"
        "def test_a(one, a, b, c): print('run', one, a, b, c)\n"
    )
    words = ["-p", "tests.fewer", "-p", "no:cacheprovider", "-sq", "-c", os.devnull, tmp_path]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=conftest.TESTS.parent, capture_output=True, text=True, check=True
    )
    runs = [line.split("run ")[1].split() for line in done.stdout.splitlines() if "run " in line]
    assert [{*column} for column in zip(*runs, strict=True)] == [{"x", "y"}, {"[1]", "700", "0.5"}, {"1"}, {"2", "3"}]
    assert len(runs) == 3


TEXTS = {
    "fast": "def test(): ...",
    "whole": "pytestmark = pytest.mark.slow",
    "partly": "@pytest.mark.slow\ndef test(): ...",
    "with a pool": "POOL = pytest.mark.condor",
    "boots": "pytestmark = [pytest.mark.slow, pytest.mark.boot]",
    "in a list": "@pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.browser)])",
}


@pytest.mark.parametrize(
    ("chosen", "wanted"),
    [
        (FAST, {"fast", "partly", "with a pool", "in a list"}),
        (POOL, {"boots", "whole", "partly", "with a pool", "in a list"}),
        ("boot", {"boots"}),
        ("condor", {"with a pool"}),
        ("gpu or browser", {"in a list"}),
        ("not gpu", {*TEXTS}),
    ],
)
def test_files_are_read_that_may_have_what_is_chosen(tmp_path, monkeypatch, chosen, wanted):
    """A file that is slow as a whole has no fast test; others may have unmarked ones besides those that are marked."""
    monkeypatch.setattr(conftest, "TESTS", tmp_path)
    (tmp_path / "conftest.py").write_text("item.add_marker(pytest.mark.slow)\n")  # which says nothing of any file
    for name, text in TEXTS.items():
        (tmp_path / f"{name}.py").write_text(f"import pytest\n{text}\n")
    assert {name for name in TEXTS if conftest.has_chosen(tmp_path / f"{name}.py", chosen)} == wanted


def test_folders_mark_what_is_in_them(tmp_path, monkeypatch):
    monkeypatch.setattr(conftest, "TESTS", tmp_path)
    (tmp_path / "gpu" / "deeper").mkdir(parents=True)
    (tmp_path / "gpu" / "__init__.py").write_text("import pytest\n\npytestmark = pytest.mark.slow\n")
    (tmp_path / "gpu" / "conftest.py").write_text("@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.gpu)])\n")
    file = tmp_path / "gpu" / "deeper" / "test_a.py"
    file.write_text("def test(gpu): ...\n")
    assert [conftest.has_chosen(file, chosen) for chosen in (FAST, POOL, "gpu", "condor")] == [False, True, True, False]


@pytest.mark.parametrize("mark", sorted(conftest.PARTS))
def test_a_mark_that_no_text_says_is_refused(tmp_path, monkeypatch, mark):
    """Its test would be left out of every part."""
    monkeypatch.setattr(conftest, "TESTS", tmp_path)
    (tmp_path / "test_a.py").write_text("from elsewhere import MARKED\n")
    marks = [getattr(pytest.mark, mark).mark]
    unsaid = SimpleNamespace(path=tmp_path / "test_a.py", nodeid="test_a.py::test", iter_markers=lambda: marks)
    with pytest.raises(pytest.UsageError, match=f"test_a.py::test: marked {mark}, and neither"):
        conftest.pytest_collection_modifyitems([unsaid])
