"""One table in every form that is legal gives the same purchases."""

import gzip

import pytest
import zstandard

from nnlib.errors import DataError
from nnlib.importing.purchase_lines import Columns
from nnlib.importing.table_source import TableFormat, find_source
from nnlib.util.tables import Tables, quote
from tests.nnlib.importing.test_purchases import gathered, read

ROWS = [
    ("Süd", "1", "Öl, 5 €", "2011-01-02"),
    ("Süd", "2", 'say "hi"', "2011-01-03"),
    ("Nord", "1", "Öl, 5 €", "2011-01-02"),
]
EXPECTED = sorted(
    [
        ("Süd", "1", "Öl, 5 €", 14976, 0, 0.0),
        ("Süd", "2", 'say "hi"', 14977, 0, 0.0),
        ("Nord", "1", "Öl, 5 €", 14976, 0, 0.0),
    ]
)


def text_of(rows=ROWS, separator=","):
    lines = [("region", "customer", "item", "date"), *rows]
    cells = [['"' + cell.replace('"', '""') + '"' for cell in line] for line in lines]
    return "\n".join(separator.join(line) for line in cells) + "\n"


def write_parquet(path, select, folder):
    folder.mkdir()
    tables = Tables(folder)
    tables.run(f"COPY ({select}) TO {quote(str(path))} (FORMAT parquet)")
    tables.close()


def select_rows(customer="'{}'", date="DATE '{}'"):
    return " UNION ALL ".join(
        f"SELECT {quote(region)} AS region, {customer.format(who)} AS customer, {quote(item)} AS item, "
        f"{date.format(day)} AS date"
        for region, who, item, day in ROWS
    )


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("p.csv", text_of().encode()),
        ("p [1]*.csv", text_of().encode()),
        ("p.csv.gz", gzip.compress(text_of().encode())),
        ("p.csv.zst", zstandard.compress(text_of().encode())),
        ("p.tsv.zst", zstandard.compress(b"\xef\xbb\xbf" + text_of(separator="\t").encode())),
        ("p.txt", text_of(separator="\t").encode()),
    ],
)
def test_text_files(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    assert gathered(read(tmp_path / name)) == EXPECTED


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-8"])
@pytest.mark.parametrize("packed", [False, True])
def test_encodings_and_separators(tmp_path, encoding, packed):
    text = text_of(separator=";").replace("€", "E" if encoding == "latin-1" else "€")
    data = text.encode(encoding)
    path = tmp_path / ("p.csv.gz" if packed else "p.csv")
    path.write_bytes(gzip.compress(data) if packed else data)
    found = gathered(read(path, Columns(format=TableFormat(";", encoding))))
    assert [row[:2] for row in found] == [row[:2] for row in EXPECTED]
    assert {row[2] for row in found} == {'say "hi"', "Öl, 5 E" if encoding == "latin-1" else "Öl, 5 €"}


@pytest.mark.parametrize("customer", ["'{}'", "{}::BIGINT", "{}.0::DOUBLE"])
@pytest.mark.parametrize(
    "date", ["DATE '{}'", "TIMESTAMP '{} 23:59:59'", "TIMESTAMPTZ '{} 00:00:00+00'", "'{}'", "epoch_ms(DATE '{}')"]
)
def test_parquet_of_any_types(tmp_path, customer, date):
    write_parquet(tmp_path / "p.parquet", select_rows(customer, date), tmp_path / "made")
    assert gathered(read(tmp_path / "p.parquet")) == EXPECTED


def test_a_folder_of_files_whose_columns_are_in_other_orders(tmp_path):
    folder = tmp_path / "sales"
    folder.mkdir()
    (folder / "1.csv").write_text(text_of(ROWS[:2]))
    region, customer, item, date = ROWS[2]
    (folder / "2.csv.gz").write_bytes(
        gzip.compress(f'date,item,more,customer,region\n{date},"{item}",x,{customer},{region}\n'.encode())
    )
    (folder / "README.md").write_text("not a table")
    assert gathered(read(folder)) == EXPECTED
    (folder / "3.tsv").write_text("date\titem\n")
    with pytest.raises(DataError, match=r"3\.tsv:1: no column 'region', which other files of the folder have"):
        read(folder)


def test_a_folder_of_parquet(tmp_path):
    (tmp_path / "sales").mkdir()
    write_parquet(tmp_path / "sales" / "1.parquet", select_rows(), tmp_path / "made")
    assert gathered(read(tmp_path / "sales")) == EXPECTED
    (tmp_path / "sales" / "2.csv").write_text(text_of())
    with pytest.raises(DataError, match="holds Parquet and text files"):
        read(tmp_path / "sales")


@pytest.mark.parametrize("line_by_line", [False, True])
def test_dates_decimals_descriptions_and_one_region(tmp_path, line_by_line):
    last = "y;2;31.12.2010;-1.000,25;Pear" + ("\r" if line_by_line else "")  # another line break
    text = f"item;who;on;amount;title\nx;1;03.04.2011;1.234,5;Plum\nx;1;3.4.2011;1;Plum\nx;2;1.1.2011;;\n{last}\n"
    (tmp_path / "p.csv").write_text(text.replace(";;\n", ";0;Apple\n"))
    columns = Columns("", "who", "item", "on", quantity="amount", description="title", one_region="Shop's")
    form = TableFormat(";", dates="%d.%m.%Y", decimal=",")
    found = read(tmp_path / "p.csv", type(columns)(**{**as_dict(columns), "format": form}))
    assert gathered(found) == [
        ("Shop's", "1", "x", 15067, 0, 1.0),
        ("Shop's", "1", "x", 15067, 0, 1234.5),
        ("Shop's", "2", "x", 14975, 0, 0.0),
        ("Shop's", "2", "y", 14974, 0, -1000.25),
    ]
    assert found.descriptions == ["Plum", "Pear"]


def as_dict(columns):
    return {name: getattr(columns, name) for name in columns.__slots__}


def test_what_is_wrong_in_files_without_lines_is_told_by_row(tmp_path):
    (tmp_path / "p.csv.zst").write_bytes(zstandard.compress(text_of().replace("2011-01-03", "3/1/2011").encode()))
    with pytest.raises(DataError, match=r"p\.csv\.zst: row 2: date: '3/1/2011' is not legal, legal: ISO 8601"):
        read(tmp_path / "p.csv.zst")
    (tmp_path / "q.csv.zst").write_bytes(zstandard.compress(b"region,customer,item,date\na,1,x\n"))
    with pytest.raises(DataError, match=r"q\.csv\.zst: .*Line: 2.*Expected Number of Columns: 4 Found: 3"):
        read(tmp_path / "q.csv.zst")
    (tmp_path / "r.parquet").write_text("no parquet")
    with pytest.raises(DataError, match=r"r\.parquet: .*r\.parquet"):
        read(tmp_path / "r.parquet")


def test_names_and_encodings_that_are_none_are_refused(tmp_path):
    (tmp_path / "p.xlsx").write_text("")
    with pytest.raises(DataError, match=r"p\.xlsx: the name's ending is not legal, legal: \.csv, \.tsv"):
        find_source(tmp_path / "p.xlsx", TableFormat())
    (tmp_path / "p.csv").write_text("")
    with pytest.raises(DataError, match="no encoding 'latin-99', legal: utf-8, latin-1"):
        find_source(tmp_path / "p.csv", TableFormat(encoding="latin-99"))
    with pytest.raises(FileNotFoundError):
        find_source(tmp_path / "none.csv", TableFormat())
