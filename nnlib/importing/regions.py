"""`nnlib import`: a table of purchases becomes four data files per region."""

from __future__ import annotations

import csv
import io
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from nnlib.data.file import Begun, begin_data, write_data
from nnlib.data.rows import Csr
from nnlib.errors import DataError
from nnlib.importing.histories import LEAST_VALIDATED, MIN_ITEMS, PARTS, RegionParts, build_histories, check_slugs
from nnlib.importing.purchases import UNREADABLE, Columns, count_lines_read, explain_unreadable, load, open_table
from nnlib.spec.json_section import nearest
from nnlib.util.files import sync, write_atomically
from nnlib.util.terminal import show_reading

ITEMS_FILE = "items.csv"
NAMES_FILE = ".names.part"  # while the import runs
USUAL_COLUMNS = Columns()

Line = tuple[str, int, Mapping[str, int], str]


def import_purchases(
    table: Path,
    out: Path,
    columns: Columns = USUAL_COLUMNS,
    regions: Sequence[str] = (),
    min_items: int = MIN_ITEMS,
    items: Path | None = None,
) -> int:
    """Write `<slug>.<part>.nc` of every region and `items.csv` into `out`; print what was written.

    Everything is read and checked before the first file is written, and a failure leaves `out` as it was.
    `regions` limits what is written, not the list of items, so that models of different imports of one table stay
    comparable.
    """
    _check_paths(table, out, items)
    with show_reading(table.stat().st_size, "rows") as report:
        purchases = load(table, columns, report)
    if not purchases.customers:
        raise DataError(f"{table.name}: no line after the header; legal: one purchase a line")
    history = build_histories(purchases, min_items)
    wanted = _choose(regions, history.regions, table)
    items_csv = _items_csv(history.items, _descriptions(items) if items else {})
    made = [region for region in wanted if history.can_validate(region)]
    if not made:
        raise DataError(f"{table.name}: no region has a customer with enough items{_explain_needed(min_items)}")
    lines: list[Line] = []
    with _all_or_nothing(out) as (folder, replaced):
        begun: Begun | None = None
        for region in made:
            split = history.split(region)
            begun = begun or begin_data(folder / NAMES_FILE, split.parts["train"])
            for part in PARTS:
                write_data(folder / f"{split.slug}.{part}.nc", split.parts[part], begun)
            lines.append(_line(split))
        (folder / NAMES_FILE).unlink()
        write_atomically(folder / ITEMS_FILE, items_csv)
    _print_table(lines, [region for region in wanted if region not in made], min_items)
    if replaced:
        print(f"replaced in {out}: {', '.join(replaced)}", file=sys.stderr)
    return 0


def _check_paths(table: Path, out: Path, items: Path | None) -> None:
    """Raise DataError where a table could not be read or a file not be written, or an input would be replaced."""
    if out.exists() and not out.is_dir():
        raise DataError(f"{out}: not a folder, legal for --out: a folder, or a name that is still free")
    for read in (table, items):
        if read is not None and read.resolve() == (out / ITEMS_FILE).resolve():
            raise DataError(
                f"{read}: would be replaced by the {ITEMS_FILE} of this import, legal for --out: a new folder"
            )
    if table.is_dir():
        raise DataError(f"{table}: is a folder, legal: one table, .csv or .tsv, also .gz")


def _choose(regions: Sequence[str], known: Sequence[str], table: Path) -> Sequence[str]:
    """Return the regions that were asked for, once each, or all that are known."""
    unknown = sorted(set(regions) - set(known))
    if unknown:
        raise DataError(
            f"{table.name}: no region {unknown[0]!r}, there are: {', '.join(known)}{nearest(unknown[0], known)}"
        )
    wanted = tuple(dict.fromkeys(regions)) or known
    check_slugs(wanted)
    return wanted


@contextmanager
def _all_or_nothing(out: Path) -> Iterator[tuple[Path, list[str]]]:
    """Give a folder to write into, whose files come into `out` together at the end, and the names they replaced.

    A folder that is not there yet appears at once with all of its files; in one that is, each file is replaced
    whole, after all of them were written. Each has been flushed to the disk by whoever wrote it. Unlike `appearing` the
    part has the same name each time, so that the gigabytes that a killed import left are removed.
    """
    target, replaced = out.resolve(), list[str]()
    new = not target.exists()
    part = target.with_name(f".{target.name}.part") if new else target / ".import.part"
    shutil.rmtree(part, ignore_errors=True)  # of an import that was killed
    try:
        part.mkdir(parents=True)
    except OSError as error:
        error.filename = str(out)
        raise
    try:
        yield part, replaced
        if new:
            part.replace(target)
            sync(target.parent)
            return
        for file in sorted(part.iterdir()):
            if (target / file.name).exists():
                replaced.append(file.name)
            file.replace(target / file.name)
        sync(target)
    except OSError as error:
        if error.filename:
            error.filename = str(out / Path(error.filename).name)
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _explain_needed(min_items: int) -> str:
    text = f": a region needs one with {max(min_items, LEAST_VALIDATED)} different items"
    if min_items > LEAST_VALIDATED:
        return f"{text}; lower --min-items"
    return f" to validate{text}; check --customer-column and --item-column, or take a longer period"


def _descriptions(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    line = 0
    try:
        with open_table(path) as file:
            rows = csv.reader(file)
            for row in rows:
                line, header = rows.line_num, line == 0
                if row and len(row) != 2:
                    raise DataError(f"{path}:{line}: {len(row)} fields, legal: item,description")
                if row and not header:
                    found[row[0]] = row[1]
    except UNREADABLE as error:
        raise DataError(
            f"{path}:{line + 1 + count_lines_read(error)}: cannot be read: {explain_unreadable(error)}; "
            "legal: UTF-8 text, item,description with a header"
        ) from error
    if not line:
        raise DataError(f"{path}: empty; legal: lines of item,description after a header")
    return found


def _items_csv(names: Sequence[str], descriptions: Mapping[str, str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("unit", "item", "description"))
    writer.writerows((unit, name, descriptions.get(name, "")) for unit, name in enumerate(names))
    return text.getvalue()


def _line(split: RegionParts) -> Line:
    """Return what is said of a region: its name, numbers of customers and of targets, and the files' name."""
    targets = [split.parts[part].sets[1].rows for part in PARTS]
    pairs = {part: rows.nonzeros for part, rows in zip(PARTS, targets, strict=True) if isinstance(rows, Csr)}
    return _show(split.region), split.parts["train"].sets[0].examples, pairs, split.slug


def _print_table(lines: Sequence[Line], skipped: Sequence[str], min_items: int) -> None:
    wide = max(6, *(len(name) for name, *_ in lines))
    print(f"{'region':<{wide}} {'customers':>9} {'train':>9} {'valid':>7} {'test':>7}  files")
    for name, customers, pairs, slug in lines:
        numbers = f"{pairs['train']:>9} {pairs['valid']:>7} {pairs['test']:>7}"
        print(f"{name:<{wide}} {customers:>9} {numbers}  {slug}.*.nc")
    if skipped:
        listed = ", ".join(_show(name) for name in skipped)
        print(f"skipped, no customer with {min_items} items and one to validate: {listed}", file=sys.stderr)


def _show(name: str) -> str:
    return name if name.isprintable() else repr(name)
