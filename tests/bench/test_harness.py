"""The pure parts of the benchmarks: medians, table, JSON form, reading logs. Nothing is timed here."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest

DAGMAN_OUT = """\
11/21/26 10:43:21 Running PRE script of Node south_t0004...
11/21/26 10:43:21 Running PRE script of Node south_t0005...
11/21/26 10:43:24 PRE Script of node south_t0005 completed successfully.
11/21/26 10:43:25 PRE Script of node south_t0004 completed successfully.
11/21/26 10:43:27 Running POST script of Node south_t0005...
11/21/26 10:43:29 POST Script of node south_t0005 completed successfully.
11/21/26 10:43:30 Running POST script of Node south_t0004...
"""


@pytest.fixture
def harness(bench) -> ModuleType:
    return bench("harness")


def test_ratio_and_goal(harness):
    row = harness.Row("w", ours=2.0, peer=3.0, unit="s", goal=2)
    assert row.ratio == 1.5
    assert row.met is True
    assert harness.Row("w", 2.1, None, "s", goal=2).met is False
    assert harness.Row("w", 2.1, None, "s").met is None
    assert harness.Row("w", None, 3.0, "s", goal=2).met is None
    assert harness.Row("w", None, 3.0, "s").ratio is None


def test_sides_are_measured_in_turn_and_give_medians(harness):
    calls: list[str] = []
    values = {"ours": iter([3.0, 1.0, 2.0]), "peer": iter([9.0, 7.0, 100.0])}

    def side(name: str):
        def measure() -> float:
            calls.append(name)
            return next(values[name])

        return measure

    assert harness.in_turn({"ours": side("ours"), "peer": side("peer")}, 3) == {"ours": 2.0, "peer": 9.0}
    assert calls == ["ours", "peer"] * 3


def test_json_has_the_fixed_keys_and_reads_back(harness):
    row = harness.Row("w", 2.0, 3.0, "s", goal=2, note="not kept")
    raw = json.loads(json.dumps(harness.to_json("name", [row])))
    assert list(raw) == ["bench", "date", "machine", "versions", "rows"]
    assert list(raw["rows"][0]) == ["workload", "ours", "peer", "unit", "ratio", "goal", "met"]
    assert harness.row_from_json(raw["rows"][0]) == harness.Row("w", 2.0, 3.0, "s", goal=2)


def test_table_shows_what_is_missing_or_missed(harness):
    rows = [harness.Row("slow", 3, 6, "s", 2), harness.Row("gone", None, None, "", note="no pool")]
    lines = harness.table(rows).splitlines()
    assert lines[2].split() == ["slow", "3", "s", "6", "s", "2", "2", "s", "NO"]
    assert "not measured" in lines[3]
    assert lines[-2:] == ["gone:", "  no pool"]


def test_measure_gives_time_memory_and_output(harness):
    measured = harness.measure([sys.executable, "-c", "print('out')"])
    assert measured.output == "out\n"
    assert measured.seconds > 0
    assert measured.peak_mb > 1


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "import time; time.sleep(60)"])
def test_a_side_that_fails_or_hangs_is_not_measured(harness, code):
    with pytest.raises(harness.NotMeasuredError):
        harness.measure([sys.executable, "-c", code], timeout=1)


def test_one_group_that_fails_does_not_end_the_rest(harness):
    def broken():
        raise harness.NotMeasuredError("no pool")

    rows = harness.measure_groups({"a": broken, "b": lambda: [harness.Row("b", 1, 2, "s")]}, only=None)
    assert [(row.workload, row.ours, row.note) for row in rows] == [("a", None, "no pool"), ("b", 1, "")]


def test_quick_runs_and_parts_of_runs_keep_nothing(harness, tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "RESULTS", tmp_path / "results")
    rows = [harness.Row("w", 1, 2, "s")]
    for words in (["--quick"], ["--only", "a"]):
        assert harness.finish("x", rows, harness.options("x", ["a"], words)) == 0
        assert not harness.RESULTS.exists()
    assert harness.finish("x", rows, harness.options("x", ["a"], ["--json", str(tmp_path / "copy.json")])) == 0
    assert (harness.RESULTS / "x.json").read_text() == (tmp_path / "copy.json").read_text()


def test_barrier_adds_up(bench):
    pools = bench("orchestration_pool")
    before = [pools.Times(ended=10.0, settled=11.0, post_ended=11.5), pools.Times(ended=9, settled=12, post_ended=12.5)]
    after = [pools.Times(proposed=14.0, submitted=15.0, executing=15.5), pools.Times(14, 16, proposed=14)]
    barrier = pools.barrier(before, after)
    assert barrier == pools.Barrier(settle=2.0, post_end=0.5, propose=1.5, submit=0.0, start=1.5)
    assert barrier.total == 15.5 - 10.0


def test_rounds_are_paired_within_regions(bench):
    pools = bench("orchestration_pool")
    names = [f"{slug}_t{number:04d}" for slug in ("a", "b") for number in range(6)] + ["a_final"]
    pairs = pools.rounds_of({name: pools.Times() for name in names}, parallel=2)
    assert (
        sorted((index, len(before), len(after)) for index, before, after in pairs) == [(0, 2, 2)] * 2 + [(1, 2, 2)] * 2
    )
    assert [pools.fits_model(index, 2, rounds=6) for index in range(3)] == [False, True, True]


def test_durations_of_scripts_are_read_from_dagmans_log(bench):
    assert bench("orchestration_pool").script_seconds(DAGMAN_OUT) == {"PRE": 3.5, "POST": 2.0}


def test_event_log_is_what_htcondor_reads(bench, tmp_path):
    pytest.importorskip("htcondor2")
    bench("orchestration_inputs").write_event_log(tmp_path / "log", jobs=12)
    times = bench("orchestration_pool").read_events(tmp_path / "log")
    assert len(times) == 12
    assert {round(one.ended - one.submitted) for one in times.values()} == {2}


def test_journals_are_what_status_reads(bench, tmp_path):
    from regiondag.run.journal import Journal
    from regiondag.run.layout import RunFolder

    run = RunFolder(tmp_path)
    run.region("a").path.mkdir(parents=True)
    bench("orchestration_inputs").fill_journals(run, ["a"], trials=20, settled=19)
    history = Journal(run.region("a").journal).read()
    assert (len(history.proposals), len(history.settled)) == (20, 19)
    assert history.best(minimize=False) is not None
