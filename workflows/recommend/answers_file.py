"""Answers as rows and as JSON: what `regiondag recommend` prints and writes. A file is there whole or not at all."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnlib.util.files import replacing
from regiondag.errors import UsageError

if TYPE_CHECKING:
    from nnlib.prediction.recommender import Answer

ENDINGS = (".csv", ".json", ".jsonl", ".parquet")
COLUMNS = ("region", "customer", "known", "rank", "item", "name", "score", "because", "answered_by", "version")


@dataclass(frozen=True, slots=True)
class Told:
    """What a region's champion answered, with what has to be said beside it."""

    region: str
    slug: str
    version: str  # of the champion
    answer: Answer
    names: Mapping[str, str]  # of items, where known
    near: tuple[str, ...] = ()  # customers who may have been meant, where this one is not known


@dataclass(frozen=True, slots=True)
class OwnedItem:
    """What somebody has already."""

    item: str
    name: str  # empty where it is not known


@dataclass(frozen=True, slots=True)
class ItemFacts:
    """One item of a list."""

    rank: int  # from 1
    item: str
    name: str  # empty where it is not known
    score: float  # of the champion; larger is better, and nothing else is meant by it
    because: tuple[OwnedItem, ...]  # what raised the score most, with `--because`


@dataclass(frozen=True, slots=True)
class AnswerFacts:
    """What is recommended to one customer by the champion of one region."""

    region: str
    slug: str
    version: str  # of the champion
    customer: str
    known: bool  # whether he is in the data
    by: str  # what answered, in words
    near: tuple[str, ...]  # customers who may have been meant, where this one is not known
    items: tuple[ItemFacts, ...]


def facts_of(told: Told) -> AnswerFacts:
    """Return an answer as JSON has it."""
    answer, names = told.answer, told.names
    items = (
        ItemFacts(
            rank,
            one.item,
            names.get(one.item, ""),
            one.score,
            tuple(OwnedItem(item, names.get(item, "")) for item in one.because),
        )
        for rank, one in enumerate(answer.items, 1)
    )
    whose = (told.region, told.slug, told.version, answer.customer, answer.known, answer.by)
    return AnswerFacts(*whose, told.near, tuple(items))


def check_ending(path: Path) -> None:
    """Raise UsageError for a file of a kind that is not written, or whose folder is not there."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"--out: {path.name!r} is not legal, legal: a name ending in {', '.join(ENDINGS)}")
    if not path.parent.is_dir():
        raise UsageError(f"--out: there is no folder {path.parent}; make it first")
    if path.is_dir():
        raise UsageError(f"--out: {path} is a folder, legal: the name of a file in it")


def write_answers(path: Path, answers: Iterable[Told], study: str, k: int) -> int:
    """Write answers as the file's name says it; return how many rows."""
    kind = path.suffix.lower()
    if kind == ".parquet":
        return _write_parquet(path, answers)
    rows = 0
    with replacing(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        if kind == ".csv":
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            for told in answers:
                writer.writerows(_rows(told))
                rows += len(told.answer.items)
            return rows
        between, end = (",\n", "\n]}\n") if kind == ".json" else ("\n", "\n")
        if kind == ".json":
            file.write(f'{{"study": {json.dumps(study, ensure_ascii=False)}, "k": {k}, "answers": [\n')
        for number, told in enumerate(answers):
            rows += len(told.answer.items)
            file.write((between if number else "") + to_json_line(told))
        file.write(end)
    return rows


def to_json_line(told: Told) -> str:
    """Return an answer as JSON on one line."""
    return json.dumps(asdict(facts_of(told)), ensure_ascii=False)


def _rows(told: Told) -> Iterator[tuple[Any, ...]]:
    answer = told.answer
    known = "true" if answer.known else "false"
    for rank, one in enumerate(answer.items, 1):
        because = json.dumps(one.because, ensure_ascii=False) if one.because else ""
        name = told.names.get(one.item, "")
        yield (
            *(told.region, answer.customer, known, rank, one.item, name, one.score, because, answer.by, told.version),
        )


def _write_parquet(path: Path, answers: Iterable[Told]) -> int:
    import numpy as np

    from nnlib.util.parquet import MOST_ROWS, Chosen, Column, write_parquet

    def columns(rows: list[tuple[Any, ...]]) -> dict[str, Column]:
        found: dict[str, Column] = {}
        for name, values in zip(COLUMNS, zip(*rows, strict=True), strict=True):
            if name in ("rank", "score"):
                found[name] = np.array(values, np.int32 if name == "rank" else np.float32)
            else:
                numbers = {text: n for n, text in enumerate(dict.fromkeys(values))}
                found[name] = Chosen(list(numbers), np.array([numbers[text] for text in values]))
        return found

    with write_parquet(path) as file:
        waiting: list[tuple[Any, ...]] = []
        for told in answers:
            waiting += _rows(told)
            if len(waiting) >= MOST_ROWS:
                file.add(columns(waiting))
                waiting = []
        if waiting or not file.rows:
            if not waiting:
                raise UsageError(
                    "nothing is recommended to anybody, and Parquet has no empty files here; --out FILE.csv"
                )
            file.add(columns(waiting))
        return file.rows
