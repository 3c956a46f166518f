"""Whether models of sequences recommend better than our families where order matters, in PyTorch beside ours.

REGIONDAG_SEQUENCES=FOLDER python -m scripts.bench.sequences     # goes on where it was interrupted
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.sequences.blending import blend
from scripts.bench.sequences.metrics import METRICS, interval, measure
from scripts.bench.sequences.ours import MARKOV, Chosen, choose_once
from scripts.bench.sequences.peers import Answer, Settings, answer_of
from scripts.bench.sequences.sets import SETS, Problem, made

BENCH = "sequences"
FAMILIES = ("popularity", MARKOV, "knn", "ease", "days")
LEFT_OUT = {"beauty": "days"}  # two matrices of 12,101 items by as many, for minutes
ALONE, WITH = "blend of ours", "blend with the sequence model"
RULE, BOTH = "blend with markov", "blend with markov and the sequence model"
ORDERED = (Settings("gru", 0.2, 0.003), Settings("sasrec", 0.2, 0.002))
SPARSE = (Settings("gru", 0.5, 0.003), Settings("sasrec", 0.5, 0.002))
SHOP = (*ORDERED, Settings("gru", 0.5, 0.001), Settings("sasrec", 0.5, 0.001))
TRIED: Mapping[str, Sequence[Settings]] = {
    "ml-1m": ORDERED[1:],  # the transformer alone: an epoch of either is a quarter of a minute
    "beauty": SPARSE,
    "retail": tuple(replace(one, half_life=60.0) for one in SHOP),
}
BLENDS = [(MARKOV, "ease"), (WITH, ALONE), (RULE, ALONE), (BOTH, RULE)]  # whose differences are kept, too
Figures = NDArray[np.float64]  # METRICS (customers, 2)


@dataclass(frozen=True)
class Sizes:
    """What is measured."""

    sets: Mapping[str, Callable[[], Problem]]
    epochs: int  # of a network, at most


@dataclass
class Found:
    """What one set gave: figures of each model, and what is kept of it."""

    figures: dict[str, Figures] = field(default_factory=dict)
    lists: dict[str, Mapping[str, tuple[np.ndarray, np.ndarray]]] = field(default_factory=dict)
    kept: dict[str, dict[str, object]] = field(default_factory=dict)
    on_valid: dict[str, float] = field(default_factory=dict)  # NDCG@10
    seconds: dict[str, float] = field(default_factory=dict)
    asking: dict[str, float] = field(default_factory=dict)  # ms for a customer


class Sequences(Bench[Sizes]):
    """The rows."""

    def __init__(self, area: Path, sizes: Sizes) -> None:
        super().__init__(area, sizes)
        self.found: dict[str, dict[str, object]] = {}
        area.mkdir(parents=True, exist_ok=True)

    def ml_1m(self) -> Iterator[Row]:
        """MovieLens, each customer's last item left out."""
        yield from self._rows("ml-1m")

    def beauty(self) -> Iterator[Row]:
        """Amazon's Beauty, each customer's last item left out."""
        yield from self._rows("beauty")

    def retail(self) -> Iterator[Row]:
        """The retail example, the last 28 days left out."""
        yield from self._rows("retail")

    def details(self, rows: Sequence[Row]) -> Mapping[str, object]:  # noqa: ARG002
        """Return each set's models: what was chosen, intervals, costs, and differences."""
        return {"sets": self.found}

    def _rows(self, name: str) -> Iterator[Row]:
        problem, found = self.sizes.sets[name](), Found()
        families = [family for family in FAMILIES if family != LEFT_OUT.get(name)]
        for family in families:
            add_ours(found, family, choose_once(self.area, name, family, problem), problem)
        path = self.area / f"{name}.npz"
        problem.save(path)
        tried = [replace(one, epochs=min(one.epochs, self.sizes.epochs)) for one in TRIED[name]]
        kinds = list(dict.fromkeys(one.kind for one in tried))
        for kind in kinds:
            add_peer(found, self._best(path, [one for one in tried if one.kind == kind], problem), problem)
        best = max(kinds, key=lambda kind: found.on_valid[kind])
        alone = [family for family in families if family != MARKOV]  # which is no family of the product
        more = {ALONE: [], WITH: [best], RULE: [MARKOV], BOTH: [MARKOV, best]}
        for label, members in ((label, [*alone, *others]) for label, others in more.items()):
            weights, lists = blend([found.lists[member] for member in members], problem.valid, problem.test)
            found.figures[label] = measure(lists[0], problem.test.wanted)
            found.kept[label] = {"weights": dict(zip(members, weights, strict=True))}
        self.found[name] = kept_of(found, problem, families, kinds)
        yield from rows_of(name, found, families, best)

    def _best(self, path: Path, tried: Sequence[Settings], problem: Problem) -> tuple[Settings, Answer]:
        """Return the settings that are best on `valid`; with days the network is trained again up to `test`."""
        answers = [answer_of(self.area, path, settings) for settings in tried]
        number = int(np.argmax([max(answer.curve) for answer in answers]))
        settings, answer = tried[number], answers[number]
        if problem.timed:
            again = answer_of(self.area, path, replace(settings, refit=1 + int(np.argmax(answer.curve))))
            answer = replace(again, curve=answer.curve, lists={**answer.lists, **again.lists})
        return settings, answer


def add_ours(found: Found, family: str, chosen: Chosen, problem: Problem) -> None:
    """Add one of our families."""
    found.figures[family] = measure(chosen.lists["test"][0], problem.test.wanted)
    found.lists[family] = chosen.lists
    found.seconds[family] = chosen.seconds
    found.asking[family] = 1000 * chosen.asking / problem.test.asked.customers
    found.on_valid[family] = float(measure(chosen.lists["valid"][0], problem.valid.wanted)[:, 0].mean())
    found.kept[family] = {
        "chosen": dict(chosen.hyperparameters),
        "tried": chosen.tried,
        "MB": chosen.megabytes,
    }


def add_peer(found: Found, best: tuple[Settings, Answer], problem: Problem) -> None:
    """Add a network."""
    settings, answer = best
    found.figures[settings.kind] = measure(answer.lists["test"][0], problem.test.wanted)
    found.lists[settings.kind] = answer.lists
    found.seconds[settings.kind] = answer.seconds
    found.asking[settings.kind] = 1000 * answer.asking / problem.test.asked.customers
    found.on_valid[settings.kind] = float(measure(answer.lists["valid"][0], problem.valid.wanted)[:, 0].mean())
    found.kept[settings.kind] = {
        "chosen": asdict(settings),
        "curve": [round(value, 4) for value in answer.curve],
        "MB": answer.parameters * 4 / (1 << 20),
    }


def kept_of(found: Found, problem: Problem, families: Sequence[str], kinds: Sequence[str]) -> dict[str, object]:
    """Return what the results file has of a set: means with their 90 % intervals, and those of paired differences."""
    models = {
        name: {
            **found.kept[name],
            **{metric: interval(values[:, n]) for n, metric in enumerate(METRICS)},
            **(costs_of(found, name) if name in found.seconds else {}),
        }
        for name, values in found.figures.items()
    }
    pairs = [(one, other) for one in kinds for other in families] + BLENDS
    return {
        "learned from": len(problem.test.fit.items),
        "items": problem.test.fit.width,
        "asked": problem.test.asked.customers,
        "models": models,
        "differences": {
            f"{one} - {other}": {
                metric: interval(found.figures[one][:, n] - found.figures[other][:, n])
                for n, metric in enumerate(METRICS)
            }
            for one, other in pairs
        },
    }


def costs_of(found: Found, name: str) -> dict[str, float]:
    """Return what a model reaches on `valid` and takes."""
    costs = {"ndcg@10 on valid": found.on_valid[name], "fit, s": found.seconds[name], "ask, ms": found.asking[name]}
    return {what: round(value, 4) for what, value in costs.items()}


def rows_of(name: str, found: Found, families: Sequence[str], best: str) -> Iterator[Row]:
    """Yield a row for each of ours beside the network that is better on `valid`, then the blends, then the costs."""
    for n, metric in enumerate(METRICS):
        for family in families:
            ours, peer = found.figures[family][:, n], found.figures[best][:, n]
            low, high = interval(peer - ours)[1:]
            note = f"{best} - {family}: 90 % [{low:.4f}, {high:.4f}]"
            yield Row(
                f"{name}: {metric}, {family} (peer: {best})",
                float(ours.mean()),
                float(peer.mean()),
                "",
                None,
                note,
                higher=True,
            )
        alone, both = found.figures[ALONE][:, n], found.figures[WITH][:, n]
        yield Row(
            f"{name}: {metric}, {ALONE} (peer: with {best})", float(alone.mean()), float(both.mean()), "", higher=True
        )
    for family in (one for one in ("ease", "days") if one in families):
        took = found.seconds[family], found.seconds[best]
        yield Row(f"{name}: processor's time of a fit, {family} (peer: {best})", *took, "s")
    took = found.asking["ease"], found.asking[best]
    yield Row(f"{name}: processor's time of a customer's list, ease (peer: {best})", *took, "ms")


def made_by_days() -> Problem:
    """Return the made-up customers as if their days were days."""
    return replace(made(), timed=True)


QUICK = {"ml-1m": made, "beauty": made, "retail": made_by_days}

if __name__ == "__main__":
    sys.exit(main(BENCH, Sequences, Sizes(SETS, 30), Sizes(QUICK, 2), kept=True))
