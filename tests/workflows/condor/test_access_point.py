"""What an access point's configuration says, and what becomes of it where it does not answer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from regiondag.condor.access_point import (
    SubmitRule,
    describe_intervals,
    find_refusal,
    look_at_access_point,
    say_intervals,
)
from regiondag.condor.classads import parse_ad
from regiondag.pool.pool import Pool

POOL = Pool("campus", "installed", (25, 14, 1))
SCHEDD = parse_ad('Requirements = true\nName = "ap"\n')
JOB = parse_ad("Requirements = true\nRequestMemory = 100\n")


@pytest.fixture
def asked(monkeypatch):
    """Play condor_config_val over these settings; return what is refused, by the option that asks for it."""
    refused: set[str] = set()
    settings: dict[str, str] = {}

    def run(_pool, argv, cwd, **_options):
        assert argv[0] == "condor_config_val" and cwd == Path("/")
        names = [word for word in argv[1:] if word.isupper() or word.startswith("SUBMIT_")]
        code = 1 if refused & {*argv} else 0
        lines = [settings.get(name, f"Not defined: {name}") for name in names]
        return subprocess.CompletedProcess(argv, code, "\n".join(lines), "")

    monkeypatch.setattr(Pool, "run", run)
    return settings, refused


def test_rules_limits_and_intervals(asked):
    settings, refused = asked
    settings |= {
        "SUBMIT_REQUIREMENT_NAMES": "Project, Small bad;name Gone",
        "SUBMIT_REQUIREMENT_Project": "!isUndefined(ProjectName)",
        "SUBMIT_REQUIREMENT_Project_REASON": '"say which"',
        "SUBMIT_REQUIREMENT_Small": "RequestMemory < 9",
        "SUBMIT_REQUIREMENT_Small_IS_WARNING": "True",
        "MAX_JOBS_PER_OWNER": "5",
        "MAX_TRANSFER_OUTPUT_MB": "-1",
        "JOB_TRANSFORM_NAMES": "A B",
        "STARTER_UPDATE_INTERVAL": "300",
        "SHADOW_QUEUE_UPDATE_INTERVAL": "$(X) \x1b[2J",
    }
    found = look_at_access_point(POOL, "w1")
    assert found.rules == (
        SubmitRule("Project", "!isUndefined(ProjectName)", '"say which"', False),
        SubmitRule("Small", "RequestMemory < 9", "", True),
    )
    assert found.limits == {"MAX_JOBS_PER_OWNER": "5"} and found.transforms == ("A", "B")
    assert found.intervals == {"STARTER_UPDATE_INTERVAL": 300, "SHADOW_QUEUE_UPDATE_INTERVAL": None}
    assert found.asked_worker == "w1"
    refused |= {"-schedd", "-name"}  # neither the schedd nor the worker answers: what this machine is told counts
    assert look_at_access_point(POOL, "w1").limits == {"MAX_JOBS_PER_OWNER": "5"}
    assert look_at_access_point(POOL, "w1").asked_worker == ""


def test_a_job_is_refused_for_the_reason_that_the_pool_gives():
    small = SubmitRule("Small", "RequestMemory < 9", 'strcat("at most ", 8)', False)
    assert find_refusal(small, SCHEDD, JOB) == "at most 8"
    assert find_refusal(SubmitRule("S", "RequestMemory < 9", "", False), SCHEDD, JOB) == (
        "it does not meet RequestMemory < 9"
    )
    for good in ("RequestMemory > 9", "Nobody < 9", "((", "TARGET.RequestMemory == 100"):
        assert find_refusal(SubmitRule("S", good, "((", False), SCHEDD, JOB) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["300", "900"], "ages up to 20 min are usual here: STARTER_UPDATE_INTERVAL = 300 on workers, SHADOW_"),
        (["5", "900"], "ages up to 15 min are usual here: SHADOW_QUEUE_UPDATE_INTERVAL = 900 on the manager; 10 is"),
        (["10", "10"], ""),
        (["5"], ""),
        (["300", "$(X)"], ""),
    ],
)
def test_a_slow_pool_is_told_of(words, said):
    assert say_intervals(words).startswith(said) and bool(say_intervals(words)) == bool(said)


def test_a_pool_that_does_not_say_its_intervals_is_not_told_of(monkeypatch):
    def hangs(*_words, **_options):
        raise subprocess.TimeoutExpired("condor_config_val", 10)

    monkeypatch.setattr(Pool, "run", hangs)
    assert describe_intervals(POOL) == ""
    assert look_at_access_point(POOL, "w1").rules == ()
