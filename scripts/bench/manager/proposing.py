"""What PRE and POST scripts cost the manager: their whole processes, as DAGMan runs them, in a study of 41 regions.

CPU seconds, not wall time: a busy manager's wall time is many times that.
"""

from __future__ import annotations

import shutil
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import numpy as np

from nnlib.contract import RESULT_FILE, SCORES_FILE, Result, Status, result_to_json, scored_metrics, sha256_of
from regiondag.node.journal_index import renew_index
from regiondag.run.history import TrialOutcome
from regiondag.run.journal import Journal
from regiondag.run.layout import JOB_LOG, NodeName, RegionFolder, RunFolder
from regiondag.run.region_spec import read_spec
from regiondag.study.space import Space, random_point, seed_of
from regiondag.tuning.encoding import Array, Encoding
from regiondag.tuning.sharing import SHARING
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import Measured, NotMeasuredError, measure
from scripts.bench.manager.studies import Shape, generate, slugs_of, write_study
from tests.support.made_up_study import EXECUTING, METRICS, SUBMITTED, TERMINATED, event

BENCH = "proposing"
PARALLEL = 4
ROUND = 8
SPACE = """\
  stop: {stop}
  share: {share}
  space:
    l2: {{real: [1e-8, 1e-2], log: true}}
    l1: {{real: [1e-8, 1e-2], log: true}}
    momentum: {{real: [0.5, 0.99]}}
    warmup: {{real: [0, 2]}}
    optimizer: {{choice: [adam, rmsprop, adagrad]}}
    schedule: {{choice: [constant, cosine]}}
"""
EPOCHS = 20  # on each trial's curve
AFTER_INDEX = 16  # trials: about as many as a script of the region lets come before it makes its index anew
NOISE, SPREAD = 0.01, 0.1  # of the metric; of the regions' best points


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    regions: int = 41
    goals: dict[int, float | None] = field(default_factory=lambda: {12: 0.1, 100: None, 1000: 0.4})  # s, by trials
    repeats: int = 5


QUICK = Sizes(regions=4, goals={12: 0.1, 40: 0.4}, repeats=1)


class Proposing(Bench[Sizes]):
    """The rows."""

    peak_mb = 0.0  # of all that was measured

    def floor(self) -> Iterator[Row]:
        """What a process costs that does nothing, for scale."""
        for code in ("pass", "import numpy"):
            runs = [measure([sys.executable, "-c", code]) for _ in range(self.sizes.repeats)]
            yield Row(f"for scale: python -c '{code}', CPU", _middle(runs), None, "s")

    def trial(self) -> Iterator[Row]:
        """All scripts of a round, by the trial: one proposes, the others find that done; each trial is settled."""
        run = self._run("rounds", "off", "none", ROUND)
        folder = run.region("region-0")
        fill(folder, 2 * ROUND, 0)
        first, last = 2 * ROUND, 3 * ROUND - 1
        journal = folder.journal
        found: dict[str, list[Measured]] = {"first PRE": [], "other PRE": [], "POST": []}
        for _ in range(self.sizes.repeats):
            before = journal.read_bytes()
            found["first PRE"].append(call(run, "pre", first))
            found["other PRE"].append(call(run, "pre", last))
            write_result(folder, NodeName(folder.path.name, last))
            found["POST"].append(call(run, "post", last))
            journal.write_bytes(before)
            shutil.rmtree(folder.trial(NodeName(folder.path.name, last)))  # else the journal would have lost it
        seconds = {name: _middle(runs) for name, runs in found.items()}
        whole = seconds["first PRE"] / ROUND + seconds["other PRE"] * (ROUND - 1) / ROUND + seconds["POST"]
        for name, value in seconds.items():
            yield Row(f"{name} of a round of {ROUND}, after {2 * ROUND} trials: CPU", value, None, "s")
        yield Row(f"PRE and POST, by the trial, in rounds of {ROUND}: CPU", whole, None, "s", 0.1)

    def rounds(self) -> Iterator[Row]:
        """The first script of a round, which proposes for all of it."""
        yield from self._rows("rounds")

    def lanes(self) -> Iterator[Row]:
        """A lane's script, which proposes one trial."""
        yield from self._rows("lanes")

    def noise(self) -> Iterator[Row]:
        """The usual `stop: noise`, which also asks what is left to gain."""
        yield from self._rows("rounds", shares=("off",), stop="noise")

    def memory(self) -> Iterator[Row]:
        """The most memory of all of them."""
        yield Row("peak memory of a script, the largest of all", self.peak_mb or None, None, "MB", 500)

    def _rows(self, schedule: str, shares: tuple[str, ...] = SHARING, stop: str = "none") -> Iterator[Row]:
        points = PARALLEL if schedule == "rounds" else 1
        for share in shares:
            run = self._run(schedule, share, stop)
            for trials, goal in self.sizes.goals.items():
                for number, slug in enumerate(slugs_of(run)):
                    fill(run.region(slug), trials, number)
                runs = [propose(run, trials, points) for _ in range(self.sizes.repeats)]
                self.peak_mb = max(self.peak_mb, *(one.peak_mb for one in runs))
                asked = f"{schedule}, {points} point{'s' * (points > 1)} after {trials:,} trials in each region"
                yield Row(f"{asked}, share: {share}, stop: {stop}: CPU", _middle(runs), None, "s", goal)

    def _run(self, schedule: str, share: str, stop: str, parallel: int = PARALLEL) -> RunFolder:
        name = f"{schedule}-{share}-{stop}-{parallel}"
        shape = Shape(self.sizes.regions, max(self.sizes.goals) // parallel + 8, parallel)
        study = write_study(self.area / name, name, shape, schedule=schedule)
        text = study.read_text(encoding="utf-8").replace("epochs: 2", f"epochs: {EPOCHS}")
        study.write_text(text.replace("  space:\n", SPACE.format(share=share, stop=stop)), encoding="utf-8")
        return generate(study, "25.14")


def propose(run: RunFolder, trials: int, points: int) -> Measured:
    """Run PRE of a region's next trial as DAGMan does, and take back what it noted."""
    folder = run.region("region-0")
    before = folder.journal.read_bytes()
    found = call(run, "pre", trials)
    asked = len(Journal(folder.journal).read().proposals) - trials
    folder.journal.write_bytes(before)
    if asked != points:
        raise NotMeasuredError(f"{run.path}: {asked} proposals instead of {points}; see its manager.log")
    return found


def call(run: RunFolder, script: str, number: int) -> Measured:
    """Run PRE or POST of a region's trial as DAGMan does: try 1 of 3 of a job that ended with 0."""
    [code] = run.path.glob("regiondag-*.pyz")
    words = ["0"] if script == "pre" else ["0", "0", "2", "0", f"{1000 + number}.0"]
    node = str(NodeName("region-0", number))
    return measure(["sh", run.path / f"{script}.sh", sys.executable, code.name, node, *words])


def write_result(folder: RegionFolder, node: NodeName) -> None:
    """Leave in a trial's folder what its job would have: its result, scores of a thousand customers, its event log."""
    place, known = folder.trial(node), outcome(node.number or 0, 0.5)
    metrics = scored_metrics(read_spec(folder.spec).metric)
    scores = np.full((1, len(metrics), known.customers or 0), 0.5, np.float32)
    np.save(place / SCORES_FILE, scores, allow_pickle=False)
    said = {name: getattr(known, name) for name in ("value", "metrics", "stderr", "customers", "baseline", "curve")}
    result = Result(str(node), Status.OK, **said, best_epoch=EPOCHS, epochs=EPOCHS, examples=8, seconds=60.0,
                    scores=sha256_of(place / SCORES_FILE))  # fmt: skip
    (place / RESULT_FILE).write_text(result_to_json(result), encoding="utf-8")
    job = 1000 + (node.number or 0)
    texts = (("000", SUBMITTED.format(node=node)), ("001", EXECUTING), ("005", TERMINATED))
    (place / JOB_LOG).write_text("".join(event(code, job, at, text) for at, (code, text) in enumerate(texts)))


def fill(folder: RegionFolder, trials: int, number: int) -> None:
    """Write a journal as long as a real one's: random points, of which those near the region's best one are good."""
    spec = read_spec(folder.spec)
    space = spec.search.space
    points = [random_point(space, seed_of("cost", number, trial)) for trial in range(trials)]
    values = worth(space, points, number)
    events: list[tuple[str, dict[str, object]]] = []
    for first in range(0, trials, PARALLEL):
        together = range(first, min(first + PARALLEL, trials))
        events += [("proposed", {"trial": trial, "point": points[trial]}) for trial in together]
        events += [("settled", asdict(outcome(trial, float(values[trial])))) for trial in together]
    folder.journal.unlink(missing_ok=True)
    folder.journal_index.unlink(missing_ok=True)
    indexed = max(len(events) - 2 * AFTER_INDEX, 0)
    Journal(folder.journal).append_all(events[:indexed])
    if spec.search.share != "off":
        renew_index(folder, spec.metric)
    Journal(folder.journal).append_all(events[indexed:])


def worth(space: Space, points: list[dict[str, bool | int | float | str]], number: int) -> Array:
    """Return the metric of each point: a hill whose top lies elsewhere in each region, and noise."""
    chance = np.random.default_rng([number, 7])
    rows = Encoding(space).coordinates(points)
    top = 0.6 + SPREAD * chance.standard_normal(len(space))
    return np.asarray(np.exp(-((rows - top) ** 2).sum(axis=1)) + NOISE * chance.standard_normal(len(rows)))


def outcome(trial: int, value: float) -> TrialOutcome:
    """Return how a trial of a network ended, with all that its journal says of it."""
    metrics = {name: value / (place + 1) for place, name in enumerate(METRICS)}
    return TrialOutcome(
        trial,
        Status.OK,
        value=value,
        metrics=metrics,
        stderr=NOISE,
        customers=1000,
        baseline=metrics,
        curve=tuple(value * (epoch + 1) / EPOCHS for epoch in range(EPOCHS)),
        best_epoch=EPOCHS,
        seconds=60.0 + trial % 7,
        result=f"{seed_of(trial):064x}",
        host="slot1_1@worker-1.example.org",
        job=f"{1000 + trial}.0",
        compared={"floor": metrics},
    )


def _middle(runs: list[Measured]) -> float:
    return statistics.median(run.cpu_seconds for run in runs)


if __name__ == "__main__":
    sys.exit(main(BENCH, Proposing, Sizes(), QUICK, merged=True))
