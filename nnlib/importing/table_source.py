"""Where purchases lie, and the SQL that reads them: a CSV, TSV or Parquet file, or a folder of such files."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnlib.errors import DataError
from nnlib.util.tables import TableError, Tables, quote, quote_name

SEPARATORS = {".csv": ",", ".tsv": "\t", ".txt": "\t"}
PARQUET = (".parquet", ".pq")
GZIP, ZSTD = ".gz", ".zst"
UTF8 = "utf-8"
LEGAL = ".csv, .tsv, .txt, also with .gz or .zst behind it, or .parquet"


@dataclass(frozen=True, slots=True)
class TableFormat:
    """How the texts of a table are to be read, where that is not the usual."""

    separator: str = ""  # between fields; empty: a comma, a tab in .tsv and .txt
    encoding: str = UTF8
    dates: str = ""  # as strptime has it; empty: ISO 8601, or seconds or milliseconds since 1970
    decimal: str = "."  # what stands before the decimals of a quantity


@dataclass(frozen=True, slots=True)
class Source:
    """The files of a table, all of one kind."""

    path: Path  # as it was named
    files: tuple[Path, ...]
    parquet: bool
    format: TableFormat

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.stat().st_size for file in self.files)

    @property
    def has_lines(self) -> bool:
        """Whether Python can read it line by line, which tells where something is wrong."""
        return not self.parquet and not any(file.suffix == ZSTD for file in self.files)


def find_source(path: Path, form: TableFormat) -> Source:
    """Return what a path names; DataError for a file that is no table, and for a folder that is not of one kind."""
    files: tuple[Path, ...] = (path,)
    if path.is_dir():
        files = tuple(sorted(file for file in path.iterdir() if _kind_of(file) and not file.name.startswith(".")))
        if not files:
            raise DataError(f"{path}: no table in this folder, legal: files that end in {LEGAL}")
    else:
        path.stat()  # OSError names it
    kinds = {_kind_of(file) for file in files}
    if "" in kinds:
        raise DataError(f"{path}: the name's ending is not legal, legal: {LEGAL}, or a folder of such files")
    if PARQUET[0] in kinds and len(kinds) > 1:
        raise DataError(f"{path}: holds Parquet and text files, legal: a folder of files of one kind")
    try:
        "".encode(form.encoding)  # which refuses what is no encoding of texts, such as zlib
    except LookupError:
        raise DataError(f"{path}: no encoding {form.encoding!r}, legal: utf-8, latin-1, cp1252, utf-16 ...") from None
    return Source(path, files, PARQUET[0] in kinds, form)


def separator_of(file: Path, form: TableFormat) -> str:
    """Return what is between the fields of a text file; DataError for a name that is none's."""
    kind = _kind_of(file)
    if kind not in SEPARATORS:
        raise DataError(f"{file}: the name's ending is not legal, legal: .csv, .tsv or .txt, also with .gz")
    return form.separator or SEPARATORS[kind]


def open_text(file: Path, form: TableFormat) -> io.TextIOBase:
    """Open a text file, gzipped or not."""
    encoding = "utf-8-sig" if _is_utf8(form) else form.encoding
    if file.suffix == GZIP:
        return gzip.open(file, "rt", encoding=encoding, newline="")
    return file.open(encoding=encoding, newline="")


class Reading:
    """The columns of a source, for queries of `tables`: `header` names them, `kinds` are their types in SQL."""

    header: tuple[str, ...]  # of several files that of the first
    kinds: Mapping[str, str]

    def __init__(self, source: Source, tables: Tables, scratch: Path) -> None:
        self.source, self.tables = source, tables
        # Names of the scratch folder, as a name with * or [ would be a pattern.
        self._names = {file: scratch / f"{n}{''.join(file.suffixes[-2:])}" for n, file in enumerate(source.files)}
        for file, name in self._names.items():
            name.symlink_to(file.resolve())
        if source.parquet:
            try:
                self.kinds = tables.describe(self._read_parquet(source.files))
            except TableError as error:
                raise DataError(f"{source.path}: {self.explain(error)}") from error
            self.header = tuple(self.kinds)
            return
        self._headers = {file: self._read_header(file) for file in source.files}
        self.header = self._headers[source.files[0]]
        self.kinds = dict.fromkeys(self.header, "VARCHAR")
        if not _is_utf8(source.format):
            self._recode(scratch)

    @property
    def whole(self) -> str:
        """All rows of Parquet files, as FROM has it."""
        return self._read_parquet(self.source.files)

    def explain(self, error: TableError) -> str:
        """Return what DuckDB says, with the files' own names."""
        text = str(error)
        for file, name in self._names.items():
            text = text.replace(str(name), str(file))
        return text

    def select(self, wanted: Mapping[str, str], files: Sequence[Path] = ()) -> str:
        """Return the query of the columns `wanted` (what each means: its name), all rows of all files, or of some."""
        if self.source.parquet:
            columns = ", ".join(f"{quote_name(name)} AS {quote_name(meaning)}" for meaning, name in wanted.items())
            return f"SELECT {columns} FROM {self._read_parquet(files or self.source.files)}"
        by_header: dict[tuple[str, ...], list[Path]] = {}
        for file, header in self._headers.items():
            if files and file not in files:
                continue
            by_header.setdefault((separator_of(file, self.source.format), *header), []).append(file)
        return " UNION ALL ".join(
            self._select_text(separator, header, files, wanted) for (separator, *header), files in by_header.items()
        )

    def _read_parquet(self, files: Sequence[Path]) -> str:
        names = ", ".join(quote(str(self._names[file])) for file in files)
        return f"read_parquet([{names}], union_by_name = true)"

    def _select_text(
        self, separator: str, header: Sequence[str], files: Sequence[Path], wanted: Mapping[str, str]
    ) -> str:
        for name in wanted.values():
            if name not in header:
                raise DataError(f"{files[0]}:1: no column {name!r}, which other files of the folder have")
        columns = ", ".join(f"c{header.index(name)} AS {quote_name(meaning)}" for meaning, name in wanted.items())
        kinds = ", ".join(f"'c{n}': 'VARCHAR'" for n in range(len(header)))
        names = ", ".join(quote(str(self._names[file])) for file in files)
        return (
            f"SELECT {columns} FROM read_csv([{names}], auto_detect = false, header = true, "
            f"delim = {quote(separator)}, quote = '\"', escape = '\"', columns = {{{kinds}}})"
        )

    def _read_header(self, file: Path) -> tuple[str, ...]:
        separator = separator_of(file, self.source.format)
        if file.suffix != ZSTD:
            with open_text(file, self.source.format) as lines:
                return tuple(next(csv.reader(lines, delimiter=separator, strict=True), ()))
        if not _is_utf8(self.source.format):
            raise DataError(f"{file}: is not UTF-8 and compressed by zstd; first: zstd -d {file.name}")
        first = self.tables.run(
            f"SELECT line FROM read_csv({quote(str(self._names[file]))}, auto_detect = false, header = false, "
            "delim = '\x01', quote = '', escape = '', columns = {'line': 'VARCHAR'}) LIMIT 1"
        )
        return tuple(next(csv.reader([first[0][0].removeprefix("\ufeff")], delimiter=separator), ())) if first else ()

    def _recode(self, scratch: Path) -> None:
        """Write the files once more, as UTF-8, which is all that can be read in several threads."""
        for number, file in enumerate(self.source.files):
            self._names[file] = scratch / f"{number}.utf-8{_kind_of(file)}"
            with (
                open_text(file, self.source.format) as old,
                self._names[file].open("w", encoding=UTF8, newline="") as new,
            ):
                shutil.copyfileobj(old, new, 1 << 20)


def _kind_of(file: Path) -> str:
    """Return the ending that says what a file is, without that of its compression; empty for none that is legal."""
    suffix = Path(file.stem).suffix if file.suffix in (GZIP, ZSTD) else file.suffix
    if suffix.lower() in PARQUET and file.suffix == suffix:
        return PARQUET[0]
    return suffix.lower() if suffix.lower() in SEPARATORS else ""


def _is_utf8(form: TableFormat) -> bool:
    return codecs.lookup(form.encoding).name in (UTF8, "ascii")
