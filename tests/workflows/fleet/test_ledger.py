"""What a fleet has spent: by the day and since `up`, once, whatever happens between two looks."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.errors import RegiondagError
from regiondag.fleet.ec2 import Instance, read_end
from regiondag.fleet.ledger import (
    DAY,
    HOUR,
    Ledger,
    begin_run,
    count,
    find_unseen,
    held,
    read_ledger,
    write_ledger,
)

NOON = 20_000 * DAY + 12 * HOUR  # 2024-10-04
TODAY, TOMORROW = "2024-10-04", "2024-10-05"


def instance(name: str = "i-1", state: str = "running", launched: float = NOON, **more: object) -> Instance:
    return dataclasses.replace(Instance(name, "g5.xlarge", "a", state, "spot", launched), **more)  # type: ignore[arg-type]


def looks(*steps: tuple[float, list[Instance]], rate: float = 1.0, before: Ledger | None = None) -> Ledger:
    """Return the ledger after looks at so many hours past noon."""
    found = before or Ledger()
    for hours, seen in steps:
        found = count(found, seen, {one.id: rate for one in seen}, NOON + hours * HOUR)
    return found


@given(st.lists(st.floats(0, 11.9), min_size=1, max_size=12))
def test_any_looks_at_any_times_add_up_to_the_uptime(hours):
    found = looks(*((hour, [instance(), instance("i-2", launched=NOON + HOUR)]) for hour in sorted(hours)))
    last = max(hours)
    least = 1 / 60  # EC2 charges a minute at the least
    assert found.run == pytest.approx(max(last, least) + max(last - 1, least))
    assert found.days == pytest.approx({TODAY: found.run})


def test_the_same_look_twice_and_one_by_an_older_clock_add_nothing():
    once = looks((2, [instance()]))
    assert looks((2, [instance()]), (1, [instance()]), (2, [instance()])) == once


def test_midnight_parts_the_days():
    found = looks((1, [instance()]), (14, [instance()]))
    assert found.days == pytest.approx({TODAY: 12, TOMORROW: 2})
    assert found.run == pytest.approx(14)
    assert (found.today(NOON), found.today(NOON + DAY), found.today(NOON + 2 * DAY)) == (12, 2, 0)


def test_the_price_that_holds_when_it_is_looked_at():
    first = looks((1, [instance()]), rate=1)
    assert looks((2, [instance()]), rate=3, before=first).run == pytest.approx(4)


def test_what_ended_is_counted_to_its_end_and_then_no_more():
    ended = instance(state="terminated", ended=NOON + 1.5 * HOUR)
    found = looks((1, [instance()]), (4, [ended]), (4.5, [ended]), (6, []), (7, []))
    assert found.run == pytest.approx(1.5)
    assert found.instances == {}


def test_what_ended_without_a_time_is_counted_to_the_look_that_misses_it():
    assert looks((1, [instance()]), (3, [instance(state="terminated")]), (4, [])).run == pytest.approx(3)
    assert looks((1, [instance()]), (3, []), (4, [])).run == pytest.approx(3)


def test_what_lived_between_two_looks_is_counted():
    ended = instance(state="terminated", ended=NOON + 0.5 * HOUR)
    assert looks((0, []), (1, [ended])).run == pytest.approx(0.5)


def test_a_stopped_instance_costs_nothing_until_it_starts_again():
    again = instance(launched=NOON + 5 * HOUR)
    found = looks((1, [instance()]), (2, [instance(state="stopped")]), (6, [again]), (7, [again]))
    assert found.run == pytest.approx(3)


def test_who_looks_too_late_is_told():
    before = looks((1, [instance(), instance("i-2"), instance("i-3", state="terminated", ended=NOON)]))
    (text,) = find_unseen(before, [instance("i-2")], NOON + 5 * HOUR)
    assert text.startswith("i-1 ended while nobody looked, 4.0 hours or less ago; that is counted, $4.00")
    assert find_unseen(before, [], NOON + 1.5 * HOUR) == []


def test_a_new_run_keeps_the_day_and_what_was_counted():
    ended = instance(state="terminated", ended=NOON + HOUR)
    found = begin_run(looks((1, [instance()]), (2, [ended])))
    assert (found.run, found.days) == (0, {TODAY: pytest.approx(1)})
    assert looks((2.5, [ended]), before=found) == found


def test_a_month_of_days_is_kept():
    found = looks(*((24.0 * day, [instance()]) for day in range(60)))
    assert len(found.days) == 31
    assert found.run == pytest.approx(59 * 24)


def test_the_file_gives_back_what_was_written(tmp_path: Path):
    path = tmp_path / "fleets" / "r.demo.json"
    found = looks((1, [instance()]), (14, [instance(), instance("i-2", state="terminated", ended=NOON)]))
    with held(path):
        assert read_ledger(path) == Ledger()
        write_ledger(path, found)
    assert read_ledger(path) == found


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"run": -1, "days": {}, "instances": {}}', '{"run": NaN, "days": {}, "instances": {}}',
             '{"run": 1, "days": {"x": 1}, "instances": {}}', '{"run": 1, "days": {}, "instances": {"i": {}}}', "\0"]
)  # fmt: skip
def test_a_file_that_is_none_is_not_taken_for_nothing_spent(tmp_path: Path, text: str):
    path = tmp_path / "r.demo.json"
    path.write_text(text)
    with pytest.raises(RegiondagError, match=r"cannot be read .*nothing is started before it can\. Bring it back"):
        read_ledger(path)


def test_when_an_instance_ended_is_in_its_reason():
    assert read_end("User initiated (2024-10-04 13:00:00 GMT)") == NOON + HOUR
    assert read_end("Server.SpotInstanceTermination: Spot Instance Termination") is None
    assert read_end("") is None
