"""The retail benchmark's examples and choices, on a shop of a few customers."""

import numpy as np
import pytest

REGIONS = ("France",) * 3 + ("Spain",) * 3


@pytest.fixture
def data(bench):
    return bench("retail_data")


@pytest.fixture
def retail(bench):
    return bench("retail")


@pytest.fixture
def tuned(bench):
    return bench("retail_tuned")


@pytest.fixture
def shop(data):
    """Each customer buys 13 of 15 items, one a day; ten are history, the last of these is for validation."""
    random = np.random.default_rng(1)
    customers = (data.Customer(region, random.permutation(15)[:13], np.arange(13) * 9) for region in REGIONS)
    return data.Shop(tuple(customers), 15)


def test_ahead_alone_asks_for_what_is_bought_later(retail, shop):
    inputs, wanted = retail.examples(shop, "test", ahead_alone=True)
    both_inputs, both = retail.examples(shop, "test")
    assert (wanted.shape[0], both.shape[0]) == (6 * 9, 6 * 10)  # nothing is bought after the last day
    first = wanted[[0]].toarray()[0]
    items = shop.customers[0].items
    assert first[items[0]] == 0 and both[[0]].toarray()[0][items[0]] == 1
    assert first[items[1:10]] == pytest.approx(np.exp(-np.arange(1, 10) * 9 / retail.AHEAD), rel=1e-5)
    assert not first[items[10:]].any()
    assert (inputs["items"][[0]] != both_inputs["items"][[0]]).nnz == 0


def test_countries_choose_their_rate_on_the_validation_part(data, tuned, shop, monkeypatch):
    monkeypatch.setattr(tuned, "LEAST_ASKED", 3)
    ask = data.asked(shop, "valid")
    assert ask.all()
    france = np.array([1, 1, 1, 0, 0, 0])
    found = {0.0: 0.2 + 0 * france, 0.1: 0.3 * france, 0.2: 0.3 * france}
    assert tuned.chosen(shop, found) == {"France": 0.1, "Spain": 0.0}
    monkeypatch.setattr(tuned, "LEAST_ASKED", 4)
    assert tuned.chosen(shop, found) == {"France": 0.0, "Spain": 0.0}


def test_each_country_is_asked_by_its_own_network(data, retail, tuned, shop, monkeypatch):
    """The network of a country is its name here; its scores are best at what the customers there will buy."""
    wanted = shop.matrix(shop.histories("test"), shop.wanted("test")).toarray()
    monkeypatch.setattr(
        tuned, "scores_of", lambda name, _: lambda rows: wanted[rows] * (name == "Spain") - np.arange(15) / 99
    )
    seen = {}

    def fit(country, inputs, targets):
        seen[country] = inputs["items"].shape[0], targets.shape[0]
        return country

    learned = retail.examples(shop, "test")
    found = tuned.per_country(shop, "test", learned, retail.questions(shop, "test"), fit)
    assert seen == {"France": (30, 30), "Spain": (30, 30)}
    assert found[3:] == pytest.approx([0.3] * 3)  # three items are asked for
    assert found[:3] == pytest.approx(
        data.precision(shop, "test", lambda rows: 0 * wanted[rows] - np.arange(15) / 99, np.arange(3))
    )
