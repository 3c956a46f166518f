"""`nnlib import`: a table of purchases becomes the data files of every region."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from nnlib.contract import slug_of
from nnlib.data.file import begin_data, write_data
from nnlib.data.overview import (
    FEW,
    HEADINGS,
    NARROW,
    RegionOverview,
    Suspicions,
    describe_region,
    find_warnings,
    table_row,
)
from nnlib.data.rows import Csr
from nnlib.data.sets import Data, DataSet
from nnlib.errors import DataError
from nnlib.importing.histories import PARTS, PurchaseHistory, build_history
from nnlib.importing.purchase_lines import Columns, describe_left_out
from nnlib.importing.purchases import Purchases, load
from nnlib.importing.side_tables import (
    CUSTOMER,
    DESCRIPTION,
    ITEM,
    REGION,
    SideTable,
    customers_csv,
    items_csv,
    read_side_table,
)
from nnlib.importing.splits import TIME, Split
from nnlib.importing.table_source import find_source
from nnlib.importing.whole_folder import (
    Writing,
    all_or_nothing,
    check_out_folder,
    choose_regions,
    scratch_beside,
    tell_replaced,
)
from nnlib.importing.windows import ENOUGH, USUAL
from nnlib.util.columns import format_fitted, print_folded
from nnlib.util.days import show_day
from nnlib.util.files import write_atomically
from nnlib.util.terminal import is_quiet, show_reading, width_of

ITEMS_FILE, CUSTOMERS_FILE = "items.csv", "customers.csv"
OFTEN = 0.3  # share of purchases of what a customer had, from which on buying again may be the business
NAMES_FILE = ".names.part"  # while the import runs
USUAL_COLUMNS = Columns()
USUAL_SPLIT = Split()


@dataclass(frozen=True, slots=True)
class SideFiles:
    """Tables of what is known of items and of customers."""

    items: Path | None = None
    customers: Path | None = None


NO_SIDE_FILES = SideFiles()


def import_purchases(
    table: Path,
    out: Path,
    today: int,
    columns: Columns = USUAL_COLUMNS,
    split: Split = USUAL_SPLIT,
    regions: Sequence[str] = (),
    side: SideFiles = NO_SIDE_FILES,
) -> int:
    """Write `<slug>.<part>.nc` of every region, `items.csv` and `customers.csv` into `out`; print what was written.

    Everything is read and checked before the first file is written, and a failure leaves `out` as it was.
    `regions` limits what is written, not the list of items nor the windows, so that models of different imports of one
    table stay comparable. `today` is in days since 1970-01-01.
    """
    _check_paths(table, out, side)
    size = find_source(table, columns.format).size
    with show_reading(size, "rows") as report, scratch_beside(out) as scratch:
        purchases = load(table, columns, scratch, report)
    if not purchases.customers:
        raise DataError(f"{table.name}: {_explain_nothing(purchases)}")
    for line in describe_left_out(purchases.left_out, columns):
        print(line, file=sys.stderr)
    known = read_side_table(side.items, (ITEM,)) if side.items else None
    known_customers = read_side_table(side.customers, (REGION, CUSTOMER)) if side.customers else None
    rows = purchases.rows.count
    try:
        history = build_history(purchases, split)
    except DataError as error:
        raise DataError(f"{table.name}: {error}") from None
    wanted = choose_regions(regions, history.regions, table)
    if not history.anybody_asked():
        raise DataError(f"{table.name}: {_explain_nobody(history)}")
    with all_or_nothing(out) as writing:
        described = [_write_region(writing, history, region) for region in wanted]
        (writing.folder / NAMES_FILE).unlink()
        write_atomically(writing.folder / ITEMS_FILE, items_csv(history.items, known or _told(purchases)))
        if known_customers:
            write_atomically(writing.folder / CUSTOMERS_FILE, customers_csv(_customers(history), known_customers))
    as_of = history.windows if history.days is not None else None
    suspicions = _suspicions(history, rows)
    _print(described, suspicions, find_warnings(described, as_of, today, suspicions))
    if is_quiet():
        return 0
    if said := _describe_windows(split, history):
        print_folded(said, sys.stderr)
    if not split.repeats and history.share_of_repeats > OFTEN:
        share = f"{history.share_of_repeats:.0%} of purchases in the windows are of items that the customer had"
        print_folded(f"hint: {share}; with repeats: true (--repeats) they count as wanted", sys.stderr)
    tell_replaced(writing, out)
    return 0


def _write_region(writing: Writing, history: PurchaseHistory, region: str) -> RegionOverview:
    """Write the parts of a region one after the other, as the largest one's take more memory than all else."""
    seen = _Seen(region)
    for part in PARTS:
        data, name = history.part_data(region, part), f"{slug_of(region)}.{part}.nc"
        if data is None:
            writing.stale.append(name)
            continue
        writing.begun = writing.begun or begin_data(writing.folder / NAMES_FILE, data)
        write_data(writing.folder / name, data, writing.begun)
        seen.look_at(part, data)
    return seen.describe(history)


def _print(regions: Sequence[RegionOverview], suspicions: Suspicions, warnings: Sequence[str]) -> None:
    cells = [(*table_row(one), f"{slug_of(one.region)}.*.nc") for one in regions]
    right = [False, *(True,) * (len(HEADINGS) - 1), False]
    print(format_fitted((*HEADINGS, "files"), cells, right, NARROW, width_of(sys.stdout)))
    if suspicions.copies and not any(line.startswith(suspicions.copies) for line in warnings):
        print_folded(suspicions.copies)
    for line in warnings:
        print_folded(f"warning: {line}", sys.stderr)


def _check_paths(table: Path, out: Path, side: SideFiles) -> None:
    """Raise DataError where a table could not be read or a file not be written, or an input would be replaced."""
    check_out_folder(out)
    for read in (table, side.items, side.customers):
        for name in (ITEMS_FILE, CUSTOMERS_FILE):
            if read is not None and read.resolve() == (out / name).resolve():
                raise DataError(
                    f"{read}: would be replaced by the {name} of this import, legal for --out: a new folder"
                )


def _describe_windows(wanted: Split, history: PurchaseHistory) -> str:
    """Return why windows are not as long as usual, where nobody has said how long they are to be."""
    days = history.split.test
    if wanted.kind != TIME or wanted.test or wanted.validate or days == USUAL:
        return ""
    begin = f"{show_day(history.windows.valid)} (validation) and {show_day(history.windows.test)} (test)"
    why = "as the table has few days only"
    if days > USUAL:
        why = f"as {USUAL} would ask fewer than {ENOUGH} customers; {USUAL} all the same: split: {{test: {USUAL}d}}"
    return f"windows: {days} days from {begin}, {why}"


def _explain_nobody(history: PurchaseHistory) -> str:
    least = history.split.min_history
    text = f"nobody can be asked: no customer has {least} items before"
    if history.split.kind == TIME:
        days = f"{show_day(history.windows.valid)} or {show_day(history.windows.test)}"
        text += f" {days}, and then takes one that he had not"
    else:
        text += " what is held out"
    return f"{text}; lower --min-history, or check --customer-column and --item-column"


def _explain_nothing(purchases: Purchases) -> str:
    if purchases.left_out:
        lacking = ", ".join(f"{count:,} without {name}" for name, count in purchases.left_out.items())
        return f"no purchase is whole: {lacking}; name the right columns"
    return "no line after the header; legal: one purchase a line"


def _told(purchases: Purchases) -> SideTable | None:
    """Return the descriptions that the table itself has of its items."""
    if not purchases.descriptions:
        return None
    told = zip(purchases.items, purchases.descriptions, strict=True)
    return SideTable((DESCRIPTION,), {(item,): (text,) for item, text in told})


def _customers(history: PurchaseHistory) -> Iterator[tuple[str, str]]:
    for n, region in enumerate(history.regions):
        for customer in range(int(history.first[n]), int(history.first[n + 1])):
            yield region, history.customers[customer]


class _Seen:
    """What was seen of a region while its parts were written."""

    whole: DataSet

    def __init__(self, region: str) -> None:
        self.region = region
        self.asked = {"valid": 0, "test": 0}
        self.targets = np.empty(0, np.int32)

    def look_at(self, part: str, data: Data) -> None:
        """Remember what is shown of a part."""
        if part in self.asked:
            self.asked[part] = data.sets[0].examples
        if part == "test":
            self.targets = cast(Csr, data.sets[1].rows).indices
        if part == "all":
            self.whole = data.sets[0]

    def describe(self, history: PurchaseHistory) -> RegionOverview:
        """Return what is shown of the region."""
        n = history.regions.index(self.region)
        bought = int(history.purchases[history.first[n] : history.first[n + 1]].sum())
        rows = cast(Csr, self.whole.rows)
        repeats = 1 - rows.nonzeros / bought if history.days is not None else None
        asked = (self.asked["valid"], self.asked["test"])
        return describe_region(self.region, rows, self.whole.days, asked, self.targets, history.seen_items, repeats)


def _suspicions(history: PurchaseHistory, rows: int) -> Suspicions:
    bought = int(history.purchases.sum())
    duplicates = rows - bought if history.days is not None else 0
    sizes = np.diff(history.first)
    # Among a handful of customers one often has most: that is no till.
    purchases = history.purchases * np.repeat(sizes >= FEW, sizes)
    busiest = int(np.argmax(purchases))
    region = history.regions[int(np.searchsorted(history.first, busiest, side="right")) - 1]
    name = f"customer {history.customers[busiest]!r} of {region!r}"
    return Suspicions(rows, duplicates, name, int(purchases[busiest]) / bought)
