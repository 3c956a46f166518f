"""The peer of `nnlib import`, and its input, each for a process of its own.

`generate TABLE ROWS` writes purchases; `pandas TABLE FOLDER` makes the same matrices of them with pandas and SciPy;
`parquet TABLE FILE` writes them as Parquet; `duckdb TABLE -` and `polars TABLE -` read and group them, and do no more.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

REGIONS, ITEMS, DAYS = 40, 40_000, 730
PURCHASES_OF_A_CUSTOMER = 80
SOME = 1 << 20
MIN_HISTORY = 5


def generate(path: Path, rows: int) -> None:
    """Write a table in which some customers, items and regions are much more frequent than others."""
    random = np.random.default_rng(1)
    customers = max(rows // PURCHASES_OF_A_CUSTOMER, 10)
    names = [f"Region {n}" if n % 3 else f"Land of many words {n}" for n in range(REGIONS)]
    regions = np.array([name.encode() for name in names])
    letters = regions.view(np.uint8).reshape(REGIONS, -1)
    region_of = (random.random(customers) ** 2 * REGIONS).astype(np.int64)
    days = (np.datetime64("2010-01-01") + np.arange(DAYS)).astype("S10").view(np.uint8).reshape(DAYS, -1)
    with path.open("wb") as file:
        file.write(b"region,customer,item,date\n")
        for start in range(0, rows, SOME):
            count = min(SOME, rows - start)
            customer = (random.random(count) ** 1.5 * customers).astype(np.int64)
            item = (random.random(count) ** 3 * ITEMS).astype(np.int64)
            fields = [letters[region_of[customer]], _digits(customer + 1_000_000, 7), _digits(item, 6)]
            fields.append(days[random.integers(0, DAYS, count)])
            comma, newline = np.full((count, 1), ord(","), np.uint8), np.full((count, 1), ord("\n"), np.uint8)
            lines = np.hstack([*[part for field in fields for part in (field, comma)][:-1], newline]).reshape(-1)
            file.write(lines[lines != 0].tobytes())


def _digits(numbers: Any, wide: int) -> Any:
    return (numbers[:, None] // 10 ** np.arange(wide - 1, -1, -1) % 10 + ord("0")).astype(np.uint8)


def with_pandas(table: Path, folder: Path) -> list[int]:
    """Write the matrices of every region; return how many customers, pairs, and asked customers there are.

    Texts are read as categories, with PyArrow's reader: the fastest and smallest that pandas has.
    """
    import pandas as pd

    columns = ["region", "customer", "item", "date"]
    found = pd.read_csv(table, dtype=dict.fromkeys(columns, "category"), engine="pyarrow")
    for name in columns:
        found[name] = found[name].cat.reorder_categories(sorted(found[name].cat.categories))
    found["day"] = (
        pd.to_datetime(found["date"].cat.categories)
        .to_numpy()
        .astype("datetime64[D]")
        .astype(int)[found["date"].cat.codes]
    )
    end = int(found["day"].max()) + 1
    found = found.sort_values("day", kind="stable").drop_duplicates(["region", "customer", "item"])
    found = found.sort_values(["region", "customer", "item"])
    found["unit"] = found["item"].cat.codes
    width = len(found["item"].cat.categories)
    counts = np.zeros(4, np.int64)
    for region, part in found.groupby("region", observed=True):
        row = part.groupby("customer", observed=True).ngroup().to_numpy()
        asked = _save(folder, str(region), part, row, (width, end))
        counts += [int(row.max()) + 1, len(part), *asked]
    return [int(count) for count in counts]


def _save(folder: Path, region: str, part: Any, row: Any, size: tuple[int, int]) -> list[int]:
    """Write the parts of a region, histories as the days of their entries; return how many customers are asked."""
    import scipy.sparse as sp

    width, end = size
    day, unit = part["day"].to_numpy(), part["unit"].to_numpy()
    customers = int(row.max()) + 1

    def matrix(mask: Any, values: Any) -> Any:
        return sp.csr_matrix((values[mask], (row[mask], unit[mask])), shape=(customers, width))

    def save(name: str, rows: Any, inputs: Any, targets: Any) -> None:
        sp.save_npz(folder / f"{region}.{name}.input.npz", inputs[rows], compressed=False)
        sp.save_npz(folder / f"{region}.{name}.output.npz", targets[rows], compressed=False)

    ones, days = np.ones(len(day), np.float32), day.astype(np.int32)
    asked = []
    for whole, window, last in (("train", "valid", end - 28), ("final", "test", end), ("all", "", end)):
        start = last - 28 if window else end
        inputs = matrix(day < start, days)
        had = np.diff(inputs.indptr)
        save(whole, np.flatnonzero(had), inputs, matrix(day < start, ones))
        if window:
            targets = matrix((day >= start) & (day < last), ones)
            rows = np.flatnonzero((had >= MIN_HISTORY) & (np.diff(targets.indptr) > 0))
            save(window, rows, inputs, targets)
            asked.append(len(rows))
    return asked


def as_parquet(table: Path, file: Path) -> None:
    """Write the same table as Parquet, with dates as dates."""
    import duckdb

    types = "{'region': 'VARCHAR', 'customer': 'VARCHAR', 'item': 'VARCHAR', 'date': 'DATE'}"
    source = f"read_csv('{table}', auto_detect = false, header = true, delim = ',', columns = {types})"
    duckdb.execute(f"COPY (FROM {source}) TO '{file}' (FORMAT parquet)")


def group_with_duckdb(table: Path) -> list[int]:
    """Return how many rows, customers and items a table has, as DuckDB groups it."""
    import duckdb

    duckdb.execute("SET preserve_insertion_order = false")
    read = duckdb.read_csv(str(table)) if table.suffix == ".csv" else duckdb.read_parquet(str(table))
    groups = read.aggregate("region, customer, count(*) AS rows, min(date), max(date)").fetchnumpy()
    items = read.aggregate("item, count(*)").fetchnumpy()
    return [int(groups["rows"].sum()), len(groups["customer"]), len(items["item"])]


def group_with_polars(table: Path) -> list[int]:
    """Return the same, as polars groups it, streaming."""
    import polars as pl

    texts = dict.fromkeys(("region", "customer", "item"), pl.String)
    scan = (
        pl.scan_csv(table, schema_overrides=texts, try_parse_dates=True)
        if table.suffix == ".csv"
        else pl.scan_parquet(table)
    )
    of_customer = (pl.len().alias("rows"), pl.col("date").min().alias("first"), pl.col("date").max().alias("last"))
    groups, items = pl.collect_all(
        [scan.group_by("region", "customer").agg(*of_customer), scan.group_by("item").len()], engine="streaming"
    )
    return [int(groups["rows"].sum()), len(groups), len(items)]


GROUPING = {"duckdb": group_with_duckdb, "polars": group_with_polars}


def main() -> int:
    """Do what the command line says."""
    what, table, argument = sys.argv[1:]
    if what == "generate":
        generate(Path(table), int(argument))
    elif what == "parquet":
        as_parquet(Path(table), Path(argument))
    elif what in GROUPING:
        print(*GROUPING[what](Path(table)))
    else:
        Path(argument).mkdir(parents=True, exist_ok=True)
        print(*with_pandas(Path(table), Path(argument)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
