"""Rows of what the product does on a GPU, from the answers of product.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from scripts.bench.common.harness import Row

GB = 1e9
LONGEST = 6  # launches of a step that have a row
Answers = Sequence[dict[str, Any]]


def rows_of(part: str, answers: Answers) -> Iterator[Row]:
    """Return the rows of a part, of as much as was answered."""
    if answers:
        yield from ROWS[part](answers)


def _kernels(answers: Answers) -> Iterator[Row]:
    [found] = answers
    bad = [*found["differ"], *([found["failure"]] if found["failure"] else [])]
    yield Row("kernels that differ from NumPy", len(bad), None, "kernels", 0, ", ".join(bad))
    yield Row("kernels that agree with NumPy", found["agree"], None, "kernels", note=", ".join(found["left_out"]))


def _pci(answers: Answers) -> Iterator[Row]:
    for one in answers:
        yield Row(f"pinned memory {one['way']}", one["bytes_a_second"] / GB, None, "GB/s", higher=True)


def _determinism(answers: Answers) -> Iterator[Row]:
    if len(answers) > 1:
        digests = {one["sha256"] for one in answers}
        yield Row("two trainings with one seed: different models", len(digests) - 1, None, "models", 0)


def _epoch(answers: Answers) -> Iterator[Row]:
    seconds = {one["data"]: one for one in answers}
    peer = None
    for name, one in seconds.items():
        title = f"an epoch of {one['examples']:,} customers, data {name}" + (" (peer: in memory)" if peer else "")
        yield Row(title, one["seconds"], peer, "s")
        peer = one["seconds"]


def _top(answers: Answers) -> Iterator[Row]:
    ours, *others = answers
    theirs = others[0]["customers_a_second"] if others else None
    title = f"the best {ours['k']} items, seen ones left out (peer: PyTorch, topk)"
    yield Row(title, ours["customers_a_second"], theirs, "customers/s", higher=True)


def _launches(answers: Answers) -> Iterator[Row]:
    [found] = answers
    longest = list(found["ms"].items())[:LONGEST]
    for name, ms in longest:
        yield Row(f"a step by launches, each waited for: {name}", ms, None, "ms")
    others = sum(found["ms"].values()) - sum(ms for _, ms in longest)
    yield Row("a step by launches, each waited for: all others", others, None, "ms")


def _tests(answers: Answers) -> Iterator[Row]:
    bad = [one["test"] for one in answers if one["outcome"] == "failed"]
    good = sum(one["outcome"] == "passed" for one in answers)
    yield Row("tests that are meant for a GPU: failed", len(bad), None, "tests", 0, "\n".join(bad))
    yield Row("tests that are meant for a GPU: passed", good, None, "tests", higher=True)


ROWS = {
    "kernels": _kernels,
    "pci": _pci,
    "determinism": _determinism,
    "epoch": _epoch,
    "top": _top,
    "launches": _launches,
    "tests": _tests,
}
