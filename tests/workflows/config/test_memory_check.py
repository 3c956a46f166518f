"""Families that the data are too large for: left out where nobody asked for them, else a mistake in `families`."""

from __future__ import annotations

import re

import pytest

from nnlib.data.file import DataSummary, SetSummary
from regiondag.cli import main
from regiondag.config.load import load_config
from regiondag.config.load_checked import load_checked
from regiondag.config.memory_check import find_large, find_too_large
from regiondag.errors import ConfigError
from regiondag.generate.fresh_data import refresh_data
from tests.workflows.shop import STUDY, write_shop

DEFAULT = STUDY.replace("families: [ease, knn, blend]\n", "")
LARGE = DEFAULT.replace("memory: 256MB", "memory: 4GB")


def summaries(config, customers, items, entries):
    """Each file has `customers` and `entries`; all have the same items, as those of one import have."""
    one = SetSummary("input", customers, items, entries)
    return {file: DataSummary((one,), "") for region in config.regions for file in region.data.values()}


@pytest.fixture
def shop(tmp_path):
    def make(text):
        study = write_shop(tmp_path, text)
        refresh_data(study)
        return study

    return make


def test_what_takes_a_matrix_of_items_by_items_is_left_out_of_large_data(shop):
    config = load_config(shop(LARGE))
    assert find_too_large(config.regions, summaries(config, 50_000, 4_500, 400_000)) == {}
    assert find_large(config.regions, summaries(config, 50_000, 4_500, 400_000)) == []
    # 60,000 items of four regions with 50,000 customers each: a float32 matrix takes 13.4 GiB, and days two.
    assert find_too_large(config.regions, summaries(config, 50_000, 60_000, 500_000)) == {
        "ease": "of 60,000 items and 200,000 customers it may take 13.7 GiB, a job has 4.0 GiB; "
        "give job: {memory: 14GB}",
        "days": "of 60,000 items and 200,000 customers it may take 27.6 GiB, a job has 4.0 GiB; "
        "give job: {memory: 28GB}",
    }
    assert set(find_too_large(config.regions, summaries(config, 10**6, 10**6, 10**7))) == {
        *("ease", "days", "knn", "graph", "elsa", "ials")
    }


def test_memory_that_a_job_may_ask_for_later_counts(shop):
    config = load_config(shop(LARGE.replace("memory: 4GB", "memory: 4GB, memory_max: 32GB")))
    data = summaries(config, 50_000, 60_000, 500_000)
    assert find_too_large(config.regions, data) == {}
    [text] = find_large(config.regions, data)
    assert text == (
        "all regions: a blend of all families: of 60,000 items and 200,000 customers it may take 56.5 GiB, a job has "
        "32.0 GiB; that it may ask for more: job: {memory_max: 57GB}"
    )


def test_larger_settings_than_those_tried_first_may_run_out_of_memory(shop):
    """20,000 items: EASE takes 1.5 GiB, with an own weight 3, and days 3."""
    config = load_config(shop(LARGE.replace("memory: 4GB", "memory: 2GB").replace("job:", "families: [ease]\njob:")))
    data = summaries(config, 1000, 20_000, 50_000)
    assert find_too_large(config.regions, data) == {}
    [text] = find_large(config.regions, data)
    assert text.startswith("all regions: ease: of 20,000 items and 4,000 customers it may take 3.2 GiB, a job has 2.0")


def test_items_of_several_imports_are_not_counted_twice(shop):
    config = load_config(shop(LARGE))
    files = [file for region in config.regions for file in region.data.values()]
    sets = [SetSummary("input", 1000, 15_000 + number, 50_000) for number in range(len(files))]
    data = {file: DataSummary((one,), "") for file, one in zip(files, sets, strict=True)}
    assert find_too_large(config.regions, data) == {}


def test_what_nobody_asked_for_is_left_out_and_said(shop, capsys):
    study = shop(DEFAULT.replace("256MB", "200MB"))
    checked = load_checked(study)
    pooled = checked.config.regions[0]
    [families] = [one.options for one in pooled.search.space if one.name == "family"]
    assert set(families) == {"popularity", "knn", "graph", "elsa", "days"}
    assert {str(point["family"]) for point in pooled.first} == set(families)
    assert main(["validate", str(study)]) == 0
    assert (
        "families: ease is left out: of 24 items and 111 customers it may take 224.1 MiB, a job has 200.0 MiB; give"
        in (capsys.readouterr().err)
    )


def test_what_is_asked_for_and_too_large_is_a_mistake(shop):
    study = shop(STUDY.replace("256MB", "200MB"))
    words = (
        f"{study}:3: families: ease: of 24 items and 111 customers it may take 224.1 MiB, a job has 200.0 MiB; give "
        "job: {memory: 1GB}, or leave it out"
    )
    with pytest.raises(ConfigError, match=re.escape(words)):
        load_checked(study)
