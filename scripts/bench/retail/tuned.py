"""One network per country: from the country's data alone, or from the pooled network's weights on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nnlib.api.network import Network
from nnlib.api.predictor import Predictor
from scripts.bench.retail.data import Inputs, Scores, Shop, asked, precision

RATES = (0.005, 0.01, 0.03)  # of learning, of which each country takes what is best on its validation part
LEAST_ASKED = 20  # customers with validation items: with fewer a country keeps the pooled network

Learned = tuple[Inputs, sp.csr_array]  # inputs and targets, a row an example
Fit = Callable[[str, Inputs, sp.csr_array], Network]  # country, its inputs and targets -> the network that it gets
Precisions = NDArray[np.float64]  # of every customer


def scores_of(network: Network, questions: Inputs) -> Scores:
    """Return what a network says of customers, who are the rows of `questions`."""
    predictor = Predictor(network)
    return lambda rows: predictor.outputs({name: values[rows] for name, values in questions.items()})


def per_country(shop: Shop, part: str, learned: Learned, questions: Inputs, fit: Fit) -> Precisions:
    """Return P@10 of every customer by the network that `fit` gives his country."""
    inputs, wanted = learned
    found = np.zeros(len(shop.customers))
    for number, country in enumerate(np.unique(shop.regions).tolist()):
        customers, own = np.flatnonzero(shop.regions == country), np.flatnonzero(inputs["country"][:, number])
        network = fit(country, {name: values[own] for name, values in inputs.items()}, wanted[own])
        found[customers] = precision(shop, part, scores_of(network, questions), customers)
    return found


def small(shop: Shop) -> set[str]:
    """Return the countries with too few customers to validate anything."""
    regions = shop.regions[asked(shop, "valid")].tolist()
    return {country for country in np.unique(shop.regions).tolist() if regions.count(country) < LEAST_ASKED}


def chosen(shop: Shop, validated: Mapping[float, Precisions]) -> dict[str, float]:
    """Return each country's best learning rate on the validation part, the smallest of several; 0: not tuned at all."""
    ask, few = asked(shop, "valid"), small(shop)
    rates: Sequence[float] = sorted(validated)
    best = {}
    for country in np.unique(shop.regions).tolist():
        own = ask & (shop.regions == country)
        best[country] = 0.0 if country in few else max(rates, key=lambda rate: validated[rate][own].mean())
    return best
