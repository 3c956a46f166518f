"""The GPU benchmarks' processes, and the rows that follow from what they answer."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest


@pytest.fixture
def child(bench, tmp_path) -> object:
    """Give a function that starts a script of a text as a child."""

    def start(text: str):
        script = tmp_path / "script.py"
        script.write_text(text)
        return bench("gpu_child").Child(sys.executable, str(script), "7")

    return start


def outcome_of(work, train, given, **seconds: float):
    """What came of a workload: milliseconds by variant, none for those that were not measured."""
    found = train.Outcome(given, {name: train.Side(reason="missing") for name in train.variants_of(given)})
    for name, ms in seconds.items():
        found.sides[name] = train.Side([ms], [1.0], {"mb": 100 * ms})
    return found


def test_rows_of_the_wide_network(bench, work, train):
    full = work.GpuWork("autoencoder")
    times = {work.OURS: 2.0, work.DENSE: 5.0, work.EAGER: 3.0, work.GRAPHED: 2.8, work.ALL_COMPILED: 2.1}
    outcome = outcome_of(work, train, full, **times)
    outcome.floor = bench("gpu_floor").Floor(bytes_ms=0.5, operations_ms=1.5)
    rows = list(train.rows_of(outcome))
    assert [row.workload.partition(" (peer: ")[2] for row in rows] == [
        "PyTorch, EmbeddingBag, eager, CUDA graph)",
        "PyTorch, EmbeddingBag, compiled, optimizer too)",
        "PyTorch, dense input, eager)",
        "the floor by operations)",
    ]
    assert all(row.workload.startswith("27,278-1,024x3-27,278, batch 256, Adam, float32 (peer") for row in rows)
    assert [row.ratio for row in rows] == [1.4, 1.05, 2.5, 0.75]
    assert [row.goal for row in rows] == [1.3, 1.1, 2.0, 0.7]
    assert [row.met for row in rows] == [True, False, True, True]
    assert {row.goal for row in train.rows_of(outcome, goals=False)} == {None}
    assert (train.memory_row(outcome).ours, train.memory_row(outcome).peer) == (200, 280)


def test_rows_of_what_was_not_measured_have_no_figure_and_no_goal(work, train):
    rows = list(train.rows_of(outcome_of(work, train, work.GpuWork("autoencoder"), ours=2.0)))
    assert [(row.ours, row.peer, row.ratio, row.goal) for row in rows] == [(2.0, None, None, None)] * 3
    assert rows[0].workload.endswith("(peer: PyTorch, EmbeddingBag, eager)")
    assert "eager: missing" in rows[0].note
    assert train.memory_row(outcome_of(work, train, work.GpuWork("images"), ours=2.0)).peer is None


def test_rows_of_images(work, train):
    times = {"ours": 0.1, work.EAGER: 0.5, work.GRAPHED: 0.15, work.COMPILED_GRAPH: 0.08}
    rows = list(train.rows_of(outcome_of(work, train, work.GpuWork("images", tf32=True), **times)))
    assert [(row.peer, row.goal, row.met) for row in rows] == [(0.5, 3.0, True), (0.15, None, None), (0.08, None, None)]
    assert rows[0].workload == "784-512-512-10, batch 256, Adam, TF32 (peer: PyTorch, eager)"


def test_workloads(work, train):
    full = train.works(quick=False, has_tf32=True)
    assert len(full) == len({train.name_of(one) for one in full}) == 10
    assert [one.tf32 for one in full] == [False] * 5 + [True] * 5
    assert full[:5] == train.works(quick=False, has_tf32=False)
    assert {(one.hidden, one.optimizer) for one in full if one.kind == "autoencoder"} == {
        (hidden, rule) for hidden in (1024, 1536) for rule in ("adam", "rmsprop")
    }
    assert work.DENSE not in train.variants_of(full[5])
    assert len(train.works(quick=True, has_tf32=True)) == 2


def test_table_has_every_side(work, train):
    outcome = outcome_of(work, train, work.GpuWork("images"), **{"ours": 0.1, work.EAGER: 0.5})
    outcome.sides[work.GRAPHED].reason = f"Traceback\n{'x' * 200} at last"
    outcome.preparing.rounds = [0.3]
    lines = {line[1]: line for line in train.cells(outcome)}
    assert {len(line) for line in lines.values()} == {len(train.HEADINGS)}
    assert lines[work.EAGER][2:] == ("0.5", "5", "-", "50 MB", "1")
    assert lines[work.GRAPHED][2] == "-"
    assert lines[work.GRAPHED][-1].endswith("x at last")
    assert "\n" not in lines[work.GRAPHED][-1]
    assert lines["ours, batches prepared meanwhile"][2] == "0.3"
    kept = json.loads(json.dumps(train.to_keep(outcome)))
    assert kept["sides"][work.EAGER]["ms"] == 0.5
    assert kept["work"]["kind"] == "images"


def test_a_child_answers(child):
    text = "import sys\nprint('hello')\nprint('{\"n\": ' + sys.argv[1] + '}', flush=True)\n"
    text += "for line in sys.stdin: print('{\"to\": \"' + line.strip() + '\"}', flush=True)\n"
    with child(text) as started:
        assert started.answer(20) == {"n": 7}
        assert started.ask("step", 20) == {"to": "step"}


def test_all_answers_of_a_child(child):
    with child("for n in range(3): print('{\"n\": %d}' % n)") as started:
        assert [answer["n"] for answer in started.answers(20)] == [0, 1, 2]


def test_a_child_that_fails_says_why(bench, child):
    error = bench("harness").NotMeasuredError
    for text, said in (("1 / 0", "ZeroDivisionError: division by zero"), ("raise SystemExit(3)", "exit code 3")):
        with child(text) as started, pytest.raises(error, match=said):
            started.answer(20)
        with child(f"print('{{}}', flush=True)\n{text}") as started, pytest.raises(error, match=said):
            list(started.answers(20))
    with child("") as started:
        started._process.wait()
        with pytest.raises(error, match="ended early"):
            started.ask("step", 20)
        started.end()
        with pytest.raises(error, match="was ended before"):
            started.ask("step", 20)


def test_a_child_that_takes_too_long_ends_with_what_it_started(bench, child):
    text = "import subprocess, sys, time\n"
    text += "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    text += "print('{\"pid\": %d}' % other.pid, flush=True)\ntime.sleep(60)\n"
    with child(text) as started:
        pid = started.answer(20)["pid"]
        with pytest.raises(bench("harness").NotMeasuredError, match="took too long"):
            started.answer(0.01)
    for _ in range(500):
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or " Z " in state.read_text():
            break
        time.sleep(0.01)
    else:
        pytest.fail("the grandchild goes on")
