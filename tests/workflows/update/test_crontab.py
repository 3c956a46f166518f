from __future__ import annotations

import calendar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.update.crontab import FIELDS, cron_commands


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30 3 * * *", ["30", "3", "*", "*", "*"]),
        ("*/15 */8 1,15 * *", ["0,15,30,45", "0,8,16", "1,15", "*", "*"]),
        ("1-59/20 0-23 * 1-12 0-6", ["1,21,41", "*", "*", "*", "0,1,2,3,4,5,6"]),  # HTCondor would count from zero
        ("0 4 * * 1-5", ["0", "4", "*", "*", "1,2,3,4,5"]),
        ("0 4 * * 7", ["0", "4", "*", "*", "0"]),
        ("0 4 * * */2", ["0", "4", "*", "*", "0,2,4,6"]),  # HTCondor would run it every day
        ("5/20 1,1,0 29 2 *", ["5,25,45", "0,1", "29", "2", "*"]),
        ("0 0 31 2 1", ["0", "0", "31", "2", "1"]),  # Mondays in February
    ],
)
def test_fields_become_what_htcondor_reads_as_cron_does(text, expected):
    commands = cron_commands(text)
    assert list(commands) == [field.command for field in FIELDS]
    assert list(commands.values()) == expected


@pytest.mark.parametrize("month", range(1, 13))
def test_the_last_day_of_each_month_exists_and_the_one_after_does_not(month):
    last = calendar.monthrange(2024, month)[1]  # a leap year
    assert cron_commands(f"0 0 {last} {month} *")["cron_day_of_month"] == str(last)
    assert cron_commands(f"0 0 31 {month},1 *")["cron_day_of_month"] == "31"
    with pytest.raises(ValueError, match="legal"):
        cron_commands(f"0 0 {last + 1} {month} *")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["0 fields", "five", "30 3 * * *"]),
        ("30 3 * *", ["4 fields"]),
        ("30 3 * * * regiondag", ["6 fields"]),
        ("60 3 * * *", ["minute", "'60'", "from 0 to 59"]),
        ("0 24 * * *", ["hour", "from 0 to 23"]),
        ("0 3 0 * *", ["day of the month", "from 1 to 31"]),
        ("0 3 * 13 *", ["month", "'13'"]),
        ("0 3 * * 8", ["day of the week", "from 0 to 7"]),
        ("0 3 * * mon", ["day of the week", "'mon'", "no names"]),
        ("0 5-3 * * *", ["hour", "'5-3'"]),
        ("*/0 3 * * *", ["minute", "'*/0'"]),
        ("1,,2 3 * * *", ["minute"]),
        ("@daily", ["1 fields"]),
        ("0 3 31 2 *", ["no month of these has such a day"]),
        ("0 3 31 4,6,9,11 *", ["no month"]),
        ("0 3 30,31 2 *", ["no month"]),
        ("$(x) 3 * * *", ["minute"]),
        ("٣ 3 * * *", ["minute"]),
    ],
)
def test_what_is_wrong_is_said(text, words):
    with pytest.raises(ValueError, match="legal") as caught:
        cron_commands(text)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@given(st.text(alphabet="0123456789*/,- \n", max_size=30))
def test_whatever_passes_is_plain(text):
    try:
        commands = cron_commands(text)
    except ValueError:
        return
    for field, times in zip(FIELDS, commands.values(), strict=True):
        assert times == "*" or all(field.low <= int(number) <= field.high for number in times.split(","))
