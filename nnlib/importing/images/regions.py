"""`nnlib import --format images`: folders of pictures become the data files of every region."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from nnlib.contract import slug_of
from nnlib.errors import DataError
from nnlib.importing.images.listing import Listing, Picture, list_pictures
from nnlib.importing.images.parts import PARTS, TEST, TRAIN, VALID, Shares, divide
from nnlib.importing.images.pictures import PictureForm, pillow
from nnlib.importing.images.write import RegionPictures, decode_region, files_of, write_part
from nnlib.importing.whole_folder import (
    Writing,
    all_or_nothing,
    check_out_folder,
    choose_regions,
    scratch_beside,
    tell_replaced,
)
from nnlib.util.columns import Narrow, format_fitted, print_folded
from nnlib.util.terminal import show_count, tell, width_of
from nnlib.util.threads import Each

REFUSE = "refuse"
SHOWN = 5  # names in a message
ENOUGH = 10  # pictures of a class to learn from, below which a hint is given
HEADINGS = ("region", "classes", "train", "valid", "test", "files")
USUAL_FORM, USUAL_SHARES = PictureForm(), Shares()


@dataclass(slots=True)
class _Broken:
    """What could not be decoded; with `refuse` the first few end the import."""

    listing: Listing
    refuse: bool
    found: list[str] = field(default_factory=list)

    def add(self, name: str, reason: str) -> None:
        self.found.append(f"{self.listing.folder / name}: {reason}")
        if self.refuse and len(self.found) == SHOWN:
            self.check(" and perhaps more")

    def check(self, more: str = "") -> None:
        """Raise DataError when anything was broken that may not be."""
        if self.refuse and self.found:
            raise DataError(
                "\n".join(self.found) + f"\n{len(self.found)} pictures{more} cannot be read; make or copy them again, "
                "or leave such out: --broken skip"
            )


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is shown of a region."""

    region: str
    classes: int
    counts: tuple[int, ...]  # of train, valid, test
    copies: int
    fewest: tuple[str, int]  # a class, and how many pictures of it are learned from


def import_images(
    source: Path,
    out: Path,
    each: Each,
    form: PictureForm = USUAL_FORM,
    shares: Shares = USUAL_SHARES,
    regions: Sequence[str] = (),
    one_region: str = "",
    broken: str = REFUSE,
) -> int:
    """Write `<slug>.<part>.nc` of every region into `out`, all with the same classes; print what was written.

    A failure leaves `out` as it was. `regions` limits what is written, not the list of classes.
    """
    check_out_folder(out)
    listing = list_pictures(source, one_region)
    classes = sorted({picture.label for picture in listing.pictures})
    if len(classes) < 2:
        raise DataError(f"{source}: {classes[0]!r} is the only class, legal: two or more")
    by_region = _group(listing.pictures)
    wanted = choose_regions(regions, list(by_region), source)
    parts = {region: divide(by_region[region], shares) for region in wanted}
    for region, some in parts.items():
        if not any(picture.part == TRAIN for picture in some):
            raise DataError(
                f"{source}: region {region!r} has no picture to learn from (part {TRAIN}); legal: one or more"
            )
    trouble, seen = _Broken(listing, broken == REFUSE), list[_Seen]()
    total = sum(map(len, parts.values()))
    with (
        pillow(),
        scratch_beside(out) as scratch,
        all_or_nothing(out) as writing,
        show_count(total, "pictures") as advance,
    ):
        for region in wanted:
            found = decode_region(parts[region], listing.folder, scratch, classes, form, each, trouble.add, advance)
            trouble.check()
            _write(writing, region, found, classes, form)
            seen.append(_look_at(region, found, classes))
    _print(seen, trouble.found, listing)
    tell_replaced(writing, out)
    return 0


def _group(pictures: Sequence[Picture]) -> dict[str, list[Picture]]:
    ordered = sorted(pictures, key=lambda picture: picture.region)
    return {region: list(some) for region, some in groupby(ordered, lambda picture: picture.region)}


def _write(writing: Writing, region: str, found: RegionPictures, classes: Sequence[str], form: PictureForm) -> None:
    if TRAIN not in found.parts:
        raise DataError(f"region {region!r} has no picture to learn from that can be read; remove it, or copy it again")
    files = files_of(found)
    for part in (*PARTS, "all"):
        name = f"{slug_of(region)}.{part}.nc"
        if part in files:
            write_part(writing.folder / name, files[part], region, classes, form)
        else:
            writing.stale.append(name)


def _look_at(region: str, found: RegionPictures, classes: Sequence[str]) -> _Seen:
    counts = tuple(len(found.parts[part].names) if part in found.parts else 0 for part in (TRAIN, VALID, TEST))
    learned = Counter(found.parts[TRAIN].classes)
    all_classes = {number for one in found.parts.values() for number in one.classes}
    fewest = min(sorted(all_classes), key=lambda number: learned[number])
    return _Seen(region, len(all_classes), counts, found.copies, (classes[fewest], learned[fewest]))


def _print(seen: Sequence[_Seen], broken: Sequence[str], listing: Listing) -> None:
    cells = [
        (one.region, str(one.classes), *(f"{count:,}" for count in one.counts), f"{slug_of(one.region)}.*.nc")
        for one in seen
    ]
    right = [False, *(True,) * (len(HEADINGS) - 2), False]
    print(format_fitted(HEADINGS, cells, right, Narrow(("files",), {"region": 11}), width_of(sys.stdout)))
    for line in broken[:SHOWN]:
        print_folded(f"warning: left out: {line}", sys.stderr)
    if len(broken) > SHOWN:
        print_folded(f"warning: left out: {len(broken) - SHOWN} more pictures", sys.stderr)
    for one in seen:
        if one.copies:
            print_folded(
                f"warning: {one.region}: {one.copies} pictures are the same in several parts, so that figures promise "
                "too much; leave copies out",
                sys.stderr,
            )
    few = [f"{one.region} {one.fewest[1]} of {one.fewest[0]!r}" for one in seen if one.fewest[1] < ENOUGH]
    if few:
        more = f" and {len(few) - SHOWN} more regions" if len(few) > SHOWN else ""
        print_folded(f"warning: few pictures to learn from: {', '.join(few[:SHOWN])}{more}", sys.stderr)
    if listing.others:
        names = ", ".join(map(repr, sorted(listing.others)[:SHOWN]))  # quoted: a name may hold what moves a cursor
        tell(f"passed over, as their names end in none of pictures: {len(listing.others)} files: {names}")
