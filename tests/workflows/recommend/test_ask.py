"""Customers wherever they are, names that are near, and files of answers."""

from __future__ import annotations

import csv
import json

import duckdb
import pytest

from nnlib.prediction.recommender import NOTHING_KNOWN
from regiondag.cli import main
from regiondag.recommend.find_customers import find_near
from tests.workflows.recommend.made_up import NIGHT, place_run, place_study


@pytest.fixture
def study(tmp_path):
    return place_study(tmp_path)


def ask(study, *words):
    return main(["recommend", str(study), *words])


def answers(capsys, study, *words):
    assert ask(study, *words, "--json") == 0
    return json.loads(capsys.readouterr().out)["answers"]


def refused(capsys, study, *words, code=2):
    try:
        found = ask(study, *words)
    except SystemExit as end:
        found = end.code
    told = capsys.readouterr()
    assert (found, told.out) == (code, ""), told
    return told.err


def test_a_customer_is_found_in_his_region_and_named(study, capsys):
    assert ask(study, "--customer", "b0", "-k", "24", "--owned", "--because") == 0
    told = capsys.readouterr()
    assert told.out.startswith("Berg, customer b0: by ease\n")
    assert "Red, big" in told.out and "because" in told.out
    assert told.err == ""


def test_json_has_everything_unrounded(study, capsys):
    [one] = answers(capsys, study, "--customer", "c2", "-k", "3", "--because", "1")
    assert (one["region"], one["slug"], one["version"]) == ("Côte d'Ivoire", "cote-d-ivoire", NIGHT)
    assert (one["known"], one["by"], [item["rank"] for item in one["items"]]) == (True, "ease", [1, 2, 3])
    assert all(len(item["because"]) <= 1 for item in one["items"])
    assert len(repr(one["items"][0]["score"])) > 6


def test_some_customers_in_their_order_by_a_file(study, capsys, tmp_path):
    (tmp_path / "ids.txt").write_text("c1\nb5\n\nc1\nb3\n")
    found = answers(capsys, study, "--customers", str(tmp_path / "ids.txt"))
    assert [one["customer"] for one in found] == ["c1", "b5", "b3"]
    assert found[2]["by"] == NOTHING_KNOWN


def test_a_stranger_gets_what_is_popular_with_names_that_are_near(study, capsys):
    assert ask(study, "--customer", "B17", "--region", "berg") == 0
    told = capsys.readouterr()
    assert told.out.startswith("Berg, customer B17: by recent popularity: no such customer in the data\n")
    assert told.err == "no customer 'B17' in Berg. Did you mean 'b17'?\n"
    [one] = answers(capsys, study, "--customer", "xyz")
    assert (one["region"], one["known"], one["near"]) == ("Berg", False, [])  # the largest region
    assert "in any region" in (ask(study, "--customer", "xyz") or capsys.readouterr().err)


def test_near_names():
    assert find_near("N001", ["n001 ", "N002", "N0011", "other"])[0] == "n001 "
    assert find_near("12853", ["12583", "99"]) == ["12583"]
    assert find_near("x", []) == []


def test_filters(study, capsys, tmp_path):
    [plain] = answers(capsys, study, "--customer", "b0", "-k", "24")
    items = [one["item"] for one in plain["items"]]
    (tmp_path / "never.txt").write_text(f"{items[0]}\n")
    [left] = answers(capsys, study, "--customer", "b0", "-k", "24", "--never", str(tmp_path / "never.txt"))
    assert [one["item"] for one in left["items"]] == items[1:]
    [only] = answers(capsys, study, "--customer", "b0", "--only", items[3], items[2], "--exclude", "owned")
    assert [one["item"] for one in only["items"]] == items[2:4]


def test_mistakes_are_said(study, capsys, tmp_path):
    said = refused(capsys, study, "--customer", "b0", "--region", "Bergg")
    assert "no region 'Bergg'" in said and "did you mean 'Berg'?" in said
    assert "'0' is not legal, legal: a whole number from 1" in refused(capsys, study, "--customer", "b0", "-k", "0")
    said = refused(capsys, study, "--customer", "b0", "--only", "x")
    assert "--only: none of 1 items is known, legal: some of the model's 24 items, such as" in said
    said = refused(capsys, study, "--customer", "b0", "--never", "x")
    assert "--never: no such item: x; legal: ids of items, such as i0" in said
    assert "one of the arguments --customer --customers --all is required" in refused(capsys, study)
    (tmp_path / "empty.txt").write_text("\n")
    assert "no id in it" in refused(capsys, study, "--customers", str(tmp_path / "empty.txt"))
    said = refused(capsys, study, "--customer", "b0", "--out", "x.txt")
    assert "legal: a name ending in .csv, .json, .jsonl, .parquet" in said
    assert "there is no folder" in refused(capsys, study, "--customer", "b0", "--out", str(tmp_path / "no" / "x.csv"))


def test_a_study_without_champions_says_what_to_do(tmp_path, capsys):
    study = tmp_path / "shop"
    study.mkdir()
    (study / "study.yaml").write_text("study: shop\n")
    assert "no champion" in refused(capsys, study, "--customer", "b0", code=1)
    place_run(study, champions=False)
    assert "its newest run is to end first: regiondag status" in refused(capsys, study, "--customer", "b0", code=1)


def test_files_of_every_kind_say_the_same(study, capsys, tmp_path):
    wanted = [
        (one["region"], one["customer"], item["rank"], item["item"], item["name"], item["score"])
        for one in answers(capsys, study, "--customer", "b0", "--customer", "c1", "--because")
        for item in one["items"]
    ]
    for kind in ("csv", "json", "jsonl", "parquet"):
        path = tmp_path / f"best.{kind}"
        assert ask(study, "--customer", "b0", "--customer", "c1", "--because", "--out", str(path)) == 0
        told = capsys.readouterr()
        assert (told.out, told.err) == ("", f"{path}: 20 rows\n")
        assert read(path) == wanted


def read(path):
    if path.suffix == ".csv":
        rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
        found = [(r["region"], r["customer"], int(r["rank"]), r["item"], r["name"], float(r["score"])) for r in rows]
        assert all(isinstance(json.loads(row["because"] or "[]"), list) for row in rows)
        return found
    if path.suffix == ".parquet":
        sql = "SELECT region, customer, rank, item, name, score FROM read_parquet(?)"
        return duckdb.connect().execute(sql, [str(path)]).fetchall()
    text = path.read_text(encoding="utf-8")
    told = json.loads(text)["answers"] if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]
    return [(one["region"], one["customer"], *map(i.get, ("rank", "item", "name", "score")))
            for one in told for i in one["items"]]  # fmt: skip


def test_a_file_that_cannot_be_finished_leaves_what_was_there(study, tmp_path, monkeypatch):
    path = tmp_path / "best.csv"
    path.write_text("before")
    monkeypatch.setattr("regiondag.recommend.ask._ask", interrupted)
    assert ask(study, "--all", "--out", str(path)) == 130
    assert path.read_text() == "before"


def interrupted(*_):
    raise KeyboardInterrupt
    yield


def test_everybody(study, tmp_path, capsys):
    path = tmp_path / "all.parquet"
    assert ask(study, "--all", "-k", "2", "--out", str(path)) == 0
    sql = "SELECT region, count(DISTINCT customer), count(*) FROM read_parquet(?) GROUP BY 1 ORDER BY 1"
    assert duckdb.connect().execute(sql, [str(path)]).fetchall() == [("Berg", 60, 120), ("Côte d'Ivoire", 40, 80)]
    assert "200 rows" in capsys.readouterr().err


@pytest.mark.parametrize("width", [60, 80, 200])
def test_tables_fit_their_terminal(study, capsys, monkeypatch, width):
    import re

    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("regiondag.util.terminal.width_of", lambda _: width)
    assert ask(study, "--customer", "b0", "-k", "24", "--owned", "--because", "5") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width, [line for line in lines if len(line) > width]
    assert re.search("Red", "\n".join(lines))
