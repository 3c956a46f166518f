"""Regions and trials by the names that people give them."""

from __future__ import annotations

import pytest

from nnlib.contract import Metric, TrainSettings
from regiondag.errors import UsageError
from regiondag.run.layout import NodeName, RunFolder
from regiondag.run.lookup import find_region, find_region_or_node, find_trials
from regiondag.run.region_spec import RegionSpec, spec_to_json
from regiondag.study.model import Search

REGIONS = {"germany": "Germany", "united-kingdom": "United Kingdom"}


@pytest.fixture
def run(tmp_path):
    run = RunFolder(tmp_path / "run-tiny")
    for slug, name in REGIONS.items():
        path = run.region(slug).spec
        path.parent.mkdir(parents=True)
        search = Search("bayes", (), (2, 2))
        spec = RegionSpec("tiny", name, slug, Metric(), TrainSettings(), search, ("final",), {})
        path.write_text(spec_to_json(spec), encoding="utf-8")
    return run


def test_a_region_by_name_slug_or_nearly():
    assert find_region(REGIONS, "United Kingdom") == find_region(REGIONS, "united-kingdom") == "united-kingdom"
    with pytest.raises(UsageError, match=r"did you mean 'Germany'\? There are: Germany, United Kingdom"):
        find_region(REGIONS, "Gemany")
    with pytest.raises(UsageError, match=r"'\. There are: Germany, United Kingdom"):
        find_region(REGIONS, "xyz")


@pytest.mark.parametrize("text", ["united kingdom", "UNITED KINGDOM", "United-Kingdom"])
def test_case_does_not_matter_to_any_command(run, text):
    assert find_region(REGIONS, text) == "united-kingdom"
    assert find_region_or_node(run, REGIONS, text) == ("united-kingdom", None)
    node = NodeName("united-kingdom", 3)
    assert find_region_or_node(run, REGIONS, f"{text}_t0003") == ("united-kingdom", node)
    assert find_trials(REGIONS, "united-kingdom", [f"{text}_t0003"]) == [3]


def test_regions_that_differ_in_case_alone_are_told_apart():
    regions = {"c-te-1": "Côte", "c-te-2": "CÔTE"}
    assert [find_region(regions, text) for text in ("Côte", "CÔTE", "C-TE-2")] == ["c-te-1", "c-te-2", "c-te-2"]
    with pytest.raises(UsageError, match=r"no region 'côte'; did you mean 'Côte' or '.*'\?"):
        find_region(regions, "côte")


def test_nearest_regions_are_named_once_each():
    regions = {f"region-{n}": f"Region {n}" for n in range(9)}
    with pytest.raises(
        UsageError, match=r"did you mean 'Region \d' or 'Region \d' or 'Region \d'\? There are"
    ) as caught:
        find_region(regions, "Region")
    assert len({word for word in str(caught.value).split("?")[0].split("'") if word.startswith("Region ")}) == 3
    with pytest.raises(UsageError, match="did you mean 'germany'"):
        find_region(REGIONS, "GERMNY")


def test_a_node_by_region_and_trial(run):
    for text in ("germany_t0003", "germany_3", "Germany_t3"):
        assert find_region_or_node(run, REGIONS, text) == ("germany", NodeName("germany", 3))
    assert find_region_or_node(run, REGIONS, "germany_final") == ("germany", NodeName("germany", None))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("germny", "did you mean 'germany'?"),
        ("germny_t0003", "did you mean 'germany'?"),
        ("germany_t0099", "its nodes are germany_t0000 to germany_t0003 and germany_final"),
        ("germany_last", "its nodes are germany_t0000 to germany_t0003 and germany_final"),
        ("%", "regions are Germany, United Kingdom; a node is called like germany_t0007"),
    ],
)
def test_what_is_neither_a_region_nor_a_node(run, text, hint):
    with pytest.raises(UsageError) as caught:
        find_region_or_node(run, REGIONS, text)
    assert str(caught.value) == f"{text!r} is neither a region nor a node of run-tiny; {hint}"


def test_trials_by_number():
    words = ["7", "0003", "t0004", "germany_t0007", "9-11", "final", "germany_final"]
    assert find_trials(REGIONS, "germany", words) == [7, 3, 4, 9, 10, 11, None]
    assert find_trials(REGIONS, "germany", []) == []
    assert find_trials(REGIONS, "united-kingdom", ["united-kingdom_t0001"]) == [1]
    with pytest.raises(UsageError, match="a node of the region 'germany', not of 'france'"):
        find_trials({**REGIONS, "france": "France"}, "france", ["germany_t0007"])
    for word in ("", "-1", "5-3", "x", "1-", "123456", "Final", "1;2", "france_t0001", "_1"):
        with pytest.raises(UsageError):
            find_trials(REGIONS, "germany", [word])
