"""Put the data of all regions together, for the model that others start from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from regiondag.errors import ConfigError
from regiondag.run.layout import RegionFolder
from regiondag.study.model import Region


def write_merged(region: Region, folder: RegionFolder) -> list[Path]:
    """Merge a region's parts out of other regions' files into its folder; return the files written, for most none.

    ConfigError when the files, or the network and all of them together, do not fit.
    """
    if not region.merged:
        return []
    from nnlib.data.file import check_data_file  # with NumPy and netCDF4
    from nnlib.data.merge import merge
    from nnlib.errors import DataError
    from regiondag.config.data_check import misfits_of

    data = {part: folder.data(part) for part in region.merged}
    try:
        for part, files in region.merged.items():
            merge(files, data[part], units_of=region.merged["train"])
        summaries = {file: check_data_file(file) for file in data.values()}
    except DataError as error:
        raise ConfigError([f"init: pooled: the data of all regions cannot be put together: {error}"]) from error
    misfits = [text.replace(f"{folder.path}/", "") for text in misfits_of(replace(region, data=data), summaries)]
    if misfits:
        raise ConfigError(misfits)
    return list(data.values())
