"""Hours, losses, cost and right sizes of made-up jobs."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.accounting import right_size
from regiondag.accounting.prices import Price, PriceTable, read_prices
from regiondag.accounting.right_size import measure, study_lines
from regiondag.accounting.usage import HOUR, busy_share, sum_up, take
from regiondag.condor.events.attempts import Attempt, Hold, Leg, Span
from regiondag.errors import ConfigError
from regiondag.run.layout import NodeName
from regiondag.util.yaml_file import parse_yaml

NODE = NodeName("germany", 0)
SPOT = {"instance_type": "g5.12xlarge", "life_cycle": "spot"}
PRICES = PriceTable(instances={"g5.12xlarge": Price(4, 8.0, 4.0)})


def leg(start: float, end: float | None, slot: str = "slot1_1@a", **values) -> Leg:
    return Leg(slot.rpartition("@")[2], slot, Span(start, end), **values)


def job(*legs: Leg, queued: float = 0.0, node: NodeName = NODE, **values) -> Attempt:
    end = legs[-1].running.end if legs else None
    values = {"exit_code": 0, "asked": {"gpus": 1.0, "memory_mb": 4096.0, "disk_mb": 4096.0}} | values
    return Attempt(node, "1.0", Span(queued, end), legs, **values)


def test_an_evicted_and_a_failed_try_are_told_apart():
    tries = [
        job(leg(10, 110, ending="evicted", kept=False), leg(200, 300, ending="done"), exit_code=75),
        job(leg(400, 500, ending="evicted", kept=True), leg(500, 700, ending="done"), queued=350),
    ]
    [taken] = take(tries, {NODE: 180.0}, PRICES, 1000)
    assert (taken.tries, taken.starts, taken.evictions, taken.holds) == (2, 4, 2, 0)
    assert (taken.slot, taken.gpu, taken.ran) == (500, 500, 300)
    assert (taken.lost_to_eviction, taken.lost_to_failure) == (100, 100)
    assert taken.waited == (10, 50) and taken.transfers is None
    usage = sum_up([taken], tries, 1000)
    assert usage.overhead == 120 and usage.cost == 0 and usage.wait_median == 30


def test_a_slot_is_taken_from_the_first_file_on():
    one = job(leg(20, 60, ending="done", transfer_in=Span(10, 20), transfer_out=Span(55, 60)), queued=4)
    [taken] = take([one], {}, PRICES, 100)
    assert taken.slot == 50 and taken.transfers == 15 and taken.waited == (6,)
    assert sum_up([taken], [one], 100).transfer_share == pytest.approx(0.3)


def test_only_trainings_that_ended_tell_what_is_around_them():
    done, running = job(leg(0, 100, ending="done")), job(leg(0, 50, ending="done"), node=NodeName("germany", 1))
    taken = take([done, running], {NODE: 60.0}, PRICES, 200)
    assert sum_up(taken, [done, running], 200).overhead == 40


def test_what_still_runs_counts_up_to_now():
    [taken] = take([job(leg(10, None), exit_code=None)], {}, PRICES, 40)
    assert taken.slot == 30 and taken.lost_to_failure == 0 and taken.ran == 0


def test_a_job_pays_for_its_share_of_a_machine():
    spot, dear, unknown, own = (
        leg(0, HOUR, facts=SPOT),
        leg(0, HOUR, facts={"instance_type": "g5.12xlarge"}),
        leg(0, HOUR, facts={"instance_type": "x9.large"}),
        leg(0, HOUR),
    )
    assert [PRICES.of_leg(one, 1) for one in (spot, dear, unknown, own)] == [1.0, 2.0, None, 0.0]
    assert PRICES.of_leg(dear, 4) == PRICES.of_leg(dear, 9) == 8.0
    [taken] = take([job(spot)], {}, PRICES, HOUR)
    assert taken.cost == 1.0 and sum_up([taken], [], HOUR).cost_per_trial == 1.0
    [taken] = take([job(spot, unknown)], {}, PRICES, HOUR)
    assert taken.cost is None and sum_up([taken], [], HOUR).cost is None  # unknown, not guessed


def test_a_region_by_hand():
    """Node 0 has two GPUs for an hour and its transfers; node 1 is evicted, tries again and fails."""
    other = NodeName("germany", 1)
    good = job(
        leg(100, 3700, facts=SPOT, ending="done", transfer_in=Span(90, 100), transfer_out=Span(3690, 3700)),
        asked={"gpus": 2.0},
    )
    bad = job(
        leg(50, 1850, "slot1_2@a", facts=SPOT, ending="lost", kept=False),
        leg(2000, 3800, "slot1_2@a", facts=SPOT, ending="done", kept=False),
        node=other,
        holds=(Hold(Span(1850, 2000), 13, 0, "no file"),),
        exit_code=1,
    )
    taken = take([good, bad], {NODE: 3000.0}, PRICES, 9999)
    assert [(one.node, one.starts, one.evictions, one.holds) for one in taken] == [(NODE, 1, 0, 0), (other, 2, 1, 1)]
    assert [(one.slot, one.gpu, one.training, one.ran) for one in taken] == [
        (3610, 7220, 3000, 3610),
        (3600, 3600, 0, 0),
    ]
    usage = sum_up(taken, [good, bad], 9999)
    assert (usage.trials, usage.tries, usage.evictions, usage.holds) == (2, 2, 1, 1)
    assert usage.slot_hours == pytest.approx(7210 / 3600) and usage.gpu_hours == pytest.approx(10820 / 3600)
    assert usage.training_hours == pytest.approx(3000 / 3600)
    assert (usage.lost_to_eviction, usage.lost_to_failure) == (0.5, 0.5)
    assert (usage.wait_median, usage.wait_90, usage.overhead) == (70, 90, 610)
    assert usage.transfer_hours == pytest.approx(20 / 3600) and usage.transfer_share == pytest.approx(20 / 7210)
    assert usage.cost == pytest.approx(2 * 3610 / 3600 + 1) and usage.cost_per_trial == pytest.approx(usage.cost / 2)
    assert usage.busy == pytest.approx(7210 / (3610 + 3750))  # one slot from 90 to 3700, one from 50 to 3800


def test_legs_of_a_job_may_have_other_numbers_of_gpus():
    """Evicted from a machine with four GPUs free it goes on with two; what was asked for is of the last."""
    one = job(
        leg(0, HOUR, facts=SPOT, gpus=4.0, ending="evicted", kept=True),
        leg(HOUR, 2 * HOUR, facts=SPOT, gpus=2.0, ending="checkpointed"),
        leg(2 * HOUR, 3 * HOUR, facts=SPOT, ending="done"),
        asked={"gpus": 2.0},
    )
    [taken] = take([one], {}, PRICES, 9 * HOUR)
    assert (taken.slot, taken.gpu, taken.cost) == (3 * HOUR, 8 * HOUR, 8.0)


def test_a_region_without_jobs():
    usage = sum_up([], [], 0)
    assert (usage.trials, usage.slot_hours, usage.cost) == (0, 0, 0)
    nothing = (usage.busy, usage.wait_median, usage.wait_90, usage.transfer_hours, usage.overhead, usage.cost_per_trial)
    assert nothing == (None,) * 6
    assert take([job()], {}, PRICES, 10)[0].waited == ()


@pytest.mark.parametrize(
    ("ending", "values", "lost"),
    [
        ({"ending": "done"}, {"exit_code": 0}, 0),
        ({"ending": "done"}, {"exit_code": 1}, 100),
        ({"ending": "done"}, {"exit_code": None, "signal": 9}, 100),
        ({"ending": "removed"}, {"exit_code": None, "removed": "by its owner"}, 100),
        ({"ending": "held", "kept": False}, {"exit_code": None}, 100),
        ({"ending": "held", "kept": True}, {"exit_code": None}, 0),
        ({"ending": "done", "kept": False}, {"exit_code": None}, 0),
        ({"ending": "evicted", "kept": False}, {"exit_code": 1}, 0),  # lost, but to the eviction
        ({"ending": "evicted", "kept": True}, {"exit_code": 1}, 100),
    ],
)
def test_what_is_lost_to_failure(ending, values, lost):
    [taken] = take([job(leg(0, 100, **ending), **values)], {}, PRICES, 100)
    assert taken.lost_to_failure == lost


def test_clocks_of_two_machines_may_differ():
    early = job(leg(10, 60, transfer_in=Span(20, 30)), queued=15)
    [taken] = take([early], {NODE: 70.0}, PRICES, 100)
    assert (taken.slot, taken.waited) == (50, (0,))
    assert sum_up([taken], [early], 100).overhead == 0


def test_one_wait_in_ten_is_longer():
    taken = take([job(leg(wait, 100)) for wait in range(1, 21)], {}, PRICES, 100)
    usage = sum_up(taken, [], 100)
    assert (usage.wait_median, usage.wait_90) == (10.5, 19)


def test_a_region_has_no_cost_while_one_price_is_unknown():
    unknown = job(leg(0, HOUR, facts={"instance_type": "x9.large"}), node=NodeName("germany", 1))
    usage = sum_up(take([job(leg(0, HOUR, facts=SPOT)), unknown], {}, PRICES, HOUR), [], HOUR)
    assert (usage.cost, usage.cost_per_trial) == (None, None)


def test_a_slot_is_never_more_than_busy():
    assert busy_share([job(leg(0, 10), leg(0, 10))], 10) == 1
    assert busy_share([job(leg(0, 10), leg(20, None))], 40) == pytest.approx(30 / 40)  # the last one runs still


def test_slots_are_busy_from_their_first_job_to_their_last():
    jobs = [job(leg(0, 10), leg(30, 40)), job(leg(0, 40, slot="slot1_2@a"))]
    assert busy_share(jobs, 100) == pytest.approx(60 / 80)
    assert busy_share([], 100) is None


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9), st.booleans()), max_size=8), st.floats(0, 1e9))
def test_no_share_is_beyond_bounds_whatever_the_clocks_say(pairs, now):
    jobs = [job(*(leg(start, end if ended else None, ending="evicted", kept=False) for start, end, ended in pairs))]
    taken = take(jobs, {NODE: 1.0}, PRICES, now)
    usage = sum_up(taken, jobs, now)
    assert usage.busy is None or 0 <= usage.busy <= 1
    assert 0 <= usage.lost_to_eviction <= usage.slot_hours + 1e-9
    assert all(wait >= 0 for one in taken for wait in one.waited)


def test_the_built_in_prices():
    table = read_prices()
    assert table.instances["g5.xlarge"].on_demand == pytest.approx(1.006) and table.other.on_demand == 0
    assert all(0 < one.spot < one.on_demand for one in table.instances.values())
    assert table.date and table.source


def test_every_mistake_in_prices_is_told_at_once(tmp_path):
    path = tmp_path / "prices.yaml"
    path.write_text(
        "sorce: me\ninstances:\n  a.large: {gpus: 0, on_demand: 1}\n  b.large: {spot: 2}\n  c: 7\n"
        "  d: {on_demand: 1, spott: 1}\n"
    )
    with pytest.raises(ConfigError) as raised:
        read_prices(path)
    text = str(raised.value)
    assert (
        "sorce" in text
        and "did you mean 'source'" in text
        and "a.large" in text
        and "b.large" in text
        and ":5:" in text
        and "spott: unknown key" in text
    )


def test_own_prices(tmp_path):
    path = tmp_path / "prices.yaml"
    path.write_text("instances: {a.large: {on_demand: 3}}\nother: {on_demand: 1, gpus: 2}\ncurrency: EUR\n")
    table = read_prices(path)
    assert table.instances == {"a.large": Price(1, 3.0, 3.0)} and table.other == Price(2, 1.0, 1.0)


def test_a_table_that_says_little(tmp_path):
    path = tmp_path / "prices.yaml"
    path.write_text("date: today\n")
    assert read_prices(path) == PriceTable("unknown", "today", "USD", Price(1, 0.0, 0.0), {})
    path.write_text("other: {gpus: 64, spot: 1}\ninstances: {a: {gpus: 1, on_demand: 2, spot: 0.5}}\n")
    assert read_prices(path).other == Price(64, 0.0, 1.0) and read_prices(path).instances == {"a": Price(1, 2.0, 0.5)}
    assert PriceTable().other == Price(1, 0.0, 0.0)
    path.write_text("other: {on_demand: 10000}\n")
    assert read_prices(path).other.on_demand == 10_000
    path.write_text("other: {on_demand: 10000.5}\n")
    with pytest.raises(ConfigError, match="from 0 to 10000"):
        read_prices(path)
    for text, words in (("[1]", "holds no keys"), ("instances: 3", "a mapping"), ("other: {gpus: 65}", "from 1 to 64")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=words):
            read_prices(path)


def test_doctests():
    assert doctest.testmod(right_size).failed == 0


def test_sizes_have_head_room():
    jobs = [
        job(leg(0, 1), used={"memory_mb": used, "disk_mb": 10.0, "gpu_memory_mb": 2 * used}) for used in (100.0, 900.0)
    ]
    sizes = measure(jobs)
    assert sizes.memory == right_size.Quantity(4096, 900, 1152) and sizes.disk == right_size.Quantity(4096, 10, 64)
    assert sizes.gpu_memory == 1800
    for code in (34, 21, 26):  # HTCondor's own rule, a worker's, a manager's
        held = job(leg(0, 1), used={"memory_mb": 4000.0}, holds=(Hold(Span(0, 1), code, 102, "memory"),))
        assert measure([held]).memory == right_size.Quantity(4096, 4000, 6144)
    assert measure([job()]) == right_size.Sizes(None, None, None)
    for code, subcode in ((34, 104), (1, 102)):  # for its disk, and by its user: its memory was not too small
        held = job(leg(0, 1), used={"memory_mb": 400.0}, holds=(Hold(Span(0, 1), code, subcode, "other"),))
        assert measure([held]).memory == right_size.Quantity(4096, 400, 512)


def test_what_was_enough_after_a_hold_is_asked_for_again():
    def tried(asked: float, *too_small: float, exit_code: int | None = 0) -> Attempt:
        holds = tuple(Hold(Span(0, 0), 34, 102, "memory", {"memory_mb": size}) for size in too_small)
        return job(used={"memory_mb": 200.0}, asked={"memory_mb": asked}, holds=holds, exit_code=exit_code)

    def suggested(*attempts: Attempt) -> float:
        memory = measure(attempts).memory
        assert memory is not None
        return memory.suggested

    assert suggested(tried(512, 256), tried(256)) == 512  # the same job, with more
    assert suggested(tried(512, 256, exit_code=None), tried(1024, 256, 512)) == 1024
    assert suggested(tried(512, 512), tried(256)) == 768  # it was released with no more: who knows
    assert suggested(tried(512, 256, 512, exit_code=None), tried(512)) == 768


def test_the_most_gpu_memory_of_all():
    sizes = [right_size.Sizes(None, None, mb) for mb in (None, 3.0, 0.0, 7.0)]
    assert (
        right_size.find_largest(sizes) == 7
        and right_size.find_largest(sizes[2:3]) == 0
        and right_size.find_largest(sizes[:1]) is None
    )


def test_a_region_that_needs_twice_the_median_is_one_of_all():
    def suggested(*needs: float) -> list[str]:
        sizes = {f"r{n}": right_size.Sizes(right_size.Quantity(1, 1, mb), None, None) for n, mb in enumerate(needs)}
        return study_lines(sizes)

    assert suggested(64, 64, 128) == ["job: {memory: 128MB}"]
    assert suggested(64, 64, 192) == ["job: {memory: 64MB}", "regions:", '  - {name: "r2", job: {memory: 192MB}}']
    assert suggested() == []


@given(st.text(min_size=1), st.floats(1, 1e6))
def test_region_names_are_quoted_for_yaml(name, need):
    size = right_size.Sizes(right_size.Quantity(1.0, 1.0, 1.0), None, None)
    large = right_size.Sizes(right_size.Quantity(1.0, 1.0, 100 * need), None, None)
    lines = study_lines({"a\n": size, "b\n": size, "c\n": size, name: large})
    raw = parse_yaml("\n".join(lines), "study.yaml").value
    assert [region["name"] for region in raw["regions"]] == [name] and raw["job"] == {"memory": "1MB"}
