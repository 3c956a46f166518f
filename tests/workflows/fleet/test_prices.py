"""What an hour costs, and what is not known."""

from __future__ import annotations

import dataclasses
import json

import pytest

from regiondag.fleet.checks import look_up
from regiondag.fleet.config import ON_DEMAND, SPOT
from regiondag.fleet.prices import Estimate, Prices, estimate, find_prices, price_rows, read_price
from regiondag.util import aws
from tests.workflows.fleet.conftest import REGION, price_list


@pytest.fixture
def client(cloud):
    return aws.client("ec2", REGION)


def test_spot_prices_are_those_of_the_market(cloud, client, fleet):
    told: list[str] = []
    prices = find_prices(client, fleet, fleet.instances, [SPOT], told.append)
    assert prices.of("g5.xlarge", f"{REGION}a", SPOT) == pytest.approx(0.00001)
    assert prices.of("g5.xlarge", f"{REGION}a", ON_DEMAND) is None
    assert told == []
    assert "GetProducts" not in cloud.names()
    assert cloud.arguments("DescribeSpotPriceHistory")["ProductDescriptions"] == ["Linux/UNIX"]


def test_prices_on_demand_are_those_of_the_list_or_the_file(cloud, client, fleet):
    mine = dataclasses.replace(fleet, prices={"g5.xlarge": 9.5})
    prices = find_prices(client, mine, fleet.instances, [ON_DEMAND], print)
    assert prices.on_demand == {"g5.xlarge": 9.5, "g4dn.xlarge": 1.258}
    asked = {entry["Field"]: entry["Value"] for entry in cloud.arguments("GetProducts")["Filters"]}
    assert asked == {
        "regionCode": REGION,
        "instanceType": "g4dn.xlarge",
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
    }
    assert "DescribeSpotPriceHistory" not in cloud.names()


def test_a_price_list_that_may_not_be_read_makes_prices_unknown(cloud, client, fleet):
    body = json.dumps({"__type": "AccessDeniedException", "message": "no pricing:GetProducts"}).encode()
    cloud.answers["GetProducts"] = lambda: (400, body)
    cloud.refuse("DescribeSpotPriceHistory", "UnauthorizedOperation")
    told: list[str] = []
    prices = find_prices(client, fleet, fleet.instances, [SPOT, ON_DEMAND], told.append)
    assert prices == Prices({}, {})
    assert [line.split(":")[0] for line in told] == ["the prices on demand are unknown", "the spot prices are unknown"]
    assert "`prices` in" in told[0]
    cost = estimate(look_up(client, fleet), prices, [SPOT, ON_DEMAND], 2)
    assert str(cost).startswith("unknown (no price of g5.xlarge spot in eu-central-1a, ")


@pytest.mark.parametrize(
    ("products", "price"),
    [
        ([], None),
        (["{"], None),
        (["[]"], None),
        (['{"terms": {}}'], None),
        (json.loads(price_list(1.5))["PriceList"], 1.5),
        (json.loads(price_list(1.5))["PriceList"] * 2, 1.5),
        (json.loads(price_list(1.5))["PriceList"] + json.loads(price_list(0))["PriceList"], 1.5),
        (json.loads(price_list(1.5))["PriceList"] + json.loads(price_list(2))["PriceList"], None),
    ],
)
def test_a_price_is_read_only_where_there_is_one(products, price):
    assert read_price(products) == price


def test_a_range_where_aws_chooses(client, fleet):
    ground = look_up(client, fleet)
    zones = [f"{REGION}a", f"{REGION}b"]
    spot = {(kind, zone): 0.5 if kind == "g5.xlarge" else 0.3 for kind in fleet.instances for zone in zones}
    assert estimate(ground, Prices({}, spot), [SPOT], 3) == Estimate(pytest.approx(0.9), 1.5, ())
    assert str(estimate(ground, Prices({}, spot), [SPOT], 3)) == "$0.90 to $1.50"
    both = Prices({"g5.xlarge": 1.0, "g4dn.xlarge": 1.0}, spot)
    assert str(estimate(ground, both, [SPOT, ON_DEMAND], 1)) == "$0.30 to $1.00"
    assert str(estimate(ground, both, [ON_DEMAND], 2)) == "$2.00"
    assert str(estimate(ground, Prices({}, {}), [SPOT], 0)) == "$0.00"
    del spot["g5.xlarge", f"{REGION}b"]
    assert str(estimate(ground, Prices({}, spot), [SPOT], 1)) == f"unknown (no price of g5.xlarge spot in {REGION}b)"
    rows = price_rows(ground, Prices({}, spot), [SPOT])
    assert ("g5.xlarge", f"{REGION}b", SPOT, "unknown") in rows
    assert ("g4dn.xlarge", f"{REGION}b", SPOT, "0.3000") in rows
