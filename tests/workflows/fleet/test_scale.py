"""From queue, pool and EC2 to a number; and which workers go when there are too many."""

from __future__ import annotations

import dataclasses

import classad2
import pytest

from regiondag.fleet.checks import look_up
from regiondag.fleet.demand import GpuRequest, Worker, sum_slots
from regiondag.fleet.ec2 import Instance
from regiondag.fleet.lifecycle import choose_surplus
from regiondag.fleet.prices import Prices
from regiondag.fleet.scale import Wish, decide, wish
from regiondag.fleet.status import as_json, assemble, show_age, show_total, table_rows
from regiondag.util import aws
from tests.workflows.fleet.conftest import REGION

NOW = 1_000_000.0
JOB = GpuRequest(1, 1, 1000)


def instance(name: str, minutes: float = 60, **changes: object) -> Instance:
    made = Instance(name, "g5.xlarge", f"{REGION}a", "running", "spot", NOW - 60 * minutes)
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture
def decided(fleet):
    ground = look_up(aws.client("ec2", REGION), fleet)
    fleet = dataclasses.replace(fleet, minimum=0, maximum=4)
    return lambda alive, workers, requests: decide(
        fleet, ground, alive, {w.instance: w for w in workers}, requests, NOW
    )


def test_jobs_that_find_a_free_or_booting_worker_start_nothing(decided):
    alive = [instance("i-1"), instance("i-2", minutes=1), instance("i-3")]
    workers = [Worker("i-1", 1, 1, 0), Worker("i-3", 1, 0, 1)]
    assert decided(alive, workers, [JOB, JOB]).missing == 0
    decision = decided(alive, workers, [JOB] * 3)
    assert (decision.running, decision.wanted, decision.missing) == (3, 4, 1)
    assert decision.summary == "3 idle GPU jobs, 1 GPUs unclaimed, 1 workers booting, 3 running: 4 wanted"
    assert decided(alive, workers, [JOB] * 9).wanted == 4


def test_nothing_waits_nothing_starts_and_nothing_is_stopped(decided):
    assert decided([], [], []).wanted == 0
    assert decided([instance("i-1")], [Worker("i-1", 1, 1, 0)], []).wanted == 1


def test_a_draining_worker_serves_nobody_but_costs(decided):
    alive = [instance(f"i-{n}", drain="peaceful") for n in range(3)]
    workers = [Worker(one.id, 1, 1, 0) for one in alive]
    assert decided(alive, workers, [JOB] * 5).missing == 1


def test_a_worker_that_drains_because_ec2_asked_for_it_is_known_by_its_slots(decided):
    """A rebalance recommendation sets no tag: the worker alone knows of it."""
    alive = [instance("i-1")]
    assert decided(alive, [Worker("i-1", 4, 3, 1)], [JOB]).missing == 0
    assert decided(alive, [Worker("i-1", 4, 3, 1, draining=True)], [JOB]).missing == 1


def test_one_that_never_joined_is_not_waited_for(decided):
    decision = decided([instance("i-1", minutes=16)], [], [JOB])
    assert decision.missing == 1
    assert "never joined the pool: i-1" in decision.notes[0]
    assert "on a machine with the AWS CLI and your own credentials" in decision.notes[0]
    assert f"get-console-output --latest --output text --region {REGION} --instance-id i-1 | grep" in decision.notes[0]


def test_jobs_that_no_worker_can_run_start_nothing_and_are_named(decided):
    decision = decided([], [], [GpuRequest(2, 1, 1), GpuRequest(1, 64, 1), JOB])
    assert decision.missing == 1
    assert decision.notes[0].startswith(
        "2 idle GPU jobs ask for more than every worker of this fleet has (1 GPUs, 4 CPUs"
    )


def test_jobs_that_the_workers_refuse_start_no_more_of_them(decided):
    picky = dataclasses.replace(JOB, refused=True)
    decision = decided([instance("i-1")], [Worker("i-1", 1, 0, 1)], [picky, picky, JOB])
    assert decision.missing == 1
    assert decision.notes[0].startswith("2 idle GPU jobs match none of the workers that run, even when they are idle")


def test_the_idle_go_first_then_the_youngest():
    alive = [instance("old", 50), instance("busy", 5), instance("young", 10), instance("gone", 1, drain="peaceful")]
    workers = {"busy": Worker("busy", 1, 0, 1), "old": Worker("old", 1, 1, 0), "young": Worker("young", 1, 1, 0)}
    assert [one.id for one in choose_surplus(alive, workers, 1)] == ["young", "old"]
    assert [one.id for one in choose_surplus(alive, workers, 0)] == ["young", "old", "busy"]
    assert choose_surplus(alive, workers, 3) == []


def test_of_those_bought_on_demand_so_many_stay_longest():
    alive = [instance("spot", 9), instance("firm", 8, purchase="on-demand"), instance("more", 7, purchase="on-demand")]
    workers = {"spot": Worker("spot", 1, 0, 2), "firm": Worker("firm", 1, 1, 0), "more": Worker("more", 1, 1, 0)}
    assert [one.id for one in choose_surplus(alive, workers, 0)] == ["more", "firm", "spot"]
    assert [one.id for one in choose_surplus(alive, workers, 0, 1)] == ["more", "spot", "firm"]
    assert [one.id for one in choose_surplus(alive, workers, 0, 2)] == ["spot", "more", "firm"]


def test_so_many_are_wanted_on_demand_as_stay_too_few(fleet):
    firm = dataclasses.replace(fleet, on_demand=2)
    alive = [
        instance("i-1", purchase="on-demand"),
        instance("i-2"),
        instance("i-3", purchase="on-demand", drain="peaceful"),
    ]
    assert wish(fleet, alive, 3) == Wish(3, 0)
    assert wish(firm, alive, 3) == Wish(3, 1)
    assert wish(firm, [], 1) == Wish(1, 1)
    assert wish(firm, [], 0) == Wish(0, 0)
    assert wish(firm, [instance(f"i-{n}", purchase="on-demand") for n in range(3)], 2) == Wish(2, 0)


def test_slots_are_added_up_by_instance():
    def ad(**values: object) -> classad2.ClassAd:
        return classad2.ClassAd({"EC2InstanceID": "i-1", **values})

    ads = [
        ad(SlotType="Partitionable", TotalSlotGPUs=4, GPUs=2, State="Unclaimed"),
        ad(SlotType="Dynamic", GPUs=1, State="Claimed"),
        ad(SlotType="Dynamic", GPUs=1, State="Claimed"),
        ad(SlotType="Static", GPUs=1, State="Unclaimed", EC2InstanceID="i-2"),
        ad(SlotType="Static", GPUs=1, State="Claimed", EC2InstanceID="i-2"),
        ad(SlotType="Partitionable", TotalSlotGPUs=classad2.ExprTree("undefined"), EC2InstanceID="i-3"),
        classad2.ClassAd({"SlotType": "Partitionable", "GPUs": 8}),
    ]
    assert sum_slots(ads) == {
        "i-1": Worker("i-1", 4, 2, 2),
        "i-2": Worker("i-2", 2, 1, 1),
        "i-3": Worker("i-3", 0, 0, 0),
    }


def test_status_tells_states_apart():
    alive = [
        instance("i-1", minutes=62),
        instance("i-2", minutes=2),
        instance("i-3", minutes=20),
        instance("i-4", drain="peaceful"),
        instance("i-5", minutes=0, state="pending", purchase="on-demand"),
    ]
    workers = {"i-1": Worker("i-1", 4, 1, 3), "i-4": Worker("i-4", 1, 0, 1)}
    prices = Prices({}, {("g5.xlarge", f"{REGION}a"): 0.5})
    seen = assemble(("demo", REGION, "default"), alive, workers, prices, 15, NOW)
    assert [row.state for row in seen.rows] == ["joined", "booting", "never joined", "draining", "pending"]
    assert seen.orphans == ("i-3",)
    assert table_rows(seen)[0] == (
        *("i-1", "g5.xlarge", "spot", f"{REGION}a", "joined", "1h02m", "3", "1", "3", "0.5000"),
    )
    assert table_rows(seen)[4][-4:] == ("-", "-", "-", "unknown")
    assert show_total(seen) == "5 workers, $2.00 an hour, and 1 of unknown price"
    assert '"dollars_per_hour": null' in as_json(seen)
    blind = assemble(("demo", REGION, None), alive, {}, prices, 15, NOW)
    assert blind.orphans == ()
    assert [row.state for row in blind.rows] == ["running", "running", "running", "draining", "pending"]
    assert show_total(assemble(("demo", REGION, None), [], {}, prices, 15, NOW)) == "no workers"


def test_ages():
    assert [show_age(seconds) for seconds in (0, 59, 60, 3599, 3600, 86400 + 7200)] == [
        "0m",
        "0m",
        "1m",
        "59m",
        "1h00m",
        "1d02h",
    ]
