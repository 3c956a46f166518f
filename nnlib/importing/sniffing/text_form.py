"""The encoding and the separator of a text file, guessed of some of it. Pure."""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from nnlib.errors import DataError
from nnlib.importing.sniffing.ambiguous import AmbiguousError

MARKS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
)
MARKS += ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", "^": "caret", "~": "tilde", "\x01": "\\x01"}
LONGEST_LINE = 1 << 20  # characters; csv's own limit is lower for a field
ROWS = 20_000  # that are looked at
# Letters as cp1252 has them where another encoding was meant: signs in words, capitals behind small letters.
NO_WORDS = re.compile(r"[^\W\d_][\xa1-\xb4\xb6-\xb9\xbb-\xbf\xd7\xf7]+[^\W\d_]|[a-zß-öø-ÿ][À-ÖØ-ÞŠŽŒŸ]|[À-ÿ]{4}")
OTHERS = (
    ("latin-1", "Western Europe, old"),
    ("cp1250", "Central Europe"),
    ("cp1251", "Cyrillic"),
    ("cp1253", "Greek"),
    ("cp1254", "Turkish"),
    ("shift_jis", "Japanese"),
    ("gb18030", "Chinese"),
)


@dataclass(frozen=True, slots=True)
class Guess:
    """A value and why."""

    value: str
    why: str


def guess_encoding(data: bytes, whole: bool) -> Guess:
    """Return the encoding of a file that begins with `data`; AmbiguousError where several would do."""
    for mark, name in MARKS:
        if data.startswith(mark):
            return Guess(name, "by the mark at its begin")
    if zeros := _find_utf16(data[: 1 << 16]):
        return Guess(zeros, "every second byte is zero")
    if b"\0" in data:
        line = data[: data.index(b"\0")].count(b"\n") + 1
        raise DataError(f"line {line}: a zero byte, so it is no text; export the table as CSV or Parquet")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data, final=whole)
    except UnicodeDecodeError as error:
        return _guess_8_bit(data, error.start)
    return Guess("utf-8", "all of it can be read so" if whole else "what was looked at can be read so")


def _find_utf16(data: bytes) -> str:
    half = len(data) // 2
    if half < 4:
        return ""
    for name, first in (("utf-16-be", 0), ("utf-16-le", 1)):
        if data[first : 2 * half : 2].count(0) > 0.5 * half and not data[1 - first : 2 * half : 2].count(0):
            return name
    return ""


def _guess_8_bit(data: bytes, start: int) -> Guess:
    line = data[:start].count(b"\n") + 1
    where = f"byte {data[start]:#04x} in line {line} is not UTF-8"
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        text = ""
    high = Counter(word for word in re.findall(r"\w*[^\x00-\x7f]+\w*", text))
    strange = sum(count for word, count in high.items() if NO_WORDS.search(word))
    if not text or strange > 0.02 * sum(high.values()):
        answers = [(name, f"{what}: {_word(data, start, name)}") for name, what in OTHERS if _word(data, start, name)]
        raise AmbiguousError(f"{where}, and it reads strangely as cp1252", "encoding", answers)
    return Guess("cp1252", f"{where}; it reads {_word(data, start, 'cp1252')}")


def _word(data: bytes, at: int, encoding: str) -> str:
    """Return the word around a byte; empty where the encoding has no such byte."""
    some = data[max(0, at - 24) : at + 24]
    try:
        text = some.decode(encoding)
    except UnicodeDecodeError:
        return ""
    middle = re.search(r"[\w\x80-\uffff]*[^\x00-\x7f][\w\x80-\uffff]*", text)
    return repr(middle[0]) if middle else ""


def split_rows(text: str, separator: str, whole: bool) -> list[list[str]]:
    """Return the rows of a text, without the last one where it may be cut; csv.Error where quotes are wrong."""
    if len(text) > LONGEST_LINE and text.find("\n", 0, LONGEST_LINE + 1) < 0:
        raise DataError(f"line 1: longer than {LONGEST_LINE:,} characters, so it is no table of purchases")
    rows: list[list[str]] = []
    reader = csv.reader(text.splitlines(keepends=True), delimiter=separator, strict=True)
    try:
        for row in reader:
            if row:
                rows.append(row)
            if len(rows) > ROWS:
                return rows[:-1]
    except csv.Error:
        if whole or len(rows) < 2:
            raise
        return rows
    return rows if whole else rows[:-1]


def guess_separator(text: str, whole: bool) -> Guess:
    """Return what is between fields: what gives all rows one number of fields; AmbiguousError where several do."""
    if text.startswith("sep="):
        raise DataError("line 1: 'sep=' is for a spreadsheet; take that line out: sed -i 1d FILE")
    found: dict[str, int] = {}
    for separator in SEPARATORS:
        try:
            rows = split_rows(text, separator, whole)
        except csv.Error:
            continue
        counts = Counter(map(len, rows))
        width = len(rows[0]) if rows else 0
        if width > 1 and counts[width] >= 0.98 * len(rows):
            found[separator] = width
    if not found:
        fields = _fields(text)
        raise DataError(
            f"no separator gives every line as many fields as the first, or a quote is not closed; {fields}"
        )
    even = {separator: width for separator, width in found.items() if _is_even(text, separator, whole)} or found
    best = max(even.values())
    chosen = [separator for separator, width in even.items() if width == best]
    if len(chosen) > 1:
        answers = [(one, f"{SEPARATORS[one]}: {best} columns") for one in chosen]
        raise AmbiguousError("lines can be cut in several ways", "separator", answers)
    return Guess(chosen[0], f"cuts every line into {best} fields")


def _is_even(text: str, separator: str, whole: bool) -> bool:
    return len({len(row) for row in split_rows(text, separator, whole)}) == 1


def _fields(text: str) -> str:
    lines = text.splitlines()[:3]
    shown = " / ".join(repr(line[:30]) for line in lines)
    return f"it begins {shown}" if lines else "it is empty; legal: a header and a purchase a line"


def check_header(header: Sequence[str], rows: Sequence[Sequence[str]], separator: str) -> None:
    """Raise DataError for a first line that names no columns."""
    if not any(name.strip() for name in header):
        raise DataError("line 1: no header; legal: a first line such as region,customer,item,date")
    plain = [name for name in header if re.fullmatch(r"[-+]?[\d.,:/ -]+", name.strip())]
    if plain and len(plain) >= min(2, len(header) - 1):
        names = separator.replace("\t", r"\t").join(("region", "customer", "item", "date"))
        raise DataError(
            f"line 1: no header, it holds values ({plain[0]!r}); put the columns' names above: sed -i '1i {names}' FILE"
        )
    if not rows:
        raise DataError("no line after the header; legal: one purchase a line")
