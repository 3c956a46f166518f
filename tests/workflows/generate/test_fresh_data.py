"""Data sets that are made of a table of purchases, anew when that or its split has changed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from regiondag.cli import main
from regiondag.config.load import load_config
from regiondag.errors import ConfigError
from regiondag.generate.fresh_data import refresh_data
from tests.workflows.shop import FIRST_DAY, STUDY, write_shop, write_table

SLUGS = ["avon", "berg", "cove", "dale"]


def stamps(folder):
    return {path.name: path.stat().st_mtime_ns for path in sorted((folder / "data").glob("*.nc"))}


@pytest.fixture
def shop(tmp_path):
    study = write_shop(tmp_path)
    refresh_data(study)
    return study


def is_imported_again(study):
    before = stamps(study.parent)
    refresh_data(study)
    after = stamps(study.parent)
    changed = {name for name in after if before.get(name) != after[name]}
    assert changed in (set(), set(after))  # all of them, or none
    return bool(changed)


def test_the_table_is_imported_once(shop, capsys):
    assert {name.partition(".")[0] for name in stamps(shop.parent)} == set(SLUGS)
    assert not is_imported_again(shop)
    assert capsys.readouterr().out == ""


def test_a_study_without_a_table_imports_nothing(study_file):
    before = sorted((study_file.parent / "data").iterdir())
    refresh_data(study_file)
    assert sorted((study_file.parent / "data").iterdir()) == before


def test_a_new_table_is_imported(shop):
    write_table(shop.parent / "shop.csv", seed=2)
    assert is_imported_again(shop)
    assert not is_imported_again(shop)


@pytest.mark.parametrize(
    "data",
    ["split: {test: 14d}", "split: {min_history: 3}", "split: {by: random}"],
)
def test_another_split_is_imported(shop, data):
    shop.write_text(STUDY.replace("shop.csv}", f"shop.csv, {data}}}"))
    assert is_imported_again(shop)
    assert not is_imported_again(shop)


@pytest.mark.parametrize(
    "text",
    [
        STUDY.replace("shop.csv}", "shop.csv, min_customers: 3}"),
        STUDY.replace("shop.csv}", "shop.csv, split: {by: time}}"),  # what it is anyhow
        STUDY.replace("rounds: 2", "rounds: 3"),
    ],
)
def test_what_does_not_change_the_data_sets(shop, text):
    shop.write_text(text)
    assert not is_imported_again(shop)


def test_columns_have_the_names_that_the_study_says(tmp_path):
    study = write_shop(tmp_path, STUDY.replace("shop.csv}", "shop.csv, columns: {region: country, time: day}}"))
    table = tmp_path / "shop.csv"
    table.write_text(table.read_text().replace("region,customer,item,date", "country,customer,item,day"))
    refresh_data(study)
    assert set(SLUGS) == {name.partition(".")[0] for name in stamps(tmp_path)}


@pytest.mark.parametrize("missing", [SLUGS, SLUGS[:1]])
def test_data_sets_that_were_removed_are_made_again(shop, missing):
    for slug in missing:
        for path in (shop.parent / "data").glob(f"{slug}.*.nc"):
            path.unlink()
    assert is_imported_again(shop)
    assert {region.slug for region in load_config(shop).regions} == {*SLUGS, "pooled"}


def test_a_region_that_left_the_table_is_no_region_any_more(shop):
    mine = shop.parent / "data" / "mine.nc"
    mine.write_bytes(b"somebody else's")
    write_table(shop.parent / "shop.csv", regions={"Avon": 60, "Berg": 40})
    refresh_data(shop)
    assert [region.slug for region in load_config(shop).regions] == ["pooled", "avon", "berg"]
    assert mine.exists()
    mine.unlink()
    assert not is_imported_again(shop)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"of": 1, "files": [["../shop.csv"]]}', '{"of": 1, "files": 3}'])
def test_a_damaged_note_of_what_was_imported_says_nothing(shop, text):
    (shop.parent / "data" / ".imported.json").write_text(text)
    assert is_imported_again(shop)
    assert (shop.parent / "shop.csv").exists()


def test_a_table_that_cannot_be_read_is_told_with_its_line(shop):
    table = shop.parent / "shop.csv"
    lines = table.read_text().splitlines()
    lines[6] = lines[6].rpartition(",")[0] + ",yesterday"
    whole = table.read_text()
    table.write_text("\n".join(lines) + "\n")
    before = stamps(shop.parent)
    with pytest.raises(ConfigError, match=r"study\.yaml: data: .*/shop\.csv:7: date: 'yesterday' is not legal"):
        refresh_data(shop)
    assert stamps(shop.parent) == before
    table.write_text(whole)
    assert not is_imported_again(shop)  # as nothing was written


def test_options_of_the_import_are_keys_of_the_study(shop):
    shop.write_text(STUDY.replace("shop.csv}", "shop.csv, split: {test: 365d}}"))
    words = r"take shorter ones \(--validate .*; in study\.yaml its options are keys of data\.split, --split is by"
    with pytest.raises(ConfigError, match=words):
        refresh_data(shop)


@pytest.mark.parametrize(("days", "part", "use"), [((60, 10), "valid", "chosen"), ((90, 40), "test", "tested")])
def test_a_table_with_nobody_to_ask_in_one_of_the_windows(tmp_path, days, part, use):
    """Everybody has eight items before one of the two windows, and takes a ninth in it."""
    study, last = write_shop(tmp_path), FIRST_DAY + timedelta(199)
    lines = ["region,customer,item,date", f"Avon,c0,i0,{last}", f"Avon,c0,i0,{last - timedelta(150)}"]
    for customer in range(20):
        items = [(customer + n) % 15 for n in range(9)]
        before, then = (last - timedelta(ago) for ago in days)
        if part == "valid":
            before = last - timedelta(40)  # all of it after the validation window began
        lines += [f"Avon,c{customer},i{item},{before}" for item in items[:-1]]
        lines.append(f"Avon,c{customer},i{items[-1]},{then}")
    (tmp_path / "shop.csv").write_text("\n".join(lines) + "\n")
    refresh_data(study)
    with pytest.raises(
        ConfigError, match=f"nobody of any region is asked in the {part} part, so that nothing can be {use}"
    ):
        load_config(study)


def test_a_table_that_is_not_there(shop):
    (shop.parent / "shop.csv").unlink()
    with pytest.raises(ConfigError, match=r"shop\.csv: No such file or directory; legal for data\.purchases: a table"):
        refresh_data(shop)


def test_only_the_runs_path_is_printed(shop, capfd):
    (shop.parent / "data" / ".imported.json").unlink()
    assert main(["generate", str(shop), "--quiet"]) == 0
    [line] = capfd.readouterr().out.splitlines()
    assert line.startswith(str(shop.parent / "runs" / "run-shop-"))
    assert not is_imported_again(shop)


def test_what_is_wrong_with_the_table_is_told_with_all_other_mistakes(shop):
    """As `generate` and `update` do: data first, then the study."""
    text = shop.read_text().replace("shop.csv", "shop.csv, split: {tset: 7d}").replace("knn", "kn")
    shop.write_text(text)
    refresh_data(shop)
    with pytest.raises(ConfigError) as caught:
        load_config(shop)
    assert ["tset" in problem or "'kn' is none" in problem for problem in caught.value.problems] == [True, True]
