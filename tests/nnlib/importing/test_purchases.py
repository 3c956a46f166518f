import csv
import errno
import gzip
import io
import re
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnlib import cli
from nnlib.contract import SLUG_LENGTH, slug_of
from nnlib.data.file import read_data, write_data
from nnlib.errors import DataError
from nnlib.importing import purchases
from nnlib.importing import regions as importer
from nnlib.importing.purchase_lines import Columns, count_lines_read, explain_unreadable, read_purchases
from nnlib.importing.purchases import gather_purchases, load

SHORT = ("--test", "3d", "--validate", "3d")  # windows
HOSTILE = ["a; rm -rf", "..", "Côte d'Ivoire", 'say "hi"', "two\nlines", "日本", "x" * 200, "-rf", "$HOME", " "]


def rows_of(region, customer, items, day=1):
    return [(region, customer, item, f"2011-01-{day + n:02}") for n, item in enumerate(items)]


def write_table(path, rows, header=("region", "customer", "item", "date")):
    text = io.StringIO()
    csv.writer(text, delimiter="\t" if ".tsv" in path.name else ",").writerows([header, *rows])
    data = text.getvalue().encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def items(count, start=0):
    return [f"i{n:03}" for n in range(start, start + count)]


def read(path, columns=None):
    with TemporaryDirectory(dir=path.parent) as scratch:
        return load(path, columns or Columns(), Path(scratch))


def sets_of(folder, name, part):
    data = read_data(folder / f"{name}.{part}.nc")
    names = data.sets[0].features
    return data, {
        sample: tuple([names[u] for u in s.rows.indices[s.rows.indptr[n] : s.rows.indptr[n + 1]]] for s in data.sets)
        for n, sample in enumerate(data.samples)
    }


def test_hostile_names_and_other_columns(tmp_path):
    rows = [row for name in HOSTILE for row in rows_of(name, "1", items(20))]
    table = write_table(tmp_path / "p.tsv", rows, ("land", "who", "what", "when"))
    names = {"region": "land", "customer": "who", "item": "what", "time": "when"}
    options = [word for key, name in names.items() for word in (f"--{key}-column", name)]
    assert cli.main(["import", str(table), "--out", str(tmp_path / "out"), *options, *SHORT]) == 0
    seen = {read_data(path).region: path for path in (tmp_path / "out").glob("*.train.nc")}
    assert set(seen) == set(HOSTILE)
    assert all(path.name == f"{slug_of(region)}.train.nc" for region, path in seen.items())


def test_two_regions_of_one_slug(tmp_path, capsys):
    table = write_table(tmp_path / "p.csv", rows_of("New Land", "1", items(20)) + rows_of("new-land", "1", items(20)))
    assert cli.main(["import", str(table), "--out", str(tmp_path / "out"), *SHORT]) == 4
    assert "regions 'New Land' and 'new-land' are both 'new-land'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert cli.main(["import", str(table), "--out", str(tmp_path / "out"), "--regions", "New Land", *SHORT]) == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("region,customer,item\n", "p.csv:1: no column 'date'"),
        ("", "p.csv:1: no header; legal: a first line such as region,customer,item,date"),
        ("\n\n", "p.csv:1: no header; legal: a first line such as region,customer,item,date"),
        ("region,customer,item,date\n", "p.csv: no line after the header; legal: one purchase a line"),
        ("a,b\n1,2\n", "p.csv:1: no column 'region', there are: a, b; name the right one with --region-column"),
        ("region,customer,item,date\na,1,x,2011-01-01\na,1\n", "p.csv:3: 2 fields, the header has 4"),
        ("region,customer,item,date\na,1,x,01/02/2011\n", "p.csv:2: date: '01/02/2011' is not legal"),
        ('region,customer,item,date\na,1,"x,2011-01-01\n', "p.csv:"),
        (
            "region,customer,item,date\na,1,y,2011-01-01\na,1,\udcff,2011-01-01\n",
            "p.csv:3: cannot be read: byte 0xff is not UTF-8; save it as UTF-8, or: iconv -f ISO-8859-1 -t UTF-8",
        ),
        ("\udcff\x00\x01", "p.csv:1: cannot be read: it is no text; export it as CSV"),
        (
            "region,customer,item,date\na,1,x,2011-01-01\n",
            "p.csv: the purchases are of 1 days (2011-01-01 to 2011-01-01)",
        ),
    ],
)
def test_bad_tables(tmp_path, capsys, text, words):
    (tmp_path / "p.csv").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert cli.main(["import", str(tmp_path / "p.csv"), "--out", str(tmp_path / "out")]) == 4
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


HEADER = b"region,customer,item,date\n"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("p.csv.gz", b"", "p.csv.gz:1: no header; legal: a first line such as region,customer,item,date"),
        ("p.csv.gz", b"region,customer\n", "p.csv.gz:1: cannot be read: it is not gzipped; give it a name without .gz"),
        (
            "p.csv",
            gzip.compress(b"x", mtime=0),
            "p.csv:1: cannot be read: it is gzipped; give it a name that ends in .gz",
        ),
        (
            "p.csv.gz",
            gzip.compress(HEADER, mtime=0)[:-4],
            "p.csv.gz:2: cannot be read: it is gzipped and ends too early",
        ),
        ("p.csv", None, "p.csv: no table in this folder, legal: files that end in .csv"),
    ],
)
def test_one_line_for_a_file_that_is_no_table(tmp_path, capsys, name, content, words):
    if content is None:
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_bytes(content)
    assert cli.main(["import", str(tmp_path / name), "--out", str(tmp_path / "out")]) == 4
    [line] = capsys.readouterr().err.splitlines()
    assert words in line and not (tmp_path / "out").exists()


def test_the_table_that_is_not_there_and_a_folder_that_cannot_be_made_are_named(tmp_path, capsys):
    table = write_table(tmp_path / "purchases.csv", rows_of("a", "1", items(20)))
    assert cli.main(["import", str(tmp_path / "purchase.csv"), "--out", str(tmp_path / "out")]) == 4
    assert f"purchase.csv: No such file or directory; there is: {table}" in capsys.readouterr().err
    assert cli.main(["import", str(table), "--out", str(table / "out"), *SHORT]) == 4
    assert capsys.readouterr().err == f"nnlib: {table}/out: Not a directory: {table} is a file; name one in a folder\n"


def test_bad_gzip_ending_and_region(tmp_path, capsys):
    table = write_table(tmp_path / "p.csv.gz", rows_of("a", "1", items(20)))
    assert cli.main(["import", str(table), "--out", str(tmp_path / "o"), "--regions", "b", *SHORT]) == 4
    table.write_bytes(table.read_bytes()[:-20])
    assert cli.main(["import", str(table), "--out", str(tmp_path / "o")]) == 4
    (tmp_path / "p.pdf").write_text("x")
    assert cli.main(["import", str(tmp_path / "p.pdf"), "--out", str(tmp_path / "o")]) == 4
    assert cli.main(["import", str(tmp_path / "none.csv"), "--out", str(tmp_path / "o")]) == 4
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == 4
    for line, words in zip(shown, ("no region 'b'", "cannot be read", "ending", "No such"), strict=True):
        assert words in line


@given(st.text())
def test_slugs_are_safe(name):
    slug = slug_of(name)
    assert slug
    assert set(slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert not slug.startswith("-")
    assert len(slug) <= SLUG_LENGTH + 9


def test_slugs():
    assert slug_of("United Kingdom") == "united-kingdom"
    assert slug_of("EIRE") == "eire"
    assert len({slug_of(name) for name in HOSTILE}) == len(HOSTILE)
    assert all("-" in slug_of(name) for name in HOSTILE)


def test_missing_columns_name_the_nearest(tmp_path, capsys):
    table = write_table(tmp_path / "p.csv", [], ("Country", "Customer", "item", "dates"))
    assert cli.main(["import", str(table), "--out", str(tmp_path / "out")]) == 4
    there = "there are: Country, Customer, item, dates; name the right one with"
    assert capsys.readouterr().err.splitlines() == [
        f"nnlib: {table}:1: no column 'region', {there} --region-column",
        f"{table}:1: no column 'customer', {there} --customer-column, did you mean \"Customer\"?",
        f"{table}:1: no column 'date', {there} --time-column, or without times take --split random or "
        '--split column=NAME, did you mean "dates"?',
    ]


def imported(tmp_path, out="out", descriptions=None, regions=("a", "b")):
    table = write_table(tmp_path / "p.csv", [row for region in regions for row in rows_of(region, "1", items(20))])
    options = ["--items", str(descriptions)] if descriptions else []
    return cli.main(["import", str(table), "--out", str(tmp_path / out), *options, *SHORT])


def test_descriptions(tmp_path):
    path = tmp_path / "d.csv.gz"
    path.write_bytes(gzip.compress(b'item,description\n\ni001,"a ""b"", c"\nother,x\n', mtime=0))
    assert imported(tmp_path, descriptions=path) == 0
    assert (tmp_path / "out" / "items.csv").read_text().splitlines()[2:4] == ['1,i001,"a ""b"", c"', "2,i002,"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "d.csv",
            gzip.compress(b"item,description\n", mtime=0),
            "d.csv:1: cannot be read: it is gzipped; give it a name that",
        ),
        ("d.csv", b"item,description\ni001,caf\xe9\n", "legal: UTF-8 text, a header with item"),
        (
            "d.csv",
            b"item,description\ni001,caf\xe9\n",
            "d.csv:2: cannot be read: byte 0xe9 is not UTF-8; save it as UTF-8",
        ),
        (
            "d.csv.gz",
            b"item,description\n",
            "d.csv.gz:1: cannot be read: it is not gzipped; give it a name without .gz",
        ),
        ("d.csv", b"", "d.csv:1: the columns none, legal: a header with item, each once"),
        (
            "d.csv.gz",
            gzip.compress(b"code,description\n", mtime=0),
            "d.csv.gz:1: the columns code, description, legal: a header with item, each once",
        ),
        ("d.csv", b"item,description\n\na,b\na\n", "d.csv:4: 1 fields, the header has 2"),
    ],
)
def test_bad_descriptions(tmp_path, capsys, name, content, words):
    (tmp_path / name).write_bytes(content)
    assert imported(tmp_path, descriptions=tmp_path / name) == 4
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def failing_after(monkeypatch, count, error):
    """Let writing data fail with `error` after `count` files."""
    left = iter(range(count))

    def write(path, data, *options):
        if next(left, None) is None:
            raise error
        write_data(path, data, *options)

    monkeypatch.setattr(importer, "write_data", write)


FAILURES = [
    (KeyboardInterrupt(), 130, "interrupted"),
    (OSError(errno.ENOSPC, "the disk is full", "/else/.out.part/b.train.nc"), 75, "out/b.train.nc: the disk is full"),
]


@pytest.mark.parametrize(("error", "code", "words"), FAILURES)
def test_a_failure_leaves_no_new_folder(tmp_path, capsys, monkeypatch, error, code, words):
    (tmp_path / ".out.part").mkdir()
    (tmp_path / ".out.part" / "killed.nc").write_text("of an import that was killed")
    failing_after(monkeypatch, 5, error)
    assert imported(tmp_path) == code
    assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]
    monkeypatch.undo()
    assert imported(tmp_path) == 0
    assert len(list((tmp_path / "out").iterdir())) == 11
    assert "replaced" not in capsys.readouterr().err


@pytest.mark.parametrize(("error", "code", "words"), FAILURES)
def test_a_failure_leaves_an_existing_folder_as_it_was(tmp_path, capsys, monkeypatch, error, code, words):
    assert imported(tmp_path, regions=("a",)) == 0
    (tmp_path / "out" / "notes.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    failing_after(monkeypatch, 5, error)
    assert imported(tmp_path) == code
    assert words in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    monkeypatch.undo()
    assert imported(tmp_path) == 0
    files = "a.all.nc, a.final.nc, a.test.nc, a.train.nc, a.valid.nc, items.csv"
    assert capsys.readouterr().err.splitlines()[-1] == f"replaced in {tmp_path / 'out'}: {files}"
    assert len(list((tmp_path / "out").iterdir())) == 12


def test_out_is_a_file(tmp_path, capsys):
    (tmp_path / "out").write_text("x")
    assert imported(tmp_path) == 4
    assert "out: not a folder" in capsys.readouterr().err


def test_descriptions_are_not_replaced(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / "items.csv"
    path.write_text("item,description\ni001,mine\n")
    assert imported(tmp_path, descriptions=path) == 4
    assert "would be replaced by the items.csv of this import, legal for --out: a new folder" in capsys.readouterr().err
    assert path.read_text() == "item,description\ni001,mine\n"


WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
FEW = st.sampled_from(["a", "b", "aaaaaaaab", "aaaaaaaa", "é", "日本", "a,b", 'say "hi"', "two\nlines", "x" * 30])
TIMES = st.sampled_from(["2011-01-02", "2011-01-02T00:00:00", "2011-01-01 23:59", "20110102", "2011-01-02T01:00+01:00"])
STAGED, AMOUNTS = st.sampled_from(["train", "valid", "test"]), st.sampled_from(["1", "-2.5", "1e3", " 7"])
WHOLE = Columns(stage="part", quantity="quantity")
MANY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def tables(draw):
    """Rows, and how they are written."""
    rows = draw(st.lists(st.tuples(FEW | WORD, FEW | WORD, FEW | WORD, TIMES, STAGED, AMOUNTS), max_size=60))
    form = draw(
        st.fixed_dictionaries({"quoting": st.sampled_from([0, 1]), "lineterminator": st.sampled_from(["\n", "\r\n"])})
    )
    text = io.StringIO()
    csv.writer(text, **form).writerows([("region", "customer", "item", "date", "part", "quantity"), *rows])
    return draw(st.sampled_from(["", "\ufeff"])) + text.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        'region,customer,item,date\na,1,5" pipe,2011-01-01\n',
        "region,customer,item,date\ra,1,x,2011-01-01\r",
        "region,customer,item,date\na,1,x\0y,2011-01-01\n",
        f"region,customer,item,date\na,1,{'x' * 101_000},2011-01-01\n",
        "region,customer,item,date\na,1,x,2011-01-01\r\na,1,y,2011-01-01\n",  # line breaks of two kinds
        "region,customer,item,date\na,1,x,2011-W01-3\n",  # ISO 8601, but not to DuckDB
    ],
)
def test_what_is_not_plain_is_read_all_the_same(tmp_path, text):
    (tmp_path / "p.csv").write_bytes(text.encode())
    assert len(read(tmp_path / "p.csv").customers) == 1


def test_the_first_bad_line_of_a_table_is_named(tmp_path, capsys):
    rows = [*rows_of("a", "1", items(20)), ("a", "", "x", "2011-01-01"), ("a", "1", "x", "tomorrow")]
    path = write_table(tmp_path / "p.tsv.gz", rows)
    assert cli.main(["import", str(path), "--out", str(tmp_path / "out")]) == 4
    assert "p.tsv.gz:23: date: 'tomorrow' is not legal" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["p.tsv.gz"]


def test_rows_that_lack_something_are_left_out_and_counted(tmp_path, capsys):
    lacking = [("a", "", "x", "2011-01-01"), ("", "", "x", ""), ("a", "2", "", "2011-01-01"), ("a", "1", "x", "")]
    path = write_table(tmp_path / "p.csv", [*rows_of("a", "1", items(20)), *lacking])
    found = read(path)
    assert found.rows.count == 20 and found.customers == ["1"] and len(found.items) == 20
    assert found.left_out == {"region": 1, "customer": 1, "item": 1, "time": 1}
    lines = Counter()
    assert len(list(read_purchases(path, Columns(), lines))) == 20 and lines == found.left_out
    assert cli.main(["import", str(path), "--out", str(tmp_path / "out"), *SHORT]) == 0
    assert "left out: 1 rows without a customer: nobody to recommend to" in capsys.readouterr().err
    write_table(path, lacking[:1])
    assert cli.main(["import", str(path), "--out", str(tmp_path / "out"), *SHORT]) == 4
    assert "p.csv: no purchase is whole: 1 without customer; name the right columns" in capsys.readouterr().err


def gathered(found):
    """Every purchase of a table in the order of customers and items, as texts."""
    regions = np.repeat(found.regions, np.diff(found.first))
    return sorted(
        (regions[customer], found.customers[customer], found.items[item], int(day), int(stage), float(quantity))
        for block in found.rows.parts()
        for customer, item, day, stage, quantity in zip(*block, strict=True)
    )


@MANY
@given(tables(), st.sampled_from([1, 5, 1 << 20]))
def test_tables_give_what_their_lines_give(tmp_path, text, together):
    (tmp_path / "p.csv").write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(purchases, "TOGETHER", together)
        patch.setattr(purchases, "FETCHED", together)
        try:
            expected = gathered(gather_purchases(read_purchases(tmp_path / "p.csv", WHOLE)))
        except DataError as error:
            with pytest.raises(DataError, match=f"^{re.escape(str(error))}$"):
                read(tmp_path / "p.csv", WHOLE)
            return
        assert gathered(read(tmp_path / "p.csv", WHOLE)) == expected


def test_a_day_is_that_of_utc(tmp_path):
    times = {"2011-01-02T00:50:00+01:00": 14975, "2011-01-01T23:45:00": 14975, "2011-01-02": 14976, "20110101": 14975}
    times |= {"978300760": 11322, "1754788912": 20310, "1754788912345": 20310, "1899999999": 21990}  # since 1970
    times |= {"2011-01-01 00:00:00.000001": 14975, "1969-12-31T23:59:59": -1, "0001-01-01": -719162}
    table = write_table(tmp_path / "p.csv", [("r", "1", f"i{n:02}", time) for n, time in enumerate(times)])
    assert [row[3] for row in gathered(read(table))] == list(times.values())
    assert [row.day for row in read_purchases(table, Columns())] == list(times.values())


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("a,1,x,2011-01-01,dev,1", "p.csv:3: part: 'dev' is not legal, legal: train, valid, test"),
        ("a,1,x,2011-01-01,test,many", "p.csv:3: quantity: 'many' is not legal, legal: a number"),
        ("a,1,x,2011-01-01,test,nan", "p.csv:3: quantity: 'nan' is not legal, legal: a number"),
        ("a,1,x,2011-01-01,test,1e39", "p.csv:3: quantity: '1e39' is not legal, legal: a number"),
        ("a,1,x,2011120918,test,1", "p.csv:3: date: '2011120918' is not legal"),
        ("a,1,x,201112091859,test,1", "p.csv:3: date: '201112091859' is not legal"),
        (
            "a,1,x,12345,test,1",
            "p.csv:3: date: '12345' is not legal, legal: ISO 8601 (2011-12-09), or seconds or milli",
        ),
    ],
)
def test_values_that_are_none_are_named(tmp_path, row, words):
    (tmp_path / "p.csv").write_text(f"region,customer,item,date,part,quantity\na,1,x,2011-01-01,train,2\n{row}\n")
    with pytest.raises(DataError, match=re.escape(words)):
        read(tmp_path / "p.csv", WHOLE)


def test_a_column_of_times_may_be_missing_where_none_is_needed(tmp_path):
    (tmp_path / "p.csv").write_text("region,customer,item\na,1,x\n")
    found = read(tmp_path / "p.csv", Columns(time_needed=False))
    assert (found.timed, found.rows.count) == (False, 1)
    with pytest.raises(
        DataError, match=r"no column 'date', .* or without times take --split random or --split column="
    ):
        read(tmp_path / "p.csv")


def test_progress_is_told_every_hundred_thousand_lines(tmp_path):
    told = []
    path = write_table(tmp_path / "t.csv", rows_of("A", "c", items(20)))
    assert len(list(read_purchases(path, Columns(), report=lambda *numbers: told.append(numbers)))) == 20
    assert told == []
    breaks = "\n" * 99_998  # within one field: the first purchase ends with line 100,000
    path.write_text(f'region,customer,item,date\nA,"c{breaks}",i,2011-01-01\nA,c,i,2011-01-01\n')
    assert len(list(read_purchases(path, Columns(), report=lambda *numbers: told.append(numbers)))) == 2
    assert told == [(0, 100_000)]


def test_an_unreadable_table_says_what_to_do_to_the_last_word():
    gzipped = UnicodeDecodeError("utf-8", b"\x1f\x8bxx", 1, 2, "invalid start byte")
    assert explain_unreadable(gzipped) == "it is gzipped; give it a name that ends in .gz"
    binary = UnicodeDecodeError("utf-8", b"ab\0\xff", 3, 4, "invalid start byte")
    assert explain_unreadable(binary) == "it is no text; export it as CSV"
    latin = UnicodeDecodeError("utf-8", b"a\nb\nc\xe9", 5, 6, "invalid start byte")
    assert explain_unreadable(latin).startswith("byte 0xe9 is not UTF-8; ")
    assert [count_lines_read(error) for error in (latin, EOFError())] == [2, 0]
    assert explain_unreadable(gzip.BadGzipFile("Not a gzipped file (b'ab')")).endswith("a name without .gz")
    damaged = "it is gzipped and ends too early, or is damaged; copy or make it again"
    assert {explain_unreadable(error) for error in (EOFError(), gzip.BadGzipFile("CRC check failed"))} == {damaged}
    assert explain_unreadable(csv.Error("oh")) == "oh; legal: CSV with quotes as in RFC 4180"
