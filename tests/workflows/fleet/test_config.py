"""fleet.yaml: what is read, and what is said of mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from regiondag.errors import ConfigError
from regiondag.fleet.config import load_fleet

ROOT = Path(__file__).parents[3]

GOOD = """\
fleet: demo
region: eu-central-1
manager: 10.0.0.5:9618
token: {secret: pool/token}
instances: [g5.xlarge]
subnets: [subnet-1a]
security_groups: [sg-1a]
instance_profile: worker
workers: {max: 3}
"""


def load(tmp_path: Path, text: str):
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    return load_fleet(path)


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    return [text.removeprefix(f"{tmp_path}/fleet.yaml:") for text in caught.value.problems]


def test_the_example_is_legal():
    fleet = load_fleet(ROOT / "ami" / "fleet.example.yaml")
    assert fleet.name == "demo"
    assert fleet.token == ("ssm", "/regiondag/pool-token")
    assert (fleet.minimum, fleet.maximum, fleet.disk_gb) == (0, 4, 30)
    assert fleet.prices == {"g5.xlarge": 1.258}
    assert fleet.settings == {"MachineMaxVacateTime": "60"}


def test_what_is_not_given_has_a_default(tmp_path):
    fleet = load(tmp_path, GOOD)
    assert (fleet.image, fleet.purchase, fleet.minimum, fleet.disk_gb) == ("latest", "spot", 0, 30)
    assert (fleet.idle_minutes, fleet.join_minutes, fleet.domain) == (15, 15, "")
    assert fleet.purchases == ("spot",)
    assert load(tmp_path, GOOD + "purchase: spot-then-on-demand\n").purchases == ("spot", "on-demand")
    assert load(tmp_path, GOOD + "disk: 1500MB\n").disk_gb == 2


def test_some_may_be_bought_on_demand_before_all_others(tmp_path):
    assert load(tmp_path, GOOD).on_demand == 0
    fleet = load(tmp_path, GOOD.replace("{max: 3}", "{max: 3, on_demand: 2}"))
    assert (fleet.on_demand, fleet.ways, fleet.purchases) == (2, ("spot",), ("spot", "on-demand"))
    all_so = load(tmp_path, GOOD.replace("{max: 3}", "{max: 3, on_demand: 2}") + "purchase: on-demand\n")
    assert all_so.purchases == ("on-demand",)
    assert problems(tmp_path, GOOD.replace("{max: 3}", "{max: 3, on_demand: 4}")) == [
        "9: workers.on_demand: 4 is more than workers.max, 3"
    ]


def test_every_mistake_is_said_at_once(tmp_path):
    text = """\
fleet: Demo
region: europe
manager: "a b"
token: {ssm: "a b"}
instances: [g5.xlarge, g5.xlarge]
subnets: subnet-1a
security_groups: [sg-zz]
instance_profile: worker
workers: {min: 5, max: 3}
idle_minutes: -1
disk: 30
prices: {g5.xlarge: -1}
settings: {"A B": 1}
purchas: spot
"""
    found = problems(tmp_path, text)
    assert [line.split(": ")[1] for line in found] == [
        "fleet",
        "region",
        "manager",
        "token.ssm",
        "instances",
        "subnets",
        "security_groups",
        "workers.min",
        "idle_minutes",
        "disk",
        "prices.g5.xlarge",
        "settings",
        "purchas",
    ]
    assert found[0] == "1: fleet: seen 'Demo', legal: 1 to 60 lower-case letters, digits and '-' between them"
    assert "g5.xlarge stands there twice" in found[4]
    assert "did you mean 'purchase'" in found[-1]


def test_a_price_is_of_an_instance_type_of_the_fleet(tmp_path):
    (line,) = problems(tmp_path, GOOD + "prices: {g6.xlarge: 1}\n")
    assert line.startswith("10: prices.g6.xlarge: unknown key; did you mean 'g5.xlarge'?")


def test_everything_needed_is_named(tmp_path):
    found = problems(tmp_path, "purchase: spot\n")
    missing = [line.split(": ")[1] for line in found if "missing: " in line]
    assert sorted(missing) == sorted(
        [
            *("fleet", "region", "manager", "token", "instances", "subnets", "security_groups"),
            *("instance_profile", "workers.max"),
        ]
    )


@pytest.mark.parametrize(
    "token", ["{text: eyJhbGciOi}", "eyJhbGciOi", "{ssm: a, text: eyJhbGciOi}", "{file: eyJhbGciOi}"]
)
def test_a_token_in_the_file_is_refused_and_not_repeated(tmp_path, token):
    found = problems(tmp_path, GOOD.replace("{secret: pool/token}", token))
    assert len(found) == 1
    assert "eyJ" not in found[0]
    if "text:" in token:
        assert "user data can be read by every job" in found[0]
        assert "aws ssm put-parameter --type SecureString" in found[0]
    else:
        assert "{ssm: /path/of/a/parameter} or {secret: name-of-a-secret}" in found[0]


@pytest.mark.parametrize("value", ['"a\\nb"', '"\\u202e"', '"\\x7f"', "a\\\\", "[1]", ""])
def test_a_setting_is_one_line(tmp_path, value):
    (line,) = problems(tmp_path, GOOD + f"settings:\n  START: {value}\n")
    assert "START" in line
    assert "is no value on one line" in line


def test_no_file_says_where_an_example_is(tmp_path):
    with pytest.raises(ConfigError, match=r"no such file; copy and edit the example .*fleet\.example\.yaml"):
        load_fleet(tmp_path / "fleet.yaml")
    with pytest.raises(ConfigError, match="empty; it must hold a fleet"):
        load(tmp_path, "")
    with pytest.raises(ConfigError, match="a fleet is a mapping of keys to values, seen a list"):
        load(tmp_path, "[1]")


@pytest.mark.parametrize("name", ["use", "Include", "1A", "A-B"])
def test_a_setting_has_a_name_that_htcondor_takes(tmp_path, name):
    (line,) = problems(tmp_path, GOOD + f"settings:\n  {name}: 1\n")
    assert f"'{name}' is no name of a setting" in line


def test_a_port_is_a_port(tmp_path):
    (line,) = problems(tmp_path, GOOD.replace("9618", "99999"))
    assert line == "3: manager: seen '10.0.0.5:99999': ports are 1 to 65535"


def test_a_name_that_the_worker_would_refuse_is_refused_here(tmp_path):
    assert problems(tmp_path, GOOD.replace("fleet: demo", "fleet: demo-"))[0].startswith("1: fleet: seen 'demo-'")


@pytest.mark.parametrize(
    ("value", "key", "text"),
    [
        ("{day: -1}", "max_spend.day", "seen -1, legal: a number from 0.01 to 1e+07"),
        ("{day: fifty}", "max_spend.day", "seen 'fifty', legal: a number from 0.01 to 1e+07"),
        ("{day: 5, week: 20}", "max_spend.week", "unknown key"),
        ("{}", "max_spend", "legal: {day: 50, run: 200}, one of them or both, in dollars"),
        ("50", "max_spend", "seen 50, legal: a mapping of keys to values"),
    ],
)
def test_a_bound_that_is_none_is_refused(tmp_path, value, key, text):
    found = problems(tmp_path, GOOD + f"max_spend: {value}\n")
    assert found[0].startswith(f"10: {key}: {text}")


def test_a_bound_and_a_lease(tmp_path):
    assert (load(tmp_path, GOOD).max_spend, load(tmp_path, GOOD).lease_minutes) == ({}, 60)
    fleet = load(tmp_path, GOOD + "max_spend: {run: 200}\nlease_minutes: 5\n")
    assert (fleet.max_spend, fleet.lease_minutes) == ({"run": 200.0}, 5)
    (line,) = problems(tmp_path, GOOD + "lease_minutes: 0\n")
    assert line.startswith("10: lease_minutes: seen 0, legal: ")
