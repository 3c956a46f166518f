"""Sections of a study, one key at a time: what is legal up to its bounds."""

from __future__ import annotations

import operator
from dataclasses import replace
from pathlib import Path
from textwrap import indent
from typing import Any

import classad2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from nnlib.contract import Metric
from regiondag.config.sections import (
    read_families,
    read_final,
    read_job,
    read_limits,
    read_metric,
    read_search,
    read_train,
    read_update,
)
from regiondag.config.values import GPUS
from regiondag.study.model import JobRequest, Limits, Purchases
from regiondag.util.schema import Layer, Problems, Section
from regiondag.util.yaml_file import parse_yaml

SPACE = "space: {learning_rate: {real: [0.001, 0.1]}}\n"
EIGHT = "space: {hidden: {int: [1, 8]}}\n"


def section(*texts: str) -> Section:
    """What stands in the study, or first in one of its regions."""
    document = parse_yaml(f"x:\n{indent(texts[-1], '  ')}", "s.yaml")
    layers = [Layer(parse_yaml(text, "s.yaml").value, ("regions", 0)) for text in texts[:-1]]
    return Section(Problems(document), [*layers, Layer(document.value["x"], ("x",))])


def read(reader: Any, text: str) -> tuple[Any, list[str]]:
    found = section(text)
    return reader(found), found.problems.texts()


RANGES = [  # reader, key, the smallest legal value, the largest, one below, one beyond
    (read_train, "epochs", 1, 100_000, 0, 100_001),
    (read_train, "batch", 1, 1_000_000, 0, 1_000_001),
    (read_train, "stop_after", 0, 100_000, -1, 100_001),
    (read_train, "stop_after_examples", 0, 10**12, -1, 10**12 + 1),
    (read_train, "decay_rate", 0, 1, -0.001, 1.001),
    (read_train, "decay_epochs", 1, 100_000, 0, 100_001),
    (read_train, "ema", 0, 0.9999, -0.001, 1),
    (read_train, "learning_rate", "1.0e-12", "1.0e6", 0, "1.1e6"),
    (read_train, "momentum", 0, 0.999, -0.001, 1),
    (read_train, "beta2", 0, 0.9999, -0.001, 1),
    (read_train, "l2", 0, 1_000_000, -1, 1_000_001),
    (read_train, "l1", 0, 1_000_000, -1, 1_000_001),
    (read_train, "warmup", 0, 100_000, -1, 100_001),
    (read_train, "clip", 0, 1_000_000, -1, 1_000_001),
    (read_train, "seed", 0, 2**32 - 1, -1, 2**32),
    (read_job, "gpus", 0, 8, -1, 9),
    (read_job, "cpus", 1, 1024, 0, 1025),
    (read_job, "retries", 0, 100, -1, 101),
    (read_job, "disk", "1MB", "9TB", "1023KB", "1 TB"),
    (read_job, "checkpoint", 0, "1d", -1, "1w"),
    (read_job, "deadline", "1s", "1d", 0, "1w"),
    (read_job, "hold_limit", "1s", "1d", 0, "1w"),
    (read_job, "idle_limit", "1s", "1d", 0, "1w"),
    (read_limits, "jobs", 0, 1_000_000, -1, 1_000_001),
    (read_limits, "jobs_per_region", 0, 1_000_000, -1, 1_000_001),
    (read_limits, "deadline", 0, "1d", "false", "1w"),
]
UNITS = {"s": 1, "d": 86400, "1MB": 1 << 20, "9TB": 9 << 40}


def plain(value: Any) -> float:
    if value in UNITS:
        return UNITS[value]
    text = str(value)
    return float(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else float(text)


@pytest.mark.parametrize(("reader", "key", "low", "high", "below", "beyond"), RANGES)
def test_ranges(reader, key, low, high, below, beyond):
    for good in (low, high):
        value, told = read(reader, f"{key}: {good}")
        assert (getattr(value, key), told) == (pytest.approx(plain(good)), [])
    for bad in (below, beyond):
        value, told = read(reader, f"{key}: {bad}")
        assert getattr(value, key) == getattr(reader(section("{}")), key)
        assert len(told) == 1 and f"{key}: seen" in told[0]


def test_memory_after_running_out_of_it():
    none = JobRequest(gpus=0, requirements="true")  # what needs no GPU does not wait for a machine that has one
    assert read(read_job, "gpus: 0") == (none, [])
    assert read(read_job, "python: bundle") == (JobRequest(python="bundle"), [])
    assert "legal: worker or bundle" in read(read_job, "python: python3.12")[1][0]
    said = JobRequest(gpus=0, requirements="HasBig")
    assert read(read_job, "{gpus: 0, requirements: HasBig}") == (said, [])
    assert read(read_job, "{memory: 1GB, memory_max: 2GB}") == (JobRequest(memory=1 << 30, memory_max=2 << 30), [])
    for most in ("1GB", "512MB"):
        job, told = read(read_job, f"{{memory: 1GB, memory_max: {most}}}")
        assert job.memory_max is None and told == ["s.yaml:2: x.memory_max: is not larger than `memory`"]


def test_gpus_are_counts_that_can_share_eight_parts():
    assert read(read_job, "gpus: 4") == (JobRequest(gpus=4, cpus=4), [])  # a process each
    assert read(read_job, "{gpus: 8, cpus: 3}") == (JobRequest(gpus=8, cpus=3), [])
    some = JobRequest(gpus=8, fewest_gpus=2, cpus=8)
    assert read(read_job, "gpus: {min: 2, max: 8}") == (some, [])
    assert some.gpu_counts == (8, 4, 2)
    assert read(read_job, "gpus: {min: 2, max: 2}") == (JobRequest(gpus=2), [])
    assert (JobRequest().gpu_counts, JobRequest(gpus=0).gpu_counts, JobRequest(gpus=4).gpu_counts) == ((1,), (), (4,))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("3", ""),
        ("true", ""),
        ("2.0", ""),
        ("[2, 4]", ""),
        ("{min: 0, max: 2}", ""),
        ("{min: 4, max: 2}", "min is larger than max"),
        ("{max: 2}", "give both, min and max"),
        ("{min: 1, max: 2, most: 4}", "unknown key 'most'"),
        ("{count: 1, min: 1, max: 2}", "give count, or min and max"),
        ("{count: 0, memory: 1GB}", ""),
        ("{}", ""),
        ("{capability: '8.0 || true'}", "capability: seen '8.0 || true', legal: a compute capability such as 8.0"),
        ("{capability: true}", "capability: seen True"),
        ("{capability: -1}", "capability: seen -1"),
        ("{capability: .nan}", "capability: seen nan"),
        ("{memory: 40}", "memory: seen 40, legal: a size such as"),
        ("{memory: 1KB}", "memory: seen '1KB'"),
        ("{runtime: 12.4}", "runtime: seen 12.4, legal: a version of CUDA in quotes"),
        ("{runtime: '12'}", "runtime: seen '12'"),
        ("{min: [1], max: 2}", ""),
    ],
)
def test_other_counts_of_gpus_are_refused(text, why):
    job, told = read(read_job, f"gpus: {text}")
    assert job == JobRequest()
    assert len(told) == 1 and why in told[0]
    assert ", legal: 0, 1, 2, 4 or 8, or {min: 2, max: 8}, or {count: 1, capability" in told[0]


def test_what_each_gpu_must_be():
    good = "Capability >= 8.0"
    assert read(read_job, f"{{gpus: 2, require_gpus: {good}}}") == (JobRequest(gpus=2, require_gpus=good), [])
    for wrong, why in (("TARGET.Capability > 7", "each GPU by itself"), ("''", "a ClassAd expression")):
        job, told = read(read_job, f"require_gpus: {wrong}")
        assert job.require_gpus == "" and len(told) == 1 and why in told[0]
    job, told = read(read_job, f"{{gpus: 0, require_gpus: {good}}}")
    assert job.require_gpus == "" and told == [
        "s.yaml:2: x.require_gpus: is of GPUs, and `gpus` is 0; remove it, or give gpus"
    ]


@pytest.mark.parametrize(
    ("gpus", "more", "job"),
    [
        ("{capability: 8}", "", JobRequest(require_gpus="Capability >= 8.0")),
        ("{count: 2, memory: 40GB}", "", JobRequest(gpus=2, require_gpus="GlobalMemoryMb >= 40960")),
        ("{min: 1, max: 4, runtime: '12.4'}", "",
         JobRequest(gpus=4, fewest_gpus=1, cpus=4, require_gpus="MaxSupportedVersion >= 12040")),
        ("{capability: '>=7.5, < 9.0'}", "",
         JobRequest(require_gpus="Capability >= 7.5 && Capability < 9.0")),
        ("{count: 1, capability: '>= 8.0', memory: 1536MB, runtime: '11.8'}", "require_gpus: ECCEnabled || A",
         JobRequest(require_gpus="Capability >= 8.0 && GlobalMemoryMb >= 1536 && MaxSupportedVersion >= 11080 && "
                                 "(ECCEnabled || A)")),
    ],
)  # fmt: skip
def test_what_each_gpu_must_be_in_words(gpus, more, job):
    assert read(read_job, f"gpus: {gpus}\n{more}\n") == (job, [])


@given(st.sampled_from(["", ">=", "> ", "<=", "==", "< "]), st.integers(0, 99), st.integers(0, 9), st.integers(1, 999))
def test_htcondor_counts_gpus_as_they_are(sign, whole_part, tenth, gb):
    """What HTCondor evaluates for a GPU is what the words say."""
    wish = GPUS.of(
        {"capability": f"{sign}{whole_part}.{tenth}", "memory": f"{gb}GB", "runtime": f"{whole_part}.{tenth}"}
    )
    asked = float(f"{whole_part}.{tenth}")
    compare = {
        "": operator.ge,
        ">=": operator.ge,
        ">": operator.gt,
        "<=": operator.le,
        "==": operator.eq,
        "<": operator.lt,
    }
    for capability in (asked - 0.1, asked, asked + 0.1):
        for memory in (gb * 1024 - 1, gb * 1024):
            for version in (1000 * whole_part + 10 * tenth, 1000 * whole_part + 10 * tenth - 10):
                gpu = classad2.ClassAd()
                gpu["Capability"], gpu["GlobalMemoryMb"], gpu["MaxSupportedVersion"] = capability, memory, version
                met = compare[sign.strip()](capability, asked) and memory >= gb * 1024
                assert classad2.ExprTree(wish.each).eval(gpu) is (met and version == 1000 * whole_part + 10 * tenth)


def test_the_schema_knows_the_words():
    schema = Draft202012Validator(GPUS.schema)
    for good in (
        0,
        8,
        {"min": 1, "max": 2},
        {"capability": 8},
        {"count": 2, "capability": ">= 8.0, < 9", "memory": "4GB"},
    ):
        assert schema.is_valid(good)
    for bad in (
        3,
        {},
        {"min": 1},
        {"count": 1, "min": 1, "max": 2},
        {"capability": "x"},
        {"runtime": 12.4},
        {"most": 1},
    ):
        assert not schema.is_valid(bad)


def test_the_last_training_may_ask_for_more():
    text = "job: {gpus: 1, memory: 1GB}\nfinal: {gpus: 4}\n"
    assert read_final(section(text)) == JobRequest(gpus=4, cpus=4, memory=1 << 30)
    assert read_final(section("job: {gpus: 1}\n")) is None
    without = section("job: {gpus: 0}\nfinal: {gpus: 2}\n")
    assert read_final(without) == JobRequest(gpus=2)  # its requirements are those of a job with GPUs
    wrong = section("final: {gpus: 3, gpu: 1}\n")
    read_final(wrong)
    assert [text.partition(": ")[2].partition(":")[0] for text in wrong.problems.texts()] == [
        "x.final.gpus",
        "x.final.gpu",
    ]


@pytest.mark.parametrize("text", ["TARGET.GPUs > 1", "memory > 3", "a && (Cpus > 1)", "TARGET.Disk"])
def test_requirements_do_not_say_what_has_keys_of_its_own(text):
    job, told = read(read_job, f"requirements: '{text}'")
    assert job.requirements == JobRequest().requirements and "say how much a job needs" in told[0]
    assert read(read_job, "requirements: GpusAreFine > 1") == (JobRequest(requirements="GpusAreFine > 1"), [])


@pytest.mark.parametrize(
    ("text", "metric"),
    [
        ("metric: Precision@10", Metric("p@10")),
        ("minimize: loss", Metric("loss", minimize=True)),
        ("{}", Metric("ndcg@20")),
    ],
)
def test_metrics(text, metric):
    assert read(read_metric, text) == (metric, [])


@pytest.mark.parametrize("text", ["metric: loss", "minimize: p@10", "metric: p@0", "{metric: p@10, minimize: loss}"])
def test_what_is_no_metric(text):
    assert len(read(read_metric, text)[1]) == 1


def test_the_innermost_metric_counts():
    assert read_metric(section("minimize: loss", "metric: p@10")) == Metric("loss", minimize=True)
    assert read_metric(section("x: 1", "metric: p@10")) == Metric("p@10")


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("", (4,) * 6),
        ("rounds: 2\nparallel: 3", (3, 3)),
        ("method: random", (24,)),
        ("method: random\nbudget: 1h", (4,) * 6),
        ("method: sobol\nprune: median", (4,) * 6),
        ("method: random\nschedule: lanes", (4,) * 6),
        ("rounds: 99999\nparallel: 1", (1,) * 99999),
    ],
)
def test_sizes_of_searches(text, sizes):
    search, told = read(read_search, SPACE + text)
    assert (search.sizes, told) == (sizes, [])


@pytest.mark.parametrize(("parallel", "sizes"), [(4, (4, 4)), (3, (3, 3, 2)), (8, (8,)), (9, (8,))])
def test_no_more_trials_than_points(parallel, sizes):
    assert read(read_search, f"{EIGHT}parallel: {parallel}")[0].sizes == sizes
    assert read(read_search, f"{EIGHT}method: grid") == (
        replace(read(read_search, EIGHT)[0], method="grid", sizes=(8,), stop="none", winner="observed"),
        [],
    )


def test_the_default_method_is_the_best_that_was_measured():
    assert read(read_search, EIGHT) == read(read_search, f"{EIGHT}method: auto")
    assert read(read_search, f"{EIGHT}method: auto") == read(read_search, f"{EIGHT}method: bayes")
    assert read(read_search, f"{EIGHT}method: auto\nshare: model")[1] == []


def test_more_trials_than_a_region_can_have():
    assert "99998 trials are more" not in str(read(read_search, SPACE + "rounds: 49999\nparallel: 2")[1])
    assert (
        "50000 rounds of 2 trials are more than 99999" in read(read_search, SPACE + "rounds: 50000\nparallel: 2")[1][0]
    )


@pytest.mark.parametrize(
    ("method", "share", "legal"),
    [
        ("bayes", "model", True),
        ("bayes", "warm", True),
        ("skopt", "warm", True),
        ("skopt", "model", False),
        ("random", "warm", False),
        ("random", "off", True),
        ("bayes", "off", True),
    ],
)
def test_who_may_share(method, share, legal):
    search, told = read(read_search, SPACE + f"method: {method}\nshare: {share}")
    assert (search.share, told == []) == (share if legal else "off", legal)
    alone = "auto" if method == "bayes" else "observed"
    assert search.winner == {"model": "model", "warm": "observed", "off": alone}[search.share]


def test_seconds_count_for_bayes_only():
    key = "acquisition: improvement_per_second"
    assert read(read_search, SPACE + key)[0].acquisition == "improvement_per_second"
    search, told = read(read_search, f"{SPACE}{key}\nmethod: random")
    assert search.acquisition == "improvement" and "only bayes" in told[0]
    above = read_search(section("method: random", SPACE + key))  # the study does not contradict a region
    assert above.acquisition == "improvement"


def test_a_grid_has_no_rounds():
    for key in ("rounds: 2", "parallel: 2", "schedule: rounds", "budget: 1h", "prune: median"):
        told = read(read_search, f"{EIGHT}method: grid\n{key}")[1]
        assert len(told) == 1 and "remove this key" in told[0], key
    search, told = read(read_search, EIGHT + "method: grid\nprune: none")
    assert told == [] and (search.schedule, search.budget, search.prune) == ("rounds", 0, "none")
    told = read(read_search, "method: grid\nspace: {x: {real: [0, 1]}}")[1]
    assert len(told) == 1 and "points" in told[0]
    assert read(read_search, "method: grid\nspace: {a: {int: [1, 99999]}}")[1] == []
    assert (
        "100,000 points, legal: at most 99,999"
        in read(read_search, "method: grid\nspace: {a: {int: [1, 100000]}}")[1][0]
    )


def test_an_update_changes_the_search_but_not_its_space():
    both = f"search: {{rounds: 2, {SPACE.strip()}}}\n"
    assert read(read_update, both) == (None, [])
    search, told = read(read_update, both + "update: {rounds: 3}")
    assert search.sizes == (4,) * 3 and told == []
    search, told = read(read_update, both + "update: {space: {hidden: 3}}")
    assert (
        len(search.space) == 1
        and len(told) == 1
        and told[0].startswith("s.yaml:3: x.update.space: the space of an update")
    )


def test_a_hyperparameter_that_is_a_setting_keeps_to_its_range():
    assert read(read_search, "space: {momentum: {real: [0, 0.9]}}")[1] == []
    assert len(read(read_search, "space: {momentum: {real: [0, 1.5]}}")[1]) == 1


def test_defaults():
    assert read(read_limits, "{}") == (Limits(), []) and read(read_job, "{}") == (JobRequest(), [])
    search = read_search(section(SPACE))
    assert (search.method, search.schedule, search.budget, search.prune, search.give_up_after) == (
        *("bayes", "rounds", 0, "none", 8),
    )


@pytest.mark.parametrize(
    ("split", "there"), [("time", True), ("leave-one-out", True), ("column", False), ("random", False)]
)
def test_what_learns_from_dates_is_tried_where_a_split_needs_them(split, there):
    purchases = Purchases(Path("p.csv"), Path("data"), split)
    for text, wanted in (("data: {}", there), ("families: [days]", True)):
        assert ("days" in read_families(section(text), purchases)) == wanted
