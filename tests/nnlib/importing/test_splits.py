"""The parts that an import makes, against a reference of dicts and lists, and what is said of them."""

from datetime import date, timedelta

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnlib import cli
from nnlib.data.file import read_data
from nnlib.data.read_events import read_events, read_window
from nnlib.importing import sorting
from nnlib.importing.histories import PARTS, build_history
from nnlib.importing.purchase_lines import Purchase
from nnlib.importing.purchases import gather_purchases
from nnlib.importing.splits import LEAVE_ONE_OUT, RANDOM, TEST, TRAIN, VALID, Split
from tests.nnlib.importing.test_purchases import items, rows_of, write_table
from tests.nnlib.purchases_reference import reference_parts

MANY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SHORT = ("--test", "3d", "--validate", "3d")


def told(data):
    """Each example of a part: its name, what it had and since when, what it took."""
    had, took = data.sets
    names, beside = had.features, (had.days, had.last, had.counts)
    return [
        (
            sample,
            [
                (names[had.rows.indices[e]], *(None if of is None else int(of[e]) for of in beside))
                for e in range(*had.rows.indptr[n : n + 2])
            ],
            [names[took.rows.indices[e]] for e in range(*took.rows.indptr[n : n + 2])],
        )
        for n, sample in enumerate(data.samples)
    ]


def run(tmp_path, rows, *options, header=("region", "customer", "item", "date")):
    table = write_table(tmp_path / "p.csv", rows, header)
    return cli.main(["import", str(table), "--out", str(tmp_path / "out"), *options])


LINES = st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 12), st.integers(-20, 19))


@MANY
@given(st.lists(LINES, max_size=120), st.integers(1, 6), st.booleans())
@pytest.mark.parametrize("bits", [64, 13])
def test_parts_are_the_references(bits, lines, least, repeats):
    """Also with keys so short that customers come a few at a time."""
    lines = [*lines, (0, 0, 0, -21), (0, 0, 0, 20)]
    named = [(f"r{region}", f"c{customer}", f"i{item:02}", day) for region, customer, item, day in lines]
    split = Split(test=5, validate=7, min_history=least, repeats=repeats)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "KEY_BITS", bits)
        patch.setattr(sorting, "SOME", 7 if bits < 64 else 1 << 17)
        history = build_history(gather_purchases(Purchase(*line) for line in named), split)
    expected = reference_parts(named, split)
    assert history.anybody_asked() == any("valid" in parts or "test" in parts for parts in expected.values())
    assert history.items == tuple(sorted({line[2] for line in named}))
    assert history.purchases.sum() == len(set(named))
    for region in history.regions:
        found = {part: history.part_data(region, part) for part in PARTS}
        assert {part: told(data) for part, data in found.items() if data} == expected[region]
        assert {data.as_of for part, data in found.items() if data and part in ("final", "test")} == {16}
        assert {data.repeats for data in found.values() if data} == {repeats}


def test_an_import_by_windows(tmp_path, capsys):
    """Days 18 to 20 are the test's, 15 to 17 are for validation; nobody in the South has enough before."""
    rows = rows_of("North East", "1", items(20)) + rows_of("North East", "2", items(6, 30))
    rows += rows_of("South", "9", items(3, 25), day=16)
    assert run(tmp_path, rows, *SHORT) == 0
    parts = {path.name: read_data(path) for path in (tmp_path / "out").glob("*.nc")}
    north = {f"north-east.{part}.nc" for part in PARTS}
    assert set(parts) == north | {f"south.{part}.nc" for part in ("train", "final", "all")}
    assert parts["north-east.train.nc"].samples == ("1", "2")
    assert [told(parts[f"north-east.{part}.nc"])[0][2] for part in ("valid", "test")] == [items(3, 14), items(3, 17)]
    assert parts["south.train.nc"].sets[0].rows.nonzeros == 0  # nobody had anything: the customers stay, without
    assert [parts[f"north-east.{part}.nc"].as_of - 14975 for part in PARTS] == [14, 14, 17, 17, 20]
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1].split()[2:8] == ["2011-01-01", "2011-01-20", "2", "26", "26", "50.00%"]
    assert "fewer than 30 customers to test on: North East (1), South (0)" in shown.err
    assert "windows of 3 and 3 days are longer than the history before them: South (0 days)" in shown.err
    assert cli.main(["inspect", str(tmp_path / "out")]) == 0
    again = capsys.readouterr()
    assert [line.split()[:7] for line in again.out.splitlines()] == [
        line.split()[:7] for line in shown.out.splitlines()
    ]
    assert again.out.splitlines()[1].split()[-4:] == ["-", "1", "1", "100.0%"]
    assert [line for line in shown.err.splitlines() if "warning" in line] == again.err.splitlines()
    assert "of all purchases" not in shown.err  # one of three customers always has many


@pytest.mark.parametrize(("others", "said"), [(28, False), (29, True)])
def test_a_customer_with_a_tenth_of_all_purchases(tmp_path, capsys, others, said):
    """Where there are 30 customers; a busier one of a handful is no till."""
    rows = rows_of("handful", "a", items(30)) + rows_of("shop", "till", items(20))
    rows += [row for n in range(others) for row in rows_of("shop", f"c{n}", items(1, n % 20))]
    assert run(tmp_path, rows, *SHORT, "--min-history", "1") == 0
    assert cli.main(["inspect", str(tmp_path / "out")]) == 0
    err = capsys.readouterr().err
    assert ("customer 'till' of 'shop' has 25% of all purchases" in err) == said
    assert ("a customer of 'shop' has 25% of all purchases" in err) == said
    assert "handful' has" not in err


@pytest.mark.parametrize(("copies", "warned"), [(0, False), (1, False), (2, True)])
def test_rows_like_others_are_counted_and_many_of_them_are_doubted(tmp_path, capsys, copies, warned):
    rows = rows_of("a", "1", items(20))
    assert run(tmp_path, rows + rows[:copies], *SHORT) == 0
    shown = capsys.readouterr()
    words = f"{copies} of {20 + copies} rows ({copies / (20 + copies):.1%}) have customer, item and day of another row"
    assert (words in shown.out.splitlines()) == (copies == 1)
    assert (f"warning: {words}; if they are copies" in shown.err) == warned


def test_parts_of_nobody_do_not_stay_from_an_earlier_import(tmp_path, capsys):
    rows = rows_of("a", "1", items(20)) + rows_of("b", "1", items(20))
    assert run(tmp_path, rows, *SHORT) == 0
    rows = rows_of("a", "1", items(20)) + rows_of("b", "1", items(16))
    assert run(tmp_path, rows, *SHORT) == 0
    assert capsys.readouterr().err.splitlines()[-1] == f"removed in {tmp_path / 'out'}: b.test.nc"
    assert len(list((tmp_path / "out").glob("b.*.nc"))) == 4


def test_windows_without_history_are_refused(tmp_path, capsys):
    assert run(tmp_path, rows_of("a", "1", items(20)), "--test", "28d") == 4
    error = capsys.readouterr().err
    assert "p.csv: the purchases are of 20 days (2011-01-01 to 2011-01-20), and windows of 28 and 28 days" in error
    assert run(tmp_path, rows_of("a", "1", items(20)), *SHORT, "--min-history", "15") == 0
    assert run(tmp_path, rows_of("a", "1", items(20)), *SHORT, "--min-history", "18") == 4
    assert "nobody can be asked: no customer has 18 items before 2011-01-15 or 2011-01-18" in capsys.readouterr().err


def test_an_import_says_how_long_windows_are_and_why(tmp_path, capsys):
    assert run(tmp_path, rows_of("a", "1", items(20))) == 0
    assert capsys.readouterr().err.splitlines()[-1] == (
        "windows: 3 days from 2011-01-15 (validation) and 2011-01-18 (test), as the table has few days only"
    )
    first = date(2010, 1, 1)
    sparse = [("a", str(n), f"i{k}", str(first + timedelta(40 * k + n))) for n in range(40) for k in range(20)]
    assert run(tmp_path, sparse) == 0
    assert "windows: 56 days from " in capsys.readouterr().err
    assert run(tmp_path, sparse, "--test", "28d") == 0
    assert "windows" not in capsys.readouterr().err


@pytest.mark.parametrize("order", [1, -1])
def test_the_days_items_stay_together_whatever_their_codes(order):
    """The last day with something new is the test, the one before validation; what was had counts for nothing."""
    lines = [("c", f"i{n}", n // 3) for n in range(9)] + [("c", "i0", 9), ("short", "i1", 1), ("short", "i2", 2)]
    rows = [Purchase("r", *line) for line in lines][::order]
    history = build_history(gather_purchases(rows), Split(LEAVE_ONE_OUT, min_history=2))
    stages = dict(zip([history.items[unit] for unit in history.bought.indices], history.stages, strict=False))
    assert [stages[f"i{n}"] for n in range(9)] == [1 << TRAIN] * 3 + [1 << VALID] * 3 + [1 << TEST] * 3
    assert history.part_data("r", "test").samples == ("c",)
    assert history.part_data("r", "train").samples == ("c", "short")
    assert history.part_data("r", "final").as_of == 10


def test_a_random_split_is_seeded_and_per_customer():
    rows = [Purchase("r", f"c{c}", f"i{n:02}") for c in range(5) for n in range(20)] + [Purchase("r", "d", "i00")]
    found = [build_history(gather_purchases(rows), Split(RANDOM, seed=seed)).stages.tolist() for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    assert all(
        sorted(found[0][20 * c : 20 * c + 20]) == [1] * 16 + [1 << VALID] * 2 + [1 << TEST] * 2 for c in range(5)
    )
    assert found[0][-1] == 1  # who has too little keeps it


def test_a_column_says_the_split(tmp_path):
    rows = [
        (*row, part)
        for part, day in (("train", 1), ("valid", 2), ("test", 3))
        for row in rows_of("a", "1", items(2, 2 * day), day)
    ]
    header = ("region", "customer", "item", "date", "part")
    assert run(tmp_path, rows, "--split", "column=part", "--min-history", "2", header=header) == 0
    window = read_window(tmp_path / "out" / "a.test.nc")
    assert [window.asked.items[unit] for unit in window.asked.bought.indices] == items(4, 2)
    assert [window.asked.items[unit] for unit in window.wanted.indices] == items(2, 6)
    untimed = [(*row[:3], row[4]) for row in rows]
    assert run(tmp_path, untimed, "--split=column=part", "--min-history=2", header=(*header[:3], "part")) == 0
    assert read_events(tmp_path / "out" / "a.all.nc").days is None


def weekly(customers):
    """Rows of customers who buy the same three items in each of nine weeks, and each week another one."""
    return [
        ("a", f"c{customer}", item, (date(2011, 1, 1) + timedelta(7 * week)).isoformat())
        for customer in range(customers)
        for week in range(9)
        for item in (*(f"own{customer}-{n}" for n in range(3)), f"new{customer}-{week}")
    ]


def test_where_buying_again_is_the_business_the_import_gives_a_hint(tmp_path, capsys):
    """In two weeks a customer takes five items, three of which he had; of 36 purchases 12 are of new ones."""
    options = ("--test", "14d", "--validate", "14d", "--min-history", "3")
    assert run(tmp_path, weekly(4), *options) == 0
    first, again = capsys.readouterr(), "with repeats: true (--repeats) they count as wanted"
    assert f"hint: 60% of purchases in the windows are of items that the customer had; {again}" in first.err
    assert first.out.splitlines()[1].split()[7] == "66.7%"
    assert read_window(tmp_path / "out" / "a.test.nc").asked.repeats is False
    assert run(tmp_path, weekly(4), *options, "--repeats") == 0
    assert "hint" not in capsys.readouterr().err
    window = read_window(tmp_path / "out" / "a.test.nc")
    assert window.asked.repeats and np.diff(window.wanted.indptr).tolist() == [5] * 4
    assert cli.main(["inspect", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[7] == "66.7%"


def test_of_few_repeated_purchases_the_import_says_nothing(tmp_path, capsys):
    rows = rows_of("a", "1", items(20)) + rows_of("a", "1", items(1), day=20)
    assert run(tmp_path, rows, *SHORT) == 0
    assert "hint" not in capsys.readouterr().err


def test_a_column_without_days_knows_no_last_ones(tmp_path):
    rows = [("a", "1", f"i{n}", part) for n in range(6) for part in ("train", "valid" if n < 3 else "test")]
    header = ("region", "customer", "item", "part")
    assert run(tmp_path, rows, "--split=column=part", "--min-history=2", "--repeats", header=header) == 0
    window = read_window(tmp_path / "out" / "a.test.nc")
    assert (window.asked.days, window.asked.last, window.asked.counts) == (None, None, None)
    assert window.asked.repeats and window.wanted.indices.tolist() == [3, 4, 5]


def test_quantities_are_those_up_to_the_day(tmp_path):
    rows = [(*row, "2") for row in rows_of("a", "1", items(20))] + [("a", "1", "i000", "2011-01-16", "5")]
    rows += [("a", "1", "i000", "2011-01-16", "5"), ("a", "1", "i000", "2011-01-19", "0.5")]
    header = ("region", "customer", "item", "date", "how many")
    assert run(tmp_path, rows, *SHORT, "--quantity-column", "how many", header=header) == 0
    found = [read_data(tmp_path / "out" / f"a.{part}.nc").sets[0].quantities for part in PARTS]
    assert [quantities[0] for quantities in found] == [2, 2, 12, 12, 12.5]
    assert all(np.all(quantities[1:] == 2) for quantities in found)


def test_side_columns_are_kept(tmp_path):
    (tmp_path / "i.tsv").write_text("colour\titem\nred\ti001\n")
    (tmp_path / "c.csv").write_text("customer,age,region\n1,30,a\n1,31,b\n")
    rows = rows_of("a", "1", items(20)) + rows_of("a", "2", items(20))
    options = ("--items", str(tmp_path / "i.tsv"), "--customers", str(tmp_path / "c.csv"))
    assert run(tmp_path, rows, *SHORT, *options) == 0
    lines = (tmp_path / "out" / "items.csv").read_text().splitlines()
    assert lines[:3] == ["unit,item,description,colour", "0,i000,,", "1,i001,,red"]
    assert (tmp_path / "out" / "customers.csv").read_text() == "region,customer,age\na,1,30\na,2,\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--min-history=0", "argument --min-history: '0' is not legal, legal: a whole number from 1"),
        ("--test=28", "argument --test: '28' is not legal, legal: whole days, such as 28d"),
        ("--validate=0d", "argument --validate: '0d' is not legal"),
        ("--split=ordered", "'ordered' is not legal, legal: time, leave-one-out, random, column=NAME"),
        ("--split=column=", "'column=' is not legal"),
        ("--split=random --test=3d", "--test: only with --split time"),
        ("--split=leave-one-out --repeats", "--repeats: only with --split time or column=NAME"),
        ("--seed=3", "--seed: only with --split random"),
    ],
)
def test_options_that_mean_nothing_are_refused(tmp_path, capsys, options, words):
    with pytest.raises(SystemExit) as caught:
        run(tmp_path, rows_of("a", "1", items(20)), *options.split())
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_a_folder_without_regions_is_named(tmp_path, capsys):
    assert cli.main(["inspect", str(tmp_path)]) == 4
    assert "no file *.all.nc; legal: a data or model file, or a folder of `nnlib import`" in capsys.readouterr().err
