"""Studies of families: the table that data come from, which families, who chooses, and everything that is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from nnlib.contract import Metric
from regiondag.config.keys import describe_study
from regiondag.config.load import load_config, load_purchases
from regiondag.errors import ConfigError
from regiondag.generate.fresh_data import refresh_data
from regiondag.study.families import FAMILIES, FIRST, SPACES
from regiondag.study.model import Purchases
from regiondag.study.space import Choice
from tests.workflows.conftest import NETWORK
from tests.workflows.shop import STUDY, write_shop

VALIDATOR = jsonschema.Draft202012Validator(describe_study())
ONCE = tuple(family for family in SPACES if family != "again")  # what is tried where buying again counts for nothing
ALONE = "data: {purchases: shop.csv}\n"
SPACE = "parallel: 4, space: "
USUAL_FORMAT = {"separator": "", "encoding": "utf-8", "dates": "", "decimal": "."}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table, its data sets and a network; tests write study.yaml anew."""
    place = tmp_path_factory.mktemp("shop")
    study = write_shop(place)
    (place / "network.json").write_text(json.dumps(NETWORK))
    refresh_data(study)
    return place


def load(folder, text):
    (folder / "study.yaml").write_text(text)
    return load_config(folder / "study.yaml")


def problems_of(folder, text):
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    return [re.sub(r"^.*/study\.yaml:", "", problem) for problem in caught.value.problems]


def with_data(more):
    return STUDY.replace("shop.csv}", f"shop.csv, {more}}}")


def with_space(space):
    return STUDY.replace("parallel: 4", f"{SPACE}{space}")


# --- the table ---------------------------------------------------------------------------------------------


def test_a_table_alone_is_a_study(folder):
    config = load(folder, ALONE)
    assert config.name == "study" and config.min_customers == 10
    assert config.purchases == Purchases(
        folder / "shop.csv",
        folder / "data",
        columns={
            "region": "region",
            "customer": "customer",
            "item": "item",
            "time": "date",
            "description": "",
            "quantity": "",
        },
        format=USUAL_FORMAT,
    )
    pooled, *regions = config.regions
    assert [(one.name, one.slug, one.served_by) for one in regions] == [
        (name, name.lower(), "pooled") for name in ("Avon", "Berg", "Cove", "Dale")
    ]
    assert all(one.search.sizes == () and not one.search.blends and one.network is None for one in regions)
    assert (pooled.name, pooled.slug, pooled.served_by, pooled.metric) == ("all regions", "pooled", "", Metric())
    assert pooled.search.sizes == (4,) * 6 and pooled.search.stop == "noise" and pooled.search.blends
    assert pooled.search.space[0] == Choice("family", ONCE)
    assert [point["family"] for point in pooled.first] == [family for family, _ in FIRST if family in ONCE]
    assert pooled.final_parts == ("final", "all")
    data = folder / "data"
    # Nobody of Dale is asked.
    assert pooled.merged["train"] == tuple(data / f"{slug}.train.nc" for slug in ("avon", "berg", "cove", "dale"))
    assert pooled.merged["valid"] == tuple(data / f"{slug}.valid.nc" for slug in ("avon", "berg", "cove"))
    assert set(pooled.merged) == {"train", "valid", "final", "test", "all"}


def test_everything_that_may_be_said_of_a_table(folder):
    (folder / "study.yaml").write_text(
        "data:\n  purchases: ../table.tsv\n  folder: sets\n  min_customers: 25\n"
        "  columns: {region: country, time: bought}\n"
        "  split: {test: 14d, validate: 7d, min_history: 3, repeats: true}\n"
    )
    assert load_purchases(folder / "study.yaml") == Purchases(
        table=folder / "../table.tsv",
        folder=folder / "sets",
        split="time",
        column="",
        test=14,
        validate=7,
        min_history=3,
        repeats=True,
        columns={
            "region": "country",
            "customer": "customer",
            "item": "item",
            "time": "bought",
            "description": "",
            "quantity": "",
        },
        format=USUAL_FORMAT,
    )


@pytest.mark.parametrize(
    ("split", "kind", "column"),
    [("{by: column, column: part}", "column", "part"), ("{by: leave-one-out}", "leave-one-out", ""),
     ("{by: random}", "random", ""), ("leave-one-out", "leave-one-out", ""), ("random", "random", ""),
     ("time", "time", ""), ("{column: part}", "column", "part"), ("{test: 48h}", "time", "")],
)  # fmt: skip
def test_kinds_of_split(folder, split, kind, column):
    purchases = load(folder, with_data(f"split: {split}")).purchases
    assert (purchases.split, purchases.column) == (kind, column)
    assert purchases.test == (2 if "48h" in split else 0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (STUDY.replace("purchases: shop.csv", "folder: data"),
         "2: data.purchases: missing, legal: path of the table, a purchase a line: .csv, .tsv or .txt with a header, "
         "also .gz or .zst, or .parquet; or a folder of such files; or `database`"),
        (with_data("split: {by: month}"),
         "2: data.split.by: seen 'month', legal: time, leave-one-out, random or column"),
        (with_data("split: {by: column}"),
         "2: data.split.column: missing: the name of the column that says train, valid or test"),
        (with_data("split: {by: time, column: part}"),
         "2: data.split.column: says the parts by itself, seen by: time; leave one out"),
        (with_data("split: monthly"),
         "2: data.split: seen 'monthly', legal: time, leave-one-out, random or a mapping of keys to values"),
        (with_data("split: {by: leave-one-out, repeats: true}"),
         "2: data.split.repeats: is for windows, by: time or column, seen by: leave-one-out: there nothing is asked "
         "twice"),
        (with_data("split: {test: 36h}"),
         "2: data.split.test: seen '36h', legal: whole days such as 28d, at most 3660d"),
        (with_data("split: {test: 0d}"), "2: data.split.test: seen '0d', legal: whole days such as 28d, at most 3660d"),
        (with_data("split: {validate: 3661d}"),
         "2: data.split.validate: seen '3661d', legal: whole days such as 28d, at most 3660d"),
        (with_data("split: {min_history: 0}"),
         "2: data.split.min_history: seen 0, legal: a whole number from 1 to 1000"),
        (with_data("min_customers: 0"), "2: data.min_customers: seen 0, legal: a whole number from 1 to 1000000"),
        (with_data("columns: {city: x}"),
         "2: data.columns.city: unknown key; did you mean 'quantity'? Legal keys: customer, description, "
         "item, quantity, region, time"),
        (with_data("columns: {region: ''}"), "2: data.columns.region: seen '', legal: text on one line"),
        (STUDY.replace("[ease, knn, blend]", "[easy]"),
         "3: families: seen ['easy'] ('easy' is none; did you mean 'ease'?), legal: a list of some of "
         + ", ".join(FAMILIES)),
        (STUDY.replace("[ease, knn, blend]", "[knn, knn]"),
         "3: families: seen ['knn', 'knn'] (one stands twice), legal: a list of some of " + ", ".join(FAMILIES)),
        (STUDY.replace("[ease, knn, blend]", "[knn, network]"),
         "3: families: network: there is no `network`, a file of DSSTNE's JSON; add one"),
        (STUDY.replace("metric: ndcg@5", "minimize: loss"),
         "4: minimize: nothing but a network has a loss; with families: metric: ndcg@20"),
        (with_space("{ease_l3: {real: [1, 2]}}"),
         "5: search.space.ease_l3: is of no family but a network, and there is none: add `network`, a file of "
         "DSSTNE's JSON; did you mean 'ease_l2'?"),
        (with_space("{ease_l2: {real: [-5, 1]}}"),
         "5: search.space.ease_l2: seen -5.0, legal: a number from 0.001 to 1e+07"),
        (with_space("{knn_k: {choice: [10, 1.5]}}"),
         "5: search.space.knn_k: seen 1.5, legal: a whole number from 1 to 10000"),
        (with_space("{bias_scale: {choice: [raw, cube]}}"),
         "5: search.space.bias_scale: seen \"cube\", legal: raw, log"),
        (STUDY + "init: champion\n",
         "7: init: candidates are fitted once for all regions, from nothing; remove it, or: search: {scope: region}"),
        (STUDY + "regions: [{name: Nowhere}]\n",
         "7: regions[0].data: seen 'data/nowhere.nc', but there is no file FOLDER/data/nowhere.train.nc; "
         "`nnlib import` writes such sets"),
    ],
)  # fmt: skip
def test_mistakes_and_what_is_said_of_them(folder, text, problem):
    assert problems_of(folder, text) == [problem.replace("FOLDER", str(folder))]


@pytest.mark.parametrize("key", ["network", "metric", "minimize", "train", "search", "update", "init", "neighbour"])
def test_regions_have_nothing_of_their_own_where_one_choice_is_made_for_all(folder, key):
    value = {"network": "network.json", "metric": "ndcg@5", "minimize": "loss", "init": "random", "neighbour": "Berg"}
    text = f"{STUDY}regions: [{{name: Avon, {key}: {value.get(key, '{}')}}}, {{name: Berg}}]\n"
    refusal = (
        f"7: regions[0].{key}: a candidate is fitted once for all regions, so that none has its own; or: search: "
        "{scope: region}"
    )
    assert refusal in problems_of(folder, text)


def test_a_table_that_was_not_imported_yet(tmp_path):
    study = write_shop(tmp_path)
    with pytest.raises(ConfigError, match=r"study\.yaml:2: data: .*data holds no data sets yet; `regiondag generate`"):
        load_config(study)


# --- which families, and who chooses -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("families", "space", "blends"),
    [
        ("[ease, knn, blend]", ("popularity", "ease", "knn"), True),
        ("[ease, popularity]", ("ease", "popularity"), False),
        ("[popularity, blend]", ("popularity",), True),
    ],
)
def test_popularity_is_always_among_the_families(folder, families, space, blends):
    search = load(folder, STUDY.replace("[ease, knn, blend]", families)).regions[0].search
    assert search.space[0] == Choice("family", space) and search.blends is blends


@pytest.mark.parametrize("repeats", [True, False])
def test_buying_again_is_among_the_families_where_it_counts(folder, repeats):
    config = load(folder, ALONE.replace("shop.csv", f"shop.csv, split: {{repeats: {str(repeats).lower()}}}"))
    pooled = config.regions[0]
    assert pooled.search.space[0] == Choice("family", tuple(SPACES) if repeats else ONCE)
    assert ({"family": "again", "again_half_life": 170.0} in pooled.first) is repeats


def test_networks_beside_other_families(folder):
    text = STUDY.replace("families: [ease, knn, blend]", "network: network.json")
    text = text.replace("parallel: 4", SPACE + "{hidden: {int: [2, 8]}, ease_l2: {real: [10, 20]}}")
    pooled = load(folder, text).regions[0]
    assert pooled.search.space[0] == Choice("family", (*ONCE, "network"))
    assert pooled.network == folder / "network.json"
    found = {parameter.name: parameter for parameter in pooled.search.space}
    assert found["hidden"].when == (("family", ("network",)),)
    assert (found["ease_l2"].low, found["ease_l2"].high) == (10, 20)


def test_networks_alone_are_compared_with_popularity_where_one_choice_is_made_for_all(folder):
    text = STUDY.replace("[ease, knn, blend]", "[network]\nnetwork: network.json")
    text = text.replace("parallel: 4", "parallel: 4, scope: all, space: {hidden: {int: [2, 8]}}")
    config = load(folder, text)
    assert config.regions[0].search.space[0] == Choice("family", ("popularity", "network"))
    alone = load(folder, text.replace("scope: all", "scope: auto"))
    assert not any(region.search.of_families or region.served_by for region in alone.regions)
    assert [region.slug for region in alone.regions] == ["avon", "berg", "cove"]  # those that can be judged


def test_every_region_may_have_a_search_of_its_own(folder):
    config = load(folder, STUDY.replace("parallel: 4", "parallel: 4, scope: region"))
    assert [(region.slug, region.served_by) for region in config.regions] == [("avon", ""), ("berg", ""), ("cove", "")]
    assert all(region.search.sizes == (4, 4) and len(region.first) == 8 for region in config.regions)


def test_some_regions_of_a_table(folder):
    config = load(folder, STUDY + "regions: [{name: Avon, job: {cpus: 3}}, {name: Berg}]\n")
    assert [(region.slug, region.job.cpus) for region in config.regions] == [("pooled", 1), ("avon", 3), ("berg", 1)]
    assert len(config.regions[0].merged["train"]) == 2


def test_files_of_an_import_without_a_network(folder):
    text = "regions: {from: data/*.nc}\n"
    config = load(folder, text)
    assert config.purchases is None
    assert [region.slug for region in config.regions] == ["pooled", "avon", "berg", "cove", "dale"]
    assert config.regions[0].search.space[0] == Choice("family", ONCE)


@pytest.mark.parametrize(("search", "stop"), [("", "noise"), ("method: random", "none"), ("stop: none", "none")])
def test_when_a_search_ends_of_itself(folder, search, stop):
    text = STUDY.replace("rounds: 2", f"rounds: 2, {search}" if search else "rounds: 2")
    assert load(folder, text).regions[0].search.stop == stop


# --- the JSON Schema agrees --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [ALONE, STUDY, with_data("split: {by: column, column: part}, columns: {time: day}, min_customers: 3"),
     with_space("{ease_l2: {real: [10, 20]}}"), "regions: {from: data/*.nc}\n",
     STUDY + "regions: [{name: Avon, data: data/avon.nc}]\n"],
)  # fmt: skip
def test_the_schema_takes_what_the_reader_takes(folder, text):
    load(folder, text.replace("by: column, column: part", "by: random"))
    VALIDATOR.validate(yaml.safe_load(text))


@pytest.mark.parametrize(
    "text",
    [
        "study: nothing\n",
        "data: {folder: data}\n",
        with_data("split: {by: month}"),
        with_data("split: {test: 28}"),
        with_data("min_customers: 0"),
        with_data("columns: {city: x}"),
        with_data("zzz: 1"),
        STUDY.replace("[ease, knn, blend]", "[easy]"),
        STUDY.replace("[ease, knn, blend]", "[ease, ease]"),
        STUDY.replace("[ease, knn, blend]", "[]"),
        STUDY.replace("parallel: 4", "parallel: 4, scope: both"),
        STUDY.replace("parallel: 4", "parallel: 4, stop: soon"),
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(folder, text):
    assert problems_of(folder, text)
    assert not VALIDATOR.is_valid(yaml.safe_load(text))


def test_a_region_of_a_table_needs_a_name_alone(folder):
    text = STUDY + "regions: [{name: Avon}]\n"
    assert [region.slug for region in load(folder, text).regions] == ["pooled", "avon"]
    VALIDATOR.validate(yaml.safe_load(text))


def test_paths_are_those_beside_study_yaml(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    config = load(Path(folder.name), ALONE)
    assert all(file.is_file() for region in config.regions for file in region.data.values())
