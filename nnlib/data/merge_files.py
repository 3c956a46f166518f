"""What files that are to be one must have in common: the data sets, their kinds, and units that can be told apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnlib.data.file_header import IGNORE_ZERO, Header, integer, read_headers
from nnlib.data.file_history import find_beside, read_as_of, read_regions, read_repeats, region_of
from nnlib.data.sets import say_mixed_repeats
from nnlib.errors import DataError
from nnlib.spec.json_section import show
from nnlib.util import netcdf

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileSlice:
    """What one file holds but for its values: its data sets by name, and the names of their units."""

    path: Path
    sets: Mapping[str, Header]
    names: Mapping[str, Names]  # empty when the file has none
    samples: bool
    regions: Names  # "" where it names none
    as_of: int | None
    beside: Mapping[str, tuple[str, ...]]  # what each data set has for each entry, as `file_history` names it
    repeats: bool

    @property
    def file(self) -> str:
        """What to call it in messages."""
        return self.path.name

    @property
    def examples(self) -> int:
        """How many examples each of its data sets has."""
        return next(iter(self.sets.values())).examples


def read_slice(path: Path) -> FileSlice:
    """Read all of a data file but its values; DataError when two data sets have one name."""
    with netcdf.File(path) as file:
        headers = {header.name: header for header in read_headers(file)}
        if len(headers) < integer(file, "datasets"):
            raise DataError(f"{path}: two data sets of one name are not legal, legal: a name of its own for each")
        texts = {one.names_of: file.strings(f"indToFeature{one.names_of}") for one in headers.values() if one.names}
        names = {name: texts[one.names_of] if one.names else () for name, one in headers.items()}
        beside = {name: find_beside(file, one) for name, one in headers.items()}
        regions, _ = read_regions(file, next(iter(headers.values())).examples)
        samples, as_of, repeats = "samples" in file.variables, read_as_of(file), read_repeats(file)
        return FileSlice(path, headers, names, samples, regions or (region_of(file),), as_of, beside, repeats)


def check_alike(first: FileSlice, part: FileSlice) -> None:
    """Raise DataError when two files do not have the same data sets of the same kinds."""
    if set(part.sets) != set(first.sets):
        seen, wanted = (", ".join(map(show, which.sets)) for which in (part, first))
        raise DataError(
            f"{part.file}: has the data sets {seen}, {first.file} has {wanted}; legal: the same in all files"
        )
    for name, wants in first.sets.items():
        sees, here = part.sets[name], f"{part.file}: data set {show(name)}"
        kinds = [one.kind + ", ignoring zeros" * bool(one.bits & IGNORE_ZERO) for one in (sees, wants)]
        if kinds[0] != kinds[1]:
            raise DataError(f"{here} is {kinds[0]}, in {first.file} it is {kinds[1]}; make both files in one way")
        if bool(part.names[name]) != bool(first.names[name]):
            owner, other = (part, first) if part.names[name] else (first, part)
            raise DataError(
                f"{here}: {owner.file} has names of its units, {other.file} has none by which to match them; legal: "
                "names in all files, or in none"
            )
        fixed = not is_sparse(sees) or len(sees.dimensions) > 1 or len(wants.dimensions) > 1
        if (not part.names[name] or fixed) and shape_of(sees) != shape_of(wants):
            raise DataError(
                f"{here} is {shape_of(sees)} wide, in {first.file} {shape_of(wants)}, with no names to go by"
            )
        if fixed and part.names[name] != first.names[name]:
            raise DataError(f"{here} has other units than {first.file}, legal in dense data and pictures: the same")


def shape_of(one: Header) -> str:
    """Return the dimensions of a data set, such as `28 x 28`."""
    return " x ".join(map(str, one.dimensions))


def is_sparse(one: Header) -> bool:
    """Whether its rows are sparse once they are read."""
    return one.sparse or one.boolean


def find_as_of(files: Sequence[FileSlice]) -> int | None:
    """Return the first day that all files are asked about, None when one has none; DataError when they differ."""
    days = [file.as_of for file in files]
    if None in days:
        return None
    other = next((file for file in files if file.as_of != days[0]), None)
    if other is not None:
        raise DataError(
            f"{other.file}: is asked about day {other.as_of} (as_of), {files[0].file} about day {days[0]}; "
            "legal: one day in all files; import them from one table, or all with the same --test and --validate"
        )
    return days[0]


def find_repeats(files: Sequence[FileSlice]) -> bool:
    """Return whether what examples have is ranked like anything else; DataError when files say different things."""
    first = files[0]
    other = next((file for file in files if file.repeats != first.repeats), None)
    if other is not None:
        raise DataError(say_mixed_repeats(first.file, first.repeats, other.file))
    return first.repeats


def unite_names(name: str, givers: Sequence[FileSlice]) -> Names:
    """Return the names of all units, those of the first file first; padding, which has no names, is left out."""
    first = givers[0].names[name]
    if all(giver.names[name] == first for giver in givers):
        return first
    for giver in givers:
        check_unique(giver.file, name, giver.names[name])
    return tuple(dict.fromkeys(unit for giver in givers for unit in giver.names[name] if unit))


def check_unique(file: str, name: str, names: Names) -> None:
    """Raise DataError when two units of a data set have one name."""
    unit, count = next(iter(Counter(filter(None, names)).most_common(1)), ("", 0))
    if count > 1:
        raise DataError(
            f"{file}: data set {show(name)} has {count} units of the name {show(unit)}; legal in files that "
            "have not all the same units: every name once"
        )
