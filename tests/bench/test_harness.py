"""What all benchmarks share: medians, table, JSON form, kept runs, processes."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from scripts.bench.common import harness, processes
from scripts.bench.common.child import Child
from scripts.bench.common.kept_runs import KeptRuns
from scripts.bench.common.processor import describe_processor, name_processor


def test_ratio_and_goal():
    row = harness.Row("w", ours=2.0, peer=3.0, unit="s", goal=2)
    assert row.ratio == 1.5
    assert row.met is True
    assert harness.Row("w", 2.1, None, "s", goal=2).met is False
    assert harness.Row("w", 2.1, None, "s").met is None
    assert harness.Row("w", None, 3.0, "s", goal=2).met is None
    assert harness.Row("w", None, 3.0, "s").ratio is None


def test_sides_are_measured_in_turn_and_give_medians():
    calls: list[str] = []
    values = {"ours": iter([3.0, 1.0, 2.0]), "peer": iter([9.0, 7.0, 100.0])}

    def side(name: str):
        def measure() -> float:
            calls.append(name)
            return next(values[name])

        return measure

    assert processes.in_turn({"ours": side("ours"), "peer": side("peer")}, 3) == {"ours": 2.0, "peer": 9.0}
    assert calls == ["ours", "peer"] * 3


def test_json_has_the_fixed_keys_and_reads_back():
    row = harness.Row("w", 2.0, 3.0, "s", goal=2, note="not kept")
    raw = json.loads(json.dumps(harness.to_json("name", [row])))
    assert list(raw) == ["bench", "date", "machine", "versions", "rows"]
    assert list(raw["rows"][0]) == ["workload", "ours", "peer", "unit", "ratio", "goal", "met"]
    kept = {name: raw["rows"][0][name] for name in ("workload", "ours", "peer", "unit", "goal")}
    assert harness.Row(**kept) == harness.Row("w", 2.0, 3.0, "s", goal=2)


def test_table_shows_what_is_missing_or_missed():
    rows = [harness.Row("slow", 3, 6, "s", 2), harness.Row("gone", None, None, "", note="no pool")]
    lines = harness.table(rows).splitlines()
    assert lines[2].split() == ["slow", "3", "s", "6", "s", "2", "2", "s", "NO"]
    assert "not measured" in lines[3]
    assert lines[-2:] == ["gone:", "  no pool"]


def test_measure_gives_time_memory_and_output():
    measured = processes.measure([sys.executable, "-c", "print('out')"])
    assert measured.output == "out\n"
    assert measured.seconds > 0
    assert measured.peak_mb > 1


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "import time; time.sleep(60)"])
def test_a_side_that_fails_or_hangs_is_not_measured(code):
    with pytest.raises(processes.NotMeasuredError):
        processes.measure([sys.executable, "-c", code], timeout=1)


def test_one_group_that_fails_does_not_end_the_rest():
    def broken():
        raise processes.NotMeasuredError("no pool")

    rows = harness.measure_groups({"a": broken, "b": lambda: [harness.Row("b", 1, 2, "s")]}, only=None)
    assert [(row.workload, row.ours, row.note) for row in rows] == [("a", None, "no pool"), ("b", 1, "")]


def test_quick_runs_and_parts_of_runs_keep_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "RESULTS", tmp_path / "results")
    rows = [harness.Row("w", 1, 2, "s")]
    harness.RESULTS.mkdir()
    for words in (["--quick"], ["--only", "a"]):
        assert harness.finish("x", rows, harness.options("x", ["a"], words)) == 0
        assert not list(harness.RESULTS.iterdir())
    assert harness.finish("x", rows, harness.options("x", ["a"], ["--json", str(tmp_path / "copy.json")])) == 0
    assert (harness.RESULTS / "x.json").read_text() == (tmp_path / "copy.json").read_text()


def test_a_quick_run_has_no_goals(capsys, tmp_path):
    rows = [harness.Row("w", 1, 2, "s", goal=0.5)]
    words = ["--quick", "--json", str(tmp_path / "quick.json")]
    assert harness.finish("x", rows, harness.options("x", [], words), {"curve": [1, 2]}) == 0
    kept = json.loads((tmp_path / "quick.json").read_text())
    assert (kept["rows"][0]["goal"], kept["rows"][0]["met"], kept["curve"]) == (None, None, [1, 2])
    assert "[1, 2]" in (tmp_path / "quick.json").read_text()


def test_a_run_is_made_once_until_its_stamp_changes(tmp_path, capsys):
    made, stamp = [], ["first"]

    def make(key):
        made.append(key)
        if key == "broken":
            raise processes.NotMeasuredError("no library")
        return {"value": len(made)}

    runs = KeptRuns(lambda key: tmp_path / f"{key}.json", lambda _: stamp[0], lambda key, raw: raw["value"], make)
    assert [runs.fill(["a", "broken"]) for _ in range(2)] == [[1], [1]]
    assert made == ["a", "broken", "broken"] and "broken: no library" in capsys.readouterr().err
    stamp[0] = "second"
    assert runs.find("a") is None and runs.fill(["a"]) == [4]


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Give a function that starts a text as a child."""

    def start(text):
        (tmp_path / "child_script.py").write_text(text)
        call = [sys.executable, str(tmp_path / "child_script.py"), "7"]
        monkeypatch.setattr("scripts.bench.common.child.module", lambda *_, **__: call)
        return Child(sys.executable, "child_script")

    return start


def test_a_child_answers(child):
    text = "import sys\nprint('hello')\nprint('{\"n\": ' + sys.argv[1] + '}', flush=True)\n"
    text += "for line in sys.stdin: print('{\"to\": \"' + line.strip() + '\"}', flush=True)\n"
    with child(text) as started:
        assert started.answer(20) == {"n": 7}
        assert started.ask("step", 20) == {"to": "step"}
    with child("for n in range(3): print('{\"n\": %d}' % n)") as started:
        assert [answer["n"] for answer in started.answers(20)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "said"), [("1 / 0", "ZeroDivisionError: division by zero"), ("raise SystemExit(3)", "exit code 3")]
)
def test_a_child_that_fails_says_why(child, text, said):
    with child(text) as started, pytest.raises(processes.NotMeasuredError, match=said):
        started.answer(20)
    with child(f"print('{{}}', flush=True)\n{text}") as started, pytest.raises(processes.NotMeasuredError, match=said):
        list(started.answers(20))


def test_a_child_that_takes_too_long_ends_with_what_it_started(child):
    text = "import subprocess, sys, time\n"
    text += "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    text += "print('{\"pid\": %d}' % other.pid, flush=True)\ntime.sleep(60)\n"
    with child(text) as started:
        pid = started.answer(20)["pid"]
        with pytest.raises(processes.NotMeasuredError, match="took too long"):
            started.answer(0.01)
    for _ in range(500):
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or " Z " in state.read_text():
            break
        time.sleep(0.01)
    else:
        pytest.fail("the grandchild goes on")


def test_rows_measured_alone_take_their_places_among_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "RESULTS", tmp_path)

    def finish(ours, *words, more=None, names=("a (peer: float32), wall", "b, wall")):
        arguments = harness.options("x", ["a"], list(words))
        rows = [harness.Row(name, ours, ours and 2 * ours, "ms") for name in names]
        harness.finish("x-amd", rows, arguments, more, merged=True)
        kept = json.loads((tmp_path / "x-amd.json").read_text())
        return [(row["workload"], row["ours"]) for row in kept["rows"]]

    assert finish(1.0) == [("a (peer: float32), wall", 1), ("b, wall", 1)]
    again = finish(2.0, "--only", "a", names=("a (peer: autocast), wall",))
    assert again == [("a (peer: autocast), wall", 2), ("b, wall", 1)]
    assert finish(None, "--only", "a", names=("a",)) == again  # a group that could not be measured
    alone = finish(3.0, "--only", "a", names=("b, wall",), more={"peer": "a later one"})
    assert alone == [("b, wall", 3)]
    assert finish(4.0, "--quick", "--only", "a") == alone


def test_sides_choose_their_kernels_by_themselves(monkeypatch):
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    found = processes.environment({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"})
    assert {name for name in found if processes.STEERS.match(name)} == {"ONEDNN_MAX_CPU_ISA"}
    assert found["OPENBLAS_NUM_THREADS"] == "3"


ZEN = (
    "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\n"
    "model name\t: AMD EPYC\nflags\t\t: {}\n\n"
)


def test_processors_are_told_apart_by_maker_generation_and_instructions():
    assert describe_processor(ZEN.format("fpu") * 2) == "AMD EPYC family 26 model 2"
    assert describe_processor("") == "?"
    found = [name_processor(ZEN.format(flags)) for flags in ("avx2 avx512f", "avx2", "avx2 avx512f amx_bf16", "fpu")]
    assert found == ["amd-zen5", "amd-avx2", "amd-amx", "amd-narrow"]
    one = "vendor_id : AuthenticAMD\ncpu family : {}\nflags : avx512f\n"
    assert [name_processor(one.format(family)) for family in (25, 26, 27)] == ["amd-zen4", "amd-zen5", "amd-avx512"]
    assert name_processor("vendor_id : GenuineIntel\nflags : amx_bf16\n") == "intel-amx"
    assert name_processor("") == "other-narrow"
