"""The study that `regiondag init --data` writes, and what it shows before."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nnlib.importing.sniffing.look import Wishes, look_at
from regiondag.config.keys import describe_study
from regiondag.config.load import load_purchases
from regiondag.errors import UsageError
from regiondag.newstudy.describe import describe_look, find_doubts
from regiondag.newstudy.write import SCHEMA, compose_study, find_path, name_file, name_study, quote_yaml, write_study
from regiondag.util.yaml_file import parse_yaml

TODAY = 20_500
GB = 1 << 30
GERMAN = "Filiale;Kundennr.;Artikelnummer;Bezeichnung;Menge;Datum\r\n" + "".join(
    f"Köln {n % 3};{n % 40 or ''};A{n % 9:03};Größe {n % 9} Öl;{'-1' if n % 11 == 0 else '1,5'};"
    f"{n % 28 + 1:02}.{n % 12 + 1:02}.2024\r\n"
    for n in range(400)
)
SHOWN = """\
{path}: 400 rows, 18.3 KiB, separator
  semicolon, encoding cp1252 (byte 0xf6 in line 2 is not UTF-8; it reads 'Köln')
column         means        because
Filiale        region       by its name; 3 of them in 400 rows
Kundennr.      customer     by its name; 39 of them in 390 rows
Artikelnummer  item         by its name; 9 of them in 400 rows
Datum          time         by its name; written day.month.year
Bezeichnung    description  by its name
Menge          quantity     by its name

purchases  354
days       363, 2024-01-01 to 2024-12-28; written day.month.year
regions    3; largest Köln 0 (39 customers, 118 rows), smallest Köln 2 (39
           customers, 118 rows)
customers  117
items      9
left out   10 rows without a Kundennr.: nobody to recommend to
           36 rows whose Menge is 0 or below: returned or cancelled

The first 5 rows, as understood:
region  customer  item  date        quantity  description
Köln 1  1         A001  2024-02-02  1,5       Größe 1 Öl
Köln 2  2         A002  2024-03-03  1,5       Größe 2 Öl
Köln 0  3         A003  2024-04-04  1,5       Größe 3 Öl
Köln 1  4         A004  2024-05-05  1,5       Größe 4 Öl
Köln 2  5         A005  2024-06-06  1,5       Größe 5 Öl"""
WRITTEN = """\
# yaml-language-server: $schema=.regiondag/study.schema.json
study: laden                                  # what runs and champions are called by
data:
  purchases: ../de.csv                        # stays where it is; each run looks whether it has changed
  columns:                                    # what the table calls them
    region: Filiale
    customer: Kundennr.
    item: Artikelnummer
    time: Datum
    description: Bezeichnung                  # recommendations show it
    quantity: Menge                           # rows of 0 or below came back: left out
  format: {separator: ";", encoding: cp1252, dates: "%d.%m.%Y", decimal: ","}  # how its texts are to be read
job: {gpus: 0, cpus: 1, memory: 1GB, disk: 1GB}  # no GPU needed; memory by the size of the data
# search: {rounds: 2}                         # for a first look: fewer trials than usual
"""


@pytest.fixture
def look(tmp_path):
    (tmp_path / "de.csv").write_bytes(GERMAN.encode("cp1252"))
    (tmp_path / "scratch").mkdir()
    return look_at(tmp_path / "de.csv", Wishes(one_region="laden"), tmp_path / "scratch")


def test_what_is_shown(look):
    shown = describe_look(look, TODAY)
    head, rest = shown.split("\ncolumn ", 1)
    assert head.replace("\n  ", " ").startswith(f"{look.source.path}: 400 rows")
    assert rest == SHOWN.split("\ncolumn ", 1)[1]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_what_is_shown_fits(look, width):
    assert max(map(len, describe_look(look, TODAY, width).splitlines())) <= width
    assert find_doubts(look, TODAY) == []
    assert find_doubts(look, 19_000) == [
        "the last day, 2024-12-28, is in the future: is the order of day and month right?"
    ]


def test_the_study(look, tmp_path):
    study = write_study(tmp_path / "laden", look, 8 * GB)
    assert study.read_text() == WRITTEN
    schema = json.loads((tmp_path / "laden" / SCHEMA).read_text())
    assert schema == describe_study()
    jsonschema.validate(yaml.safe_load(WRITTEN), schema)
    found = load_purchases(study)
    assert found.table.resolve() == tmp_path / "de.csv" and found.columns["quantity"] == "Menge"


def test_one_region_and_no_times(tmp_path):
    (tmp_path / "p.csv").write_text("user,item\n" + "".join(f"u{n % 9},i{n % 5}\n" for n in range(60)))
    (tmp_path / "scratch").mkdir()
    look = look_at(tmp_path / "p.csv", Wishes(one_region="my-shop"), tmp_path / "scratch")
    study = yaml.safe_load(compose_study("my-shop", name_file("../p.csv"), look, 8 * GB))
    assert study["data"] == {
        "purchases": "../p.csv", "region": "my-shop", "columns": {"customer": "user"}, "split": "random",
    }  # fmt: skip
    shown = describe_look(look, TODAY)
    assert "regions    1, my-shop: no column says it" in shown and "doubtful   no column of times" in shown


def test_names_and_paths(tmp_path):
    assert name_study(tmp_path / "my shop's €") == "my-shop-s" and name_study(tmp_path / "€") == "study"
    assert find_path(tmp_path / "a" / "p.csv", tmp_path / "shop") == "../a/p.csv"
    assert find_path(Path("/elsewhere/p.csv"), tmp_path / "shop") == "/elsewhere/p.csv"
    for wrong in ("a\nb", "\x1b[2J", " ", ""):
        with pytest.raises(UsageError, match=r"cannot stand in study\.yaml"):
            quote_yaml(wrong)


@given(st.text())
def test_any_text_is_quoted(text):
    try:
        written = quote_yaml(text)
    except UsageError:
        return
    assert parse_yaml(f"a: {written}  # note\nb: {{c: {written}, d: 1}}\n", "x").value == {
        "a": text, "b": {"c": text, "d": 1},
    }  # fmt: skip
