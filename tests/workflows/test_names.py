import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.contract import slug_of
from workflows import names
from workflows.names import MAX_TRIALS, NodeName, RunFolder, parse_node


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
    assert doctest.testmod(names).failed == 0


def test_folders(tmp_path):
    region = RunFolder(tmp_path).region("germany")
    assert region.trial(NodeName("germany", 7)) == tmp_path / "regions/germany/trials/0007"
    assert region.trial(NodeName("germany", None)).name == "final"
    assert region.data("train").name == "data.train.nc"
