import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.contract import Exit, slug_of
from regiondag.run import layout
from regiondag.run.layout import NodeName, RunFolder, parse_node
from regiondag.study import model
from regiondag.study.model import MAX_TRIALS


@given(st.text(min_size=1, max_size=200), st.none() | st.integers(0, MAX_TRIALS))
def test_node_names_round_trip(name, number):
    node = NodeName(slug_of(name), number)
    assert parse_node(str(node)) == node


@pytest.mark.parametrize(
    "name",
    ["", "report", "germany", "germany_t7", "germany_t000007", "germany_t00007", "Germany_t0007", "a_b_t0001",
     "germany_final2", "../x_t0001", "germany_t0007\n", "-_t0001"],
)  # fmt: skip
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match="is not a node"):
        parse_node(name)


def test_numbers_have_four_digits_or_five():
    assert [str(NodeName("malta", number)) for number in (7, 9999, 10000)] == [
        "malta_t0007",
        "malta_t9999",
        "malta_t10000",
    ]
    assert parse_node(f"malta_t{MAX_TRIALS}").number == MAX_TRIALS == 10**5 - 1  # the last one of five digits


def test_doctests():
    assert doctest.testmod(layout).failed == 0


def test_folders(tmp_path):
    region = RunFolder(tmp_path).region("germany")
    assert region.trial(NodeName("germany", 7)) == tmp_path / "regions/germany/trials/0007"
    assert region.trial(NodeName("germany", None)).name == "final"
    assert region.data("train").name == "data.train.nc"


REGION_FILES = {
    "dag": "region.dag",
    "spec": "region.json",
    "journal": "trials.jsonl",
    "journal_index": "trials.index.json",
    "earlier": "earlier.jsonl",
    "incumbent_model": "standing.nc",
    "incumbent_metrics": "standing.json",
    "init_model": "init.nc",
    "init_facts": "init.json",
    "champion_model": "champion/model.nc",
    "champion_metrics": "champion/metrics.json",
    "champion_confusion": "champion/confusion.json",
}
RUN_FILES = {
    "manifest": "manifest.json",
    "study_dag": "study.dag",
    "machines": "machines.json",
    "started": "started.json",
    "report": "report",
    "page": "report/index.html",
}


def test_every_file_has_the_place_that_a_run_directory_is_documented_with(tmp_path):
    """Older run directories are read by these names, so that none may change."""
    run = RunFolder(tmp_path)
    for name, place in RUN_FILES.items():
        assert getattr(run, name) == tmp_path / place, name
    assert run.pictures("malta") == tmp_path / "report/regions/malta"
    assert run.dags(["malta", "italy"]) == [
        tmp_path / place for place in ("study.dag", "regions/malta/region.dag", "regions/italy/region.dag")
    ]
    region = run.region("malta")
    for name, place in REGION_FILES.items():
        assert getattr(region, name) == tmp_path / "regions/malta" / place, name
    assert region.submit_files == (tmp_path / "regions/malta/train.sub", tmp_path / "regions/malta/final.sub")
    assert region.run == run


def test_no_two_files_of_a_run_directory_are_the_same(tmp_path):
    region = RunFolder(tmp_path).region("malta")
    files = [getattr(region, name) for name in REGION_FILES]
    files += [getattr(region.run, name) for name in RUN_FILES]
    files += [*region.submit_files, *(region.data(part) for part in model.PARTS)]
    files += [region.trial(NodeName("malta", number)) for number in (0, 1, None)]
    assert len(set(files)) == len(files) == len(REGION_FILES) + len(RUN_FILES) + 10


def test_a_node_that_is_settled_before_ends_as_nothing_else_does():
    """Not as success or a plain failure, nor as a shell that finds or may run nothing, nor as one of nnlib's exits."""
    assert layout.SETTLED_BEFORE not in {0, 1, 2, 126, 127, *Exit}
    assert layout.SETTLED_BEFORE < 128  # from there on a shell tells of signals
    assert layout.DAGMAN_CRASHED == 4  # what HTCondor's programs end with after an assertion
