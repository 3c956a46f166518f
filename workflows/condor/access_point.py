"""What an access point asks of the jobs that it takes: limits, requirements, how often it hears of running jobs."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regiondag.condor.classads import ClassAd, evaluate
from regiondag.pool.pool import Pool
from regiondag.util.text import bound, show_duration

# From the worker to the manager, and there into the queue, each so often.
STARTER, SHADOW = "STARTER_UPDATE_INTERVAL", "SHADOW_QUEUE_UPDATE_INTERVAL"
INTERVALS = {STARTER: "on workers", SHADOW: "on the manager"}
GOOD_INTERVAL, SLOW_INTERVAL = 10, 60  # seconds

JOBS_PER_OWNER = "MAX_JOBS_PER_OWNER"
LIMITS = (
    JOBS_PER_OWNER,
    "MAX_RUNNING_JOBS_PER_OWNER",
    "MAX_JOBS_PER_SUBMISSION",
    "MAX_JOBS_RUNNING",
    "MAX_TRANSFER_INPUT_MB",
    "MAX_TRANSFER_OUTPUT_MB",
    "MAX_RUNNING_SCHEDULER_JOBS_PER_OWNER",
    "START_SCHEDULER_UNIVERSE",
    "DAGMAN_MAX_JOBS_IDLE",
    "DAGMAN_MAX_JOBS_SUBMITTED",
    "SYSTEM_PERIODIC_REMOVE",
    "SYSTEM_PERIODIC_HOLD",
)
RULES, TRANSFORMS = "SUBMIT_REQUIREMENT_NAMES", "JOB_TRANSFORM_NAMES"
MOST_RULES = 50
LONGEST = 500  # characters of a value
PATIENCE = 20  # seconds for an answer


@dataclass(frozen=True, slots=True)
class SubmitRule:
    """One requirement that a job must meet to be taken into the queue."""

    name: str
    expression: str  # of ClassAds: MY is the access point, TARGET the job
    reason: str  # what a job that does not meet it is told; an expression, too
    warns: bool  # it is told so, and taken all the same


@dataclass(frozen=True, slots=True)
class AccessPoint:
    """What the configuration of an access point says of jobs."""

    limits: dict[str, str]  # HTCondor's name of it -> its value, of those that are set
    rules: tuple[SubmitRule, ...]
    transforms: tuple[str, ...]  # names of rules that change jobs as they are submitted
    intervals: dict[str, int | None]  # the two that decide how old live progress is, in seconds; null: not known
    asked_worker: str  # the worker whose interval it is; empty: as this machine is configured


def look_at_access_point(pool: Pool, worker: str) -> AccessPoint:
    """Ask the schedd, or else this machine's configuration, and one worker for its interval."""
    limits = ask_settings(pool, LIMITS)
    named = ask_settings(pool, (RULES, TRANSFORMS, SHADOW))
    names = _split(named.get(RULES, ""))[:MOST_RULES]
    parts = ("", "_REASON", "_IS_WARNING")
    said = ask_settings(pool, [f"SUBMIT_REQUIREMENT_{name}{part}" for name in names for part in parts])
    rules = []
    for name in names:
        expression, reason, warns = (said.get(f"SUBMIT_REQUIREMENT_{name}{part}", "") for part in parts)
        if expression:  # one without is passed over by HTCondor, too
            rules.append(SubmitRule(name, expression, reason, warns.lower() == "true"))
    of_worker = _ask(pool, ["-name", worker, "-startd"], [STARTER]) if worker else None
    starter = of_worker or ask_settings(pool, [STARTER])
    seconds = {STARTER: starter.get(STARTER, ""), SHADOW: named.get(SHADOW, "")}
    return AccessPoint(
        {name: value for name, value in limits.items() if value not in ("-1", "0")},
        tuple(rules),
        tuple(_split(named.get(TRANSFORMS, ""))[:MOST_RULES]),
        {name: int(text) if text.isdecimal() and len(text) < 10 else None for name, text in seconds.items()},
        bound(worker) if of_worker else "",
    )


def ask_settings(pool: Pool, names: Sequence[str]) -> dict[str, str]:
    """Return the settings that are defined, on one bounded line each: the schedd's own, or this machine's."""
    if not names:
        return {}
    found = _ask(pool, ["-schedd"], names)
    if found is None:
        found = {}
        for name in names:
            found.update(_ask(pool, [], [name]) or {})
    return found


def _ask(pool: Pool, of: Sequence[str], names: Sequence[str]) -> dict[str, str] | None:
    """Return what condor_config_val says; None where it has no answer for each name."""
    try:
        done = pool.run(["condor_config_val", *of, *names], cwd=Path("/"), capture_output=True, timeout=PATIENCE)
    except (OSError, UnicodeDecodeError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.splitlines()
    if done.returncode != 0 or len(lines) != len(names):
        return None
    values = {name: bound(line.strip(), LONGEST) for name, line in zip(names, lines, strict=True)}
    return {name: value for name, value in values.items() if value and not value.startswith("Not defined")}


def _split(names: str) -> list[str]:
    return [name for name in names.replace(",", " ").split() if name.replace("_", "").isalnum()]


def describe_intervals(pool: Pool) -> str:
    """Say that a pool lets what jobs say grow old, as this machine is configured; nothing of one that does not."""
    found = _ask(pool, [], list(INTERVALS))
    return say_intervals(list(found.values())) if found else ""


def say_intervals(words: Sequence[str]) -> str:
    """Say which of the intervals, in seconds and in the order of INTERVALS, are slow.

    >>> say_intervals(["300", "10"])
    'ages up to 5 min are usual here: STARTER_UPDATE_INTERVAL = 300 on workers; 10 is quick enough'
    """
    if len(words) != len(INTERVALS) or not all(word.isdecimal() for word in words):
        return ""
    seconds = dict(zip(INTERVALS, map(int, words), strict=True))
    slow = [f"{name} = {value} {INTERVALS[name]}" for name, value in seconds.items() if value > SLOW_INTERVAL]
    age = show_duration(sum(seconds.values()))
    return f"ages up to {age} are usual here: {', '.join(slow)}; {GOOD_INTERVAL} is quick enough" if slow else ""


def find_refusal(rule: SubmitRule, schedd: ClassAd, job: ClassAd) -> str | None:
    """Return why an access point would not take a job; None where it would, or where that cannot be said here."""
    if evaluate(rule.expression, schedd, job) is not False:
        return None
    said = evaluate(rule.reason, schedd, job) if rule.reason else None
    return bound(said, LONGEST) if isinstance(said, str) else f"it does not meet {rule.expression}"
