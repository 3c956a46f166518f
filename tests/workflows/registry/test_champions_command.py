"""`regiondag champions`, as its users call it."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import asdict, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnlib.contract import Recipe, sha256_of
from regiondag.cli import main
from regiondag.registry.card import write_card
from tests.workflows.registry.registered import NIGHTS, promote, registry_of, serving


@pytest.fixture
def runs(tmp_path):
    """Two regions' champions of three nights."""
    (tmp_path / "study.yaml").write_text("study: shop\nregions: [{name: Berg, data: berg.nc}]\n")
    runs = tmp_path / "runs"
    for night in NIGHTS[:3]:
        for slug in ("berg", "tal"):
            promote(runs, night, slug)
    return runs


@pytest.fixture
def call(runs, capsys):
    def run(verb, *words):
        capsys.readouterr()
        code = main(["champions", verb, str(runs.parent), *words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_the_list_has_a_row_a_region(call):
    code, out, err = call("list")
    assert code == 0 and err == "" and "shop: 2 regions" in out
    row = next(line for line in out.splitlines() if "Berg" in line)
    assert all(text in row for text in (NIGHTS[2], "0.200 ± .100 (120)", "0.150", "ease, l2 100"))
    code, out, _ = call("list", "--json")
    listed = json.loads(out)
    assert listed["study"] == "shop" and [one["region"] for one in listed["regions"]] == ["Berg", "Tal"]
    one = listed["regions"][0]
    assert (one["version"], one["event"], one["pinned"], one["customers"]) == (NIGHTS[2], "promoted", False, 120)
    assert one["figure"]["floor"] == 0.15 and one["since"] > 1.7e9 and one["versions"] == 3


def test_show_fits_a_terminal(call, monkeypatch):
    monkeypatch.setattr("regiondag.registry.tables.width_of", lambda _: 80)
    lines = call("show", "berg")[1].splitlines()
    paths = [line for line in lines if "/" in line and " " not in line.strip()]  # a word that stays whole
    assert max(len(line) for line in lines if line not in paths) <= 80


def test_show_has_everything(call, runs):
    code, out, _ = call("show", "berg")
    assert code == 0 and f"Berg, {NIGHTS[2]}: serves" in out
    for text in (f"run-shop-{NIGHTS[2]}", "by ", "ease, l2 100", "0.2000 (0.100 to 0.300); recent popularity 0.1500",
                 "2026-01-01", "d" * 64, "as it was"):  # fmt: skip
        assert text in out
    code, out, _ = call("show", "BERG", NIGHTS[0], "--json")
    shown = json.loads(out)
    assert (shown["version"], shown["serves"], shown["tested_from"]) == (NIGHTS[0], False, "2026-01-01")
    assert [file["name"] for file in shown["files"]] == ["model.nc", "floor.nc", "champion.json"]
    shutil.rmtree(runs / f"run-shop-{NIGHTS[2]}")
    assert f"run-shop-{NIGHTS[2]} (removed)" in call("show", "berg")[1]


def test_a_floor_that_is_logistic_regression_is_called_so(call, runs):
    path = registry_of(runs).version("berg", NIGHTS[2]).folder / "champion.json"
    known = json.loads(path.read_text())
    path.write_text(json.dumps(known | {"floor_recipe": asdict(Recipe("logistic"))}))
    assert "0.2000 (0.100 to 0.300); logistic regression 0.1500" in call("show", "berg")[1]
    heading = call("list")[1].replace("\n", " ")
    assert "recent" not in heading and "floor" in heading  # of Berg and Tal
    assert [one["figure"]["floor_name"] for one in json.loads(call("list", "--json")[1])["regions"]] == [
        *("logistic regression", "recent popularity")
    ]
    path.write_text(json.dumps(known | {"floor_recipe": {"family": 3}}))
    assert "recent popularity 0.1500" in call("show", "berg")[1]


def test_what_is_damaged_is_named_with_what_to_do(call, runs):
    model = registry_of(runs).version("berg", NIGHTS[2]).model
    model.write_text(model.read_text().upper())
    code, out, err = call("list")
    assert code == 1 and "1 damaged" in out and "DAMAGED" in out
    assert f"Berg: {model}: damaged, its SHA-256 is" in err
    assert f"regiondag champions rollback STUDY berg --to VERSION; there are {', '.join(NIGHTS[2::-1])}" in err
    code, out, _ = call("show", "berg")
    assert code == 1 and "damaged, its SHA-256 is" in out
    assert call("rollback", "berg")[:2] == (0, f"berg: {NIGHTS[2]} -> {NIGHTS[1]}\n")
    code, out, err = call("list")
    assert code == 0 and err == ""


@pytest.mark.parametrize(
    ("damage", "seen"),
    [
        (lambda folder: shutil.rmtree(folder), "there is no such version"),
        (lambda folder: (folder / "champion.json").write_text("{"), "damaged (Expecting property name"),
        (lambda folder: (folder / "champion.json").unlink(), "damaged ("),
        (lambda folder: (folder / "champion.json").write_text("[1]"), "damaged ("),
        (lambda folder: (folder / "model.nc").unlink(), "damaged ("),
        (lambda folder: (folder / "model.nc").write_text("x"), "model.nc has 1 bytes and not "),
    ],
)
def test_current_that_points_nowhere_or_to_half_a_version(call, runs, damage, seen):
    damage(runs / "champions/shop/berg" / NIGHTS[2])
    code, out, err = call("list")
    assert code == 1 and "Tal" in out and seen in err and "next: regiondag champions rollback STUDY berg" in err
    code, _, err = call("pin", "berg")
    assert code == 1 and seen in err
    assert call("rollback", "berg")[:2] == (0, f"berg: {NIGHTS[2]} -> {NIGHTS[1]}\n")
    assert serving(runs) == NIGHTS[1]


def test_a_damaged_version_that_does_not_serve_is_named_and_passed_over(call, runs):
    (runs / "champions/shop/berg" / NIGHTS[1] / "champion.json").unlink()
    code, _, err = call("list")
    assert code == 0 and f"berg/{NIGHTS[1]}: damaged" in err
    assert call("rollback", "berg")[:2] == (0, f"berg: {NIGHTS[2]} -> {NIGHTS[0]}\n")


def test_diff_shows_figures_and_what_is_not_the_same(call, runs):
    folder = runs / "champions/shop/berg" / NIGHTS[1]
    facts = json.loads((folder / "champion.json").read_text())
    facts["recipe"]["hyperparameters"]["l2"] = 50.0
    facts["test"]["ndcg@20"] = 0.19
    (folder / "champion.json").write_text(json.dumps(facts))
    code, out, _ = call("diff", "berg")
    assert code == 0 and "recipe l2" in out and "0.1900 (0.100 to 0.300)" in out and "fitted until" not in out
    assert "the figures do not say which is better" in out  # nothing is known of the test data here
    compared = json.loads(call("diff", "berg", NIGHTS[0], NIGHTS[1], "--json")[1])
    changed = {one["fact"]: (one["old"], one["new"]) for one in compared["facts"] if one["changed"]}
    assert changed["recipe l2"] == ("100", "50") and set(changed) == {"run", "recipe l2", "test ndcg@20", "model"}
    assert (compared["old"], compared["new"]) == (NIGHTS[0], NIGHTS[1])


def test_going_back_and_forth(call, runs):
    assert call("rollback", "berg") == (0, f"berg: {NIGHTS[2]} -> {NIGHTS[1]}\n", "")
    assert call("rollback", "berg") == (0, f"berg: {NIGHTS[1]} -> {NIGHTS[0]}\n", "")
    code, _, err = call("rollback", "berg")
    assert code == 1 and "nothing whole served it before" in err and serving(runs) == NIGHTS[0]
    assert call("rollback", "berg", "--to", NIGHTS[2])[:2] == (0, f"berg: {NIGHTS[0]} -> {NIGHTS[2]}\n")
    code, _, err = call("rollback", "berg", "--to", "20250101-000000")
    assert code == 1 and "it has no whole version 20250101-000000, versions: 20260103-033000, 20260102" in err
    assert call("rollback", "--all")[:2] == (0, "".join(f"{s}: {NIGHTS[2]} -> {NIGHTS[1]}\n" for s in ("berg", "tal")))
    code, out, err = call("rollback", "--all", "--to", NIGHTS[1])
    assert (code, out) == (0, "") and "berg: 20260102-033000 serves already" in err
    assert call("rollback")[0] == 2 and call("rollback", "berg", "--all")[0] == 2


def test_pins(call, runs):
    assert call("pin", "berg")[0] == 0 and "pinned" in call("list")[1]
    promote(runs, NIGHTS[3])
    assert serving(runs) == NIGHTS[2]
    code, _, err = call("unpin", "berg")
    assert code == 0 and f"{NIGHTS[3]} is newer: regiondag champions rollback" in err
    assert "not pinned" in call("unpin", "berg")[2]


def test_regions_and_studies_that_are_none(call, tmp_path, capsys):
    code, _, err = call("show", "berk")
    assert code == 2 and "did you mean" in err
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "study.yaml").write_text("study: none\n")
    assert main(["champions", "list", str(tmp_path / "empty")]) == 1
    assert "no region of 'none' has a champion in" in capsys.readouterr().err


def test_an_export_is_a_folder_with_a_card(call, runs, tmp_path):
    to = tmp_path / "given"
    assert call("export", "berg", "--to", str(to)) == (0, f"{to / 'README.md'}\n", "")
    assert sorted(path.name for path in to.iterdir()) == [
        *("README.md", "SHA256SUMS", "champion.json", "floor.nc", "model.nc")
    ]
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=to, check=True)
    card = (to / "README.md").read_text()
    for text in ("# Berg: what to recommend, study shop", "| ndcg@20 | 0.2000 | 0.100 to 0.300 | 0.1500 |",
                 "120 customers of one window", '"l2": 100.0', sha256_of(to / "model.nc"), "before 2026-01-01",
                 "d" * 64):  # fmt: skip
        assert text in card
    code, _, err = call("export", "berg", "--to", str(to))
    assert code == 2 and "is there already" in err
    assert call("export", "tal", "--to", str(tmp_path / "card"), "--version", NIGHTS[0], "--format", "card")[0] == 0
    assert [path.name for path in (tmp_path / "card").iterdir()] == ["README.md"]
    assert sha256_of(registry_of(runs).version("tal", NIGHTS[0]).model) in (tmp_path / "card/README.md").read_text()


def test_what_is_damaged_is_not_exported(call, runs, tmp_path):
    registry_of(runs).version("berg", NIGHTS[2]).floor.write_text("x")
    code, _, err = call("export", "berg", "--to", str(tmp_path / "given"))
    assert code == 1 and "floor.nc: damaged" in err and not (tmp_path / "given").exists()


def test_names_stay_text_in_a_card(runs, tmp_path):
    champion = registry_of(runs).current("berg")
    hostile = replace(
        champion, region="<script>[x](y)\n# z", facts={**champion.facts, "recipe": {"family": "```\n# a"}}
    )
    card = write_card(hostile, {"model.nc": "0"}, "")
    assert "<script" not in card and "\n# z" not in card and "\\u0060" in card and "[x](" not in card


def test_a_registry_that_was_copied_with_its_links_followed(call, runs):
    current = runs / "champions/shop/berg/current"
    target = current.resolve()
    current.unlink()
    shutil.copytree(target, current)
    code, out, err = call("list")
    assert code == 1 and "Tal" in out and f"{current}: no link to a version" in err and "remove it, next:" in err
    shutil.rmtree(current)
    assert call("rollback", "berg", "--to", NIGHTS[2])[0] == 0
    assert call("list")[0] == 0


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))
FACTS = (
    *("metric", "test", "intervals", "compared", "customers", "recipe", "fitted_until", "inputs", "decision", "data"),
    *("popularity", "promoted", "by", "floor", "machine", "hyperparameters", "pooled", "bytes", "region"),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(FACTS), JSON, min_size=1, max_size=4))
def test_whatever_stands_in_champion_json_nothing_is_a_bug(call, runs, facts):
    path = runs / "champions/shop/berg" / NIGHTS[2] / "champion.json"
    whole = path.read_text()
    try:
        path.write_text(json.dumps(json.loads(whole) | facts))
        for words in (("list",), ("show", "berg"), ("show", "berg", "--json"), ("diff", "berg", NIGHTS[1], NIGHTS[2])):
            code, _, err = call(*words)
            assert code in (0, 1) and "Traceback" not in err
    finally:
        path.write_text(whole)
