"""Read study.yaml and look into its data, which decide what a study can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nnlib.data.file import DataSummary
from regiondag.config.data_check import check_data
from regiondag.config.load import load_config
from regiondag.config.memory_check import find_large, find_too_large
from regiondag.study.model import Config


@dataclass(frozen=True)
class Checked:
    """A study whose data have been read once."""

    config: Config
    summaries: Mapping[Path, DataSummary]
    notes: tuple[str, ...]  # for who made the study


def load_checked(path: Path) -> Checked:
    """Read a study and its data; families that nobody asked for are left out where the data are too large for them.

    Raises ConfigError with every mistake, as for families that were asked for and are too large.
    """
    config = load_config(path)
    summaries = check_data(config)
    too_large = find_too_large(config.regions, summaries)
    if too_large:
        config = load_config(path, too_large)
    notes = [f"families: {family} is left out: {why}" for family, why in too_large.items()]
    if any(job.gpus > 1 for region in config.regions for job in (region.job, region.final) if job):
        from regiondag.config.gpus_check import find_few_cores, find_poorly_used  # which few studies need

        notes += [*find_few_cores(config.regions), *find_poorly_used(config.regions, summaries)]
    return Checked(config, summaries, (*notes, *find_large(config.regions, summaries)))
