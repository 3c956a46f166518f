"""What an hour costs, by fleet.yaml, AWS's price list and the spot market. A price is known or unknown, not guessed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regiondag.errors import AwsError
from regiondag.fleet.checks import Ground
from regiondag.fleet.config import SPOT, Fleet
from regiondag.fleet.ec2 import list_all
from regiondag.util import aws

PRICE_LIST_REGION = "us-east-1"  # where the price list of all regions is kept
LINUX = "Linux/UNIX"

Zoned = tuple[str, str]  # instance type, availability zone
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars for an hour of one instance; what is not in here is unknown."""

    on_demand: Mapping[str, float]
    spot: Mapping[Zoned, float]

    def of(self, kind: str, zone: str, purchase: str) -> float | None:
        """Return the price of an instance, None where it is unknown."""
        return self.spot.get((kind, zone)) if purchase == SPOT else self.on_demand.get(kind)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What an hour of some workers costs, between the cheapest and the dearest that EC2 may choose."""

    low: float
    high: float
    unknown: tuple[str, ...]  # what has no price; the range is of the others alone

    def __add__(self, other: Estimate) -> Estimate:
        unknown = tuple(dict.fromkeys((*self.unknown, *other.unknown)))
        return Estimate(self.low + other.low, self.high + other.high, unknown)

    def __str__(self) -> str:
        if self.unknown:
            return f"unknown (no price of {', '.join(self.unknown)})"
        if self.low == self.high:
            return f"${self.high:.2f}"
        return f"${self.low:.2f} to ${self.high:.2f}"


def find_prices(client: Any, fleet: Fleet, kinds: Sequence[str], purchases: Iterable[str], tell: Tell) -> Prices:
    """Return what can be known of the prices of these instance types; what cannot is told, and unknown."""
    purchases = set(purchases)
    on_demand = dict(fleet.prices)
    spot: dict[Zoned, float] = {}
    asked = [kind for kind in kinds if kind not in on_demand]
    try:
        if asked and purchases != {SPOT}:
            on_demand |= _on_demand(fleet.region, asked)
    except AwsError as error:
        tell(f"the prices on demand are unknown: {error}; `prices` in {fleet.file} may name them")
    try:
        if kinds and SPOT in purchases:
            spot = _spot(client, kinds)
    except AwsError as error:
        tell(f"the spot prices are unknown: {error}")
    return Prices(on_demand, spot)


def _on_demand(region: str, kinds: Sequence[str]) -> dict[str, float]:
    client = aws.client("pricing", PRICE_LIST_REGION)
    prices = {}
    for kind in kinds:
        wanted = {
            "regionCode": region,
            "instanceType": kind,
            "operatingSystem": "Linux",
            "tenancy": "Shared",
            "preInstalledSw": "NA",
            "capacitystatus": "Used",
        }
        filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.items()]
        with aws.explain_errors(f"looking up the price of {kind}"):
            products = client.get_products(ServiceCode="AmazonEC2", Filters=filters)["PriceList"]
        price = read_price(products)
        if price is not None:
            prices[kind] = price
    return prices


def read_price(products: Sequence[str]) -> float | None:
    """Return the dollars of an hour on demand in the price list's answer, None where it names no or several prices."""
    found = set()
    for product in products:
        try:
            terms = json.loads(product)["terms"].get("OnDemand", {})
            rates = [rate for term in terms.values() for rate in term["priceDimensions"].values()]
            found |= {float(rate["pricePerUnit"]["USD"]) for rate in rates if rate.get("unit") == "Hrs"}
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
    found.discard(0.0)  # the price list has entries of reserved capacity that cost nothing more
    return found.pop() if len(found) == 1 else None


def _spot(client: Any, kinds: Sequence[str]) -> dict[Zoned, float]:
    with aws.explain_errors("looking up spot prices"):
        history = list_all(
            client,
            "describe_spot_price_history",
            "SpotPriceHistory",
            InstanceTypes=list(kinds),
            ProductDescriptions=[LINUX],
            StartTime=time.time(),  # the price that is in force now
        )
    newest = sorted(history, key=lambda entry: str(entry["Timestamp"]))
    return {(entry["InstanceType"], entry["AvailabilityZone"]): float(entry["SpotPrice"]) for entry in newest}


def estimate(ground: Ground, prices: Prices, purchases: Iterable[str], count: int) -> Estimate:
    """Return what an hour of `count` workers costs that EC2 chooses among the fleet's types and zones."""
    known, unknown = [], []
    for purchase in purchases:
        for kind, subnet in ground.pools:
            price = prices.of(kind, ground.zones[subnet], purchase)
            if price is None:
                where = f" in {ground.zones[subnet]}" if purchase == SPOT else ""
                unknown.append(f"{kind} {purchase}{where}")
            else:
                known.append(price)
    if count == 0:
        return Estimate(0, 0, ())
    return Estimate(count * min(known, default=0), count * max(known, default=0), tuple(dict.fromkeys(unknown)))


def price_rows(ground: Ground, prices: Prices, purchases: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the rows of a table: type, zone, how it is bought, dollars for an hour."""
    rows: list[tuple[str, ...]] = []
    for purchase in purchases:
        for kind, subnet in ground.pools:
            price = prices.of(kind, ground.zones[subnet], purchase)
            rows.append((kind, ground.zones[subnet], purchase, "unknown" if price is None else f"{price:.4f}"))
    return rows
