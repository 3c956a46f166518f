"""Look into the data of every region before anything is submitted."""

from __future__ import annotations

from pathlib import Path

from nnlib.datafile import DataSummary, check_data_file
from nnlib.errors import DataError
from workflows.errors import ConfigError
from workflows.study import Config


def check_data(config: Config) -> dict[Path, DataSummary]:
    """Read every data file once; ConfigError naming file and variable for all that cannot be used."""
    summaries: dict[Path, DataSummary] = {}
    problems: dict[Path, str] = {}
    for region in config.regions:
        for file in region.data.values():
            if file in summaries or file in problems:
                continue
            try:
                summaries[file] = check_data_file(file)
            except DataError as error:
                problems[file] = f"region {region.name!r}: {error}"
    if problems:
        raise ConfigError(list(problems.values()))
    return summaries
