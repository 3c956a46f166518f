"""One network for 41 countries: P@10 on purchases that it has not seen, beside popularity, neighbours and EASE.

    python scripts/bench/retail.py [--quick] [--part valid|test] [--seeds 1 2] [--json FILE]

The network learns baskets: an example is a customer on one of his shopping days. Its input are the items he has, each
with a weight that falls with its age (60 days), the season and the country; its target are the items of the day, and
with less weight those that he bought later. One linear layer leads from all inputs to all items: with most of the
input dropped (denoising), each item is learned from the others. Everything was chosen on the validation part.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness import Row, finish
from numpy.typing import NDArray
from retail_baselines import BASELINES
from retail_data import Scores, Shop, asked, precision, read_shop

from nnlib import Network, Predictor, Trainer

GOAL = 0.0711  # the best of EASE, by the data's page
AGED_EASE = "aged EASE 1000"
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
SETTINGS = {
    "optimizer": "nesterov",
    "momentum": 0.9,
    "learning_rate": 0.05,
    "l2": 0.01,
    "batch": 512,
    "epochs": 10,
    "schedule": "cosine",
    "warmup": 0.5,
}


Aged = tuple[NDArray[np.int64], NDArray[np.float64]]  # items and what each counts
Inputs = dict[str, Any]  # data set -> sparse or dense matrix, a row an example


def examples(shop: Shop, part: str) -> tuple[Inputs, sp.csr_array]:
    """Return inputs and targets of every customer on each of his last 50 days before `part`."""
    inputs, targets, days, who = [], [], [], []
    for number, (customer, end) in enumerate(zip(shop.customers, shop.histories(part), strict=True)):
        items, bought = customer.items[:end], customer.days[:end]
        for day in np.unique(bought)[-50:]:
            past, later = bought <= day, bought > day
            age, ahead = np.exp((bought[past] - day) / AGE), LATER * np.exp((day - bought[later]) / AHEAD)
            inputs.append((items[past][age > LEAST], age[age > LEAST]))
            wanted = np.concatenate([items[bought == day], items[later][ahead > LEAST]])
            values = np.concatenate([np.ones(np.count_nonzero(bought == day)), ahead[ahead > LEAST]])
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


def trained(shop: Shop, part: str, seed: int) -> Scores:
    """Train the network on everything before `part` and return its scores."""
    inputs, wanted = examples(shop, part)
    trainer = Trainer(Network.from_json(NETWORK), **SETTINGS, seed=seed, progress=True)
    predictor = Predictor(trainer.fit(inputs, {"output": wanted}))
    asked = questions(shop, part)
    return lambda rows: predictor.outputs({name: values[rows] for name, values in asked.items()})


def main(argv: Sequence[str] | None = None) -> int:
    """Print P@10 per country, keep the results; 1 when the goal is missed."""
    parser = argparse.ArgumentParser(prog="scripts/bench/retail.py", allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="two epochs and one EASE; nothing is kept")
    parser.add_argument("--part", choices=("valid", "test"), default="test")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    arguments = parser.parse_args(argv)
    if arguments.quick:
        SETTINGS["epochs"], arguments.seeds = 1, arguments.seeds[:1]
    shop = read_shop()
    ask = asked(shop, arguments.part)
    history = shop.history(arguments.part)
    found: dict[str, NDArray[np.float64]] = {}
    for name, fit in BASELINES.items():
        if not arguments.quick or name == "EASE 1000":
            found[name] = precision(shop, arguments.part, fit(shop, history, history))
    aged = questions(shop, arguments.part)["items"]  # what the same ages give EASE, which learns from ones
    found[AGED_EASE] = precision(shop, arguments.part, BASELINES["EASE 1000"](shop, history, aged))
    for seed in arguments.seeds:
        begin = time.perf_counter()
        found[f"network, seed {seed}"] = precision(shop, arguments.part, trained(shop, arguments.part, seed))
        print(f"seed {seed}: {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    print_table(shop, ask, found)
    arguments.quick = arguments.quick or arguments.part != "test"
    arguments.only = None
    return finish("retail", result_rows(shop, ask, found), arguments)


def print_table(shop: Shop, ask: NDArray[np.bool_], found: dict[str, NDArray[np.float64]]) -> None:
    """Print P@10 of everything for all customers and for the largest countries."""
    print(f"{'P@10':<26}" + "".join(f"{region:>16}" for region in ("all", *SHOWN)))
    for name, values in found.items():
        parts = [values[ask].mean(), *(values[ask & (shop.regions == region)].mean() for region in SHOWN)]
        print(f"{name:<26}" + "".join(f"{part:>16.4f}" for part in parts))


def result_rows(shop: Shop, ask: NDArray[np.bool_], found: dict[str, NDArray[np.float64]]) -> list[Row]:
    """Return the network's mean over the seeds beside the best EASE, for all customers and by country."""
    ours = np.mean([values for name, values in found.items() if name.startswith("network")], axis=0)
    peers = {name: values for name, values in found.items() if name.startswith("EASE")}
    best = max(peers, key=lambda name: peers[name][ask].mean())
    lines = [
        Row(f"P@10, 41 countries (peer: {best})", _mean(ours, ask), _mean(peers[best], ask), "", GOAL, higher=True)
    ]
    lines.append(
        Row(
            "P@10, 41 countries (peer: EASE 1000 asked with the same ages)",
            _mean(ours, ask),
            _mean(found[AGED_EASE], ask),
            "",
            higher=True,
        )
    )
    for region in SHOWN:
        part = ask & (shop.regions == region)
        lines.append(Row(f"P@10, {region}", _mean(ours, part), _mean(peers[best], part), "", higher=True))
    return lines


def _mean(values: NDArray[np.float64], part: NDArray[np.bool_]) -> float:
    return float(values[part].mean())


if __name__ == "__main__":
    sys.exit(main())
