"""Look into the data of every region before anything is submitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nnlib.data.file import DataSummary, check_data_file
from nnlib.errors import DataError
from regiondag.errors import ConfigError
from regiondag.study.families import AGAIN, FAMILY
from regiondag.study.model import Config, Region
from regiondag.study.space import Choice
from regiondag.trainers.trainer import trainer_of


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
                problems[file] = f"region {region.name!r}: {file.parent}: {error}"
    if problems:
        raise ConfigError(list(problems.values()))
    misfits = [text for region in config.regions for text in trainer_of(region).misfits(summaries)]
    misfits += list(_nothing_again(config.regions, summaries))[:1]
    if misfits:
        raise ConfigError(misfits)
    return summaries


def training_examples(config: Config, summaries: Mapping[Path, DataSummary]) -> dict[str, int]:
    """Return how many training examples each region has that has data of its own, by slug."""
    return {region.slug: summaries[region.data["train"]].sets[0].examples for region in config.regions if region.data}


def _nothing_again(regions: Sequence[Region], summaries: Mapping[Path, DataSummary]) -> Iterator[str]:
    """Yield, for each file, that nothing which `again` knows could be recommended."""
    for region in regions:
        families = [one.options for one in region.search.space if isinstance(one, Choice) and one.name == FAMILY]
        for file in region.data.values() if any(AGAIN in options for options in families) else ():
            if not summaries[file].repeats:
                yield (
                    f"families: {AGAIN}: it ranks what customers have, which {file} leaves out; legal where buying "
                    "again counts: data.split: {repeats: true}, or nnlib import --repeats"
                )
