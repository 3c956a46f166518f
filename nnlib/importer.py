"""`nnlib import`: a table of purchases becomes four data files per region."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from nnlib.contract import write_atomically
from nnlib.datafile import write_data
from nnlib.errors import DataError
from nnlib.purchases import (
    MIN_ITEMS,
    PARTS,
    Columns,
    RegionParts,
    catalogue,
    check_slugs,
    histories,
    read_purchases,
    split,
)

ITEMS_FILE = "items.csv"
USUAL_COLUMNS = Columns()


def import_purchases(
    table: Path,
    out: Path,
    columns: Columns = USUAL_COLUMNS,
    regions: Sequence[str] = (),
    min_items: int = MIN_ITEMS,
    items: Path | None = None,
) -> int:
    """Write `<slug>.<part>.nc` of every region and `items.csv` into `out`; print what was written.

    Everything is read and checked before the first file is written. `regions` limits what is written, not the
    list of items, so that models of different imports of one table stay comparable.
    """
    history = histories(read_purchases(table, columns), min_items)
    unknown = sorted(set(regions) - set(history))
    if unknown:
        raise DataError(f"{table.name}: no region {unknown[0]!r}, there are: {', '.join(history)}")
    wanted = regions or tuple(history)
    check_slugs(wanted)
    names = catalogue(history)
    descriptions = _descriptions(items) if items else {}
    found = {region: split(region, history[region], names) for region in dict.fromkeys(wanted)}
    made = [parts for parts in found.values() if parts]
    if not made:
        raise DataError(f"{table.name}: no region has a customer with enough items; lower --min-items ({min_items})")
    out.mkdir(parents=True, exist_ok=True)
    for region in made:
        for part in PARTS:
            write_data(out / f"{region.slug}.{part}.nc", region.parts[part])
    write_atomically(out / ITEMS_FILE, _items_csv(names, descriptions))
    _print_table(made, [region for region, parts in found.items() if not parts], min_items)
    return 0


def _descriptions(path: Path) -> dict[str, str]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    for line, row in enumerate(rows, 1):
        if len(row) != 2:
            raise DataError(f"{path.name}:{line}: {len(row)} fields, legal: item,description")
    return {row[0]: row[1] for row in rows[1:]}


def _items_csv(names: Sequence[str], descriptions: Mapping[str, str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("unit", "item", "description"))
    writer.writerows((unit, name, descriptions.get(name, "")) for unit, name in enumerate(names))
    return text.getvalue()


def _print_table(made: Sequence[RegionParts], skipped: Sequence[str], min_items: int) -> None:
    names = [region.region if region.region.isprintable() else repr(region.region) for region in made]
    wide = max(6, *(len(name) for name in names))
    print(f"{'region':<{wide}} {'customers':>9} {'train':>9} {'valid':>7} {'test':>7}  files")
    for name, region in zip(names, made, strict=True):
        customers = region.parts["train"].sets[0].rows.examples
        pairs = f"{region.pairs('train'):>9} {region.pairs('valid'):>7} {region.pairs('test'):>7}"
        print(f"{name:<{wide}} {customers:>9} {pairs}  {region.slug}.*.nc")
    if skipped:
        listed = ", ".join(name if name.isprintable() else repr(name) for name in skipped)
        print(f"skipped, no customer with {min_items} items and one to validate: {listed}", file=sys.stderr)
