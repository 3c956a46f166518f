"""Encodings, separators, dates and columns, each guessed of little."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.errors import DataError
from nnlib.importing.sniffing.ambiguous import AmbiguousError
from nnlib.importing.sniffing.column_names import WORDS, rate_name
from nnlib.importing.sniffing.column_roles import find_roles, sample_column
from nnlib.importing.sniffing.dates import FORMS, explain_form, list_forms
from nnlib.importing.sniffing.text_form import guess_encoding, guess_separator

# --- encodings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "written", "guessed"),
    [
        ("a,b\n1,2\n", "utf-8", "utf-8"),
        ("Größe,Öl\n", "utf-8", "utf-8"),
        ("Größe,Öl\n", "utf-8-sig", "utf-8"),
        ("Größe,Café,£5\n", "cp1252", "cp1252"),
        ("Größe,Café\n", "latin-1", "cp1252"),
        ("customer,item\n1,2\n", "utf-16", "utf-16"),
        ("customer,item\n1,2\n", "utf-16-le", "utf-16-le"),
        ("customer,item\n1,2\n", "utf-16-be", "utf-16-be"),
        ("customer,item\n1,2\n", "utf-32", "utf-32"),
    ],
)
def test_encodings(text, written, guessed):
    assert guess_encoding(text.encode(written), True).value == guessed


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("город,товар\nМосква,чай\n", "cp1251"),
        ("miasto\nŁódź,śliwka\n", "cp1250"),
        ("店,商品\n東京,お茶\n", "shift_jis"),
    ],
)
def test_encodings_that_only_a_person_knows(text, written):
    with pytest.raises(AmbiguousError) as caught:
        guess_encoding(text.encode(written), True)
    assert caught.value.wish == "encoding" and written in [value for value, _ in caught.value.answers]
    assert "line" in str(caught.value) and f"--encoding {written}" in str(caught.value)


def test_a_character_that_is_cut_is_no_mistake():
    assert guess_encoding("aé".encode()[:-1], whole=False).value == "utf-8"


# --- separators --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("a,b,c\n1,2,3\n", ","),
        ("a;b;c\n1,5;2;3\n4,5;5;6\n", ";"),
        ("a\tb\n1,2\t3\n", "\t"),
        ("a|b|c\nx;y|2|3\n", "|"),
        ('a,b\n"x;1;2",3\n"y;1;2",4\n', ","),
    ],
)
def test_separators(text, separator):
    assert guess_separator(text, True).value == separator


def test_separators_that_are_none_or_several():
    with pytest.raises(AmbiguousError, match="--separator ,"):
        guess_separator("a,b;c\n1,2;3\n", True)
    with pytest.raises(DataError, match="no separator gives every line as many fields"):
        guess_separator("one column\n1\n2\n", True)
    with pytest.raises(DataError, match="'sep=' is for a spreadsheet"):
        guess_separator("sep=;\na;b\n", True)


# --- dates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "forms"),
    [
        ({"2011-12-09", "2011-12-09T08:00:00Z"}, [""]),
        ({"1322697600"}, [""]),
        ({"20111209"}, [""]),
        ({"31/12/2024", "01/02/2024"}, ["%d/%m/%Y"]),
        ({"12/31/2024", "01/02/2024"}, ["%m/%d/%Y"]),
        ({"12/1/2010 8:26", "12/13/2010 8:26"}, ["%m/%d/%Y %H:%M"]),
        ({"03/04/2025"}, ["%d/%m/%Y", "%m/%d/%Y"]),
        ({"11/12/10"}, ["%d/%m/%y", "%m/%d/%y", "%y/%m/%d"]),
        ({"13.2.24"}, ["%d.%m.%y", "%y.%m.%d"]),
        ({f"{n % 28 + 1}.{n % 12 + 1}.{23 + n % 2}" for n in range(300)}, ["%d.%m.%y"]),
        ({f"{n % 28 + 1:02}/01/2024" for n in range(300)} | {"soon"}, ["%d/%m/%Y"]),
        ({"2024/01/31 23:59:59"}, ["%Y/%m/%d %H:%M:%S"]),
        ({"3 Feb 2024"}, ["%d %b %Y"]),
        ({"13/01/2024", "01/13/2024"}, []),
        ({"A12"}, []),
        (set(), []),
    ],
)
def test_dates(texts, forms):
    assert list_forms(texts) == forms


@given(st.sampled_from(FORMS), st.lists(st.datetimes(datetime.datetime(1970, 1, 1), datetime.datetime(2068, 1, 1))))
def test_a_form_is_among_those_that_its_own_dates_have(form, moments):
    texts = {moment.strftime(form) for moment in moments}
    if texts and list_forms(texts) != [""]:  # 20240102 is ISO's, too
        assert form in list_forms(texts)


def test_forms_are_told_in_words():
    assert explain_form("%d/%m/%Y %H:%M") == "day/month/year" and explain_form("%b %d, %Y") == "month day, year"


# --- columns -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("store client sku when", "region customer item time"),
        ("Country|Customer ID|StockCode|InvoiceDate|Invoice|Price", "region customer item time - -"),
        (
            "Filiale Kundennr. Artikelnummer Kaufdatum Menge Bezeichnung",
            "region customer item time quantity description",
        ),
        ("pays client produit date quantité libellé", "region customer item time quantity description"),
        ("tienda cliente artículo fecha cantidad", "region customer item time quantity"),
        ("userId movieId timestamp rating", "customer item time -"),
        ("order_id user_id product_id product_name order_date", "- customer item description time"),
        ("sklep klient towar data ilość nazwa", "region customer item time quantity description"),
    ],
)
def test_names_in_several_languages(names, expected):
    for name, meaning in zip(names.split("|") if "|" in names else names.split(), expected.split(), strict=True):
        rates = {one: rate_name(one, name) for one in WORDS}
        best = max(rates, key=lambda one: rates[one])
        assert (best if rates[best] else "-") == meaning, (name, rates)


def columns(**texts):
    return [sample_column(name, values) for name, values in texts.items()]


DAYS = [f"2024-01-{day:02}" for day in range(1, 21)]


def test_columns_whose_names_say_nothing():
    table = columns(a=[f"c{n % 5}" for n in range(20)], item=[f"i{n % 4}" for n in range(20)], x=DAYS)
    assert find_roles(table, {}).columns == {"customer": "a", "item": "item", "time": "x"}
    table += columns(b=[f"d{n % 5}" for n in range(20)])
    with pytest.raises(AmbiguousError) as caught:
        find_roles(table, {})
    assert caught.value.wish == "customer" and [value for value, _ in caught.value.answers] == ["a", "b"]
    assert find_roles(table, {"customer": "b"}).columns["customer"] == "b"


def test_what_a_column_holds_counts_more_than_its_name():
    table = columns(customer=["same"] * 20, user=[f"u{n % 6}" for n in range(20)], item=["a", "b"] * 10, date=DAYS)
    assert find_roles(table, {}).columns["customer"] == "user"
    table = columns(user=[f"u{n % 6}" for n in range(20)], item=["a", "b"] * 10, date=["soon"] * 20, x=DAYS)
    assert find_roles(table, {}).columns["time"] == "x"


def test_two_columns_that_may_be_the_time():
    table = columns(user=["u", "v"] * 10, item=["a", "b"] * 10, first=DAYS, second=DAYS)
    with pytest.raises(AmbiguousError, match="several columns may be the time's"):
        find_roles(table, {})


def test_a_table_without_items():
    with pytest.raises(DataError, match="no column that could be the item's, there are: 'user', 'date'; name it"):
        find_roles(columns(user=["u", "v"] * 10, date=DAYS), {})
