"""Reads `data`: the table that all regions' data come from, how it is split, and which regions it was found to have."""

from __future__ import annotations

from pathlib import Path

from regiondag.config.database_section import read_database
from regiondag.config.keys import COLUMNS, DATA, DATA_COLUMNS, FORMAT, SPLIT, STUDY, WORDS
from regiondag.study.database import Database
from regiondag.study.model import Purchases
from regiondag.util.schema import Layer, Section

TRAIN = ".train.nc"


def read_purchases(study: Section, folder: Path) -> Purchases | None:
    """Read the section `data`; None where there is none. Paths are relative to `folder`, that of study.yaml."""
    if "data" not in study:
        return None
    study.value("data", STUDY)
    section = study.section("data")
    table = _read_table(section, folder)
    split, columns, form = _read_split(section), section.section("columns"), section.section("format")
    values = {name: split.value(name, SPLIT) for name in SPLIT}
    if values["column"] and "by" not in split:
        values["by"] = "column"
    named = {name: columns.value(name, DATA_COLUMNS) for name in COLUMNS}
    told = {name: columns.value(name, DATA_COLUMNS) for name in ("description", "quantity")}
    written = {name: form.value(name, FORMAT) for name in FORMAT}
    for below in (split, columns, form):
        below.finish()
    where, region = section.value("folder", DATA), section.value("region", DATA)
    section.value("min_customers", DATA)
    section.finish()
    if values["by"] == "column" and not values["column"]:
        split.problems.add(split.where("column"), "missing: the name of the column that says train, valid or test")
    if values["by"] != "column" and values["column"]:
        split.problems.add(split.where("column"), f"says the parts by itself, seen by: {values['by']}; leave one out")
    if values["repeats"] and values["by"] not in ("time", "column"):
        split.problems.add(
            split.where("repeats"),
            f"is for windows, by: time or column, seen by: {values['by']}: there nothing is asked twice",
        )
    if region and "region" in columns:
        section.problems.add(section.where("region"), "the column of the region is named, too; leave one out")
    columns_of = {**named, "region": "" if region else named["region"], **told}
    return Purchases(
        table, folder / where, values.pop("by"), **values, columns=columns_of, region=region, format=written
    )


def _read_table(section: Section, folder: Path) -> Path | Database:
    path: str = section.value("purchases", DATA)
    section.value("database", DATA)
    if "database" not in section:
        if not path:
            legal = f"{DATA['purchases'].about[:-1].lower()}; or `database`"
            section.problems.add(section.where("purchases"), f"missing, legal: {legal}")
        return folder / path
    if "purchases" in section:
        section.problems.add(section.where("purchases"), "stands beside `database`; leave one out")
    return read_database(section.section("database"), folder) or folder


def _read_split(section: Section) -> Section:
    """Return the section `split`; a word alone, as in `split: leave-one-out`, is its key `by`."""
    word = section.raw("split")
    if not isinstance(word, str):
        return section.section("split")
    if word in WORDS:
        return Section(section.problems, [Layer({"by": word}, section.where("split"))])
    section.refuse("split", DATA["split"].check.legal)
    return Section(section.problems, [Layer({}, section.where("split"))])


def list_imported(purchases: Purchases) -> list[tuple[str, Path]]:
    """Return the names and data sets (`data/germany.nc`, without the part) of the regions that were imported."""
    from nnlib.data.file import read_region  # with netCDF4

    files = sorted(purchases.folder.glob(f"*{TRAIN}"))
    return [(read_region(file), file.with_name(file.name.removesuffix(TRAIN) + ".nc")) for file in files]
