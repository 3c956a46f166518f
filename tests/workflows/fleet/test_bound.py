"""`max_spend`: what may start, what must go, and what is said; end to end against moto, by a clock of the test."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from regiondag.accounting.prices import PriceTable
from regiondag.cli import main
from regiondag.fleet import bound, ec2, queue, verbs
from regiondag.fleet.bound import Account, Curb, curb, hold
from regiondag.fleet.checks import look_up
from regiondag.fleet.demand import GpuRequest, Worker
from regiondag.fleet.ec2 import Instance
from regiondag.fleet.ledger import DAY, HOUR, Ledger, day_of
from regiondag.fleet.prices import Prices
from regiondag.fleet.scale import Wish
from regiondag.pool import pool as pools
from regiondag.pool.pool import Pool
from regiondag.util import aws
from tests.workflows.fleet.conftest import REGION, fleet_text

NOW = 20_000 * DAY + 12 * HOUR
TOMORROW = day_of(NOW + DAY)


def instance(name: str, drain: str = "", state: str = "running", launched: float = NOW) -> Instance:
    return Instance(name, "g5.xlarge", f"{REGION}a", state, "on-demand", launched, drain)


@pytest.fixture
def account(fleet) -> Callable[..., Account]:
    def make(left: float, running: int = 0, rate: float = 1.0, **prices: float) -> Account:
        spent = Ledger(run=60, days={day_of(NOW): 50 - left})
        bounded = dataclasses.replace(fleet, max_spend={"day": 50.0, "run": 200.0}, purchase="on-demand")
        known = {"g5.xlarge": 1.0, "g4dn.xlarge": 0.5, **{name.replace("_", "."): one for name, one in prices.items()}}
        rates = {f"i-{number}": rate for number in range(running)}
        return Account(bounded, spent, rates, Prices(known, {}), PriceTable(), NOW)

    return make


@pytest.fixture
def ground(fleet):
    return look_up(aws.client("ec2", REGION), fleet)


# --- what may start ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "running", "asked", "many"),
    [(50, 0, 3, 3), (3, 0, 3, 3), (2.99, 0, 3, 2), (5, 3, 3, 2), (3, 3, 1, 0), (-1, 0, 2, 0), (0.7, 0, 2, 1)],
)
def test_so_many_start_as_the_next_hour_of_all_allows(account, ground, left, running, asked, many):
    where, held, why = hold(account(left, running), ground, Wish(asked))
    assert held == Wish(many)
    assert bool(why) == (many < asked)
    # What is too dear alone is not left to EC2's choice: for seventy cents there is a g4dn.xlarge.
    assert {kind for kind, _ in where.pools} == ({"g4dn.xlarge"} if left == 0.7 else {"g5.xlarge", "g4dn.xlarge"}
                                                 if many else set())  # fmt: skip


def test_it_says_why_and_when(account, ground):
    _, held, why = hold(account(1.2, running=1), ground, Wish(2))
    assert held == Wish(0)
    assert why == (
        f"2 of 2 workers are not started: $48.80 of $50.00 spent today (UTC), and an hour of one more costs $0.50 or "
        f"more; they may from {TOMORROW} 00:00 UTC"
    )
    spent = dataclasses.replace(account(20), ledger=Ledger(run=199.8, days={day_of(NOW): 30}))
    assert "$199.80 of $200.00 spent since `fleet up`" in hold(spent, ground, Wish(1))[2]
    end = "they may when max_spend.run is raised, or after `regiondag fleet down`, when `up` begins a new run"
    assert hold(spent, ground, Wish(1))[2].endswith(end)
    dear = account(50, running=50)
    assert "that is more than max_spend.day allows at all" in hold(dear, ground, Wish(1))[2]


@pytest.mark.parametrize(
    ("left", "asked", "held"),
    [
        (50, Wish(5, 2), Wish(5, 2)),
        (2.9, Wish(5, 2), Wish(5, 2)),  # two for a dollar, three for thirty cents
        (2.8, Wish(5, 2), Wish(4, 2)),
        (1.9, Wish(5, 2), Wish(1, 1)),  # what the second one needs is not spent on others
        (1.9, Wish(5), Wish(5)),
        (2.0, Wish(2, 2), Wish(2, 2)),
    ],
)
def test_those_wanted_on_demand_come_first_and_cost_what_they_cost(account, ground, left, asked, held):
    bounded = account(left)
    spot = {(kind, ground.zones[subnet]): 0.3 for kind, subnet in ground.pools}
    prices = Prices({"g5.xlarge": 1.0, "g4dn.xlarge": 1.0}, spot)
    mixed = dataclasses.replace(bounded.fleet, purchase="spot", on_demand=2)
    assert hold(dataclasses.replace(bounded, fleet=mixed, prices=prices), ground, asked)[1] == held


def test_what_has_no_price_is_not_started(account, ground):
    nothing = dataclasses.replace(account(50), prices=Prices({}, {}))
    where, held, why = hold(nothing, ground, Wish(1))
    assert (where.pools, held) == ((), Wish(0))
    assert "no price of g4dn.xlarge, g5.xlarge is known, and `prices` in" in why
    one = dataclasses.replace(account(50), prices=Prices({"g5.xlarge": 1.0}, {}))
    assert {kind for kind, _ in hold(one, ground, Wish(1))[0].pools} == {"g5.xlarge"}


def test_without_a_bound_nothing_changes(ground):
    assert hold(None, ground, Wish(7, 2)) == (ground, Wish(7, 2), "")
    assert curb(None, [instance("i-0")], {}) == Curb()


def test_a_spot_price_that_is_not_known_counts_as_on_demand(account):
    assert account(1).of("g5.xlarge", "x", "spot") == 1.0
    assert account(1).of("p5.xlarge", "x", "spot") is None


# --- what must go ------------------------------------------------------------------------------------------


def names(found: tuple[Instance, ...]) -> list[str]:
    return [one.id for one in found]


def test_those_whose_next_hour_would_pass_it_are_drained(account):
    alive = [instance("i-0", launched=1), instance("i-1", launched=2), instance("i-2", launched=3)]
    workers = {"i-1": Worker("i-1", 1, 0, 5), "i-2": Worker("i-2", 1, 0, 1)}
    assert curb(account(3, 3), alive, workers) == Curb()
    assert names(curb(account(2.5, 3), alive, workers).drain) == ["i-0"]  # it has no job
    assert names(curb(account(1.5, 3), alive, workers).drain) == ["i-2", "i-0"]
    drained = [instance("i-0", "peaceful"), *alive[1:]]
    assert curb(account(2.5, 3), drained, workers) == Curb()


def test_with_minutes_left_jobs_are_stopped_and_at_the_bound_instances_end(account):
    alive = [instance("i-0", "peaceful"), instance("i-1"), instance("i-2", "graceful")]
    found = curb(account(0.24, 3), alive, {})
    assert (found.drain, names(found.stop), found.end) == ((), ["i-0", "i-1"], ())
    stopped = [*alive, instance("i-3", state="stopped")]
    for left in (0, -5):
        found = curb(account(left, 3), stopped, {})
        assert (found.drain, found.stop, names(found.end)) == ((), (), ["i-0", "i-1", "i-2"])


# --- end to end --------------------------------------------------------------------------------------------


class Clock:
    """The time that the commands see, in hours after now; moto's instances keep the real one."""

    def __init__(self) -> None:
        self.start, self.hours = (time.time() // DAY) * DAY + 60, 0.0

    def time(self) -> float:
        return self.start + self.hours * HOUR


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A day that has just begun, and instances that were launched with it."""
    found = Clock()
    monkeypatch.setattr(verbs.time, "time", found.time)
    read = ec2._instance
    monkeypatch.setattr(ec2, "_instance", lambda raw: dataclasses.replace(read(raw), launched=found.start, ended=None))
    monkeypatch.setattr(bound, "read_prices", PriceTable)
    return found


@pytest.fixture
def run(cloud, fleet_file: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    found = Pool("default", "installed", (23, 9, 6))
    for name in ("find_pool", "require_pool"):
        monkeypatch.setattr(pools, name, lambda name=None: found)
    monkeypatch.setattr(queue, "query_gpu_requests", lambda pool, fleet: [GpuRequest(1, 1, 1000)] * 9)
    monkeypatch.setattr(queue, "query_workers", lambda pool, fleet: {one: Worker(one, 1, 0, 1) for one in cloud.ids()})

    def call(*words: str, **changes: str) -> int:
        values = {
            "purchase": "on-demand",
            "max_spend": "{day: 10, run: 25}",
            "prices": "{g5.xlarge: 1, g4dn.xlarge: 1}",
        }
        fleet_file.write_text(fleet_text(cloud, **{**values, **changes}))
        return main(["fleet", words[0], "--file", str(fleet_file), *words[1:]])

    return call


def spent(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    capsys.readouterr()
    assert run("status", "--json") == 0
    found = json.loads(capsys.readouterr().out)["spending"]
    return {name: round(found[name], 2) for name in ("day", "run", "next_hour")}


def drains(cloud) -> list[str]:
    tags = [{tag["Key"]: tag["Value"] for tag in one["Tags"]} for one in cloud.alive()]
    return sorted(one.get("regiondag-drain", "") for one in tags)


def test_a_day_of_a_fleet_with_a_bound(cloud, run, clock, capsys):
    assert run("up") == 0
    assert spent(run, capsys)["next_hour"] == 2
    clock.hours = 1
    assert run("scale") == 0
    assert len(cloud.ids()) == 4
    assert spent(run, capsys) == {"day": 4, "run": 4, "next_hour": 4}  # all were launched with the day
    assert spent(run, capsys) == {"day": 4, "run": 4, "next_hour": 4}  # another process, the same hour
    clock.hours = 1.6
    assert run("scale") == 0
    assert "take no more jobs, for their next hour would pass max_spend" in capsys.readouterr().err
    assert drains(cloud) == ["", "", "", "peaceful"]
    clock.hours = 2.45
    assert run("scale") == 0
    assert "stop their jobs, which send their checkpoints back" in capsys.readouterr().err
    assert drains(cloud) == ["graceful"] * 4
    clock.hours = 2.5
    assert run("scale") == 0
    said = capsys.readouterr().err
    assert "end now, for max_spend is reached" in said
    assert "$10.00 of $10.00 spent today (UTC)" in said
    assert cloud.ids() == []
    assert run("up") == 0
    said = capsys.readouterr().err
    assert "2 of 2 workers are not started: $10.00 of $10.00 spent today (UTC)" in said
    assert "00:00 UTC" in said
    assert cloud.ids() == []


def test_the_run_goes_on_over_the_days_until_down(cloud, run, clock, capsys):
    assert run("up") == 0
    clock.hours = 4
    assert spent(run, capsys) == {"day": 8, "run": 8, "next_hour": 2}
    assert run("down", "--now") == 0
    assert "$8.00 of $25.00 spent since `fleet up`" in status(run, capsys)
    clock.start, clock.hours = clock.start + DAY, 0.02
    assert "$0.00 of $10.00 spent today (UTC); $8.00 of $25.00" in status(run, capsys)
    assert run("up") == 0
    assert spent(run, capsys)["run"] < 0.1


def status(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert run("status") == 0
    return capsys.readouterr().out


def test_a_dry_run_ends_nobody_and_writes_nothing(cloud, run, clock, capsys, tmp_path):
    assert run("up") == 0
    before = [path.read_bytes() for path in tmp_path.rglob("fleets/*.json")]
    clock.hours = 6
    assert run("scale", "--dry-run") == 0
    assert "a real run would let these go: " in capsys.readouterr().err
    assert len(cloud.ids()) == 2
    assert [path.read_bytes() for path in tmp_path.rglob("fleets/*.json")] == before


def test_a_lost_price_is_the_last_one_and_a_price_never_known_stops_it(cloud, run, clock, capsys):
    assert run("up") == 0
    clock.hours = 1
    cloud.refuse("GetProducts", "InternalError")
    assert spent(run, capsys) == {"day": 2, "run": 2, "next_hour": 2}
    for path in Path(str(bound.ledger.ledger_path(REGION, "demo"))).parent.glob("*.json"):
        path.unlink()
    cloud.answers["GetProducts"] = lambda: (200, b'{"FormatVersion": "aws_v1", "PriceList": []}')
    assert run("status", prices="") == 8
    assert "no price of g5.xlarge is known, so max_spend of" in capsys.readouterr().err


def test_a_broken_ledger_starts_nothing(cloud, run, clock, capsys, tmp_path):
    assert run("up", workers="{min: 0, max: 4}") == 0
    (path,) = tmp_path.rglob("fleets/*.json")
    path.write_text("{")
    assert run("scale") == 1
    assert "nothing is started before it can" in capsys.readouterr().err
    assert cloud.ids() == []
