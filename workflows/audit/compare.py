"""Compare a training with the one it repeats: bit by bit, or within a tolerance. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnlib.contract import Result
from regiondag.run.history import TrialOutcome

# Sums of float32 in another order differ in their last bits, and a training carries that on. Measured with other
# versions of NumPy and SciPy, and with compiled loops: losses 7e-7 of themselves apart, ranking metrics 1e-4.
LOSS_TOLERANCE = 0.005  # as a part of the loss
METRIC_TOLERANCE = 0.01  # of ranking metrics, which lie between 0 and 1
BF16 = ("mkl", "bf16 products")  # what multiplies bfloat16 numbers; NumPy says nothing
PROCESSORS = ("numpy", "scipy", "openblas")  # of which openblas names its kernels, too
LIBRARIES = (*PROCESSORS, "cupy", "cuda", "cudnn", "cudnn engines")


@dataclass(frozen=True, slots=True)
class Record:
    """What a run has of a training. Digests are empty where there is no such file."""

    settled: TrialOutcome
    result: Result | None
    result_digest: str
    losses: tuple[float, ...]  # after each epoch, by log.jsonl
    model: str  # SHA-256 of model.nc


@dataclass(frozen=True, slots=True)
class Replayed:
    """The same of the training that repeats it."""

    result: Result
    result_digest: str
    losses: tuple[float, ...]
    model: str


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure that is not the same, and whether it may differ that much."""

    name: str
    recorded: str
    replayed: str
    apart: str
    within: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """How two trainings compare."""

    other_kind: tuple[str, ...]  # in what the hardware and libraries differ; empty: the bits must be equal
    figures: int  # that were compared
    differences: tuple[Difference, ...]

    @property
    def equal(self) -> bool:
        """Whether every bit is the same."""
        return not self.differences

    @property
    def same(self) -> bool:
        """Whether the record holds: in every bit, or on another kind of machine within the tolerances."""
        return all(difference.within for difference in self.differences)


def compare(record: Record, again: Replayed, *, final: bool) -> Verdict:
    """Compare everything that both have; a difference is excused only on another kind of machine."""
    kind = find_other_kind(record, again.result)
    sources: list[tuple[str, Mapping[str, Any]]] = [("journal", _figures_of_outcome(record.settled, final=final))]
    if record.result:
        sources.append(("result.json", _figures_of_result(record.result)))
    figures = _figures_of_result(again.result)
    count, found = 0, list(_digest_of_result(record))
    for source, recorded in sources:
        for name, value in recorded.items():
            count += 1
            if figures.get(name) != value:
                found.append(_difference(f"{source}: {name}", name, value, figures.get(name), bool(kind)))
    for epoch, (one, other) in enumerate(zip(record.losses, again.losses, strict=False), start=1):
        count += 1
        if one != other:
            found.append(_difference(f"log.jsonl: loss after epoch {epoch}", "loss", one, other, bool(kind)))
    if again.result.value is None:  # of a training that diverged only the losses say when
        count += 1
        before, now = len(record.losses), len(again.losses)
        if before != now:
            found.append(Difference("log.jsonl: epochs", str(before), str(now), "", bool(kind)))
    if final:
        count += 1
        if record.model != again.model:
            found.append(Difference("model: sha256", record.model[:12], again.model[:12], "", bool(kind)))
    return Verdict(kind, count, tuple(found))


def find_other_kind(record: Record, again: Result) -> tuple[str, ...]:
    """Return what hardware and libraries are not the same, so that bits may differ; nothing: they must not."""
    before = record.result
    if before is None:
        return ()
    if not before.machine and before.host != again.host:
        return (f"the run did not record its machine, {before.host or 'unknown'}; this is {again.host}",)
    pairs: Iterator[tuple[str, object, object]] = iter(
        [
            ("backend", before.backend, again.backend),
            *((name, before.machine.get(name), again.machine.get(name)) for name in ("cpu", "architecture")),
            ("GPU", before.gpu.get("name"), again.gpu.get("name")),
            *((name, before.versions.get(name), again.versions.get(name)) for name in LIBRARIES),
        ]
    )
    on_gpu = before.backend == again.backend == "cupy"
    said = []
    if before.precision == again.precision == "bf16":  # rounded alike, summed by one library or by another
        for name in BF16:
            then, now = (result.versions.get(name, "none") for result in (before, again))
            said += [f"{name} {then} then, {now} now"] if then != now else []
    for name, one, other in pairs:
        if one == other or not one or (on_gpu and name in ("cpu", *PROCESSORS)):
            continue  # what is computed on a GPU depends on the processors no more than any file does
        said.append(f"{name} {one} then, {other or 'none'} now")
    return tuple(said)


def _digest_of_result(record: Record) -> Iterator[Difference]:
    wanted = record.settled.result
    if wanted and wanted != record.result_digest:
        seen = record.result_digest[:12] or "missing"
        yield Difference(
            "result.json: its sha256 in the journal", wanted[:12], seen, "not the one settled", within=False
        )


def _figures_of_outcome(settled: TrialOutcome, *, final: bool) -> dict[str, Any]:
    """Return what a job's result must say, too; of the final one the journal has metrics of what serves instead."""
    figures: dict[str, Any] = {"status": settled.status}
    if settled.value is not None:
        figures |= {"value": settled.value, "best_epoch": settled.best_epoch, "curve": settled.curve}
    if settled.value is not None and not final:
        figures |= _add_prefix("metrics", settled.metrics) | _add_prefix("popularity", settled.baseline)
        figures |= _figures_of_others(settled.compared)
    return figures


def _figures_of_result(result: Result) -> dict[str, Any]:
    figures: dict[str, Any] = {"status": result.status}
    if result.value is not None:
        figures |= {"value": result.value, "best_epoch": result.best_epoch, "curve": result.curve}
        figures |= {"epochs": result.epochs, "examples": result.examples}
        figures |= _add_prefix("metrics", result.metrics) | _add_prefix("popularity", result.baseline)
        figures |= _figures_of_others(result.compared)
    return figures


def _figures_of_others(compared: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {f"{name} {metric}": value for name, of in compared.items() for metric, value in of.items()}


def _add_prefix(what: str, metrics: Mapping[str, float]) -> dict[str, float]:
    return {f"{what} {name}": value for name, value in metrics.items()}


def _difference(title: str, name: str, one: Any, other: Any, other_kind: bool) -> Difference:
    apart = _apart(one, other)
    if name in ("best_epoch", "epochs"):
        within = other_kind  # of two epochs that are all but equally good the other one may be the best
    else:
        within = other_kind and apart is not None and _near(one, other, loss="loss" in name or _beyond_one(one))
    return Difference(title, _brief(one), _brief(other), "" if apart is None else f"{apart:.3g}", within)


def _beyond_one(value: Any) -> bool:
    """Return whether these cannot be values of a ranking metric, so that they are losses."""
    return any(abs(number) > 1 for number in _numbers(value))


def _near(one: Any, other: Any, *, loss: bool) -> bool:
    pairs = zip(_numbers(one), _numbers(other), strict=False)  # a training may stop an epoch earlier
    return all(abs(a - b) <= (LOSS_TOLERANCE * abs(a) if loss else METRIC_TOLERANCE) for a, b in pairs)


def _apart(one: Any, other: Any) -> float | None:
    """Return how far two numbers, or two curves at most, are apart; None where they cannot be compared."""
    pairs = list(zip(_numbers(one), _numbers(other), strict=False))
    return max(abs(a - b) for a, b in pairs) if pairs else None


def _numbers(value: Any) -> Sequence[float]:
    if isinstance(value, bool) or value is None:
        return ()
    if isinstance(value, int | float):
        return (float(value),)
    return tuple(value) if isinstance(value, tuple) else ()


def _brief(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} epochs, {value[-1]:.9g} last" if value else "none"
    return "none" if value is None else f"{value:.9g}" if isinstance(value, float) else str(value)
