"""Put the data of all regions together, for the model that others start from."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from regiondag.errors import ConfigError
from regiondag.run.layout import RegionFolder
from regiondag.study.model import Region

if TYPE_CHECKING:
    from nnlib.data.file import DataSummary


def write_merged(
    region: Region, folder: RegionFolder
) -> tuple[dict[str, dict[Path, tuple[int, int]]], dict[Path, DataSummary]]:
    """Merge a region's parts out of other regions' files into its folder; for most there is nothing to do.

    Return for each part which examples come from which file, as the first and the one after the last, and what the new
    files hold. ConfigError when the files, or the network and all of them together, do not fit.
    """
    if not region.merged:
        return {}, {}
    from nnlib.data.file import check_data_file  # with NumPy and netCDF4
    from nnlib.errors import DataError
    from regiondag.trainers.trainer import trainer_of

    data = {part: folder.data(part) for part in region.merged}
    try:
        rows = {part: _merge(files, data[part], region.merged["train"]) for part, files in region.merged.items()}
        summaries = {file: check_data_file(file) for file in data.values()}
    except DataError as error:
        raise ConfigError([f"the data of all regions cannot be put together: {error}"]) from error
    trainer = trainer_of(replace(region, data=data))
    misfits = [text.replace(f"{folder.path}/", "") for text in trainer.misfits(summaries)]
    if misfits:
        raise ConfigError(misfits)
    return rows, summaries


def _merge(files: Sequence[Path], out: Path, units_of: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    from nnlib.data.merge import merge

    ends = merge(files, out, units_of=units_of)[0].examples
    return dict(zip(files, itertools.pairwise(ends), strict=True))
