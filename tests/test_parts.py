"""The table at the end of a test run."""

from __future__ import annotations

import dataclasses
import subprocess

import pytest

from tests import parts
from tests.parts import Part, main, read_parts, table, with_tests

JUNIT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="tests.a.test_b" name="test_good" time="1.5" />
<testcase classname="tests.a.test_b" name="test_slow" time="12.25" />
<testcase classname="tests.a.test_b" name="test_bad" time="0.1"><failure message="no" /></testcase>
<testcase classname="tests.a.test_b" name="test_broken" time="0"><error message="no" /></testcase>
<testcase classname="tests.c" name="test_gpu" time="0"><skipped message="no GPU" /></testcase>
<testcase classname="tests.c" name="test_gpu2" time="0"><skipped message="no GPU" /></testcase>
</testsuite></testsuites>"""
BLANK = Part("fast", 1.0, 14.0, 1, True)


def test_counts_reasons_and_times_come_from_the_junit_file():
    part = with_tests(BLANK, JUNIT)
    assert (part.passed, part.failed, part.skipped) == (2, 2, (("no GPU", 2),))
    assert part.slowest[:2] == ((12.25, "tests/a/test_b.py::test_slow"), (1.5, "tests/a/test_b.py::test_good"))


def test_the_table():
    check = Part("check", 0.0, 31.4, 0, False)
    assert table([check, with_tests(BLANK, JUNIT)]) == [
        "part   tests  passed  failed  skipped  seconds",
        "check      -       -       -        -       31",
        "fast       6       2       2        2       14  exit code 1",
        "",
        "skipped:",
        "     2 fast: no GPU",
        "",
        "slowest, in seconds:",
        "    12.2 tests/a/test_b.py::test_slow",
        "     1.5 tests/a/test_b.py::test_good",
        "     0.1 tests/a/test_b.py::test_bad",
        "     0.0 tests/c.py::test_gpu2",
        "     0.0 tests/c.py::test_gpu",
        "     0.0 tests/a/test_b.py::test_broken",
        "",
        "2 passed, 2 failed, 2 skipped",
    ]


@pytest.mark.parametrize(
    ("changes", "trouble"),
    [
        ({"code": 0, "passed": 3}, ""),
        ({"code": 0}, "ran no test"),
        ({"code": 5}, "ran no test"),
        ({"code": 0, "skipped": (("no pool", 4),)}, "ran no test"),
        ({"code": 2, "passed": 3}, "exit code 2"),
        ({"code": 0, "tests": False}, ""),
    ],
)
def test_a_part_that_failed_or_ran_no_test_is_trouble(changes, trouble):
    assert dataclasses.replace(BLANK, **changes).trouble == trouble


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Keep results here, and watch over nothing: the test's own process may have children of other tests."""
    monkeypatch.setattr(parts, "RESULTS", tmp_path)
    monkeypatch.setattr(parts, "run_watched", subprocess.call)
    return tmp_path


def test_parts_that_never_ended_are_missing(results, capsys):
    assert main(["run", "check", "true"]) == 0
    assert main(["run", "other", "sh", "-c", "exit 3"]) == 3
    assert main(["skip", "newest", "no Python 3.13"]) == 0
    assert [part.trouble for part in read_parts(results, ["check", "other", "newest", "boot"])] == [
        "",
        "exit code 3",
        "",
        "did not run",
    ]
    assert main(["table", "check", "newest"]) == 0
    assert "newest: no Python 3.13" in capsys.readouterr().out
    assert main(["table", "check", "boot"]) == 1
    assert main(["table", "check", "other"]) == 1
    assert main(["table"]) == main(["run", "x"]) == 2


def test_a_part_is_forgotten_before_it_runs_again(results, monkeypatch):
    main(["run", "check", "true"])

    def killed(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(parts, "run_watched", killed)
    with pytest.raises(KeyboardInterrupt):
        main(["run", "check", "true"])
    assert read_parts(results, ["check"])[0].trouble == "did not run"
