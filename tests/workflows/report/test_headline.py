"""What a run came to, in numbers and in words."""

from __future__ import annotations

import doctest
import json
from dataclasses import replace

import pytest

from regiondag.cli import main
from regiondag.report import headline as module
from regiondag.report.bill import Bill
from regiondag.report.headline import Verdict, judge, say_against, say_cost, say_counts, say_needs
from regiondag.report.markdown import headings, list_reasons, say_headline, short_table, table
from regiondag.report.page_data import _headline
from regiondag.report.summary import Summary, summarise
from regiondag.util.text import list_some
from tests.support import made_up_run
from tests.workflows.report.test_page_data import region

FLOOR = {"ndcg@20": 0.06}


def judged(slug, *gain, against="floor", **more):
    gains = {against: gain} if gain else {}
    return region(slug, customers=100, gains=gains, compared={against: FLOOR} if gain else {}, **more)


def summary(*regions, **more):
    return Summary("shop", "/runs/run-1", "ndcg@20", regions, **more)


def verdict(one):
    return judge(one, "ndcg@20")


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        ((0.02, 0.01, 0.03), Verdict.BETTER),
        ((-0.02, -0.03, -0.01), Verdict.WORSE),
        ((0.02, -0.01, 0.05), Verdict.STAYED),
        ((0.2, None, None), Verdict.STAYED),  # of one customer
        ((0.0, 0.0, 0.0), Verdict.STAYED),
    ],
)
def test_a_region_is_better_where_the_whole_interval_is_above_nothing(gain, expected):
    assert verdict(judged("germany", *gain)) == (expected, "floor")


def test_what_served_before_counts_and_not_popularity_where_there_is_one():
    gains = {"floor": (0.02, 0.01, 0.03), "incumbent": (-0.02, -0.03, -0.01)}
    before = {"incumbent": "ease", "customers": 100}
    assert verdict(region("a", gains=gains, **before)) == (Verdict.WORSE, "incumbent")
    assert verdict(region("a", "kept", gains=gains, **before)) == (Verdict.STAYED, "incumbent")
    assert verdict(region("a", gains={"floor": gains["floor"]}, **before)) == (Verdict.BETTER, "floor")  # a network was


def test_without_figures_and_without_an_end_nothing_is_said_to_be_better():
    assert verdict(region("a", test={})) == (Verdict.NO_FIGURES, "")
    assert verdict(region("a", "failed", gains={"floor": (1, 1, 1)})) == (Verdict.FAILED, "")
    assert verdict(region("a", "unfinished")) == (Verdict.UNFINISHED, "")


def test_runs_of_earlier_versions_have_the_interval_of_what_serves():
    one = region("a", intervals={"ndcg@20": (0.09, 0.11)}, compared={"floor": {"ndcg@20": 0.08}})
    gain = module.gains_of(one, "ndcg@20")["floor"]
    assert (gain.value, gain.low, gain.high) == pytest.approx((0.02, 0.01, 0.03)) and not gain.paired


def test_a_night_in_words():
    rows = (
        judged("pooled", 0.03, 0.02, 0.04, stands_for_all=True),
        judged("a", 0.02, 0.01, 0.03),
        judged("b", -0.02, -0.03, -0.01),
        judged("c", 0.0, 0.0, 0.0, against="incumbent", status="kept", incumbent="ease, l2 300"),
        region("d", test={}),
        region("e", "failed", reason="bad data"),
        region("f", pinned=True, test={}),
    )
    told = summary(*rows, cautions=("few customers",), bill=Bill("USD", {"a": 1.0, "b": None}, 1.0)).headline
    assert say_counts(told) == "6 regions: 1 better, 1 worse, 1 stayed, 2 no figures, 1 failed."
    assert say_against(told) == (
        "Better or worse than what served before (1) or recent popularity (2) with 95 % certainty, on the same "
        "customers of the test window. 1 region kept the recipe in office."
    )
    assert told.all_customers == (
        "ndcg@20 of all 100 customers is 0.1000: +0.0300 (+0.0200 to +0.0400) over recent popularity."
    )
    assert say_cost(told) == "It took 7.0 h of training and at least 1.00 USD (unknown of 1 region)."
    assert say_needs(told) == [
        "1 region failed: E",
        "1 region got worse: B",
        "1 champion pinned, so that no run takes its place: F",
        "few customers",
        "2 regions have no customers to judge by: D, F",
    ]


def test_regions_with_two_kinds_of_floors_have_one_word_for_both():
    rows = judged("a", 0.02, 0.01, 0.03), judged("b", 0.02, 0.01, 0.03, floor_name="logistic regression")
    assert say_against(summary(*rows).headline).startswith("Better or worse than the floor with 95 % certainty")
    assert say_against(summary(rows[1]).headline).startswith("Better or worse than logistic regression with")
    assert [headings(summary(*some))[4] for some in (rows, rows[1:])] == ["the floor", "logistic regression"]
    assert module.say_gain(rows[1], summary(*rows)).endswith("over logistic regression.")


def test_before_anything_is_decided_and_for_nothing_at_all():
    assert say_headline(summary(region("a", "unfinished", hours=0.01))) == [
        "Nothing has been decided yet for 1 region.",
        "It took 36 s of training.",
    ]
    assert say_counts(summary().headline) == "Nothing has been decided yet for 0 regions."


def test_terminal_markdown_and_json_agree(tmp_path, capsys):
    run = made_up_run.write_run(tmp_path / "run-x", made_up_run.Shape(20, 3, 2, nights=2))
    assert main(["report", str(run.path)]) == 1
    out = capsys.readouterr().out
    raw = json.loads((run.report / "summary.json").read_text())
    counts = raw["headline"]["counts"]
    first = f"20 regions: {counts.get('better', 0)} better, {counts.get('worse', 0)} worse, {counts['stayed']} stayed"
    assert first in out and f"**{first}" in (run.report / "summary.md").read_text()
    assert sum(counts.values()) == 20
    for row in raw["regions"]:
        if row["verdict"] == "better":
            assert row["against"] == "incumbent" and row["gains"]["incumbent"]["low"] > 0
    assert {need["text"] for need in raw["headline"]["needs"]} >= {"2 regions failed", made_up_run.CAUTION}


def test_pinned_champions_are_told(tmp_path):
    run = made_up_run.write_run(tmp_path / "run-x", made_up_run.Shape(2, 2, 2))
    folder = tmp_path / "champions" / "made up" / "region-1"
    folder.mkdir(parents=True)
    (folder / "pinned").symlink_to("20261124-033000")
    needs = say_needs(summarise(run).headline)
    assert "1 champion pinned, so that no run takes its place: region 1" in needs


def test_a_pool_of_all_that_fails_needs_a_person_too():
    rows = (region("pooled", "failed", stands_for_all=True), region("a", "unfinished"))
    assert say_needs(summary(*rows).headline) == ["1 region failed: Pooled"]
    assert replace(rows[0], stands_for_all=False) != rows[0]


def test_doctests():
    assert doctest.testmod(module).failed == 0


def test_programs_are_compared_with_nothing_and_each_shows_its_own_metric():
    known = {"of_program": True, "customers": 0, "compared": {}, "gains": {}}
    north = region("north", test={"auc": 0.875, "loss": 0.1}, metric="auc", **known)
    south = region("south", test={"auc": 0.75}, metric="auc", **known)
    one = Summary("shop", "/runs/run-1", "auc", (north, south))
    assert headings(one)[:3] == ["region", "status", "test auc"]
    assert [row[2] for row in table(one)] == ["0.8750", "0.7500"]
    assert say_counts(one.headline) == "2 regions: 2 with the best of their trials." and not say_needs(one.headline)
    sure = replace(north, intervals={"auc": (0.85, 0.9)})
    assert table(Summary("shop", "/runs/run-1", "auc", (sure,)))[0][2] == "0.8750 (0.850 to 0.900)"
    lost = region("west", "failed", test={}, metric="rmse", **known)
    mixed = Summary("shop", "/runs/run-1", "metric of each region", (north, lost))
    assert headings(mixed)[2] == "test" and [row[2] for row in table(mixed)] == ["auc 0.8750", "-"]
    assert say_counts(mixed.headline) == "2 regions: 1 with the best of their trials, 1 failed."


def test_networks_and_programs_of_one_study_are_counted_each_by_what_is_known_of_them():
    program = region("west", test={"rmse": 0.5}, metric="rmse", of_program=True)
    ours = [
        replace(one, metric="ndcg@20")
        for one in (judged("a", 0.02, 0.01, 0.03), judged("b", 0.0, 0.0, 0.0), region("c", test={}))
    ]
    mixed = Summary("shop", "/runs/run-1", "metric of each region", (*ours, program))
    told = mixed.headline
    assert say_counts(told) == (
        "4 regions: 1 better, 0 worse, 1 too close to tell, 1 with the best of their trials, 1 no figures."
    )
    assert say_needs(told) == ["1 region has no customers to judge by: C"] and not told.of_programs
    assert headings(mixed)[1:4] == ["customers", "test", "95 %"]
    assert [row[1:3] for row in table(mixed)] == [
        ["100", "ndcg@20 0.1000"],
        ["100", "ndcg@20 0.1000"],
        ["0", "-"],
        ["-", "rmse 0.5000"],
    ]
    counted = _headline(mixed)
    assert [word for _, word, _ in counted["counts"][: counted["main"]]] == ["better", "worse", "too close to tell"]
    alone = _headline(Summary("shop", "/runs/run-1", "rmse", (program,)))
    assert alone["counts"][: alone["main"]] == [["best trial", "with the best of their trials", 1]]


def test_a_terminal_shows_no_rows_without_figures_and_no_column_that_says_one_thing():
    shown = [judged("a", 0.02, 0.01, 0.03), judged("b", 0.0, 0.0, 0.0)]
    silent = [region(name, test={}, reason="common choice: nobody to judge") for name in "cdefgh"]
    of = [replace(one, metric="ndcg@20", recipe="days") for one in (*shown, *silent)]
    names, rows, words = short_table(Summary("shop", "/runs/run-1", "ndcg@20", tuple(of)))
    assert names == headings(Summary("shop", "/runs/run-1", "ndcg@20", tuple(of)))[:-1]
    assert [row[:3] for row in rows] == [["A", "100", "0.1000"], ["B", "100", "0.1000"]]
    assert words == [
        "All are served by the same: days.",
        "6 regions have no customers to judge by, and no row: C, D, E, F and 2 more.",
    ]
    other = Summary("shop", "/runs/run-1", "ndcg@20", (*of[:2], replace(of[2], recipe="ials")))
    assert short_table(other) == (headings(other), table(other), [])
    failed = Summary("shop", "/runs/run-1", "ndcg@20", (*of, region("i", "failed", test={}, metric="ndcg@20")))
    assert [row[0] for row in short_table(failed)[1]] == ["A", "B", "I"]


def test_a_terminal_names_some_of_the_regions_that_share_a_reason():
    rows = [judged("a", 0.02, 0.01, 0.03), *(region(name, reason="common choice") for name in "bcdefg")]
    one = summary(*rows)
    assert "B, C, D, E and 2 more: common choice" in list_reasons(one, list_some)
    assert "B, C, D, E, F, G: common choice" in list_reasons(one)
