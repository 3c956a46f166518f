"""The page of what the product survives, from the results of the fault campaigns."""

from __future__ import annotations

from collections import Counter

from docs._generate.performance import read_results
from docs._generate.survival import GROUPS, render_faults, render_slowest, render_survival
from tests.campaign import network, schedule

COUNTS = {"studies": 1, "by_itself": 1, "resubmitted": 0, "lost": 0, "doubled": 0, "other_champions": 0}


def result(*kinds, **more):
    rows = [
        {"workload": "faults injected into 2 studies", "ours": 5},
        {"workload": "studies that ended by themselves", "ours": 2},
    ]
    listed = [{"kind": kind, "what": "it | is", "injected": count, **COUNTS} for kind, count in kinds]
    return {"date": "2026-11-28", "rows": rows + more.pop("rows", []), "kinds": listed, **more}


RESULTS = {
    "faults": result(
        ("schedd killed", 3),
        ("evicted", 0),
        rows=[
            {"workload": "cases of two faults at once", "ours": 1},
            {"workload": "cases of one fault or two", "ours": 4},
            {"workload": "studies on HTCondor 23.9", "ours": 2},
        ],
        slowest=[{"kind": "evicted", "suite": "forky", "seconds": 41.6, "why": "40 of 42 s passed until a job began."}],
    ),
    "faults_earlier": result(("schedd killed", 4), ("evicted", 1)),
    "faults_network": result(("machine lost", 2)),
}


def test_each_kind_is_in_one_group():
    counts = Counter(kind for _, kinds, _ in GROUPS for kind in kinds)
    assert set(counts) == set(schedule.KINDS) | set(network.KINDS) and set(counts.values()) == {1}


def test_only_kinds_that_were_injected_are_listed():
    lines = render_survival(RESULTS).splitlines()
    assert len(lines) == 9 and "schedd killed (7)" in lines[2] and "machine lost (2)" in lines[3]
    assert "5 faults of 1 kinds in 2 studies (2 studies on HTCondor 23.9), in 1 of 4 cases two at once" in lines[6]


def test_each_kind_has_a_line_and_the_slowest_say_why():
    assert len(render_faults(RESULTS).splitlines()) == 5
    assert (
        render_slowest(RESULTS).splitlines()[2] == "| 42 s | evicted | 25.14 | 40 of 42 s passed until a job began. |"
    )


def test_the_kept_results_can_be_rendered():
    results = read_results()
    assert all((render_survival(results), render_faults(results), render_slowest(results)))
