"""Labels and their numbers, as DSSTNE's index files have them: `label<TAB>number` a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from nnlib.data.rows import Ints
from nnlib.errors import DataError
from nnlib.importing.string_ids import WORD, StringIds, Words
from nnlib.spec.json_section import MOST_UNITS
from nnlib.util.arrays import Longs
from nnlib.util.files import write_atomically

UNKNOWN = -1


class Labels:
    """Labels and their numbers; new ones count on from the largest, in the order in which they come."""

    def __init__(self, known: Mapping[str, int]) -> None:
        self._texts = StringIds()
        self._number: Ints = np.full(1, UNKNOWN, dtype=np.int32)  # by number of the text
        self.next = 0
        encoded = [label.encode() for label in known]
        lengths = np.array([len(label) for label in encoded], dtype=np.int64)
        letters = np.frombuffer(b"".join([*encoded, bytes(WORD)]), dtype=np.uint8)
        words: Words = np.ndarray(len(letters) - WORD + 1, "<u8", letters, strides=(1,))
        if known:
            texts = self._texts.numbers(words, np.cumsum(lengths) - lengths, lengths)
            self._grow()
            self._number[texts] = list(known.values())
            self.next = max(known.values()) + 1

    def numbers(self, words: Words, starts: Longs, lengths: Longs, new: bool) -> Ints:
        """Return the number of each label; of unknown ones UNKNOWN, or a new number if `new`."""
        texts = self._texts.numbers(words, starts, lengths)
        self._grow()
        numbers: Ints = self._number[texts]
        if new:
            unknown = np.flatnonzero(numbers == UNKNOWN)
            found, first = np.unique(texts[unknown], return_index=True)
            if self.next + len(found) > MOST_UNITS:
                raise DataError(f"new labels need numbers beyond {MOST_UNITS - 1}; correct the largest in the index")
            self._number[found[np.argsort(first)]] = np.arange(self.next, self.next + len(found), dtype=np.int32)
            self.next += len(found)
            numbers = self._number[texts]
        return numbers

    def all(self) -> dict[str, int]:
        """Return the labels in the order of their numbers."""
        texts: Ints = np.flatnonzero(self._number != UNKNOWN).astype(np.int32)
        texts = texts[np.argsort(self._number[texts])]
        return dict(zip(self._texts.texts(texts)[0], self._number[texts].tolist(), strict=True))

    def _grow(self) -> None:
        missing = self._texts.count - len(self._number)
        if missing > 0:
            more = np.full(missing + self._texts.count // 2, UNKNOWN, dtype=np.int32)
            self._number = np.concatenate([self._number, more])


def read_index(path: Path) -> dict[str, int]:
    """Return the labels and numbers of an index file; DataError names file and line of the first bad one."""
    found: dict[str, int] = {}
    owner: dict[int, str] = {}
    for number, raw in enumerate(path.read_bytes().removesuffix(b"\n").split(b"\n"), 1):
        place = f"{path.name}:{number}"
        try:
            fields = raw.decode().removesuffix("\r").split("\t")
        except UnicodeDecodeError as error:
            raise DataError(f"{place}: cannot be read: {error}; legal: UTF-8 text") from error
        if fields == [""] and not found and number == 1:
            break  # an empty file: an index without labels
        label, value = _check(place, fields)
        if label in found:
            raise DataError(f"{place}: label {label!r} comes twice; remove one of the lines")
        if value in owner:
            raise DataError(f"{place}: number {value} of {label!r} is already that of {owner[value]!r}; correct one")
        found[label], owner[value] = value, label
    return found


def write_index(path: Path, labels: Mapping[str, int]) -> None:
    """Write an index file, in the order of its numbers."""
    ordered = sorted(labels.items(), key=lambda pair: pair[1])
    write_atomically(path, "".join(f"{label}\t{number}\n" for label, number in ordered))


def _check(place: str, fields: Sequence[str]) -> tuple[str, int]:
    if len(fields) != 2:
        raise DataError(f"{place}: {len(fields) - 1} TABs, legal: one, between a label and its number")
    label, number = fields
    if not label or "\0" in label:
        raise DataError(f"{place}: label {label!r} is not legal, legal: a text that is not empty")
    if not (number.isascii() and number.isdecimal() and len(number) < 20 and int(number) < MOST_UNITS):
        raise DataError(f"{place}: number {number!r:.60} is not legal, legal: 0 to {MOST_UNITS - 1}")
    return label, int(number)
