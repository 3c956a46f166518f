"""A study of people who come every week, from the table to what is served: what they always take is among it."""

from __future__ import annotations

import random
from datetime import timedelta

import numpy as np
import pytest

from nnlib import cli
from nnlib.families.model_file import read_recipe_model
from nnlib.util import netcdf
from regiondag.run.champions import champion_of
from regiondag.run.journal import Journal
from tests.workflows import shop
from tests.workflows.shop import FIRST_DAY, POOLED, STUDY

REGIONS = {"avon": 20, "berg": 12}
WEEKS, OWN = 26, 4
SPLIT = "shop.csv, split: {test: 14d, validate: 14d, repeats: true}}"
WEEKLY = STUDY.replace("shop.csv}", SPLIT).replace("[ease, knn, blend]", "[ease, again, blend]")


def own_items(customer):
    return {f"i{(5 * customer + n) % 30}" for n in range(OWN)}


def write_weekly(path):
    """Write purchases of customers who take most of their own four items each week, and once another one."""
    rng = random.Random(1)
    lines = ["region,customer,item,date"]
    for region, customers in REGIONS.items():
        for customer in range(customers):
            for week in range(WEEKS):
                items = [item for item in sorted(own_items(customer)) if rng.random() < 0.8]
                day = FIRST_DAY + timedelta(7 * week + rng.randrange(7))
                lines += [f"{region},c{customer:02},{item},{day}" for item in (*items, f"i{rng.randrange(30)}")]
    path.write_text("\n".join(dict.fromkeys(lines)) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    study = shop.write_shop(tmp_path_factory.mktemp("weekly"), WEEKLY)
    write_weekly(study.parent / "shop.csv")
    run = shop.generate(study)
    shop.play(run, tuple(REGIONS))
    return run


def test_the_search_finds_what_buying_again_is_worth(played):
    history = Journal(played.region(POOLED).journal).read()
    values = {}
    for number, proposal in history.proposals.items():
        family = proposal.point["family"]
        values[family] = max(values.get(family, 0), history.settled[number].value)
    assert set(values) == {"popularity", "ease", "again", "blend"}
    assert values["again"] > 0.7 > 0.4 > values["popularity"]
    assert values["blend"] >= values["again"] > values["ease"]


def test_what_is_served_has_what_customers_always_take(played, tmp_path):
    for slug, customers in REGIONS.items():
        champion = played.region(slug).champion_model
        assert champion_of(played, slug) is not None and read_recipe_model(champion).repeats
        data = played.path.parents[1] / "data" / f"{slug}.all.nc"
        assert cli.main(["predict", str(champion), str(data), "-k", "5", "--out", str(tmp_path / "best.nc")]) == 0
        found = netcdf.read(tmp_path / "best.nc").variables
        names = np.array(found["features"].values, object)[found["items"].values.reshape(customers, 5)]
        listed = dict(zip(found["samples"].values, names.tolist(), strict=True))
        assert sum(len(own_items(n) & set(listed[f"c{n:02}"])) for n in range(customers)) > 3.5 * customers
