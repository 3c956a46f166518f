"""Times and regions of data files: written, read, merged and damaged; against examples told as dictionaries."""

import re
from dataclasses import replace
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnlib.cli import main
from nnlib.data import file_rows
from nnlib.data.file import check_data_file, read_all, read_data, write_data
from nnlib.data.merge import merge
from nnlib.data.merge_files import read_slice
from nnlib.data.read_events import read_asked, read_events, read_window
from nnlib.data.rows import Csr, Dense, from_rows
from nnlib.data.sets import Data, DataSet
from nnlib.data.stream import open_data
from nnlib.errors import DataError

AS_OF = 15000
CATALOGUE = [f"i{n}" for n in range(8)]
MARKS = st.booleans()
MANY = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def shops(draw, as_of=AS_OF, marks=MARKS):
    """Data with days, of a region or of several; customers of one name may be in more than one."""
    examples = draw(st.integers(1, 4))
    names = tuple(draw(st.lists(st.sampled_from(CATALOGUE), min_size=1, unique=True)))
    units = st.lists(st.integers(0, len(names) - 1), max_size=5)
    had, took = (from_rows([draw(units) for _ in range(examples)], len(names)) for _ in range(2))
    days = np.array([draw(st.integers(-9, as_of - 1)) for _ in range(had.nonzeros)], np.int32)
    quantities = np.arange(had.nonzeros, dtype=np.float32) / 4 if draw(st.booleans()) else None
    last = counts = None
    if draw(st.booleans()):
        last = np.array([draw(st.integers(day, as_of - 1)) for day in days.tolist()], np.int32)
        counts = np.array([draw(st.integers(1, 99)) for _ in days], np.int32)
    inputs = DataSet("input", had, names, days=days, quantities=quantities, last=last, counts=counts)
    sets = (inputs, DataSet("output", took, names))
    samples = tuple(draw(st.sampled_from(["anna", "ben"])) for _ in range(examples))
    regions = draw(st.sampled_from([(), ("France", "Spain"), ("Spain", "")]))
    if not regions:
        return Data(sets, samples, draw(st.sampled_from(["", "Spain"])), as_of, repeats=draw(marks))
    numbers = np.array([draw(st.integers(0, len(regions) - 1)) for _ in range(examples)], np.int32)
    return Data(sets, samples, "", as_of, regions, numbers, draw(marks))


def told(data):
    """Of each example its name and region, first and last day and count of each item it had, the items it took."""
    had, took = data.sets
    found = []
    for n, sample in enumerate(data.samples):
        region = data.regions[data.region_of[n]] if data.regions else data.region
        first = {}
        for entry in range(*had.rows.indptr[n : n + 2]):
            item, day = had.features[had.rows.indices[entry]], int(had.days[entry])
            last, count = (None, None) if had.last is None else (int(had.last[entry]), int(had.counts[entry]))
            if item in first:
                day = min(day, first[item][0])
                last, count = (None, None) if last is None else (max(last, first[item][1]), count + first[item][2])
            first[item] = day, last, count
        then = {took.features[unit] for unit in took.rows.indices[slice(*took.rows.indptr[n : n + 2])]}
        found.append((sample, region, first, then))
    return found


def beside(asked, entry):
    return tuple(None if of is None else int(of[entry]) for of in (asked.days, asked.last, asked.counts))


def told_of_window(window, samples):
    """The same of what was read."""
    asked, wanted = window.asked, window.wanted
    return [
        (
            sample,
            asked.regions[asked.region[n]],
            {asked.items[asked.bought.indices[e]]: beside(asked, e) for e in range(*asked.bought.indptr[n : n + 2])},
            {asked.items[unit] for unit in wanted.indices[slice(*wanted.indptr[n : n + 2])]},
        )
        for n, sample in enumerate(samples)
    ]


@MANY
@given(shops())
def test_what_is_written_is_read(tmp_path, data):
    path = tmp_path / "a.nc"
    write_data(path, data)
    seen = read_data(path)
    assert (seen.as_of, seen.region, seen.regions) == (AS_OF, data.region, data.regions)
    assert seen.repeats is data.repeats is read_all([path]).repeats is open_data([path], limit_bytes=0).repeats
    with netCDF4.Dataset(path) as file:
        assert ("repeats" in file.ncattrs()) is data.repeats  # the others are as they always were
    assert data.region_of is None or np.array_equal(seen.region_of, data.region_of)
    assert np.array_equal(seen.sets[0].days, data.sets[0].days) and seen.sets[1].days is None
    for name in ("quantities", "last", "counts"):
        assert (getattr(seen.sets[0], name) is None) == (getattr(data.sets[0], name) is None)
    assert seen.sets[0].last is None or np.array_equal(seen.sets[0].last, data.sets[0].last)
    assert seen.sets[0].counts is None or np.array_equal(seen.sets[0].counts, data.sets[0].counts)
    window = read_window(path)
    assert told_of_window(window, data.samples) == told(data)
    assert window.asked.as_of == AS_OF and window.asked.ages().min(initial=1) >= 1
    assert check_data_file(path).repeats is window.asked.repeats is data.repeats
    everybody = np.arange(window.asked.customers)
    unranked = window.asked.unranked(everybody)
    assert unranked is None if data.repeats else np.array_equal(unranked.indices, window.asked.bought.indices)
    taken = window.asked.take(everybody[::-1])
    assert taken.repeats is data.repeats and told_of_window(replace(window, asked=taken), []) == []
    assert [beside(taken, e) for e in range(*taken.bought.indptr[-2:])] == [
        beside(window.asked, e) for e in range(*window.asked.bought.indptr[:2])
    ]
    for rows in (window.asked.bought, window.wanted):
        assert rows.boolean and rows.sets() is rows  # units in order and none twice
    assert read_all([path]).sets[0].days is None  # trainings have no use for them
    assert [data_set.days for data_set in open_data([path], limit_bytes=0).sets] == [None, None]


@MANY
@given(st.booleans().flatmap(lambda mark: st.lists(shops(marks=st.just(mark)), min_size=1, max_size=3)))
def test_merged_files_keep_days_and_regions(tmp_path, shop_list):
    paths = [tmp_path / f"{n}.nc" for n in range(len(shop_list))]
    for path, data in zip(paths, shop_list, strict=True):
        write_data(path, data)
    merge(paths, tmp_path / "all.nc")
    lasting = all(data.sets[0].last is not None for data in shop_list)
    if not lasting:  # what not all have is left out
        without = [replace(data.sets[0], last=None, counts=None) for data in shop_list]
        pairs = zip(shop_list, without, strict=True)
        shop_list = [replace(data, sets=(inputs, data.sets[1])) for data, inputs in pairs]
    expected = [one for data in shop_list for one in told(data)]
    merged = read_data(tmp_path / "all.nc")
    assert merged.repeats is shop_list[0].repeats and (merged.sets[0].last is not None) == lasting
    assert told(merged) == expected
    assert told_of_window(read_window(tmp_path / "all.nc"), merged.samples) == expected
    counted = all(data.sets[0].quantities is not None for data in shop_list)
    assert (merged.sets[0].quantities is not None) == counted
    if counted:
        total = sum(float(data.sets[0].quantities.sum()) for data in shop_list)
        assert merged.sets[0].quantities.sum() == total


def shop(**changes):
    rows = from_rows([[2, 0], [1], []], 3)
    days = np.array([10, 20, 30], np.int32)
    sets = (
        DataSet("input", rows, ("a", "b", "c"), days=days),
        DataSet("output", from_rows([[1], [], [2]], 3), tuple("abc")),
    )
    return replace(Data(sets, ("x", "y", "z"), "", 40, ("n", "s"), np.array([1, 0, 1], np.int32)), **changes)


def test_merged_files_must_be_asked_about_one_day(tmp_path):
    for name, as_of in (("a", 40), ("b", 41), ("c", None)):
        data = shop(as_of=as_of)
        if as_of is None:
            data = replace(data, sets=tuple(replace(one, days=None) for one in data.sets))
        write_data(tmp_path / f"{name}.nc", data)
    with pytest.raises(DataError, match=r"b.nc: is asked about day 41 \(as_of\), a.nc about day 40; legal: one day"):
        merge([tmp_path / "a.nc", tmp_path / "b.nc"], tmp_path / "out.nc")
    merge([tmp_path / "a.nc", tmp_path / "c.nc"], tmp_path / "out.nc")
    merged = read_data(tmp_path / "out.nc")
    assert (merged.as_of, merged.sets[0].days, merged.regions) == (None, None, ("n", "s"))


@pytest.mark.parametrize("marked", [0, 1])
def test_files_that_say_different_things_of_buying_again_are_not_put_together(tmp_path, monkeypatch, marked):
    monkeypatch.chdir(tmp_path)
    for n, name in enumerate("abc"):
        write_data(Path(f"{name}.nc"), shop(repeats=n == marked))
    words = re.escape(
        f"{'ab'[marked]}.nc: what a customer has is ranked when it is bought again (repeats), in {'ba'[marked]}.nc it "
        "has no rank; legal: the same in all files; import them from one table, all with --repeats or all without"
    )
    paths = [Path(f"{name}.nc") for name in "abc"]
    for together in (lambda: merge(paths, Path("out.nc")), lambda: read_all(paths)):
        with pytest.raises(DataError, match=words):
            together()
    assert not Path("out.nc").exists()


def test_files_without_times_and_names(tmp_path):
    rows = Csr(np.array([0, 2, 3]), np.array([1, 1, 0], np.int32), 2, np.array([3, 4, 5], np.float32))
    index = np.array([1, 0, 1], np.int32)
    write_data(tmp_path / "a.nc", Data((DataSet("likes", rows, index=index),), (), "Spain"))
    events = read_events(tmp_path / "a.nc")
    assert (events.items, events.regions, events.days, events.as_of) == (("0", "1"), ("Spain",), None, 0)
    assert events.bought.indices.tolist() == [0, 1, 0] and events.bought.values is None
    with pytest.raises(DataError, match=r'a.nc: no data set "output", nor another sparse one; there are: none besides'):
        read_window(tmp_path / "a.nc")
    write_data(tmp_path / "d.nc", Data((DataSet("input", Dense(np.zeros((2, 3), np.float32))),)))
    with pytest.raises(DataError, match=r'd.nc: no data set "output", .* there are: "input" \(dense float32\)'):
        read_events(tmp_path / "d.nc")


def told_by_inputs(path, *sets):
    """Write data sets by name, in this order: rows, or a tuple of dense ones' bytes."""
    made = [DataSet(name, Dense(np.array(rows, np.uint8)) if isinstance(rows, tuple) else rows) for name, rows in sets]
    write_data(path, Data(tuple(made), tuple(f"p{n}" for n in range(made[0].examples)), "Spain"))
    return path


PIXELS = ((1, 2, 3), (4, 5, 6))
SIGNS = from_rows([[1], [0]], 4)


@pytest.mark.parametrize("name", ["input", "pixels"])
def test_examples_with_dense_inputs_are_learned_by_their_targets_and_asked_without(tmp_path, name):
    path = told_by_inputs(tmp_path / "a.nc", (name, PIXELS), ("output", SIGNS))
    learned, asked, window = (read(path, inputs=True) for read in (read_events, read_asked, read_window))
    assert (learned.bought.indices.tolist(), learned.items) == ([1, 0], ("0", "1", "2", "3"))
    assert (asked.bought.nonzeros, asked.items, asked.customers) == (0, (), 2)
    assert (window.asked.bought.nonzeros, window.asked.items) == (0, learned.items)
    assert window.wanted.indices.tolist() == [1, 0]
    for events in (learned, asked, window.asked):
        assert events.regions == ("Spain",) and events.region.tolist() == [0, 0]
        assert events.inputs.values.tolist() == [[1, 2, 3], [4, 5, 6]] and events.inputs.values.dtype == np.uint8
        assert events.take(np.array([1])).inputs.values.tolist() == [[4, 5, 6]]
    for read in (read_events, read_asked):
        assert read(path).inputs is None  # who does not want them has no memory of theirs
    assert read_window(path).asked.inputs is None


def test_targets_are_the_output_where_there_are_several_and_none_need_be_there_to_ask(tmp_path):
    path = told_by_inputs(tmp_path / "a.nc", ("more", from_rows([[0], [2]], 3)), ("output", SIGNS), ("input", PIXELS))
    assert read_events(path).bought.indices.tolist() == read_window(path).wanted.indices.tolist() == [1, 0]
    alone = told_by_inputs(tmp_path / "b.nc", ("input", PIXELS))
    assert read_asked(alone, inputs=True).inputs.values.tolist() == [[1, 2, 3], [4, 5, 6]]
    with pytest.raises(DataError, match=r'b.nc: no data set "output", nor another sparse one; there are: "input"'):
        read_window(alone)


def test_a_history_is_one_whatever_is_dense_beside_it(tmp_path):
    sparse = told_by_inputs(tmp_path / "a.nc", ("ages", PIXELS), ("input", SIGNS), ("output", SIGNS))
    named = told_by_inputs(tmp_path / "b.nc", ("ages", PIXELS), ("likes", SIGNS))
    alone = told_by_inputs(tmp_path / "c.nc", ("output", SIGNS))
    for path in (sparse, named, alone):
        for read in (read_events, read_asked):
            events = read(path, inputs=True)
            assert (events.bought.indices.tolist(), events.inputs) == ([1, 0], None)


def test_examples_that_share_rows_have_their_own_inputs(tmp_path):
    pixels, index = Dense(np.array(PIXELS, np.uint8)), np.array([1, 0, 1], np.int32)
    sets = DataSet("input", pixels, index=index), DataSet("output", from_rows([[0], [1], [2]], 3))
    write_data(tmp_path / "a.nc", Data(sets))
    assert read_events(tmp_path / "a.nc", inputs=True).inputs.values.tolist() == [[4, 5, 6], [1, 2, 3], [4, 5, 6]]


def test_inputs_that_memory_cannot_hold_are_told_before_they_are_read(tmp_path, monkeypatch):
    told_by_inputs(tmp_path / "a.nc", ("input", PIXELS), ("output", SIGNS))
    monkeypatch.setattr(file_rows, "SMALL", 0)
    monkeypatch.setattr(file_rows, "available_bytes", lambda: 5)
    with pytest.raises(DataError, match=r'a.nc: data set "input" would take .* of memory, 5 bytes are free; take'):
        read_asked(tmp_path / "a.nc", inputs=True)
    assert read_asked(tmp_path / "a.nc").customers == 2  # who does not want them needs no memory for them


def test_days_go_with_their_entries_when_examples_are_taken():
    taken = shop().sets[0].take(np.array([1, 0]))
    assert (taken.rows.indices.tolist(), taken.days.tolist()) == ([1, 2, 0], [30, 10, 20])
    kept = shop().sets[0].keep(np.array([True, False, True]))
    assert (kept.rows.indptr.tolist(), kept.days.tolist(), kept.quantities) == ([0, 1, 2, 2], [10, 30], None)
    again = replace(shop().sets[0], last=np.array([11, 21, 31], np.int32), counts=np.array([1, 2, 3], np.int32))
    assert (again.take(np.array([1])).last.tolist(), again.take(np.array([1])).counts.tolist()) == ([31], [3])
    assert again.keep(np.array([False, True, False])).counts.tolist() == [2]


def test_other_items_in_the_targets_are_refused(tmp_path):
    data = shop()
    other = replace(data, sets=(data.sets[0], replace(data.sets[1], features=("a", "b", "d"))))
    write_data(tmp_path / "a.nc", other)
    with pytest.raises(DataError, match=r'a.nc: data sets "input" and "output" are of different items, 3 and 3'):
        read_window(tmp_path / "a.nc")


def damaged(path, name, kind, values):
    """Write a variable in the place of one, with a dimension of its own."""
    with netCDF4.Dataset(path, "a") as file:
        if name in file.variables:
            file.renameVariable(name, f"{name}-was")
        if values is None:
            return
        file.createDimension(f"{name}-of", len(values))
        values = np.array(values, dtype=object) if kind is str else values
        file.createVariable(name, kind, (f"{name}-of",))[:] = values


@pytest.mark.parametrize(
    ("name", "kind", "values", "words"),
    [
        ("sparseTime0", "i4", [1, 2], "variable sparseTime0 has 2 values, there are 3 units"),
        ("sparseTime0", "f4", [1, 2, 3], "variable sparseTime0 is of float32, legal: integers"),
        (
            "sparseTime0",
            "i4",
            [1, 40, 3],
            "sparseTime0: an entry of examples 0 to 2 is of day 40, legal: before as_of, 40",
        ),
        ("sparseTime0", "i8", [1, -(2**40), 3], "is of day -1099511627776, legal: before as_of"),
        ("sparseQuantity0", "f4", [1, 2], "variable sparseQuantity0 has 2 values, there are 3 units"),
        ("sparseQuantity0", "f8", [1, 2, 1e300], "an entry of examples 0 to 2 has inf, legal: a finite float32"),
        ("sparseLast0", "i4", [10, 20], "variable sparseLast0 has 2 values, there are 3 units"),
        ("sparseLast0", "f4", [10, 20, 30], "variable sparseLast0 is of float32, legal: integers"),
        ("sparseLast0", "i4", [10, 19, 30], "is of day 19, legal: from its sparseTime0, 20, to before as_of, 40"),
        ("sparseLast0", "i8", [10, 20, 40], "is of day 40, legal: from its sparseTime0, 30, to before as_of, 40"),
        ("sparseCount0", "i4", [1, 2], "variable sparseCount0 has 2 values, there are 3 units"),
        ("sparseCount0", "i4", [1, 0, 1], "sparseCount0: an entry of examples 0 to 2 has 0, legal: from 1"),
        ("sparseCount0", "i8", [1, 2**40, 1], "sparseCount0: an entry of examples 0 to 2 has 1099511627776, legal"),
        ("regionOf", "i4", [0, 1], "variable regionOf has 2 values, there are 3 examples"),
        ("regionOf", "i4", [0, 2, 1], "variable regionOf: example 1 has the region 2, legal: 0 to 1"),
        ("regionOf", "i4", [0, 1, -1], "variable regionOf: example 2 has the region -1, legal: 0 to 1"),
        ("regionOf", "f4", [0, 1, 1], "variable regionOf is of float32, legal: integers"),
        ("regionOf", "i4", None, "variable regionOf is missing"),
        ("regions", str, None, "variable regions: 0 names, 0 of them different, legal: one for each region"),
        ("regions", str, ["n", "n"], "variable regions: 2 names, 1 of them different"),
        ("regions", "i4", [1, 2], "variable regions is not of type string"),
    ],
)
def test_what_is_damaged_is_named(tmp_path, name, kind, values, words):
    path = tmp_path / "a.nc"
    write_data(path, shop())
    damaged(path, name, kind, values)
    for read in (read_data, check_data_file):
        with pytest.raises(DataError, match=f"^{re.escape(str(path))}: .*{re.escape(words)}"):
            read(path)
    assert len(read_all([path]).samples) == 3  # who wants neither reads it still


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1.5, "attribute as_of: np.float64(1.5) is not legal, legal: an integer"),
        ("2011-12-09", "attribute as_of: '2011-12-09' is not legal, legal: an integer"),
        (np.int64(2**40), "attribute as_of: 1099511627776 is not legal, legal: days since 1970-01-01"),
        (None, "attribute as_of is missing, legal beside sparseTime0"),
    ],
)
def test_as_of_is_a_day(tmp_path, value, words):
    path = tmp_path / "a.nc"
    write_data(path, shop())
    with netCDF4.Dataset(path, "a") as file:
        file.delncattr("as_of") if value is None else file.setncattr("as_of", value)
    for read in (read_events, check_data_file):
        with pytest.raises(DataError, match=re.escape(words)):
            read(path)


@pytest.mark.parametrize("value", [2, 1.5, "yes"])
def test_the_mark_of_buying_again_is_one_or_not_there(tmp_path, value):
    path = tmp_path / "a.nc"
    write_data(path, shop())
    with netCDF4.Dataset(path, "a") as file:
        file.setncattr("repeats", value)
    for read in (read_data, read_events, check_data_file, read_slice):
        with pytest.raises(DataError, match=r"a\.nc: attribute repeats: .* is not legal, legal: "):
            read(path)


def test_last_days_need_the_first_ones(tmp_path):
    path = tmp_path / "a.nc"
    write_data(path, shop())
    damaged(path, "sparseLast0", "i4", [10, 20, 30])
    damaged(path, "sparseTime0", "i4", None)
    with pytest.raises(DataError, match="variable sparseTime0 is missing, legal beside sparseLast0"):
        check_data_file(path)


def test_days_of_dense_data_are_refused(tmp_path):
    path = tmp_path / "a.nc"
    write_data(path, Data((DataSet("input", Dense(np.zeros((2, 3), np.float32))),)))
    damaged(path, "sparseTime0", "i4", [1, 2])
    with pytest.raises(DataError, match='variable sparseTime0: data set "input" is dense, legal: sparse ones only'):
        check_data_file(path)


def test_inspect_says_days_and_regions(tmp_path, capsys):
    write_data(tmp_path / "a.nc", shop())
    assert main(["inspect", str(tmp_path / "a.nc")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "data file, asked about 1970-02-10",
        "  regions: 'n' 1, 's' 2",
        "  input: sparse boolean, 3 examples, width 3, 3 nonzeros (33.333%), 1970-01-11 to 1970-01-31",
        "  output: sparse boolean, 3 examples, width 3, 2 nonzeros (22.222%)",
    ]
    write_data(tmp_path / "a.nc", shop(repeats=True))
    assert main(["inspect", str(tmp_path / "a.nc")]) == 0
    first = "data file, asked about 1970-02-10, what customers have is ranked too (repeats)"
    assert capsys.readouterr().out.splitlines()[0] == first
