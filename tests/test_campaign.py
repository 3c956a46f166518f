"""The fault campaign's pure parts: which faults hit which study, what a study left, and the tables."""

from __future__ import annotations

import ast
import errno
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, astuple
from pathlib import Path

import pytest

from scripts.bench.common.processes import REPOSITORY
from tests.campaign import __main__ as faults
from tests.campaign import cgroups, checks, files, kinds, names_and_tokens, results, running, schedule, watch
from tests.campaign import setup as preparing

pytestmark = pytest.mark.slow


def line(event, trial, **more):
    return json.dumps({"event": event, "time": 1.0, "trial": trial, **more})


def journal(*more):
    lines = [
        line("proposed", 0, point={"hidden": 2}),
        line("settled", 0, status="ok", value=0.5, reason=""),
        line("won", 0, of=1),
        line("settled", None, status="ok", value=0.6, reason=""),
    ]
    return "".join(f"{text}\n" for text in [*lines, *more]).encode()


FACTS = {"run": "run-a", "test": {"p@10": 0.5}}


@pytest.fixture
def check():
    undisturbed = checks.Left(journal(), "aa", FACTS)

    def call(found, champion="aa", facts=FACTS):
        return checks.check_region("germany", checks.Left(found, champion, facts), undisturbed)

    return call


def test_a_study_has_the_same_faults_whichever_others_run():
    every = list(schedule.PROCESSES)
    all_of_them = [schedule.schedule(3, study, every) for study in range(26)]
    assert schedule.schedule(3, 17, every) == all_of_them[17]
    assert schedule.schedule(4, 17, every) != all_of_them[17]
    assert all(len(faults) == schedule.PER_STUDY for faults in all_of_them)
    assert all(0 <= f.gap <= 4 * schedule.MEAN_GAP and 0 <= f.target < 1 for faults in all_of_them for f in faults)


def test_all_kinds_come_equally_often():
    for half in (schedule.PROCESSES, schedule.SURROUNDINGS):
        counts = Counter(f.kind for study in range(25) for f in schedule.schedule(1, study, list(half)))
        assert set(counts) == set(half) and max(counts.values()) - min(counts.values()) <= 1


def test_studies_are_dealt_to_both_halves_and_to_both_htcondors():
    dealt = [schedule.half_of(study) for study in range(10)]
    assert [half is schedule.PROCESSES for half, _ in dealt] == [True, True, True, False, False] * 2
    assert [number for half, number in dealt if half is schedule.SURROUNDINGS] == [0, 1, 2, 3]
    assert Counter(schedule.suite_of(study) for study in range(40)) == {"trixie": 20, "forky": 20}
    assert not set(schedule.PROCESSES) & set(schedule.SURROUNDINGS)
    assert set(schedule.ALONE) <= set(schedule.KINDS)


def test_more_than_half_of_the_cases_are_two_faults_within_a_second():
    cases = [
        case
        for half in (schedule.PROCESSES, schedule.SURROUNDINGS)
        for study in range(40)
        for case in schedule.cases_of(schedule.schedule(1, study, list(half)))
    ]
    pairs = [case for case in cases if len(case) == 2]
    assert 0.5 <= len(pairs) / len(cases) <= 0.7 and {len(case) for case in cases} == {1, 2}
    assert all(second.gap <= 1 and not first.beside and first.kind != second.kind for first, second in pairs)
    assert not any(fault.kind in schedule.ALONE for pair in pairs for fault in pair)


def test_studies_that_were_run_stay_what_they_were():
    assert {schedule.together_of(study) for study in (0, 14, 18)} == {schedule.FEWER_TOGETHER}
    assert {schedule.together_of(study) for study in (15, 17, 19, 30)} == {schedule.TOGETHER}
    few = schedule.schedule(1, 4, list(schedule.PROCESSES), together=schedule.FEWER_TOGETHER)
    assert sum(fault.beside for fault in few) < sum(
        fault.beside for fault in schedule.schedule(1, 4, list(schedule.PROCESSES))
    )


def test_the_latest_kinds_hit_studies_beside_some_others():
    kinds_, number = schedule.half_of(schedule.LATEST_FROM + 1)
    assert set(kinds_) == {*schedule.LATEST, *schedule.BESIDE} and number == 1
    assert not set(schedule.LATEST) & set(schedule.half_of(schedule.LATEST_FROM - 1)[0])


def test_what_hits_the_end_of_a_study_comes_last():
    every = list(schedule.KINDS)
    for study in range(25):
        order = [fault.kind in schedule.LAST for fault in schedule.schedule(2, study, every)]
        assert order == sorted(order)


def test_studies_are_run_until_all_faults_were_injected(tmp_path):
    """Those that run count as if all of their faults found something to hit; what is missing is made up for."""
    kept = tmp_path / "kept"
    kept.write_text(json.dumps(asdict(studied(1, ["evicted"]))) + "\n")
    studies = faults.Studies(faults.read_options(["--faults", "10", "--per-study", "4", "--keep", str(kept)]), tmp_path)
    assert [studies.next() for _ in range(4)] == [0, 2, 3, None]  # 1 + 3 x 4 faults
    for number in (0, 2, 3):
        studies.done[number] = studied(number, ["evicted", "PRE killed"])
    assert [studies.next() for _ in range(2)] == [4, None]


def test_one_study_alone_or_none_when_it_is_late(tmp_path):
    alone = faults.Studies(faults.read_options(["--study", "7"]), tmp_path)
    assert [alone.next(), alone.next()] == [7, None]
    assert faults.Studies(faults.read_options(["--until", "0"]), tmp_path).next() is None


@pytest.mark.parametrize("page", ["house.md", "tests.md"])
def test_pages_know_how_many_kinds_there_are(page):
    text = (REPOSITORY / "docs/contributing" / page).read_text()
    assert f"faults of {len(schedule.KINDS)} kinds in real studies" in text


def test_each_kind_can_be_injected():
    assert set(kinds.INJECT) == set(schedule.KINDS)


def test_a_study_as_the_undisturbed_one_has_nothing_wrong(check):
    again = line("attempt", 0, reason="killed", seconds=1.0)
    faulty = line("settled", 0, status="machine", value=None, reason="")
    assert check(journal(again, faulty), facts=FACTS | {"run": "run-b", "machine": {}}) == checks.Checked()


def test_lost_and_doubled_trials_are_counted(check):
    lines = journal().splitlines(keepends=True)
    lost = check(b"".join(lines[:1] + lines[2:]))
    assert (lost.lost, lost.doubled) == (1, 0) and "trial 0: none at all" in lost.notes[0]
    failed = check(b"".join([lines[0], line("settled", 0, status="removed", value=None).encode() + b"\n", *lines[2:]]))
    assert failed.lost == 1
    twice = check(journal(line("settled", 0, status="ok", value=0.5)))
    assert (twice.lost, twice.doubled) == (0, 1)


@pytest.mark.parametrize("torn", [b'{"event": "settl', b'{"event": "settl\n', b'{"a": 1}{"b": 2}\n', b"[]\n"])
def test_torn_lines_are_counted(check, torn):
    assert check(journal() + torn).torn == 1


def test_other_proposals_values_and_champions_are_told(check):
    other = journal().replace(b'"hidden": 2', b'"hidden": 3').replace(b"0.6", b"0.7")
    assert len(check(other).notes) == 2
    assert check(journal(), champion="bb").other_champions == 1
    assert check(journal(), champion="").other_champions == 1
    assert check(journal(), facts={**FACTS, "test": {"p@10": 0.4}}).other_champions == 1
    assert "proposed 2 times" in check(journal(line("proposed", 0, point={"hidden": 2}))).notes[0]


def studied(number, hit, **more):
    return checks.Studied(number, tuple((kind, "what") for kind in hit), (), more.pop("again", 0), 50.0, **more)


def test_a_study_counts_for_each_kind_that_hit_it():
    studies = [
        studied(0, ["evicted", "evicted", "PRE killed"]),
        studied(1, ["evicted"], again=1, checked=checks.Checked(lost=2)),
        studied(2, ["PRE killed"], problems=(f"{checks.NOT_ENDED} within 9 s",)),
    ]
    counts = {count.kind: astuple(count)[1:6] for count in results.count_kinds(studies, ["evicted", "PRE killed"])}
    assert counts == {"evicted": (3, 2, 1, 1, 0), "PRE killed": (2, 2, 1, 0, 1)}
    assert [study.deviates for study in studies] == [False, True, True]
    assert results.without_folders("pid 7 -l . -Lock /a/b x=/c pre") == "pid 7 -l . -Lock pre"
    told = results.deviations(studies, 9)
    assert len(told) == 2 and "--seed 9 --study 1" in told[0] and "evicted (what)" in told[0]


def test_studies_are_kept_as_they_were():
    study = studied(4, ["evicted"], problems=("no report",), checked=checks.Checked(1, 2, 3, 4, ("a",)))
    assert checks.studied_from_json(json.loads(json.dumps(asdict(study)))) == study


def test_rows_have_goals_and_the_table_has_all_kinds():
    rows = {row.workload: row for row in results.rows([studied(0, ["evicted"])], goals=True)}
    assert rows["faults injected into 1 studies"].met is False and rows["studies that did not end"].met
    assert results.rows([], goals=True)[0].ours is None  # nothing run is no goal met
    bad = results.rows([studied(0, ["evicted"], problems=("no report",))], goals=False)
    assert [row.ours for row in bad if row.met is False] == [1]
    assert results.kind_table([studied(0, ["evicted"])], ["evicted"]).splitlines()[1].split()[:2] == ["evicted", "1"]


@pytest.mark.parametrize(
    ("log", "state"),
    [
        ("", "none"),
        ("000 (012.000.000) 2026 Job submitted\n...\n001 (012.000.000) x\n", "queued"),
        ("000 (012.000.000) x\n005 (012.000.000) x\n", "over"),
        ("000 (012.000.000) x\n012 (012.000.000) x\n", "held"),
        ("000 (012.000.000) x\n009 (012.000.000) x\n000 (013.000.000) x\n", "queued"),
    ],
)
def test_the_event_log_of_dagman_says_where_it_is(log, state):
    assert running.state_of(log) == state
    assert running.clusters(log) == [number for number in ("12", "13") if f"({number.zfill(3)}." in log]


def test_scripts_are_known_by_their_words():
    seen = running.Seen(7, ("python3", "-S", "hook.py", "code.pyz", "post", "/run", "germany_t0001", "0"))
    assert seen.node("post", "/run") == "germany_t0001"
    assert not seen.node("pre", "/run") and not seen.node("post", "/other")


def test_a_job_has_trained_when_its_log_says_so(tmp_path):
    for number, log in (("1", ""), ("2", '{"epoch": 1}\n')):
        folder = tmp_path / f"dir_{number}"
        folder.mkdir()
        (folder / "log.jsonl").write_text(log)
        (folder / ".job.ad").write_text(f'Cmd = "x"\nClusterId = 4{number}\nProcId = 0\n')
    assert files.trained(tmp_path) == ["42.0"]


def test_a_clock_jumps_from_where_it_is(tmp_path):
    (tmp_path / "clock").write_text("+0\n")
    study = running.Running("x", tmp_path, None, {})
    for seconds in (1800, -60):
        study.move_clock(seconds)
    assert (tmp_path / "clock").read_text() == "+1740\n"


def test_memory_groups_are_made_below_our_own(tmp_path):
    old = "4:memory:/us/x\n1:cpu:/\n0::/\n"
    assert cgroups.own_group(old, tmp_path) == tmp_path / "memory/us/x"
    assert cgroups.own_group("0::/us.slice\n", tmp_path) == tmp_path / "us.slice"
    assert cgroups.limit_file(tmp_path).name == "memory.max"
    (tmp_path / "memory.events").write_text("oom 3\noom_kill 2\noom_group_kill 0\n")
    assert cgroups.kills(tmp_path) == 2
    (tmp_path / "memory.limit_in_bytes").touch()
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert cgroups.limit_file(tmp_path).name == "memory.limit_in_bytes" and cgroups.kills(tmp_path) == 1


def test_a_process_in_a_group_without_memory_is_killed():
    if os.geteuid() or not cgroups.usable():
        pytest.skip("no control group with a limit of memory can be made here")
    hungry = "x = []\nwhile True: x.append(bytearray(4096))"
    with cgroups.group(f"test-{os.getpid()}") as place:
        cgroups.limit_file(place).write_text(str(cgroups.LIMIT))
        with subprocess.Popen([sys.executable, "-c", f"input()\n{hungry}"], stdin=subprocess.PIPE) as process:
            (place / "cgroup.procs").write_text(str(process.pid))
            process.communicate(b"\n", timeout=60)
        assert process.returncode == -9 and cgroups.kills(place) == 1
    assert not place.exists()


def test_node_logs_are_deleted_or_cut(tmp_path):
    path = tmp_path / "study.dag.nodes.log"
    path.write_text("x" * 40)
    assert files.cut(path, 0.25) == "10 of 40"
    assert files.deleted(path, 0.25) == "study.dag.nodes.log, 10 bytes" and not path.exists()


def test_only_the_managers_name_is_taken_away_and_given_back(tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n10.77.0.10 {names_and_tokens.MANAGER_NAME}\n")
    before = hosts.read_text()
    with names_and_tokens.changed(hosts, names_and_tokens.without_name(before)):
        assert hosts.read_text() == "127.0.0.1 localhost\n"
    assert hosts.read_text() == before
    assert set(names_and_tokens.INJECT) == set(names_and_tokens.KINDS)


def test_only_a_disk_of_its_own_is_ever_filled(tmp_path):
    with pytest.raises(ValueError, match="no disk of its own"), files.filled(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_connections_are_those_of_the_given_processes():
    listing = (
        'ESTAB 0 0 127.0.0.1:4001 127.0.0.1:9618 users:(("condor_startd",pid=12,fd=3))\n'
        'ESTAB 0 10 127.0.0.1:9618 127.0.0.1:4001 users:(("condor_collecto",pid=7,fd=3),("x",pid=8,fd=1))\n'
        "ESTAB 0 0 10.0.0.5:4001 10.0.0.9:22\n"
    )
    found = kinds.connections
    assert found(listing, {12}) == [("127.0.0.1:4001", "127.0.0.1:9618")]
    assert found(listing, {8, 99}) == [("127.0.0.1:9618", "127.0.0.1:4001")]
    assert found(listing, {1}) == []


def test_what_is_missing_is_said_before_anything_is_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(preparing, "FAKETIME", tmp_path / "libfaketime.so")
    monkeypatch.setattr("sys.argv", ["campaign"])
    assert faults.main() == 2
    assert "apt-get install libfaketime" in capsys.readouterr().err
    assert preparing.missing_for(["evicted"]) == ""
    monkeypatch.setattr(cgroups, "usable", lambda: False)
    assert "leave the kinds away" in preparing.missing_for(["script killed by its cgroup"])


def test_what_took_long_is_said():
    seen = watch.Watch([10.0, 60.0], [(11.0, "022"), (52.0, "024"), (55.0, "001")])
    found = watch.recoveries([("worker killed", 9.0), ("evicted", 10.5), ("evicted", 12.0), ("late", 61.0)], seen)
    assert [(kind, seconds) for kind, seconds, _ in found] == [
        ("worker killed", 1.0),
        ("evicted", 49.5),
        ("evicted", 48.0),
    ]
    assert found[1][2].startswith("41 of 50 s passed until HTCondor gave a job's machine up")
    assert found[1][2].endswith("in between came: evicted.")
    studies = [studied(n, ["evicted"], recoveries=(("a", 1.0 + n, "b"), ("c", 0.5, "d"))) for n in range(12)]
    slow = results.slowest(studies, {10: "It was late."})
    assert [one["seconds"] for one in slow] == [12.0 - n for n in range(10)]
    assert [one["why"] for one in slow[:2]] == ["b", "It was late. b"]


def test_the_checker_knows_nothing_of_the_product():
    tree = ast.parse(Path(checks.__file__).read_text())
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [a.name for a in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", "") or ""]
        )
    }
    assert imported - {""} <= sys.stdlib_module_names


SCRIPT = """
import os, sys
from pathlib import Path
run = Path(sys.argv[2])
with (run / "trials.jsonl").open("a") as file:
    file.write("two\\n" * 8)
    file.flush()
    os.fsync(file.fileno())
part = run / "model.part"
part.write_text("new")
descriptor = os.open(part, os.O_RDONLY)
os.fsync(descriptor)
part.replace(run / "model.nc")
folder = os.open(run, os.O_RDONLY)
os.fsync(folder)
"""


@pytest.fixture
def script(tmp_path):
    """A script that flushes a journal, a file and its folder, run as PRE with the start-up hook."""
    hook, run = tmp_path / "hook", tmp_path / "run"
    hook.mkdir()
    run.mkdir()
    (run / "trials.jsonl").write_text("one\n")
    (run / "model.nc").write_text("old")
    (tmp_path / "code.py").write_text(SCRIPT)
    shutil.copyfile(preparing.HOOK, hook / "sitecustomize.py")

    def call(fault="", text=""):
        if fault:
            (hook / fault).write_text(text)
        words = [sys.executable, "-S", hook / "sitecustomize.py", tmp_path / "code.py", "pre", run]
        done = subprocess.run(words, env={"PYTHONPATH": str(hook)}, capture_output=True, text=True, check=False)
        told = "".join(path.read_text() for path in hook.glob("*.hit"))
        return done.returncode, (run / "trials.jsonl").read_text(), (run / "model.nc").read_text(), told

    return call


TWO = "two\n" * 8


def test_scripts_are_started_with_the_hook():
    for name in ("pre.sh", "post.sh"):
        assert (REPOSITORY / "scripts/dag" / name).read_text().count(preparing.WITHOUT_SITE) == 1
    assert preparing.FINDS_PYTHON in (REPOSITORY / "scripts/dag/train.sh").read_text()


def test_the_hook_does_nothing_without_a_fault(script):
    assert script() == (0, f"one\n{TWO}", "new", "")


def test_a_script_is_killed_at_each_flush_with_its_file_half_written(script):
    code, journal, model, told = script("flush-pre", "half 1")
    assert (code, model) == (-9, "old") and journal.startswith("one\ntwo\n") and not journal.endswith("\n")
    assert told.startswith("flush 1, trials.jsonl")


@pytest.mark.parametrize(
    ("flush", "journal", "model"), [(1, "one\n", "old"), (2, f"one\n{TWO}", "old"), (3, f"one\n{TWO}", "old")]
)
def test_a_power_cut_takes_back_what_was_not_flushed(script, tmp_path, flush, journal, model):
    assert script("flush-pre", f"power {flush}")[:3] == (-9, journal, model)
    assert not (tmp_path / "run/model.part").exists()  # its name was not flushed either


def test_a_script_with_fewer_flushes_leaves_the_fault_to_the_next(script, tmp_path):
    assert script("flush-pre", "power 8")[0] == 0
    assert (tmp_path / "hook/flush-pre").read_text() == "power 3"


@pytest.mark.parametrize(
    ("refused", "told"),
    [(f"{errno.EDQUOT}|write|", "pre trials.jsonl"), (f"{errno.EIO}|fsync|.part", "pre model.part")],
)
def test_the_system_refuses_what_the_fault_says(script, refused, told):
    code, _, model, said = script("refuse", refused)
    assert (code, model, said.splitlines()[0]) == (1, "old", told)
