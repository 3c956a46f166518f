"""Networks for 41 countries: P@10 on purchases that they have not seen, beside neighbours and EASE.

The network learns baskets: an example is a customer on one of his shopping days. Its input are the items he has, each
with a weight that falls with its age (60 days), the season and the country; its target are the items of the day, and
with less weight those that he bought later. One linear layer leads from all inputs to all items: with most of the
input dropped (denoising), each item is learned from the others.

Three ways: one network for all countries (pooled); one for each, from its own data alone; and one for each that starts
from the pooled weights and learns on from its own data, with what is bought later as its only targets. Everything was
chosen on the validation part, the learning rate by country; 0 there keeps the pooled network.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nnlib.api.network import Network
from nnlib.api.trainer import Trainer
from nnlib.errors import DivergedError, NnlibError
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.retail.baselines import BASELINES, ease
from scripts.bench.retail.data import Inputs, Shop, asked, precision, read_shop
from scripts.bench.retail.tuned import RATES, Learned, Precisions, chosen, per_country, scores_of, small

BENCH = "retail"
COSINE = "item-item cosine"
GOAL = 0.0711  # the best of EASE, by the data's page
AGED_EASE = "EASE 1000 asked with the same ages"
SEEDS = (1, 2)
OWN, POOLED, FINE = "own data only", "pooled", "pooled, then fine-tuned"
SHOWN = ("United Kingdom", "Germany", "France", "Spain", "Belgium")
AGE, AHEAD = 60.0, 90.0  # days after which an owned, or a later item counts 1/e
LATER = 0.5  # weight of an item bought right after the day
LEAST = 0.02  # smaller weights are left out
SEASON = 30  # days between two knots of the calendar
NETWORK = {
    "Name": "retail",
    "ErrorFunction": "L2",
    "Denoising": {"p": 0.7},
    "Layers": [
        {"Name": "Items", "Kind": "Input", "N": "auto", "DataSet": "items"},
        {"Name": "Season", "Kind": "Input", "N": "auto", "DataSet": "season"},
        {"Name": "Country", "Kind": "Input", "N": "auto", "DataSet": "country"},
        {
            "Name": "Output",
            "Kind": "Output",
            "N": "auto",
            "DataSet": "output",
            "Source": ["Items", "Season", "Country"],
            "Activation": "Linear",
            "WeightInit": {"Scheme": "Gaussian", "Scale": 0.001},
        },
    ],
}
SETTINGS: dict[str, Any] = {
    "optimizer": "nesterov",
    "momentum": 0.9,
    "learning_rate": 0.05,
    "l2": 0.01,
    "batch": 512,
    "epochs": 10,
    "schedule": "cosine",
    "warmup": 0.5,
}
TUNED: dict[str, Any] = {"epochs": 1, "warmup": 0.0}  # from the pooled weights on
FEW = 5000  # examples: with fewer a country's own network learns better from smaller steps
OWN_FEW: dict[str, Any] = {"batch": 32, "learning_rate": 0.01}
SLOWER = (1.0, 0.1, 0.01)  # times the learning rate, one after the other while the training diverges


Aged = tuple[NDArray[np.int64], NDArray[np.float64]]  # items and what each counts


def examples(shop: Shop, part: str, ahead_alone: bool = False) -> Learned:
    """Return inputs and targets of every customer on each of his last 50 days before `part`.

    With `ahead_alone` only items that he bought later are targets, with full weight, and days without any are left out.
    """
    weight = 1.0 if ahead_alone else LATER
    inputs, targets, days, who = [], [], [], []
    for number, (customer, end) in enumerate(zip(shop.customers, shop.histories(part), strict=True)):
        items, bought = customer.items[:end], customer.days[:end]
        for day in np.unique(bought)[-50:]:
            past, later = bought <= day, bought > day
            if ahead_alone and not later.any():
                continue
            age, ahead = np.exp((bought[past] - day) / AGE), weight * np.exp((day - bought[later]) / AHEAD)
            inputs.append((items[past][age > LEAST], age[age > LEAST]))
            today = (bought == day) & (not ahead_alone)
            wanted = np.concatenate([items[today], items[later][ahead > LEAST]])
            values = np.concatenate([np.ones(np.count_nonzero(today)), ahead[ahead > LEAST]])
            targets.append((wanted, values))
            days.append(day)
            who.append(number)
    return described(shop, inputs, days, who), rows(targets, shop.items)


def questions(shop: Shop, part: str) -> Inputs:
    """Return what is known of every customer when `part` asks, on the last day of his history."""
    inputs, days = [], []
    for customer, end in zip(shop.customers, shop.histories(part), strict=True):
        day = customer.days[end - 1]
        age = np.exp((customer.days[:end] - day) / AGE)
        inputs.append((customer.items[:end][age > LEAST], age[age > LEAST]))
        days.append(day)
    return described(shop, inputs, days, range(len(days)))


def described(shop: Shop, inputs: Sequence[Aged], days: Sequence[int], who: Sequence[int]) -> Inputs:
    """Return the three inputs: items with their ages, the season, and the country (one of them is 1)."""
    countries = np.unique(shop.regions)
    country = (shop.regions[list(who), None] == countries).astype(np.float32)
    return {"items": rows(inputs, shop.items), "season": season(shop, np.array(days)), "country": country}


def rows(pieces: Sequence[Aged], width: int) -> sp.csr_array:
    """Return lists of (columns, values) as a sparse matrix."""
    starts = np.concatenate(([0], np.cumsum([len(columns) for columns, _ in pieces])))
    columns, values = (np.concatenate([piece[n] for piece in pieces]) for n in (0, 1))
    return sp.csr_array((values.astype(np.float32), columns, starts), (len(pieces), width))


def season(shop: Shop, days: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return each day's nearness (0 to 1) to the two knots of the calendar around it."""
    first = min(customer.days[0] for customer in shop.customers)
    last = max(customer.days[-1] for customer in shop.customers)
    knots = np.arange(first, last + SEASON, SEASON)
    return np.maximum(0, 1 - np.abs(days[:, None] - knots) / SEASON).astype(np.float32)


class Pooled:
    """The network of all countries, trained on what is before `part`, and what it becomes in each country."""

    def __init__(self, shop: Shop, part: str, seed: int) -> None:
        self.shop, self.part, self.seed, self.questions = shop, part, seed, questions(shop, part)
        inputs, wanted = examples(shop, part)
        self.network = self.trainer().fit(inputs, {"output": wanted})
        self.ahead = examples(shop, part, ahead_alone=True)

    def trainer(self, **changes: Any) -> Trainer:
        """Return what trains a new network."""
        return Trainer(Network.from_json(NETWORK), **(SETTINGS | changes), seed=self.seed, progress=not changes)

    def precision(self) -> Precisions:
        """Return P@10 of every customer by the one network."""
        return precision(self.shop, self.part, scores_of(self.network, self.questions))

    def tuned(self, rates: Mapping[str, float]) -> Precisions:
        """Return P@10 of every customer, when each country learns on at its rate; at 0 it keeps the pooled network."""

        def fit(country: str, inputs: Inputs, wanted: sp.csr_array) -> Network:
            if not rates[country]:
                return self.network
            trainer = self.trainer(**TUNED, learning_rate=rates[country])
            try:
                return trainer.fit(inputs, {"output": wanted}, init=self.network)
            except DivergedError:
                return self.network

        return per_country(self.shop, self.part, self.ahead, self.questions, fit)

    def own(self) -> Precisions:
        """Return P@10 of every customer by a network from the data of his country alone."""

        def fit(country: str, inputs: Inputs, wanted: sp.csr_array) -> Network:
            changes = OWN_FEW if wanted.shape[0] < FEW else {"learning_rate": SETTINGS["learning_rate"]}
            for slower in SLOWER:
                with suppress(DivergedError):
                    trainer = self.trainer(**(changes | {"learning_rate": changes["learning_rate"] * slower}))
                    return trainer.fit(inputs, {"output": wanted})
            raise NnlibError(f"{country}: its own network diverges at every learning rate")

        return per_country(self.shop, self.part, examples(self.shop, self.part), self.questions, fit)


def ways(shop: Shop, part: str, seed: int, some: Sequence[float]) -> dict[str, Precisions]:
    """Return P@10 of every customer by the three ways to train; learning rates are chosen on the validation part."""
    before, few = Pooled(shop, "valid", seed), small(shop)
    everywhere = np.unique(shop.regions).tolist()
    validated = {rate: before.tuned({name: rate * (name not in few) for name in everywhere}) for rate in some}
    rates = chosen(shop, {0.0: before.precision()} | validated)
    print(f"seed {seed}: " + ", ".join(f"{name} {rate:g}" for name, rate in rates.items() if rate), file=sys.stderr)
    pooled = before if part == "valid" else Pooled(shop, part, seed)
    return {OWN: pooled.own(), POOLED: pooled.precision(), FINE: pooled.tuned(rates)}


def measured(quick: bool) -> Iterator[Row]:
    """Return the fine-tuned networks' mean over the seeds beside all else, for all customers and by country."""
    shop = read_shop()
    if quick:
        shop = Shop(shop.customers[::4], shop.items)
    ask, history = asked(shop, "test"), shop.history("test")
    learned = {"EASE 1000": ease(1000)} if quick else BASELINES
    peers = {name: precision(shop, "test", fit(history, history)) for name, fit in learned.items()}
    aged = questions(shop, "test")["items"]  # what the same ages give EASE, which learns from ones
    peers[AGED_EASE] = precision(shop, "test", ease(1000)(history, aged))
    found: dict[str, list[Precisions]] = {}
    for seed in SEEDS[:1] if quick else SEEDS:
        for way, values in ways(shop, "test", seed, RATES[:1] if quick else RATES).items():
            found.setdefault(way, []).append(values)
    means = {way: np.mean(values, axis=0) for way, values in found.items()}
    best = max((name for name in peers if name.startswith("EASE ")), key=lambda name: peers[name][ask].mean())
    shown = {best: peers[best], AGED_EASE: peers[AGED_EASE]}
    shown |= {name: peers[name] for name in peers if name == COSINE} | {way: means[way] for way in (POOLED, OWN)}
    for place in ("41 countries", *SHOWN):
        part = ask if place not in SHOWN else ask & (shop.regions == place)
        for name, values in shown.items():
            goal = GOAL if name == best and part is ask else None
            ours, peer = (float(side[part].mean()) for side in (means[FINE], values))
            yield Row(f"P@10, {place} (peer: {name})", ours, peer, "", goal, higher=True)


class Retail(Bench[bool]):
    """The one group of rows; `sizes` says whether it is a quick run."""

    def retail(self) -> Iterator[Row]:
        """All countries together, then the largest ones."""
        if self.sizes:
            SETTINGS["epochs"] = 1
        return measured(self.sizes)


if __name__ == "__main__":
    sys.exit(main(BENCH, Retail, False, True))
