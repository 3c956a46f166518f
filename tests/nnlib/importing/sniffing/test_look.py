"""Whole tables looked at: any table in any form is understood or refused, never understood wrongly."""

import csv
import gzip
import io
import os

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnlib.errors import DataError
from nnlib.importing.purchases import load
from nnlib.importing.sniffing import look as module
from nnlib.importing.sniffing.ambiguous import AmbiguousError
from nnlib.importing.sniffing.look import Wishes, look_at, show_day
from nnlib.util.tables import Tables, quote
from tests.nnlib.importing.test_purchases import gathered

HEADER = ["region", "customer", "item", "date"]
ROWS = [("N", f"c{n % 7}", f"i{n % 5}", f"2024-{n % 12 + 1:02}-{n % 28 + 1:02}") for n in range(60)]


def text_of(rows=ROWS, header=HEADER, separator=",", end="\n"):
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator=end).writerows([header, *rows])
    return text.getvalue()


def look(tmp_path, data, name="p.csv", **wishes):
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    scratch = tmp_path / f"scratch{len(list(tmp_path.iterdir()))}"
    scratch.mkdir()
    return look_at(path, Wishes(**wishes), scratch)


# --- what is understood ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "pack"), [("p.csv", bytes), ("p.csv.gz", gzip.compress), ("p.csv.zst", zstandard.compress)]
)
def test_a_plain_table(tmp_path, name, pack):
    found = look(tmp_path, pack(text_of().encode()), name)
    counted = found.counted
    assert (counted.rows, counted.customers, counted.items, counted.left_out) == (60, 7, 5, {})
    assert [(one.name, one.customers, one.rows) for one in counted.regions] == [("N", 7, 60)]
    assert (show_day(counted.first), show_day(counted.last)) == ("2024-01-01", "2024-12-24")
    assert found.sampled == 0 and found.rows[0] == {
        "region": "N", "customer": "c0", "item": "i0", "date": "2024-01-01",
    }  # fmt: skip
    assert (found.columns.format.separator, found.columns.format.encoding) == ("", "utf-8")


def test_rows_that_are_left_out(tmp_path):
    rows = [(*row, n % 3 - 1) for n, row in enumerate(ROWS)] + [("N", "", "i1", "2024-01-01", 1)]
    found = look(tmp_path, text_of(rows, [*HEADER, "qty"]))
    assert found.counted.left_out == {"customer": 1, "amount": 40} and found.counted.purchases == 20
    assert found.columns.amount == "qty"


def test_one_region(tmp_path):
    text = text_of([row[1:] for row in ROWS], HEADER[1:])
    found = look(tmp_path, text, one_region="my shop")
    assert (found.columns.region, found.columns.one_region) == ("", "my shop")
    assert [one.name for one in found.counted.regions] == ["my shop"]


def test_parquet_and_a_folder(tmp_path):
    (tmp_path / "made").mkdir()
    (tmp_path / "p.csv").write_text(text_of())
    tables = Tables(tmp_path / "made")
    tables.run(f"COPY (FROM {quote(str(tmp_path / 'p.csv'))}) TO {quote(str(tmp_path / 'p.parquet'))} (FORMAT parquet)")
    tables.close()
    assert look(tmp_path, None, "p.parquet").counted.customers == 7
    (tmp_path / "sales").mkdir()
    for n in range(2):
        (tmp_path / "sales" / f"{n}.csv").write_text(text_of(ROWS[n * 30 : n * 30 + 30]))
    assert look(tmp_path, None, "sales").counted.rows == 60


def test_a_large_table_is_sampled(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "COUNTED_WHOLE", 1000)
    monkeypatch.setattr("nnlib.importing.sniffing.samples.BEGIN", 20_000)
    rows = ROWS * 100
    found = look(tmp_path, text_of(rows))
    assert 0 < found.sampled < len(rows) and abs(found.about - len(rows)) < 0.1 * len(rows)
    assert found.counted.customers == 7
    assert look(tmp_path, text_of(rows), whole=True).counted.rows == len(rows)


def test_days_above_twelve_far_down_tell_the_order(tmp_path, monkeypatch):
    monkeypatch.setattr("nnlib.importing.sniffing.samples.BEGIN", 2_000)
    rows = [("N", f"c{n % 7}", f"i{n % 5}", "03/04/2025") for n in range(3000)]
    with pytest.raises(AmbiguousError) as caught:
        look(tmp_path, text_of(rows))
    assert [value for value, _ in caught.value.answers] == ["%d/%m/%Y", "%m/%d/%Y"]
    rows[1511] = ("N", "c1", "i1", "25/04/2025")
    assert look(tmp_path, text_of(rows)).columns.format.dates == "%d/%m/%Y"
    assert look(tmp_path, text_of(rows[:100]), dates="%m/%d/%Y").counted.purchases == 100


# --- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("p.csv", b"", r"p\.csv: .*it is empty; legal: a header and a purchase a line"),
        ("p.csv", b"region,customer,item,date\n", r"p\.csv: no line after the header"),
        ("p.csv", b"N,c1,i1,2024-01-01\nN,c2,i1,2024-01-02\n1,2,3,4\n", r"no column that could be the customer"),
        ("p.csv", b"12,17,2024-01-01\n13,17,2024-01-02\n", r"p\.csv:1: no header, it holds values \('12'\)"),
        ("p.csv", b"12;17;2024-01-01\n13;17;2024-01-02\n", r"sed -i '1i region;customer;item;date' FILE"),
        ("p.csv", b"12\t17\t2024-01-01\n13\t17\t2024-01-02\n", r"sed -i '1i region\\tcustomer\\titem\\tdate' FILE"),
        ("p.csv", text_of().encode() + b"N,c1\n", r"p\.csv:62: 2 fields, the header has 4; mend"),
        ("p.csv", text_of().encode() + b"N,c1,x,soon\n", r"p\.csv:62: date: 'soon' is not legal"),
        ("p.csv", b"\0\1\2binary\0\3\0\0" * 100, r"p\.csv:1: a zero byte, so it is no text"),
        ("p.csv", b"a" * (2 << 20), r"p\.csv:1: longer than 1,048,576"),
        ("p.csv", text_of(header=["region", "customer", "item", "item"]).encode(), "2 columns are called 'item'"),
        ("p.csv", gzip.compress(text_of().encode()), r"p\.csv.*gzipped; give it a name that ends in \.gz|zero byte"),
        ("p.csv.gz", text_of().encode(), r"p\.csv\.gz: cannot be read: it is not gzipped"),
        ("p.csv.gz", gzip.compress(text_of().encode())[:-9], r"p\.csv\.gz: cannot be read: it is gzipped and ends too"),
        ("p.csv.zst", text_of().encode(), r"p\.csv\.zst: "),
        ("p.parquet", b"no parquet", r"p\.parquet: .*p\.parquet"),
        ("p.csv", b'region,customer,item,date\nN,c,"x,2024-01-01\n', r"p\.csv: no separator .*a quote is not closed"),
        ("p.csv", b"customer,item,date\n1,2,soon\n1,3,late\n", r"p\.csv: the column 'date' should be times, but holds"),
    ],
)  # fmt: skip
def test_hostile_files(tmp_path, name, data, said):
    with pytest.raises(DataError, match=said):
        look(tmp_path, data, name)


def test_a_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "p.csv")
    with pytest.raises(DataError, match=r"p\.csv: is no regular file, and a table is read more than once"):
        look(tmp_path, None)


@pytest.mark.parametrize(
    "text",
    [
        text_of(end="\r\n"),
        "\ufeff" + text_of(),
        text_of([*ROWS, ("N", "c1", "two\nlines", "2024-01-01")]),
        text_of(ROWS[:30], end="\r\n") + text_of(ROWS[30:]).split("\n", 1)[1],
        text_of().rstrip("\n"),
    ],
)
def test_line_ends_marks_and_line_breaks_in_fields(tmp_path, text):
    found = look(tmp_path, text)
    assert found.counted.purchases == text.count("2024-") and found.counted.customers == 7


# --- any table ---------------------------------------------------------------------------------------------

NAMES = st.text(st.characters(codec="cp1252", categories=("L", "N")), min_size=1, max_size=8)
DATES = st.dates(min_value=__import__("datetime").date(2001, 1, 1), max_value=__import__("datetime").date(2030, 1, 1))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(NAMES, NAMES, NAMES, DATES), min_size=1, max_size=20),
    st.sampled_from([",", ";", "\t", "|"]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252", "utf-16-le"]),
    st.sampled_from(["%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%y", "%Y%m%d"]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_any_table_is_understood_or_refused(tmp_path_factory, rows, separator, encoding, form, end):
    folder = tmp_path_factory.mktemp("any")
    text = text_of([(*row[:3], row[3].strftime(form)) for row in rows], separator=separator, end=end)
    (folder / "p.csv").write_bytes(text.encode(encoding))
    (folder / "looked").mkdir()
    (folder / "read").mkdir()
    try:
        found = look_at(folder / "p.csv", Wishes(), folder / "looked")
    except DataError:
        return
    day = __import__("datetime").date(1970, 1, 1)
    expected = sorted((region, who, item, (date - day).days, 0, 0.0) for region, who, item, date in rows)
    assert gathered(load(folder / "p.csv", found.columns, folder / "read")) == expected
    assert found.counted.purchases == len(rows) and found.counted.items == len({row[2] for row in rows})
